"""Addresses of places in buckets, and where on this machine their content is kept meanwhile."""

import dataclasses
import os
import re
from pathlib import Path

from eeg2text_jax.errors import UserError

SCHEMES = {"gs": "gcs", "s3": "s3"}  # and the extra whose package reads them
CACHE = "EEG2TEXT_BUCKET_CACHE"  # environment: where copies are kept
COPIES, RUNS, NOTES = "copies", "runs", "notes"  # its folders
_ADDRESS = re.compile(r"(gs|s3)://([^/]*)/?(.*)", re.DOTALL)
_BUCKET = re.compile(r"[a-z0-9][a-z0-9._-]{1,220}[a-z0-9]")


@dataclasses.dataclass(frozen=True)
class Address:
    """A place in a bucket: an object, or the folder of all whose names begin with `key/`."""

    scheme: str
    bucket: str
    key: str

    def __str__(self) -> str:
        return f"{self.scheme}://{self.bucket}/{self.key}"

    def below(self, name: str) -> "Address":
        return dataclasses.replace(self, key=f"{self.key}/{name}" if self.key else name)

    @property
    def copy(self) -> Path:
        """Where what is only read is copied to; the path says the address."""
        return cache_folder() / COPIES / self.scheme / self.bucket / self.key

    @property
    def run(self) -> Path:
        """Where a workdir is worked on that lies there."""
        return cache_folder() / RUNS / self.scheme / self.bucket / self.key


def is_address(place: object) -> bool:
    """Whether a place is in a bucket that can be read and written."""
    return re.match(r"(gs|s3)://", str(place)) is not None


def parse(place: str) -> Address:
    """
    Raises:
      UserError: the address names no bucket, or what a folder of this machine cannot be called.
    """
    found = _ADDRESS.fullmatch(str(place))
    if not found or not _BUCKET.fullmatch(found[2]):
        raise UserError(f"{place}: expected gs://BUCKET/PATH or s3://BUCKET/PATH.")
    key = found[3].rstrip("/")
    if "\0" in key or any(not part or part.startswith(".") for part in key.split("/") if key):
        raise UserError(f"{place}: no part of the path may be empty, begin with a dot or have a NUL in it.")
    return Address(found[1], found[2], key)


def cache_folder() -> Path:
    """Where copies are kept: `EEG2TEXT_BUCKET_CACHE`, or a folder of the user's cache."""
    stated = os.environ.get(CACHE)
    return Path(stated or Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "eeg2text_jax_buckets").expanduser()


def address_of(path: str | os.PathLike[str]) -> str:
    """The address whose copy `path` is; `path` itself where it is none."""
    try:
        inside = Path(path).absolute().relative_to(cache_folder().absolute())
    except ValueError:
        return os.fspath(path)
    kind, scheme, *rest = (*inside.parts, "", "")
    address = f"{scheme}://{'/'.join(filter(None, rest))}"
    return address if kind in (COPIES, RUNS) and scheme in SCHEMES and is_address(address) else os.fspath(path)


def notes_of(folder: Path) -> Path:
    """Where it is noted what a copy or a run was when it was last equal to the bucket's content."""
    inside = folder.relative_to(cache_folder())
    return cache_folder() / NOTES / f"{'%'.join(inside.parts)}.json"
