"""Which stage of a run depends on which fields of the configuration, and what it leaves in the workdir."""

import dataclasses
import hashlib
import json
from typing import Any

from ml_collections import ConfigDict

from eeg2text_jax.configuration import to_json


@dataclasses.dataclass(frozen=True)
class Stage:
    """What a stage leaves behind, and the fields that it depends on besides those of the stages before it."""

    products: tuple[str, ...]  # names or patterns in the workdir
    fields: tuple[str, ...]  # fields or whole sections


# In the order of work. A field that no stage names belongs to training, which is the stage to be careful with.
STAGES = {
    "data": Stage(
        ("data.h5",), ("data.source", "data.synthetic", "data.columns", "data.table", "data.recordings", "data.raw")
    ),
    "split": Stage(("split.json",), ("split",)),
    "tokenizer": Stage(("tokenizer",), ("text.tokenizer", "text.vocab_size", "model.checkpoint")),
    "training": Stage(("checkpoints/step_*", "step_one/checkpoints/step_*", "wave_*", "waves.json"), ()),
    "decoding": Stage(("predictions.jsonl",), ("grid.eval_conditions", "decode")),
    "": Stage(
        (), ("audit", "compilation_cache", "parallel.hosts", "train.save_every", "train.log_every", "train.profile")
    ),
}


def from_stage(name: str) -> list[str]:
    """The stage and those after it."""
    names = list(STAGES)
    return names[names.index(name) :]


def stage_of(field: str) -> str:
    """The first stage that depends on a field (dotted); "" where none does."""
    for name, stage in STAGES.items():
        if any(field == prefix or field.startswith(f"{prefix}.") for prefix in stage.fields):
            return name
    return "training"


def fields_digest(config: ConfigDict, stage: str) -> str:
    """A hash of the fields that a stage and those before it depend on."""
    later = from_stage(stage)[1:]
    flat = _flat(json.loads(to_json(config)))
    content = {name: value for name, value in flat.items() if stage_of(name) not in later}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]


def _flat(tree: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat = {}
    for name, value in tree.items():
        flat |= _flat(value, f"{prefix}{name}.") if isinstance(value, dict) else {f"{prefix}{name}": value}
    return flat
