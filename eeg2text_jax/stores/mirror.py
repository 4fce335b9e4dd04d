"""Mirror a workdir in a bucket: download it to a local folder, then upload changes while the work goes on.

A thread uploads finished files in the order in which they were finished, so a killed run resumes from the bucket as
from a local folder. Each file is one object, uploaded atomically. A folder that appears or disappears as a unit (a
checkpoint, the tokenizer) contains an object `.unfinished` during the change; the folder counts as absent while
this object exists.

Orbax can write gs:// itself but not s3://; HDF5, safetensors and tokenizers read local files only.
"""

import collections
import contextlib
import itertools
import os
import shutil
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from eeg2text_jax import files
from eeg2text_jax.stores import copying
from eeg2text_jax.stores.address import Address, cache_folder, is_address, parse
from eeg2text_jax.stores.copying import UNFINISHED, Files, Notes, Stamp, stamp_of
from eeg2text_jax.stores.lease import Lease
from eeg2text_jax.stores.sending import Change, Sender
from eeg2text_jax.stores.store import LOCK, Store, StoreError, open_store

SCAN_EVERY = 3.0  # seconds between scans for files written without a notification (by Orbax and TensorBoard)
MOST_WAITING = 200  # maximum number of queued changes; `scan` waits while the queue is full
GROWING_EVERY = 30.0  # seconds between uploads of a file that is appended to; it is also uploaded at the end
LINKED = 1 << 20  # files of at least this size are hard-linked, not copied, until they are uploaded


class Mirror:
    """Uploads the changes of a folder to a workdir in a bucket, under a lease. Call `pull`, then `start`."""

    def __init__(self, address: Address, store: Store, folder: Path, lease: Lease):
        self._address, self._store, self.folder, self._lease = address, store, folder, lease
        self._notes = Notes(folder)
        self.sender = Sender(address, store, folder, lease, self._notes)
        self._spool = cache_folder() / "spool" / str(os.getpid()) / str(id(self))
        self._seen: dict[str, Stamp] = {}  # stamps of files that are uploaded or queued
        self._turn = threading.Condition()  # guards the fields below
        self._waiting: collections.deque[Change] = collections.deque()
        self._sending = self._ended = False
        self._error: Exception | None = None
        self._count = 0
        self._appended: dict[str, float] = {}  # name of a file that grows -> time at which it was last queued
        self._thread = threading.Thread(target=self._work, name=f"sends {address}", daemon=True)

    def pull(self) -> None:
        """Make the folder equal to the finished files in the bucket. Raises StoreError."""
        there = Files.of(self._store, self._address).select(lambda name: name not in ("", LOCK))
        finished = there.finished()
        for name in sorted(there.keys() - finished.keys(), key=lambda name: name.endswith(UNFINISHED)):
            self._store.delete(there[name].key)
        if copied := copying.refresh(self._address, finished, self._notes):
            print(f"copied {copied} of {len(finished)} files from {self._address}")
        self._seen = {name: stamp_of(self.folder / name) for name in finished}

    def start(self) -> None:
        """Start the upload thread."""
        self._spool.mkdir(parents=True, exist_ok=True)
        self._thread.start()

    def scan(self, *, last: bool = False) -> None:
        """Queue changed files of the folder for upload, in order; wait if the queue is full.

        A file that is appended to is skipped if it was queued recently and no other file was finished since, unless
        this is the `last` scan. Raises StoreError if an earlier change could not be uploaded.
        """
        with self._turn:
            while len(self._waiting) >= MOST_WAITING and not self._error:
                self._turn.wait(1.0)
            self.check()
            self._waiting.extend(self._changes(last=last))
            self._turn.notify_all()

    def check(self) -> None:
        """Raise the error of the upload thread or the loss of the lease, if any."""
        if error := self._error or self._lease.lost:
            raise error

    def settle(self) -> None:
        """Wait until all finished files of the folder are in the bucket. Raises StoreError."""
        self.scan(last=True)
        with self._turn:
            while (self._waiting or self._sending) and not self._error:
                self._turn.wait(1.0)
        self.check()

    def close(self) -> None:
        """Stop the upload thread; queued changes are dropped."""
        with self._turn:
            self._ended = True
            self._turn.notify_all()
        self._thread.join()
        shutil.rmtree(self._spool, ignore_errors=True)
        with contextlib.suppress(OSError):  # not empty if this process has another mirror
            self._spool.parent.rmdir()

    def _changes(self, *, last: bool = False) -> Iterator[Change]:
        """Yield the changes since the last scan in the order of their renames: new files, then removed ones."""
        now, early = dict(_finished_files(self.folder)), set()
        if not last:
            early = {name for name, then in self._appended.items() if time.monotonic() - then < GROWING_EVERY}
        changed = sorted((renamed, name) for name, (stamp, renamed) in now.items() if self._seen.get(name) != stamp)
        # A file that is finished after a line was appended may record that line, so the line is uploaded first.
        newest = max((place for place in changed if place[1] not in early), default=(0, ""))
        changed = [place for place in changed if place[1] not in early or place < newest]
        self._appended |= {name: time.monotonic() for _, name in changed if _is_appended(name)}
        folders = {part for name in self._seen for part in _folders(name)}
        for unit, names in _grouped([name for _, name in changed], folders):
            kept = [(name, self._snapshot(name), now[name][0]) for name in names]
            self._seen |= {name: now[name][0] for name in names}
            yield Change(unit, tuple((name, path, stamp) for name, path, stamp in kept if path), ())
        left = {part for name in now for part in _folders(name)}
        for unit, names in _grouped(sorted(self._seen.keys() - now.keys()), left):
            for name in names:
                del self._seen[name]
            yield Change(unit, (), tuple(names))

    def _snapshot(self, name: str) -> Path | None:
        """Link or copy a file so that it can be uploaded later; return the path, or None if the file is gone."""
        self._count += 1
        place = self._spool / str(self._count)
        with contextlib.suppress(FileNotFoundError):
            if _is_appended(name) or (self.folder / name).stat().st_size < LINKED:
                shutil.copyfile(self.folder / name, place)
            else:
                os.link(self.folder / name, place)
            return place
        return None

    def _work(self) -> None:
        """Upload queued changes until `close` is called or an upload fails."""
        while (change := self._next()) is not None:
            try:
                self.sender.send(change)
            except Exception as error:  # raised in the main thread when the next file is complete, or at the end
                self._error = error
            with self._turn:
                self._sending = False
                self._turn.notify_all()

    def _next(self) -> Change | None:
        """Wait for a change and return it; None at the end or after an error."""
        with self._turn:
            while not self._ended and not self._error:
                if self._waiting:
                    self._sending = True
                    return self._waiting.popleft()
                if not self._turn.wait(SCAN_EVERY):
                    try:
                        self._waiting.extend(self._changes())
                    except OSError as error:  # this machine's disk is full
                        self._error = error
        return None


