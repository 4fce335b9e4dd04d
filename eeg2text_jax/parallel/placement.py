"""The device mesh of a run and the shardings of parameters, state and batches, from `config.parallel`.

A partition rule is (regular expression, layout). The first rule that matches an array's path, such as
`params/encoder/layers/bias`, applies. An array without a rule is an error: no parameter is replicated by mistake.
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
from eeg2text_jax.parallel.mesh import ARM, AUTO, DATA, make_mesh, mesh_shape, platform_of

# A layout gives the mesh axis of each array axis after the arm axis, as PartitionSpec does. The layout FSDP shards the
# longest axis that is a multiple of the number of devices along `data`.
FSDP = "fsdp"
Layout = tuple[str | None, ...] | str
Rules = Sequence[tuple[str, Layout]]

FSDP_MIN_SIZE = 2**16  # FSDP replicates arrays with fewer elements: sharding would cost time and save little memory

REPLICATED: Rules = ((r".*", ()),)
FULLY_SHARDED: Rules = ((r"(^|/)(step|count|best_loss)$", ()), (r".*", FSDP))


def state_shardings(state: Any, mesh: Mesh, rules: Rules, lead: tuple[str, ...] = (ARM,)) -> Any:
    """Return a `NamedSharding` for every leaf (array or shape) of a training state, or of parameters `[A, ...]`.

    The first axes of every leaf are sharded along the mesh axes `lead`; scalars are replicated. Raises ValueError if a
    leaf matches no rule, or the rule does not fit its shape.
    """

    def place(path: Any, leaf: Any) -> NamedSharding:
        if not leaf.shape:
            return NamedSharding(mesh, PartitionSpec())
        name = jax.tree_util.keystr(path, simple=True, separator="/")
        axes = _axes(_match(name, rules), leaf.shape[len(lead) :], mesh.shape[DATA])
        if len(lead) + len(axes) > leaf.ndim:
            raise ValueError(
                f"the rule for {name} names the axes {(*lead, *axes)}, but the parameter has the shape {leaf.shape}"
            )
        return NamedSharding(mesh, PartitionSpec(*lead, *axes))

    return jax.tree_util.tree_map_with_path(place, state)


def frozen_shardings(params: Any, mesh: Mesh, rules: Rules) -> Any:
    """Return a `NamedSharding` for every leaf (array or shape) of parameters without an arm axis."""
    return state_shardings(params, mesh, rules, lead=())


def with_sharding(leaf: jax.ShapeDtypeStruct, sharding: NamedSharding) -> jax.ShapeDtypeStruct:
    """Return the shape and dtype of `leaf` with a sharding."""
    return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding)


def batch_sharding(mesh: Mesh) -> NamedSharding:
    """Return the sharding of a batch `[B, ...]`: axis B along `data`."""
    return NamedSharding(mesh, PartitionSpec(DATA))


def own_rows(mesh: Mesh, size: int, devices: Sequence[jax.Device] | None = None) -> np.ndarray | None:
    """Return the rows of a batch of `size` that are on this host's devices, in order; None on a single host: all.

    `devices` are the devices of another host.
    """
    if devices is None:
        if jax.process_count() == 1:
            return None
        devices = mesh.local_devices
    places = batch_sharding(mesh).devices_indices_map((size,))
    return np.unique(np.concatenate([np.arange(size)[places[device]] for device in devices]))


def put_batch(batch: Mapping[str, Any], mesh: Mesh, size: int = 0) -> dict[str, jax.Array]:
    """Place a batch `[B, ...]` on the mesh, axis B along `data`.

    With `size`, the number of rows of the whole batch, each host has its `own_rows`, else all rows.
    """
    return _put_rows(batch, batch_sharding(mesh), size)


def seeds_sharding(mesh: Mesh) -> NamedSharding:
    """Return the sharding of a training batch `[S, B, ...]` of S seeds: axis B along `data`."""
    return NamedSharding(mesh, PartitionSpec(None, DATA))


def put_training_batch(batch: Mapping[str, Any], mesh: Mesh, size: int = 0) -> dict[str, jax.Array]:
    """Place a training batch `[S, B, ...]` on the mesh, axis B along `data`; `size` is explained at `put_batch`."""
    return _put_rows({name: leaf for name, leaf in batch.items() if name != "whole"}, seeds_sharding(mesh), size)


def _put_rows(batch: Mapping[str, Any], sharding: NamedSharding, size: int) -> dict[str, jax.Array]:
    """Place a batch whose rows are the axis that `sharding` shards; with `size`, this host has its `own_rows` of it."""
    own = own_rows(sharding.mesh, size) if size else None
    if own is None:
        return put(dict(batch), sharding)
    axis = len(sharding.spec) - 1

    def place(array: Any) -> jax.Array:
        def part(index: tuple[slice, ...]) -> Any:
            first, last, _ = index[axis].indices(size)
            held = slice(*np.searchsorted(own, (first, last)))
            return array[(*index[:axis], held, *index[axis + 1 :])]

        whole = (*array.shape[:axis], size, *array.shape[axis + 1 :])
        return jax.make_array_from_callback(whole, sharding, part)

    return jax.tree.map(place, dict(batch))


def put(tree: Any, sharding: NamedSharding) -> Any:
    """Place arrays on devices; every host must have the whole arrays, and places the shards of its own devices."""

    def place(array: Any) -> jax.Array:
        if jax.dtypes.issubdtype(array.dtype, jax.dtypes.prng_key):  # JAX cannot place keys on several hosts
            data = place(np.asarray(jax.random.key_data(array)))
            return jax.random.wrap_key_data(data, impl=jax.random.key_impl(array))
        return jax.make_array_from_callback(array.shape, sharding, lambda index: array[index])

    return jax.tree.map(place, tree)


def replicated(mesh: Mesh) -> NamedSharding:
    """Return the sharding that gives every device a copy of the whole array."""
    return NamedSharding(mesh, PartitionSpec())


def arm_sharding(mesh: Mesh) -> NamedSharding:
    """Return the sharding of arrays `[A, ...]`: axis A along `arm`."""
    return NamedSharding(mesh, PartitionSpec(ARM))


def fed_sharding(mesh: Mesh) -> NamedSharding:
    """Return the sharding of encoder inputs `[A, B, ...]`: axis A along `arm`, axis B along `data`."""
    return NamedSharding(mesh, PartitionSpec(ARM, DATA))


def _match(name: str, rules: Rules) -> Layout:
    """Return the layout of the first rule that matches a path."""
    for pattern, layout in rules:
        if re.search(pattern, name):
            return layout
    raise ValueError(f"no partition rule matches {name}; the rules are {[pattern for pattern, _ in rules]}")


def _axes(layout: Layout, shape: tuple[int, ...], n_data: int) -> tuple[str | None, ...]:
    """Return the mesh axes of an array's axes (without the arm axis), with `n_data` devices along `data`."""
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

        `devices` are devices, or descriptions of devices that are not present; None: all devices of all hosts, or on a
        single host the first ones, if `parallel.mesh` asks for fewer. If `devices` is a number, the mesh is abstract:
        programs can be lowered but not compiled. Raises UserError if `parallel.mesh` does not fit the devices, the arms
        or the batch, or `train.accumulate` does not fit the batch.
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
            return cls(AbstractMesh(shape, (ARM, DATA), axis_types=AUTO), rules)
        return cls(make_mesh(*shape, devices), rules)

    def __str__(self) -> str:
        sizes = ", ".join(f"{n} along {axis}" for axis, n in self.mesh.shape.items())
        return f"{self.mesh.size} x {self.mesh.devices.flat[0].device_kind} ({sizes})"

    def shardings(self, state: Any) -> Any:
        """Return the sharding of every leaf (array or shape) of a state `[A, ...]`."""
        return state_shardings(state, self.mesh, self.rules)

    def frozen(self, params: Any) -> Any:
        """Return the sharding of every leaf (array or shape) of parameters that all arms share."""
        return frozen_shardings(params, self.mesh, self.rules)

    def formats(self, state: Any) -> Any:
        """Return the shardings of a state, on TPUs with row-major memory layouts, for use between training steps.

        If the vocabulary is no multiple of 8, the default layout of a TPU puts an arm axis of size 1 between vocabulary
        and width. Every step then copies the embedding table and its momentum into that layout (6.5 ms of BART-large's
        step by the compiler's estimate, and 7 ms for reading from that layout).
        """
        shardings = self.shardings(state)
        if platform_of(self.mesh) != "tpu":
            return shardings

        def row_major(leaf: Any, sharding: NamedSharding) -> Format | NamedSharding:
            return Format(MemoryLayout(major_to_minor=tuple(range(leaf.ndim))), sharding) if leaf.ndim > 2 else sharding

        return jax.tree.map(row_major, state, shardings)

    def abstract(self, shapes: Any) -> Any:
        """Return the shapes of a state with their shardings, as restoring a checkpoint requires them."""
        return jax.tree.map(with_sharding, shapes, self.shardings(shapes))

    def batch(self, batch: Mapping[str, Any], size: int = 0) -> dict[str, jax.Array]:
        """Place a batch `[B, ...]` on the mesh, axis B along `data`; `size` is explained at `put_batch`."""
        return put_batch(batch, self.mesh, size)

    def constants(self, tree: Any) -> Any:
        """Place a copy of the arrays on every device."""
        return put(tree, replicated(self.mesh))


def arms_mapping(parallel: DevicesSettings) -> str:
    """Return how a device computes several arms: `"vmap"`, in parallel, or `"map"`, in sequence.

    `parallel.arms="auto"` selects `"map"` on a single CPU device, where it is faster. Raises UserError if the field has
    another value.
    """
    if parallel.arms not in ("auto", "vmap", "map"):
        raise UserError(f"parallel.arms = {parallel.arms!r}; expected 'auto', 'vmap' or 'map'.")
    if parallel.arms != "auto":
        return parallel.arms
    n_devices = math.prod(parallel.mesh) or len(jax.devices())
    return "map" if n_devices == 1 and jax.default_backend() == "cpu" else "vmap"
