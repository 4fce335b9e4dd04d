"""Alignment of conditions: the same sentences, read by the same subjects, decoded in one mode."""

import dataclasses
import functools
import itertools
import operator
import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from eeg2text_jax.auditing.strata import MIN_SENTENCES, STRATUM_SIZE, exchangeable, length_strata, readers_of
from eeg2text_jax.errors import UserError
from eeg2text_jax.predictions.file import Prediction, sentence_key
from eeg2text_jax.predictions.foreign import UNKNOWN

NOT_LETTERS = re.compile(r"[\W_]+")
MIN_PREFIX = 20  # fewest characters of a truncated reference that is matched to the full one
Chosen = dict[str, list[Prediction]]  # condition -> its rows
Keys = dict[str, list[str]]  # condition -> the sentence key of each row


@dataclasses.dataclass(frozen=True)
class Condition:
    """The rows (predictions) of one condition, with the sentence and the training seed of each row."""

    name: str
    rows: tuple[Prediction, ...]
    sentence: np.ndarray  # int [N], index in `Aligned.references`
    seed: np.ndarray  # int [N], index in `Aligned.seeds`

    @property
    def mode(self) -> str:
        return self.rows[0].mode

    @property
    def texts(self) -> list[str]:
        return [row.prediction for row in self.rows]

    def by_sentence(self) -> list[list[int]]:
        """Return for each sentence the list of the indices of its rows."""
        order = np.argsort(self.sentence, kind="stable")
        return [rows.tolist() for rows in np.split(order, np.cumsum(np.bincount(self.sentence))[:-1])]


@dataclasses.dataclass(frozen=True)
class Aligned:
    """Conditions over the same `S` sentences (distinct reference texts), in the order of EEG's file."""

    references: tuple[str, ...]
    tasks: tuple[str, ...]  # task of each sentence; "" if no row states it
    n_words: np.ndarray  # number of words of each sentence, [S]
    strata: np.ndarray  # stratum (set of exchangeable sentences) of each sentence, int [S]
    seeds: tuple[int, ...]
    conditions: tuple[Condition, ...]  # EEG first
    notes: tuple[str, ...]
    shortened: int  # number of references that are truncated in one condition
    left_out: tuple[tuple[str, int, int], ...]  # (name, rows left out, all rows) of conditions that lost rows
    reader_groups: int  # groups of subjects who read different sentences; no stratum mixes them

    @property
    def eeg(self) -> Condition:
        return self.conditions[0]

    @property
    def task_known(self) -> bool:
        return all(self.tasks)


def align(
    conditions: Mapping[str, Sequence[Prediction]],
    *,
    mode: str | None = None,
    common: bool = False,
    stratum_size: int = STRATUM_SIZE,
) -> Aligned:
    """Align conditions over the same sentences, and assign the sentences to strata.

    Args:
      conditions: name -> rows, EEG first.
      mode: the decoding mode to judge; None: a mode that all conditions have, preferably free-running.
      common: keep the rows that all conditions share instead of refusing conditions that differ.
      stratum_size: number of sentences in a stratum.

    Raises:
      UserError: no rows, a duplicate sample, an empty reference, conditions with different references or numbers of
        rows, or too few sentences to test.
    """
    notes: list[str] = []
    mode = mode or _shared_mode(conditions)
    chosen = {name: _one_mode(name, list(rows), mode, notes) for name, rows in conditions.items()}
    for name, rows in chosen.items():
        _check_rows(name, rows)
    first, *others = chosen
    keys = {name: [sentence_key(row.reference) for row in rows] for name, rows in chosen.items()}
    shortened = sum(_match_shortened(keys, first, other) for other in others)
    for other in others:
        _check_same(chosen, keys, first, other, common)
    left_out = _keep_shared(chosen, keys) if common else []
    return _assemble(chosen, keys, stratum_size, notes, shortened, left_out)


def without_unknown(row: Prediction) -> Prediction:
    """Return the row; a subject or task that its file does not state becomes ""."""
    changes: dict[str, Any] = {name: "" for name in ("subject", "task") if getattr(row, name) == UNKNOWN}
    return dataclasses.replace(row, **changes) if changes else row


