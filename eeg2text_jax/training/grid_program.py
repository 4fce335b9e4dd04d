"""The jitted programs of a study, made from its settings; the contrastive objective; the constants of each step.

The contrastive objective finds the sentence that was read among those of the batch (CLIP, Radford et al. 2021). As in
the generative grid, all arms of a seed see the same batches with the same dropout keys: only the condition differs.
"""

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any, cast

import jax
import jax.numpy as jnp
from jax.sharding import AbstractMesh, Mesh

from eeg2text_jax.data.batches import Batch
from eeg2text_jax.models.flops import AnyModel
from eeg2text_jax.models.reconstruction import ReconstructionModel
from eeg2text_jax.models.two_towers import ContrastiveModel, unit_length
from eeg2text_jax.parallel.placement import arms_mapping
from eeg2text_jax.pretrained.start import frozen_params
from eeg2text_jax.study.grid import Arm, StudyArrays, init_keys
from eeg2text_jax.study.sections import Settings
from eeg2text_jax.study.study import Study
from eeg2text_jax.training.stages import frozen_paths
from eeg2text_jax.training.state import Phase, make_optimizer, trainable_only, without_frozen
from eeg2text_jax.training.step import GridProgram
from eeg2text_jax.training.trivial import ReconstructionProgram


def study_arrays(study: Study) -> StudyArrays:
    """Return the constants that every step reads, on its devices; a frozen model is sharded as parameters are."""
    return study.placement.constants(study.arrays)._replace(frozen=frozen_model(study))


def frozen_model(study: Study) -> Any:
    """Return the parameters that all arms share; None if each arm trains all of its own."""
    model, config = study.model, study.config
    if not getattr(model, "shared_frozen", False):
        return None
    key = init_keys(study.arms[:1], config.seed)[0]
    return frozen_params(model, config.model.checkpoint, key, study.placement.frozen, config.model.frozen_dtype)


def make_program(
    config: Settings,
    model: Any,
    arms: tuple[Arm, ...],
    mesh: Mesh | AbstractMesh | None = None,
) -> GridProgram:
    """Build the jitted programs of a grid on a mesh; without a mesh they only describe the state."""
    frozen = frozen_paths(config, model)
    optimizer = without_frozen(make_optimizer(config.optim, config.train.steps), frozen)
    return program_kind(config, model)(
        model=model,
        arms=arms,
        optimizer=trainable_only(optimizer, model, cast(Phase, config.optim.trainable)),
        label_smoothing=config.train.label_smoothing,
        mapping=arms_mapping(config.parallel),
        accumulate=config.train.accumulate,
        mesh=mesh,
        frozen=frozen,
    )


def program_kind(config: Settings, model: AnyModel) -> Callable[..., GridProgram]:
    """Return the `GridProgram` class that trains a model, with its own arguments already bound."""
    if isinstance(model, ReconstructionModel):
        return functools.partial(ReconstructionProgram, error=config.pretrain.loss)
    if isinstance(model, ContrastiveModel):
        return functools.partial(ContrastiveProgram, symmetric=config.contrastive.symmetric)
    return GridProgram


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
    """The jitted programs of a contrastive grid: `GridProgram` with `clip_loss`."""

    model: ContrastiveModel
    symmetric: bool = True  # see `clip_loss`

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
