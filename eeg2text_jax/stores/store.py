"""What a bucket is asked, whoever keeps it, and sentences for what it answers.

Reading and writing are of whole objects: one that is there is complete. Every request has a limit of time and of
attempts, so that a store that does not answer is an error after about two minutes.
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

SECONDS = "EEG2TEXT_BUCKET_SECONDS"  # environment: how long one attempt of a request may take without an answer
ATTEMPTS = 4
DIGEST = "sha256"  # what an object that was written here says of itself, beside its content
FENCE = "fence"  # the label of the lease under which it was written
LOCK = ".lock"  # the object in a workdir that is its lease
ANY = "any content, or none"  # in place of a tag: the change has no condition

NONE: Mapping[str, str] = MappingProxyType({})

Advance = Callable[[int], object]


class StoreError(UserError):
    """A store refused, or did not answer; what is finished there stays, and the same command goes on from it."""


class Entry(NamedTuple):
    """An object: its whole name, its size in bytes, and a tag that another content would not have."""

    key: str
    size: int
    tag: str


class Store(Protocol):
    """One bucket. Every method raises `StoreError`."""

    def entries(self, prefix: str) -> list[Entry]:
        """Objects whose names begin with `prefix`."""

    def head(self, key: str) -> tuple[str, dict[str, str]] | None:
        """Tag and labels of an object; None where there is none."""

    def read(self, key: str) -> tuple[bytes, str] | None:
        """Content and tag of a small object; None where there is none."""

    def download(self, key: str, path: Path, advance: Advance) -> str | None:
        """Writes an object to a file; returns the SHA-256 that is stated beside it, if one is."""

    def upload(
        self, path: Path, key: str, digest: str, over: str | None = ANY, labels: Mapping[str, str] = NONE
    ) -> str | None:
        """Makes an object of a file, whole or not at all; returns its tag.

        Args:
          path: the file.
          key: the object's whole name.
          digest: the file's SHA-256, which is stated beside the content.
          over: the tag that the object must have (None: there must be none), else nothing is written and None returned.
          labels: what else is stated beside the content.
        """

    def put(self, key: str, content: bytes, over: str | None) -> str | None:
        """Makes a small object if the one there has the tag `over` (None: if there is none); else returns None."""

    def delete(self, key: str, over: str = ANY) -> bool:
        """Removes an object, if it is there; returns False where it is there and has not the tag `over`."""


def open_store(address: Address) -> Store:
    """The bucket of an address; one client serves all that ask. Nothing is asked of the bucket yet.

    Raises:
      UserError: the package that reads it is not installed, or it has no credentials to begin with.
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
_SETTINGS = ("AWS_", "GOOGLE_", "STORAGE_EMULATOR", SECONDS)  # of the environment: who asks whom, and how patiently


def seconds() -> float:
    """How long one attempt may take without an answer.

    Raises:
      UserError: the environment says something else than a time.
    """
    stated = os.environ.get(SECONDS, "30")
    with contextlib.suppress(ValueError):
        if 0 < (found := float(stated)) <= 3600:
            return found
    raise UserError(f"{SECONDS}={stated}: expected seconds above 0, to 3600.")


def refused(place: str, why: str) -> StoreError:
    """The credentials are missing, or are not those that the bucket asks for."""
    return StoreError(f"{place}: the credentials do not open it ({why}); look at them, and at who may use the bucket.")


def missing(place: str) -> StoreError:
    return StoreError(f"{place}: there is no such bucket; make it first, or look at its name.")


def silent(place: str, why: str) -> StoreError:
    return StoreError(
        f"{place}: does not answer ({why[:160]}); what is finished is kept, and the same command goes on once it does."
    )


@contextlib.contextmanager
def saying(place: str, translate: Callable[[str, Exception], StoreError | None]) -> Iterator[None]:
    """Turns a client's exceptions into a sentence, those of which `translate` knows one."""
    try:
        yield
    except StoreError:
        raise
    except Exception as error:
        sentence = translate(place, error)
        if sentence is None:
            raise
        raise sentence from error
