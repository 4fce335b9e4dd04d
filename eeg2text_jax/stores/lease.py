"""A lease on a workdir in a bucket: one holder at a time, kept alive by a heartbeat, with a fencing number.

The lease is an object that is made only where there is none and replaced only by compare-and-swap, so that of two
processes that try, one gets it. It has a random owner and a number that grows by one with every holder. A lease is
dead where its object did not change for `PATIENCE` seconds by the clock of the process that waits: no two clocks are
compared, and a host name proves nothing. Only of a holder that died on this machine it is known at once: each holds
the kernel's lock of a file that has its owner's name.

A holder that was suspended finds out before it sends: a lease that was not confirmed just now is confirmed by
compare-and-swap, and every upload has a condition of its own, see `mirror`.
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
PATIENCE = 90.0  # a lease that did not change for so long is dead
FRESH = 5.0  # seconds; a lease that was confirmed so recently is not confirmed again (gs:// takes one write a second)


class Lease:
    """Holds the workdir of an address. Use as a context manager.

    Attributes:
      label: the fencing number and the owner; objects that this holder writes have it beside their content.
      lost: why the lease is no longer this process's, once it is not.

    Raises:
      UserError: on entering, if another process is at work there.
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
        if self.lost is None and not (kind and issubclass(kind, StoreError)):  # else it would wait once more
            self._about["owner"] = ""  # nobody's; the number stays, so that no later holder has a smaller one
            with contextlib.suppress(StoreError):
                self._store.put(self._key, self._content(), self._tag)
        self._forget()

    def confirm(self, *, now: bool = False) -> None:
        """Check that the lease is still this process's. Call it before each request that changes the bucket.

        Args:
          now: even if it was confirmed less than `FRESH` seconds ago.

        Raises:
          StoreError: another process has it, or the bucket does not answer.
        """
        if self.lost is None and (now or max(map(_distance, _clocks(), self._confirmed)) > FRESH):
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
                tag = there[1]  # an attempt got there whose answer was lost
            if tag is None:
                self.lost = StoreError(
                    f"{self._place}: another process took it over while this one did not renew its lease (suspended, "
                    "or without a network); nothing more is sent. The same command goes on once the other has ended."
                )
            else:
                self._tag, self._confirmed = tag, begun

    def _live(self) -> None:
        while not self._ended.wait(BEAT) and self.lost is None:
            with contextlib.suppress(StoreError):  # the next upload says it
                self._renew()

    def _content(self) -> bytes:
        return json.dumps(self._about).encode()

    def _take_over(self) -> str:
        """The tag of the new lease, in place of one that was released or is dead."""
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
        """The tag of the new lease in place of the one that is `there`; None where its holder may live.

        Raises:
          UserError: the holder lives.
        """
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
            raise UserError(f"{self._place}: is in use by another process since now; wait for it or end it.")
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
    """Seconds by the machine, with its suspensions, and by the wall, which counts the pauses of a virtual machine."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)), time.time()


def _distance(one: float, other: float) -> float:
    return abs(one - other)


def _prove(owner: str) -> tuple[Path, int] | None:
    """A locked file of this machine, whose lock the kernel removes when the process ends; None where it has none."""
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
    """Whether the holder runs under this kernel; None where it cannot be known.

    The file of its name tells, as the kernel that has begun with the holder's boot id is one kernel, in which one of
    two processes holds a lock, whatever containers and host names they are in.
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
    """The kernel's id of this boot; "" where it has none. Source: random(4)."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""
