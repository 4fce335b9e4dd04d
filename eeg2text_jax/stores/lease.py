"""A lease on a workdir in a bucket: one holder at a time, kept alive by a heartbeat, with a fencing number.

The lease is an object created only if absent and replaced only by compare-and-swap, so at most one process gets it. It
has a random owner and a fencing number that increases with every holder. A lease is dead if its object did not change
for `PATIENCE` seconds on the waiting process's own clock: clocks of two machines are never compared, and host names
prove nothing. The death of a holder on the same machine is detected at once: every holder holds a kernel lock on a file
named after its owner.

A holder that was suspended notices before it uploads: a lease that was not confirmed recently is confirmed by
compare-and-swap, and every upload is conditional, see `mirror`.
"""

import contextlib
import fcntl
import json
import os
import secrets
import socket
import threading
import time
from pathlib import Path
from typing import Any

from eeg2text_jax.errors import UserError
from eeg2text_jax.stores.address import Address, cache_folder
from eeg2text_jax.stores.store import LOCK as NAME
from eeg2text_jax.stores.store import Store, StoreError

BEAT = 20.0  # seconds between two heartbeats
PATIENCE = 90.0  # seconds without a change after which a lease is dead
FRESH = 5.0  # seconds for which a confirmation is valid (gs:// accepts one write per second and object)


class Lease:
    """Hold the lease of a workdir in a bucket. Use as a context manager.

    `label` is the fencing number and the owner, stored as metadata of every object that this holder writes; `lost` is
    the error once this process has lost the lease. Entering raises UserError if another process holds the lease.
    """

    def __init__(self, store: Store, address: Address):
        self._store, self._place = store, str(address)
        self._key = address.below(NAME).key
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
        self.lost: StoreError | None = None

    @property
    def label(self) -> str:
        return f"{self._about['fence']}.{self._about['owner']}"

    def __enter__(self) -> "Lease":
        self._proof = _prove(self._about["owner"])
        try:
            self._tag = self._store.put(self._key, self._content(), None) or self._take_over()
        except BaseException:
            self._forget()
            raise
        self._confirmed = _clocks()
        self._thread = threading.Thread(target=self._live, name=f"lease of {self._place}", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        if self.lost is None and not (kind and issubclass(kind, StoreError)):  # else it would wait again
            self._about["owner"] = ""  # released; the number stays, so that it never decreases
            with contextlib.suppress(StoreError):
                self._store.put(self._key, self._content(), self._tag)
        self._forget()

    def confirm(self, *, now: bool = False) -> None:
        """Check that this process holds the lease, before each request that changes the bucket. Raises StoreError.

        A confirmation is valid for `FRESH` seconds; `now` ignores it.
        """
        elapsed = max(abs(here - then) for here, then in zip(_clocks(), self._confirmed, strict=True))
        if self.lost is None and (now or elapsed > FRESH):
            self._renew()
        if self.lost:
            raise self.lost

    def _renew(self) -> None:
        with self._turn:
            if self.lost:
                return
            begun = _clocks()
            self._about["beat"] += 1
            tag = self._store.put(self._key, self._content(), self._tag)
            there = self._store.read(self._key) if tag is None else None
            if there and _read(there[0]).get("owner") == self._about["owner"]:
                tag = there[1]  # an earlier attempt succeeded, but its answer was lost
            if tag is None:
                self.lost = StoreError(
                    f"{self._place}: another process took it over while this one did not renew its lease (suspended, "
                    "or without a network); nothing more is sent. The same command goes on once the other has ended."
                )
            else:
                self._tag, self._confirmed = tag, begun

    def _live(self) -> None:
        while not self._ended.wait(BEAT) and self.lost is None:
            with contextlib.suppress(StoreError):  # the next upload reports it
                self._renew()

    def _content(self) -> bytes:
        return json.dumps(self._about).encode()

    def _take_over(self) -> str:
        """Replace a released or dead lease; return the tag of the new one."""
        first, begun = None, time.monotonic()
        while True:
            there = self._store.read(self._key)
            if there is None:
                tag = self._store.put(self._key, self._content(), None)
            else:
                first = first or there
                tag = self._replace(there, there[1] == first[1], time.monotonic() - begun)
            if tag is not None:
                return tag
            time.sleep(min(BEAT, PATIENCE) / 4)

    def _replace(self, there: tuple[bytes, str], unchanged: bool, waited: float) -> str | None:
        """Replace the lease `there`; return the new tag, or None if unsure. Raises UserError if its holder is alive."""
        holder = _read(there[0])
        owner, fence = holder.get("owner"), holder.get("fence")
        who = f"process {holder.get('process')} on {holder.get('host')} since {holder.get('since')}"
        lives = None if owner == "" else _lives(holder)
        if lives or (not unchanged and owner != ""):
            hint = " It runs on this machine, perhaps suspended." if lives else ""
            raise UserError(f"{self._place}: is in use by {who}; wait for it or end it.{hint}")
        if owner != "" and lives is None and waited < PATIENCE:
            if waited < min(BEAT, PATIENCE) / 4:
                print(f"{self._place}: {who} was at work there; waiting {PATIENCE:.0f} s for a heartbeat.", flush=True)
            return None
        self._about["fence"] = fence + 1 if isinstance(fence, int) else 1
        tag = self._store.put(self._key, self._content(), there[1])
        if tag is None:
            raise UserError(
                f"{self._place}: another process has just begun to use it; wait for that process or end it."
            )
        return tag

    def _forget(self) -> None:
        if self._proof is not None:
            path, descriptor = self._proof
            path.unlink(missing_ok=True)
            os.close(descriptor)


def _read(content: bytes) -> dict[str, Any]:
    try:
        found = json.loads(content)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _clocks() -> tuple[float, float]:
    """Return seconds of the boot clock, which counts suspensions, and of the wall clock, with pauses of a VM."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)), time.time()


def _prove(owner: str) -> tuple[Path, int] | None:
    """Lock a local file; the kernel releases the lock when the process ends. None if the machine has no locks."""
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


def _lives(holder: dict[str, Any]) -> bool | None:
    """Return whether the holder is alive under this kernel; None if unknown.

    If the holder's boot id equals this kernel's, the lock on the file with its owner's name is decisive, even across
    containers and host names.
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
    return cache_folder() / "owners" / owner


def _boot() -> str:
    """Return the kernel's boot id; "" if it has none. Source: random(4)."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""
