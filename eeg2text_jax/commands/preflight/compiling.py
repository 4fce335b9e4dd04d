"""Compile programs for TPUs and GPUs that are not present, and read memory use from the result."""

import dataclasses
import functools
import importlib.util
import math
import os
import re
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
from jax.experimental import topologies
from jax.sharding import Mesh

from eeg2text_jax.base.chips import gpu_clock
from eeg2text_jax.base.chips.hlo_clock import Estimate, UnknownLoop, estimate
from eeg2text_jax.base.chips.hlo_text import Collective, collectives
from eeg2text_jax.base.devices.mesh import CHIPS, Chip, platform_of
from eeg2text_jax.base.errors import UserError, did_you_mean, first_line
from eeg2text_jax.commands.preflight.programs import Program

# Chips of a pod, the largest slice, and the slices, smallest first. Source: "TPU architecture" of Google Cloud's docs.
PODS = {"v4": 4096, "v5e": 256, "v5p": 8960, "v6e": 256}
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
    """Parse `v5e:2x4` or `h100:8`. Raises UserError for an unknown chip, no shape, or more chips than a pod has."""
    key, _, shape = name.lower().partition(":")
    if key not in CHIPS:
        raise UserError(f"--topology={name!r}: there is no chip {key!r}; {did_you_mean(key, CHIPS)}")
    chip = CHIPS[key]
    pattern, example = (r"[1-9]\d*(x[1-9]\d*)+", "2x4") if chip.platform == "tpu" else (r"[1-9]\d*", "8")
    if not re.fullmatch(pattern, shape):
        raise UserError(f"--topology={name!r}: expected a shape after the chip, as in '{key}:{example}'.")
    sides = tuple(int(n) for n in shape.split("x"))
    if math.prod(sides) > PODS.get(key, math.inf):
        chips = f"{math.prod(sides):,} chips, but a {key} pod has {PODS[key]:,}"
        raise UserError(f"--topology={name!r}: has {chips}; take a smaller shape.")
    return Topology(f"{key}:{shape}", chip, sides)


def require_libtpu() -> None:
    if importlib.util.find_spec("libtpu") is None:
        raise UserError("compiling for a TPU needs libtpu: pip install 'eeg2text_jax[preflight]'.")


_USED = re.compile(r"Used ([\d.]+)([KMGT]?) of [\d.]+[KMGT]? hbm")
_TEMPORARIES = re.compile(r"required for HLO temporaries \(([\d.]+)([KMGT]?)\) exceeds")
_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


# The compiler's optimization effort. A run uses "full"; "least" compiles in a third of the time, reports 0.16 GiB (2 %)
# more memory for BART-large's training step, and useless times (623 ms instead of 180).
EFFORTS = {"least": -1.0, "full": 0.0}
EFFORT_OPTION = "exec_time_optimization_effort"


@dataclasses.dataclass(frozen=True)
class Compiled:
    """Memory (bytes on one device) and time of a program, as stated by the compiler.

    Of a program that does not fit only `total` and `seconds` are known.
    """

    total: int  # peak memory, or what is needed if it does not fit
    arguments: int | None  # including donated buffers
    temporaries: int | None  # at their peak
    output: int | None  # results that do not reuse a donated buffer
    code: int | None
    collectives: tuple[Collective, ...] | None
    seconds: float  # time to trace and compile here
    estimate: Estimate | None = None  # of one run; None if not requested, or the chip is unknown to XLA
    effort_unknown: bool = False  # this JAX has no option for the effort; the compiler's default was used


_LOADING = threading.Lock()  # two threads that load libtpu at once: "PJRT_Api already exists for device type tpu"


