"""The training loop of all arms: restore, then step, log, evaluate and save until done."""

import functools
import json
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import numpy as np
import orbax.checkpoint as ocp
from jax.sharding import AbstractMesh, Mesh
from ml_collections import ConfigDict

from eeg2text_jax.backbones.mapping import flatten, unflatten
from eeg2text_jax.data.batches import Batch, each_evaluation_batch, training_batches
from eeg2text_jax.errors import UserError
from eeg2text_jax.models.flops import AnyModel
from eeg2text_jax.models.functional import Seq2SeqModel
from eeg2text_jax.models.reconstruction import ReconstructionModel
from eeg2text_jax.models.two_towers import ContrastiveModel
from eeg2text_jax.parallel.arms import Divided, compile_step
from eeg2text_jax.parallel.distributed import is_main, to_host
from eeg2text_jax.parallel.placement import Placement, arms_mapping
from eeg2text_jax.pretrained.start import frozen_params, start_from_checkpoint
from eeg2text_jax.progress import ProgressLine
from eeg2text_jax.splits.split import check_same_data, check_same_split
from eeg2text_jax.stores.address import address_of
from eeg2text_jax.study.configuration import fields_digest, to_json
from eeg2text_jax.study.grid import Arm, StudyArrays, init_keys
from eeg2text_jax.study.study import Study
from eeg2text_jax.training.checkpoint import Checkpoints, Preemption
from eeg2text_jax.training.clip import ContrastiveProgram
from eeg2text_jax.training.metrics_log import MetricsLog, stale, write_lines
from eeg2text_jax.training.pace import Pace, Pending, StepProfile, by_arm, not_finite
from eeg2text_jax.training.stages import carried_over, frozen_paths, overlaid, stage_before
from eeg2text_jax.training.state import (
    TrainState,
    init_state,
    keep_best,
    make_optimizer,
    own_only,
    trainable_only,
    without_frozen,
)
from eeg2text_jax.training.step import GridProgram
from eeg2text_jax.training.tracker import Tracker
from eeg2text_jax.training.trivial import ReconstructionProgram, trivial_losses


