"""One training step and one evaluation step for all arms at once: pure functions, compiled once per bucket.

All arms see the same batch with the same dropout keys (those of their seed); only the condition differs.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from eeg2text_jax.conditions.condition import condition_inputs
from eeg2text_jax.conditions.context import ConditionContext
from eeg2text_jax.grid import Arm
from eeg2text_jax.models.functional import Seq2SeqModel
from eeg2text_jax.parallel.arms import choose_by_arm
from eeg2text_jax.training.loss import summed_loss
from eeg2text_jax.training.state import TrainState

Batch = Mapping[str, jax.Array]


class StudyArrays(NamedTuple):
    """What every step reads and none changes: keys and the means that some conditions need.

    Fields:
      dropout: keys `[A]`.
      condition: the key of all random conditions, a scalar.
      means: float32 `[S + 1, F]`, see `ConditionContext`; None where no condition needs it.
    """

    dropout: jax.Array
    condition: jax.Array
    means: jax.Array | None


@dataclasses.dataclass(frozen=True)
class GridProgram:
    """The compiled side of a grid: everything here is static.

    Args:
      model: the model, the same for all arms.
      arms: the arms, in the order of the first axis of every parameter.
      optimizer: applied to each arm on its own.
      label_smoothing: see `loss.token_losses`.
      mapping: `"vmap"` computes the arms side by side (sharded over the mesh axis `arm` where there is one), `"map"`
        one after the other, which a single CPU device does faster.
    """

    model: Seq2SeqModel
    arms: tuple[Arm, ...]
    optimizer: optax.GradientTransformation
    label_smoothing: float
    mapping: str

    def train_step(
        self, state: TrainState, batch: Batch, study: StudyArrays
    ) -> tuple[TrainState, dict[str, jax.Array]]:
        """One update of every arm; also returns `loss` (nats per token) and `grad_norm`, each `[A]`.

        Args:
          state: donate it.
          batch: from `data.batches`.
          study: constant over the run.
        """
        keys = jax.vmap(jax.random.fold_in, (0, None))(study.dropout, state.step)

        def update(params, opt_state, key, features, labels):
            def loss(params):
                total, count = self._loss(params, features, labels, batch, key)
                return total / jnp.maximum(count, 1.0)

            value, gradient = jax.value_and_grad(loss)(params)
            with jax.numpy_dtype_promotion("standard"):  # optax raises floats to its int32 step count
                updates, opt_state = self.optimizer.update(gradient, opt_state, params)
            metrics = {"loss": value, "grad_norm": optax.tree.norm(gradient)}
            return optax.apply_updates(params, updates), opt_state, metrics

        params, opt_state, metrics = self._map_arms(
            update, state.params, state.opt_state, keys, self._features(batch, study, state.step), self._labels(batch)
        )
        return state._replace(step=state.step + 1, params=params, opt_state=opt_state), metrics

    def eval_step(self, params: Any, batch: Batch, study: StudyArrays) -> tuple[jax.Array, jax.Array]:
        """Summed loss of every arm under its own condition and the number of tokens, both float32 `[A]`."""

        def evaluate(params, features, labels):
            return self._loss(params, features, labels, batch, None)

        step = jnp.zeros((), jnp.int32)
        return self._map_arms(evaluate, params, self._features(batch, study, step), self._labels(batch))

    def _loss(self, params, features, labels, batch: Batch, key: jax.Array | None) -> tuple[jax.Array, jax.Array]:
        inputs = {"features": features, "mask": batch["mask"]}
        pad = self.model.pad_token
        logits = self.model.forward(params, inputs, self.model.shift_right(labels), dropout_key=key)
        smoothing = self.label_smoothing if key is not None else 0.0
        return summed_loss(logits, labels, batch["weight"], pad, smoothing)

    def _features(self, batch: Batch, study: StudyArrays, step: jax.Array) -> jax.Array:
        """What each arm's encoder is fed, `[A, B, W, F]`."""
        context = ConditionContext(
            study.condition, batch["sample_id"], step, batch.get("subject"), study.means, batch.get("donor")
        )
        pairs = [(arm.condition, arm.seed) for arm in self.arms]
        return condition_inputs(pairs, batch["features"], batch["mask"], context)

    def _labels(self, batch: Batch) -> jax.Array:
        """Each arm's targets, `[A, B, T]`: another sentence's for `label_shuffle`."""
        names = ["shuffled_labels" if arm.condition == "label_shuffle" else "labels" for arm in self.arms]
        distinct = sorted(set(names))
        return choose_by_arm([batch[name] for name in distinct], [distinct.index(name) for name in names])

    def _map_arms(self, function: Callable[..., Any], *arguments: Any) -> Any:
        if self.mapping == "map":
            return jax.lax.map(lambda slices: function(*slices), arguments)
        return jax.vmap(function, spmd_axis_name="arm")(*arguments)
