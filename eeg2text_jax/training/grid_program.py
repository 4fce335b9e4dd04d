"""Make the training program (training and evaluation steps of all arms); contrastive and reconstruction objectives.

The contrastive objective (CLIP, Radford et al. 2021) finds, among the sentences of the batch, the one that was read.
The reconstruction objective of the pretraining stages reproduces the encoder's input.
"""

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import AbstractMesh, Mesh

from eeg2text_jax.data.batches import Batch
from eeg2text_jax.models.reconstruction import ReconstructionModel
from eeg2text_jax.models.two_towers import ContrastiveModel, unit_length
from eeg2text_jax.parallel.placement import arms_mapping
from eeg2text_jax.pretrained.start import frozen_params
from eeg2text_jax.study.grid import Arm, StudyArrays, init_keys
from eeg2text_jax.study.sections import OptimSettings, Settings
from eeg2text_jax.study.study import Study
from eeg2text_jax.training.objectives import reconstruction_loss
from eeg2text_jax.training.stages import frozen_paths
from eeg2text_jax.training.state import make_optimizer, trainable_only, without_frozen
from eeg2text_jax.training.step import GridProgram


def study_arrays(study: Study) -> StudyArrays:
    """Return the arrays that no step changes, on the study's devices; shared frozen parameters are included."""
    return study.placement.constants(study.arrays)._replace(frozen=frozen_model(study))


def frozen_model(study: Study) -> Any:
    """Return the frozen parameters that all arms share, sharded; None if no parameters are shared."""
    model, config = study.model, study.config
    if not getattr(model, "shared_frozen", False):
        return None
    key = init_keys(study.arms[:1], config.seed)[0]
    return frozen_params(model, config.model.checkpoint, key, study.placement.frozen, config.model.frozen_dtype)


def make_program(
    config: Settings, model: Any, arms: tuple[Arm, ...], mesh: Mesh | AbstractMesh | None = None
) -> GridProgram:
    """Return the training and evaluation steps of these arms; `mesh` is None for one device or to get shapes only.

    Equal settings give the same object, so that `parallel.arms.jit_once` finds its compiled programs.
    """
    train = config.train
    return _program(
        model,
        arms,
        mesh,
        config.optim,
        train.steps,
        frozen_paths(config, model),
        label_smoothing=train.label_smoothing,
        by_sentence=train.best_by == "sentences" and not isinstance(model, ReconstructionModel),
        mapping=arms_mapping(config.parallel),
        accumulate=train.accumulate,
        error=config.pretrain.loss,
        symmetric=config.contrastive.symmetric,
    )


@functools.lru_cache(maxsize=16)
def _program(
    model: Any,
    arms: tuple[Arm, ...],
    mesh: Mesh | AbstractMesh | None,
    optim: OptimSettings,
    steps: int,
    frozen: tuple[str, ...],
    *,
    error: str,
    symmetric: bool,
    **fields: Any,
) -> GridProgram:
    kind: Callable[..., GridProgram] = GridProgram
    if isinstance(model, ReconstructionModel):
        kind = functools.partial(ReconstructionProgram, error=error)
    elif isinstance(model, ContrastiveModel):
        kind = functools.partial(ContrastiveProgram, symmetric=symmetric)
    optimizer = trainable_only(without_frozen(make_optimizer(optim, steps), frozen), model, optim.trainable)
    phase = optim.trainable
    return kind(model=model, arms=arms, optimizer=optimizer, mesh=mesh, frozen=frozen, phase=phase, **fields)


EXCLUDED = -1e30  # logit that excludes an entry from a softmax


def clip_loss(
    brain: jax.Array, text: jax.Array, sentence: jax.Array, weight: jax.Array, scale: jax.Array, symmetric: bool
) -> jax.Array:
    """Return the cross-entropy, in nats, of matching each recording to its own text in the batch, summed over rows.

    Args:
      brain: unit-norm embeddings of the recordings, float32 `[B, E]`.
      text: text embeddings with any non-zero norm, `[B, E]`.
      sentence: sentence number of each row, int32 `[B]`; rows of one sentence are not negatives of each other.
      weight: float32 `[B]`, 0 for padding rows.
      scale: inverse temperature, a scalar that multiplies the cosines.
      symmetric: average this loss with the loss of matching each text to its own recording.
    """
    logits = scale * jnp.einsum("bd,cd->bc", brain, unit_length(text), precision=jax.lax.Precision.HIGHEST)
    same = sentence[:, None] == sentence[None, :]
    own = jnp.eye(len(sentence), dtype=bool)
    # Each row, even padding, matches itself: so the (unused) loss of a padding row stays finite.
    included = ((weight[None, :] > 0) & ~same) | own
    masked = jnp.where(included, logits, EXCLUDED)
    positive = jnp.diagonal(logits)
    losses = jax.nn.logsumexp(masked, axis=1) - positive
    if symmetric:
        transposed = jnp.where(included, logits.T, EXCLUDED)
        losses = 0.5 * (losses + jax.nn.logsumexp(transposed, axis=1) - positive)
    return jnp.sum(losses * weight)


