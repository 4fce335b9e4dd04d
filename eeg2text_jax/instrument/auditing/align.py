"""Alignment of conditions: the same sentences, read by the same subjects, decoded in one mode.

Aligned conditions are a function of the set of rows: sentences and rows have an order of their own, and sentences are
known by their plain words.
"""

import dataclasses
import functools
import operator
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from eeg2text_jax.base.errors import UserError
from eeg2text_jax.instrument.auditing.strata import (
    MIN_SENTENCES,
    divided,
    exchangeable,
    key,
    length_strata,
    reader_groups,
    text_clusters,
    words,
)
from eeg2text_jax.instrument.predictions.file import UNKNOWN, Prediction

MIN_PREFIX = 20  # fewest characters of a truncated reference that is matched to the full one
SHUFFLED = "shuffled"
Chosen = dict[str, list[Prediction]]  # condition -> its rows
Keys = dict[str, list[str]]  # condition -> the sentence key of each row


@dataclasses.dataclass(frozen=True)
class Condition:
    """The rows (predictions) of one condition, with the sentence and the training seed of each row."""

    name: str
    rows: tuple[Prediction, ...]
    sentence: np.ndarray  # int [N], index in `Aligned.references`; ascending
    seed: np.ndarray  # int [N], index in `Aligned.seeds`
    donor: np.ndarray  # int [N], the other sentence whose recording was the row's input; -1: none, or not judged

    @property
    def mode(self) -> str:
        return self.rows[0].mode

    @property
    def texts(self) -> list[str]:
        return [row.prediction for row in self.rows]

    @property
    def subjects(self) -> list[str]:
        return [row.subject for row in self.rows]


@dataclasses.dataclass(frozen=True)
class Aligned:
    """Conditions over the same `S` sentences (distinct references), sorted by their plain words."""

    references: tuple[str, ...]
    tasks: tuple[str, ...]  # task of each sentence; "" if no row states it
    readers: np.ndarray  # group of subjects who read each sentence, int [S]
    n_words: np.ndarray  # number of words of each sentence, [S]
    strata: np.ndarray  # stratum (set of exchangeable sentences) of each sentence, int [S]
    seeds: tuple[int, ...]
    conditions: tuple[Condition, ...]  # EEG first
    notes: tuple[str, ...]
    left_out: tuple[tuple[str, int, int], ...]  # (name, rows left out, all rows) of conditions that lost rows

    @property
    def eeg(self) -> Condition:
        return self.conditions[0]

    @property
    def task_known(self) -> bool:
        return all(self.tasks)

    @property
    def alike(self) -> str:
        """What the sentences of a stratum have in common, in words."""
        return "equal task and similar length" if self.task_known else "similar words and length"


def align(
    conditions: Mapping[str, Sequence[Prediction]],
    *,
    mode: str | None = None,
    common: bool = False,
    rows_alike: bool = True,
) -> Aligned:
    """Align conditions over the same sentences, and assign the sentences to strata.

    Args:
      conditions: name -> rows, EEG first.
      mode: the decoding mode to judge; None: a mode that all conditions have, preferably free-running.
      common: keep the rows that all conditions share instead of refusing conditions that differ.
      rows_alike: whether conditions must have the same rows of a sentence; if not, sentences that all have are kept.

    Raises:
      UserError: no rows, a duplicate sample, an empty reference, conditions with different references or numbers of
        rows, or too few sentences to test.
    """
    notes: list[str] = []
    mode = mode or _shared_mode(conditions)
    rows_of = {name: _one_mode(name, list(rows), mode, notes) for name, rows in conditions.items()}
    for name, rows in rows_of.items():
        _check_rows(name, rows)
    first, *others = rows_of
    keys = {name: [key(row.reference) for row in rows] for name, rows in rows_of.items()}
    if shortened := sum(_match_shortened(keys, first, other) for other in others):
        notes.append(f"{shortened} references end earlier in one file than in the other; the shorter ones count")
    if not rows_alike:
        _keep_sentences(rows_of, keys, notes)
    for other in others:
        _check_same(rows_of, keys, first, other, common or not rows_alike)
    left_out = _keep_shared(rows_of, keys) if common else []
    return _assemble(rows_of, keys, notes, left_out)


