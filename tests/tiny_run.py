"""The default configuration, shrunk until a run takes seconds."""

import json
from pathlib import Path
from typing import Any

from ml_collections import ConfigDict

from eeg2text_jax.training.configuration import load_config
from eeg2text_jax.training.sections import Settings, check_config, checked_settings

ROOT = Path(__file__).parents[1]
SHRINK = {
    "data.synthetic.sentences": 60,
    "data.synthetic.features": 12,
    "data.synthetic.vocabulary": 40,
    "text.vocab_size": 330,
    "batch.size": 8,
    "batch.buckets": ((20, 56),),  # one, as each compiles every program once more
    "model.encoder_layers": 1,
    "model.encoder_heads": 2,
    "model.encoder_ffn": 16,
    "train.steps": 6,
    "train.eval_every": 3,
    "train.save_every": 2,
    "train.log_every": 1,
    "optim.warmup_steps": 2,
    "decode.num_beams": 2,
    "decode.max_length": 12,
    "decode.batch_size": 8,
    "parallel.mesh": (1, 1),  # of the eight simulated devices; tests/parallel is about the others
}
# Dropout in every layer triples the time to compile a training step; `model.dropout` stays on, in the brain encoder.
SHAPE = {"d_model": 16, "max_position_embeddings": 64, "dropout": 0.0}
for side in ("encoder", "decoder"):
    SHAPE |= {f"{side}_layers": 1, f"{side}_attention_heads": 2, f"{side}_ffn_dim": 16}


def tiny_config(**changes: object) -> ConfigDict:
    """`configs/default.py` with `SHRINK`, `SHAPE` and `changes` (dotted names, `__` for dots) applied.

    `shape` has further fields of `model.shape`.
    """
    config = load_config(str(ROOT / "configs/default.py"))
    with config.unlocked():
        config.model.shape = {**SHAPE, **changes.pop("shape", {})}
    config.update_from_flattened_dict({**SHRINK, **{name.replace("__", "."): value for name, value in changes.items()}})
    return config


def tiny_settings(**changes: object) -> Settings:
    """`tiny_config(**changes)`, checked and typed."""
    return checked_settings(tiny_config(**changes))


def study_in(root: Path | str, settings: Settings, **options: bool) -> Any:
    """The study of a run in a workdir; what it needs is imported here, as this file is a configuration file, too."""
    from eeg2text_jax.runs.opening import open_workdir
    from eeg2text_jax.training.study import open_study

    return open_study(settings, open_workdir(str(root), settings), **options)


def data_spec(kind: type, section: str, **changes: object) -> object:
    """`kind` with the defaults of a section of `config.data` and `changes`."""
    return kind(**{**load_config("default").data[section], **changes})


def prepare(section: ConfigDict, *where: Any) -> Any:
    """`data.prepare.prepare` by the section `data` of a configuration file."""
    from eeg2text_jax.base.kinds import read_section
    from eeg2text_jax.data.prepare import prepare
    from eeg2text_jax.data.source_settings import DataSettings

    check_config(ConfigDict({"data": section}), ["data"])
    return prepare(read_section(DataSettings, section), *where)


def get_config(argument: str = "{}") -> ConfigDict:
    """This file as a configuration file: `--config=tests/tiny_run.py:JSON`, an object of `changes`."""
    return tiny_config(**json.loads(argument))


def as_flag(**changes: object) -> str:
    """`tiny_config(**changes)` as an argument of the command line."""
    return f"--config={__file__}:{json.dumps(changes)}"
