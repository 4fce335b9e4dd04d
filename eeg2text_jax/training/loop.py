"""The training loop of all arms: restore, then step, log, evaluate and save until done."""

import functools
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from eeg2text_jax.data.batches import Batch, each_evaluation_batch
from eeg2text_jax.models.layers import at_padding
from eeg2text_jax.models.reconstruction import ReconstructionModel
from eeg2text_jax.parallel.arms import compile_step, jit_once
from eeg2text_jax.parallel.distributed import to_host
from eeg2text_jax.parallel.placement import arms_mapping, own_rows, put_training_batch
from eeg2text_jax.progress import ProgressLine
from eeg2text_jax.study.grid import StudyArrays
from eeg2text_jax.study.study import Study
from eeg2text_jax.training.checkpoint import Checkpoints, Preemption
from eeg2text_jax.training.grid_program import ReconstructionProgram, make_program, study_arrays
from eeg2text_jax.training.metrics_log import MetricsLog, stale, write_lines
from eeg2text_jax.training.objectives import reconstruction_loss
from eeg2text_jax.training.pace import Pace, Pending, StepProfile, by_arm
from eeg2text_jax.training.resume import origin, restore_or_init
from eeg2text_jax.training.state import TrainState, keep_best
from eeg2text_jax.training.step import GridProgram
from eeg2text_jax.training.tracker import tracker_of

TRIVIAL = ("zero", "mean")  # predictions that reconstructions are compared with: zeros, and the mean training input


def train(study: Study) -> TrainState:
    """Train every arm of the study, resuming from the newest checkpoint of its workdir; return the last state.

    Raises:
      UserError: a training or dev loss is not finite, or a checkpoint cannot be written.
      Terminated: SIGTERM came; the current step was saved.
    """
    config = study.config.train
    placement = study.placement
    program = make_program(study.config, study.model, study.arms, placement.mesh)
    profile = StepProfile(config.profile, study.workdir.root)

    with Checkpoints(study.workdir.root) as checkpoints, Preemption() as preemption:
        state, iterator, lines, ended = restore_or_init(study, program, checkpoints)
        prepared = PreparedStep(study, program)
        state, arrays, train_step = prepared.placed(state), prepared.arrays, prepared.step
        keep = jit_once(keep_best, donate_argnums=0, out_shardings=prepared.formats)
        dev_loss = DevLoss(study, program, arrays)
        first = int(state.step)
        if first >= config.steps or ended:
            write_lines(study.workdir.root, lines)
            return state
        announce(study, first)
        with (
            tracker_of(study) as tracker,
            MetricsLog(study.workdir.root, first, lines, tracker) as log,
            ProgressLine("train", config.steps, first) as progress,
            profile,
        ):
            if not first and isinstance(study.model, ReconstructionModel):
                log.add(0, by_arm(study.arms, trivial_losses(study, program)))
            pending = Pending(study, log, progress, Pace(study.model, len(study.arms), placement.mesh))
            for step in range(first + 1, config.steps + 1):
                with profile.step(step):
                    batch = pending.next_batch(iterator)
                    state, metrics = train_step(
                        state, put_training_batch(batch, placement.mesh, study.config.batch.size), arrays
                    )
                    pending.swap(step, batch, metrics)  # reads the previous step's metrics meanwhile
                profile.after(step, pending.flush)
                if step % config.eval_every == 0 or step == config.steps:
                    loss = dev_loss(state.params)
                    state = keep(state, loss)
                    pending.dev(step, to_host(loss))
                    ended = stale(log.lines) >= config.patience > 0
                last = step == config.steps or ended or preemption.stop_after(step)
                if step % config.save_every == 0 or last:
                    pending.flush()
                    info = {"iterator": iterator.get_state(), "log": log.lines, "ended": ended}
                    checkpoints.save(step, state, {**origin(study), **info})
                if last:
                    break
        checkpoints.wait()
    return state


class PreparedStep:
    """The jitted training step of a study on its devices, with what it needs; `bench` runs the same one.

    Attributes:
      step: the function (state, batch on the devices, `arrays`) -> (state, metrics); it donates the state.
      arrays: the arrays that no step changes.
      formats: shardings and memory layouts of the state between steps.
    """

    def __init__(self, study: Study, program: GridProgram):
        placement = study.placement
        self.formats = placement.formats(program.state_shapes())
        self.arrays = study_arrays(study)
        where = jax.tree.map(lambda leaf: leaf.sharding, self.arrays)
        self.step = compile_step(program.train_step, placement.mesh, self.formats, where)

    def placed(self, state: TrainState) -> TrainState:
        """Return the state with the layouts that `step` takes; the argument is donated."""
        return jax.device_put(state, self.formats, donate=True)


