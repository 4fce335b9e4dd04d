"""Mirror a workdir in a bucket: download it, then upload finished files in their order, in a thread.

So a killed run resumes as from a local folder. A file is one object, uploaded atomically. A folder that changes as a
unit (a checkpoint, the tokenizer) has an object `.unfinished` meanwhile, and counts as absent. Orbax can write gs://
itself but not s3://; HDF5, safetensors and tokenizers read local files only.
"""

import collections
import contextlib
import fcntl
import itertools
import json
import os
import secrets
import shutil
import socket
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from eeg2text_jax.base import files
from eeg2text_jax.base.errors import UserError
from eeg2text_jax.base.files import file_digest, parse_json
from eeg2text_jax.base.stores import buckets
from eeg2text_jax.base.stores.buckets import FENCE, LOCK, UNFINISHED, Address, Files, Notes, Stamp, Store, StoreError

# A lease is an object that is created only if absent and replaced only by compare-and-swap, with a random owner and a
# number that increases with every holder. It is dead if it did not change for `PATIENCE` seconds on the waiting
# process's clock; clocks of machines are never compared. On the same machine a death is known at once: a holder keeps a
# kernel lock on a file named after its owner. Before an upload, which is conditional, a holder confirms its lease.

BEAT = 20.0  # seconds between two heartbeats
PATIENCE = 90.0  # seconds without a change after which a lease is dead
FRESH = 5.0  # seconds for which a confirmation holds (gs:// takes one write per second to an object)


