"""Bucket URLs, and the local cache folders of their content."""

import dataclasses
import os
import re
from pathlib import Path

from eeg2text_jax.errors import UserError

SCHEMES = {"gs": "gcs", "s3": "s3"}  # scheme -> the pip extra that installs its client
CACHE = "EEG2TEXT_BUCKET_CACHE"  # environment variable: the cache folder
COPIES, RUNS = "copies", "runs"  # subfolders of the cache
_ADDRESS = re.compile(r"(gs|s3)://([^/]*)/?(.*)", re.DOTALL)
_BUCKET = re.compile(r"[a-z0-9][a-z0-9._-]{1,220}[a-z0-9]")


@dataclasses.dataclass(frozen=True)
class Address:
    """A bucket URL: an object, or the folder of all objects whose names begin with `key/`."""

    scheme: str
    bucket: str
    key: str

    def __str__(self) -> str:
        return f"{self.scheme}://{self.bucket}/{self.key}"

    def below(self, name: str) -> "Address":
        """Return the URL of the object `name` in this folder."""
        return dataclasses.replace(self, key=f"{self.key}/{name}" if self.key else name)

    @property
    def copy(self) -> Path:
        """The cache path of a read-only copy of the content; `address_of` turns the path back into the URL."""
        return cache_folder() / COPIES / self.scheme / self.bucket / self.key

    @property
    def run(self) -> Path:
        """The cache folder of a workdir in the bucket, on the first host."""
        return cache_folder() / RUNS / self.scheme / self.bucket / self.key

    def run_of(self, host: int) -> Path:
        """Return the cache folder of a workdir on another host than the first, which may share its cache."""
        return cache_folder() / f"{RUNS}_of_host_{host}" / self.scheme / self.bucket / self.key


def is_address(place: object) -> bool:
    """Return whether a place is a bucket URL, not a path."""
    return re.match(r"(gs|s3)://", str(place)) is not None


def parse(place: str) -> Address:
    """Parse a bucket URL. Raises UserError if the bucket is missing, or a part cannot be a local file name."""
    found = _ADDRESS.fullmatch(str(place))
    if not found or not _BUCKET.fullmatch(found[2]):
        raise UserError(f"{place}: expected gs://BUCKET/PATH or s3://BUCKET/PATH.")
    key = found[3].rstrip("/")
    if "\0" in key or any(not part or part.startswith(".") for part in key.split("/") if key):
        raise UserError(
            f"{place}: a part of the path is empty, begins with a dot or has a NUL character; expected "
            "gs://BUCKET/PATH without such parts; rename that part."
        )
    return Address(found[1], found[2], key)


def cache_folder() -> Path:
    """Return the cache folder: `EEG2TEXT_BUCKET_CACHE`, or a folder in the user's cache."""
    default = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "eeg2text_jax_buckets"
    return Path(os.environ.get(CACHE) or default).expanduser()


def address_of(path: str | os.PathLike[str]) -> str:
    """Return the bucket URL of a cached path, or the path itself."""
    try:
        inside = Path(path).absolute().relative_to(cache_folder().absolute())
    except ValueError:
        return os.fspath(path)
    kind, scheme, *rest = (*inside.parts, "", "")
    address = f"{scheme}://{'/'.join(filter(None, rest))}"
    known = kind in (COPIES, RUNS) or kind.startswith(f"{RUNS}_of_host_")
    return address if known and scheme in SCHEMES and is_address(address) else os.fspath(path)
