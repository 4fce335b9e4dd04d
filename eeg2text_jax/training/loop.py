"""Training of all arms as a page: restore, then step, log, evaluate, save until done; and step one of
the authors' two-step training.
"""

import dataclasses
import functools
import json
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import numpy as np
import orbax.checkpoint as ocp
from jax.sharding import AbstractMesh, Mesh
from ml_collections import ConfigDict

from eeg2text_jax.data.batches import Batch, evaluation_batches, training_batches
from eeg2text_jax.errors import UserError
from eeg2text_jax.models.functional import Seq2SeqModel
from eeg2text_jax.parallel.arms import compile_step
from eeg2text_jax.parallel.distributed import is_main, to_host
from eeg2text_jax.parallel.placement import Placement, arms_mapping
from eeg2text_jax.pretrained.start import start_from_checkpoint
from eeg2text_jax.progress import ProgressLine
from eeg2text_jax.splits.split import check_same_data, check_same_split
from eeg2text_jax.stores.address import address_of
from eeg2text_jax.study.configuration import fields_digest, to_json
from eeg2text_jax.study.grid import Arm, init_keys
from eeg2text_jax.study.study import Study
from eeg2text_jax.study.workdir import Workdir
from eeg2text_jax.training.checkpoint import Checkpoints, Preemption
from eeg2text_jax.training.clip import ContrastiveProgram
from eeg2text_jax.training.metrics_log import MetricsLog, write_lines
from eeg2text_jax.training.pace import Pace, Pending, StepProfile, not_finite
from eeg2text_jax.training.state import TrainState, init_state, keep_best, make_optimizer, trainable_only
from eeg2text_jax.training.step import GridProgram
from eeg2text_jax.training.tracker import Tracker


def train(study: Study) -> TrainState:
    """Trains every arm of the study, going on from the newest checkpoint of its workdir.

    Raises:
      UserError: a loss, on train or on dev, is not finite (the message names the steps), or a checkpoint cannot be
        written.
      Terminated: SIGTERM came, and the step that was under way is saved.
    """
    config = study.config.train
    placement = study.placement
    program = make_program(study.config, study.model, study.arms, placement.mesh)
    profile = StepProfile(config.profile, study.workdir.root)

    with Checkpoints(study.workdir.root) as checkpoints, Preemption() as preemption:
        state, iterator, lines = restore_or_init(study, program, placement, checkpoints)
        formats = placement.formats(state)
        state = jax.device_put(state, formats, donate=True)
        train_step = compile_step(program.train_step, placement.mesh, formats)
        keep = jax.jit(keep_best, donate_argnums=0, out_shardings=formats)
        dev_loss = DevLoss(study, program)
        arrays = placement.constants(study.arrays)
        first = int(state.step)
        if first >= config.steps:
            write_lines(study.workdir.root, lines)
            return state
        announce(study, placement, first)
        with (
            tracker_of(study) as tracker,
            MetricsLog(study.workdir.root, first, lines, tracker) as log,
            ProgressLine("train", config.steps, first) as progress,
            profile,
        ):
            pending = Pending(study, log, progress, Pace(study.model, len(study.arms), placement.mesh))
            for step in range(first + 1, config.steps + 1):
                with profile.step(step):
                    batch = pending.next_batch(iterator)
                    state, metrics = train_step(state, placement.training_batch(batch), arrays)
                    pending.swap(step, batch, metrics)  # reads the metrics of the step before, this one is running
                profile.after(step, pending.flush)
                if step % config.eval_every == 0 or step == config.steps:
                    loss = dev_loss(state.params)
                    state = keep(state, loss)
                    pending.dev(step, to_host(loss))
                last = step == config.steps or preemption.stop_after(step)
                if step % config.save_every == 0 or last:
                    pending.flush()
                    checkpoints.save(
                        step, state, {**_origin(study), "iterator": iterator.get_state(), "log": log.lines}
                    )
                if last:
                    break
        checkpoints.wait()
    return state


