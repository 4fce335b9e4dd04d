"""Runs on several hosts, by JAX's coordination service."""

import os
import sys
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, TypeVar

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import NamedSharding, PartitionSpec

from eeg2text_jax.errors import HostLost, UserError, first_line
from eeg2text_jax.parallel import ParallelSettings
from eeg2text_jax.stores import copying
from eeg2text_jax.stores.address import is_address
from eeg2text_jax.stores.mirror import mirrored, settle_all

Result = TypeVar("Result")

# Environment of a run on plain machines; TPU slices, Slurm and Open MPI are recognized by JAX and need none of it.
COORDINATOR, PROCESSES, PROCESS = "EEG2TEXT_COORDINATOR", "EEG2TEXT_PROCESSES", "EEG2TEXT_PROCESS"


def initialize(parallel: ParallelSettings) -> None:
    """Join the other hosts, before anything touches a device. Afterwards only the first host prints.

    `parallel.hosts` is `"one"`: this machine alone; `"auto"`: the cluster that JAX finds (a TPU slice, Slurm, Open
    MPI); `"env"`: the environment has `EEG2TEXT_COORDINATOR` (address:port of process 0), `EEG2TEXT_PROCESSES` (their
    number) and `EEG2TEXT_PROCESS` (the number of this one). `startup` and `heartbeat` are seconds.

    Raises:
      UserError: `hosts` is something else, the environment is incomplete, the hosts could not be joined, or there is no
        device of the requested kind.
    """
    hosts = parallel.hosts
    if hosts == "one" or jax.distributed.is_initialized():  # by an earlier fold
        check_devices()
        return
    if hosts not in ("auto", "env"):
        raise UserError(f"parallel.hosts = {hosts!r}; expected 'one', 'auto' or 'env'.")
    arguments = _from_environment() if hosts == "env" else {}
    if os.environ.get("JAX_PLATFORMS") == "cpu":
        jax.config.update("jax_cpu_collectives_implementation", "gloo")
    try:
        jax.distributed.initialize(
            **arguments,
            initialization_timeout=int(parallel.startup),
            heartbeat_timeout_seconds=int(parallel.heartbeat),
        )
    except (RuntimeError, ValueError) as error:
        raise HostLost(f"parallel.hosts = {hosts!r}: the hosts could not be joined ({first_line(error)}).") from error
    check_devices()
    if not is_main():
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115  to the end of the process: everything is printed once


def is_main() -> bool:
    """Return whether this process writes files and prints."""
    return host_number() == 0


def host_number() -> int:
    """Return the number of this host, from 0."""
    return jax.process_index()


def check_devices() -> None:
    """Start JAX's backend; raise a UserError if there is no device of the kind that JAX_PLATFORMS asks for."""
    try:
        jax.devices()
    except (RuntimeError, AssertionError) as error:  # the latter, without a word, where a GPU's plugin is not installed
        asked = os.environ.get("JAX_PLATFORMS", "")
        reason = f" ({first_line(error)[:200]})" if str(error) else ""
        raise UserError(
            f"JAX_PLATFORMS={asked!r}: JAX finds no such device{reason}; install the extra that serves it, e.g. "
            "pip install 'eeg2text_jax[cuda]' or '[tpu]', or unset JAX_PLATFORMS."
        ) from error


def main_first(make: Callable[[], Result]) -> Result:
    """Call `make` on the first host, then on the others, which find what it wrote to the workdir.

    If it fails on the first host, its error is raised there, and a UserError on the others.
    """
    if jax.process_count() == 1:
        return make()
    made, failure = None, None
    if is_main():
        try:
            made = make()
            settle_all()
        except BaseException as error:  # the others wait, and are told before it goes on its way
            failure = error
    failed = multihost_utils.broadcast_one_to_all(np.int32(failure is not None))
    if failure is not None:
        raise failure
    if failed:
        raise UserError(
            "this host stops because process 0 (the first host) failed; read the error in the output of process 0."
        )
    if is_main():
        return made
    copying.pull_all()
    return make()


def workdir_at(place: str, stack: ExitStack) -> str:
    """Return the local folder of a workdir `place`, until `stack` ends; call it after `initialize`.

    A workdir in a bucket is mirrored by the first host; the others have copies, see `stores.copying`.

    Raises:
      UserError: the bucket cannot be read or written, or another run is at work in the folder.
    """

    def enter() -> str:
        if is_address(place) and not is_main():
            return str(copying.follow(place, host_number()))
        return stack.enter_context(mirrored(place)) if is_main() else place

    return main_first(enter)


def main_decides(decide: Callable[[], int]) -> int:
    """Return on every host what `decide` returns on the first. All hosts must call this; errors as in `main_first`."""
    number: list[int] = []
    main_first(lambda: number.append(decide()) if is_main() else None)
    if jax.process_count() == 1:
        return number[0]
    return int(multihost_utils.broadcast_one_to_all(np.int32(number[0] if number else 0)))


def wait_for_all(name: str) -> None:
    """Return when every host has called this."""
    if jax.process_count() > 1:
        multihost_utils.sync_global_devices(name)


def to_host(tree: Any) -> Any:
    """Return arrays as numpy on every host, wherever their shards lie. All hosts must call this together."""
    if all(leaf.is_fully_addressable for leaf in jax.tree.leaves(tree)):
        return jax.tree.map(np.asarray, tree)
    return multihost_utils.process_allgather(tree, tiled=True)


def to_main(tree: Any) -> Any:
    """Return arrays on the first host, None on the others; if there are other hosts, as numpy arrays of all shards.

    All hosts must call this together. Leaves are gathered one at a time, so that a device holds only one whole leaf
    besides its shards.
    """
    if jax.process_count() == 1:
        return tree
    found = jax.tree.map(_whole, tree)
    return found if is_main() else None


def _whole(leaf: Any) -> np.ndarray | None:
    if leaf.is_fully_addressable or leaf.is_fully_replicated:
        return np.asarray(leaf) if is_main() else None
    everywhere = NamedSharding(leaf.sharding.mesh, PartitionSpec())
    gathered = jax.jit(_same, out_shardings=everywhere)(leaf)
    return np.asarray(gathered) if is_main() else None


def _same(leaf: jax.Array) -> jax.Array:
    return leaf


def _from_environment() -> dict[str, str | int]:
    missing = [name for name in (COORDINATOR, PROCESSES, PROCESS) if name not in os.environ]
    if missing:
        raise UserError(f"parallel.hosts = 'env' needs {', '.join(missing)} in the environment.")
    numbers = {}
    for name in (PROCESSES, PROCESS):
        if not os.environ[name].isdecimal():
            raise UserError(f"{name} = {os.environ[name]!r} in the environment; expected a number.")
        numbers[name] = int(os.environ[name])
    if numbers[PROCESS] >= numbers[PROCESSES]:
        raise UserError(f"{PROCESS} = {numbers[PROCESS]}; expected a number below {PROCESSES} = {numbers[PROCESSES]}.")
    return {
        "coordinator_address": os.environ[COORDINATOR],
        "num_processes": numbers[PROCESSES],
        "process_id": numbers[PROCESS],
    }