def tpu_devices(topology: Topology) -> list[jax.Device]:
    """Return descriptions of a slice's devices, for which programs can be compiled, but not run.

    Raises UserError if libtpu is not installed, or does not know the slice.
    """
    require_libtpu()
    # JAX runs both cores of a v4 chip as one device; a description has two by default.
    options: dict[str, Any] = {"chip_config_name": "megacore"} if topology.name.startswith("v4:") else {}
    # A host has 2x2x1 chips by default; a smaller slice needs an explicit bound.
    sides = (*topology.shape, 1, 1)[:3]
    options["chips_per_host_bounds"] = [min(side, most) for side, most in zip(sides, (2, 2, 1), strict=True)]
    try:
        with _LOADING:
            described = topologies.get_topology_desc(platform="tpu", topology_name=topology.name, **options)
    except Exception as error:  # libtpu raises several types for an unknown shape
        reason = first_line(error)[:200]
        raise UserError(f"--topology={topology.name!r}: libtpu knows no such slice ({reason}).") from error
    return list(described.devices)


def compile_program(
    program: Program, mesh: Mesh, effort: str, chip: Chip | None = None, unknown_loops: Sequence[int] = ()
) -> Compiled:
    """Compile a program for the TPUs of a mesh; `effort`: a key of `EFFORTS`; without `chip`, no time is estimated.

    Raises UserError if the trip count of a loop is unknown, on which the time depends.
    """
    begun, lowered = time.monotonic(), program.function.lower(*program.arguments)
    with tempfile.TemporaryDirectory(prefix="eeg2text_hlo_") as dump:
        options = {"xla_dump_to": dump} if platform_of(mesh) == "tpu" else {}
        try:
            compiled, unknown = _with_effort(lowered, effort, options)
        except jax.errors.JaxRuntimeError as error:
            if (used := refused_bytes(str(error), program.argument_bytes())) is None:
                raise
            return Compiled(used, None, None, None, None, None, time.monotonic() - begun)
        seconds, hlo = time.monotonic() - begun, optimized_hlo(compiled, Path(dump))
    clock = functools.partial(estimate, hlo, chip.clock, unknown_loops, chip.bandwidth) if chip else None
    return _as_compiled(compiled, hlo, mesh, seconds, clock, unknown)


def _with_effort(lowered: jax.stages.Lowered, effort: str, options: dict[str, str]) -> tuple[jax.stages.Compiled, bool]:
    """Return the compiled program, and whether this JAX has no option for the effort."""
    try:
        return lowered.compile(compiler_options={EFFORT_OPTION: EFFORTS[effort], **options}), False
    except jax.errors.JaxRuntimeError as error:
        if "No such compile option" not in str(error):
            raise
        return lowered.compile(compiler_options=options), True


def optimized_hlo(compiled: jax.stages.Compiled, dump: Path) -> str:
    """Return the last HLO text of a program: from the folder `dump`, else through JAX.

    JAX cannot read every program of a newer libtpu: for v6e, `as_text` failed on a gather on SparseCores ("async-update
    instruction should have 1 operands but sees 3", jaxlib 0.10.2, libtpu 0.0.52).
    """
    return _newest(dump, "*.after_codegen.txt") or compiled.as_text()


def _newest(dump: Path, pattern: str) -> str:
    """Return the text that was dumped last; programs of a program's constants are dumped before it."""
    texts = sorted(dump.glob(pattern), key=lambda path: path.stat().st_mtime_ns)
    return texts[-1].read_text() if texts else ""


def compile_for_gpu(
    program: Program, mesh: Mesh, chip: Chip, unknown_loops: Sequence[int] = (), *, timed: bool = True
) -> Compiled:
    """Compile a program for the GPUs of a mesh; if `timed`, estimate its time.

    XLA has no cost models of an A100 and fails if they are requested ("Cannot find key: sm_80").
    """
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="eeg2text_hlo_") as dump:
        options = {**gpu_clock.OPTIONS, gpu_clock.MODELS: timed, "xla_dump_to": dump}
        compiled = program.function.lower(*program.arguments).compile(compiler_options=options)
        seconds, plan = time.monotonic() - begun, _newest(Path(dump), gpu_clock.PLAN)
    hlo = compiled.as_text()
    clock = functools.partial(gpu_clock.estimate, hlo, chip, unknown_loops, plan) if timed else None
    return _as_compiled(compiled, hlo, mesh, seconds, clock)


