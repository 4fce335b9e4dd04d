"""The training loop of all arms: restore, then step, log, evaluate and save until done."""

import functools
from typing import Any

import jax

from eeg2text_jax.data.batches import each_evaluation_batch
from eeg2text_jax.models.reconstruction import ReconstructionModel
from eeg2text_jax.parallel.arms import compile_step
from eeg2text_jax.parallel.distributed import to_host
from eeg2text_jax.parallel.placement import Placement, arms_mapping
from eeg2text_jax.progress import ProgressLine
from eeg2text_jax.study.grid import StudyArrays
from eeg2text_jax.study.study import Study
from eeg2text_jax.training.checkpoint import Checkpoints, Preemption
from eeg2text_jax.training.grid_program import make_program, study_arrays
from eeg2text_jax.training.metrics_log import MetricsLog, stale, write_lines
from eeg2text_jax.training.pace import Pace, Pending, StepProfile, by_arm
from eeg2text_jax.training.resume import origin, restore_or_init
from eeg2text_jax.training.state import TrainState, keep_best
from eeg2text_jax.training.step import GridProgram
from eeg2text_jax.training.tracker import tracker_of
from eeg2text_jax.training.trivial import trivial_losses


def train(study: Study) -> TrainState:
    """Train every arm of the study, resuming from the newest checkpoint of its workdir.

    Raises:
      UserError: a training or dev loss is not finite, or a checkpoint cannot be written.
      Terminated: SIGTERM came; the current step was saved.
    """
    config = study.config.train
    placement = study.placement
    program = make_program(study.config, study.model, study.arms, placement.mesh)
    profile = StepProfile(config.profile, study.workdir.root)

    with Checkpoints(study.workdir.root) as checkpoints, Preemption() as preemption:
        state, iterator, lines, ended = restore_or_init(study, program, placement, checkpoints)
        formats = placement.formats(state)
        state = jax.device_put(state, formats, donate=True)
        arrays = study_arrays(study)
        where = jax.tree.map(lambda leaf: leaf.sharding, arrays)
        train_step = compile_step(program.train_step, placement.mesh, formats, where)
        keep = jax.jit(keep_best, donate_argnums=0, out_shardings=formats)
        dev_loss = DevLoss(study, program, arrays)
        first = int(state.step)
        if first >= config.steps or ended:
            write_lines(study.workdir.root, lines)
            return state
        announce(study, placement, first)
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
                    state, metrics = train_step(state, placement.training_batch(batch), arrays)
                    pending.swap(step, batch, metrics)  # reads the metrics of the previous step while this one runs
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


def announce(study: Study, placement: Placement, first: int) -> None:
    """Print the arms, the steps from `first` on, and the devices."""
    if first:
        print(f"going on from the checkpoint of step {first}")
    names = ", ".join(map(str, study.arms))
    how = "one after the other" if arms_mapping(study.config.parallel) == "map" else "side by side"
    steps = f"steps {first} to {study.config.train.steps}"
    print(f"training {len(study.arms)} arms ({names}) {how}, {steps}, on {placement}")


class DevLoss:
    """Compute the dev loss of each arm under its own training condition, nats per token, `[A]`."""

    def __init__(self, study: Study, program: GridProgram, arrays: StudyArrays | None = None):
        config = study.config.batch
        rows = study.split.parts["dev"]
        self._make = functools.partial(each_evaluation_batch, study.samples, rows, config.buckets, config.size)
        # Volumes are too large to keep: they are read again for each evaluation.
        self._batches = list(self._make()) if len(study.data.feature_shape) == 1 else None
        self._step = jax.jit(program.eval_step)
        self._placement = study.placement
        self._arrays = arrays or study_arrays(study)

    def __call__(self, params: Any) -> jax.Array:
        parts = [
            self._step(params, self._placement.batch(batch), self._arrays) for batch in self._batches or self._make()
        ]
        return sum(loss for loss, _ in parts) / sum(count for _, count in parts)
