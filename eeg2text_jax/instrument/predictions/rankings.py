"""Rankings: for each recording, the score of every sentence that a decoder chose from.

`decode` writes them as JSON lines, which `score` and `audit` read: a header whose `candidates` are lists of sentences
by name (`{"test": [{"sentence_id", "reference", "task", "n_words", "stratum"}, ...]}`), then one recording a line,
under one training and evaluation condition: the fields of a prediction, whose text is the candidate ranked first, and

    "list": "test", "scores": [0.31, ...]   one number per candidate, higher is likelier
    "n": 236, "rank": 4.0, "score": 0.29    number of candidates; rank and score of the true sentence
    "stratum_n": 7, "stratum_rank": 1.0     n and rank among the candidates of the true sentence's stratum

`list` and `scores` are required; other numbers must agree with the scores if they are present.
"""

import dataclasses
import functools
import json
import os
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from etils import epath

from eeg2text_jax.base.errors import UserError
from eeg2text_jax.base.files import replacing, utf8
from eeg2text_jax.data.clock import parse_time
from eeg2text_jax.instrument.predictions.file import (
    FIELDS,
    Prediction,
    Shared,
    objects_of,
    own_row,
    row_key,
    sentence_key,
)
from eeg2text_jax.instrument.predictions.packed import Lines, read_text

MODES = ("contrastive", "likelihood")
MOST = 2**53  # up to it, float64 and thus every JSON reader is exact for whole numbers
DIGITS = 6  # of a score in the file; ranks are of the rounded scores
_OWN = ("list", "scores", "n", "rank", "score", "stratum_n", "stratum_rank")  # of rankings alone
CANDIDATE: dict[str, Any] = {"reference": str, "sentence_id": str, "task": str, "n_words": (int, float), "stratum": int}


@dataclasses.dataclass(frozen=True, eq=False)
class Candidates:
    """A named list of `N` sentences that are ranked. Raises UserError if a sentence occurs twice."""

    name: str
    references: Sequence[str]
    sentence_ids: Sequence[str]
    tasks: Sequence[str]
    n_words: np.ndarray  # float64 [N]
    strata: np.ndarray  # [N], number of each sentence's stratum (one task and nearly one length)

    def __post_init__(self) -> None:
        if len(self._places) < len(self.references):
            [(twice, _)] = Counter(map(sentence_key, self.references)).most_common(1)
            raise UserError(f"candidates {self.name!r}: {twice!r:.60} is there twice; expected distinct sentences.")

    @functools.cached_property
    def _places(self) -> dict[str, int]:
        return {sentence_key(text): place for place, text in enumerate(self.references)}

    def place(self, reference: str) -> int:
        """Return the index of a sentence. Raises KeyError if it is missing."""
        return self._places[sentence_key(reference)]

    def __len__(self) -> int:
        return len(self.references)


@dataclasses.dataclass(frozen=True, eq=False)
class Ranking(Prediction):
    """A prediction whose text is the candidate with the highest of the `scores` `[N]`."""

    scores: np.ndarray | None = None
    candidates: Candidates | None = None

    @property
    def right(self) -> int:
        """Index of the reference among the candidates."""
        return self.candidates.place(self.reference)


def rank_of(scores: np.ndarray, right: int, among: np.ndarray | None = None) -> float:
    """Return the rank from 1 of candidate `right` by `scores` `[N]`, if ties share the mean of their ranks.

    `among` (bool `[N]`): the candidates to rank.
    """
    others = scores if among is None else scores[among]
    return float(np.sum(others > scores[right]) + (np.sum(others == scores[right]) + 1) / 2)


def rounded(scores: np.ndarray) -> np.ndarray:
    """Return float64 scores rounded to `DIGITS` significant digits."""
    scores = np.asarray(scores, np.float64)
    size = np.floor(np.log10(np.maximum(np.abs(scores), 1e-300)))
    unit = 10.0 ** (DIGITS - 1 - size)
    return np.where(scores == 0, 0.0, np.round(scores * unit) / unit)


def write_rankings(path: str | os.PathLike[str], header: dict[str, Any], rows: Iterable[Ranking]) -> None:
    """Write a file of rankings atomically; the header gets the lists of candidates."""
    rows = list(rows)
    lists = {}
    for c in {row.candidates.name: row.candidates for row in rows}.values():
        columns = (c.references, c.sentence_ids, c.tasks, map(float, c.n_words), map(int, c.strata))
        lists[c.name] = [dict(zip(CANDIDATE, values, strict=True)) for values in zip(*columns, strict=True)]
    with replacing(path) as partial, partial.open("wb") as file:
        content = {"header": {**header, "candidates": lists}}
        file.write(utf8(json.dumps(content, sort_keys=True, ensure_ascii=False) + "\n"))
        for row in rows:
            file.write(utf8(json.dumps(_line(row), ensure_ascii=False) + "\n"))


def _line(row: Ranking) -> dict[str, Any]:
    plain = {name: value for name, value in vars(row).items() if name not in ("scores", "candidates")}
    right, strata = row.right, row.candidates.strata
    alike = strata == strata[right]
    return {
        **{name: value for name, value in plain.items() if value is not None},
        "list": row.candidates.name,
        "n": len(row.candidates),
        "rank": rank_of(row.scores, right),
        "stratum_n": int(alike.sum()),
        "stratum_rank": rank_of(row.scores, right, alike),
        "score": float(row.scores[right]),
        "scores": row.scores.tolist(),
    }


