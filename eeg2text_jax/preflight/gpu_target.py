"""Target descriptions of NVIDIA GPUs, with which XLA compiles for a GPU that is not present.

XLA's cost models and kernel selection read the numbers, which come from the repository openxla/xla,
`xla/backends/gpu/target_config/specs/*.txtpb`.
"""

import dataclasses
import importlib.util
import os
from pathlib import Path
from typing import Any

import jax
from jax.experimental import topologies

from eeg2text_jax.errors import UserError, first_line
from eeg2text_jax.preflight.compiling import Topology

PLUGINS = ("jax_plugins.xla_cuda12", "jax_plugins.xla_cuda13")
# Keys are XLA's `PrimitiveType` numbers. _VECTOR: (vector units per core, operations per clock) of integers, float16,
# float32, float64 and bfloat16. _MATRIX: rate of a matrix unit as a multiple of half its float16 rate, for int8,
# float16, float32, bfloat16 and float8.
_VECTOR = {4: (64, 1), 8: (64, 1), 10: (128, 2), 11: (128, 1), 12: (64, 1), 16: (128, 2)}
_MATRIX = {2: 4, 6: 4, 10: 2, 11: 1, 16: 2, **dict.fromkeys((19, 20, 23, 24, 25, 28, 29, 33), 4)}


@dataclasses.dataclass(frozen=True)
class GpuTarget:
    """XLA's description of a GPU."""

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
        """Return XLA's `GpuTargetConfigProto` in text format."""
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
    """Return whether XLA's compiler for GPUs is installed."""
    return any(importlib.util.find_spec(name) for name in PLUGINS if importlib.util.find_spec("jax_plugins"))


def gpu_devices(topology: Topology) -> list[jax.Device]:
    """Return device descriptions of GPUs of one host: programs can be compiled for them, but not run.

    Raises UserError if XLA cannot describe the GPUs.
    """
    compiler = importlib.util.find_spec("nvidia") and importlib.util.find_spec("nvidia.cuda_nvcc")
    for place in (compiler.submodule_search_locations or []) if compiler else []:  # XLA looks for ptxas on PATH
        os.environ["PATH"] = f"{Path(place) / 'bin'}{os.pathsep}{os.environ['PATH']}"
    target = TARGETS[topology.name.split(":")[0]].text()
    try:
        described = topologies.get_topology_desc(
            platform="cuda", target_config=target, topology=f"1x1x{topology.shape[0]}"
        )
    except Exception as error:
        raise UserError(f"--topology={topology.name!r}: XLA cannot describe it ({first_line(error)[:200]}).") from error
    return list(described.devices)
