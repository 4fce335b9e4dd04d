"""Align conditions: keep the same sentences, read by the same subjects, in one mode."""

import dataclasses
import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

import numpy as np

from eeg2text_jax.auditing.strata import MIN_SENTENCES, STRATUM_SIZE, exchangeable, length_strata, readers_of
from eeg2text_jax.errors import UserError
from eeg2text_jax.predictions.file import Prediction, sentence_key
from eeg2text_jax.predictions.foreign import UNKNOWN

PLAIN = re.compile(r"[\W_]+")
MIN_PREFIX = 20  # characters that a shortened reference must share with the full one


@dataclasses.dataclass(frozen=True)
class Condition:
    """The rows of one condition; `sentence [N]` and `seed [N]` index the sentences and seeds of the alignment."""

    name: str
    rows: tuple[Prediction, ...]
    sentence: np.ndarray
    seed: np.ndarray

    @property
    def mode(self) -> str:
        return self.rows[0].mode

    @property
    def texts(self) -> list[str]:
        return [row.prediction for row in self.rows]


@dataclasses.dataclass(frozen=True)
class Aligned:
    """Conditions (EEG first) over the same `S` sentences, in the order of EEG's file.

    A sentence is a distinct reference text. Its task is empty where no row says it.
    """

    references: tuple[str, ...]
    tasks: tuple[str, ...]
    n_words: np.ndarray  # [S]
    strata: np.ndarray  # [S]
    seeds: tuple[int, ...]
    conditions: tuple[Condition, ...]
    notes: tuple[str, ...]
    shortened: int  # references that differed between conditions only by where they end
    left_out: tuple[tuple[str, int, int], ...]  # condition, rows that others lack, rows: where rows were left out

    @property
    def eeg(self) -> Condition:
        return self.conditions[0]

    @property
    def mode(self) -> str:
        return self.eeg.mode

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
    """Align the conditions, EEG first.

    Args:
      conditions: name -> rows.
      mode: the mode to judge if rows have several; None: a mode common to all, preferably free running.
      common: keep the rows common to all conditions instead of refusing conditions that differ.

    Raises:
      UserError: no rows, a duplicate sample, an empty reference, references or row counts that differ between the
        conditions, or so few sentences that nothing can be tested.
    """
    notes: list[str] = []
    mode = mode or _shared_mode(conditions)
    chosen = {name: _one_mode(name, list(rows), mode, notes) for name, rows in conditions.items()}
    left_out: list[tuple[str, int, int]] = []
    for name, rows in chosen.items():
        _check_rows(name, rows)
    first, *others = chosen
    keys = {name: [sentence_key(row.reference) for row in rows] for name, rows in chosen.items()}
    shortened = sum(_match_shortened(keys, first, other) for other in others)
    for other in others:
        _check_same(chosen, keys, first, other, common)
    if common:
        left_out = _keep_shared(chosen, keys)
    return _assemble(chosen, keys, stratum_size, notes, shortened, left_out)


def _without_unknown(row: Prediction) -> Prediction:
    """Return the row with an empty subject or task if its file does not state it."""
    if UNKNOWN not in (row.subject, row.task):
        return row
    subject, task = ("" if value == UNKNOWN else value for value in (row.subject, row.task))
    return dataclasses.replace(row, subject=subject, task=task)


def _shared_mode(conditions: Mapping[str, Sequence[Prediction]]) -> str | None:
    """Return a mode that every condition has, preferably free running; None if there is none."""
    held = [dict.fromkeys(row.mode for row in rows) for rows in conditions.values()]
    shared = [mode for mode in held[0] if all(mode in modes for modes in held)]
    return "free_running" if "free_running" in shared else next(iter(shared), None)


def _one_mode(name: str, rows: list[Prediction], mode: str | None, notes: list[str]) -> list[Prediction]:
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
    return [_without_unknown(row) for row in rows if row.mode == mode]


def _check_rows(name: str, rows: Sequence[Prediction]) -> None:
    samples = Counter((row.seed, row.sample_id) for row in rows if row.sample_id)
    if twice := [sample for (_, sample), n in samples.items() if n > 1]:
        raise UserError(f"{name}: sample {twice[0]!r} occurs more than once; keep one prediction for each sample.")
    for number, row in enumerate(rows, 1):
        if not row.reference.strip():
            raise UserError(f"{name}: row {number} (sample {row.sample_id!r}) has an empty reference; remove the row.")


def _match_shortened(keys: dict[str, list[str]], first: str, other: str) -> int:
    """Give a reference and its truncated version the same key; return the number of such sentences."""
    only_first, only_other = set(keys[first]) - set(keys[other]), set(keys[other]) - set(keys[first])
    same: dict[str, str] = {}
    for text in only_first:
        partners = [t for t in only_other if _one_begins_the_other(text, t)]
        if len(partners) == 1 and partners[0] not in same:
            short = min(text, partners[0], key=len)
            same[text] = same[partners[0]] = short
    for name, texts in keys.items():
        keys[name] = [same.get(text, text) for text in texts]
    return len(set(same.values()))


def _one_begins_the_other(a: str, b: str) -> bool:
    short, long = sorted((a, b), key=len)
    return len(short) >= MIN_PREFIX and long.startswith(short)


def _cells(rows: Sequence[Prediction], keys: Sequence[str], with_subject: bool) -> Counter:
    return Counter((row.seed, key, row.subject if with_subject else "") for row, key in zip(rows, keys, strict=True))


def _subjects_known(chosen: Mapping[str, Sequence[Prediction]]) -> bool:
    return all(row.subject for rows in chosen.values() for row in rows)