def announce(study: Study, first: int) -> None:
    """Print the arms, whether they train in parallel or in sequence, the steps from `first` on, and the devices."""
    if first:
        print(f"going on from the checkpoint of step {first}")
    names = ", ".join(map(str, study.arms))
    how = "one after the other" if arms_mapping(study.config.parallel) == "map" else "side by side"
    steps = f"steps {first} to {study.config.train.steps}"
    print(f"training {len(study.arms)} arms ({names}) {how}, {steps}, on {study.placement}")


class DevLoss:
    """Function from parameters `[A, ...]` to the dev loss of each arm under its training condition, `[A]`.

    The unit is nats per token (contrastive: per recording), or the reconstruction error per snapshot. `rows` are other
    samples than the dev part.
    """

    def __init__(
        self, study: Study, program: GridProgram, arrays: StudyArrays | None = None, rows: np.ndarray | None = None
    ):
        config, own = study.config.batch, own_rows(study.placement.mesh, study.config.batch.size)
        rows = study.split.parts["dev"] if rows is None else rows
        self._make = functools.partial(each_evaluation_batch, study.samples, rows, config.buckets, config.size, own)
        # Volumes are too large to keep in memory, so each evaluation reads them again.
        self._batches = list(self._make()) if len(study.data.feature_shape) == 1 else None
        self._step = jit_once(program.eval_step)
        self._place = functools.partial(study.placement.batch, size=config.size)
        self._arrays = arrays or study_arrays(study)

    def __call__(self, params: Any) -> jax.Array:
        batches = map(self._place, self._batches or self._make())
        losses, counts = zip(*(self._step(params, batch, self._arrays) for batch in batches), strict=True)
        return sum(losses) / sum(counts)


def trivial_losses(study: Study, program: Any) -> dict[str, np.ndarray]:
    """Return the dev losses `[A]` of two trivial predictions, by name: zero, and the mean of the training inputs.

    The mean is over each arm's own inputs (close to zero under `noise`), from at most 1,000 evenly spaced samples.
    """
    arrays, config = study.placement.constants(study.arrays), study.config.batch

    def batches(rows: np.ndarray) -> Iterator[dict[str, jax.Array]]:
        return map(study.placement.batch, each_evaluation_batch(study.samples, rows, config.buckets, config.size))

    train = study.split.parts["train"]
    some = train[np.linspace(0, len(train) - 1, min(len(train), 1000)).astype(int)]
    sums = jax.jit(functools.partial(_sums, program))
    add = functools.partial(jax.tree.map, jnp.add)
    total, count = functools.reduce(add, (sums(batch, arrays) for batch in batches(some)))
    mean = total / count.reshape(-1, *(1,) * (total.ndim - 1))
    losses = jax.jit(functools.partial(_losses_of_predictors, program))
    dev = batches(study.split.parts["dev"])
    (zero, by_mean), number = functools.reduce(add, (losses(batch, arrays, mean) for batch in dev))
    return {"zero": to_host(zero / number), "mean": to_host(by_mean / number)}


def _sums(program: ReconstructionProgram, batch: Batch, arrays: Any) -> tuple[jax.Array, jax.Array]:
    """Return the sum over each arm's input snapshots in a batch, `[A, ...]`, and the number of snapshots `[A]`."""
    fed = program.fed(batch, arrays)
    counted = fed["mask"].astype(jnp.float32) * fed["weight"][..., None]  # [A, B, W]
    features = jnp.where(at_padding(fed["mask"], fed["features"].ndim), fed["features"], 0.0)
    return jnp.sum(features * at_padding(counted, features.ndim), axis=(1, 2)), counted.sum(axis=(1, 2))


def _losses_of_predictors(
    program: ReconstructionProgram, batch: Batch, arrays: StudyArrays, mean: jax.Array
) -> tuple[tuple, jax.Array]:
    """Return (loss of predicting zero, loss of predicting `mean [A, ...]`) and the number of snapshots, each `[A]`.

    The losses are summed over the snapshots of the batch.
    """
    fed = program.fed(batch, arrays)

    def of_arm(rows: dict[str, jax.Array], mean: jax.Array) -> tuple[tuple, jax.Array]:
        given, mask, weight = rows["features"], rows["mask"], rows["weight"]
        loss = functools.partial(reconstruction_loss, kind=program.error, voxels=arrays.voxels)
        zero, number = loss(given, jnp.zeros((1,) * given.ndim), mask, weight)
        return (zero, loss(given, mean[None, None], mask, weight)[0]), number

    return jax.vmap(of_arm)({name: fed[name] for name in ("features", "mask", "weight")}, mean)
