"""The predictions file: written by `decode`, read by `score` and `audit`.

JSON lines. The first line is a header (`{"header": {...}}`: config hash, split hash, tokenizer, decode settings),
every other line one prediction of one sample in one cell and mode.
"""

import dataclasses
import json
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

MODES = ("teacher_forced", "free_running")


@dataclasses.dataclass(frozen=True)
class Prediction:
    """One decoded sample.

    `reference_tokens` and `prediction_tokens` are the model's token ids without special tokens, or None where a
    file carries strings only. `nll` is the summed negative log-likelihood of the reference in nats over `n_tokens`
    tokens (teacher-forced rows only).
    """

    sample_id: str
    subject: str
    task: str
    sentence_id: str
    n_words: int
    train_condition: str
    eval_condition: str
    seed: int
    mode: str
    reference: str
    prediction: str
    reference_tokens: Sequence[int] | None = None
    prediction_tokens: Sequence[int] | None = None
    nll: float | None = None
    n_tokens: int | None = None


def write_predictions(path: str | os.PathLike[str], header: dict[str, Any], predictions: Iterable[Prediction]) -> None:
    """Writes a predictions file under a temporary name, then renames it."""
    path = Path(path)
    partial = path.with_name(f".{path.name}.partial")
    with partial.open("w", encoding="utf8") as file:
        print(json.dumps({"header": header}, sort_keys=True, ensure_ascii=False), file=file)
        for prediction in predictions:
            row = {name: value for name, value in vars(prediction).items() if value is not None}
            print(json.dumps(row, ensure_ascii=False), file=file)
    partial.replace(path)