def _as_compiled(
    compiled: jax.stages.Compiled,
    hlo: str,
    mesh: Mesh,
    seconds: float,
    clock: Callable[[], Estimate] | None,
    effort_unknown: bool = False,
) -> Compiled:
    memory = compiled.memory_analysis()
    try:
        spent = clock() if clock else None
    except UnknownLoop as error:
        raise UserError(f"the program's time cannot be estimated: {error}.") from error
    output = memory.output_size_in_bytes - memory.alias_size_in_bytes
    parts = memory.argument_size_in_bytes, memory.temp_size_in_bytes, output, memory.generated_code_size_in_bytes
    timed = spent if spent and spent.costs else None
    return Compiled(sum(parts), *parts, tuple(collectives(hlo, mesh)), seconds, timed, effort_unknown)


def refused_bytes(message: str, arguments: int) -> int | None:
    """Return the bytes that a program needs by the compiler's message that it does not fit; None for other errors.

    If the temporaries alone do not fit, the message has only those; the bytes of the `arguments` are added.
    """
    for pattern, besides in ((_USED, 0), (_TEMPORARIES, arguments)):
        if amount := pattern.search(message):
            return int(float(amount[1]) * _UNITS[amount[2]]) + besides
    return None


def lowers_for(program: Program, platform: str) -> str | None:
    """Lower a program for another platform; return None, or the first line of an error."""
    try:
        program.function.trace(*program.arguments).lower(lowering_platforms=(platform,))
    except NotImplementedError as error:
        return first_line(error)
    return None


# XLA's cost models and kernel selection read these descriptions of GPUs. The numbers come from the repository
# openxla/xla, `xla/backends/gpu/target_config/specs/*.txtpb`.

PLUGINS = ("jax_plugins.xla_cuda12", "jax_plugins.xla_cuda13")
# Keys are XLA's `PrimitiveType` numbers. _VECTOR: (vector units per core, operations per clock) of integers, float16,
# float32, float64 and bfloat16. _MATRIX: rate of a matrix unit as a multiple of half its float16 rate, for int8,
# float16, float32, bfloat16 and float8.
_VECTOR = {4: (64, 1), 8: (64, 1), 10: (128, 2), 11: (128, 1), 12: (64, 1), 16: (128, 2)}
_MATRIX = {2: 4, 6: 4, 10: 2, 11: 1, 16: 2, **dict.fromkeys((19, 20, 23, 24, 25, 28, 29, 33), 4)}


