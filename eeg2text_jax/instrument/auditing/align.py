"""Alignment of conditions: the same sentences, known by their plain words, read by the same subjects, in one mode.

The order of sentences and rows is not that of the files.
"""

import dataclasses
import functools
import itertools
import operator
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from eeg2text_jax.base.errors import UserError
from eeg2text_jax.instrument.auditing import strata
from eeg2text_jax.instrument.auditing.strata import key, words
from eeg2text_jax.instrument.predictions.file import UNKNOWN, Prediction

MIN_PREFIX = 20  # fewest characters of a truncated reference that is matched to the full one
SHUFFLED = "shuffled"
Keyed = tuple[str, Prediction]  # a row with the key of its sentence
KeyedRows = dict[str, list[Keyed]]  # condition -> its rows


@dataclasses.dataclass(frozen=True)
class Condition:
    """The rows of one condition, with the sentence and the training seed of each."""

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
    readers: np.ndarray  # group of the readers of each sentence, int [S]
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
    def alike(self) -> str:
        return "equal task and similar length" if all(self.tasks) else "similar words and length"


def align(
    conditions: Mapping[str, Sequence[Prediction]],
    *,
    mode: str | None = None,
    common: bool = False,
    rows_alike: bool = True,
) -> Aligned:
    """Align conditions over the same sentences, and assign these to strata.

    Args:
      conditions: name -> rows, EEG first.
      mode: the decoding mode to judge; None: one that all conditions have, preferably free-running.
      common: keep the rows that all conditions share instead of refusing conditions that differ.
      rows_alike: whether conditions must have the same rows of a sentence; if not, sentences that all have are kept.

    Raises UserError if conditions cannot be compared, or too few sentences are left.
    """
    notes: list[str] = []
    mode = mode or _preferred(set.intersection(*({row.mode for row in rows} for rows in conditions.values())))
    rows_of = {name: _one_mode(name, list(rows), mode, notes) for name, rows in conditions.items()}
    first, *others = rows_of
    if shortened := sum(_match_shortened(rows_of, first, other) for other in others):
        notes.append(f"{shortened} references end earlier in one file than in the other; the shorter ones count")
    if not rows_alike:
        everywhere = set.intersection(*map(_sentences, rows_of.values()))
        if dropped := len(set().union(*map(_sentences, rows_of.values())) - everywhere):
            notes.append(f"{dropped} sentences are not in all files and are left out")
        rows_of = {name: [pair for pair in pairs if pair[0] in everywhere] for name, pairs in rows_of.items()}
    for other in others:
        _check_same(rows_of, first, other, common or not rows_alike)
    left_out = _keep_shared(rows_of) if common else []
    return _assemble(rows_of, notes, left_out)


def without_unknown(row: Prediction) -> Prediction:
    """Return the row with "" for an unknown subject or task."""
    changes: dict[str, Any] = {name: "" for name in ("subject", "task") if getattr(row, name) == UNKNOWN}
    return dataclasses.replace(row, **changes) if changes else row


def _preferred(modes: set[str]) -> str | None:
    return "free_running" if "free_running" in modes else min(modes, default=None)


def _one_mode(name: str, rows: list[Prediction], mode: str | None, notes: list[str]) -> list[Keyed]:
    """Return the rows of `mode` (None: of the preferred one), and note the others.

    Raises UserError if there are none, a sample occurs twice for one seed, or a reference is empty.
    """
    if not rows:
        raise UserError(f"{name}: holds no predictions; give another file.")
    modes = {row.mode for row in rows}
    mode = mode or _preferred(modes)
    if mode not in modes:
        raise UserError(f"{name}: no {mode} predictions, only {', '.join(sorted(modes))}; choose another --mode.")
    for other in sorted(modes - {mode}):
        note = f"the {mode} predictions are judged; the {other} ones in the same file are ignored"
        if note not in notes:
            notes.append(note)
    rows = [without_unknown(row) for row in rows if row.mode == mode]
    samples = Counter((row.seed, row.sample_id) for row in rows if row.sample_id)
    if twice := [sample for (_, sample), n in samples.items() if n > 1]:
        raise UserError(f"{name}: sample {twice[0]!r} occurs more than once; keep one prediction for each sample.")
    for number, row in enumerate(rows, 1):
        if not row.reference.strip():
            raise UserError(f"{name}: row {number} (sample {row.sample_id!r}) has an empty reference; remove the row.")
    return [(key(row.reference), row) for row in rows]


