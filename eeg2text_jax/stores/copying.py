"""Download bucket objects to a local cache, verified by checksum; unchanged files are not downloaded again.

A workdir in a bucket is mirrored by the first host, which holds its lease. Other hosts `follow` it: each has a copy,
updated whenever `distributed.main_first` ends. Checkpoints are large, so `pull_folder` downloads them when restored.
"""

import contextlib
import fcntl
import fnmatch
import glob
import json
import os
import threading
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path, PurePosixPath

from eeg2text_jax.errors import UserError
from eeg2text_jax.files import file_digest, flock, remove, replacing, write_text
from eeg2text_jax.progress import ProgressLine
from eeg2text_jax.stores.address import Address, is_address, notes_of, parse
from eeg2text_jax.stores.store import LOCK, Advance, Entry, Store, StoreError, open_store

UNFINISHED = ".unfinished"  # marker object of a folder that is being written or removed
MEGABYTE = 1 << 20
WORTH_A_LINE = 16 * MEGABYTE
ON_REQUEST = ("checkpoints", "tensorboard")  # folders, at any depth, that `pull_all` leaves out
_AT_ONCE = 4  # parallel downloads

Stamp = list[int]  # file metadata that differs between two versions of a local file


def stamp_of(path: Path) -> Stamp:
    found = path.stat()
    return [found.st_mtime_ns, found.st_size, found.st_ino]


class Notes:
    """For each file of a local folder: its stamp, and the tag of the object with the same content at that time."""

    def __init__(self, folder: Path):
        self._folder, self._path = folder, notes_of(folder)
        self.known: dict[str, tuple[Stamp, str]] = {}
        with contextlib.suppress(OSError, ValueError):
            self.known = {name: (stamp, tag) for name, (stamp, tag) in json.loads(self._path.read_text()).items()}

    def is_current(self, name: str, tag: str) -> bool:
        """Return whether the local file equals the object with this tag."""
        with contextlib.suppress(OSError):
            return self.known.get(name) == (stamp_of(self._folder / name), tag)
        return False

    def write(self) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        write_text(self._path, json.dumps(self.known))

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Hold the lock of the folder: one process downloads at a time, others wait."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.with_suffix(".lock").open("w") as file:
            flock(file.fileno(), str(self._folder), fcntl.LOCK_EX)
            yield


class Files(dict[str, Entry]):
    """The objects below a URL by relative name; "" if the URL is an object itself."""

    @classmethod
    def of(cls, store: Store, address: Address) -> "Files":
        """List the objects below a URL. Raises UserError for a name that leads out of the local folder."""
        # Objects whose names end with a slash are empty "folders".
        found = [entry for entry in store.entries(address.key) if not entry.key.endswith("/")]
        start = f"{address.key}/" if address.key else ""
        files = cls({entry.key.removeprefix(start): entry for entry in found if entry.key.startswith(start)})
        for name, entry in files.items():
            if any(part in ("", ".", "..") or "\0" in part for part in name.split("/")):
                raise UserError(
                    f"{address}: the bucket has an object with the name {entry.key!r}, which cannot be the name of a "
                    "file in a folder; expected no part that is empty, '.' or '..', and no NUL. Nothing was copied; "
                    "rename the object or remove it."
                )
        files.update(("", entry) for entry in found if entry.key == address.key)
        return files

    def finished(self) -> "Files":
        """Return the objects without the lease and without folders that a killed process left unfinished."""
        open_folders = [name.removesuffix(UNFINISHED) for name in self if name.endswith(f"/{UNFINISHED}")]
        kept = {name: entry for name, entry in self.items() if not name.startswith(tuple(open_folders))}
        return Files({name: entry for name, entry in kept.items() if name.rpartition("/")[2] != LOCK})


def take(store: Store, files: Files, folder: Path, notes: Notes, title: str) -> int:
    """Download those `files` that `folder` lacks; return their number. Raises UserError for a wrong checksum."""
    wanted = [(name, entry) for name, entry in files.items() if not notes.is_current(name, entry.tag)]
    total = sum(entry.size for _, entry in wanted)
    with _progress(title, total) as advance, ThreadPoolExecutor(_AT_ONCE) as workers:
        jobs = [workers.submit(_take_one, store, entry, folder / name, advance) for name, entry in wanted]
        try:
            for (name, entry), job in zip(wanted, jobs, strict=True):
                notes.known[name] = (job.result(), entry.tag)
        finally:
            workers.shutdown(cancel_futures=True)
            if wanted:
                notes.write()
    return len(wanted)


