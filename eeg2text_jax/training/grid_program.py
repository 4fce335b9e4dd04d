"""The jitted programs of a study, made from its settings, and the constants that each step reads."""

import functools
from collections.abc import Callable
from typing import Any, cast

from jax.sharding import AbstractMesh, Mesh

from eeg2text_jax.models.flops import AnyModel
from eeg2text_jax.models.reconstruction import ReconstructionModel
from eeg2text_jax.models.two_towers import ContrastiveModel
from eeg2text_jax.parallel.placement import arms_mapping
from eeg2text_jax.pretrained.start import frozen_params
from eeg2text_jax.study.grid import Arm, StudyArrays, init_keys
from eeg2text_jax.study.sections import Settings
from eeg2text_jax.study.study import Study
from eeg2text_jax.training.clip import ContrastiveProgram
from eeg2text_jax.training.stages import frozen_paths
from eeg2text_jax.training.state import (
    Phase,
    make_optimizer,
    trainable_only,
    without_frozen,
)
from eeg2text_jax.training.step import GridProgram
from eeg2text_jax.training.trivial import ReconstructionProgram


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
