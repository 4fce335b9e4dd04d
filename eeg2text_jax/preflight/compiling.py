"""Compile programs for TPUs and GPUs that are not present, and read memory use from the result."""

import dataclasses
import importlib.util
import math
import re
import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
from jax.experimental import topologies
from jax.sharding import Mesh

from eeg2text_jax.errors import UserError, did_you_mean, first_line
from eeg2text_jax.parallel.mesh import CHIPS, Chip
from eeg2text_jax.preflight import gpu_clock
from eeg2text_jax.preflight.hlo import Collective, collectives
from eeg2text_jax.preflight.hlo_clock import Estimate, UnknownLoop, estimate
from eeg2text_jax.preflight.programs import Program

# Chips of a pod, the most that one slice can have. Source: "TPU architecture" of Google Cloud's documentation.
PODS = {"v4": 4096, "v5e": 256, "v5p": 8960, "v6e": 256}


@dataclasses.dataclass(frozen=True)
class Topology:
    """A TPU slice such as `v5e:2x4`, or a number of GPUs such as `h100:8`."""

    name: str
    chip: Chip
    shape: tuple[int, ...]


def parse_topology(name: str) -> Topology:
    """Parse `v5e:2x4` or `h100:8`, without importing JAX.

    Raises:
      UserError: the chip is unknown, its name has no shape after it, or a pod has fewer chips.
    """
    key, _, shape = name.lower().partition(":")
    if key not in CHIPS:
        raise UserError(f"--topology={name!r}: there is no chip {key!r}; {did_you_mean(key, CHIPS)}")
    chip = CHIPS[key]
    pattern, example = (r"[1-9]\d*(x[1-9]\d*)+", "2x4") if chip.platform == "tpu" else (r"[1-9]\d*", "8")
    if not re.fullmatch(pattern, shape):
        raise UserError(f"--topology={name!r}: expected a shape after the chip, as in '{key}:{example}'.")
    sides = tuple(int(n) for n in shape.split("x"))
    if math.prod(sides) > PODS.get(key, math.inf):
        raise UserError(
            f"--topology={name!r}: is of {math.prod(sides):,} chips; a {key} pod has {PODS[key]:,}; take a smaller "
            "shape."
        )
    return Topology(f"{key}:{shape}", chip, sides)


def require_libtpu() -> None:
    """Raise a UserError unless libtpu is installed."""
    if importlib.util.find_spec("libtpu") is None:
        raise UserError("compiling for a TPU needs libtpu: pip install 'eeg2text_jax[preflight]'.")


_USED = re.compile(r"Used ([\d.]+)([KMGT]?) of [\d.]+[KMGT]? hbm")
_TEMPORARIES = re.compile(r"required for HLO temporaries \(([\d.]+)([KMGT]?)\) exceeds")
_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


# The compiler's optimization effort. A run uses "full". The lowest effort compiles in a third of the time and gives
# 0.16 GiB (2 %) more memory for BART-large's training step; its time estimates are useless (623 ms instead of 180).
EFFORTS = {"least": -1.0, "full": 0.0}
EFFORT_OPTION = "exec_time_optimization_effort"


@dataclasses.dataclass(frozen=True)
class Compiled:
    """Memory (bytes on one device) and time of a compiled program, as stated by the compiler.

    If the program does not fit, only `total` and `seconds` are known. `estimate` is also None if it was not requested.
    """

    total: int  # peak memory
    arguments: int | None  # bytes of arguments, including donated buffers
    temporaries: int | None  # peak bytes of temporaries
    output: int | None  # bytes of results that do not reuse a donated buffer
    code: int | None  # bytes of the executable
    collectives: tuple[Collective, ...] | None
    seconds: float  # time to trace and compile here
    estimate: Estimate | None = None  # of the time
    effort_unknown: bool = False  # the installed JAX has no option for the effort; the compiler's default was used


def tpu_devices(topology: Topology) -> list[jax.Device]:
    """Return device descriptions of a slice: programs can be compiled for them, but not run.

    Raises:
      UserError: libtpu is not installed, or does not know the slice.
    """
    require_libtpu()
    # JAX runs both cores of a v4 chip as one device with all its memory; a description has two devices by default.
    options: dict[str, Any] = {"chip_config_name": "megacore"} if topology.name.startswith("v4:") else {}
    # A host has 2x2x1 chips by default; a smaller slice needs an explicit bound.
    sides = (*topology.shape, 1, 1)[:3]
    options["chips_per_host_bounds"] = [min(side, most) for side, most in zip(sides, (2, 2, 1), strict=True)]
    try:
        described = topologies.get_topology_desc(platform="tpu", topology_name=topology.name, **options)
    except Exception as error:  # libtpu reports a shape that it does not know in several kinds
        reason = first_line(error)[:200]
        raise UserError(f"--topology={topology.name!r}: libtpu knows no such slice ({reason}).") from error
    return list(described.devices)