def _shared_mode(conditions: Mapping[str, Sequence[Prediction]]) -> str | None:
    """Return a decoding mode that every condition has, preferably free-running; None if there is none."""
    modes = [dict.fromkeys(row.mode for row in rows) for rows in conditions.values()]
    shared = [mode for mode in modes[0] if all(mode in others for others in modes)]
    return "free_running" if "free_running" in shared else next(iter(shared), None)


def _one_mode(name: str, rows: list[Prediction], mode: str | None, notes: list[str]) -> list[Prediction]:
    """Return the rows of `mode` (None: free-running, else the first mode); add a note on each other mode to `notes`."""
    if not rows:
        raise UserError(f"{name}: holds no predictions; give another file.")
    counts = Counter(row.mode for row in rows)
    if mode is None:
        mode = "free_running" if "free_running" in counts else next(iter(counts))
    if mode not in counts:
        raise UserError(f"{name}: no {mode} predictions, only {', '.join(counts)}; choose another --mode.")
    for other in counts.keys() - {mode}:
        note = f"the {mode} predictions are judged; the {other} ones in the same file are ignored."
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
    """Give a reference and its truncated version the same key in `keys`; return the number of such references."""
    a, b = set(keys[first]), set(keys[other])
    only_first, only_other = ([text for text in side if len(text) >= MIN_PREFIX] for side in (a - b, b - a))
    same: dict[str, str] = {}
    for text in only_first:
        partners = [partner for partner in only_other if text.startswith(partner) or partner.startswith(text)]
        if len(partners) == 1 and partners[0] not in same:
            same[text] = same[partners[0]] = min(text, partners[0], key=len)
    for name, texts in keys.items():
        keys[name] = [same.get(text, text) for text in texts]
    return len(set(same.values()))


def _readings(chosen: Chosen, keys: Keys) -> tuple[dict[str, list[tuple[int, str, str]]], bool]:
    """Return condition -> (seed, sentence key, subject) of each row, and whether every row states its subject.

    If a row does not, all subjects are "".
    """
    known = all(row.subject for rows in chosen.values() for row in rows)
    readings = {
        name: [(row.seed, key, row.subject if known else "") for row, key in zip(rows, keys[name], strict=True)]
        for name, rows in chosen.items()
    }
    return readings, known


def _check_same(chosen: Chosen, keys: Keys, first: str, other: str, common: bool) -> None:
    """Raise UserError if two conditions share no reference or, unless `common`, differ in references or row counts."""
    a, b = set(keys[first]), set(keys[other])
    if not a & b:
        loosely = [{NOT_LETTERS.sub("", text.lower()) for text in side} for side in (a, b)]
        why = (
            "some references differ only in case and punctuation; write them alike"
            if loosely[0] & loosely[1]
            else "they are not predictions of the same sentences"
        )
        raise UserError(f"{first} and {other} share no reference; {why}.")
    if common:
        return
    remedy = "give predictions of the same test set, or pass --common to judge what they share"
    if a != b:
        missing = min(a ^ b)
        raise UserError(
            f"the references differ: {first} has {len(a)} sentences and {other} {len(b)}, of which {len(a & b)} are in "
            f"both (only {first if missing in a else other} has {missing!r:.60}); {remedy}."
        )
    pair = {first: chosen[first], other: chosen[other]}
    readings, with_subject = _readings(pair, keys)
    if Counter(readings[first]) != Counter(readings[other]):
        what = "sentence, subject and seed" if with_subject else "sentence and seed"
        subjects = [sorted({row.subject for row in rows}) for rows in pair.values()]
        if with_subject and not set(subjects[0]) & set(subjects[1]):
            shown = [", ".join(labels[:3]) + (" ..." if len(labels) > 3 else "") for labels in subjects]
            what += f" (no subject label in common: {' and '.join(shown)})"
        raise UserError(
            f"{first} has {len(chosen[first])} rows and {other} {len(chosen[other])}, and they differ in the number of "
            f"rows for some {what}; {remedy}."
        )