def train(study: Study) -> TrainState:
    """Train every arm of the study, resuming from the newest checkpoint of its workdir.

    Raises:
      UserError: a training or dev loss is not finite (the message names the steps), or a checkpoint cannot be
        written.
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
                    checkpoints.save(step, state, {**_origin(study), **info})
                if last:
                    break
        checkpoints.wait()
    return state


def study_arrays(study: Study) -> StudyArrays:
    """What every step reads, on its devices: constants everywhere, a frozen model divided as parameters are."""
    return study.placement.constants(study.arrays)._replace(frozen=frozen_model(study))


def frozen_model(study: Study) -> Any:
    """The parameters that all arms share; None where each arm trains all of its own."""
    model, config = study.model, study.config
    if not getattr(model, "shared_frozen", False):
        return None
    key = init_keys(study.arms[:1], config.seed)[0]
    return frozen_params(model, config.model.checkpoint, key, study.placement.frozen, config.model.frozen_dtype)


def tracker_of(study: Study) -> Tracker:
    """Return the tracker that `train.tracker` names; only the main host sends anything."""
    root, config = str(study.workdir.root), study.config
    wanted = config.train.tracker if is_main() else ""
    return Tracker(wanted, address_of(root), root, map(str, study.arms), json.loads(to_json(config)))


def announce(study: Study, placement: Placement, first: int) -> None:
    """Print what is trained from step `first` on, and on which devices."""
    if first:
        print(f"going on from the checkpoint of step {first}")
    names = ", ".join(map(str, study.arms))
    how = "one after the other" if arms_mapping(study.config.parallel) == "map" else "side by side"
    steps = f"steps {first} to {study.config.train.steps}"
    print(f"training {len(study.arms)} arms ({names}) {how}, {steps}, on {placement}")


def trained_params(study: Study) -> Any:
    """Return each arm's parameters with the lowest dev loss, `[A, ...]`, from the newest checkpoint of the workdir.

    With what all arms share beside them, `Divided`, where there is something.

    Raises:
      UserError: the workdir has no checkpoint, its training is not finished, or no dev loss was ever finite.
    """
    abstract = study.placement.abstract(make_program(study.config, study.model, study.arms).state_shapes())
    unread = {
        name: jax.tree.map(lambda _: ocp.PLACEHOLDER, getattr(abstract, name)) for name in ("params", "opt_state")
    }
    with Checkpoints(study.workdir.root, read_only=True) as checkpoints:
        restored = checkpoints.restore(abstract._replace(**unread))
        step, ended = (0, False) if restored is None else (restored[0], restored[2].get("ended", False))
        if step < study.config.train.steps and not ended:
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
    frozen = frozen_model(study)
    return restored[1].best_params if frozen is None else Divided(restored[1].best_params, frozen)


def make_program(
    config: ConfigDict,
    model: AnyModel,
    arms: tuple[Arm, ...],
    mesh: Mesh | AbstractMesh | None = None,
) -> GridProgram:
    """Build the jitted programs of a grid on a mesh; without a mesh they only describe the state."""
    frozen = frozen_paths(config, model)
    optimizer = without_frozen(make_optimizer(config.optim, config.train.steps), frozen)
    return program_kind(config, model)(
        model=model,
        arms=arms,
        optimizer=trainable_only(optimizer, model, config.optim.trainable),
        label_smoothing=config.train.label_smoothing,
        mapping=arms_mapping(config.parallel),
        accumulate=config.train.accumulate,
        mesh=mesh,
        frozen=frozen,
    )


def program_kind(config: ConfigDict, model: AnyModel) -> Callable[..., GridProgram]:
    """Return the `GridProgram` class that trains a model, with its own arguments already bound."""
    if isinstance(model, ReconstructionModel):
        return functools.partial(ReconstructionProgram, error=config.pretrain.loss)
    if isinstance(model, ContrastiveModel):
        return functools.partial(ContrastiveProgram, symmetric=config.contrastive.symmetric)
    return GridProgram


class Begun(NamedTuple):
    """The point at which training starts or resumes."""

    state: TrainState
    iterator: Iterator[Batch]  # positioned at the next batch
    lines: list[str]  # of metrics.jsonl so far
    ended: bool = False  # early stopping ended the run before its last step


def restore_or_init(study: Study, program: GridProgram, placement: Placement, checkpoints: Checkpoints) -> Begun:
    """Restore the state and the data position from the newest checkpoint, or initialize both.

    Raises:
      UserError: the checkpoint belongs to another split or to another run.
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
    return Begun(state, iterator, info["log"], info.get("ended", False))


def _origin(study: Study) -> dict[str, Any]:
    """Return the fields by which a checkpoint identifies its run."""
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
    """Return the state before the first step.

    Each parameter comes from the first source that has it: the best parameters of the previous stage, the pretrained
    checkpoint, random initialization.
    """
    keys, checkpoint = init_keys(study.arms, study.config.seed), study.config.model.checkpoint
    shapes = own_only(study.model, study.model.shapes)
    shardings = placement.shardings(program.state_shapes())
    before = stage_before(study)
    carried = {} if before is None else carried_over(trained_params(before), shapes)
    if carried.keys() >= flatten(shapes).keys():
        params = unflatten(carried)
    elif checkpoint and isinstance(study.model, Seq2SeqModel):
        start = start_from_checkpoint(study.model, checkpoint, keys, placement.shardings)
        print(f"{checkpoint}: {start.summary()}")
        params = overlaid(start.params, carried)
    else:
        begin = jax.jit(program.initial_state, out_shardings=shardings)
        if not carried:
            return begin(placement.constants(keys))
        params = overlaid(begin(placement.constants(keys)).params, carried)
    make_state = functools.partial(init_state, optimizer=program.optimizer)
    return jax.jit(make_state, donate_argnums=0, out_shardings=shardings)(params)


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
