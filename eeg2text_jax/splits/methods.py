"""The splitting methods that `config.split.method` and `eeg2text split --method` accept.

(a) to (e) of the splitting paper leak (`papers/003`, section 3.2): (a) shares texts, (b) subjects, (c) texts and
subjects, (d) and (e) subjects and, for overlapping windows, texts. They show the effect of leaks on scores and
reproduce published numbers. (b) shuffles tasks, of which ZuCo has too few; for windows it shuffles text groups, because
tasks may tell the same story. (e) takes consecutive samples. (f) is in `bipartite.py`, `blocks` in `stretches.py`.

`unique_text`: a text is in one part only, whoever read it, in any task or release. `unique_sent` and `unique_subj` are
the authors' own splits, by position in the recordings' lists, as in Wang & Ji's `data.py`.
"""

import dataclasses
import os
import re
from collections.abc import Callable, Sequence

import numpy as np

from eeg2text_jax.data.datafile import DataFile
from eeg2text_jax.errors import UserError, did_you_mean
from eeg2text_jax.splits.bipartite import at_least_one, f
from eeg2text_jax.splits.split import PARTS, Split, check_ratio, normalize, part_sizes
from eeg2text_jax.splits.splitfile import read_split_file
from eeg2text_jax.splits.stretches import blocks


