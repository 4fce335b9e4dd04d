"""Training of all arms as a page: restore, then step, log, evaluate, save until done."""

import functools
import time
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
from jax.sharding import AbstractMesh, Mesh

from eeg2text_jax.data.batches import Batch, evaluation_batches, training_batches
from eeg2text_jax.errors import UserError
from eeg2text_jax.grid import init_keys
from eeg2text_jax.models.freezing import only_free
from eeg2text_jax.parallel.arms import compile_step
from eeg2text_jax.parallel.distributed import to_host
from eeg2text_jax.parallel.placement import Placement, arms_mapping
from eeg2text_jax.pretrained.start import start_from_checkpoint
from eeg2text_jax.progress import ProgressLine
from eeg2text_jax.splits.split import check_same_split
from eeg2text_jax.study import Study
from eeg2text_jax.training.checkpoint import Checkpoints
from eeg2text_jax.training.metrics_log import MetricsLog
from eeg2text_jax.training.optimizer import make_optimizer
from eeg2text_jax.training.pace import BatchWork, Pace
from eeg2text_jax.training.preemption import Preemption
from eeg2text_jax.training.profile import StepProfile
from eeg2text_jax.training.state import TrainState, init_state, keep_best
from eeg2text_jax.training.step import GridProgram
from eeg2text_jax.training.step_one import step_one


def train(study: Study) -> TrainState:
    """Trains every arm of the study, going on from the newest checkpoint of its workdir.

    Raises:
      UserError: a loss is not finite (the message names the steps), or a checkpoint cannot be written.
      Terminated: SIGTERM came, and the step that was under way is saved.
    """
    config = study.config.train
    placement = Placement.from_config(study.config, len(study.arms))
    program = make_program(study, placement.mesh)
    profile = StepProfile(config.profile, study.workdir.root)

    with Checkpoints(study.workdir.root) as checkpoints, Preemption() as preemption:
        state, iterator = restore_or_init(study, program, placement, checkpoints)
        formats = placement.formats(state)
        state = jax.device_put(state, formats, donate=True)
        train_step = compile_step(program.train_step, placement.mesh, formats)
        keep = jax.jit(keep_best, donate_argnums=0, out_shardings=formats)
        dev_loss = DevLoss(study, program)
        arrays = placement.constants(study.arrays)
        first = int(state.step)
        if first >= config.steps:
            return state
        announce(study, placement, first)
        with (
            MetricsLog(study.workdir.root, first) as log,
            ProgressLine("train", config.steps, first) as progress,
            profile,
        ):
            pending = Pending(study, log, progress, Pace(study.model, len(study.arms), placement.mesh))
            for step in range(first + 1, config.steps + 1):
                with profile.step(step):
                    batch = pending.next_batch(iterator)
                    state, metrics = train_step(state, placement.batch(batch), arrays)
                    pending.swap(step, batch, metrics)  # reads the metrics of the step before, this one is running
                profile.after(step, pending.flush)
                if step % config.eval_every == 0 or step == config.steps:
                    loss = dev_loss(state.params)
                    state = keep(state, loss)
                    pending.dev(step, to_host(loss))
                last = step == config.steps or preemption.stop_after(step)
                if step % config.save_every == 0 or last:
                    pending.flush()
                    checkpoints.save(step, state, {"split": study.split.digest(), "iterator": iterator.get_state()})
                if last:
                    break
        checkpoints.wait()
    return state


def announce(study: Study, placement: Placement, first: int) -> None:
    """Says what is trained from step `first` on, and where."""
    if first:
        print(f"going on from the checkpoint of step {first}")
    names = ", ".join(map(str, study.arms))
    how = "one after the other" if arms_mapping(study.config.parallel) == "map" else "side by side"
    steps = f"steps {first} to {study.config.train.steps}"
    print(f"training {len(study.arms)} arms ({names}) {how}, {steps}, on {placement}")


def trained_params(study: Study) -> Any:
    """Each arm's parameters with the lowest loss on dev, `[A, ...]`, from the newest checkpoint of the workdir.

    Raises:
      UserError: the workdir has no checkpoint, or its training was not finished.
    """
    with Checkpoints(study.workdir.root) as checkpoints:
        placement = Placement.from_config(study.config, len(study.arms))
        state, _ = restore_or_init(study, make_program(study), placement, checkpoints)
    if int(state.step) < study.config.train.steps:
        raise UserError(
            f"{checkpoints.directory}: training stands at step {int(state.step)} of {study.config.train.steps}; "
            "finish it with `eeg2text train` or `eeg2text run`."
        )
    return state.best_params


def make_program(study: Study, mesh: Mesh | AbstractMesh | None = None) -> GridProgram:
    """The compiled side of the study's grid, to run on a mesh; without one it only describes the state."""
    config = study.config
    return GridProgram(
        model=study.model,
        arms=study.arms,
        optimizer=only_free(make_optimizer(config.optim, config.train.steps), study.model, config.optim.free),
        label_smoothing=config.train.label_smoothing,
        mapping=arms_mapping(config.parallel),
        accumulate=config.train.accumulate,
        mesh=mesh,
    )