@contextlib.contextmanager
def _progress(title: str, total: int) -> Iterator[Advance]:
    if total < WORTH_A_LINE:
        yield lambda size: None
        return
    lock, seen = threading.Lock(), [0]
    with ProgressLine(f"{title}, MB", total // MEGABYTE) as line:

        def advance(size: int) -> None:
            with lock:
                before, seen[0] = seen[0] // MEGABYTE, seen[0] + size
                if seen[0] // MEGABYTE > before:
                    line.advance(seen[0] // MEGABYTE - before)

        yield advance


def _take_one(store: Store, entry: Entry, path: Path, advance: Advance) -> Stamp:
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as partial:
        stated = store.download(entry.key, Path(partial), advance)
        size = partial.stat().length
        if size != entry.size or (stated and stated != file_digest(partial)):
            raise StoreError(
                f"{entry.key}: {size} bytes arrived, which are not the {entry.size} bytes that were written there (by "
                f"their {'SHA-256' if stated else 'number'}); start again, or put the object back."
            )
    return stamp_of(path)


def sweep(folder: Path, keep: Iterable[str], pattern: str = "*") -> None:
    """Remove files of `folder` that match `pattern` and are not in `keep`, and folders that become empty."""
    kept = set(keep)
    for place, _, names in os.walk(folder, topdown=False):
        for name in names:
            path = Path(place) / name
            below = path.relative_to(folder).as_posix()
            if below not in kept and _is_matched(below, pattern) and name != ".lock":
                path.unlink()
        if Path(place) != folder:
            with contextlib.suppress(OSError):
                os.rmdir(place)


def _is_matched(name: str, pattern: str) -> bool:
    """Return whether a glob pattern matches the file or one of its folders; `*` does not cross `/`."""
    if "**" in pattern:
        return fnmatch.fnmatchcase(name, pattern)
    parts, wanted = name.split("/"), pattern.split("/")
    return len(parts) >= len(wanted) and all(map(fnmatch.fnmatchcase, parts, wanted))


def at_hand(place: str | os.PathLike[str]) -> str:
    """Return a local path with the content of `place`: the place itself, or a downloaded copy of a bucket URL.

    A folder is downloaded as a whole, a glob as its matches; a copy is reused while it equals the bucket. Raises
    UserError if nothing exists at the URL, or the bucket cannot be read.
    """
    place = os.fspath(place)
    if not is_address(place):
        return place
    address = parse(place)
    pattern = ""
    if glob.has_magic(address.key):
        parts = PurePosixPath(address.key).parts
        first = next(i for i, part in enumerate(parts) if glob.has_magic(part))
        pattern = "/".join(parts[first:])
        address = Address(address.scheme, address.bucket, "/".join(parts[:first]))
    if any(address.run.is_relative_to(root) for root in OPEN):
        return str(address.run)
    store = open_store(address)
    files = Files.of(store, address).finished()
    if pattern:
        files = Files({name: entry for name, entry in files.items() if _is_matched(name, pattern)})
    if not files:
        raise UserError(f"{place}: there is nothing at this address; check the address.")
    if "" in files:
        files = Files({"": files[""]})
    _copy(store, address, files, pattern or "*")
    return str(address.copy / pattern)


OPEN: set[Path] = set()  # open runs of this process, whose folders are newer than the bucket


def refresh(
    store: Store, address: Address, folder: Path, there: Files, notes: Notes, wanted: Files | None = None
) -> int:
    """Remove files of `folder` that are not `there`, and download `wanted` (default: all); return their number."""
    folder.mkdir(parents=True, exist_ok=True)
    with notes.held():
        sweep(folder, there)
        notes.known = {name: known for name, known in notes.known.items() if name in there}
        return take(store, there if wanted is None else wanted, folder, notes, f"copying {address}")


_FOLLOWED: list[tuple[Store, Address, Path]] = []  # the workdir that another host changes, and its copy


def follow(place: str, host: int) -> Path:
    """Return the folder of this host for a workdir in a bucket that the first host changes."""
    address = parse(place)
    _FOLLOWED[:] = [(open_store(address), address, address.run_of(host))]
    return address.run_of(host)


def pull_all() -> None:
    """Download what the first host has finished, except `ON_REQUEST`. Raises StoreError."""
    for store, address, folder in _FOLLOWED:
        there = _finished_below(store, address)
        wanted = Files({name: it for name, it in there.items() if not set(ON_REQUEST) & set(name.split("/"))})
        refresh(store, address, folder, there, Notes(folder), wanted)


def pull_folder(path: str | os.PathLike[str]) -> None:
    """Download one folder of the workdir, such as a checkpoint; other places are left alone. Raises StoreError."""
    for store, address, folder in _FOLLOWED:
        root, place = folder.resolve(), Path(path).resolve()
        if place.is_relative_to(root):
            there, start = _finished_below(store, address), f"{place.relative_to(root).as_posix()}/"
            wanted = Files({name: it for name, it in there.items() if name.startswith(start)})
            refresh(store, address, folder, there, Notes(folder), wanted)


def _finished_below(store: Store, address: Address) -> Files:
    return Files({name: entry for name, entry in Files.of(store, address).finished().items() if name})


def _copy(store: Store, address: Address, files: Files, pattern: str) -> None:
    notes = Notes(address.copy)
    with notes.held():
        if address.copy.exists() and address.copy.is_dir() == ("" in files):
            remove(address.copy)  # a folder became an object, or an object a folder
        if "" not in files:
            sweep(address.copy, files, pattern)  # first, because a file's name may have become a folder's
        take(store, files, address.copy, notes, f"copying {address}")
