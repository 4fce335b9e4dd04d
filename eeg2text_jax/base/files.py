"""Atomic writing, file locks and digests."""

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import shutil
import socket
import stat
import time
from collections.abc import Callable, Iterator
from typing import Any

from etils import epath

from eeg2text_jax.base.errors import UserError

# of `flock` on file systems without locks
_NO_LOCKS = (errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOLCK, errno.EINVAL)

LISTENERS: list[Callable[[], None]] = []  # called when a file or folder has its final name


def notify() -> None:
    for listener in LISTENERS:
        listener()


@contextlib.contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[epath.Path]:
    """Yield a temporary path for a file or folder, renamed to `path` if the block succeeds.

    The temporary path is always the same, so that the next process overwrites what a killed one left. UserError if
    `path` is a link, a device, or a folder where the block wrote a file.
    """
    path = epath.Path(path)
    check_replaceable(path)
    partial = partial_of(path)
    remove(partial)
    try:
        with naming(path):
            yield partial
            if path.is_dir() and not partial.is_dir():
                raise UserError(f"{path}: is a folder, where a file is to be written; rename it or remove it.")
            partial.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            remove(partial)
        raise
    notify()


def check_replaceable(path: str | os.PathLike[str], said: str = "") -> None:
    """Raise UserError if a path (`said` in the message) is a link, a device, a pipe or a socket."""
    if not is_local(path):
        return
    try:
        mode = os.lstat(path).st_mode
    except (FileNotFoundError, NotADirectoryError):
        return
    kind = "a symbolic link" if stat.S_ISLNK(mode) else "a device, a pipe or a socket"
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise UserError(f"{said or os.fspath(path)}: is {kind}, which is never written over; name a regular file.")


@contextlib.contextmanager
def naming(path: str | os.PathLike[str]) -> Iterator[None]:
    """Add the file name to an OSError without one, such as of writing to an open file."""
    try:
        yield
    except OSError as error:
        if error.errno is None or error.filename:
            raise
        raise OSError(error.errno, error.strerror, os.fspath(path)) from error


def partial_of(path: epath.Path) -> epath.Path:
    """Return the temporary path of `replacing`."""
    return path.parent / f".{path.name}.partial"


def remove(path: epath.Path) -> None:
    if path.is_dir() and not (is_local(path) and os.path.islink(path)):
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


@contextlib.contextmanager
def locked(path: str | os.PathLike[str], what: str) -> Iterator[None]:
    """Hold a lock on the file `path`, with the holder's name in it, until the block ends.

    The kernel releases it (`flock`) when the process ends. On a file system without locks the block runs with one
    warning; network file systems lock between machines if mounted so. UserError if another process holds it; the
    message calls it `what`.
    """
    descriptor = _lock(path, what)
    if descriptor is None:
        yield
        return
    try:
        holder = {"host": socket.gethostname(), "process": os.getpid(), "since": time.strftime("%F %T %Z")}
        with naming(path):
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, (json.dumps(holder) + "\n").encode(), 0)
        yield
    finally:
        with contextlib.suppress(OSError):
            os.unlink(path)  # before the release: later it may be another process's
        os.close(descriptor)


def _lock(path: str | os.PathLike[str], what: str) -> int | None:
    """Create and lock a file; return its descriptor, None without locks."""
    while True:
        is_new = not os.path.lexists(path)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            has_locks = flock(descriptor, what, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = os.pread(descriptor, 1000, 0)
            os.close(descriptor)
            raise UserError(f"{what}: is in use by {_describe(holder)}; wait for it or end it.") from error
        except OSError:
            os.close(descriptor)
            raise
        if not has_locks:
            if is_new and not os.fstat(descriptor).st_size:  # an older one may be another process's
                os.unlink(path)
            os.close(descriptor)
            return None
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(descriptor), os.stat(path)):
                return descriptor
        os.close(descriptor)  # the former holder has just removed it: lock a new one


def flock(descriptor: int, what: str, operation: int) -> bool:
    """Lock an open file; without locks, warn once and return False."""
    try:
        fcntl.flock(descriptor, operation)
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
        device = os.fstat(descriptor).st_dev
        if device not in _WARNED:
            _WARNED.add(device)
            print(
                f"warning: {what}: its file system has no locks ({error.strerror}), so a second run of the same folder "
                "would not be noticed; make sure that there is none, or take a folder on a local disk.",
                flush=True,
            )
        return False
    return True


_WARNED: set[int] = set()  # devices of file systems with a printed warning


def _describe(holder: bytes) -> str:
    try:
        return "process {process} on {host} since {since}".format(**json.loads(holder))
    except (ValueError, KeyError, TypeError):  # no name is written yet
        return "another process"


def is_local(path: str | os.PathLike[str]) -> bool:
    return "://" not in os.fspath(path)


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write a UTF-8 file atomically."""
    with replacing(path) as partial:
        partial.write_bytes(utf8(text))


def parse_json(content: str | bytes) -> Any:
    """Return a JSON value; ValueError if it is none, or nested too deeply for Python."""
    try:
        return json.loads(content)
    except RecursionError as error:
        raise ValueError("brackets are nested too deeply") from error


def utf8(text: str) -> bytes:
    r"""Return UTF-8; surrogates, for bytes of file names that are no UTF-8, become `\udce9`."""
    return text.encode("utf8", "backslashreplace")


def files_below(folder: epath.Path) -> list[str]:
    """Return the relative names of all files below a folder, in alphabetical order."""
    names = []
    for path in folder.iterdir():
        names += [f"{path.name}/{name}" for name in files_below(path)] if path.is_dir() else [path.name]
    return sorted(names)


def content_digest(content: Any) -> str:
    """Return the SHA-256 of a JSON value; the order of its keys does not matter."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def file_digest(path: str | os.PathLike[str]) -> str:
    """Return the SHA-256 of a file."""
    with epath.Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
