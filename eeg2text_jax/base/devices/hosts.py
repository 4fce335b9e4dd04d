"""Runs on several hosts: join them, check that they agree, call a function on the first, gather arrays."""

import functools
import json
import os
import socket
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TypeVar

import jax
import numpy as np
from jax.experimental import multihost_utils

from eeg2text_jax.base.devices import supervisor
from eeg2text_jax.base.errors import HostLost, UserError, first_line
from eeg2text_jax.base.files import content_digest
from eeg2text_jax.base.kinds import ParallelSettings
from eeg2text_jax.base.packages import __version__
from eeg2text_jax.base.stores import buckets
from eeg2text_jax.base.stores.buckets import is_address
from eeg2text_jax.base.stores.mirror import mirrored, settle_all

Result = TypeVar("Result")

# Environment variables of a run on plain machines; JAX recognizes TPU slices, Slurm and Open MPI without them.
COORDINATOR, PROCESSES, PROCESS = "EEG2TEXT_COORDINATOR", "EEG2TEXT_PROCESSES", "EEG2TEXT_PROCESS"
MESSAGE_SIZE = 8192  # bytes to which each host's message in `exchanged` is padded
MOST_APART = 60.0  # seconds between two hosts' clocks; requests to buckets carry the time


def join(parallel: ParallelSettings) -> None:
    """Connect to the other hosts, which notice from then on if this one is lost; starts no backend.

    Call it before slow imports. `parallel.hosts` is `"one"`: this machine alone; `"auto"`: the cluster that JAX finds;
    `"env"`: the environment has `EEG2TEXT_COORDINATOR` (address:port of process 0), `EEG2TEXT_PROCESSES` (their number)
    and `EEG2TEXT_PROCESS` (this one's). UserError if it is incomplete, HostLost if hosts cannot be joined.
    """
    hosts = parallel.hosts
    if hosts == "one" or jax.distributed.is_initialized():
        return
    arguments = _from_environment() if hosts == "env" else {}
    if os.environ.get("JAX_PLATFORMS") == "cpu":
        jax.config.update("jax_cpu_collectives_implementation", "gloo")
    seconds = {"initialization_timeout": parallel.startup, "heartbeat_timeout_seconds": parallel.heartbeat}
    try:
        jax.distributed.initialize(**arguments, **seconds)
    except (RuntimeError, ValueError) as error:
        raise HostLost(
            f"parallel.hosts = {hosts!r}: the hosts could not be joined ({first_line(error)}); start the same command "
            "on all hosts again."
        ) from error


def initialize(parallel: ParallelSettings) -> None:
    """Join the other hosts and start JAX's backend, before any use of a device; then only the first host prints.

    Raises the errors of `join` and `check_devices`.
    """
    join(parallel)
    check_devices()
    if not is_main():
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115  until the process ends


def is_main() -> bool:
    """Return whether this is the first host, which writes files and prints."""
    return host_number() == 0


def host_number() -> int:
    return jax.process_index()


def check_devices() -> None:
    """Start JAX's backend; UserError if there is no device of the kind that JAX_PLATFORMS asks for.

    HostLost if another host has joined but does not start its backend in two minutes.
    """
    try:
        jax.devices()
    except (RuntimeError, AssertionError) as error:  # without a GPU's plugin: an AssertionError without a message
        if jax.distributed.is_initialized() and "DEADLINE_EXCEEDED" in str(error):
            raise HostLost(
                f"another host has not started its devices in time ({first_line(error)}); start the same command on "
                "all hosts again."
            ) from error
        asked = os.environ.get("JAX_PLATFORMS", "")
        reason = f" ({first_line(error)[:200]})" if str(error) else ""
        raise UserError(
            f"JAX_PLATFORMS={asked!r}: JAX finds no such device{reason}; install the extra that serves it, e.g. "
            "pip install 'eeg2text_jax[cuda]' or '[tpu]', or unset JAX_PLATFORMS."
        ) from error


def main_first(make: Callable[[], Result]) -> Result:
    """Call `make` on the first host, then on the others, which have its files by then; return each one's result.

    UserError on the others if `make` failed there.
    """
    if jax.process_count() == 1:
        return make()
    made, failure = None, None
    if is_main():
        try:
            made = make()
            settle_all()
        except BaseException as error:  # raised below: the others wait for the broadcast
            failure = error
    failed = multihost_utils.broadcast_one_to_all(np.int32(failure is not None))
    if failure is not None:
        raise failure
    if failed:
        raise UserError("this host stops because process 0 (the first host) failed; the output there says why.")
    if is_main():
        return made
    buckets.pull_all()
    return make()


def workdir_at(place: str, stack: ExitStack) -> str:
    """Return the local folder of the workdir `place`, a path or a bucket URL; call it after `initialize`.

    A bucket's folder is mirrored on the first host until `stack` ends; the others have copies. UserError if the bucket
    cannot be read or written, or another run uses it.
    """

    def enter() -> str:
        if is_address(place) and not is_main():
            return str(buckets.follow(place, host_number()))
        return stack.enter_context(mirrored(place)) if is_main() else place

    return main_first(enter)


