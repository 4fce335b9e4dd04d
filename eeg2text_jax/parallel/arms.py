"""Programs of all arms on a mesh: a training step that XLA partitions, and decoding with a loop for every shard."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, PartitionSpec

from eeg2text_jax.parallel.mesh import ARM, DATA
from eeg2text_jax.parallel.partition import arm_sharding, batch_sharding, replicated


def compile_step(step: Callable[..., Any], mesh: Mesh, state_shardings: Any) -> Callable[..., Any]:
    """Jits `step(state, batch, study) -> (state, metrics)` for a mesh; the state is donated.

    The batch is divided along `data`, `study` is copied everywhere, metrics `[A]` stay with their arms.
    """
    return jax.jit(
        step,
        donate_argnums=0,
        in_shardings=(state_shardings, batch_sharding(mesh), replicated(mesh)),
        out_shardings=(state_shardings, arm_sharding(mesh)),
    )


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


def compile_apart(function: Callable[..., Any], mesh: Mesh) -> Callable[..., Any]:
    """Jits `function` so that every device runs it by itself, on its arms and its rows of the batch.

    For what loops until it is done: under `vmap`, or left to XLA's partitioner, a `while_loop` stops when all arms
    have, and asks them at every step. Arms on one device run one after the other, each as long as it needs.

    Args:
      function: `(params, fed, shared) -> result` for one arm; all arrays of `fed`, `shared` and the result have the
        batch (or a multiple of it) on their first axis.

    Returns:
      The same over stacked arms: `params [A, ...]`, `fed [A, B, ...]`, `shared [B, ...]`, result `[A, B, ...]`.
    """
    arms, fed_rows, rows = PartitionSpec(ARM), PartitionSpec(ARM, DATA), PartitionSpec(DATA)

    def local(params: Any, fed: Any, shared: Any) -> Any:
        return jax.lax.map(lambda arm: function(*arm, shared), (params, fed))

    # check_vma: a loop's carry begins as a constant and ends as a value of its shard, which the check refuses.
    apart = jax.shard_map(local, mesh=mesh, in_specs=(arms, fed_rows, rows), out_specs=fed_rows, check_vma=False)
    return jax.jit(apart)