def without_unknown(row: Prediction) -> Prediction:
    """Return the row; a subject or task that its file does not state becomes ""."""
    changes: dict[str, Any] = {name: "" for name in ("subject", "task") if getattr(row, name) == UNKNOWN}
    return dataclasses.replace(row, **changes) if changes else row


def _shared_mode(conditions: Mapping[str, Sequence[Prediction]]) -> str | None:
    """Return a decoding mode that every condition has, preferably free-running; None if there is none."""
    modes = [{row.mode for row in rows} for rows in conditions.values()]
    shared = sorted(set.intersection(*modes))
    return "free_running" if "free_running" in shared else next(iter(shared), None)


def _one_mode(name: str, rows: list[Prediction], mode: str | None, notes: list[str]) -> list[Prediction]:
    """Return the rows of `mode` (None: free-running, else the first mode); add a note on each other mode to `notes`."""
    if not rows:
        raise UserError(f"{name}: holds no predictions; give another file.")
    counts = Counter(row.mode for row in rows)
    if mode is None:
        mode = "free_running" if "free_running" in counts else min(counts)
    if mode not in counts:
        raise UserError(f"{name}: no {mode} predictions, only {', '.join(sorted(counts))}; choose another --mode.")
    for other in sorted(counts.keys() - {mode}):
        note = f"the {mode} predictions are judged; the {other} ones in the same file are ignored"
        if note not in notes:
            notes.append(note)
    return [without_unknown(row) for row in rows if row.mode == mode]


def _check_rows(name: str, rows: Sequence[Prediction]) -> None:
    """Raise UserError if a sample occurs twice for one seed, or a reference is empty."""
    samples = Counter((row.seed, row.sample_id) for row in rows if row.sample_id)
    if twice := [sample for (_, sample), n in samples.items() if n > 1]:
        raise UserError(f"{name}: sample {twice[0]!r} occurs more than once; keep one prediction for each sample.")
    for number, row in enumerate(rows, 1):
        if not row.reference.strip():
            raise UserError(f"{name}: row {number} (sample {row.sample_id!r}) has an empty reference; remove the row.")


def _match_shortened(keys: Keys, first: str, other: str) -> int:
    """Give a reference and its truncated version the same key in `keys`; return the number of such references.

    A text with which two texts of the other side begin is matched to neither.
    """
    a, b = set(keys[first]), set(keys[other])
    only_first, only_other = ([text for text in side if len(text) >= MIN_PREFIX] for side in (a - b, b - a))
    pairs = [(x, y) for x in only_first for y in only_other if x.startswith(y) or y.startswith(x)]
    counts = Counter(text for pair in pairs for text in pair)
    clear = [pair for pair in pairs if counts[pair[0]] == counts[pair[1]] == 1]
    same = {text: min(pair, key=len) for pair in clear for text in pair}
    for name, texts in keys.items():
        keys[name] = [same.get(text, text) for text in texts]
    return len(set(same.values()))


def _readings(rows_of: Chosen, keys: Keys) -> tuple[dict[str, list[tuple[int, str, str]]], bool]:
    """Return condition -> (seed, sentence key, subject) of each row, and whether every row states its subject.

    If a row does not, all subjects are "".
    """
    stated = all(row.subject for rows in rows_of.values() for row in rows)
    readings = {
        name: [(row.seed, text, row.subject if stated else "") for row, text in zip(rows, keys[name], strict=True)]
        for name, rows in rows_of.items()
    }
    return readings, stated