def _sentences(pairs: Sequence[Keyed]) -> set[str]:
    return {text for text, _ in pairs}


def _match_shortened(rows_of: KeyedRows, first: str, other: str) -> int:
    """Give a reference and its truncated version one key; return the number of such references.

    A text with which two of the other side begin is matched to neither.
    """
    a, b = _sentences(rows_of[first]), _sentences(rows_of[other])
    only_first, only_other = ([text for text in side if len(text) >= MIN_PREFIX] for side in (a - b, b - a))
    pairs = [(x, y) for x in only_first for y in only_other if x.startswith(y) or y.startswith(x)]
    counts = Counter(text for pair in pairs for text in pair)
    clear = [pair for pair in pairs if counts[pair[0]] == counts[pair[1]] == 1]
    same = {text: min(pair, key=len) for pair in clear for text in pair}
    for name, keyed in rows_of.items():
        rows_of[name] = [(same.get(text, text), row) for text, row in keyed]
    return len(clear)


def _readings(rows_of: KeyedRows) -> tuple[dict[str, list[tuple[int, str, str]]], bool]:
    """Return condition -> (seed, sentence key, subject) of each row, and whether all state a subject; else it is ""."""
    stated = all(row.subject for pairs in rows_of.values() for _, row in pairs)
    return {
        name: [(row.seed, text, row.subject if stated else "") for text, row in pairs]
        for name, pairs in rows_of.items()
    }, stated


def _check_same(rows_of: KeyedRows, first: str, other: str, common: bool) -> None:
    """Raise UserError if two conditions share no reference or, unless `common`, differ in rows."""
    a, b = _sentences(rows_of[first]), _sentences(rows_of[other])
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
    readings, with_subject = _readings(pair)
    if Counter(readings[first]) != Counter(readings[other]):
        what = "sentence, subject and seed" if with_subject else "sentence and seed"
        subjects = [sorted({row.subject for _, row in pairs}) for pairs in pair.values()]
        if with_subject and not set(subjects[0]) & set(subjects[1]):
            shown = [", ".join(labels[:3]) + (" ..." if len(labels) > 3 else "") for labels in subjects]
            what += f" (no subject label in common: {' and '.join(shown)})"
        raise UserError(
            f"{first} has {len(rows_of[first])} rows and {other} {len(rows_of[other])}, and they differ in the number "
            f"of rows for some {what}; {remedy}."
        )


def _keep_shared(rows_of: KeyedRows) -> list[tuple[str, int, int]]:
    """Drop rows that some condition lacks; return `Aligned.left_out`."""
    readings, _ = _readings(rows_of)
    shared = functools.reduce(operator.and_, map(Counter, readings.values()))
    if not shared:
        raise UserError(
            "the conditions share no row (same sentence, subject and seed); give files of the same test set."
        )
    left_out = []
    for name, pairs in rows_of.items():
        left, in_all = shared.copy(), []
        # Of surplus rows of a reading the first by their text are kept.
        for pair, reading in sorted(zip(pairs, readings[name], strict=True), key=lambda one: _row_order(one[0][1])):
            if left[reading] > 0:
                left[reading] -= 1
                in_all.append(pair)
        if len(in_all) < len(pairs):
            left_out.append((name, len(pairs) - len(in_all), len(pairs)))
        rows_of[name] = in_all
    return left_out


def _row_order(row: Prediction) -> tuple[int, tuple[str, ...], str]:
    """Order rows of a sentence, not by names of subjects or places in the file."""
    return row.seed, words(row.prediction), row.prediction