def compile_program(
    program: Program, mesh: Mesh, effort: str, chip: Chip | None = None, unknown_loops: Sequence[int] = ()
) -> Compiled:
    """Compile a program for the devices of a mesh with one of `EFFORTS`; without `chip`, no time is estimated.

    Raises:
      UserError: the time cannot be estimated because a trip count is unknown (see `hlo_clock.estimate`).
    """
    begun = time.monotonic()
    lowered, unknown = program.function.lower(*program.arguments), False
    try:
        try:
            compiled = lowered.compile(compiler_options={EFFORT_OPTION: EFFORTS[effort]})
        except jax.errors.JaxRuntimeError as error:
            if "No such compile option" not in str(error):
                raise
            compiled, unknown = lowered.compile(), True
    except jax.errors.JaxRuntimeError as error:
        used = refused_bytes(str(error), program.argument_bytes())
        if used is None:
            raise
        return Compiled(used, None, None, None, None, None, time.monotonic() - begun)
    seconds, hlo = time.monotonic() - begun, compiled.as_text()
    spent = _estimated(_tpu_clock, hlo, chip, unknown_loops) if chip else None
    return _as_compiled(compiled, hlo, mesh, seconds, spent, unknown)


def compile_for_gpu(
    program: Program, mesh: Mesh, chip: Chip, unknown_loops: Sequence[int] = (), *, timed: bool = True
) -> Compiled:
    """`compile_program` for GPUs, with an ordinal time estimate if XLA has cost models of the chip.

    XLA has no cost models of an A100 and fails if they are requested ("Cannot find key: sm_80").

    Raises:
      UserError: the time cannot be estimated because a trip count is unknown.
    """
    begun = time.monotonic()
    options = {**gpu_clock.OPTIONS, gpu_clock.MODELS: timed}
    compiled = program.function.lower(*program.arguments).compile(compiler_options=options)
    seconds, hlo = time.monotonic() - begun, compiled.as_text()
    spent = _estimated(gpu_clock.estimate, hlo, chip, unknown_loops) if timed else None
    return _as_compiled(compiled, hlo, mesh, seconds, spent, False)


def _tpu_clock(hlo: str, chip: Chip, unknown_loops: Sequence[int]) -> Estimate:
    return estimate(hlo, chip.clock, unknown_loops, chip.bandwidth)


def _estimated(model: Callable[..., Estimate], hlo: str, chip: Chip, unknown_loops: Sequence[int]) -> Estimate | None:
    try:
        spent = model(hlo, chip, unknown_loops)
    except UnknownLoop as error:
        raise UserError(f"the program's time cannot be estimated: {error}.") from error
    return spent if spent.costs else None


def _as_compiled(
    compiled: jax.stages.Compiled, hlo: str, mesh: Mesh, seconds: float, spent: Estimate | None, unknown: bool
) -> Compiled:
    memory = compiled.memory_analysis()
    parts = (
        memory.argument_size_in_bytes,
        memory.temp_size_in_bytes,
        memory.output_size_in_bytes - memory.alias_size_in_bytes,
        memory.generated_code_size_in_bytes,
    )
    return Compiled(sum(parts), *parts, tuple(collectives(hlo, mesh)), seconds, spent, unknown)


def refused_bytes(message: str, arguments: int) -> int | None:
    """Return the memory of a program that did not fit, from the compiler's message; None for other errors.

    The message states the total, or only the temporaries if they alone do not fit; then `arguments` (bytes) are added.
    """
    for pattern, besides in ((_USED, 0), (_TEMPORARIES, arguments)):
        if found := pattern.search(message):
            return int(float(found[1]) * _UNITS[found[2]]) + besides
    return None


def lowers_for(program: Program, platform: str) -> str | None:
    """Lower a program to StableHLO for another platform; return None on success, else the reason of the failure."""
    try:
        program.function.trace(*program.arguments).lower(lowering_platforms=(platform,))
    except NotImplementedError as error:
        return first_line(error)
    return None
