"""The device mesh of a run and the partition rules of parameters, state and batches, from `config.parallel`.

A rule is (regular expression, layout). The first rule that matches an array's path (`params/encoder/layers/bias`)
applies. An array that no rule matches is an error, so that a new parameter cannot be replicated by oversight.
"""

import dataclasses
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jax.experimental.layout import Format
from jax.experimental.layout import Layout as MemoryLayout
from jax.sharding import AbstractMesh, Mesh, NamedSharding, PartitionSpec

from eeg2text_jax.errors import UserError
from eeg2text_jax.parallel import DevicesSettings, ParallelSettings
from eeg2text_jax.parallel.mesh import ARM, DATA, abstract_mesh, make_mesh, mesh_shape

# Layout of an array's axes after the arm axis: axis names as in PartitionSpec, or FSDP: the longest axis that
# the devices along `data` divide.
FSDP = "fsdp"
Layout = tuple[str | None, ...] | str
Rules = Sequence[tuple[str, Layout]]

# An array smaller than this is copied to every device: gathering it would cost more time than it saves memory.
FSDP_MIN_SIZE = 2**16

REPLICATED: Rules = ((r".*", ()),)
FULLY_SHARDED: Rules = ((r"(^|/)(step|count|best_loss)$", ()), (r".*", FSDP))


def state_shardings(state: Any, mesh: Mesh, rules: Rules) -> Any:
    """Return a `NamedSharding` for every leaf of a training state, or of parameters: arrays, or their shapes.

    Leaves with axes have the arms on the first one; scalars are replicated.

    Raises:
      ValueError: a leaf matches no rule, or a rule does not fit its shape.
    """

    def place(path: Any, leaf: Any) -> NamedSharding:
        if not leaf.shape:
            return NamedSharding(mesh, PartitionSpec())
        name = jax.tree_util.keystr(path, simple=True, separator="/")
        axes = _axes(_match(name, rules), leaf.shape[1:], mesh.shape[DATA])
        if len(axes) >= leaf.ndim:
            raise ValueError(
                f"the rule for {name} lays out {len(axes)} axes, but it is {leaf.shape} with the arms first"
            )
        return NamedSharding(mesh, PartitionSpec(ARM, *axes))

    return jax.tree_util.tree_map_with_path(place, state)


def frozen_shardings(params: Any, mesh: Mesh, rules: Rules) -> Any:
    """Return shardings of parameters that all arms share: as `state_shardings`, without an arm axis."""

    def place(path: Any, leaf: Any) -> NamedSharding:
        name = jax.tree_util.keystr(path, simple=True, separator="/")
        return NamedSharding(mesh, PartitionSpec(*_axes(_match(name, rules), leaf.shape, mesh.shape[DATA])))

    return jax.tree_util.tree_map_with_path(place, params)


def with_sharding(leaf: jax.ShapeDtypeStruct, sharding: NamedSharding) -> jax.ShapeDtypeStruct:
    """Return a shape with this sharding."""
    return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding)


def batch_sharding(mesh: Mesh) -> NamedSharding:
    """Return the sharding of a batch `[B, ...]`: axis B along `data`, replicated along `arm`."""
    return NamedSharding(mesh, PartitionSpec(DATA))


def put_batch(batch: Mapping[str, Any], mesh: Mesh) -> dict[str, jax.Array]:
    """Place a batch on the mesh. Every host makes the whole batch and hands over the rows of its own devices."""
    return put(dict(batch), batch_sharding(mesh))


def seeds_sharding(mesh: Mesh) -> NamedSharding:
    """Return the sharding of a training batch `[S, B, ...]`: axis B along `data`; axis S (seeds) is not sharded."""
    return NamedSharding(mesh, PartitionSpec(None, DATA))


def put_training_batch(batch: Mapping[str, Any], mesh: Mesh) -> dict[str, jax.Array]:
    """Place a training batch `[S, B, ...]` on the mesh, as `put_batch` does for `[B, ...]`."""
    return put(dict(batch), seeds_sharding(mesh))


def put(tree: Any, sharding: NamedSharding) -> Any:
    """Place arrays that every host has in full; each host hands over the shards of its own devices."""

    def place(array: Any) -> jax.Array:
        if jax.dtypes.issubdtype(array.dtype, jax.dtypes.prng_key):  # of several hosts, JAX does not place keys
            data = place(np.asarray(jax.random.key_data(array)))
            return jax.random.wrap_key_data(data, impl=jax.random.key_impl(array))
        return jax.make_array_from_callback(array.shape, sharding, lambda index: array[index])

    return jax.tree.map(place, tree)


def replicated(mesh: Mesh) -> NamedSharding:
    """Return the sharding of arrays that every device holds in full."""
    return NamedSharding(mesh, PartitionSpec())


def arm_sharding(mesh: Mesh) -> NamedSharding:
    """Return the sharding of arrays `[A, ...]`: the first axis along `arm`, no other axis sharded."""
    return NamedSharding(mesh, PartitionSpec(ARM))


def fed_sharding(mesh: Mesh) -> NamedSharding:
    """Return the sharding of encoder inputs `[A, B, ...]`: axis A along `arm`, axis B along `data`."""
    return NamedSharding(mesh, PartitionSpec(ARM, DATA))


def _match(name: str, rules: Rules) -> Layout:
    for pattern, layout in rules:
        if re.search(pattern, name):
            return layout
    raise ValueError(f"no partition rule matches {name}; the rules are {[pattern for pattern, _ in rules]}")