class Lease:
    """The lease of a workdir, a context manager; UserError if another process has it."""

    def __init__(self, store: Store, address: Address):
        self._store, self._place = store, str(address)
        self._key = address.below(LOCK).key
        self._ended = threading.Event()
        self._turn = threading.Lock()  # one renewal at a time
        self._about: dict[str, Any] = {
            "owner": secrets.token_hex(16),
            "fence": 1,
            "host": socket.gethostname(),
            "process": os.getpid(),
            "boot": _boot(),
            "since": time.strftime("%F %T %Z"),
            "beat": 0,
        }
        self.lost: StoreError | None = None  # once another process has it

    @property
    def label(self) -> str:
        """The fencing token, NUMBER.OWNER, in the metadata of all that this holder writes."""
        return f"{self._about['fence']}.{self._about['owner']}"

    def __enter__(self) -> "Lease":
        self._proof = _prove(self._about["owner"])
        try:
            self._tag = self._store.put(self._key, self._content(), None) or self._take_over()
        except BaseException:
            self._forget()
            raise
        self._confirmed = _clocks()
        self._thread = threading.Thread(target=self._beat, name=f"lease of {self._place}", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        if self.lost is None and not (kind and issubclass(kind, StoreError)):  # else the release would time out, too
            self._about["owner"] = ""  # released; the number stays, so that it never decreases
            with contextlib.suppress(StoreError):
                self._store.put(self._key, self._content(), self._tag)
        self._forget()

    def confirm(self, *, now: bool = False) -> None:
        """Raise StoreError unless this process still has the lease; call it before each change of the bucket.

        The bucket is asked if the last confirmation is older than `FRESH` seconds, or `now`.
        """
        elapsed = max(abs(here - then) for here, then in zip(_clocks(), self._confirmed, strict=True))
        if self.lost is None and (now or elapsed > FRESH):
            self._renew()
        if self.lost:
            raise self.lost

    def _renew(self) -> None:
        """Replace the lease by compare-and-swap; set `lost` if another process did."""
        with self._turn:
            if self.lost:
                return
            start = _clocks()
            self._about["beat"] += 1
            tag = self._store.put(self._key, self._content(), self._tag)
            there = self._store.read(self._key) if tag is None else None
            if there and _read(there[0]).get("owner") == self._about["owner"]:
                tag = there[1]  # an earlier attempt's answer was lost
            if tag is None:
                self.lost = StoreError(
                    f"{self._place}: another process took it over while this process was suspended or had no network; "
                    "nothing more is sent; when the other process has ended, the same command resumes."
                )
            else:
                self._tag, self._confirmed = tag, start

    def _beat(self) -> None:
        while not self._ended.wait(BEAT) and self.lost is None:
            with contextlib.suppress(StoreError):  # the next upload reports the error
                self._renew()

    def _content(self) -> bytes:
        return json.dumps(self._about).encode()

    def _take_over(self) -> str:
        """Wait until the lease is released or dead, replace it, and return the new tag."""
        first, start, pause = None, time.monotonic(), min(BEAT, PATIENCE) / 4
        while True:
            there = self._store.read(self._key)
            if there is None:
                tag = self._store.put(self._key, self._content(), None)
            else:
                first = first or there
                tag = self._replace(there, there[1] == first[1], time.monotonic() - start, pause)
            if tag is not None:
                return tag
            time.sleep(pause)

    def _replace(self, there: tuple[bytes, str], unchanged: bool, waited: float, pause: float) -> str | None:
        """Replace the lease `there`; return the new tag, or None while it is unknown whether its holder is alive.

        UserError if the holder is alive: its process runs, or the lease changed since this process first read it.
        """
        holder = _read(there[0])
        who = f"process {holder.get('process')} on {holder.get('host')} since {holder.get('since')}"
        if holder.get("owner") != "":  # not released
            if (alive := _is_alive(holder)) or not unchanged:
                hint = " It runs on this machine, perhaps suspended." if alive else ""
                raise UserError(f"{self._place}: is in use by {who}; wait for it or end it.{hint}")
            if alive is None and waited < PATIENCE:
                if waited < pause:
                    print(
                        f"{self._place}: {who} was at work there; waiting {PATIENCE:.0f} s for a heartbeat.", flush=True
                    )
                return None
        self._about["fence"] = fence + 1 if isinstance(fence := holder.get("fence"), int) else 1
        tag = self._store.put(self._key, self._content(), there[1])
        if tag is None:
            raise UserError(f"{self._place}: another process has just begun to use it; wait for it or end it.")
        return tag

    def _forget(self) -> None:
        if self._proof is not None:
            path, descriptor = self._proof
            path.unlink(missing_ok=True)
            os.close(descriptor)


def _read(content: bytes) -> dict[str, Any]:
    with contextlib.suppress(ValueError):
        if isinstance(fields := parse_json(content), dict):
            return fields
    return {}


def _clocks() -> tuple[float, float]:
    """Return the boot clock, which counts suspensions, and the wall clock, for pauses of a VM."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)), time.time()


def _prove(owner: str) -> tuple[Path, int] | None:
    """Lock a file named after the owner until this process ends; return its path and descriptor, None without locks."""
    path = _proof_of(owner)
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        path.unlink(missing_ok=True)
        return None
    return path, descriptor


def _is_alive(holder: dict[str, Any]) -> bool | None:
    """Return whether a lease's process is alive; None: unknown.

    If the lease has this kernel's boot id, the lock on the owner's file tells, even across containers.
    """
    owner, boot = holder.get("owner"), holder.get("boot")
    if not (isinstance(owner, str) and owner.isalnum() and boot and boot == _boot()):
        return None
    try:
        descriptor = os.open(_proof_of(owner), os.O_RDWR)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return None
    else:
        _proof_of(owner).unlink(missing_ok=True)
        return False
    finally:
        os.close(descriptor)


def _proof_of(owner: str) -> Path:
    return buckets.cache_folder() / "owners" / owner


def _boot() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


# An object is replaced only if it equals the version that this process last wrote or read, and only under a recently
# confirmed lease. So a process whose lease was taken while it was suspended changes nothing that the next holder wrote.
# If a late request of such a process creates an object, that process or the next holder removes the object.

TRIES = 5  # of an upload while another program changes the object


class Change(NamedTuple):
    """Files that were written or removed as a unit."""

    unit: str  # the folder that contains them, marked during the change; "": a single file
    put: tuple[tuple[str, Path, Stamp], ...]  # written files: name, snapshot to upload, stamp of the original
    gone: tuple[str, ...]  # names of removed files


class Sender:
    """Uploads changes by conditional requests, by the tags in `notes`."""

    def __init__(self, address: Address, store: Store, folder: Path, lease: Lease, notes: Notes):
        self._address, self._store, self._folder, self._lease, self._notes = address, store, folder, lease, notes

    def send(self, change: Change) -> None:
        """Upload a change; StoreError if the lease is lost or the bucket does not answer."""
        marker, tag = self._address.below(f"{change.unit}/{UNFINISHED}").key, None
        self._lease.confirm()
        if change.unit:
            tag = self._store.put(marker, self._lease.label.encode(), None)
            self._check_late(marker, tag)
        for name, path, stamp in change.put:
            self._notes.versions[name] = (stamp, self._upload(name, path))
            path.unlink()
        for name in change.gone:
            key, version = self._address.below(name).key, self._notes.versions.pop(name, None)
            self._lease.confirm()
            while version and not self._store.delete(key, version[1]):
                self._lease.confirm(now=True)
                version = (version[0], head[0]) if (head := self._store.head(key)) else None
        if change.unit:
            head = self._store.head(marker)
            self._lease.confirm()
            self._store.delete(marker, tag or (head[0] if head else buckets.ANY))
        self._notes.write()

    def _check_late(self, key: str, tag: str | None) -> None:
        """If the lease is lost, remove the object of this tag, created too late, and raise StoreError."""
        try:
            self._lease.confirm()
        except StoreError:
            if tag and self._lease.lost:
                self._store.delete(key, tag)
            raise

    def _upload(self, name: str, path: Path) -> str:
        key, over = self._address.below(name).key, self._notes.versions.get(name, (None, None))[1]
        digest, fence = file_digest(path), {FENCE: self._lease.label}
        for _ in range(TRIES):
            self._lease.confirm()
            tag = self._store.upload(path, key, digest, over, fence)
            if tag is not None:
                self._check_late(key, None if over else tag)
                return tag
            head = self._store.head(key)
            if head and head[1] == {buckets.DIGEST: digest, **fence}:
                return head[0]  # an earlier attempt's answer was lost
            self._lease.confirm(now=True)
            over = head and head[0]  # written by a late request of a former holder, or by hand
        raise StoreError(f"{self._address.below(name)}: another program writes this object again and again; end it.")

    def undo_late(self) -> None:
        """Undo what former holders did after this process took the lease; call it last."""
        for name, entry in Files.of(self._store, self._address).items():
            version = self._notes.versions.get(name)
            if name.rpartition("/")[2] == LOCK or (version and version[1] == entry.tag):
                continue
            # A marker is another process's: this one's changes are complete.
            if not entry.key.endswith(f"/{UNFINISHED}"):
                head = self._store.head(entry.key)
                if head is None or head[1].get(FENCE, self._lease.label) == self._lease.label:
                    continue
            self._lease.confirm()
            if version:
                self._notes.versions[name] = (version[0], self._upload(name, self._folder / name))
            else:
                self._store.delete(entry.key, entry.tag)
        self._notes.write()


SCAN_EVERY = 3.0  # seconds between scans for files of which nothing notifies (Orbax, TensorBoard)
MOST_WAITING = 200  # queued changes; then `scan` waits
GROWING_EVERY = 30.0  # seconds between uploads of a file that is appended to; the last is at the end
LINKED = 1 << 20  # bytes from which files are hard-linked, not copied, until they are uploaded


class Mirror:
    """Uploads the changes of a folder, under a lease. Call `pull`, then `start`."""

    def __init__(self, address: Address, store: Store, folder: Path, lease: Lease):
        self._address, self._store, self.folder, self._lease = address, store, folder, lease
        self._notes = Notes(folder)
        self.sender = Sender(address, store, folder, lease, self._notes)
        self._spool = buckets.cache_folder() / "spool" / str(os.getpid()) / str(id(self))
        self._seen: dict[str, Stamp] = {}  # stamps of files that are uploaded or queued
        self._turn = threading.Condition()  # guards the fields below
        self._waiting: collections.deque[Change] = collections.deque()
        self._sending = self._ended = False
        self._error: Exception | None = None
        self._count = 0
        self._appended: dict[str, float] = {}  # name of a file that grows -> time at which it was last queued
        self._thread = threading.Thread(target=self._work, name=f"sends {address}", daemon=True)

    def pull(self) -> None:
        """Make the folder equal to the bucket's finished files. Raises StoreError."""
        there = Files.of(self._store, self._address).select(lambda name: name not in ("", LOCK))
        finished = there.finished()
        for name in sorted(there.keys() - finished.keys(), key=lambda name: name.endswith(UNFINISHED)):
            self._store.delete(there[name].key)
        if copied := buckets.refresh(self._address, finished, self._notes):
            print(f"copied {copied} of {len(finished)} files from {self._address}")
        self._seen = {name: buckets.stamp_of(self.folder / name) for name in finished}

    def start(self) -> None:
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
        """Raise any error of the upload thread, or the loss of the lease."""
        if error := self._error or self._lease.lost:
            raise error

    def settle(self) -> None:
        """Wait until all finished files are in the bucket. Raises StoreError."""
        self.scan(last=True)
        with self._turn:
            while (self._waiting or self._sending) and not self._error:
                self._turn.wait(1.0)
        self.check()

    def close(self) -> None:
        """Stop the upload thread and drop queued changes."""
        with self._turn:
            self._ended = True
            self._turn.notify_all()
        self._thread.join()
        shutil.rmtree(self._spool, ignore_errors=True)
        with contextlib.suppress(OSError):  # not empty if this process has another mirror
            self._spool.parent.rmdir()

    def _changes(self, *, last: bool = False) -> Iterator[Change]:
        """Yield the changes since the last scan: new files in the order of their renames, then removed ones."""
        now, latest = dict(_finished_files(self.folder)), time.monotonic() - GROWING_EVERY
        early = set() if last else {name for name, then in self._appended.items() if then > latest}
        changed = sorted((renamed, name) for name, (stamp, renamed) in now.items() if self._seen.get(name) != stamp)
        # A file that is finished after a line was appended may record it, so the line goes first.
        newest = max((place for place in changed if place[1] not in early), default=(0, ""))
        changed = [place for place in changed if place[1] not in early or place < newest]
        self._appended |= {name: time.monotonic() for _, name in changed if _is_appended(name)}
        for unit, names in _grouped([name for _, name in changed], self._seen):
            copies = [(name, self._snapshot(name), now[name][0]) for name in names]
            self._seen |= {name: now[name][0] for name in names}
            yield Change(unit, tuple((name, path, stamp) for name, path, stamp in copies if path), ())
        for unit, names in _grouped(sorted(self._seen.keys() - now.keys()), now):
            for name in names:
                del self._seen[name]
            yield Change(unit, (), tuple(names))

    def _snapshot(self, name: str) -> Path | None:
        """Link or copy a file for its upload; return the path, or None if it is gone."""
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
        while (change := self._next()) is not None:
            try:
                self.sender.send(change)
            except Exception as error:  # raised in the main thread at the next finished file, or at the end
                self._error = error
            with self._turn:
                self._sending = False
                self._turn.notify_all()

    def _next(self) -> Change | None:
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
    """Return whether a file is appended to, so that a link would change during the upload."""
    return name.split("/")[-1] == "metrics.jsonl" or "tensorboard" in name.split("/")


def _finished_files(folder: Path) -> Iterator[tuple[str, tuple[Stamp, int]]]:
    """Yield each finished file's relative name, stamp and time of its final rename (ns)."""
    for place, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".") and ".orbax-checkpoint-tmp" not in name]
        for name in names:
            path = Path(place) / name
            if not name.startswith("."):
                with contextlib.suppress(FileNotFoundError):
                    yield path.relative_to(folder).as_posix(), (buckets.stamp_of(path), path.stat().st_ctime_ns)


