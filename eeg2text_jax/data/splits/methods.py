"""The splitting methods of `config.split.method`, and folds: splits whose test parts hold every text once.

Methods (a) to (e) of the splitting paper leak (`papers/003`, section 3.2): they show what leaks do to scores, and
reproduce published numbers. `unique_sent` and `unique_subj` are of Wang & Ji's `data.py`.
"""

import functools
import os
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.random import Generator

from eeg2text_jax.base.errors import UserError, did_you_mean
from eeg2text_jax.base.kinds import shares
from eeg2text_jax.data.clock import NO_TIME, Clock, known_clock, sessions_of, stretches
from eeg2text_jax.data.datafile import DataFile
from eeg2text_jax.data.splits.split import PARTS, Split, part_sizes, read_split_file, text_units

LEFT_OUT = NONE = -1  # no part: a discarded sample or edge; a node without one yet
TRAIN, DEV, TEST = range(3)  # indices into `PARTS`

# Method (f): no subject and no text is in two parts (`papers/003`, section 3.3 and appendix B, corrected).
#
# Samples are the edges of a bipartite graph of subjects and texts (for windows, text groups). The paper's pseudo-code
# leaks: its extension step tests only one endpoint of an edge and does not record the other; here both are tested. For
# EEG, each text picks a subject, as the paper's prose and array C of Algorithm 1 say. For windows the paper says two
# things, and both are methods: in `f` each subject picks a story (C and the matrix of Algorithm 2), in `f_prose` each
# story a subject, which keeps fewer samples (of Narratives 83.9 % of the windows, not 88.2 %, means of 20 seeds).

ORDER = (TEST, DEV, TRAIN)  # of parts that claim edges; with train first, dev and test would get hardly any


def f(data: DataFile, ratio: Sequence[float], rng: Generator, name: str = "f") -> np.ndarray:
    """Return the part of each sample by method (f), or `name` = "f_prose".

    A full grid of 12 subjects and 12 texts (cut 9/1/2) keeps (81 + 1 + 4) / 144 = 59.7% of the samples. The ratio
    divides the subjects; of windows the stories (text groups), unless there are more stories than subjects.
    """
    subjects, subject = np.unique(data.subject.astype(str), return_inverse=True)
    names, text = np.unique(text_units(data), return_inverse=True)
    check_enough(data, f"split '{name}'", "subjects", len(subjects))
    if data.is_windows:
        check_enough(data, f"split '{name}'", "stories", len(names), "text groups")
    stories_are_fewer = data.is_windows and len(names) <= len(subjects)
    if stories_are_fewer and name == "f":
        return split_graph(text, subject, ratio, rng, cut="u")
    return split_graph(subject, text, ratio, rng, cut="v" if stories_are_fewer else "u")


def check_enough(data: DataFile, setting: str, what: str, n: int, units: str = "of them") -> None:
    if n < len(PARTS):
        raise UserError(
            f"{data.path}: {setting} gives each part {what} of its own, and there are {n} {units}; expected "
            f"{len(PARTS)} or more, or another split, such as 'unique_text'."
        )


def split_graph(u: np.ndarray, v: np.ndarray, ratio: Sequence[float], rng: Generator, *, cut: str) -> np.ndarray:
    """Return the part of every edge of a bipartite graph, int `[E]`, so that no node has edges in two parts.

    `u` and `v` are the endpoints of the edges, int `[E]`, numbered from 0 without gaps; equal edges stay together. Each
    node v picks a node u, its owner. The nodes of the side `cut`, "u" or "v", are divided at `ratio`. A discarded edge
    (-1) could be added to no part.
    """
    owner = pick_owners(u, v, rng)
    if cut == "u":
        part_u = cut_nodes(u.max() + 1, ratio, rng)
        part_v = part_u[owner]
    else:
        part_v = cut_nodes(len(owner), ratio, rng)
        part_u = inherit(u.max() + 1, owner, part_v, np.bincount(v[u == owner[v]]))
    extend(u, v, part_u, part_v, rng)
    is_kept = part_u[u] == part_v[v]
    part_u[np.bincount(u, is_kept) == 0] = NONE  # a node is free again if none of its edges was kept
    part_v[np.bincount(v, is_kept) == 0] = NONE
    extend(u, v, part_u, part_v, rng)
    return np.where(part_u[u] == part_v[v], part_u[u], NONE)


