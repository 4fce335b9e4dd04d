"""Compile programs for TPUs and GPUs that are not present, and read memory use from the result."""

import dataclasses
import functools
import importlib.util
import math
import re
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
from jax.experimental import topologies
from jax.sharding import Mesh

from eeg2text_jax.errors import UserError, did_you_mean, first_line
from eeg2text_jax.parallel.mesh import CHIPS, Chip, platform_of
from eeg2text_jax.preflight import gpu_clock
from eeg2text_jax.preflight.gpu_launches import read_plan
from eeg2text_jax.preflight.hlo import Collective, collectives
from eeg2text_jax.preflight.hlo_clock import Estimate, UnknownLoop, estimate
from eeg2text_jax.preflight.programs import Program

# Chips of a pod, which is the largest slice. Source: "TPU architecture" of Google Cloud's documentation.
PODS = {"v4": 4096, "v5e": 256, "v5p": 8960, "v6e": 256}
# Slices of a chip, smallest first, from the same page.
_FLAT = ("1x1", "2x2", "2x4", "4x4", "4x8", "8x8", "8x16", "16x16")
_CUBES = ("2x2x1", "2x2x2", "2x2x4", "2x4x4", "4x4x4", "4x4x8", "4x8x8", "8x8x8")
SLICES = {"v5e": _FLAT, "v6e": _FLAT, "v4": _CUBES, "v5p": _CUBES}


@dataclasses.dataclass(frozen=True)
class Topology:
    """A TPU slice such as `v5e:2x4`, or a number of GPUs such as `h100:8`."""

    name: str
    chip: Chip
    shape: tuple[int, ...]