def _folders(name: str) -> list[str]:
    """Return a file's folders, the outermost first: of `a/b/c`, `a` and `a/b`."""
    return list(itertools.accumulate(name.split("/")[:-1], "{}/{}".format))


def _grouped(names: Sequence[str], others: Iterable[str]) -> list[tuple[str, list[str]]]:
    """Group file names by their outermost folder that has none of `others`: (folder, names), or ("", [name])."""
    folders = {folder for name in others for folder in _folders(name)}
    groups: dict[tuple[str, str], list[str]] = {}
    for name in names:
        unit = next((folder for folder in _folders(name) if folder not in folders), "")
        groups.setdefault((unit, "" if unit else name), []).append(name)
    return [(unit, members) for (unit, _), members in groups.items()]


_MIRRORS: list[Mirror] = []  # open mirrors of this process


def scan_all() -> None:
    """Scan all open mirrors' folders, after every finished file."""
    for mirror in _MIRRORS:
        if threading.current_thread() is not mirror._thread:  # the upload thread would wait for itself
            mirror.scan()


def settle_all() -> None:
    """Wait until open mirrors' finished files are in their buckets. Raises StoreError."""
    for mirror in _MIRRORS:
        mirror.settle()


@contextlib.contextmanager
def mirrored(place: str) -> Iterator[str]:
    """Yield the folder of a workdir: the path itself, or for a bucket URL one that is mirrored there.

    UserError if the bucket cannot be read or written, or another process uses it.
    """
    if not buckets.is_address(place):
        yield place
        return
    address = buckets.parse(place)
    store, folder = buckets.open_store(address), address.run
    with Lease(store, address) as lease:
        mirror = Mirror(address, store, folder, lease)
        mirror.pull()
        mirror.start()
        _MIRRORS.append(mirror)
        buckets.OPEN.add(folder)
        if scan_all not in files.LISTENERS:
            files.LISTENERS.append(scan_all)
        try:
            yield str(folder)
            mirror.settle()
            mirror.sender.undo_late()
        except StoreError:
            raise
        except BaseException:
            with contextlib.suppress(StoreError):  # finished files are uploaded after any error
                mirror.settle()
            raise
        finally:
            _MIRRORS.remove(mirror)
            buckets.OPEN.discard(folder)
            mirror.close()
