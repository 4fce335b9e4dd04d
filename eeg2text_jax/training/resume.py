"""Restore a run from its newest checkpoint, or initialize it; read the best parameters of a finished run."""

import functools
from typing import Any, NamedTuple

import grain
import jax
import numpy as np
import orbax.checkpoint as ocp

from eeg2text_jax.backbones.mapping import flatten, unflatten
from eeg2text_jax.data.batches import training_batches
from eeg2text_jax.errors import UserError
from eeg2text_jax.models.functional import Seq2SeqModel
from eeg2text_jax.parallel.arms import Divided, jit_once
from eeg2text_jax.parallel.distributed import to_host
from eeg2text_jax.parallel.placement import Placement, own_rows
from eeg2text_jax.pretrained.start import start_from_checkpoint
from eeg2text_jax.splits.split import check_same_data, check_same_split
from eeg2text_jax.study.configuration import fields_digest
from eeg2text_jax.study.grid import init_keys
from eeg2text_jax.study.study import Study
from eeg2text_jax.training.checkpoint import Checkpoints
from eeg2text_jax.training.grid_program import frozen_model, make_program
from eeg2text_jax.training.pace import not_finite
from eeg2text_jax.training.stages import stage_before
from eeg2text_jax.training.state import TrainState, own_params
from eeg2text_jax.training.step import GridProgram


class StartingPoint(NamedTuple):
    """The state and data position at which training starts or resumes."""

    state: TrainState
    iterator: Any  # Grain iterator, positioned at the next batch
    lines: list[str]  # lines of metrics.jsonl up to this step
    ended: bool = False  # whether early stopping ended the run before its last step


def restore_or_init(study: Study, program: GridProgram, checkpoints: Checkpoints) -> StartingPoint:
    """Return the state and the data position of the newest checkpoint, or initial ones.

    Raises UserError if the checkpoint belongs to another split or another run.
    """
    iterator = iter(batches_of(study, study.config.train.steps))
    restored = checkpoints.restore(study.placement.abstract(program.state_shapes()))
    if restored is None:
        return StartingPoint(make_initial_state(study, program, study.placement), iterator, [])
    _, state, info = restored
    _check_origin(study, info, checkpoints)
    iterator.set_state(info["iterator"])
    return StartingPoint(state, iterator, info["log"], info.get("ended", False))


def batches_of(study: Study, steps: int) -> grain.IterDataset:
    """Return the first `steps` training batches of a study, see `training_batches`; a host builds its own rows."""
    config, rows = study.config, study.split.parts["train"]
    seeds = list(dict.fromkeys(arm.seed for arm in study.arms))
    batch, own = config.batch, own_rows(study.placement.mesh, config.batch.size)
    return training_batches(study.samples, rows, batch.buckets, batch.size, config.seed, steps, seeds, own)


def trained_params(study: Study) -> Any:
    """Return each arm's parameters with the lowest dev loss, `[A, ...]`, from the newest checkpoint of the workdir.

    The result is `Divided` if the arms share a frozen model. Raises UserError if there is no checkpoint, training is
    not finished, or an arm never had a finite dev loss.
    """
    abstract = study.placement.abstract(make_program(study.config, study.model, study.arms).state_shapes())
    skip = functools.partial(jax.tree.map, lambda _: ocp.PLACEHOLDER)
    abstract = abstract._replace(params=skip(abstract.params), opt_state=skip(abstract.opt_state))
    with Checkpoints(study.workdir.root, read_only=True) as checkpoints:
        restored = checkpoints.restore(abstract)
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
            f"{checkpoints.directory}: the loss of arm {not_finite(study.arms, best)} on dev was never finite, so "
            "there are no best parameters; lower optim.lr, or look for extreme values in the features."
        )
    frozen = frozen_model(study)
    return restored[1].best_params if frozen is None else Divided(restored[1].best_params, frozen)


def make_initial_state(study: Study, program: GridProgram, placement: Placement) -> TrainState:
    """Return the state before the first step.

    Each parameter comes from the first of these sources that has it: the best parameters of the previous training
    stage, the pretrained checkpoint, random initialization.
    """
    keys, checkpoint = init_keys(study.arms, study.config.seed), study.config.model.checkpoint
    paths = flatten(own_params(study.model, study.model.shapes)).keys()
    shardings = placement.shardings(program.state_shapes())
    before = stage_before(study)
    trained = {} if before is None else flatten(trained_params(before))
    carried = {path: leaf for path, leaf in trained.items() if path in paths}
    if carried.keys() == paths:
        params = unflatten(carried)
    elif checkpoint and isinstance(study.model, Seq2SeqModel):
        start = start_from_checkpoint(study.model, checkpoint, keys, placement.shardings)
        print(f"{checkpoint}: {start.summary()}")
        params = unflatten(flatten(start.params) | carried)
    else:
        initialize = jit_once(program.initial_state, out_shardings=shardings)
        if not carried:
            return initialize(placement.constants(keys))
        params = unflatten(flatten(initialize(placement.constants(keys)).params) | carried)
    return jit_once(program.first_state, donate_argnums=0, out_shardings=shardings)(params)


def origin(study: Study) -> dict[str, Any]:
    """Return the dict that identifies the run in its checkpoints: digests of its inputs, and names of its arms."""
    return {
        "split": study.split.digest(),
        "features": study.data.digests["features"],
        "config": fields_digest(study.config.document, "training"),
        "arms": list(map(str, study.arms)),
        "frozen": study.frozen_digest,
    }


def _check_origin(study: Study, info: dict[str, Any], checkpoints: Checkpoints) -> None:
    """Raise UserError if a checkpoint's `info` identifies another run than `origin(study)`."""
    check_same_split(study.split.digest(), info["split"], checkpoints.directory)
    check_same_data(study.data.digests["features"], info["features"], checkpoints.directory)
    if info.setdefault("frozen", study.frozen_digest) != study.frozen_digest:  # version 0.2 wrote no such entry
        raise UserError(
            f"{study.config.model.checkpoint}: its weights are not the weights that {checkpoints.directory} was "
            "trained with; restore the original weights, or take another --workdir."
        )
    if any(info[name] != value for name, value in origin(study).items()):
        raise UserError(
            f"{checkpoints.directory}: the checkpoint is of another run (arms {', '.join(info['arms'])}, configuration "
            f"{info['config']}); take another --workdir."
        )
