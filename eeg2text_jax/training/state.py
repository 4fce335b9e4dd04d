"""What training carries from step to step. Every leaf but `step` has the arms on its first axis."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from eeg2text_jax.models.functional import Seq2SeqModel


class TrainState(NamedTuple):
    """A pytree; `A` is the number of arms.

    Fields:
      step: int32 scalar, steps done.
      params: parameters, each `[A, ...]`.
      opt_state: optax state of each arm, each leaf `[A, ...]`.
      best_params: parameters with the lowest loss on dev so far, each `[A, ...]`.
      best_loss: that loss in nats per token, float32 `[A]`.
    """

    step: jax.Array
    params: Any
    opt_state: optax.OptState
    best_params: Any
    best_loss: jax.Array


def init_state(params: Any, optimizer: optax.GradientTransformation) -> TrainState:
    """State before the first step, from stacked parameters `[A, ...]`."""
    n_arms = jax.tree.leaves(params)[0].shape[0]
    return TrainState(
        step=jnp.zeros((), jnp.int32),
        params=params,
        opt_state=jax.vmap(optimizer.init)(params),
        best_params=jax.tree.map(jnp.copy, params),
        best_loss=jnp.full((n_arms,), jnp.inf, jnp.float32),
    )


def init_params(model: Seq2SeqModel, keys: jax.Array) -> Any:
    """Random parameters of every arm, each `[A, ...]`, from keys `[A]`."""
    return jax.vmap(model.init)(keys)


def keep_best(state: TrainState, loss: jax.Array) -> TrainState:
    """Takes the current parameters of the arms whose dev loss `[A]` is lower than their best."""
    better = loss < state.best_loss

    def choose(new: jax.Array, old: jax.Array) -> jax.Array:
        return jnp.where(better.reshape(-1, *[1] * (new.ndim - 1)), new, old)

    return state._replace(
        best_params=jax.tree.map(choose, state.params, state.best_params),
        best_loss=jnp.where(better, loss, state.best_loss),
    )
