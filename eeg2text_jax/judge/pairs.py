"""Pairs of a ground truth and a transcript, labelled by whether the transcript keeps the meaning.

As in the paper of LATTEScore, severities 0 (fully preserved) and 1 (mostly preserved) keep it, severity 2 does not.
"""

import csv
import dataclasses
import functools
import hashlib
import io
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import jiwer
import numpy as np

from eeg2text_jax.base.errors import UserError, did_you_mean
from eeg2text_jax.base.stores.buckets import at_hand

COLUMNS = ("reference", "hypothesis", "label", "speaker", "severity", "etiology", "speech_type", "rater", "id", "kind")
NEEDED = COLUMNS[:3]
ALIASES = {
    "ground_truth": "reference",
    "target": "reference",
    "transcript": "hypothesis",
    "prediction": "hypothesis",
    "preserved": "label",
}
DELIMITERS = {".tsv": "\t", ".csv": ","}
FEWEST = 10  # distinct references with an error that `divide` needs
PARTS = ("train", "dev", "test")

_simplify = jiwer.Compose([jiwer.ToLowerCase(), jiwer.RemovePunctuation(), jiwer.RemoveMultipleSpaces(), jiwer.Strip()])
Meaning = Literal["", "severity", "preserved"]  # of the labels 0 and 1, see `read_pairs`; "": not stated


@dataclasses.dataclass(frozen=True)
class Pair:
    """A ground truth, its transcript, and whether it keeps the meaning; other fields may be empty."""

    reference: str
    hypothesis: str
    preserved: bool
    rated: str = ""  # the label in the file: 0, 1, 2, yes or no
    speaker: str = ""
    severity: str = ""  # of the speaker's impairment
    etiology: str = ""  # cause of the speaker's impairment
    speech_type: str = ""
    rater: str = ""
    id: str = ""
    kind: str = ""  # the controlled edit that breaks the meaning

    @property
    def texts(self) -> tuple[str, str]:
        """The reference and the hypothesis."""
        return self.reference, self.hypothesis

    @property
    def is_exact(self) -> bool:
        """Whether the transcript has no error: both texts are equal after `normalize`."""
        return normalize(self.reference) == normalize(self.hypothesis)


@functools.lru_cache(1 << 16)
def normalize(text: str) -> str:
    """Lower-case a text and remove punctuation and extra white space."""
    return _simplify(text)


def preserved_of(pairs: Sequence[Pair]) -> np.ndarray:
    """Return whether each pair keeps the meaning, bool `[N]`."""
    return np.array([pair.preserved for pair in pairs])


def read_pairs(path: str | Path, meaning: Meaning = "") -> list[Pair]:
    """Read labelled pairs from a `.tsv` or `.csv` file in UTF-8; of its `COLUMNS`, `NEEDED` must be there.

    `meaning` says what labels 0 and 1 mean in a file without 2: `severity` (both: meaning preserved) or `preserved` (1:
    preserved, 0: lost). Raises UserError, which names the line, if the file cannot be read.
    """
    path = Path(at_hand(path))
    records = _records(path)
    if not records:
        raise UserError(f"{path}: is empty; expected a header with {', '.join(NEEDED)} and a line for each pair.")
    (_, header), *records = records
    columns = _columns(path, header)
    rows: list[dict[str, str]] = []
    for line, fields in records:
        if len(fields) != len(header):
            raise UserError(
                f"{path}, line {line}: has {len(fields)} fields, but the header has {len(header)}; repair it."
            )
        row = dict(zip(columns, map(str.strip, fields), strict=True))
        if not normalize(row["reference"]):
            raise UserError(f"{path}, line {line}: the reference is blank; remove the line or write the ground truth.")
        row["rated"] = row.pop("label")
        rows.append(row)
    meanings = _meanings(path, [(line, row["rated"]) for (line, _), row in zip(records, rows, strict=True)], meaning)
    return [Pair(preserved=meanings[row["rated"].lower()], **row) for row in rows]


