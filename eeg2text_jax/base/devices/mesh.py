"""The device mesh with axes `arm` (training runs, which never communicate) and `data` (samples), and data sheets."""

import contextlib
import contextvars
import dataclasses
import functools
import math
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.layout import Format
from jax.experimental.layout import Layout as MemoryLayout
from jax.sharding import AbstractMesh, AxisType, Mesh, NamedSharding, PartitionSpec

from eeg2text_jax.base.errors import UserError
from eeg2text_jax.base.kinds import DevicesSettings, ParallelSettings

ARM, DATA = "arm", "data"
AUTO = (AxisType.Auto, AxisType.Auto)


def mesh_shape(n_devices: int, n_arms: int, batch_size: int, wanted: tuple[int, int] = (0, 0)) -> tuple[int, int]:
    """Return the number of devices along `arm` and along `data`.

    Where `wanted` has a 0, as many as possible go along `arm`, as arms do not communicate, the others along `data`.
    UserError if not all devices are used, or an axis does not divide the arms or the batch.
    """
    arm, data = wanted
    arm = arm or (n_devices // data if data else 0) or math.gcd(n_arms, n_devices)
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
    """Make a mesh `("arm", "data")` with Auto axes, of `arm * data` devices (None: all), those of an arm adjacent."""
    if devices is None:
        return jax.make_mesh((arm, data), (ARM, DATA), axis_types=AUTO)
    return Mesh(np.asarray(devices).reshape(arm, data), (ARM, DATA), axis_types=AUTO)


@dataclasses.dataclass(frozen=True)
class Chip:
    """The data sheet of an accelerator.

    `clock` is `flops` over the FLOPs per cycle of the matrix units (v4, v5p: 8 of 128 x 128; v5e: 4 of 128 x 128; v6e:
    4 of 256 x 256), `interconnect` the bandwidth in Google Cloud's documentation (v4 2,400 Gbit/s, v5e 1,600, v5p
    4,800, v6e 3,200) over the axes of the torus (v4, v5p: 3; v5e, v6e: 2).
    """

    name: str  # common name
    platform: str  # `tpu` or `cuda`
    memory: int  # bytes of HBM (or GDDR memory)
    flops: float  # dense bfloat16 FLOP/s (float16 if the chip has no bfloat16)
    bandwidth: float  # memory bandwidth in bytes per second
    kinds: str  # pattern of `jax.Device.device_kind`
    clock: float = 0.0  # Hz of a TPU's cores, by which its compiler counts; 0: not known
    interconnect: float = 0.0  # bytes per second to a TPU over both links of one axis of the torus


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
    """Return the chip of a `jax.Device.device_kind`, or None."""
    return next((chip for chip in CHIPS.values() if re.search(chip.kinds, kind)), None)


def platform_of(mesh: Mesh | AbstractMesh) -> str | None:
    """Return the platform of a mesh's devices, `cpu`, `tpu` or `cuda`; None without devices."""
    return None if isinstance(mesh, AbstractMesh) else _named(mesh.devices.flat[0].platform)


def default_platform() -> str:
    """Return JAX's default platform, `cpu`, `tpu` or `cuda`."""
    return _named(jax.default_backend())


def _named(platform: str) -> str:
    return "cuda" if platform == "gpu" else platform


def compiler_options(platform: str | None) -> dict[str, Any]:
    """Return XLA's options for training steps and searches on a platform.

    On GPUs, cuBLAS computes matrix products. With XLA's kernels, a training step of BART-large took 25.9, not 25.2 ms
    on an H200 with batch 32 (63.6, not 62.1 with batch 128), and compiling it 33, not 21 s.
    """
    return {"xla_gpu_enable_triton_gemm": False} if platform == "cuda" else {}


def with_mesh(function: Callable[..., Any], mesh: Mesh | AbstractMesh | None) -> Callable[..., Any]:
    """Return `function`, traced with the mesh of `shard_rows` and `replicate`."""
    if mesh is None:
        return function
    abstract = mesh if isinstance(mesh, AbstractMesh) else mesh.abstract_mesh

    def traced(*arguments: Any) -> Any:
        with jax.sharding.use_abstract_mesh(abstract):
            return function(*arguments)

    return traced


_whole_batch = contextvars.ContextVar("whole_batch", default=False)
_divided_weights = contextvars.ContextVar("divided_weights", default=False)


@contextlib.contextmanager
def _switched_on(switch: contextvars.ContextVar[bool]) -> Iterator[None]:
    token = switch.set(True)
    try:
        yield
    finally:
        switch.reset(token)


# Contexts for a trace. In `whole_batch`, every device of `data` has the whole batch, so `shard_rows` and `replicate` do
# nothing. In `divided_weights`, it has a part of each dense layer's weights.
whole_batch = functools.partial(_switched_on, _whole_batch)
divided_weights = functools.partial(_switched_on, _divided_weights)


def data_shards() -> int:
    """Return the number of devices over which XLA divides the batch; 1 without `with_mesh`."""
    mesh = jax.sharding.get_abstract_mesh()
    divided = (DATA, AxisType.Auto) in zip(mesh.axis_names, mesh.axis_types, strict=True) and not _whole_batch.get()
    return mesh.shape[DATA] if divided else 1


def shard_rows(x: jax.Array) -> jax.Array:
    """Constrain `x` and its gradient to be sharded along `data` by their first axis, the rows of a batch.

    If the rows do not divide among the devices, `x` is returned as it is. With FSDP and without the constraint, XLA
    gathers activations of the global batch and all-reduces whole logits: 21.1 GB per chip and step of BART-large at
    batch 256 on v5e:4x4. With constraints it gathers weights: 2.6 GB at batch 256, 2.4 at 32.
    """
    whole = data_shards() == 1 or x.shape[0] % data_shards()
    return x if whole else jax.lax.with_sharding_constraint(x, PartitionSpec(DATA))


def replicate(tree: Any) -> Any:
    """Constrain arrays to be whole on every device, so that XLA gathers sharded weights."""
    return tree if data_shards() == 1 else jax.lax.with_sharding_constraint(tree, PartitionSpec())


def weights_are_divided() -> bool:
    """Return whether dense layers have divided weights, see `divided_weights`."""
    return _divided_weights.get() and data_shards() > 1


def shard_columns(x: jax.Array) -> jax.Array:
    """Constrain `x [R, D]` and its gradient to be sharded along `data` by columns."""
    return jax.lax.with_sharding_constraint(x, PartitionSpec(None, DATA))


def gathered(x: jax.Array) -> jax.Array:
    """Return whole rows on every device if weights are divided; the gradient is sharded by rows."""
    return _gathered(x) if weights_are_divided() else x


@jax.custom_vjp
def _gathered(x: jax.Array) -> jax.Array:
    return replicate(x)


_gathered.defvjp(lambda x: (replicate(x), None), lambda _, gradient: (shard_rows(gradient),))


# A partition rule is (regular expression, layout). The first that matches an array's path, such as
# `params/encoder/layers/bias`, applies; without one, an error, so that none is replicated by mistake. A layout has the
# mesh axis of each array axis after the arm axis; FSDP shards the longest axis that is a multiple of the number of
# devices along `data`.
FSDP = "fsdp"
Layout = tuple[str | None, ...] | str
Rules = Sequence[tuple[str, Layout]]

FSDP_MIN_SIZE = 2**16  # FSDP replicates smaller arrays: sharding them costs time and saves little

REPLICATED: Rules = ((r".*", ()),)
FULLY_SHARDED: Rules = ((r"(^|/)(step|count|best_loss)$", ()), (r".*", FSDP))
TENSOR_PARALLEL: Rules = (
    (r"/layers/.*/(query|key|value|gate|inner)/kernel$", (None, None, DATA)),
    (r"/layers/.*/(out|outer)/kernel$", (None, DATA)),
    *FULLY_SHARDED,
)


def state_shardings(state: Any, mesh: Mesh, rules: Rules, lead: tuple[str, ...] = (ARM,)) -> Any:
    """Return the sharding of every leaf (array or shape) of a state, or of parameters `[A, ...]`.

    The first axes are sharded along `lead`; scalars are replicated. ValueError if no rule fits a leaf.
    """

    def place(path: Any, leaf: Any) -> NamedSharding:
        if not leaf.shape:
            return NamedSharding(mesh, PartitionSpec())
        name = jax.tree_util.keystr(path, simple=True, separator="/")
        layout = next((layout for pattern, layout in rules if re.search(pattern, name)), None)
        if layout is None:
            raise ValueError(f"no partition rule matches {name}; the rules are {[pattern for pattern, _ in rules]}")
        axes = _axes(layout, leaf.shape[len(lead) :], mesh.shape[DATA])
        if len(lead) + len(axes) > leaf.ndim:
            raise ValueError(
                f"the rule for {name} names the axes {(*lead, *axes)}, but the parameter has the shape {leaf.shape}"
            )
        return NamedSharding(mesh, PartitionSpec(*lead, *axes))

    return jax.tree_util.tree_map_with_path(place, state)


def frozen_shardings(params: Any, mesh: Mesh, rules: Rules) -> Any:
    """Return the sharding of every leaf of parameters without an arm axis."""
    return state_shardings(params, mesh, rules, lead=())


def with_sharding(shapes: Any, where: Any) -> Any:
    """Return shapes with one sharding, or with those of a tree."""

    def place(leaf: Any, sharding: NamedSharding) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding)

    if isinstance(where, NamedSharding):
        return jax.tree.map(lambda leaf: place(leaf, where), shapes)
    return jax.tree.map(place, shapes, where)