def main_decides(decide: Callable[[], int]) -> int:
    """Return on every host the result of `decide` on the first; all call this, with the errors of `main_first`."""
    number = main_first(lambda: decide() if is_main() else 0)
    return number if jax.process_count() == 1 else int(multihost_utils.broadcast_one_to_all(np.int32(number)))


def wait_for_all(name: str) -> None:
    """Wait until every host calls this with the same name."""
    if jax.process_count() > 1:
        multihost_utils.sync_global_devices(name)


def to_host(tree: Any) -> Any:
    """Return whole NumPy arrays on every host; all call this together."""
    if all(leaf.is_fully_addressable for leaf in jax.tree.leaves(tree)):
        return jax.tree.map(np.asarray, tree)
    return multihost_utils.process_allgather(tree, tiled=True)


def to_main(tree: Any) -> Any:
    """Return the arrays of a pytree on the first of several hosts, None on the others; all call this together.

    They are whole NumPy arrays, gathered one at a time, so that a device has one beside its shards.
    """
    if jax.process_count() == 1:
        return tree

    def on_main(leaf: Any) -> np.ndarray | None:
        if not (leaf.is_fully_addressable or leaf.is_fully_replicated):
            leaf = multihost_utils.process_allgather(leaf, tiled=True)
        return np.asarray(leaf) if is_main() else None

    arrays = jax.tree.map(on_main, tree)
    return arrays if is_main() else None


def _from_environment() -> dict[str, str | int]:
    missing = [name for name in (COORDINATOR, PROCESSES, PROCESS) if name not in os.environ]
    if missing:
        raise UserError(f"parallel.hosts = 'env' needs {', '.join(missing)} in the environment.")
    for name in (PROCESSES, PROCESS):
        if not os.environ[name].isdecimal():
            raise UserError(f"{name} = {os.environ[name]!r} in the environment; expected a number.")
    processes, process = int(os.environ[PROCESSES]), int(os.environ[PROCESS])
    if process >= processes:
        raise UserError(f"{PROCESS} = {process}; expected a number below {PROCESSES} = {processes}.")
    return {"coordinator_address": os.environ[COORDINATOR], "num_processes": processes, "process_id": process}


def check_code(config: Mapping[str, object]) -> None:
    """Raise UserError on every host if one differs from the first in code, version, configuration or clock.

    All hosts call this together; `config` is the content of `config.json`.
    """
    if jax.process_count() == 1:
        return
    sections = {f"config.{name}": content_digest(value)[:12] for name, value in config.items()}
    versions = {"code": f"{__version__}, digest {code_digest()}", "jax": jax.__version__, **sections}
    multihost_utils.sync_global_devices("clocks")  # all hosts then read their clocks at the same time
    hosts = exchanged({"host": socket.gethostname(), "clock": time.time(), "same": versions})
    for path in supervisor.NAMES:
        path.write_text("".join(f"{host['host']}\n" for host in hosts))
    _compare(hosts)


def check_data(**digests: str) -> None:
    """Raise UserError on every host if `digests` of files differ."""
    if jax.process_count() > 1:
        _compare(exchanged({"host": socket.gethostname(), "same": digests}))


def exchanged(value: object) -> list:
    """Return the JSON `value` of every host, in order; all call this together."""
    content = json.dumps(value).encode()
    if len(content) > MESSAGE_SIZE:
        raise AssertionError(f"{len(content)} bytes, with room for {MESSAGE_SIZE}")
    sent = np.frombuffer(content.ljust(MESSAGE_SIZE, b"\0"), np.uint8)
    return [json.loads(bytes(row).rstrip(b"\0")) for row in multihost_utils.process_allgather(sent)]


def _compare(hosts: list) -> None:
    """Raise UserError if a host's entry `same` differs from the first's, or `clock` by too much."""
    first = hosts[0]
    for number, other in enumerate(hosts):
        who = f"host {number} ({other['host']})"
        for name in sorted({*first["same"], *other["same"]}):
            if (a := other["same"].get(name)) != (b := first["same"].get(name)):
                raise UserError(
                    f"{who}: has another {name} ({a}) than the first host, {first['host']} ({b}); start the same "
                    "command, of the same version, on the same files everywhere."
                )
        if abs(apart := other.get("clock", 0.0) - first.get("clock", 0.0)) > MOST_APART:
            raise UserError(
                f"{who}: its clock is {apart:+.0f} s from the clock of the first host, {first['host']}; set the clocks "
                f"(NTP), because buckets refuse requests with a wrong time. At most {MOST_APART:.0f} s are accepted."
            )


@functools.cache
def code_digest() -> str:
    """Return 12 hexadecimal digits of a digest of the package's source."""
    root = Path(__file__).parents[2]
    return content_digest({str(path.relative_to(root)): path.read_text() for path in root.rglob("*.py")})[:12]