def _check_same(rows_of: Chosen, keys: Keys, first: str, other: str, common: bool) -> None:
    """Raise UserError if two conditions share no reference or, unless `common`, differ in references or row counts."""
    a, b = set(keys[first]), set(keys[other])
    if not a & b:
        raise UserError(f"{first} and {other} share no reference; they are not predictions of the same sentences.")
    if common:
        return
    remedy = "give predictions of the same test set, or judge what they share with --common (in Python common=True)"
    if a != b:
        missing = min(a ^ b)
        raise UserError(
            f"the references differ: {first} has {len(a)} sentences and {other} {len(b)}, of which {len(a & b)} are in "
            f"both (only {first if missing in a else other} has {missing!r:.60}); {remedy}."
        )
    pair = {first: rows_of[first], other: rows_of[other]}
    readings, with_subject = _readings(pair, keys)
    if Counter(readings[first]) != Counter(readings[other]):
        what = "sentence, subject and seed" if with_subject else "sentence and seed"
        subjects = [sorted({row.subject for row in rows}) for rows in pair.values()]
        if with_subject and not set(subjects[0]) & set(subjects[1]):
            shown = [", ".join(labels[:3]) + (" ..." if len(labels) > 3 else "") for labels in subjects]
            what += f" (no subject label in common: {' and '.join(shown)})"
        raise UserError(
            f"{first} has {len(rows_of[first])} rows and {other} {len(rows_of[other])}, and they differ in the number "
            f"of rows for some {what}; {remedy}."
        )


def _keep_sentences(rows_of: Chosen, keys: Keys, notes: list[str]) -> None:
    """Drop the rows of sentences that some condition lacks; add a note on their number to `notes`."""
    everywhere = set.intersection(*map(set, keys.values()))
    if dropped := len(set().union(*keys.values()) - everywhere):
        notes.append(f"{dropped} sentences are not in all files and are left out")
    for name, texts in keys.items():
        rows_of[name] = [row for row, text in zip(rows_of[name], texts, strict=True) if text in everywhere]
        keys[name] = [text for text in texts if text in everywhere]


def _keep_shared(rows_of: Chosen, keys: Keys) -> list[tuple[str, int, int]]:
    """Drop rows that some condition lacks; return (name, rows dropped, rows before) of conditions that lost rows."""
    readings, _ = _readings(rows_of, keys)
    shared = functools.reduce(operator.and_, map(Counter, readings.values()))
    if not shared:
        raise UserError(
            "the conditions share no row (same sentence, subject and seed); give files of the same test set."
        )
    left_out = []
    for name, rows in rows_of.items():
        left, shared_rows = shared.copy(), []
        # If a condition has more rows of a reading than the others, the first by their text are kept.
        for row, reading in sorted(zip(rows, readings[name], strict=True), key=lambda pair: _row_order(pair[0])):
            if left[reading] > 0:
                left[reading] -= 1
                shared_rows.append((row, reading[1]))
        if len(shared_rows) < len(rows):
            left_out.append((name, len(rows) - len(shared_rows), len(rows)))
        rows_of[name], keys[name] = map(list, zip(*shared_rows, strict=True))
    return left_out


def _row_order(row: Prediction) -> tuple[int, tuple[str, ...], str]:
    """Order rows of a sentence by seed and text, not by names of subjects or places in the file."""
    return row.seed, words(row.prediction), row.prediction


def _assemble(rows_of: Chosen, keys: Keys, notes: list[str], left_out: list[tuple[str, int, int]]) -> Aligned:
    """Assign sentences to strata, drop sentences that are alone in their stratum, and return the aligned conditions."""
    first, order = next(iter(rows_of)), sorted(set().union(*map(set, keys.values())))
    tasks, n_words, shown = _describe(rows_of, keys, order, notes)
    strata, readers = _strata(rows_of[first], keys[first], order, tasks, n_words, notes)
    keep = exchangeable(strata)
    if not keep.all():
        notes.append(f"{(~keep).sum()} sentences are alone in their task; they have no content null and are left out")
    if keep.sum() < MIN_SENTENCES:
        raise UserError(
            f"{first}: has only {keep.sum()} sentences that can be exchanged with each other; at least {MIN_SENTENCES} "
            "are needed for a test, 30 for a verdict, and about 100 to find small effects."
        )
    sentences = np.flatnonzero(keep).tolist()
    place = {order[old]: new for new, old in enumerate(sentences)}
    seeds = tuple(sorted({row.seed for rows in rows_of.values() for row in rows}))
    ids = {row.sentence_id: place.get(text, -1) for n in rows_of for row, text in zip(rows_of[n], keys[n], strict=True)}
    return Aligned(
        references=tuple(shown[order[old]] for old in sentences),
        tasks=tuple(tasks[old] for old in sentences),
        readers=readers[keep],
        n_words=n_words[keep],
        strata=np.unique(divided(strata[keep], [order[old] for old in sentences]), return_inverse=True)[1],
        seeds=seeds,
        conditions=tuple(_condition(name, rows, keys[name], place, seeds, ids) for name, rows in rows_of.items()),
        notes=tuple(notes),
        left_out=tuple(left_out),
    )


