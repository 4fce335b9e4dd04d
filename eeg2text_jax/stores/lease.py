"""A lease on a workdir in a bucket: one holder at a time, kept alive by a heartbeat, with a fencing token.

The lease is an object that is created only if absent and replaced only by compare-and-swap. It has a random owner and a
number that increases with every holder. A lease is dead if its object did not change for `PATIENCE` seconds on the
waiting process's own clock; clocks of two machines are never compared. The death of a holder on the same machine is
detected at once, because every holder keeps a kernel lock on a file named after its owner.

A holder that was suspended confirms its lease by compare-and-swap before it uploads, and every upload is conditional.
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
from eeg2text_jax.files import parse_json
from eeg2text_jax.stores.address import Address, cache_folder
from eeg2text_jax.stores.store import LOCK, Store, StoreError

BEAT = 20.0  # seconds between two heartbeats
PATIENCE = 90.0  # seconds without a change after which a lease is dead
FRESH = 5.0  # seconds for which a confirmation is valid (gs:// accepts one write per second to an object)


class Lease:
    """The lease of a workdir in a bucket, as a context manager. Entering raises UserError if another process holds it.

    `lost` is the error once this process has lost the lease, else None.
    """

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
        self.lost: StoreError | None = None

    @property
    def label(self) -> str:
        """The fencing token, NUMBER.OWNER, which is stored as metadata of every object that this holder writes."""
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
            self._about["owner"] = ""  # marks the lease as released; its number stays, so that it never decreases
            with contextlib.suppress(StoreError):
                self._store.put(self._key, self._content(), self._tag)
        self._forget()

    def confirm(self, *, now: bool = False) -> None:
        """Raise StoreError unless this process still holds the lease; call this before each change of the bucket.

        The bucket is asked if the last confirmation is older than `FRESH` seconds, or if `now` is set.
        """
        elapsed = max(abs(here - then) for here, then in zip(_clocks(), self._confirmed, strict=True))
        if self.lost is None and (now or elapsed > FRESH):
            self._renew()
        if self.lost:
            raise self.lost

    def _renew(self) -> None:
        """Replace the lease object by compare-and-swap; set `lost` if another process replaced it."""
        with self._turn:
            if self.lost:
                return
            start = _clocks()
            self._about["beat"] += 1
            tag = self._store.put(self._key, self._content(), self._tag)
            there = self._store.read(self._key) if tag is None else None
            if there and _read(there[0]).get("owner") == self._about["owner"]:
                tag = there[1]  # an earlier attempt succeeded, but its answer was lost
            if tag is None:
                self.lost = StoreError(
                    f"{self._place}: another process took it over while this process did not renew its lease (it was "
                    "suspended, or had no network); nothing more is sent. When the other process has ended, the same "
                    "command resumes."
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
        """Wait until the existing lease is released or dead, replace it, and return the tag of the new one."""
        first, start = None, time.monotonic()
        while True:
            there = self._store.read(self._key)
            if there is None:
                tag = self._store.put(self._key, self._content(), None)
            else:
                first = first or there
                tag = self._replace(there, there[1] == first[1], time.monotonic() - start)
            if tag is not None:
                return tag
            time.sleep(min(BEAT, PATIENCE) / 4)

    def _replace(self, there: tuple[bytes, str], unchanged: bool, waited: float) -> str | None:
        """Replace the lease `there`; return the new tag, or None if its holder may be alive.

        Raises UserError if the holder is alive: its process runs, or the lease changed since it was first read.
        """
        holder = _read(there[0])
        owner, fence = holder.get("owner"), holder.get("fence")
        who = f"process {holder.get('process')} on {holder.get('host')} since {holder.get('since')}"
        alive = None if owner == "" else _is_alive(holder)
        if alive or (not unchanged and owner != ""):
            hint = " It runs on this machine, perhaps suspended." if alive else ""
            raise UserError(f"{self._place}: is in use by {who}; wait for it or end it.{hint}")
        if owner != "" and alive is None and waited < PATIENCE:
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
    """Return the fields of a lease object; no fields if it is damaged."""
    with contextlib.suppress(ValueError):
        if isinstance(found := parse_json(content), dict):
            return found
    return {}


def _clocks() -> tuple[float, float]:
    """Return the boot clock, which counts suspensions, and the wall clock, which counts pauses of a VM; in seconds."""
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
    """Return whether the process that holds a lease is alive; None if unknown.

    If the lease has this kernel's boot id, the lock on the owner's file is decisive, even across containers.
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
    """Return the kernel's boot id, see random(4); "" if it has none."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""