def extend(u: np.ndarray, v: np.ndarray, part_u: np.ndarray, part_v: np.ndarray, rng: Generator) -> None:
    """Let each part claim, in place, all edges without a node in another part; a second pass would claim no more."""
    for k in ORDER:
        for edge in rng.permutation(len(u)).tolist():
            if part_u[u[edge]] in (k, NONE) and part_v[v[edge]] in (k, NONE):
                part_u[u[edge]] = part_v[v[edge]] = k


def pick_owners(u: np.ndarray, v: np.ndarray, rng: Generator) -> np.ndarray:
    """Return the owner of every node v, int `[V]`: the neighbor u that owns fewest so far, ties at random."""
    owner, degree = np.full(v.max() + 1, NONE), np.zeros(u.max() + 1, np.int64)
    by_v = np.argsort(v)
    neighbours = np.split(u[by_v], np.cumsum(np.bincount(v))[:-1])
    for node in rng.permutation(len(owner)).tolist():
        candidates = np.unique(neighbours[node])
        owner[node] = rng.choice(candidates[degree[candidates] == degree[candidates].min()])
        degree[owner[node]] += 1
    return owner


def at_least_one(n: int, ratio: Sequence[float]) -> tuple[int, ...]:
    """Return the `part_sizes`, none empty for 3 units or more.

    An empty part takes a unit from that which exceeds its share most: 6 units at 8:1:1 give 4, 1 and 1.
    """
    sizes = list(part_sizes(n, ratio))
    while min(sizes) == 0 and max(sizes) > 1:
        above = [size - n * share if size > 1 else -np.inf for size, share in zip(sizes, ratio, strict=True)]
        sizes[int(np.argmax(above))] -= 1
        sizes[sizes.index(0)] += 1
    return tuple(sizes)


def cut_nodes(n: int, ratio: Sequence[float], rng: Generator) -> np.ndarray:
    """Return random parts of `n` nodes, indices into `PARTS`, int `[n]`; sizes follow `ratio`."""
    return rng.permutation(np.repeat(np.arange(len(PARTS)), at_least_one(n, ratio)))


