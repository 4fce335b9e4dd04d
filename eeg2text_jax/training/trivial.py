"""The reconstruction objective of the pretraining stages, and its trivial baselines: zero, and each voxel's mean.

The mean over the training set is computed from each arm's own input; for the noise arm it is close to zero.
"""

import dataclasses
import functools
import json
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from eeg2text_jax.data.batches import Batch, each_evaluation_batch
from eeg2text_jax.models.layers import at_padding
from eeg2text_jax.models.reconstruction import ReconstructionModel
from eeg2text_jax.parallel.distributed import to_host
from eeg2text_jax.study.grid import StudyArrays
from eeg2text_jax.study.study import Study
from eeg2text_jax.training.objectives import reconstruction_loss
from eeg2text_jax.training.step import GridProgram


@dataclasses.dataclass(frozen=True)
class ReconstructionProgram(GridProgram):
    """The jitted programs of a reconstruction grid: `GridProgram` with another loss."""

    model: ReconstructionModel
    error: str = "mae"  # "mae" or "mse"

    def _gradient(self, params: Any, rows: Mapping[str, Any], key: jax.Array) -> tuple[jax.Array, Any]:
        """Return the mean loss over the snapshots of one arm's batch, and its gradient."""
        rows = dict(rows)
        voxels = rows.pop("voxels", None)
        count = jnp.maximum(jnp.sum(rows["mask"].astype(jnp.float32) * rows["weight"][:, None]), 1.0)

        def loss(params: Any, rows: Mapping[str, Any], key: jax.Array) -> jax.Array:
            total, judged = self._loss(params, {**rows, "voxels": voxels}, key)
            # Hidden snapshots are drawn per microbatch, so each microbatch takes the mean over its own.
            own = jnp.maximum(judged, 1.0) * self.accumulate
            return total / (own if self.model.hidden_share else count)

        return self._accumulated(loss, params, rows, key)

    def _loss(self, params: Any, rows: Mapping[str, Any], key: jax.Array | None) -> tuple[jax.Array, jax.Array]:
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


TRIVIAL = ("zero", "mean")
MEAN_OF = 1000  # evenly spaced training samples that the mean is computed from


def trivial_losses(study: Study, program: Any) -> dict[str, np.ndarray]:
    """Return the dev losses of both trivial predictors by name, each `[A]`."""
    arrays, config = study.placement.constants(study.arrays), study.config.batch

    def batches(rows: np.ndarray) -> Any:
        found = each_evaluation_batch(study.samples, rows, config.buckets, config.size)
        return map(study.placement.batch, found)

    train = study.split.parts["train"]
    some = train[np.linspace(0, len(train) - 1, min(len(train), MEAN_OF)).astype(int)]
    sums = jax.jit(functools.partial(_sums, program))
    total, count = functools.reduce(_add, (sums(batch, arrays) for batch in batches(some)))
    mean = total / count.reshape(-1, *(1,) * (total.ndim - 1))
    judge = jax.jit(functools.partial(_judge, program))
    dev = batches(study.split.parts["dev"])
    (zero, by_mean), number = functools.reduce(_add, (judge(batch, arrays, mean) for batch in dev))
    return {"zero": to_host(zero / number), "mean": to_host(by_mean / number)}


def reconstruction_lines(study: Study) -> list[str]:
    """Return one line per arm of a reconstruction stage: its best dev loss beside the trivial predictors' losses."""
    if not isinstance(study.model, ReconstructionModel):
        return []
    rows = [json.loads(line) for line in study.workdir.metrics.read_text().splitlines()]
    lines = []
    for arm in study.arms:
        best = min(row[f"dev_loss/{arm}"] for row in rows if f"dev_loss/{arm}" in row)
        zero, mean = (rows[0][f"{name}/{arm}"] for name in TRIVIAL)
        lines.append(
            f"{study.model.of} of {arm} reconstructed: {study.config.pretrain.loss} {best:.4f} on dev; zero has "
            f"{zero:.4f}, the mean over train {mean:.4f} ({best / min(zero, mean):.1%} of the lower one)"
        )
    return [*lines, ""]


def _add(one: Any, other: Any) -> Any:
    return jax.tree.map(jnp.add, one, other)


def _sums(program: ReconstructionProgram, batch: Batch, arrays: Any) -> tuple[jax.Array, jax.Array]:
    """Return the sum of each arm's input snapshots, `[A, ...]`, and their number `[A]`."""
    fed = program.fed(batch, arrays)
    counted = fed["mask"].astype(jnp.float32) * fed["weight"][..., None]  # [A, B, W]
    features = jnp.where(at_padding(fed["mask"], fed["features"].ndim), fed["features"], 0.0)
    return jnp.sum(features * at_padding(counted, features.ndim), axis=(1, 2)), counted.sum(axis=(1, 2))


def _judge(program: ReconstructionProgram, batch: Batch, arrays: Any, mean: jax.Array) -> tuple[tuple, jax.Array]:
    """Return the summed losses of both predictors, each `[A]`, and the number of snapshots."""
    fed = program.fed(batch, arrays)

    def of_arm(rows: dict[str, jax.Array], mean: jax.Array) -> tuple[tuple, jax.Array]:
        given, mask, weight = rows["features"], rows["mask"], rows["weight"]
        loss = functools.partial(reconstruction_loss, kind=program.error, voxels=arrays.voxels)
        zero, number = loss(given, jnp.zeros((1,) * given.ndim), mask, weight)
        return (zero, loss(given, mean[None, None], mask, weight)[0]), number

    return jax.vmap(of_arm)({name: fed[name] for name in ("features", "mask", "weight")}, mean)
