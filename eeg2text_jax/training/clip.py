"""The contrastive objective: find the sentence that was read among those of the batch (CLIP, Radford et al. 2021).

All arms of a seed see the same batches with the same dropout keys, as in the generative grid: only the condition
differs.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp

from eeg2text_jax.data.batches import Batch
from eeg2text_jax.models.two_towers import ContrastiveModel, unit_length
from eeg2text_jax.study.grid import StudyArrays
from eeg2text_jax.training.step import GridProgram

EXCLUDED = -1e30  # a logit that takes no part in a softmax


def clip_loss(
    brain: jax.Array, text: jax.Array, sentence: jax.Array, weight: jax.Array, scale: jax.Array, symmetric: bool
) -> jax.Array:
    """Return the summed cross-entropy, in nats, of matching each recording to its own text in the batch.

    Args:
      brain: unit-norm embeddings of the recordings, float32 `[B, E]`.
      text: text embeddings with any non-zero norm, `[B, E]`.
      sentence: int32 `[B]`; rows with the same sentence (read by several subjects) are not negatives of each other.
      weight: float32 `[B]`, 0 for padding rows.
      scale: inverse temperature, a scalar that multiplies the cosines.
      symmetric: average with the loss in the other direction, from text to recording.
    """
    logits = scale * jnp.einsum("bd,cd->bc", brain, unit_length(text), precision=jax.lax.Precision.HIGHEST)
    same = sentence[:, None] == sentence[None, :]
    own = jnp.eye(len(sentence), dtype=bool)
    # A padding row is its own positive, so that its (unused) loss is finite.
    taking_part = ((weight[None, :] > 0) & ~same) | own
    masked = jnp.where(taking_part, logits, EXCLUDED)
    positive = jnp.diagonal(logits)
    losses = jax.nn.logsumexp(masked, axis=1) - positive
    if symmetric:
        other_way = jnp.where(taking_part, logits.T, EXCLUDED)
        losses = 0.5 * (losses + jax.nn.logsumexp(other_way, axis=1) - positive)
    return jnp.sum(losses * weight)


@dataclasses.dataclass(frozen=True)
class ContrastiveProgram(GridProgram):
    """The jitted programs of a contrastive grid: `GridProgram` with another loss.

    Args:
      symmetric: see `clip_loss`.
    """

    model: ContrastiveModel
    symmetric: bool = True

    def _gradient(self, params: Any, rows: Mapping[str, Any], key: jax.Array) -> tuple[jax.Array, Any]:
        """Return the mean loss over the rows of one arm's batch, and its gradient."""

        def loss(params: Any, rows: Mapping[str, Any], key: jax.Array) -> jax.Array:
            total, count = self._loss(params, rows, key)
            return total / jnp.maximum(count, 1.0)

        return self._accumulated(loss, params, rows, key)

    def _loss(self, params: Any, rows: Mapping[str, Any], key: jax.Array | None) -> tuple[jax.Array, jax.Array]:
        """Return the summed loss of one arm and the number of rows."""
        inputs = {"features": rows["features"], "mask": rows["mask"]}
        brain = self.model.embed(params, inputs, dropout_key=key)
        with jax.named_scope("head_loss"):
            scale = self.model.scale(params)
            loss = clip_loss(brain, rows["text"], rows["sentence"], rows["weight"], scale, self.symmetric)
            return loss, jnp.sum(rows["weight"])

    def _rows(self, batch: Batch, study: StudyArrays, step: jax.Array) -> dict[str, jax.Array]:
        """Add each arm's `sentence [A, B]` and text embedding `text [A, B, E]` to the rows of `GridProgram`."""
        rows = super()._rows(batch, study, step)
        places = self._places(len(batch["mask"]))
        sentences = []
        for arm, place in zip(self.arms, places, strict=True):
            of_sample = study.texts.exchanged if arm.condition == "label_shuffle" else study.texts.sentence
            sentences.append(of_sample[batch["sample_id"][place]])
        sentence = jnp.stack(sentences)  # --> [A, B]
        return {**rows, "sentence": sentence, "text": study.texts.vectors[sentence]}
