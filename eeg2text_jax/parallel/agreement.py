"""Check at the start that all hosts run the same code on the same data: a host that differs is refused by name."""

import functools
import hashlib
import json
import socket
import time
from collections.abc import Mapping
from pathlib import Path

import jax
import numpy as np
from jax.experimental import multihost_utils

from eeg2text_jax.errors import UserError
from eeg2text_jax.parallel import supervisor
from eeg2text_jax.versions import __version__

ROOM = 8192  # bytes of one host's message
MOST_APART = 60.0  # seconds between the clocks of two hosts; requests to buckets carry the time


def check_code(config: Mapping[str, object]) -> None:
    """Compare code, versions, configuration (as JSON) and clock of all hosts. All hosts must call this together.

    Raises:
      UserError: a host differs from the first; every host raises it.
    """
    if jax.process_count() == 1:
        return
    sections = {f"config.{name}": _digest(json.dumps(value, default=str)) for name, value in config.items()}
    own = {"code": f"{__version__}, digest {code_digest()}", "jax": jax.__version__, **sections}
    multihost_utils.sync_global_devices("clocks")  # so that all look at theirs at once
    said = exchanged({"host": socket.gethostname(), "clock": time.time(), "same": own})
    for path in supervisor.NAMES:
        path.write_text("".join(f"{one['host']}\n" for one in said))
    _check(said)


def check_data(**digests: str) -> None:
    """Compare digests of the files that every host has read; see `check_code`."""
    if jax.process_count() > 1:
        _check(exchanged({"host": socket.gethostname(), "same": digests}))


def exchanged(own: object) -> list:
    """Return the values of all hosts, in the order of their numbers. All hosts must call this together."""
    content = json.dumps(own).encode()
    if len(content) > ROOM:
        raise AssertionError(f"{len(content)} bytes, with room for {ROOM}")
    sent = np.zeros(ROOM, np.uint8)
    sent[: len(content)] = np.frombuffer(content, np.uint8)
    return [json.loads(bytes(row).rstrip(b"\0")) for row in multihost_utils.process_allgather(sent)]


def _check(said: list) -> None:
    first = said[0]
    for number, other in enumerate(said):
        who = f"host {number} ({other['host']})"
        for name in sorted({*first["same"], *other["same"]}):
            if (a := other["same"].get(name)) != (b := first["same"].get(name)):
                raise UserError(
                    f"{who}: has another {name} ({a}) than the first host, {first['host']} ({b}); start the same "
                    "command, of the same version, on the same files everywhere."
                )
        if abs(apart := other.get("clock", 0.0) - first.get("clock", 0.0)) > MOST_APART:
            raise UserError(
                f"{who}: its clock is {apart:+.0f} s from that of the first host, {first['host']}; set it (NTP), as "
                f"buckets refuse requests of another time. At most {MOST_APART:.0f} s are accepted."
            )


@functools.cache
def code_digest() -> str:
    """Return a digest of the package's source."""
    root = Path(__file__).parents[1]
    files = sorted(root.rglob("*.py"))
    return _digest("".join(f"{path.relative_to(root)} {_digest(path.read_text())}\n" for path in files))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]