def parse_topology(name: str) -> Topology:
    """Parse `v5e:2x4` or `h100:8`, without importing JAX.

    Raises UserError if the chip is unknown, no shape follows its name, or the shape has more chips than a pod.
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
            f"--topology={name!r}: has {math.prod(sides):,} chips, but a {key} pod has {PODS[key]:,}; take a smaller "
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


# The compiler's optimization effort. A run uses "full". "least" compiles in a third of the time and reports 0.16 GiB
# (2 %) more memory for BART-large's training step; its time estimates are useless (623 ms instead of 180).
EFFORTS = {"least": -1.0, "full": 0.0}
EFFORT_OPTION = "exec_time_optimization_effort"


@dataclasses.dataclass(frozen=True)
class Compiled:
    """Memory (bytes on one device) and time of a compiled program, as stated by the compiler.

    If the program does not fit, only `total` and `seconds` are known, and the other fields are None.
    """

    total: int  # bytes: peak memory, or what is needed if it does not fit
    arguments: int | None  # bytes of arguments, including donated buffers
    temporaries: int | None  # peak bytes of temporaries
    output: int | None  # bytes of results that do not reuse a donated buffer
    code: int | None  # bytes of the executable
    collectives: tuple[Collective, ...] | None
    seconds: float  # time to trace and compile here
    estimate: Estimate | None = None  # time of one run; None if it was not requested or the chip is unknown to XLA
    effort_unknown: bool = False  # the installed JAX has no option for the effort; the compiler's default was used


def tpu_devices(topology: Topology) -> list[jax.Device]:
    """Return device descriptions of a slice: programs can be compiled for them, but not run.

    Raises UserError if libtpu is not installed, or does not know the slice.
    """
    require_libtpu()
    # JAX runs both cores of a v4 chip as one device with all its memory; a description has two devices by default.
    options: dict[str, Any] = {"chip_config_name": "megacore"} if topology.name.startswith("v4:") else {}
    # A host has 2x2x1 chips by default; a smaller slice needs an explicit bound.
    sides = (*topology.shape, 1, 1)[:3]
    options["chips_per_host_bounds"] = [min(side, most) for side, most in zip(sides, (2, 2, 1), strict=True)]
    try:
        described = topologies.get_topology_desc(platform="tpu", topology_name=topology.name, **options)
    except Exception as error:  # libtpu raises several types for an unknown shape
        reason = first_line(error)[:200]
        raise UserError(f"--topology={topology.name!r}: libtpu knows no such slice ({reason}).") from error
    return list(described.devices)


def compile_program(
    program: Program, mesh: Mesh, effort: str, chip: Chip | None = None, unknown_loops: Sequence[int] = ()
) -> Compiled:
    """Compile a program for the TPUs of a mesh; `effort` is a key of `EFFORTS`; without `chip`, no time is estimated.

    Raises UserError if the time cannot be estimated because a loop's trip count is unknown (see `hlo_clock.estimate`).
    """
    begun, lowered = time.monotonic(), program.function.lower(*program.arguments)
    with tempfile.TemporaryDirectory(prefix="eeg2text_hlo_") as dump:
        options = {"xla_dump_to": dump} if platform_of(mesh) == "tpu" else {}
        try:
            compiled, unknown = _with_effort(lowered, effort, options)
        except jax.errors.JaxRuntimeError as error:
            used = refused_bytes(str(error), program.argument_bytes())
            if used is None:
                raise
            return Compiled(used, None, None, None, None, None, time.monotonic() - begun)
        seconds, hlo = time.monotonic() - begun, optimized_hlo(compiled, Path(dump))
    clock = None
    if chip:
        clock = functools.partial(estimate, hertz=chip.clock, unknown_loops=unknown_loops, bandwidth=chip.bandwidth)
    return _as_compiled(compiled, hlo, mesh, seconds, clock, unknown)


def _with_effort(lowered: jax.stages.Lowered, effort: str, options: dict[str, str]) -> tuple[jax.stages.Compiled, bool]:
    """Return the program compiled with an effort, and True if the effort was left out: this JAX has no such option."""
    try:
        return lowered.compile(compiler_options={EFFORT_OPTION: EFFORTS[effort], **options}), False
    except jax.errors.JaxRuntimeError as error:
        if "No such compile option" not in str(error):
            raise
        return lowered.compile(compiler_options=options), True


def optimized_hlo(compiled: jax.stages.Compiled, dump: Path) -> str:
    """Return the compiler's last HLO text of a program: from the folder `dump` if it is there, else through JAX.

    JAX cannot read every program of a newer libtpu: for v6e, `as_text` failed on a gather on SparseCores ("async-update
    instruction should have 1 operands but sees 3", jaxlib 0.10.2, libtpu 0.0.52). The dump also has programs that
    compute constants; they are compiled first, so the newest file is the program.
    """
    dumped = sorted(dump.glob("*.after_codegen.txt"), key=lambda path: path.stat().st_mtime_ns)
    return dumped[-1].read_text() if dumped else compiled.as_text()


def compile_for_gpu(
    program: Program, mesh: Mesh, chip: Chip, unknown_loops: Sequence[int] = (), *, timed: bool = True
) -> Compiled:
    """Compile a program for the GPUs of a mesh; if `timed`, estimate its time for comparison with other programs.

    XLA has no cost models of an A100 and fails if they are requested ("Cannot find key: sm_80"). Raises UserError if
    the time cannot be estimated because a loop's trip count is unknown.
    """
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="eeg2text_hlo_") as dump:
        options = {**gpu_clock.OPTIONS, gpu_clock.MODELS: timed, "xla_dump_to": dump}
        compiled = program.function.lower(*program.arguments).compile(compiler_options=options)
        seconds, plan = time.monotonic() - begun, read_plan(Path(dump))
    clock = None
    if timed:
        clock = functools.partial(gpu_clock.estimate, chip=chip, unknown_loops=unknown_loops, plan=plan)
    return _as_compiled(compiled, compiled.as_text(), mesh, seconds, clock, False)


def _as_compiled(
    compiled: jax.stages.Compiled,
    hlo: str,
    mesh: Mesh,
    seconds: float,
    clock: Callable[[str], Estimate] | None,
    unknown: bool,
) -> Compiled:
    """Return memory, collectives and time of a program that took `seconds` to compile; `clock` reads its `hlo`."""
    memory = compiled.memory_analysis()
    try:
        spent = clock(hlo) if clock else None
    except UnknownLoop as error:
        raise UserError(f"the program's time cannot be estimated: {error}.") from error
    parts = (
        memory.argument_size_in_bytes,
        memory.temp_size_in_bytes,
        memory.output_size_in_bytes - memory.alias_size_in_bytes,
        memory.generated_code_size_in_bytes,
    )
    spent = spent if spent and spent.costs else None
    return Compiled(sum(parts), *parts, tuple(collectives(hlo, mesh)), seconds, spent, unknown)


def refused_bytes(message: str, arguments: int) -> int | None:
    """Return the bytes that a program which does not fit needs, from the compiler's message; None for other errors.

    The message states the total. If the temporaries alone do not fit, it states only those; `arguments` (bytes) are
    added then.
    """
    for pattern, besides in ((_USED, 0), (_TEMPORARIES, arguments)):
        if found := pattern.search(message):
            return int(float(found[1]) * _UNITS[found[2]]) + besides
    return None


def lowers_for(program: Program, platform: str) -> str | None:
    """Lower a program to StableHLO for another platform; return None on success, else the error's first line."""
    try:
        program.function.trace(*program.arguments).lower(lowering_platforms=(platform,))
    except NotImplementedError as error:
        return first_line(error)
    return None