@dataclasses.dataclass(frozen=True)
class GpuTarget:
    description: str  # the GPU's name in the driver
    capability: tuple[int, int]  # CUDA compute capability
    cores: int  # streaming multiprocessors
    floats: int  # float32 units per core
    clock: float  # GHz
    memory: int  # bytes of device memory
    bandwidth: int  # bytes per second
    cache: int  # bytes of the L2 cache
    shared: tuple[int, int]  # bytes of shared memory per core, and the maximum per block
    matrix_clock: float = 0.0  # GHz of the matrix units under load; 0 if XLA has no cost models of this GPU
    matrix_ops: int = 0  # float16 operations per clock of one matrix unit; a core has 4

    def text(self) -> str:
        major, minor = self.capability
        accelerated = "ACCELERATED_FEATURES" if major >= 9 else "NONE"
        vector = {key: (self.clock, *rate) for key, rate in _VECTOR.items()}
        matrix = {key: (self.matrix_clock, 4, self.matrix_ops // 2 * halves) for key, halves in _MATRIX.items()}
        rates = _rates("scalar_unit_description", vector) + _rates("matrix_unit_description", matrix)
        return f"""gpu_device_info {{
  threads_per_block_limit: 1024 threads_per_warp: 32 threads_per_core_limit: 2048
  shared_memory_per_block: 49152
  shared_memory_per_core: {self.shared[0]} shared_memory_per_block_optin: {self.shared[1]}
  core_count: {self.cores} fpus_per_core: {self.floats} clock_rate_ghz: {self.clock}
  block_dim_limit_x: 2147483647 block_dim_limit_y: 65535 block_dim_limit_z: 65535
  thread_dim_limit_x: 1024 thread_dim_limit_y: 1024 thread_dim_limit_z: 64
  memory_bandwidth: {self.bandwidth} l2_cache_size: {self.cache} device_memory_size: {self.memory}
  cuda_compute_capability {{ major: {major} minor: {minor} feature_extension: {accelerated} }}
  registers_per_core_limit: 65536 registers_per_block_limit: 65536
  {rates if self.matrix_ops else ""}
  device_vendor: "NVIDIA Corporation" name: "{self.description}" device_address_bits: 64 ecc_enabled: true
  driver_version: "13.0.0" runtime_version: "12.8.0" compile_time_toolkit_version: "12.8.0" dnn_version: "9.10.0"
}}
platform_name: "CUDA"
dnn_version_info {{ major: 9 minor: 10 patch: 0 }}
runtime_version {{ major: 12 minor: 8 patch: 0 }}
device_description_str: "{self.description}"
"""


def _rates(unit: str, rates: dict[int, tuple[float, int, int]]) -> str:
    infos = [
        f"rate_infos {{ key: {key} value {{ clock_rate_ghz: {clock} units_per_core: {units} ops_per_clock: {ops} }} }}"
        for key, (clock, units, ops) in rates.items()
    ]
    return "\n".join([unit + " {", *infos, "}\n"])


_HOPPER: dict[str, Any] = {"capability": (9, 0), "cores": 132, "floats": 128, "clock": 1.98, "cache": 52428800}
_HOPPER |= {"shared": (233472, 232448), "matrix_clock": 1.8295201, "matrix_ops": 512}
_AMPERE: dict[str, Any] = {"capability": (8, 0), "cores": 108, "floats": 64, "clock": 1.41, "cache": 41943040}
_AMPERE |= {"shared": (167936, 166912)}
TARGETS = {
    "h100": GpuTarget("NVIDIA H100 80GB HBM3", memory=84942979072, bandwidth=3352320000000, **_HOPPER),
    "h200": GpuTarget("NVIDIA H200", memory=151397597184, bandwidth=4800000000000, **_HOPPER),
    "a100-80gb": GpuTarget("NVIDIA A100-SXM4-80GB", memory=85100068864, bandwidth=2039040000000, **_AMPERE),
    "a100-40gb": GpuTarget("NVIDIA A100-SXM4-40GB", memory=42331013120, bandwidth=1555200000000, **_AMPERE),
}


def has_gpu_compiler() -> bool:
    return any(importlib.util.find_spec(name) for name in PLUGINS if importlib.util.find_spec("jax_plugins"))


def gpu_devices(topology: Topology) -> list[jax.Device]:
    """Return descriptions of the GPUs of one host. Raises UserError if XLA cannot describe them."""
    compiler = importlib.util.find_spec("nvidia") and importlib.util.find_spec("nvidia.cuda_nvcc")
    for place in (compiler.submodule_search_locations or []) if compiler else []:  # XLA looks for ptxas on PATH
        os.environ["PATH"] = f"{Path(place) / 'bin'}{os.pathsep}{os.environ['PATH']}"
    target = TARGETS[topology.name.split(":")[0]].text()
    count = f"1x1x{topology.shape[0]}"
    try:
        described = topologies.get_topology_desc(platform="cuda", target_config=target, topology=count)
    except Exception as error:
        raise UserError(f"--topology={topology.name!r}: XLA cannot describe it ({first_line(error)[:200]}).") from error
    return list(described.devices)