def _records(path: Path) -> list[tuple[int, list[str]]]:
    """Return (number of its last line, fields) of each record that is not empty."""
    delimiter = DELIMITERS.get(path.suffix.lower())
    if delimiter is None:
        raise UserError(f"{path}: expected a file that ends in .tsv or .csv.")
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror or error}); check the path.") from error
    except UnicodeDecodeError as error:
        line = path.read_bytes()[: error.start].count(b"\n") + 1
        raise UserError(f"{path}, line {line}: is not UTF-8; save the file as UTF-8.") from error
    if "\0" in text:
        raise UserError(f"{path}: holds a zero byte and is no text; save the file as UTF-8.")
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    try:
        return [(reader.line_num, fields) for fields in reader if fields]
    except csv.Error as error:
        raise UserError(f"{path}, line {reader.line_num}: {error}; repair the quotes there.") from error


def _columns(path: Path, header: Sequence[str]) -> list[str]:
    lowered = [name.strip().lower() for name in header]
    if not set(lowered) & {*NEEDED, *ALIASES}:
        raise UserError(
            f"{path}, line 1: is no header (it says {', '.join(header)!r:.80}); expected columns {', '.join(NEEDED)}."
        )
    columns: list[str] = []
    for name in lowered:
        column = ALIASES.get(name, name)
        if column not in COLUMNS:
            raise UserError(f"{path}, line 1: the column {name!r} is not known; {did_you_mean(name, COLUMNS)}")
        if column in columns:
            raise UserError(f"{path}, line 1: there are two columns for {column!r}; keep one.")
        columns.append(column)
    if missing := [name for name in NEEDED if name not in columns]:
        raise UserError(f"{path}, line 1: there is no column {missing[0]!r}; expected {', '.join(NEEDED)}.")
    return columns


def _meanings(path: Path, labels: Sequence[tuple[int, str]], meaning: Meaning) -> dict[str, bool]:
    """Return label -> whether the meaning was kept, from all (line number, label) of a file."""
    meanings = {"yes": True, "no": False, "0": meaning != "preserved", "1": True, "2": False}
    for line, label in labels:
        if label.lower() not in meanings:
            raise UserError(
                f"{path}, line {line}: the label is {label!r:.40}; expected a severity of the change (0 or 1: meaning "
                "preserved, 2: meaning lost), or yes (preserved) or no (lost)."
            )
    kinds = {label.lower() for _, label in labels}
    if kinds & {"yes", "no"} and kinds & {"0", "1", "2"}:
        raise UserError(f"{path}: has labels of both kinds, {', '.join(sorted(kinds))}; use 0, 1, 2 or yes and no.")
    if "2" in kinds and meaning == "preserved":
        raise UserError(f"{path}: has the label 2, so its labels are severities; leave --labels=preserved out.")
    if kinds and kinds <= {"0", "1"} and not meaning:
        raise UserError(
            f"{path}: all labels are 0 or 1, which may be severities (0 and 1: both preserved) or flags (1: preserved, "
            "0: lost); say which with --labels=severity or --labels=preserved."
        )
    return meanings


@dataclasses.dataclass(frozen=True)
class Parts:
    """The train, dev and test pairs; no ground truth is in two parts."""

    train: list[Pair]
    dev: list[Pair]
    test: list[Pair]
    exact: int  # number of pairs without an error, which are in no part
    exact_test: list[Pair]  # those whose ground truth is in test
    rated_twice: list[tuple[Pair, Pair]]  # pairs as labelled by the first rater, who counts, and the second

    def counts(self) -> dict[str, dict[str, int]]:
        """Return part -> {"pairs": their number, "preserved": how many keep the meaning}."""
        parts = {name: [pair.preserved for pair in getattr(self, name)] for name in PARTS}
        return {name: {"pairs": len(kept), "preserved": sum(kept)} for name, kept in parts.items()}


