"""The model card of an exported checkpoint: what it is, what it was trained on, what it scored."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any


@dataclasses.dataclass(frozen=True)
class CardFacts:
    """What the card says; empty strings are left out.

    `scores` are rows of one table: each a mapping of column to value, with the same columns. `signatures` say for
    every metric among them how it was computed.
    """

    name: str
    backbone: str
    started_from: str = ""
    arm: str = ""
    data: str = ""
    features: str = ""
    split: str = ""
    config_hash: str = ""
    scores: Sequence[Mapping[str, Any]] = ()
    signatures: Mapping[str, str] = dataclasses.field(default_factory=dict)


_USE = """\
```python
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer   # the language model alone, in PyTorch
model, tokenizer = AutoModelForSeq2SeqLM.from_pretrained(FOLDER), AutoTokenizer.from_pretrained(FOLDER)

from eeg2text_jax import load_pretrained                         # with its EEG encoder, in JAX
model, params = load_pretrained(FOLDER)
```"""

_CAUTION = """\
A score under EEG alone says nothing about decoding: compare it with the same model's score when it is fed noise,
and see the audit report of the run. Teacher-forced rows were computed with the reference in the decoder's input."""


def model_card(facts: CardFacts) -> str:
    """Markdown with a front matter that model hubs read."""
    about = {
        "Backbone": facts.backbone,
        "Started from": facts.started_from,
        "Trained on": facts.arm,
        "Data": facts.data,
        "Features": facts.features,
        "Split hash": facts.split,
        "Configuration hash": facts.config_hash,
    }
    lines = ["---", "library_name: transformers", "tags: [eeg-to-text, eeg2text_jax]", "---", "", f"# {facts.name}", ""]
    lines += ["EEG encoder, bridge and language model, trained with eeg2text_jax.", ""]
    lines += [f"- {name}: {value}" for name, value in about.items() if value]
    if facts.scores:
        lines += ["", "## Scores on the test part", "", *_table(facts.scores), "", _CAUTION]
    if facts.signatures:
        lines += ["", *(f"- {metric}: `{signature}`" for metric, signature in facts.signatures.items())]
    files = [
        "- `config.json`, `model.safetensors`, tokenizer files: the language model, as transformers loads it",
        "- `eeg_encoder.safetensors`: EEG encoder and bridge; its header says how they are built",
    ]
    return "\n".join([*lines, "", "## Files", "", *files, "", "## Use", "", _USE, ""])


def _table(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    columns = list(rows[0])
    cells = [[f"{row[c]:.2f}" if isinstance(row[c], float) else str(row[c]) for c in columns] for row in rows]
    return ["| " + " | ".join(line) + " |" for line in (columns, ["---"] * len(columns), *cells)]
