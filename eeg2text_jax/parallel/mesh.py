"""The device mesh with axes `arm` (training runs of the grid, which never communicate) and `data` (samples of a batch).

The module also has sharding constraints for programs that XLA partitions, and a table of accelerators from data sheets.
"""

import contextlib
import contextvars
import dataclasses
import math
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import AbstractMesh, AxisType, Mesh, PartitionSpec

from eeg2text_jax.errors import UserError

ARM, DATA = "arm", "data"
AUTO = (AxisType.Auto, AxisType.Auto)


def mesh_shape(n_devices: int, n_arms: int, batch_size: int, wanted: tuple[int, int] = (0, 0)) -> tuple[int, int]:
    """Return the number of devices along `arm` and along `data`.

    `wanted` is the user's choice. An entry of 0 is derived: as many devices as possible go along `arm`, because arms
    need no communication, and the others along `data`. Raises UserError if the product of the axes is not the number of
    devices, or an axis does not divide the arms or the batch.
    """
    arm, data = wanted
    if not arm and data:
        arm = n_devices // data
    arm = arm or math.gcd(n_arms, n_devices)
    data = data or n_devices // arm
    if arm * data != n_devices:
        raise UserError(
            f"parallel.mesh = {tuple(wanted)} does not use all {n_devices} devices; set an entry to 0 to have it "
            "chosen."
        )
    if n_arms % arm:
        raise UserError(
            f"parallel.mesh puts {arm} devices along the arms, but {n_arms} arms do not divide evenly among them; set "
            f"its first entry to a divisor of {n_arms}, or to 0."
        )
    if batch_size % data:
        nearest = max(round(batch_size / data), 1) * data
        raise UserError(
            f"batch.size = {batch_size} does not divide among {data} devices; take {nearest} or another parallel.mesh."
        )
    return arm, data


def make_mesh(arm: int, data: int, devices: Sequence[jax.Device] | None = None) -> Mesh:
    """Make a mesh `("arm", "data")` with Auto axes (the default of `jax.make_mesh` is Explicit).

    `devices` has `arm * data` devices, the devices of an arm adjacent; None: all devices of JAX.
    """
    if devices is None:
        return jax.make_mesh((arm, data), (ARM, DATA), axis_types=AUTO)
    return Mesh(np.asarray(devices).reshape(arm, data), (ARM, DATA), axis_types=AUTO)


@dataclasses.dataclass(frozen=True)
class Chip:
    """The data sheet of an accelerator.

    `clock` converts a TPU compiler's estimates from cycles to seconds. It is `flops` divided by the FLOPs per cycle of
    the matrix units (v4, v5p: 8 of 128 x 128; v5e: 4 of 128 x 128; v6e: 4 of 256 x 256). `interconnect` is a chip's
    bandwidth in Google Cloud's documentation (v4 2,400 Gbit/s, v5e 1,600, v5p 4,800, v6e 3,200), divided by the number
    of axes of the torus (v4, v5p: 3; v5e, v6e: 2).
    """

    name: str  # common name
    platform: str  # `tpu` or `cuda`
    memory: int  # bytes of HBM (or GDDR memory)
    flops: float  # dense bfloat16 FLOP/s (float16 if the chip has no bfloat16)
    bandwidth: float  # memory bandwidth in bytes per second
    kinds: str  # regular expression that matches `jax.Device.device_kind`
    clock: float = 0.0  # clock rate of a TPU's cores in Hz; 0: not known
    interconnect: float = 0.0  # bytes per second that a TPU receives over both links of one axis of the torus