def _condition(
    name: str,
    rows: Sequence[Prediction],
    keys: Sequence[str],
    place: Mapping[str, int],
    seeds: tuple[int, ...],
    ids: Mapping[str, int],
) -> Condition:
    pairs = [(place[text], row) for row, text in zip(rows, keys, strict=True) if text in place]
    pairs.sort(key=lambda pair: (pair[0], _row_order(pair[1])))
    sentence = np.array([s for s, _ in pairs])
    donor = np.array([ids.get(row.donor, -1) if row.donor else -1 for _, row in pairs])
    seed = np.array([seeds.index(row.seed) for _, row in pairs])
    return Condition(name, tuple(row for _, row in pairs), sentence, seed, np.where(donor == sentence, -1, donor))


def _strata(
    rows: Sequence[Prediction],
    keys: Sequence[str],
    order: Sequence[str],
    tasks: Sequence[str],
    n_words: np.ndarray,
    notes: list[str],
) -> tuple[np.ndarray, np.ndarray]:
    """Return the stratum and the group of readers of each sentence, int `[S]`; `rows` and `keys` are EEG's."""
    number = {text: index for index, text in enumerate(order)}
    sentence = np.array([number[text] for text in keys])
    readers = np.zeros(len(order), int)
    if all(row.subject for row in rows):
        subject = np.unique([row.subject for row in rows], return_inverse=True)[1]
        readers = reader_groups(sentence, subject)
    kinds = np.unique([f"{task}\n{group}" for task, group in zip(tasks, readers, strict=True)], return_inverse=True)[1]
    if not all(tasks):
        clusters, rows = np.zeros(len(order), int), np.bincount(sentence, minlength=len(order))
        for kind in range(kinds.max() + 1):
            members = np.flatnonzero(kinds == kind)
            clusters[members] = text_clusters([order[s] for s in members.tolist()], rows[members])
        kinds = np.unique(np.stack([kinds, clusters]), axis=1, return_inverse=True)[1].ravel()
        notes.append(
            f"the task of {sum(not task for task in tasks)} of {len(order)} sentences is not known: strata are of "
            f"{kinds.max() + 1} clusters of references that share words (state tasks with --meta)"
        )
    if readers.any():
        notes.append(f"{readers.max() + 1} groups of subjects read different sentences; no stratum mixes them")
    return length_strata(kinds, n_words), readers


def _describe(
    rows_of: Chosen, keys: Keys, order: Sequence[str], notes: list[str]
) -> tuple[list[str], np.ndarray, dict[str, str]]:
    """Return the task and the number of words of each sentence, and key -> text of the sentence.

    Of several tasks or texts the first by the alphabet counts. Words are counted in plain text, so the form of the
    references doesn't change the strata.
    """
    tasks, texts = defaultdict(set), defaultdict(set)
    for name, rows in rows_of.items():
        for row, text in zip(rows, keys[name], strict=True):
            tasks[text].update({row.task} - {""})
            texts[text].add(row.reference)
    return (
        [min(tasks[text], default="") for text in order],
        np.array([float(len(words(text))) for text in order]),
        {text: min(texts[text]) for text in order},
    )
