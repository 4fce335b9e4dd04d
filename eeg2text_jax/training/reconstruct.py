"""The reconstruction objective of the pretraining stages: predict the encoder's input from its representation."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from eeg2text_jax.data.batches import Batch
from eeg2text_jax.models.reconstruction import ReconstructionModel
from eeg2text_jax.study.grid import StudyArrays
from eeg2text_jax.training.objectives import reconstruction_loss
from eeg2text_jax.training.step import GridProgram


@dataclasses.dataclass(frozen=True)
class ReconstructionProgram(GridProgram):
    """The jitted programs of a reconstruction grid: `GridProgram` with another loss.

    Args:
      error: "mae" or "mse".
    """

    model: ReconstructionModel
    error: str = "mae"

    def _gradient(self, params: Any, rows: Batch, key: jax.Array) -> tuple[jax.Array, Any]:
        """Return the mean loss over the snapshots of one arm's batch, and its gradient."""
        rows = dict(rows)
        voxels = rows.pop("voxels", None)
        count = jnp.maximum(jnp.sum(rows["mask"].astype(jnp.float32) * rows["weight"][:, None]), 1.0)

        def loss(params: Any, rows: Batch, key: jax.Array) -> jax.Array:
            total, judged = self._loss(params, {**rows, "voxels": voxels}, key)
            # Hidden snapshots are drawn per microbatch, so each microbatch takes the mean over its own.
            own = jnp.maximum(judged, 1.0) * self.accumulate
            return total / (own if self.model.hidden_share else count)

        return self._accumulated(loss, params, rows, key)

    def _loss(self, params: Any, rows: Batch, key: jax.Array | None) -> tuple[jax.Array, jax.Array]:
        """Return the summed loss of one arm and the number of snapshots."""
        made, judged = self.model.reconstruct(params, rows["features"], rows["mask"], dropout_key=key)
        return reconstruction_loss(rows["features"], made, judged, rows["weight"], self.error, rows.get("voxels"))

    def _rows(self, batch: Batch, study: StudyArrays, step: jax.Array) -> dict[str, jax.Array]:
        """Return the rows without labels, plus a mask `voxels [A, ...]` if some voxels do not enter the loss."""
        rows = super()._rows(batch, study, step)
        del rows["labels"]
        if study.voxels is not None:
            rows["voxels"] = jnp.broadcast_to(study.voxels[None], (len(self.arms), *study.voxels.shape))
        return rows