def divide(pairs: Sequence[Pair], ratio: Sequence[float], seed: int, where: str) -> Parts:
    """Divide pairs by normalized ground truth, without second ratings and pairs without an error.

    `ratio` is of `PARTS`; `where` names the origin in messages. Raises UserError if a part lacks a class.
    """
    first, twice = _first_ratings(pairs)
    wrong = [pair for pair in first if not pair.is_exact]
    if (n := len({normalize(pair.reference) for pair in wrong})) < FEWEST:
        raise UserError(
            f"{where}: has {n} different references whose hypothesis has an error; expected at least {FEWEST}; give "
            "more pairs."
        )
    references = list(dict.fromkeys(normalize(pair.reference) for pair in first))
    order = np.random.default_rng(seed).permutation(len(references))
    edges = np.cumsum([round(share * len(references)) for share in ratio[:2]])
    part_of = {references[i]: PARTS[int(np.searchsorted(edges, n, "right"))] for n, i in enumerate(order.tolist())}
    parts: dict[str, list[Pair]] = {name: [] for name in PARTS}
    for pair in wrong:
        parts[part_of[normalize(pair.reference)]].append(pair)
    for name, part in parts.items():
        kinds = {pair.preserved for pair in part}
        if len(kinds) < 2:
            only = f"only pairs that {'keep' if True in kinds else 'lose'} the meaning" if kinds else "no pair"
            raise UserError(f"{where}: the {name} part ({len(part)} pairs) has {only}; expected both; give more pairs.")
    exact = [pair for pair in first if pair.is_exact]
    tested = [pair for pair in exact if part_of[normalize(pair.reference)] == "test"]
    return Parts(**parts, exact=len(exact), exact_test=tested, rated_twice=twice)


def _first_ratings(pairs: Sequence[Pair]) -> tuple[list[Pair], list[tuple[Pair, Pair]]]:
    """Return the pairs as first rated, and (first, second rating) of each pair with two raters."""
    first: dict[tuple, Pair] = {}
    twice, firsts = [], []
    for pair in pairs:
        before = first.setdefault((*pair.texts, pair.speaker, pair.id), pair)
        if before is not pair and before.rater != pair.rater:
            twice.append((before, pair))
        else:
            firsts.append(pair)
    return firsts, twice


def pairs_digest(pairs: Sequence[Pair]) -> str:
    """Return the SHA-256 of the pairs, that of version 0.2 if none has an etiology, a later field."""
    new = any(pair.etiology for pair in pairs)
    rows = [[value for name, value in vars(pair).items() if new or name != "etiology"] for pair in pairs]
    return hashlib.sha256(json.dumps(rows, ensure_ascii=False).encode()).hexdigest()


def write_pairs(pairs: Sequence[Pair]) -> str:
    """Return the text of a `.tsv` file for `read_pairs`."""
    out = io.StringIO()
    names = [name for name in COLUMNS if name in NEEDED or any(getattr(pair, name) for pair in pairs)]
    writer = csv.DictWriter(out, names, extrasaction="ignore", delimiter="\t", lineterminator="\n")
    writer.writeheader()
    writer.writerows(dataclasses.asdict(pair) | {"label": pair.rated} for pair in pairs)
    return out.getvalue()