def _keep_shared(chosen: Chosen, keys: Keys) -> list[tuple[str, int, int]]:
    """Drop rows that some condition lacks; return (name, rows dropped, rows before) of conditions that lost rows."""
    readings, _ = _readings(chosen, keys)
    shared = functools.reduce(operator.and_, map(Counter, readings.values()))
    if not shared:
        raise UserError(
            "the conditions share no row (same sentence, subject and seed); give files of the same test set."
        )
    left_out = []
    for name, rows in chosen.items():
        left, kept = shared.copy(), []
        for row, reading in zip(rows, readings[name], strict=True):
            if left[reading] > 0:
                left[reading] -= 1
                kept.append((row, reading[1]))
        if len(kept) < len(rows):
            left_out.append((name, len(rows) - len(kept), len(rows)))
        chosen[name], keys[name] = map(list, zip(*kept, strict=True))
    return left_out


def _assemble(
    chosen: Chosen,
    keys: Keys,
    stratum_size: int,
    notes: list[str],
    shortened: int,
    left_out: list[tuple[str, int, int]],
) -> Aligned:
    """Assign sentences to strata, drop sentences that are alone in their stratum, and return the aligned conditions."""
    first = next(iter(chosen))
    order = list(dict.fromkeys(keys[first]))
    tasks, n_words = _describe(chosen, keys, order, notes)
    number = {key: index for index, key in enumerate(order)}
    readers = readers_of(chosen[first], np.array([number[key] for key in keys[first]]), stratum_size)
    reader_groups = int(readers.max()) + 1
    if reader_groups > 1:
        notes.append(f"{reader_groups} groups of subjects read different sentences: no stratum mixes these groups.")
    strata = length_strata(
        [f"{task}\n{group}" for task, group in zip(tasks, readers, strict=True)], n_words, stratum_size
    )
    keep = exchangeable(strata)
    if not keep.all():
        notes.append(f"{(~keep).sum()} sentences are alone in their task; they have no content null and are left out.")
    if keep.sum() < MIN_SENTENCES:
        raise UserError(
            f"{first}: has only {keep.sum()} sentences that can be exchanged with each other; at least {MIN_SENTENCES} "
            "are needed for a test, 30 for a verdict, and about 100 to find small effects."
        )
    order = list(itertools.compress(order, keep))
    place = {key: index for index, key in enumerate(order)}
    seeds = tuple(sorted({row.seed for row in chosen[first]}))
    conditions = []
    for name, rows in chosen.items():
        pairs = [(row, place[key]) for row, key in zip(rows, keys[name], strict=True) if key in place]
        kept, sentence = zip(*pairs, strict=True)
        seed = np.array([seeds.index(row.seed) for row in kept])
        conditions.append(Condition(name, kept, np.array(sentence), seed))
    return Aligned(
        references=tuple(order),
        tasks=tuple(itertools.compress(tasks, keep)),
        n_words=n_words[keep],
        strata=np.unique(strata[keep], return_inverse=True)[1],
        seeds=seeds,
        conditions=tuple(conditions),
        notes=tuple(notes),
        shortened=shortened,
        left_out=tuple(left_out),
        reader_groups=reader_groups,
    )


def _describe(chosen: Chosen, keys: Keys, order: Sequence[str], notes: list[str]) -> tuple[list[str], np.ndarray]:
    """Return the task and the number of words of each sentence.

    Of several tasks the alphabetically first counts. The number of words is the median over the rows of the sentence.
    If any sentence has no row with a number of words, the words of all references are counted instead.
    """
    tasks, lengths = defaultdict(set), defaultdict(list)
    for name, rows in chosen.items():
        for row, key in zip(rows, keys[name], strict=True):
            tasks[key].update({row.task} - {""})
            if row.n_words > 0:
                lengths[key].append(row.n_words)
    if unknown := sum(not tasks[key] for key in order):
        which = "no sentence" if unknown == len(order) else f"only {len(order) - unknown} of {len(order)} sentences"
        notes.append(
            f"the task is known for {which}: the test exchanges sentences of equal length, and is repeated within "
            "strata derived from the file's order and from the texts (to state tasks, give --meta with a task column)."
        )
    words = {key: [len(key.split())] for key in order}
    if not all(lengths[key] for key in order):
        lengths = words
    if all(set(lengths[key]) == set(words[key]) for key in order):
        notes.append("strata: number of words of the reference (the rows give no other number of words).")
    return [min(tasks[key], default="") for key in order], np.array([float(np.median(lengths[key])) for key in order])