def _sharding(*axes: str | None) -> Callable[[Mesh | AbstractMesh], NamedSharding]:
    return lambda mesh: NamedSharding(mesh, PartitionSpec(*axes))


replicated = _sharding()  # of arrays that are whole on every device
batch_sharding = _sharding(DATA)  # of a batch `[B, ...]`
seeds_sharding = _sharding(None, DATA)  # of a training batch `[S, B, ...]`
arm_sharding = _sharding(ARM)  # of arrays `[A, ...]`
fed_sharding = _sharding(ARM, DATA)  # of encoder inputs `[A, B, ...]`


def own_rows(mesh: Mesh, size: int, devices: Sequence[jax.Device] | None = None) -> np.ndarray | None:
    """Return the rows of a batch of `size` on this host's devices, or on `devices`; None: all, on a single host."""
    if devices is None and jax.process_count() == 1:
        return None
    places = batch_sharding(mesh).devices_indices_map((size,))
    return np.unique(np.concatenate([np.arange(size)[places[device]] for device in devices or mesh.local_devices]))


def put_batch(batch: Mapping[str, Any], mesh: Mesh, size: int = 0, *, seeds: bool = False) -> dict[str, jax.Array]:
    """Place a batch `[B, ...]`, or with `seeds` a training batch `[S, B, ...]`, on the mesh, B along `data`.

    With `size`, the rows of the whole batch, a host has its `own_rows`, else all.
    """
    arrays = {name: leaf for name, leaf in batch.items() if name != "whole"}
    sharding = seeds_sharding(mesh) if seeds else batch_sharding(mesh)
    host_rows = own_rows(mesh, size) if size else None
    if host_rows is None:
        return put(arrays, sharding)
    axis = len(sharding.spec) - 1

    def place(array: Any) -> jax.Array:
        def part(index: tuple[slice, ...]) -> Any:
            first, last, _ = index[axis].indices(size)
            held = slice(*np.searchsorted(host_rows, (first, last)))
            return array[(*index[:axis], held, *index[axis + 1 :])]

        whole = (*array.shape[:axis], size, *array.shape[axis + 1 :])
        return jax.make_array_from_callback(whole, sharding, part)

    return jax.tree.map(place, arrays)