@dataclasses.dataclass(frozen=True)
class ContrastiveProgram(GridProgram):
    """Training and evaluation steps of the contrastive objective, with `clip_loss`."""

    model: ContrastiveModel
    symmetric: bool = True  # see `clip_loss`

    def _gradient(self, params: Any, rows: Mapping[str, Any], key: jax.Array) -> tuple[jax.Array, Any]:
        """Return the mean loss of one arm over the rows of its batch, and the gradient of this mean."""

        def loss(params: Any, rows: Mapping[str, Any], key: jax.Array) -> jax.Array:
            total, count = self._loss(params, rows, key)
            return total / jnp.maximum(count, 1.0)

        return self._accumulated(loss, params, rows, key)

    def _loss(self, params: Any, rows: Mapping[str, Any], key: jax.Array | None) -> tuple[jax.Array, jax.Array]:
        """Return the loss of one arm summed over real rows, and their number."""
        inputs = {"features": rows["features"], "mask": rows["mask"]}
        brain = self.model.embed(params, inputs, dropout_key=key)
        with jax.named_scope("head_loss"):
            scale = self.model.scale(params)
            loss = clip_loss(brain, rows["text"], rows["sentence"], rows["weight"], scale, self.symmetric)
            return loss, jnp.sum(rows["weight"])

    def _rows(self, batch: Batch, study: StudyArrays, step: jax.Array) -> dict[str, jax.Array]:
        """Return `GridProgram._rows` plus each sentence's number `sentence [A, B]` and embedding `text [A, B, E]`."""
        rows = super()._rows(batch, study, step)
        places = self._places(len(batch["mask"]))
        sentences = []
        for arm, place in zip(self.arms, places, strict=True):
            of_sample = study.texts.exchanged if arm.condition == "label_shuffle" else study.texts.sentence
            sentences.append(of_sample[batch["sample_id"][place]])
        sentence = jnp.stack(sentences)  # --> [A, B]
        return {**rows, "sentence": sentence, "text": study.texts.vectors[sentence]}


@dataclasses.dataclass(frozen=True)
class ReconstructionProgram(GridProgram):
    """Training and evaluation steps of a reconstruction stage, with `reconstruction_loss`."""

    model: ReconstructionModel
    error: str = "mae"  # "mae" or "mse"

    def _gradient(self, params: Any, rows: Mapping[str, Any], key: jax.Array) -> tuple[jax.Array, Any]:
        """Return the mean loss of one arm over the snapshots of its batch, and the gradient of this mean."""
        rows = dict(rows)
        voxels = rows.pop("voxels", None)
        count = jnp.maximum(jnp.sum(rows["mask"].astype(jnp.float32) * rows["weight"][:, None]), 1.0)

        def loss(params: Any, rows: Mapping[str, Any], key: jax.Array) -> jax.Array:
            total, judged = self._loss(params, {**rows, "voxels": voxels}, key)
            # Each micro-batch draws the snapshots that it hides, so its loss is the mean over these snapshots.
            own = jnp.maximum(judged, 1.0) * self.accumulate
            return total / (own if self.model.hidden_share else count)

        return self._accumulated(loss, params, rows, key)

    def _loss(self, params: Any, rows: Mapping[str, Any], key: jax.Array | None) -> tuple[jax.Array, jax.Array]:
        """Return the loss of one arm summed over the reconstructed snapshots, and their number."""
        made, judged = self.model.reconstruct(params, rows["features"], rows["mask"], dropout_key=key)
        return reconstruction_loss(rows["features"], made, judged, rows["weight"], self.error, rows.get("voxels"))

    def _rows(self, batch: Batch, study: StudyArrays, step: jax.Array) -> dict[str, jax.Array]:
        """Return `GridProgram._rows` without the labels, plus a mask `voxels [A, ...]` if the loss skips voxels."""
        rows = super()._rows(batch, study, step)
        del rows["labels"]
        if study.voxels is not None:
            rows["voxels"] = jnp.broadcast_to(study.voxels[None], (len(self.arms), *study.voxels.shape))
        return rows
