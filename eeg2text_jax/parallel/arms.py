"""Programs of all arms on a mesh: a training step that XLA partitions, and decoding with a loop for every shard."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import AbstractMesh, Mesh, PartitionSpec

from eeg2text_jax.parallel.mesh import ARM, DATA, with_mesh
from eeg2text_jax.parallel.placement import arm_sharding, replicated, seeds_sharding


class Divided(NamedTuple):
    """Parameters in two parts: what each arm trains, and a frozen model that all arms share.

    Fields:
      own: nested dict, each leaf `[A, ...]`; of one arm without that axis.
      frozen: nested dict without an axis of arms: it is in memory once, however many arms there are.
    """

    own: Any
    frozen: Any


def joined(params: Any) -> Any:
    """Parameters of one arm as one nested dict, `Divided` or not."""
    return _merged(params.own, params.frozen) if isinstance(params, Divided) else params


def _merged(own: Any, frozen: Any) -> Any:
    both = {name: _merged(own[name], frozen[name]) for name in own.keys() & frozen.keys()}
    return {**frozen, **own, **both}


def compile_step(
    step: Callable[..., Any], mesh: Mesh, state_formats: Any, study_shardings: Any = None
) -> Callable[..., Any]:
    """Jits `step(state, batch, study) -> (state, metrics)` for a mesh; the state is donated.

    The batch `[S, B, ...]` is divided along `data`, metrics `[A]` stay with their arms.

    Args:
      state_formats: where the state lies and how, see `Placement.formats`; put it there before the first step.
      study_shardings: where `study` lies; None: copied everywhere.
    """
    return jax.jit(
        step,
        donate_argnums=0,
        in_shardings=(state_formats, seeds_sharding(mesh), study_shardings or replicated(mesh)),
        out_shardings=(state_formats, arm_sharding(mesh)),
    )


def each_arm(
    function: Callable[..., Any], mesh: Mesh | AbstractMesh | None, mapping: str, arguments: Any, shared: Any
) -> Any:
    """`function(*arguments, shared)` of every arm: `arguments` and result `[A, ...]`, divided over the mesh axis `arm`.

    Every device sees its own arms alone, so that nothing can cross them; along `data` XLA divides what `function`
    computes. A device with one arm computes without an axis for it: an axis of length 1 costs a TPU copies (of
    BART-large's training step 15 ms of 180 by the compiler's estimate).

    Args:
      mesh: None on a single device.
      mapping: of several arms on one device: `"vmap"` side by side, `"map"` one after the other.
      shared: what all arms read.
    """

    def local(arguments: Any, shared: Any) -> Any:
        return _each_local(lambda slices: function(*slices, shared), arguments, mapping)

    if mesh is None or mesh.shape[ARM] == 1:
        return with_mesh(local, mesh)(arguments, shared)
    arms, everywhere = PartitionSpec(ARM), PartitionSpec()
    return jax.shard_map(
        local, mesh=mesh, in_specs=(arms, everywhere), out_specs=arms, axis_names={ARM}, check_vma=False
    )(arguments, shared)


def _each_local(function: Callable[..., Any], arguments: Any, mapping: str) -> Any:
    """`function` of every arm of this device; of a single one without an axis for it."""
    if jax.tree.leaves(arguments)[0].shape[0] == 1:
        return jax.tree.map(lambda leaf: leaf[None], function(jax.tree.map(lambda leaf: leaf[0], arguments)))
    return jax.lax.map(function, arguments) if mapping == "map" else jax.vmap(function)(arguments)


def choose_by_arm(values: Sequence[jax.Array], which: Sequence[int]) -> jax.Array:
    """`stack([values[i] for i in which])`, `[A, ...]`, as a choice at every element.

    What is the same on the devices of all arms can be chosen from where it is; a stack of it, XLA divides between the
    arms and exchanges, which costs an all-to-all across them.
    """
    number = jnp.asarray(which, jnp.int32).reshape(-1, *[1] * values[0].ndim)
    chosen = jnp.broadcast_to(values[0][None], (len(which), *values[0].shape))
    for i, value in enumerate(values[1:], start=1):
        chosen = jnp.where(number == i, value[None], chosen)
    return chosen


def shard_map_arms(function: Callable[..., Any], mesh: Mesh) -> Callable[..., Any]:
    """Jits `function` so that every device runs it by itself, on its arms and its rows of the batch.

    For what loops until it is done: under `vmap`, or left to XLA's partitioner, a `while_loop` stops when all arms
    have, and asks them at every step. Arms on one device run one after the other, each as long as it needs.

    Args:
      function: `(params, fed, shared) -> result` for one arm; all arrays of `fed`, `shared` and the result have the
        batch (or a multiple of it) on their first axis.

    Returns:
      The same over stacked arms: `params [A, ...]` or `Divided`, `fed [A, B, ...]`, `shared [B, ...]`, result
      `[A, B, ...]`.
    """
    arms, fed_rows, rows = PartitionSpec(ARM), PartitionSpec(ARM, DATA), PartitionSpec(DATA)

    def local(params: Any, fed: Any, shared: Any) -> Any:
        if not isinstance(params, Divided):
            return _each_local(lambda arm: function(*arm, shared), (params, fed), "map")
        return _each_local(
            lambda arm: function(Divided(arm[0], params.frozen), arm[1], shared), (params.own, fed), "map"
        )

    def apart(params: Any, fed: Any, shared: Any) -> Any:
        of_params = Divided(arms, PartitionSpec()) if isinstance(params, Divided) else arms
        # check_vma: a loop's carry begins as a constant and ends as a value of its shard, which the check refuses.
        return jax.shard_map(
            local, mesh=mesh, in_specs=(of_params, fed_rows, rows), out_specs=fed_rows, check_vma=False
        )(params, fed, shared)

    return jax.jit(apart)
