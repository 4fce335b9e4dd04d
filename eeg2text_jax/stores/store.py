"""The interface of a bucket, and messages for its failures.

Objects are read and written as a whole; an existing object is complete. A bucket that does not answer raises an error
after about two minutes.
"""

import contextlib
import importlib
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple, Protocol

from eeg2text_jax.errors import UserError
from eeg2text_jax.stores.address import SCHEMES, Address

SECONDS = "EEG2TEXT_BUCKET_SECONDS"  # environment variable: timeout of one attempt in seconds
ATTEMPTS = 4  # maximum number of attempts of a request
DIGEST = "sha256"  # metadata key: the SHA-256 of an object
FENCE = "fence"  # metadata key: the label of the lease under which the object was written
LOCK = ".lock"  # name of the lease object of a workdir, see `lease`
ANY = "any content, or none"  # instead of a tag: an unconditional request

NONE: Mapping[str, str] = MappingProxyType({})  # no labels

Advance = Callable[[int], object]


class StoreError(UserError):
    """The bucket refused a request or did not answer; finished files stay in it, and the same command resumes."""

    @classmethod
    def no_access(cls, place: str, why: str) -> "StoreError":
        return cls(
            f"{place}: the credentials give no access ({why}); check the credentials and the permissions of the bucket."
        )

    @classmethod
    def no_bucket(cls, place: str) -> "StoreError":
        return cls(f"{place}: there is no such bucket; create it, or check its name.")

    @classmethod
    def no_answer(cls, place: str, why: str) -> "StoreError":
        return cls(
            f"{place}: does not answer ({why[:160]}); check the network, and run the same command again; what is "
            "finished is kept."
        )


class Entry(NamedTuple):
    """An object in a bucket: its full name, its size in bytes, and a tag that changes with its content."""

    key: str
    size: int
    tag: str


class Store(Protocol):
    """A bucket. Every method may raise `StoreError`."""

    def entries(self, prefix: str) -> list[Entry]:
        """List objects whose names begin with `prefix`."""

    def head(self, key: str) -> tuple[str, dict[str, str]] | None:
        """Return the tag and metadata of an object; None if it does not exist."""

    def read(self, key: str) -> tuple[bytes, str] | None:
        """Return the content and tag of a small object; None if it does not exist."""

    def download(self, key: str, path: Path, advance: Advance) -> str | None:
        """Write an object to a file; return the SHA-256 in its metadata, if any."""

    def upload(
        self, path: Path, key: str, digest: str, over: str | None = ANY, labels: Mapping[str, str] = NONE
    ) -> str | None:
        """Upload a file as an object, atomically, if the object's tag is `over` (None: if there is no object).

        Return the new tag, or None if nothing was written. Metadata are `digest`, the file's SHA-256, and `labels`.
        """

    def put(self, key: str, content: bytes, over: str | None) -> str | None:
        """Write a small object if the object's tag is `over` (None: if there is no object); return a tag or None."""

    def delete(self, key: str, over: str = ANY) -> bool:
        """Remove an object if it exists; return False if its tag is not `over`."""


def open_store(address: Address) -> Store:
    """Return the bucket of a URL without a request; one client is shared by all callers with the same settings.

    Raises UserError if the client package is not installed, or there are no credentials.
    """
    extra = SCHEMES[address.scheme]
    settings = {name: value for name, value in os.environ.items() if name.startswith(_SETTINGS)}
    known = (address.scheme, address.bucket, *sorted(settings.items()))
    if known in _CLIENTS:
        return _CLIENTS[known]
    try:
        module = importlib.import_module(f"eeg2text_jax.stores.{extra}_store")
    except ImportError as error:
        raise UserError(
            f"{address}: reading and writing {address.scheme}:// needs {error.name}, which is not installed; run pip "
            f"install 'eeg2text_jax[{extra}]'."
        ) from error
    _CLIENTS[known] = module.open_bucket(address.bucket)
    return _CLIENTS[known]


_CLIENTS: dict[tuple[object, ...], Store] = {}
_SETTINGS = ("AWS_", "GOOGLE_", "STORAGE_EMULATOR", SECONDS)  # prefixes of environment variables that configure clients


def seconds() -> float:
    """Return the timeout of one attempt in seconds. Raises UserError if `EEG2TEXT_BUCKET_SECONDS` is out of range."""
    stated = os.environ.get(SECONDS, "30")
    with contextlib.suppress(ValueError):
        if 0 < (found := float(stated)) <= 3600:
            return found
    raise UserError(f"{SECONDS}={stated}: expected seconds, above 0 and at most 3600.")


@contextlib.contextmanager
def translate_errors(place: str, translate: Callable[[str, Exception], StoreError | None]) -> Iterator[None]:
    """For an exception of a client, raise `translate(place, error)`, or the exception itself if that is None."""
    try:
        yield
    except Exception as error:
        if (message := translate(place, error)) is None:
            raise
        raise message from error