def _is_appended(name: str) -> bool:
    """Return whether a file is appended to in place, so that a link to it would change during the upload."""
    return name.split("/")[-1] == "metrics.jsonl" or "tensorboard" in name.split("/")


def _finished_files(folder: Path) -> Iterator[tuple[str, tuple[Stamp, int]]]:
    """Yield the relative name of every finished file with its stamp and the time of its final rename (ns)."""
    for place, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".") and ".orbax-checkpoint-tmp" not in name]
        for name in names:
            path = Path(place) / name
            if not name.startswith("."):
                with contextlib.suppress(FileNotFoundError):
                    yield path.relative_to(folder).as_posix(), (stamp_of(path), path.stat().st_ctime_ns)


def _folders(name: str) -> list[str]:
    """Return the folders of a file, the outermost first: `a/b/c` is in `a` and `a/b`."""
    return list(itertools.accumulate(name.split("/")[:-1], "{}/{}".format))


def _grouped(names: Sequence[str], known: set[str]) -> list[tuple[str, list[str]]]:
    """Group file names by their outermost folder that is not `known`: (folder, names), or ("", [name]) without one."""
    groups: dict[str, list[str]] = {}
    for name in names:
        unit = next((folder for folder in _folders(name) if folder not in known), "")
        groups.setdefault(unit or f"\0{name}", []).append(name)
    return [("" if unit.startswith("\0") else unit, found) for unit, found in groups.items()]


_MIRRORS: list[Mirror] = []  # open mirrors of this process


def scan_all() -> None:
    """Scan the folders of all open mirrors; `files.notify` calls this after every finished file."""
    for mirror in _MIRRORS:
        if threading.current_thread() is not mirror._thread:  # the upload thread would wait for itself
            mirror.scan()


def settle_all() -> None:
    """Wait until all finished files of open mirrors are in their buckets. Raises StoreError."""
    for mirror in _MIRRORS:
        mirror.settle()


@contextlib.contextmanager
def mirrored(place: str) -> Iterator[str]:
    """Yield the local folder of a workdir: the path itself, or for a bucket URL a folder that is mirrored there.

    Raises UserError if the bucket cannot be read or written, or another process uses the workdir.
    """
    if not is_address(place):
        yield place
        return
    address = parse(place)
    store, folder = open_store(address), address.run
    with Lease(store, address) as lease:
        mirror = Mirror(address, store, folder, lease)
        mirror.pull()
        mirror.start()
        _MIRRORS.append(mirror)
        copying.OPEN.add(folder)
        if scan_all not in files.LISTENERS:
            files.LISTENERS.append(scan_all)
        try:
            yield str(folder)
            mirror.settle()
            mirror.sender.undo_late()
        except StoreError:
            raise
        except BaseException:
            with contextlib.suppress(StoreError):  # finished files are uploaded after any error of the work
                mirror.settle()
            raise
        finally:
            _MIRRORS.remove(mirror)
            copying.OPEN.discard(folder)
            mirror.close()