def _assemble(rows_of: KeyedRows, notes: list[str], left_out: list[tuple[str, int, int]]) -> Aligned:
    first, order = next(iter(rows_of)), sorted(set().union(*map(_sentences, rows_of.values())))
    # Of several tasks or texts of a sentence the first by the alphabet counts. Plain words are counted: the form of the
    # references does not change the strata.
    tasks_of, texts = defaultdict(set), defaultdict(set)
    for text, row in itertools.chain(*rows_of.values()):
        tasks_of[text].update({row.task} - {""})
        texts[text].add(row.reference)
    tasks = [min(tasks_of[text], default="") for text in order]
    n_words = np.array([float(len(words(text))) for text in order])
    stratum, readers = _strata(rows_of[first], order, tasks, n_words, notes)
    keep = strata.exchangeable(stratum)
    if not keep.all():
        notes.append(f"{(~keep).sum()} sentences are alone in their task; they have no content null and are left out")
    if keep.sum() < strata.MIN_SENTENCES:
        raise UserError(
            f"{first}: has only {keep.sum()} sentences that can be exchanged with each other; at least "
            f"{strata.MIN_SENTENCES} are needed for a test, 30 for a verdict, and about 100 to find small effects."
        )
    sentences = np.flatnonzero(keep).tolist()
    place = {order[old]: new for new, old in enumerate(sentences)}
    seeds = tuple(sorted({row.seed for pairs in rows_of.values() for _, row in pairs}))
    ids = {row.sentence_id: place.get(text, -1) for text, row in itertools.chain(*rows_of.values())}
    return Aligned(
        references=tuple(min(texts[text]) for text in place),
        tasks=tuple(tasks[old] for old in sentences),
        readers=readers[keep],
        n_words=n_words[keep],
        strata=np.unique(strata.divided(stratum[keep], [*place]), return_inverse=True)[1],
        seeds=seeds,
        conditions=tuple(_condition(name, pairs, place, seeds, ids) for name, pairs in rows_of.items()),
        notes=tuple(notes),
        left_out=tuple(left_out),
    )


def _condition(
    name: str, keyed: Sequence[Keyed], place: Mapping[str, int], seeds: tuple[int, ...], ids: Mapping[str, int]
) -> Condition:
    pairs = [(place[text], row) for text, row in keyed if text in place]
    pairs.sort(key=lambda pair: (pair[0], _row_order(pair[1])))
    sentence = np.array([s for s, _ in pairs])
    donor = np.array([ids.get(row.donor, -1) if row.donor else -1 for _, row in pairs])
    seed = np.array([seeds.index(row.seed) for _, row in pairs])
    return Condition(name, tuple(row for _, row in pairs), sentence, seed, np.where(donor == sentence, -1, donor))


def _strata(
    pairs: Sequence[Keyed], order: Sequence[str], tasks: Sequence[str], n_words: np.ndarray, notes: list[str]
) -> tuple[np.ndarray, np.ndarray]:
    """Return the stratum and the group of readers of each sentence, int `[S]`, by EEG's rows."""
    number = {text: index for index, text in enumerate(order)}
    sentence = np.array([number[text] for text, _ in pairs])
    readers = np.zeros(len(order), int)
    if all(row.subject for _, row in pairs):
        readers = strata.reader_groups(sentence, np.unique([row.subject for _, row in pairs], return_inverse=True)[1])
    kinds = np.unique([f"{task}\n{group}" for task, group in zip(tasks, readers, strict=True)], return_inverse=True)[1]
    if not all(tasks):
        clusters, rows = np.zeros(len(order), int), np.bincount(sentence, minlength=len(order))
        for kind in range(kinds.max() + 1):
            members = np.flatnonzero(kinds == kind)
            clusters[members] = strata.text_clusters([order[s] for s in members.tolist()], rows[members])
        kinds = np.unique(np.stack([kinds, clusters]), axis=1, return_inverse=True)[1].ravel()
        notes.append(
            f"the task of {sum(not task for task in tasks)} of {len(order)} sentences is not known: strata are of "
            f"{kinds.max() + 1} clusters of references that share words (state tasks with --meta)"
        )
    if readers.any():
        notes.append(f"{readers.max() + 1} groups of subjects read different sentences; no stratum mixes them")
    return strata.length_strata(kinds, n_words), readers
