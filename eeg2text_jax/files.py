"""Writing files that are whole or not there, and the digests that tell one file from another."""

import contextlib
import hashlib
import os
import shutil
from collections.abc import Iterator

from etils import epath

CHUNK = 1 << 20  # bytes read at once


@contextlib.contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[epath.Path]:
    """A place beside `path` to write a file or folder at; it takes the name of `path` once the block has ended well.

    Where the block raises, what was written is removed and `path` stays as it was. The place has one name for each
    `path`, so what a killed process left there is written over by the next one.
    """
    path = epath.Path(path)
    partial = partial_of(path)
    remove(partial)
    try:
        yield partial
        partial.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            remove(partial)
        raise


def partial_of(path: str | os.PathLike[str]) -> epath.Path:
    """The place at which `replacing` writes."""
    path = epath.Path(path)
    return path.parent / f".{path.name}.partial"


def remove(path: epath.Path) -> None:
    """Removes a file or a folder, if it is there."""
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Writes a UTF-8 file in the way of `replacing`."""
    with replacing(path) as partial:
        partial.write_text(text, encoding="utf8")


def file_digest(path: str | os.PathLike[str]) -> str:
    """SHA-256 of a file's bytes, in hexadecimal."""
    digest = hashlib.sha256()
    with epath.Path(path).open("rb") as file:
        while chunk := file.read(CHUNK):
            digest.update(chunk)
    return digest.hexdigest()