def _axes(layout: Layout, shape: tuple[int, ...], n_data: int) -> tuple[str | None, ...]:
    if layout != FSDP:
        return tuple(layout)
    dividing = [axis for axis, length in enumerate(shape) if length % n_data == 0]
    if n_data == 1 or math.prod(shape) < FSDP_MIN_SIZE or not dividing:
        return ()
    longest = max(dividing, key=lambda axis: (shape[axis], axis))
    return (*[None] * longest, DATA)


@dataclasses.dataclass(frozen=True)
class Placement:
    """A device mesh and the partition rules of the arrays on it."""

    mesh: Mesh | AbstractMesh
    rules: Rules

    @classmethod
    def choose(
        cls,
        parallel: ParallelSettings,
        n_arms: int,
        batch_size: int,
        accumulate: int,
        devices: Sequence[jax.Device] | int | None = None,
    ) -> "Placement":
        """Return the placement that the section `parallel` asks for.

        `devices` are by default those of all hosts. They may be descriptions of devices that are not present, or a
        number of devices without a kind, for which programs can be lowered but not compiled.

        Raises:
          UserError: `parallel.mesh` does not fit the devices, the arms or the batch, or `train.accumulate` the batch.
        """
        wanted = tuple(int(n) for n in parallel.mesh)
        if len(wanted) != 2 or min(wanted) < 0:
            raise UserError(f"parallel.mesh = {wanted}; expected devices along (arm, data), 0 for a free choice.")
        if arms_mapping(parallel) == "map":
            if wanted[0] > 1:
                raise UserError(
                    f"parallel.arms = 'map' computes one arm after the other, but parallel.mesh = {wanted} puts arms "
                    "on different devices; set parallel.arms=vmap."
                )
            wanted = (1, wanted[1])
        rules = FULLY_SHARDED if parallel.fsdp else REPLICATED
        if devices is None and 0 < math.prod(wanted) < len(jax.devices()) and jax.process_count() == 1:
            devices = jax.devices()[: math.prod(wanted)]
        n_devices = devices if isinstance(devices, int) else len(jax.devices() if devices is None else devices)
        shape = mesh_shape(n_devices, n_arms, batch_size, wanted)
        if accumulate < 1 or batch_size % (accumulate * shape[1]):
            raise UserError(
                f"train.accumulate = {accumulate} does not cut batch.size = {batch_size} into equal parts whose rows "
                f"{shape[1]} devices can share; batch.size must be a multiple of {max(accumulate, 1) * shape[1]}."
            )
        return cls(abstract_mesh(*shape) if isinstance(devices, int) else make_mesh(*shape, devices), rules)

    def __str__(self) -> str:
        sizes = ", ".join(f"{n} along {axis}" for axis, n in self.mesh.shape.items())
        return f"{self.mesh.size} x {self.mesh.devices.flat[0].device_kind} ({sizes})"

    def shardings(self, state: Any) -> Any:
        """Return the shardings of a state `[A, ...]`, given as arrays or as their shapes."""
        return state_shardings(state, self.mesh, self.rules)

    def frozen(self, params: Any) -> Any:
        """Return the shardings of parameters that all arms share, given as arrays or as their shapes."""
        return frozen_shardings(params, self.mesh, self.rules)

    def formats(self, state: Any) -> Any:
        """Return `shardings`, on TPUs with row-major layouts: the layouts of the state between training steps.

        By default a TPU puts the axis of one arm between vocabulary and width if the vocabulary is no multiple of 8,
        and copies the embedding table and its momentum into that layout at every step (6.5 ms of BART-large's step by
        the compiler's estimate, and 7 for reading it).
        """
        shardings = self.shardings(state)
        if isinstance(self.mesh, AbstractMesh) or self.mesh.devices.flat[0].platform != "tpu":
            return shardings

        def in_order(leaf: Any, sharding: NamedSharding) -> Format | NamedSharding:
            return Format(MemoryLayout(major_to_minor=tuple(range(leaf.ndim))), sharding) if leaf.ndim > 2 else sharding

        return jax.tree.map(in_order, state, shardings)

    def abstract(self, shapes: Any) -> Any:
        """Return shapes with their shardings, which restoring a checkpoint requires."""
        return jax.tree.map(with_sharding, shapes, self.shardings(shapes))

    def batch(self, batch: Mapping[str, Any]) -> dict[str, jax.Array]:
        """Place a batch `[B, ...]` on the mesh, axis B along `data`."""
        return put_batch(batch, self.mesh)

    def training_batch(self, batch: Mapping[str, Any]) -> dict[str, jax.Array]:
        """Place a training batch `[S, B, ...]` on the mesh, axis B along `data`."""
        return put_training_batch(batch, self.mesh)

    def constants(self, tree: Any) -> Any:
        """Replicate arrays on every device."""
        return put(tree, replicated(self.mesh))


def arms_mapping(parallel: DevicesSettings) -> str:
    """Return how the arms of a device are computed: `"vmap"`, in parallel, or `"map"`, in sequence.

    `"auto"` maps on a single CPU device, where this is faster.

    Raises:
      UserError: `parallel.arms` is something else.
    """
    if parallel.arms not in ("auto", "vmap", "map"):
        raise UserError(f"parallel.arms = {parallel.arms!r}; expected 'auto', 'vmap' or 'map'.")
    if parallel.arms != "auto":
        return parallel.arms
    n_devices = math.prod(parallel.mesh) or len(jax.devices())
    return "map" if n_devices == 1 and jax.default_backend() == "cpu" else "vmap"
