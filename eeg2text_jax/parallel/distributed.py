"""Several hosts as one machine, through JAX's own coordination service."""

import os
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, TypeVar

import jax
import numpy as np
from jax.experimental import multihost_utils

from eeg2text_jax.errors import UserError, first_line
from eeg2text_jax.stores.address import is_address
from eeg2text_jax.stores.mirror import mirrored

Result = TypeVar("Result")

# Environment of a run on plain machines; TPU slices, Slurm and Open MPI are recognized by JAX and need none of it.
COORDINATOR, PROCESSES, PROCESS = "EEG2TEXT_COORDINATOR", "EEG2TEXT_PROCESSES", "EEG2TEXT_PROCESS"


def initialize(hosts: str) -> None:
    """Joins the other hosts. Call it before anything touches a device. From then on the first host alone prints.

    Args:
      hosts: `"one"`: this machine alone. `"auto"`: the cluster that JAX finds (a TPU slice, Slurm, Open MPI).
        `"env"`: as the environment says: `EEG2TEXT_COORDINATOR` (address:port of process 0), `EEG2TEXT_PROCESSES`
        (how many) and `EEG2TEXT_PROCESS` (which one this is).

    Raises:
      UserError: `hosts` is something else, the environment is incomplete, the others could not be joined, or there is
        no device of the kind that was asked for.
    """
    if hosts == "one":
        check_devices()
        return
    if hosts not in ("auto", "env"):
        raise UserError(f"parallel.hosts = {hosts!r}; expected 'one', 'auto' or 'env'.")
    arguments = _from_environment() if hosts == "env" else {}
    if os.environ.get("JAX_PLATFORMS") == "cpu":
        jax.config.update("jax_cpu_collectives_implementation", "gloo")
    try:
        jax.distributed.initialize(**arguments)
    except (RuntimeError, ValueError) as error:
        raise UserError(f"parallel.hosts = {hosts!r}: the hosts could not be joined ({first_line(error)}).") from error
    check_devices()
    if not is_main():
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115  to the end of the process: everything is printed once


def is_main() -> bool:
    """Whether this process writes files and prints."""
    return jax.process_index() == 0


def check_devices() -> None:
    """Starts JAX's backend.

    Raises:
      UserError: there is no device of the kind that JAX_PLATFORMS asks for.
    """
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
    """Calls `make` on the first host, then on the others, which find what it wrote to the shared folder.

    Raises:
      UserError: on the other hosts, where `make` failed on the first, which raises what it raised.
    """
    if jax.process_count() == 1:
        return make()
    made, failure = None, None
    if is_main():
        try:
            made = make()
        except BaseException as error:  # the others wait, and are told before it goes on its way
            failure = error
    failed = multihost_utils.broadcast_one_to_all(np.int32(failure is not None))
    if failure is not None:
        raise failure
    if failed:
        raise UserError("the first host could not go on; its message says why.")
    return made if is_main() else make()


def workdir_at(place: str) -> AbstractContextManager[str]:
    """The folder of this machine to work in for a workdir `place`, see `mirror.mirrored`; call it behind `initialize`.

    Raises:
      UserError: on entering, or at once where several hosts would write a checkpoint into folders of their own.
    """
    if is_address(place) and jax.process_count() > 1:
        raise UserError(
            f"{place}: {jax.process_count()} hosts write one checkpoint together and need a folder that all of them "
            "see; mount the bucket (gcsfuse) and name that, or run on one host."
        )
    return mirrored(place)


def main_decides(decide: Callable[[], int]) -> int:
    """The number that the first host finds, on every host. A call for all hosts at once.

    Raises:
      UserError: on the other hosts, where `decide` failed on the first, which raises what it raised.
    """
    number: list[int] = []
    main_first(lambda: number.append(decide()) if is_main() else None)
    if jax.process_count() == 1:
        return number[0]
    return int(multihost_utils.broadcast_one_to_all(np.int32(number[0] if number else 0)))


def wait_for_all(name: str) -> None:
    """Returns when every host has come here."""
    if jax.process_count() > 1:
        multihost_utils.sync_global_devices(name)


def to_host(tree: Any) -> Any:
    """Arrays as numpy on every host, wherever their shards lie. A call for all hosts at once."""
    if all(leaf.is_fully_addressable for leaf in jax.tree.leaves(tree)):
        return jax.tree.map(np.asarray, tree)
    return multihost_utils.process_allgather(tree, tiled=True)


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