def _check_same(chosen: dict, keys: dict, first: str, other: str, common: bool) -> None:
    a, b = set(keys[first]), set(keys[other])
    if not a & b:
        loosely = [{PLAIN.sub("", text.lower()) for text in side} for side in (a, b)]
        why = (
            "they are equal but for case and punctuation; write both alike"
            if loosely[0] & loosely[1]
            else "they are not predictions of the same sentences"
        )
        raise UserError(f"{first} and {other} share no reference; {why}.")
    if common:
        return
    remedy = "give files of the same test set, or pass --common to judge what they share"
    if a != b:
        missing = next(iter(sorted(a ^ b)))
        raise UserError(
            f"the references differ: {first} has {len(a)} sentences and {other} {len(b)}, of which {len(a & b)} are in "
            f"both (only {first if missing in a else other} has {missing!r:.60}); {remedy}."
        )
    pair = {first: chosen[first], other: chosen[other]}
    with_subject = _subjects_known(pair)
    if _cells(chosen[first], keys[first], with_subject) != _cells(chosen[other], keys[other], with_subject):
        what = "sentence, subject or seed" if with_subject else "sentence or seed"
        subjects = [sorted({row.subject for row in rows}) for rows in pair.values()]
        if with_subject and not set(subjects[0]) & set(subjects[1]):
            what += f" (no subject label in common: {_first(subjects[0])} and {_first(subjects[1])})"
        raise UserError(
            f"{first} has {len(chosen[first])} rows and {other} {len(chosen[other])}, and they differ in the number of "
            f"rows for the same {what}; {remedy}."
        )


def _first(labels: Sequence[str]) -> str:
    return ", ".join(labels[:3]) + (" ..." if len(labels) > 3 else "")


def _keep_shared(chosen: dict[str, list[Prediction]], keys: dict[str, list[str]]) -> list[tuple[str, int, int]]:
    """Keep the rows common to all conditions; return (condition, rows left out, rows) where some were left out."""
    with_subject = _subjects_known(chosen)
    cells = {name: _cells(rows, keys[name], with_subject) for name, rows in chosen.items()}
    shared = cells[next(iter(cells))].copy()
    for counts in cells.values():
        shared &= counts
    if not shared:
        raise UserError(
            "the conditions share no row (same sentence, subject and seed); give files of the same test set."
        )
    left_out = []
    for name, rows in chosen.items():
        left, kept = shared.copy(), []
        for row, key in zip(rows, keys[name], strict=True):
            cell = (row.seed, key, row.subject if with_subject else "")
            if left[cell] > 0:
                left[cell] -= 1
                kept.append((row, key))
        if len(kept) < len(rows):
            left_out.append((name, len(rows) - len(kept), len(rows)))
        chosen[name], keys[name] = [row for row, _ in kept], [key for _, key in kept]
    return left_out


def _assemble(
    chosen: dict, keys: dict, stratum_size: int, notes: list[str], shortened: int, left_out: list[tuple[str, int, int]]
) -> Aligned:
    first = next(iter(chosen))
    order = list(dict.fromkeys(keys[first]))
    tasks, n_words = _describe(chosen, keys, order, notes)
    number = {key: index for index, key in enumerate(order)}
    readers = readers_of(chosen[first], np.array([number[key] for key in keys[first]]), stratum_size)
    if readers.any():
        notes.append(f"{readers.max() + 1} groups of subjects read different sentences: no stratum mixes these groups.")
    strata = length_strata(
        [f"{task}\n{group}" for task, group in zip(tasks, readers, strict=True)], n_words, stratum_size
    )
    keep = exchangeable(strata)
    if not keep.all():
        notes.append(f"{(~keep).sum()} sentences are alone in their task; they have no content null and are left out.")
    if keep.sum() < MIN_SENTENCES:
        raise UserError(
            f"{first}: has only {keep.sum()} sentences that can be exchanged with each other; at least {MIN_SENTENCES} "
            "are needed for a p-value below 0.05, 30 for a verdict, and about 100 for one that finds small effects."
        )
    order = [key for key, kept in zip(order, keep, strict=True) if kept]
    place = {key: index for index, key in enumerate(order)}
    seeds = tuple(sorted({row.seed for row in chosen[first]}))
    conditions = []
    for name, rows in chosen.items():
        pairs = [(row, place[key]) for row, key in zip(rows, keys[name], strict=True) if key in place]
        seed = np.array([seeds.index(row.seed) for row, _ in pairs])
        conditions.append(Condition(name, tuple(row for row, _ in pairs), np.array([s for _, s in pairs]), seed))
    return Aligned(
        references=tuple(order),
        tasks=tuple(task for task, kept in zip(tasks, keep, strict=True) if kept),
        n_words=n_words[keep],
        strata=np.unique(strata[keep], return_inverse=True)[1],
        seeds=seeds,
        conditions=tuple(conditions),
        notes=tuple(notes),
        shortened=shortened,
        left_out=tuple(left_out),
    )


def _describe(chosen: dict, keys: dict, order: Sequence[str], notes: list[str]) -> tuple[list[str], np.ndarray]:
    """Return the task and number of words of each sentence.

    A sentence read in several tasks counts for the alphabetically first. Its number of words is the median over its
    rows, or that of the reference if no row of the file states one.
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
            f"the task is known of {which}: sentences are exchanged with others of equal length, and again within "
            "strata derived from the file's order and from the texts (give --meta with a task column)."
        )
    words = {key: [len(key.split())] for key in order}
    if not all(lengths[key] for key in order):
        lengths = words
    if all(set(lengths[key]) == set(words[key]) for key in order):
        notes.append("strata: number of words of the reference (the rows give no other number of words).")
    return [min(tasks[key], default="") for key in order], np.array([float(np.median(lengths[key])) for key in order])
