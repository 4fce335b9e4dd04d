"""Who may work on a folder of a bucket: an object that says who does, renewed while he lives.

It is made only where there is none, and taken over only by comparing (both in one request of the store), so that of
two who try, one gets it. Whoever died on this machine is known to be dead; of others one waits for a sign of life.
"""

import contextlib
import json
import os
import secrets
import socket
import threading
import time
from pathlib import Path
from typing import Any

from eeg2text_jax.errors import UserError
from eeg2text_jax.stores.address import Address
from eeg2text_jax.stores.store import Store, StoreError

NAME = ".lock"
BEAT = 20.0  # seconds between two signs of life
PATIENCE = 90.0  # without one for so long, the holder is taken for dead


class Lease:
    """Holds the folder of an address. Use as a context manager.

    Raises:
      UserError: on entering, if another process is at work there.
    """

    def __init__(self, store: Store, address: Address):
        self._store, self._place = store, str(address)
        self._key = address.below(NAME).key
        self._ended = threading.Event()
        self._about = {
            "host": socket.gethostname(),
            "process": os.getpid(),
            "born": _born(os.getpid()),
            "since": time.strftime("%F %T %Z"),
            "token": secrets.token_hex(8),
        }
        self.lost: StoreError | None = None

    def __enter__(self) -> "Lease":
        self._tag = self._store.put(self._key, self._content(0), None) or self._take_over()
        self._thread = threading.Thread(target=self._live, name=f"lease of {self._place}", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        if self.lost is None and not (kind and issubclass(kind, StoreError)):  # else it would wait once more
            with contextlib.suppress(StoreError):
                self._store.delete(self._key)

    def _content(self, beat: int) -> bytes:
        return json.dumps({**self._about, "beat": beat}).encode()

    def _take_over(self) -> str:
        """The tag of the new lease, in place of a dead one's."""
        first, waited = None, 0.0
        while True:
            there = self._store.read(self._key)
            if there is None:
                tag = self._store.put(self._key, self._content(0), None)
            else:
                first = first or there
                holder = _holder(there[0])
                who = f"process {holder.get('process')} on {holder.get('host')} since {holder.get('since')}"
                if there[1] != first[1]:
                    raise UserError(f"{self._place}: is in use by {who}; wait for it or end it.")
                dead = _is_dead(holder) or waited >= PATIENCE
                tag = self._store.put(self._key, self._content(0), there[1]) if dead else None
                if dead and tag is None:
                    raise UserError(f"{self._place}: is in use by another process since now; wait for it or end it.")
                if not dead and not waited:
                    print(f"{self._place}: {who} was at work there; waiting {PATIENCE:.0f} s for a sign of life.")
            if tag is not None:
                return tag
            time.sleep(min(BEAT, PATIENCE) / 4)
            waited += min(BEAT, PATIENCE) / 4

    def _live(self) -> None:
        beat = 0
        while not self._ended.wait(BEAT):
            beat += 1
            try:
                tag = self._store.put(self._key, self._content(beat), self._tag)
                there = self._store.read(self._key) if tag is None else None
                if there and _holder(there[0]).get("token") == self._about["token"]:
                    tag = there[1]  # an attempt got there whose answer was lost
            except StoreError:  # the next sending of a file says it
                continue
            if tag is None:
                self.lost = StoreError(f"{self._place}: another process took it over; this one ends.")
                return
            self._tag = tag


def _holder(content: bytes) -> dict[str, Any]:
    try:
        found = json.loads(content)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _is_dead(holder: dict[str, Any]) -> bool:
    """Whether the holder was a process of this machine that is there no more."""
    if holder.get("host") != socket.gethostname() or not isinstance(holder.get("process"), int):
        return False
    return _born(holder["process"]) != holder.get("born")


def _born(process: int) -> str:
    """When a process of this machine began, as the kernel counts; "" where there is none. Tells two of a number apart.

    Source: proc(5), field 22 of stat; the boot's id, as the count begins with it.
    """
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}:{Path(f'/proc/{process}/stat').read_text().rpartition(')')[2].split()[19]}"
    except (OSError, IndexError):
        return ""
