"""Readers of the candidates that a decoder chose from: the file of candidate scores, and a list of sentences.

The file of scores has JSON lines, one object per sample and condition, from which an audit measures retrieval.

    {"sample_id": "...", "sentence_id": "s1", "eval_condition": "eeg", "seed": 0,
     "candidates": ["s7", "s1", "s3"], "nll": [41.2, 38.9, 44.0]}

`nll[c]` is the summed negative log-likelihood (nats) of candidate c's text under the condition's input. `candidates`
are ids of sentences of one task and length, `sentence_id` once among them. All samples of a sentence have the same
candidates, under EEG and under controls.
"""

import dataclasses
import math
import os
from pathlib import Path
from typing import Any

from etils import epath

from eeg2text_jax.errors import UserError
from eeg2text_jax.predictions.json_rows import items_by_line
from eeg2text_jax.predictions.packed import Lines, read_text

FIELDS = {"sample_id": str, "sentence_id": str, "eval_condition": str, "candidates": list, "nll": list}

Key = tuple[str, int]  # (sample id, seed), the key of one sample's scores


@dataclasses.dataclass(frozen=True)
class CandidateScores:
    """The scores of all candidates for one sample in one condition."""

    sentence_id: str  # id of the true sentence
    candidates: tuple[str, ...]  # ids of the candidate sentences
    nll: tuple[float, ...]  # nats, one per candidate


def read_candidates(path: str | os.PathLike[str]) -> dict[str, dict[Key, CandidateScores]]:
    """Return condition -> (sample id, seed) -> candidates' scores. Raises UserError with an invalid line's number."""
    lines = Lines(path)
    path = lines.path
    conditions: dict[str, dict[Key, CandidateScores]] = {}
    for number, row in items_by_line(lines):
        scores = _check(row, path, number)
        key = row["sample_id"], row.get("seed", 0)
        if key in conditions.setdefault(row["eval_condition"], {}):
            raise UserError(
                f"{path}, line {number}: sample {key[0]!r} occurs twice in {row['eval_condition']!r}; remove one of "
                "the two lines."
            )
        conditions[row["eval_condition"]][key] = scores
    if "eeg" not in conditions or len(conditions) < 2:
        found = ", ".join(conditions) or "none"
        raise UserError(f"{path}: conditions are {found}; expected eeg and at least one control.")
    return conditions


def _check(row: dict[str, Any], path: epath.Path, number: int) -> CandidateScores:
    for name, kind in FIELDS.items():
        if not isinstance(row.get(name), kind):
            raise UserError(f"{path}, line {number}: {name} is missing or not {'a list' if kind is list else 'text'}.")
    candidates, nll = row["candidates"], row["nll"]
    finite = all(type(value) in (int, float) and math.isfinite(value) for value in nll)
    if len(candidates) != len(nll) or not finite or not isinstance(row.get("seed", 0), int):
        raise UserError(
            f"{path}, line {number}: expected one finite nll for each candidate, and a whole number as seed."
        )
    if len(candidates) < 2 or candidates.count(row["sentence_id"]) != 1:
        raise UserError(
            f"{path}, line {number}: expected at least two candidates, and the sentence_id of the row exactly once "
            "among them."
        )
    return CandidateScores(row["sentence_id"], tuple(map(str, candidates)), tuple(map(float, nll)))


def read_choices(path: Path) -> list[str]:
    """Return the sentences that a decoder chose from, one per line of a file. Raises UserError if there are none."""
    choices = read_text(path).splitlines()
    if not any(map(str.strip, choices)):
        raise UserError(f"--choices={path}: holds no sentence; expected the decoder's candidates, one per line.")
    return choices