def inherit(n_u: int, owner: np.ndarray, part_v: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Return the part of every node u, int `[U]`: that of the nodes v with `owner[v] == u`; -1 without any.

    Of several parts, that of the largest sum of `weight` wins; in a tie, the first in `ORDER` (the paper has no rule).
    """
    total = np.zeros((n_u, len(PARTS)))
    np.add.at(total, (owner, part_v), weight)
    part = np.array(ORDER)[np.argmax(total[:, ORDER], axis=1)]
    return np.where(total.any(axis=1), part, NONE)


# Method `blocks`: dev and test are each a stretch of every recording, with a gap in time between parts.
#
# A text is in one part only: its samples in stretches of other parts are discarded, few if all subjects read the texts
# in the same order, many if the orders differ.

NEEDS_TIME = (
    f"split 'blocks' needs to know {NO_TIME.partition(' is')[0]}; prepare the file again with columns of recording and "
    "onset or order, or take split 'unique_text'."
)


def blocks(
    data: DataFile,
    ratio: Sequence[float],
    seed: int,
    gap: float = 0.0,
    unique_subjects: bool = False,
    unique_sessions: bool = False,
) -> Split:
    """Split by method `blocks`: dev and test are each a stretch of every recording.

    They are at the same place in all recordings of a task. `ratio` divides each recording. `gap` is the least distance
    between samples of different parts, in seconds (in samples, if onsets are unknown). With `unique_subjects`, parts
    have disjoint subjects; with `unique_sessions`, disjoint sessions: then sentences, places and recordings are held
    out together. Raises UserError if the times of the samples are not known.
    """
    clock = known_clock(data, NEEDS_TIME)
    rng = np.random.default_rng(seed)
    place, part = places(clock), np.full(len(data), TRAIN)
    for task in np.unique(data.task.astype(str)):
        inside = np.flatnonzero(data.task == task)
        first, second = rng.permutation([DEV, TEST])
        free = rng.uniform(0, ratio[TRAIN], 2)
        begin = free.min(), free.max() + ratio[first]
        for k, start in zip((first, second), begin, strict=True):
            part[inside[(place[inside] >= start) & (place[inside] < start + ratio[k])]] = k
    part[~clock.timed] = LEFT_OUT
    part = keep_one_part_per_text(data, part, at_least_one(len(set(text_names(data))), ratio))
    for what, asked, units in (
        ("subjects", unique_subjects, data.subject),
        ("sessions", unique_sessions, sessions_of(data.subject, clock.recording)),
    ):
        if asked:
            names, unit = np.unique(units.astype(str), return_inverse=True)
            check_enough(data, f"split.unique_{what}", what, len(names))
            part = np.where(cut_nodes(len(names), ratio, rng)[unit] == part, part, LEFT_OUT)
    return split_of(data, part, f"blocks, gap {gap:g} {clock.unit}", seed, gap)


def block_folds(data: DataFile, count: int, share: float, seed: int, gap: float) -> list[Split]:
    """Return `count` splits: fold k tests stretch k of each recording; dev, `share` of the rest, follows it."""
    clock = known_clock(data, NEEDS_TIME)
    texts, place = text_names(data), places(clock)
    stretch = np.where(clock.timed, np.minimum((place * count).astype(int), count - 1), LEFT_OUT)
    sizes = [len(fold) for fold in np.array_split(np.arange(len(set(texts))), count)]
    stretch = keep_one_part_per_text(data, stretch, sizes)
    splits = []
    for k in range(count):
        part = np.where(stretch == LEFT_OUT, LEFT_OUT, np.where(stretch == k, TEST, TRAIN))
        after = (place - (k + 1) / count) % 1
        part[(part == TRAIN) & (after < share * (1 - 1 / count))] = DEV
        others = len(set(texts[(part == TRAIN) | (part == DEV)]))
        n_dev = min(max(round(others * share), 1), others - 1)
        part = keep_one_part_per_text(data, part, (others - n_dev, n_dev, len(set(texts[part == TEST]))))
        splits.append(split_of(data, part, f"blocks, gap {gap:g} {clock.unit}, fold {k + 1} of {count}", seed, gap))
    return splits


def places(clock: Clock) -> np.ndarray:
    """Return places in the recording, from 0 (first, or time unknown) to below 1, float64 `[N]`."""
    place = np.zeros(len(clock))
    for rows in clock.recordings().values():
        rows = rows[clock.timed[rows]]
        place[rows[np.argsort(clock.spans[rows, 0], kind="stable")]] = np.arange(len(rows)) / max(1, len(rows))
    return place


def text_names(data: DataFile) -> np.ndarray:
    """Return each sample's text, `[N]`, normalized; of windows, stimulus and first segment."""
    return data.sentence_id.astype(str) if data.is_windows else text_units(data)


def keep_one_part_per_text(data: DataFile, part: np.ndarray, sizes: Sequence[int]) -> np.ndarray:
    """Return `part` `[N]` with each text in one part only: its samples in others get `LEFT_OUT`.

    The parts choose in turn, the last one first: part k takes, of the texts not yet taken, the `sizes[k]` that have the
    largest share of their samples in part k. Part 0 takes all others that have samples in it.
    """
    text = np.unique(text_names(data), return_inverse=True)[1]
    used = part != LEFT_OUT
    counts = np.zeros((text.max() + 1, len(sizes)))
    np.add.at(counts, (text[used], part[used]), 1)
    share = counts / np.maximum(counts.sum(1, keepdims=True), 1)
    owner = np.full(len(share), LEFT_OUT)
    for k in reversed(range(len(sizes))):
        free = np.flatnonzero((owner == LEFT_OUT) & (counts[:, k] > 0))
        texts = free[np.argsort(-share[free, k], kind="stable")][: sizes[k] if k else None]
        owner[texts] = k
    return np.where(owner[text] == part, part, LEFT_OUT)


def split_of(data: DataFile, part: np.ndarray, method: str, seed: int, gap: float) -> Split:
    """Return the split without train samples near dev or test, and dev samples near test, in time or segment."""
    part, clock = part.copy(), data.clock
    segments = stretches(data).windows if data.is_windows else None
    for keeps, gives in ((TEST, TRAIN), (TEST, DEV), (DEV, TRAIN)):
        for rows in clock.recordings().values():
            stay, go = rows[part[rows] == keeps], rows[part[rows] == gives]
            part[go[too_near(clock.spans[go], clock.spans[stay], gap)]] = LEFT_OUT
        if segments is not None:
            go = np.flatnonzero(part == gives)
            part[go[share_segments(segments[go], segments[part == keeps])]] = LEFT_OUT
    return Split.of(data, method, seed, part)


def too_near(spans: np.ndarray, others: np.ndarray, gap: float) -> np.ndarray:
    """Return which spans `[N, 2]` (start, end) overlap one of `others [M, 2]`, or are nearer than `gap`."""
    if not len(others):
        return np.zeros(len(spans), bool)
    others = others[np.argsort(others[:, 0])]
    last = np.maximum.accumulate(others[:, 1])  # latest end so far
    before = np.searchsorted(others[:, 0], spans[:, 0], side="right")
    ended = np.where(before > 0, last[before - 1], -np.inf)
    begins = np.where(before < len(others), others[np.minimum(before, len(others) - 1), 0], np.inf)
    apart = np.minimum(spans[:, 0] - ended, begins - spans[:, 1])
    return (apart < gap) | (apart < 0)


def share_segments(windows: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Return which windows `[N, 2]` (first segment, number of segments) overlap one of the others."""
    ends = [np.stack([first, first + length], axis=1).astype(float) for first, length in (windows.T, others.T)]
    return too_near(ends[0] - [0, 0.5], ends[1] - [0, 0.5], 0)


def deal(units: np.ndarray, ratio: Sequence[float], rng: Generator) -> np.ndarray:
    """Return each sample's index into `PARTS`, int `[N]`: distinct `units [N]` are shuffled and cut at `ratio`."""
    distinct, unit = np.unique(units, return_inverse=True)
    part = np.empty(len(distinct), np.int64)
    part[rng.permutation(len(distinct))] = np.repeat(np.arange(len(PARTS)), at_least_one(len(distinct), ratio))
    return part[unit]


def _sessions(data: DataFile) -> np.ndarray:
    known_clock(data, f"split 'sessions' needs the recordings of the samples; {NO_TIME}; take 'unique_text'.")
    return sessions_of(data.subject, data.clock.recording)


def by_sentence(data: DataFile, ratio: Sequence[float], rng: Generator) -> np.ndarray:
    """Return the parts of (d): each task's sentences are dealt. Shares subjects, and texts of two tasks."""
    part = np.empty(len(data), np.int64)
    for task in np.unique(data.task.astype(str)):
        inside = data.task == task
        part[inside] = deal(data.sentence_index[inside], ratio, rng)
    return part


def by_block(data: DataFile, ratio: Sequence[float], rng: Generator) -> np.ndarray:
    """Return the parts of (e): of each task a run of sentences is dev, another test. Windows share text."""
    part = np.zeros(len(data), np.int64)
    for task in np.unique(data.task.astype(str)):
        inside = np.flatnonzero(data.task == task)
        places, place = np.unique(data.sentence_index[inside], return_inverse=True)
        train, *others = part_sizes(len(places), ratio)
        cuts = np.sort(rng.integers(0, train + 1, 2))  # train sentences before each of the two runs, dev and test
        of_place = np.zeros(len(places), np.int64)
        begin = 0
        for cut, k in zip(np.diff(cuts, prepend=0), rng.permutation([DEV, TEST]), strict=True):
            of_place[begin + cut : begin + cut + others[k - 1]] = k
            begin += cut + others[k - 1]
        part[inside] = of_place[place]
    return part


# Wang & Ji's subjects for task SR of ZuCo 1.0, without ZDN.
UNIQUE_SUBJ = {
    "train": ("ZAB", "ZDM", "ZGW", "ZJM", "ZJN", "ZJS", "ZKB", "ZKH", "ZKW"),
    "dev": ("ZMG",),
    "test": ("ZPH",),
}
_SR = re.compile(r"(^|[^A-Z])SR([^A-Z]|$)")


def unique_sent(data: DataFile, ratio: Sequence[float], rng: Generator) -> np.ndarray:
    """Return the parts by position in each task: the first sentences train, the next are dev, the last test.

    This leaks texts between tasks: ZuCo's NR and TSR share 47. A task has as many sentences as its largest index or any
    count in the provenance (`sentences`: task -> subject -> count) says. Wang & Ji use the first subject's count, and
    their code fails if another subject has fewer.
    """
    part = np.empty(len(data), np.int64)
    stated = data.provenance.get("sentences")
    for task in np.unique(data.task.astype(str)).tolist():
        inside = data.task == task
        index = data.sentence_index[inside]
        counts = stated.get(task, {}).values() if isinstance(stated, dict) else ()
        bounds = np.cumsum(part_sizes(max([int(index.max()) + 1, *counts]), ratio))[:-1]
        part[inside] = np.searchsorted(bounds, index, side="right")
    return part


def unique_subj(data: DataFile, ratio: Sequence[float], rng: Generator) -> np.ndarray:
    """Return the parts of task SR of ZuCo 1.0 by `UNIQUE_SUBJ`; UserError if it, or a part's subjects, are absent."""
    tasks = np.unique(data.task.astype(str)).tolist()
    sr = [task for task in tasks if _SR.search(task)]
    if not sr:
        raise UserError(
            f"{data.path}: split 'unique_subj' needs task SR of ZuCo 1.0, found {', '.join(tasks)}; use method a or f."
        )
    inside, part = np.isin(data.task.astype(str), sr), np.full(len(data), LEFT_OUT)
    for k, name in enumerate(PARTS):
        rows = inside & np.isin(data.subject.astype(str), UNIQUE_SUBJ[name])
        if not rows.any():
            raise UserError(
                f"{data.path}: split 'unique_subj' needs SR samples of {' or '.join(UNIQUE_SUBJ[name])} in its {name} "
                "part, found none; use split.method=a or f for other subjects."
            )
        part[rows] = k
    return part


def dealt(units: Callable[[DataFile], np.ndarray]) -> Callable[..., np.ndarray]:
    """Return the method that deals `units(data)` `[N]`: all samples of a unit are in one part."""
    return lambda data, ratio, rng: deal(units(data), ratio, rng)


# Name -> function of data, ratio and random numbers: each sample's part, an index into `PARTS`, `[N]`. `blocks` has
# more options, and returns the split.
METHODS: dict[str, Callable[..., Any]] = {
    "unique_text": dealt(text_units),  # of all tasks, whoever read them
    "unique_sent": unique_sent,
    "unique_subj": unique_subj,
    "a": dealt(lambda data: data.subject.astype(str)),  # shares texts
    # Shares subjects. ZuCo has too few tasks. Windows are divided by text group, because two tasks may tell one story.
    "b": dealt(lambda data: (data.text_group if data.is_windows else data.task).astype(str)),
    "c": dealt(lambda data: np.arange(len(data))),  # shares texts and subjects
    "d": by_sentence,
    "e": by_block,
    "f": f,
    "f_prose": functools.partial(f, name="f_prose"),
    "blocks": blocks,
    "sessions": dealt(_sessions),  # a subject's days; a recording whose name states none is one. Shares texts
}
SUBJECTS = "subjects"  # value of `folds`: each fold tests one subject
FROM_FILE = "file"  # the method of split files


def make_split(
    data: DataFile,
    method: str,
    ratio: Sequence[float],
    seed: int,
    path: str | os.PathLike[str] = "",
    gap: float = 0.0,
    unique_subjects: bool = False,
    unique_sessions: bool = False,
) -> Split:
    """Divide the samples of a data file into train, dev and test.

    Args:
      data: the samples.
      method: a name in `METHODS`, or "file" for the parts in the file at `path`.
      ratio: shares of train, dev and test in the units that the method divides, such as texts or subjects.
      seed: the only source of randomness.
      path: a certificate or another split file; only for method "file".
      gap: least seconds between samples of different parts; only for method "blocks".
      unique_subjects: whether parts have disjoint subjects; only for method "blocks".
      unique_sessions: the same for sessions.

    Raises:
      UserError: an unknown method, one that does not take an option, a bad ratio, an empty part, or a split file that
        does not fit the data.

    Examples:
      >>> from eeg2text_jax import make_split, read_datafile
      >>> split = make_split(read_datafile("own.h5"), "unique_text", (0.75, 0.125, 0.125), seed=0)
      >>> {name: len(rows) for name, rows in split.parts.items()}
      {'train': 48, 'dev': 8, 'test': 8}
    """
    if method != "blocks":
        _check_unique(f"with split.method={method}", unique_subjects, unique_sessions)
    if method == FROM_FILE:
        if not path:
            raise UserError("split.method=file needs split.path, a certificate or split file in JSON.")
        return read_split_file(path).resolve(data)
    if method not in METHODS:
        hint = did_you_mean(method, [*METHODS, FROM_FILE])
        raise UserError(f"split.method: there is no splitting method {method!r}; {hint}")
    ratio = check_ratio(ratio)
    if method == "blocks":
        return blocks(data, ratio, seed, gap, unique_subjects, unique_sessions)
    return Split.of(data, method, seed, METHODS[method](data, ratio, np.random.default_rng(seed)))


def _check_unique(where: str, unique_subjects: bool, unique_sessions: bool) -> None:
    """Raise UserError if an option is set where it has no effect."""
    for name, asked, method in (("subjects", unique_subjects, "f"), ("sessions", unique_sessions, "sessions")):
        if asked:
            raise UserError(f"split.unique_{name} is True; expected False {where}, or split.method={method}.")


def make_folds(
    data: DataFile,
    method: str,
    folds: int | str,
    ratio: Sequence[float],
    seed: int,
    gap: float = 0.0,
    unique_subjects: bool = False,
    unique_sessions: bool = False,
) -> list[Split]:
    """Return a split of a data file for each fold.

    Every text is tested by a model that was not trained on it, so an audit of all test parts has as many sentences as
    the data.

    Args:
      data: the samples.
      method: what the test part of fold k is. "unique_text": group k of the texts. "f": group k of the texts, read by
        group k of the subjects; none of these texts and subjects is in train or dev. "a": group k of the subjects;
        texts are shared, which leaks. "sessions": the same of the sessions. "blocks": stretch k of each recording, with
        texts of its own.
      folds: the number of folds, 2 or more; or "subjects", a fold for each subject.
      ratio: shares of train, dev and test; only the ratio of train to dev counts.
      seed: the only source of randomness.
      gap: least seconds between samples of different parts; only for "blocks".
      unique_subjects: must be False; `make_split` alone takes it.
      unique_sessions: the same.

    Raises:
      UserError: another method or option, fewer units than folds, or an empty part.
    """
    _check_unique("with --folds", unique_subjects, unique_sessions)
    if method not in ("unique_text", "f", "a", "blocks", "sessions"):
        raise UserError(f"--folds: split.method is {method!r}; expected unique_text, f, a, sessions or blocks.")
    by_reader, readers = method in ("a", "sessions"), "sessions" if method == "sessions" else "subjects"
    if folds == SUBJECTS and method not in ("f", "a"):
        what = readers if by_reader else "texts"
        raise UserError(f"--folds=subjects: split.method is {method!r}, which divides {what}; take f, or a number.")
    of_samples = _sessions(data) if method == "sessions" else data.subject.astype(str)
    text, reader = (np.unique(units, return_inverse=True)[1] for units in (text_units(data), of_samples))
    n_texts, n_readers = text.max() + 1, reader.max() + 1
    count = n_readers if folds == SUBJECTS else int(folds)
    are_readers = by_reader or (method == "f" and n_readers <= n_texts)
    least, what = (n_readers, readers) if are_readers else (n_texts, "texts")
    if not 2 <= count <= least:
        raise UserError(f"--folds is {count}; expected from 2 to {least}, because there are {least} {what}.")
    train, dev, _ = check_ratio(ratio)
    share = dev / (train + dev)
    if method == "blocks":
        return block_folds(data, count, share, seed, gap)
    rng, splits = np.random.default_rng(seed), []
    text_groups, reader_groups = (np.array_split(rng.permutation(n), min(n, count)) for n in (n_texts, n_readers))
    for k in range(count):
        divided = [] if by_reader else [fold_parts(text_groups, k, share, rng)[text]]
        divided += [] if method == "unique_text" else [fold_parts(reader_groups, k, share, rng)[reader]]
        part = np.where(divided[0] == divided[-1], divided[0], LEFT_OUT)
        splits.append(Split.of(data, f"{method}, fold {k + 1} of {count}", seed, part))
    return splits


def fold_parts(groups: list[np.ndarray], k: int, share: float, rng: Generator) -> np.ndarray:
    """Return the part of each unit, `[U]`: `groups[k]` (their numbers) is test, `share` of the others dev."""
    others = rng.permutation(np.concatenate([group for i, group in enumerate(groups) if i != k]))
    n_dev = min(max(round(len(others) * share), 1), len(others) - 1)
    if n_dev < 1:
        raise UserError("--folds: train, dev and test need at least one subject or text each; there are too few.")
    part = np.full(len(others) + len(groups[k]), TRAIN)
    part[others[:n_dev]], part[groups[k]] = DEV, TEST
    return part


def check_ratio(ratio: Sequence[float]) -> tuple[float, float, float]:
    """Return the shares of train, dev and test. Raises UserError unless they are positive and add up to 1."""
    if not shares().holds(tuple(ratio)):
        raise UserError(
            f"split.ratio is {tuple(ratio)}; expected three positive shares (train, dev, test) that add up to 1."
        )
    train, dev, test = map(float, ratio)
    return train, dev, test
