"""Retrieval: is the right sentence among length-matched candidates the one that the EEG makes likelier?

The file of candidate scores is JSON lines; one object per sample and condition:

    {"sample_id": "...", "sentence_id": "s1", "eval_condition": "eeg", "seed": 0,
     "candidates": ["s7", "s1", "s3"], "nll": [41.2, 38.9, 44.0]}

`nll[c]` is the summed negative log-likelihood (nats) of candidate c's text under that condition's input. `candidates`
are ids of sentences of equal task and length, the right one (`sentence_id`) among them once, the same list for all
samples of a sentence and for EEG and its control. To make them: the stratum of the sentence (`length_strata`).
"""

import dataclasses
import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from eeg2text_jax.audit.statistics import p_value
from eeg2text_jax.errors import UserError
from eeg2text_jax.predictions.file import read_text

FIELDS = {"sample_id": str, "sentence_id": str, "eval_condition": str, "candidates": list, "nll": list}

Key = tuple[str, int]  # sample id, seed


@dataclasses.dataclass(frozen=True)
class CandidateScores:
    """One line of the file."""

    sentence_id: str
    candidates: tuple[str, ...]
    nll: tuple[float, ...]


@dataclasses.dataclass(frozen=True)
class Retrieval:
    """Shares of samples (0 to 1) whose sentence ranks first, or among five; `chance_*` are exact.

    `p` replaces the right sentence by one drawn from its candidates, the same for all samples of the sentence, with
    the share ranked first as statistic.
    """

    control: str
    top1: float
    chance_top1: float
    top5: float
    chance_top5: float
    mean_rank: float
    chance_rank: float
    p: float
    samples: int
    sentences: int


def read_candidates(path: str | os.PathLike[str]) -> dict[str, dict[Key, CandidateScores]]:
    """Condition -> sample -> scores. Raises UserError naming file and line."""
    path = Path(path)
    conditions: dict[str, dict[Key, CandidateScores]] = {}
    for number, line in enumerate(read_text(path).split("\n"), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise UserError(f"{path}, line {number}: not JSON; expected one object a line.") from error
        scores = _check(row, path, number)
        key = row["sample_id"], row.get("seed", 0)
        if key in conditions.setdefault(row["eval_condition"], {}):
            raise UserError(f"{path}, line {number}: sample {key[0]!r} occurs twice in {row['eval_condition']!r}.")
        conditions[row["eval_condition"]][key] = scores
    if "eeg" not in conditions or len(conditions) < 2:
        found = ", ".join(conditions) or "none"
        raise UserError(f"{path}: conditions are {found}; expected eeg and at least one control.")
    return conditions


def _check(row: Any, path: Path, number: int) -> CandidateScores:
    for name, kind in FIELDS.items():
        if not isinstance(row, dict) or not isinstance(row.get(name), kind):
            raise UserError(f"{path}, line {number}: {name} is missing or not a {kind.__name__}.")
    candidates, nll = row["candidates"], row["nll"]
    if (
        len(candidates) != len(nll)
        or not all(_finite(value) for value in nll)
        or not isinstance(row.get("seed", 0), int)
    ):
        raise UserError(f"{path}, line {number}: expected one finite nll per candidate, and a whole number as seed.")
    if len(candidates) < 2 or candidates.count(row["sentence_id"]) != 1:
        raise UserError(f"{path}, line {number}: expected sentence_id once among at least two candidates.")
    return CandidateScores(row["sentence_id"], tuple(map(str, candidates)), tuple(map(float, nll)))


def _finite(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def retrieve(
    eeg: Mapping[Key, CandidateScores],
    name: str,
    control: Mapping[Key, CandidateScores],
    *,
    resamples: int,
    rng: np.random.Generator,
) -> Retrieval:
    """Ranks candidates by log p(text | EEG) - log p(text | control), so that a sentence's own probability drops out.

    Ties rank the right sentence last. Raises UserError where the two conditions or the samples of one sentence do not
    have the same candidates.
    """
    ranks: dict[str, list[np.ndarray]] = {}  # sentence -> per sample the rank of every candidate
    lists: dict[str, tuple[str, ...]] = {}
    for key, scores in eeg.items():
        other = control.get(key)
        expected = lists.setdefault(scores.sentence_id, scores.candidates)
        if other is None or not scores.candidates == other.candidates == expected:
            raise UserError(
                f"sample {key[0]!r}: expected the same candidates with eeg and {name} and for its sentence throughout."
            )
        evidence = np.array(other.nll) - np.array(scores.nll)
        ranks.setdefault(scores.sentence_id, []).append((evidence[:, None] <= evidence).sum(1))
    return _summarize(name, ranks, lists, resamples, rng)


def _summarize(
    name: str,
    ranks: Mapping[str, list[np.ndarray]],
    lists: Mapping[str, tuple[str, ...]],
    resamples: int,
    rng: np.random.Generator,
) -> Retrieval:
    tables = {sentence: np.stack(rows) for sentence, rows in ranks.items()}  # [samples, candidates]
    right = {sentence: lists[sentence].index(sentence) for sentence in tables}
    own = np.concatenate([table[:, right[sentence]] for sentence, table in tables.items()])
    sizes = np.concatenate([np.full(len(table), table.shape[1]) for table in tables.values()])
    null = np.zeros(resamples)
    for table in tables.values():
        firsts = (table == 1).sum(0)
        null += firsts[rng.integers(table.shape[1], size=resamples)]
    return Retrieval(
        control=name,
        top1=float(np.mean(own == 1)),
        chance_top1=float(np.mean(1 / sizes)),
        top5=float(np.mean(own <= 5)),
        chance_top5=float(np.mean(np.minimum(5 / sizes, 1))),
        mean_rank=float(own.mean()),
        chance_rank=float(np.mean((sizes + 1) / 2)),
        p=p_value(float(np.sum(own == 1)), null),
        samples=len(own),
        sentences=len(tables),
    )
