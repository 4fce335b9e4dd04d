"""Where the arrays of a run lie: its mesh, and the rules of its state, from `config.parallel`."""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import AbstractMesh, Mesh
from ml_collections import ConfigDict

from eeg2text_jax.errors import UserError
from eeg2text_jax.parallel.mesh import abstract_mesh, make_mesh, mesh_shape
from eeg2text_jax.parallel.partition import (
    FULLY_SHARDED,
    REPLICATED,
    Rules,
    put,
    put_batch,
    put_training_batch,
    replicated,
    state_formats,
    state_shardings,
)


@dataclasses.dataclass(frozen=True)
class Placement:
    """A mesh and what lies where on it."""

    mesh: Mesh | AbstractMesh
    rules: Rules

    @classmethod
    def from_config(
        cls, config: ConfigDict, n_arms: int, devices: Sequence[jax.Device] | int | None = None
    ) -> "Placement":
        """The placement that the configuration asks for, on the devices of all hosts.

        Args:
          config: all of it.
          n_arms: of the grid.
          devices: others to take, descriptions of a machine that is not there among them; a number: so many of no kind,
            for which programs can be lowered, not compiled.

        Raises:
          UserError: `parallel.mesh` does not fit the devices, the arms or the batch, or `train.accumulate` the batch.
        """
        parallel = config.parallel
        wanted = tuple(int(n) for n in parallel.mesh)
        if len(wanted) != 2 or min(wanted) < 0:
            raise UserError(f"parallel.mesh = {wanted}; expected devices along (arm, data), 0 for a free choice.")
        if arms_mapping(parallel) == "map":
            if wanted[0] > 1:
                raise UserError(
                    f"parallel.arms = 'map' computes one arm after the other and parallel.mesh = {wanted} puts "
                    "them on different devices; take 'vmap'."
                )
            wanted = (1, wanted[1])
        rules = FULLY_SHARDED if parallel.fsdp else REPLICATED
        if devices is not None:
            n_devices = devices if isinstance(devices, int) else len(devices)
            shape = mesh_shape(n_devices, n_arms, config.batch.size, wanted)
            _check_microbatches(config.batch.size, config.train.accumulate, shape[1])
            return cls(abstract_mesh(*shape) if isinstance(devices, int) else make_mesh(*shape, devices), rules)
        devices = jax.devices()
        if min(wanted) and wanted[0] * wanted[1] < len(devices) and jax.process_count() == 1:
            devices = devices[: wanted[0] * wanted[1]]
        shape = mesh_shape(len(devices), n_arms, config.batch.size, wanted)
        _check_microbatches(config.batch.size, config.train.accumulate, shape[1])
        chosen = None if len(devices) == len(jax.devices()) else devices
        return cls(make_mesh(*shape, chosen), rules)

    def __str__(self) -> str:
        sizes = ", ".join(f"{n} along {axis}" for axis, n in self.mesh.shape.items())
        return f"{self.mesh.size} x {self.mesh.devices.flat[0].device_kind} ({sizes})"

    def shardings(self, state: Any) -> Any:
        """Shardings of a state `[A, ...]`, arrays or their shapes."""
        return state_shardings(state, self.mesh, self.rules)

    def formats(self, state: Any) -> Any:
        """Shardings and, on TPUs, layouts that a state has from step to step."""
        return state_formats(state, self.mesh, self.rules)

    def abstract(self, shapes: Any) -> Any:
        """Shapes with their shardings, as restoring a checkpoint wants them."""
        return jax.tree.map(
            lambda leaf, sharding: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding),
            shapes,
            self.shardings(shapes),
        )

    def batch(self, batch: dict[str, np.ndarray]) -> dict[str, jax.Array]:
        """A batch on the mesh, its rows along `data`."""
        return put_batch(batch, self.mesh)

    def training_batch(self, batch: dict[str, np.ndarray]) -> dict[str, jax.Array]:
        """A batch `[S, B, ...]` on the mesh, its rows along `data`."""
        return put_training_batch(batch, self.mesh)

    def constants(self, tree: Any) -> Any:
        """Arrays on every device."""
        return put(tree, replicated(self.mesh))


def arms_mapping(parallel: ConfigDict) -> str:
    """How the arms of a device are computed, from `parallel.arms`: `"vmap"`, side by side, or `"map"`, in turn.

    `"auto"` maps on a single CPU device, which does that faster.

    Raises:
      UserError: it is something else.
    """
    if parallel.arms not in ("auto", "vmap", "map"):
        raise UserError(f"parallel.arms = {parallel.arms!r}; expected 'auto', 'vmap' or 'map'.")
    if parallel.arms != "auto":
        return parallel.arms
    n_devices = math.prod(parallel.mesh) or len(jax.devices())
    return "map" if n_devices == 1 and jax.default_backend() == "cpu" else "vmap"


def _check_microbatches(size: int, accumulate: int, n_data: int) -> None:
    if accumulate < 1 or size % (accumulate * n_data):
        raise UserError(
            f"train.accumulate = {accumulate} does not cut batch.size = {size} into equal parts whose rows {n_data} "
            f"devices can share; batch.size must be a multiple of {max(accumulate, 1) * n_data}."
        )
