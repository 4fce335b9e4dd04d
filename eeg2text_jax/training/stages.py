"""Training stages in order: reconstruct snapshots, reconstruct series, step one of two-step training, text.

Each stage is a study with another model or other settings, trained by the same loop in its own folder (`snapshot`,
`series`, `step_one`; the text stage uses the workdir itself). A stage starts from the best parameters of the previous
stage where the names match; the remaining parameters are initialized as in a run with one stage. The two-step training
is an option of the code of Jo et al. 2024 (arXiv:2405.06459); `state.trainable_mask` says what step one trains.
"""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from eeg2text_jax.models.flops import AnyModel
from eeg2text_jax.models.reconstruction import ReconstructionModel
from eeg2text_jax.models.two_towers import ContrastiveModel
from eeg2text_jax.study.sections import Settings
from eeg2text_jax.study.study import Study
from eeg2text_jax.study.workdir import Workdir

RECONSTRUCTIONS = ("snapshot", "series")
ALONE = {"pretrain.enabled": False, "step_one.steps": 0}  # settings that turn the other stages off


def stages(study: Study) -> list[Study]:
    """Return a study for each training stage, the text stage last; their field `before` is the previous stage."""
    chain: list[Study] = []
    for name in stage_names(study.config):
        before = chain[-1] if chain else None
        chain.append(_step_one(study, before) if name == "step_one" else _reconstruction(study, name, before))
    return [*chain, dataclasses.replace(study, before=chain[-1]) if chain else study]


def stage_names(config: Settings) -> list[str]:
    """Return the names of the stages before the text stage; each is also the name of the stage's folder."""
    first = [name for name in RECONSTRUCTIONS if config.pretrain.enabled and getattr(config.pretrain, name).steps]
    return [*first, *(["step_one"] if config.step_one.steps else [])]


def stage_before(study: Study) -> Study | None:
    """Return the training stage whose best parameters initialize the stage `study`; None for the first stage."""
    if study.before is not None:
        return study.before
    return next(iter(stages(study)[-2::-1]), None)


def frozen_paths(config: Settings, model: AnyModel) -> tuple[str, ...]:
    """Return the paths of frozen parameters, such as "eeg/snapshot"; a path stands for all parameters below it."""
    if isinstance(model, ReconstructionModel):
        return ("eeg/snapshot", "mirror") if model.of == "series" and config.pretrain.freeze_snapshot else ()
    if not config.pretrain.freeze_encoder or model.eeg is None:
        return ()
    return tuple(f"eeg/{part}" for part in model.shapes["eeg"] if part != "bridge")


def _step_one(study: Study, before: Study | None) -> Study:
    own = study.config.step_one
    config = study.config.changed({**ALONE, "train.steps": own.steps, "optim.lr": own.lr, "optim.trainable": "first"})
    return dataclasses.replace(study, config=config, workdir=Workdir(study.workdir.root / "step_one"), before=before)


def _reconstruction(study: Study, name: Any, before: Study | None) -> Study:
    own = getattr(study.config.pretrain, name)
    changes = {f"optim.{field}": getattr(own, field) for field in ("lr", "lr_end", "schedule", "warmup_steps")}
    changes |= {f"train.{field}": getattr(own, field) for field in ("steps", "eval_every", "patience")}
    config = study.config.changed({**ALONE, **changes, "batch.size": own.batch_size, "optim.trainable": "all"})
    text = study.model.base if isinstance(study.model, ContrastiveModel) else study.model
    model = ReconstructionModel(
        eeg=dataclasses.replace(text.eeg, prompt=()),
        of=name,
        pad_token=text.pad_token,
        hidden_share=study.config.pretrain.series.hidden if name == "series" else 0.0,
        dtype=text.dtype,
        remat=text.remat,
        keep=text.keep,
    )
    arrays = study.arrays._replace(voxels=_varying_voxels(study) if study.config.pretrain.mask else None)
    workdir = Workdir(study.workdir.root / name)
    return dataclasses.replace(study, config=config, model=model, arrays=arrays, workdir=workdir, before=before)


def _varying_voxels(study: Study) -> jax.Array:
    """Return a float32 mask of a snapshot's shape: 1 at voxels (or features) that vary over the training set.

    Voxels outside of the brain mask are constant. At most 200 evenly spaced training samples are read.
    """
    train = study.split.parts["train"]
    rows = train[np.linspace(0, len(train) - 1, min(len(train), 200)).astype(int)]
    least = most = study.samples.features(int(rows[0]))[0]
    for row in rows:
        snapshots = study.samples.features(int(row))
        least, most = np.minimum(least, snapshots.min(axis=0)), np.maximum(most, snapshots.max(axis=0))
    return jnp.asarray(least < most, jnp.float32)