def put(tree: Any, sharding: NamedSharding) -> Any:
    """Place whole arrays on devices; each host places its shards."""

    def place(array: Any) -> jax.Array:
        if jax.dtypes.issubdtype(array.dtype, jax.dtypes.prng_key):  # which JAX cannot place on several hosts
            data = place(np.asarray(jax.random.key_data(array)))
            return jax.random.wrap_key_data(data, impl=jax.random.key_impl(array))
        return jax.make_array_from_callback(array.shape, sharding, lambda index: array[index])

    return jax.tree.map(place, tree)


def _axes(layout: Layout, shape: tuple[int, ...], n_data: int) -> tuple[str | None, ...]:
    """Return the mesh axes of an array's axes after the arm axis, with `n_data` devices along `data`."""
    if layout != FSDP:
        return tuple(layout)
    dividing = [axis for axis, length in enumerate(shape) if length % n_data == 0]
    if n_data == 1 or math.prod(shape) < FSDP_MIN_SIZE or not dividing:
        return ()
    longest = max(dividing, key=lambda axis: (shape[axis], axis))
    return (*[None] * longest, DATA)


@dataclasses.dataclass(frozen=True)
class Placement:
    """A device mesh and the partition rules of parameters and state; places arrays on the mesh."""

    mesh: Mesh | AbstractMesh
    rules: Rules
    frozen_rules: Rules = ()  # of shared parameters; empty: `rules`

    @classmethod
    def choose(
        cls,
        parallel: ParallelSettings,
        n_arms: int,
        batch_size: int,
        accumulate: int,
        devices: Sequence[jax.Device] | int | None = None,
    ) -> "Placement":
        """Return the placement of the section `parallel`; UserError if its mesh or `train.accumulate` do not fit.

        `devices` may be absent ones; None: all of all hosts, or on a single host the first, if `parallel.mesh` asks for
        fewer. Of a number of devices the mesh is abstract: programs can be lowered but not compiled.
        """
        wanted = parallel.mesh
        if arms_mapping(parallel) == "map":
            if wanted[0] > 1:
                raise UserError(
                    f"parallel.arms = 'map' computes one arm after the other, but parallel.mesh = {wanted} puts arms "
                    "on different devices; set parallel.arms=vmap."
                )
            wanted = (1, wanted[1])
        rules = FULLY_SHARDED if parallel.fsdp else REPLICATED
        frozen_rules = TENSOR_PARALLEL if parallel.tensor_parallel else rules
        if devices is None and 0 < math.prod(wanted) < len(jax.devices()) and jax.process_count() == 1:
            devices = jax.devices()[: math.prod(wanted)]
        n_devices = devices if isinstance(devices, int) else len(jax.devices() if devices is None else devices)
        shape = mesh_shape(n_devices, n_arms, batch_size, wanted)
        if accumulate < 1 or batch_size % (accumulate * shape[1]):
            raise UserError(
                f"train.accumulate = {accumulate} does not cut batch.size = {batch_size} into equal parts whose rows "
                f"{shape[1]} devices can share; batch.size must be a multiple of {max(accumulate, 1) * shape[1]}."
            )
        if isinstance(devices, int):
            return cls(AbstractMesh(shape, (ARM, DATA), axis_types=AUTO), rules, frozen_rules)
        return cls(make_mesh(*shape, devices), rules, frozen_rules)

    def __str__(self) -> str:
        sizes = ", ".join(f"{n} along {axis}" for axis, n in self.mesh.shape.items())
        return f"{self.mesh.size} x {self.mesh.devices.flat[0].device_kind} ({sizes})"

    def shardings(self, state: Any) -> Any:
        return state_shardings(state, self.mesh, self.rules)

    def frozen(self, params: Any) -> Any:
        """Return the sharding of parameters that all arms share."""
        return frozen_shardings(params, self.mesh, self.frozen_rules or self.rules)

    def formats(self, state: Any) -> Any:
        """Return the shardings of a state between steps, on TPUs with row-major layouts.

        If the vocabulary is no multiple of 8, a TPU's default puts an arm axis of size 1 between vocabulary and width,
        into which every step copies the embedding table and its momentum (6.5 ms of BART-large's step by the compiler's
        estimate, and 7 ms for reading).
        """
        shardings = self.shardings(state)
        if platform_of(self.mesh) != "tpu":
            return shardings

        def row_major(leaf: Any, sharding: NamedSharding) -> Format | NamedSharding:
            return Format(MemoryLayout(major_to_minor=tuple(range(leaf.ndim))), sharding) if leaf.ndim > 2 else sharding

        return jax.tree.map(row_major, state, shardings)

    def abstract(self, shapes: Any) -> Any:
        """Return the shapes of a state with their shardings."""
        return with_sharding(shapes, self.shardings(shapes))

    def constants(self, tree: Any) -> Any:
        return put(tree, replicated(self.mesh))


def arms_mapping(parallel: DevicesSettings) -> str:
    """Return how a device computes several arms: by `vmap` or, faster on one CPU, by `map`."""
    if parallel.arms != "auto":
        return parallel.arms
    alone = (math.prod(parallel.mesh) or len(jax.devices())) == 1
    return "map" if alone and jax.default_backend() == "cpu" else "vmap"


PACE_SIDE = 1024  # rows and columns in `product_pace`


def product_pace() -> float:
    """Measure the FLOP/s of float32 matrix products on the first device."""
    product = jax.jit(jnp.matmul)
    matrix = jnp.ones((PACE_SIDE, PACE_SIDE), jnp.float32)
    product(matrix, matrix).block_until_ready()
    count, start = 0, time.perf_counter()
    while (spent := time.perf_counter() - start) < 0.3 or not count:
        product(matrix, matrix).block_until_ready()
        count += 1
    return 2.0 * PACE_SIDE**3 * count / spent