def restore_or_init(
    study: Study, program: GridProgram, placement: Placement, checkpoints: Checkpoints
) -> tuple[TrainState, Iterator[Batch]]:
    """The state and the position in the data of the newest checkpoint, or those before the first step.

    Raises:
      UserError: the checkpoint was trained on another split.
    """
    config = study.config
    batches = training_batches(
        study.samples,
        study.split.parts["train"],
        config.batch.buckets,
        config.batch.size,
        config.seed,
        config.train.steps,
    )
    iterator = iter(batches)
    restored = checkpoints.restore(placement.abstract(program.state_shapes()))
    if restored is None:
        return make_initial_state(study, program, placement), iterator
    _, state, info = restored
    check_same_split(study.split.digest(), info["split"], checkpoints.directory)
    iterator.set_state(info["iterator"])
    return TrainState(*state) if not isinstance(state, TrainState) else state, iterator


def make_initial_state(study: Study, program: GridProgram, placement: Placement) -> TrainState:
    """The state before the first step: after a step one its best, else from the checkpoint if any, else random."""
    keys, checkpoint = init_keys(study.arms, study.config.seed), study.config.model.checkpoint
    shardings = placement.shardings(program.state_shapes())
    if first := step_one(study):
        params = trained_params(first)
    elif checkpoint:
        start = start_from_checkpoint(study.model, checkpoint, keys, placement.shardings)
        print(f"{checkpoint}: {start.summary()}")
        params = start.params
    else:
        return jax.jit(program.initial_state, out_shardings=shardings)(placement.constants(keys))
    make_state = functools.partial(init_state, optimizer=program.optimizer)
    return jax.jit(make_state, donate_argnums=0, out_shardings=shardings)(params)


class DevLoss:
    """Loss on the dev part, nats per token, `[A]`, each arm under its own condition."""

    def __init__(self, study: Study, program: GridProgram):
        config = study.config.batch
        rows = study.split.parts["dev"]
        self._batches = evaluation_batches(study.samples, rows, config.buckets, config.size)
        self._step = jax.jit(program.eval_step)
        self._placement = Placement.from_config(study.config, len(study.arms))
        self._arrays = self._placement.constants(study.arrays)

    def __call__(self, params: Any) -> jax.Array:
        parts = [self._step(params, self._placement.batch(batch), self._arrays) for batch in self._batches]
        return sum(loss for loss, _ in parts) / sum(count for _, count in parts)


class Pending:
    """Metrics of the step that was dispatched last; they are read once the next one is under way."""

    def __init__(self, study: Study, log: MetricsLog, progress: ProgressLine, pace: Pace):
        self._arms, self._every, self._log, self._progress = study.arms, study.config.train.log_every, log, progress
        self._pace, self._pad_token = pace, study.model.pad_token
        self._held: tuple[int, BatchWork, dict[str, jax.Array]] | None = None
        self._last_finite = 0

    def next_batch(self, iterator: Iterator[Batch]) -> Batch:
        """The next batch; its making is waited for if what was dispatched last is done by then."""
        begun = time.monotonic()
        batch = next(iterator)
        if self._held is None or self._held[2]["loss"].is_ready():
            self._pace.waited(time.monotonic() - begun)
        return batch

    def swap(self, step: int, batch: Batch, metrics: dict[str, jax.Array]) -> None:
        """Reads what is held, then holds the metrics of `step`."""
        self.flush()
        self._held = (step, BatchWork.of(batch, self._pad_token), metrics)

    def flush(self) -> None:
        """Reads what is held.

        Raises:
          UserError: a loss is not finite.
        """
        if self._held is None:
            return
        (step, work, metrics), self._held = self._held, None
        losses = to_host(metrics["loss"])
        if not np.isfinite(losses).all():
            arm = self._arms[int(np.argmin(np.isfinite(losses)))]
            raise UserError(
                f"the loss of arm {arm} is not finite at step {step} (it was at step {self._last_finite}); "
                "lower optim.lr or look at the features."
            )
        self._last_finite = step
        self._pace.done(work)
        rates = self._pace.rates()
        note = "  ".join(f"{arm} {loss:.3f}" for arm, loss in zip(self._arms, losses, strict=True))
        self._progress.advance(1, f"loss {note}  {rates['samples_per_s']:.0f} samples/s")
        if step % self._every == 0:
            norms = to_host(metrics["grad_norm"])
            self._log.add(step, {**self._by_arm("loss", losses), **self._by_arm("grad_norm", norms), **rates})
            self._pace.restart()

    def dev(self, step: int, losses: np.ndarray) -> None:
        """Records the losses on dev after `step`."""
        self.flush()
        self._log.add(step, self._by_arm("dev_loss", losses))

    def _by_arm(self, name: str, values: np.ndarray) -> dict[str, float]:
        return {f"{name}/{arm}": float(value) for arm, value in zip(self._arms, values, strict=True)}