def deal(units: np.ndarray, ratio: tuple[float, float, float], rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Shuffle the distinct values of `units` `[N]` and cut them at `ratio`, no part empty; samples follow units."""
    distinct, group = np.unique(units, return_inverse=True)
    bounds = np.cumsum(at_least_one(len(distinct), ratio))[:-1]
    chosen = np.split(rng.permutation(len(distinct)), bounds)
    return {name: np.flatnonzero(np.isin(group, units)) for name, units in zip(PARTS, chosen, strict=True)}


def by_subject(data: DataFile, ratio: tuple[float, float, float], seed: int) -> Split:
    """(a): all samples of a subject stay together; every text is in every part."""
    return Split.of(data, "a", seed, deal(data.subject.astype(str), ratio, np.random.default_rng(seed)))


def pooled(data: DataFile, ratio: tuple[float, float, float], seed: int) -> Split:
    """(c): samples are independent; texts and subjects are in every part."""
    return Split.of(data, "c", seed, deal(np.arange(len(data)), ratio, np.random.default_rng(seed)))


def by_sentence(data: DataFile, ratio: tuple[float, float, float], seed: int) -> Split:
    """(d): shuffle sentence ids inside each task, the same for all subjects; subjects are in every part.

    A text that two tasks share has two ids and may be in two parts; `unique_text` prevents that.
    """
    rng = np.random.default_rng(seed)
    rows: dict[str, list[np.ndarray]] = {name: [] for name in PARTS}
    for task in np.unique(data.task.astype(str)):
        inside = np.flatnonzero(data.task == task)
        for name, chosen in deal(data.sentence_index[inside], ratio, rng).items():
            rows[name].append(inside[chosen])
    return Split.of(data, "d", seed, {name: np.sort(np.concatenate(lists)) for name, lists in rows.items()})


def by_task(data: DataFile, ratio: tuple[float, float, float], seed: int) -> Split:
    """(b): all samples of a task (of a text group, for windows) stay together; subjects are in every part."""
    units = data.text_group if data.is_windows else data.task
    return Split.of(data, "b", seed, deal(units.astype(str), ratio, np.random.default_rng(seed)))


def by_block(data: DataFile, ratio: tuple[float, float, float], seed: int) -> Split:
    """(e): inside each task one run of consecutive samples is dev and one test, the same for all subjects.

    Overlapping windows share text where the runs meet.
    """
    rng = np.random.default_rng(seed)
    part = np.zeros(len(data), np.int64)
    for task in np.unique(data.task.astype(str)):
        inside = np.flatnonzero(data.task == task)
        places, place = np.unique(data.sentence_index[inside], return_inverse=True)
        train, *others = part_sizes(len(places), ratio)
        cuts = np.sort(rng.integers(0, train + 1, 2))  # how much of train is before the one and before the other
        of_place = np.zeros(len(places), np.int64)
        begin = 0
        for cut, k in zip(np.diff(cuts, prepend=0), rng.permutation([1, 2]), strict=True):
            of_place[begin + cut : begin + cut + others[k - 1]] = k
            begin += cut + others[k - 1]
        part[inside] = of_place[place]
    return Split.of(data, "e", seed, {name: np.flatnonzero(part == k) for k, name in enumerate(PARTS)})


def unique_text(data: DataFile, ratio: tuple[float, float, float], seed: int) -> Split:
    """Shuffle the distinct normalized texts (text groups, for windows) and cut them at `ratio`."""
    if data.is_windows:
        return dataclasses.replace(by_task(data, ratio, seed), method="unique_text")
    texts = np.array([normalize(text) for text in data.sentence])
    return Split.of(data, "unique_text", seed, deal(texts, ratio, np.random.default_rng(seed)))


# The authors' fixed lists for the SR task of ZuCo 1.0; ZDN is left out.
UNIQUE_SUBJ = {
    "train": ("ZAB", "ZDM", "ZGW", "ZJM", "ZJN", "ZJS", "ZKB", "ZKH", "ZKW"),
    "dev": ("ZMG",),
    "test": ("ZPH",),
}
_SR = re.compile(r"(^|[^A-Z])SR([^A-Z]|$)")


def sentences_per_task(data: DataFile) -> dict[str, int]:
    """Return the number of sentences of every task, including sentences that were dropped for all subjects.

    The number is the maximum over subjects of the sentence counts in the data file's provenance (`sentences`: task ->
    subject -> count), or the largest sentence index plus 1 if that is larger or no count is stated. The split's
    authors use the first subject's count, and their code fails if another subject has fewer sentences.
    """
    stated = data.provenance.get("sentences")
    by_subject = stated if isinstance(stated, dict) else {}
    counts = {}
    for task in np.unique(data.task.astype(str)).tolist():
        occurring = int(data.sentence_index[data.task == task].max()) + 1
        counts[task] = max([occurring, *by_subject.get(task, {}).values()])
    return counts


def unique_sent(data: DataFile, ratio: tuple[float, float, float], seed: int) -> Split:
    """In each task the first sentences train, the next are dev, the last test; nothing is shuffled.

    It is unique by position only: ZuCo's NR and TSR share 47 sentences, so test texts of one task train in another.
    """
    part = np.empty(len(data), np.int64)
    for task, n in sentences_per_task(data).items():
        inside = data.task == task
        bounds = np.cumsum(part_sizes(n, ratio))[:-1]
        part[inside] = np.searchsorted(bounds, data.sentence_index[inside], side="right")
    return Split.of(data, "unique_sent", seed, {name: np.flatnonzero(part == k) for k, name in enumerate(PARTS)})


def unique_subj(data: DataFile, ratio: tuple[float, float, float], seed: int) -> Split:
    """Split SR of ZuCo 1.0 by fixed subjects, without ZDN and other tasks. Ignores `ratio`.

    Raises UserError if the data file has no SR task, or a part has none of its subjects.
    """
    tasks = np.unique(data.task.astype(str)).tolist()
    sr = [task for task in tasks if _SR.search(task)]
    if not sr:
        raise UserError(
            f"{data.path}: split 'unique_subj' is defined for task SR of ZuCo 1.0 only, "
            f"found {', '.join(tasks)}; use split.method=a or f."
        )
    inside = np.isin(data.task.astype(str), sr)
    parts = {name: np.flatnonzero(inside & np.isin(data.subject.astype(str), who)) for name, who in UNIQUE_SUBJ.items()}
    for name, rows in parts.items():
        if not len(rows):
            raise UserError(
                f"{data.path}: split 'unique_subj' needs SR samples of {' or '.join(UNIQUE_SUBJ[name])} in its {name} "
                "part, found none; use split.method=a or f for other subjects."
            )
    return Split.of(data, "unique_subj", seed, parts)


METHODS: dict[str, Callable[..., Split]] = {
    "unique_text": unique_text,
    "unique_sent": unique_sent,
    "unique_subj": unique_subj,
    "a": by_subject,
    "b": by_task,
    "c": pooled,
    "d": by_sentence,
    "e": by_block,
    "f": f,
    "blocks": blocks,
}
FROM_FILE = "file"  # the parts that a split file names


def make_split(
    data: DataFile,
    method: str,
    ratio: Sequence[float],
    seed: int,
    path: str | os.PathLike[str] = "",
    gap: float = 0.0,
    unique_subjects: bool = False,
) -> Split:
    """Divide the samples of a data file.

    Args:
      data: the samples.
      method: a name in `METHODS`, or "file" for the parts that the file at `path` names.
      ratio: shares of train, dev and test, of the units that the method shuffles.
      seed: the only source of randomness.
      path: a certificate or another split file; only for method "file".
      gap: seconds left out between parts; only for method "blocks".
      unique_subjects: give parts disjoint subjects; only for method "blocks".

    Raises:
      UserError: an unknown method, a bad ratio, an empty part, or a split file that does not fit the data.

    Examples:
      >>> from eeg2text_jax import make_split, read_datafile
      >>> split = make_split(read_datafile("own.h5"), "unique_text", (0.75, 0.125, 0.125), seed=0)
      >>> {name: len(rows) for name, rows in split.parts.items()}
      {'train': 48, 'dev': 8, 'test': 8}
    """
    if method == FROM_FILE:
        if not path:
            raise UserError("split.method=file needs split.path, a certificate or split file in JSON.")
        return read_split_file(path).resolve(data)
    if method not in METHODS:
        hint = did_you_mean(method, [*METHODS, FROM_FILE])
        raise UserError(f"split.method: there is no splitting method {method!r}; {hint}")
    options = {"gap": gap, "unique_subjects": unique_subjects} if method == "blocks" else {}
    return METHODS[method](data, check_ratio(tuple(ratio)), seed, **options)