@dataclasses.dataclass(frozen=True)
class RankingSet:
    """The content of one file of rankings."""

    rows: list[Ranking]
    header: dict[str, Any]
    path: epath.Path


def describe_rankings(read: RankingSet) -> str:
    """Describe a file in a line: numbers of rankings, sentences and candidates, modes and conditions."""
    rows = read.rows
    sizes = sorted({len(row.candidates) for row in rows})
    conditions = ", ".join(dict.fromkeys(f"{row.train_condition} → {row.eval_condition}" for row in rows))
    return (
        f"{read.path}: {len(rows)} rankings of {len({row.sentence_id for row in rows})} sentences among "
        f"{' or '.join(map(str, sizes))} candidates, {', '.join(dict.fromkeys(row.mode for row in rows))}; "
        f"training → evaluation {conditions}."
    )


def is_rankings(path: str | os.PathLike[str]) -> bool:
    """Return whether a file begins with a header of rankings; False for a pipe, which can be read once only."""
    path = epath.Path(path)
    if not path.is_file():
        return False
    with path.open("rb") as file:
        first = file.readline(1 << 26)
    if not first.lstrip().startswith(b'{"header"'):
        return False
    try:
        header = json.loads(first)["header"]
    except (ValueError, KeyError, RecursionError):
        return False
    return isinstance(header, dict) and isinstance(header.get("candidates"), dict)


def read_rankings(path: str | os.PathLike[str]) -> RankingSet:
    """Read a file of `write_rankings`. Raises UserError for an invalid line."""
    lines = Lines(path)
    objects = objects_of(lines)
    _, where, first = next(objects, (1, f"{path}, line 1", {}))
    header = first.get("header")
    if not isinstance(header, dict) or not isinstance(header.get("candidates"), dict):
        raise UserError(f"{where}: expected a header with lists of candidates; decode again.")
    lists = {name: _candidates(name, rows, f"{path}: ") for name, rows in header["candidates"].items()}
    rows: list[Ranking] = []
    seen: dict[tuple, int] = {}
    shared = Shared()
    for number, where, content in objects:
        row = _ranking(content, lists, where, shared)
        if (before := seen.setdefault(row_key(row), number)) != number:
            said = f"sample {row.sample_id!r} is on line {before} already"
            raise UserError(f"{where}: {said}; remove one of the two lines.")
        rows.append(row)
    if not rows:
        raise UserError(f"{path}: no rankings in the file.")
    return RankingSet(rows, header, lines.path)


def _candidates(name: str, rows: Any, where: str) -> Candidates:
    if not isinstance(rows, list) or len(rows) < 2 or not all(isinstance(row, dict) for row in rows):
        raise UserError(f"{where}candidates {name!r}: expected a list of at least two sentences, each a JSON object.")
    for number, row in enumerate(rows, 1):
        for field, kind in CANDIDATE.items():
            value = row.get(field)
            if not isinstance(value, kind) or isinstance(value, bool) or (kind is not str and not 0 <= value <= MOST):
                expected = "text" if kind is str else f"a number from 0 to {MOST:,}"
                said = f"number {number}: {field} is {value!r:.60}; expected {expected}"
                raise UserError(f"{where}candidates {name!r}, {said}.")
    references, ids, tasks, n_words, strata = ([row[field] for row in rows] for field in CANDIDATE)
    try:
        return Candidates(name, references, ids, tasks, np.array(n_words, float), np.array(strata))
    except UserError as error:
        raise UserError(f"{where}{error}") from None


def _ranking(row: dict[str, Any], lists: dict[str, Candidates], where: str, shared: Shared) -> Ranking:
    stated = {name: row.pop(name) for name in _OWN if name in row}
    if unknown := [name for name in row if name not in FIELDS]:
        raise UserError(f"{where}: unknown field {unknown[0]!r}; the fields are {', '.join([*FIELDS, *_OWN])}.")
    for name in ("seed", "n_words"):
        if type(row.get(name)) is int and abs(row[name]) > MOST:
            raise UserError(f"{where}: {name} is {row[name]!r:.60}; expected a whole number up to {MOST:,}.")
    prediction = own_row({**row, **parse_time(row, where)}, where, shared, MODES)
    candidates = lists.get(str(stated.get("list", "")))
    if candidates is None:
        raise UserError(f"{where}: list is {stated.get('list')!r}; the header has {', '.join(lists)}.")
    scores = stated.get("scores")
    finite = isinstance(scores, list) and all(type(s) in (int, float) and abs(s) < 1e300 for s in scores)
    if not finite or len(scores) != len(candidates):
        raise UserError(f"{where}: expected scores, a finite number for each of {len(candidates)} candidates.")
    ranking = Ranking(**vars(prediction), scores=np.array(scores, float), candidates=candidates)
    try:
        made = _line(ranking)
    except KeyError:
        raise UserError(f"{where}: the reference {ranking.reference!r:.60} is not among the candidates.") from None
    for name, value in stated.items():
        if name not in ("list", "scores") and value != made[name]:
            said = f"{name} is {value!r:.60}; its scores give {made[name]!r}"
            raise UserError(f"{where}: {said}; correct the field, or remove it.")
    return ranking


def read_choices(path: Path) -> list[str]:
    """Return the sentences that a decoder chose from, one a line. Raises UserError if there are none."""
    choices = read_text(path).splitlines()
    if not any(map(str.strip, choices)):
        raise UserError(f"--choices={path}: holds no sentence; expected the decoder's candidates, one per line.")
    return choices