class PairBatches:
    """Training batches: every pair once per epoch, similar lengths together; they depend on `seed` and step only.

    Of every pair, `ids` are the tokens `[S]`, `yes` says whether the meaning was kept. Batches are padded with `pad` to
    `size` rows of one of a few `widths`, so that few shapes are compiled.
    """

    def __init__(
        self, ids: Sequence[np.ndarray], yes: np.ndarray, widths: Sequence[int], size: int, pad: int, seed: int
    ):
        self._ids, self._yes, self._widths = list(ids), np.asarray(yes, bool), sorted(widths)
        self._size, self._pad, self._seed = size, pad, seed
        longest = max(map(len, self._ids))
        if longest > self._widths[-1]:
            raise UserError(
                f"batch.widths go to {self._widths[-1]}, but a pair has {longest}; add a width of at least {longest}."
            )
        self._length = len(self._plan(0))

    def __call__(self, step: int) -> dict[str, np.ndarray]:
        """Return the batch of a step, counted from 0."""
        epoch, place = divmod(step, self._length)
        rows, width = self._plan(epoch)[place]
        return block(self._ids, self._yes, rows, width, self._size, self._pad)

    @functools.lru_cache(maxsize=2)  # noqa: B019 - lives as long as a run
    def _plan(self, epoch: int) -> list[tuple[np.ndarray, int]]:
        """Return (indices of pairs, width) of an epoch's batches; pairs left over at a width join the next."""
        rng = np.random.default_rng([self._seed, epoch])
        order = rng.permutation(len(self._ids))
        bucket = np.searchsorted(self._widths, [len(self._ids[row]) for row in order])
        plan, left = [], np.zeros(0, int)
        for number, width in enumerate(self._widths):
            inside = np.concatenate([left, order[bucket == number]])
            whole = len(inside) // self._size * self._size
            plan += [(inside[start : start + self._size], width) for start in range(0, whole, self._size)]
            left = inside[whole:]
        if len(left):
            plan.append((left, self._widths[np.searchsorted(self._widths, max(len(self._ids[row]) for row in left))]))
        return [plan[i] for i in rng.permutation(len(plan))]


def block(
    ids: Sequence[np.ndarray], yes: np.ndarray, rows: Sequence[int] | np.ndarray, width: int, size: int, pad: int
) -> dict[str, np.ndarray]:
    """Return the batch of the pairs `rows`: `ids` `[size, width]`; `length` in tokens, `yes`, `weight`, `[size]`.

    Rows of padding have `weight` 0.
    """
    arrays = {
        "ids": np.full((size, width), pad, np.int32),
        "length": np.ones(size, np.int32),
        "yes": np.zeros(size, bool),
        "weight": np.zeros(size, np.float32),
    }
    for place, row in enumerate(rows):
        arrays["ids"][place, : len(ids[row])] = ids[row]
        arrays["length"][place], arrays["yes"][place], arrays["weight"][place] = len(ids[row]), yes[row], 1.0
    return arrays


def slices(
    lengths: Sequence[int], widths: Sequence[int], size: Callable[[int], int]
) -> Iterator[tuple[np.ndarray, int]]:
    """Yield (indices of pairs, width) of batches of up to `size(width)` pairs: every pair once, shortest first."""
    order = np.argsort(lengths, kind="stable")
    widths = sorted(widths)
    bucket = np.searchsorted(widths, lengths)[order]
    for number, width in enumerate(widths):
        inside = order[bucket == number]
        for start in range(0, len(inside), size(width)):
            yield inside[start : start + size(width)], width


def data_tables(pairs: Sequence[Pair]) -> dict[str, Any]:
    """Return the paper's Tables 1 and 3: speakers by severity, and pairs by label, with examples."""
    spoken: dict[str, set[str]] = {}
    labels: dict[str, list[Pair]] = {}
    for pair in pairs:
        if pair.speaker and pair.severity:
            spoken.setdefault(pair.severity, set()).add(pair.speaker)
        labels.setdefault(pair.rated, []).append(pair)
    order = sorted(spoken, key=lambda name: (["mild", "moderate", "severe", name.lower()].index(name.lower()), name))
    return {
        "speakers_by_severity": {name: len(spoken[name]) for name in order},
        "labels": {
            name: {
                "pairs": len(of),
                "percent": 100 * len(of) / len(pairs),
                "preserved": of[0].preserved,
                "example": [of[0].reference, of[0].hypothesis],
            }
            for name, of in sorted(labels.items())
            if name
        },
    }