GIB = 2**30
CHIPS = {
    "v4": Chip("TPU v4", "tpu", 32 * GIB, 275e12, 1228e9, r"TPU v4$", 1.05e9, 100e9),
    "v5e": Chip("TPU v5e", "tpu", 16 * GIB, 197e12, 819e9, r"TPU v5 ?(lite|e)$", 1.5e9, 100e9),
    "v5p": Chip("TPU v5p", "tpu", 95 * GIB, 459e12, 2765e9, r"TPU v5p?$", 1.75e9, 200e9),
    "v6e": Chip("TPU v6e", "tpu", 32 * GIB, 918e12, 1640e9, r"TPU v6 ?(lite|e)$", 1.75e9, 200e9),
    "h200": Chip("NVIDIA H200", "cuda", 141 * 10**9, 989e12, 4800e9, r"H200"),
    "h100": Chip("NVIDIA H100 SXM", "cuda", 80 * 10**9, 989e12, 3350e9, r"H100.*HBM3"),
    "a100-80gb": Chip("NVIDIA A100 80GB", "cuda", 80 * 10**9, 312e12, 2039e9, r"A100.*80GB"),
    "a100-40gb": Chip("NVIDIA A100 40GB", "cuda", 40 * 10**9, 312e12, 1555e9, r"A100.*40GB"),
    "l4": Chip("NVIDIA L4", "cuda", 24 * 10**9, 121e12, 300e9, r"L4$"),
    "a10g": Chip("NVIDIA A10G", "cuda", 24 * 10**9, 70e12, 600e9, r"A10G"),
    "t4": Chip("NVIDIA T4", "cuda", 16 * 10**9, 65e12, 320e9, r"T4$"),
    "v100": Chip("NVIDIA V100", "cuda", 16 * 10**9, 125e12, 900e9, r"V100.*16GB"),
}


def chip_of_device(kind: str) -> Chip | None:
    """Return the chip of a `jax.Device.device_kind`; None if it is not in the table."""
    return next((chip for chip in CHIPS.values() if re.search(chip.kinds, kind)), None)


def platform_of(mesh: Mesh | AbstractMesh) -> str | None:
    """Return the platform of a mesh's devices, `cpu`, `tpu` or `cuda`; None for a mesh without devices."""
    if isinstance(mesh, AbstractMesh):
        return None
    return _named(mesh.devices.flat[0].platform)


def default_platform() -> str:
    """Return the platform on which JAX runs by default, `cpu`, `tpu` or `cuda`."""
    return _named(jax.default_backend())


def _named(platform: str) -> str:
    return "cuda" if platform == "gpu" else platform


def compiler_options(platform: str | None) -> dict[str, Any]:
    """Return XLA's options for training steps and searches on a platform.

    On GPUs, cuBLAS computes all matrix products. With kernels that XLA generates, a training step of BART-large took
    25.9 instead of 25.2 ms on an H200 with batch 32 (63.6 instead of 62.1 with batch 128), and compiling it took 33
    instead of 21 s.
    """
    return {"xla_gpu_enable_triton_gemm": False} if platform == "cuda" else {}


def with_mesh(function: Callable[..., Any], mesh: Mesh | AbstractMesh | None) -> Callable[..., Any]:
    """Return `function`, traced with `mesh` as the mesh that `shard_rows` and `replicate` use."""
    if mesh is None:
        return function
    abstract = mesh if isinstance(mesh, AbstractMesh) else mesh.abstract_mesh

    def traced(*arguments: Any) -> Any:
        with jax.sharding.use_abstract_mesh(abstract):
            return function(*arguments)

    return traced


_whole_batch = contextvars.ContextVar("whole_batch", default=False)


@contextlib.contextmanager
def whole_batch() -> Iterator[None]:
    """Turn `shard_rows` and `replicate` off while a program is traced: every device of `data` has the whole batch."""
    token = _whole_batch.set(True)
    try:
        yield
    finally:
        _whole_batch.reset(token)


def data_shards() -> int:
    """Return the number of devices over which XLA divides the batch in the mesh of `with_mesh`; 1 without a mesh."""
    mesh = jax.sharding.get_abstract_mesh()
    types = dict(zip(mesh.axis_names, mesh.axis_types, strict=True))
    divided = types.get(DATA) == AxisType.Auto and not _whole_batch.get()
    return mesh.shape[DATA] if divided else 1


def shard_rows(x: jax.Array) -> jax.Array:
    """Constrain `x` and its gradient to be sharded along `data` by their first axis, the rows of a batch.

    Without constraints and with FSDP, XLA gathers the activations of the global batch and all-reduces whole logits:
    21.1 GB per chip and step of BART-large at batch 256 on v5e:4x4. With constraints it gathers weights: 2.6 GB at
    batch 256, 2.4 GB at batch 32.
    """
    if data_shards() == 1 or x.shape[0] % data_shards():
        return x
    return jax.lax.with_sharding_constraint(x, PartitionSpec(DATA))


def replicate(tree: Any) -> Any:
    """Constrain arrays to be whole on every device; XLA then gathers sharded ones, such as the weights of a layer."""
    if data_shards() == 1:
        return tree
    return jax.tree.map(lambda leaf: jax.lax.with_sharding_constraint(leaf, PartitionSpec()), tree)