def tracker_of(study: Study) -> Tracker:
    """What `train.tracker` asks for, on the host that writes."""
    root, config = str(study.workdir.root), study.config
    wanted = config.train.tracker if is_main() else ""
    return Tracker(wanted, address_of(root), root, map(str, study.arms), json.loads(to_json(config)))


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
      UserError: the workdir has no checkpoint, its training was not finished, or no loss on dev was ever finite.
    """
    abstract = study.placement.abstract(make_program(study.config, study.model, study.arms).state_shapes())
    unread = {
        name: jax.tree.map(lambda _: ocp.PLACEHOLDER, getattr(abstract, name)) for name in ("params", "opt_state")
    }
    with Checkpoints(study.workdir.root, read_only=True) as checkpoints:
        restored = checkpoints.restore(abstract._replace(**unread))
        step = 0 if restored is None else restored[0]
        if step < study.config.train.steps:
            raise UserError(
                f"{checkpoints.directory}: training stands at step {step} of {study.config.train.steps}; "
                "finish it with `eeg2text train` or `eeg2text run`."
            )
        _check_origin(study, restored[2], checkpoints)
    best = to_host(restored[1].best_loss)
    if not np.isfinite(best).all():
        raise UserError(
            f"{checkpoints.directory}: the loss of arm {not_finite(study.arms, best)} on dev was never finite, so no "
            "parameters are the best; lower optim.lr or look at the features."
        )
    return restored[1].best_params


def make_program(
    config: ConfigDict, model: Seq2SeqModel, arms: tuple[Arm, ...], mesh: Mesh | AbstractMesh | None = None
) -> GridProgram:
    """The compiled side of a grid, to run on a mesh; without one it only describes the state."""
    kind = GridProgram
    if config.objective == "contrastive":
        kind = functools.partial(ContrastiveProgram, symmetric=config.contrastive.symmetric)
    return kind(
        model=model,
        arms=arms,
        optimizer=trainable_only(make_optimizer(config.optim, config.train.steps), model, config.optim.trainable),
        label_smoothing=config.train.label_smoothing,
        mapping=arms_mapping(config.parallel),
        accumulate=config.train.accumulate,
        mesh=mesh,
    )


class Begun(NamedTuple):
    """What training goes on from."""

    state: TrainState
    iterator: Iterator[Batch]  # at the position in the data
    lines: list[str]  # of metrics.jsonl until then


def restore_or_init(study: Study, program: GridProgram, placement: Placement, checkpoints: Checkpoints) -> Begun:
    """The state and the position in the data of the newest checkpoint, or those before the first step.

    Raises:
      UserError: the checkpoint was trained on another split, or is of another run.
    """
    config = study.config
    batches = training_batches(
        study.samples,
        study.split.parts["train"],
        config.batch.buckets,
        config.batch.size,
        config.seed,
        config.train.steps,
        list(dict.fromkeys(arm.seed for arm in study.arms)),
    )
    iterator = iter(batches)
    restored = checkpoints.restore(placement.abstract(program.state_shapes()))
    if restored is None:
        return Begun(make_initial_state(study, program, placement), iterator, [])
    _, state, info = restored
    _check_origin(study, info, checkpoints)
    iterator.set_state(info["iterator"])
    return Begun(state, iterator, info["log"])


def _origin(study: Study) -> dict[str, Any]:
    """What a checkpoint says of the run that it is of."""
    return {
        "split": study.split.digest(),
        "features": study.data.digests["features"],
        "config": fields_digest(study.config, "training"),
        "arms": list(map(str, study.arms)),
    }


def _check_origin(study: Study, info: dict[str, Any], checkpoints: Checkpoints) -> None:
    check_same_split(study.split.digest(), info["split"], checkpoints.directory)
    check_same_data(study.data.digests["features"], info["features"], checkpoints.directory)
    if any(info[name] != value for name, value in _origin(study).items()):
        raise UserError(
            f"{checkpoints.directory}: the checkpoint is of another run (arms {', '.join(info['arms'])}, configuration "
            f"{info['config']}); take another --workdir."
        )


def make_initial_state(study: Study, program: GridProgram, placement: Placement) -> TrainState:
    """The state before the first step: after a step one its best, else from the checkpoint if any, else random."""
    keys, checkpoint = init_keys(study.arms, study.config.seed), study.config.model.checkpoint
    shardings = placement.shardings(program.state_shapes())
    if first := step_one(study):
        params = trained_params(first)
    elif checkpoint and study.config.objective == "generate":
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
        self._placement = study.placement
        self._arrays = self._placement.constants(study.arrays)

    def __call__(self, params: Any) -> jax.Array:
        parts = [self._step(params, self._placement.batch(batch), self._arrays) for batch in self._batches]
        return sum(loss for loss, _ in parts) / sum(count for _, count in parts)


def step_one(study: Study) -> Study | None:
    """The study of step one, in a folder of its own for checkpoints and curves; None where there is no such step."""
    if not study.config.step_one.steps:
        return None
    config = study.config.copy_and_resolve_references()
    config.train.steps, config.optim.lr, config.optim.trainable = config.step_one.steps, config.step_one.lr, "first"
    config.step_one.steps = 0  # nothing goes before it
    return dataclasses.replace(study, config=config, workdir=Workdir(study.workdir.root / "step_one"))
