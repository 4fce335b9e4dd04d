"""Splitting method `blocks`: dev and test are each a stretch of every recording, with a gap in time between parts.

A text is in one part only: its samples in stretches of other parts are discarded. Few samples are discarded if all
subjects read the texts in the same order, and many if the orders differ.
"""

from collections.abc import Sequence

import numpy as np

from eeg2text_jax.data.clock import NO_TIME, Clock, known_clock, sessions_of
from eeg2text_jax.data.datafile import DataFile
from eeg2text_jax.errors import UserError
from eeg2text_jax.splits.bipartite import at_least_one, cut_nodes
from eeg2text_jax.splits.split import PARTS, Split, normalize, readings_of

LEFT_OUT = -1  # part of a discarded sample
TRAIN, DEV, TEST = range(3)  # indices into `PARTS`
NEEDS_TIME = (
    f"split 'blocks' needs to know {NO_TIME.partition(' is')[0]}; prepare the file again with columns of recording and "
    "onset or order, or take split 'unique_text'."
)


def blocks(
    data: DataFile,
    ratio: tuple[float, float, float],
    seed: int,
    gap: float = 0.0,
    unique_subjects: bool = False,
    unique_sessions: bool = False,
) -> Split:
    """Split by method `blocks`: dev and test are each a stretch of every recording.

    In all recordings of a task, the stretches are at the same place. `ratio` has the shares of train, dev and test in
    each recording. `gap` is the least distance between samples of different parts, in seconds (in samples, if onsets
    are unknown). With `unique_subjects`, parts have disjoint subjects; with `unique_sessions`, disjoint sessions: then
    sentences, places and recordings are held out together. Raises UserError if the times of the samples are not known.
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
    part[~clock.known] = LEFT_OUT
    part = keep_one_part_per_text(data, part, at_least_one(len(set(text_names(data))), ratio))
    if unique_subjects:
        part = keep_one_part_per_unit(data, part, ratio, rng, "subjects", data.subject)
    if unique_sessions:
        part = keep_one_part_per_unit(data, part, ratio, rng, "sessions", sessions_of(data.subject, clock.recording))
    return split_of(data, part, f"blocks, gap {gap:g} {clock.unit}", seed, gap)


def block_folds(data: DataFile, count: int, share: float, seed: int, gap: float) -> list[Split]:
    """Return `count` splits: in fold k, test is stretch k of `count` in each recording; dev begins after this stretch.

    `share` is the share of dev in the samples that are not test.
    """
    clock = known_clock(data, NEEDS_TIME)
    texts = text_names(data)
    stretch = np.where(clock.known, np.minimum((places(clock) * count).astype(int), count - 1), LEFT_OUT)
    sizes = [len(found) for found in np.array_split(np.arange(len(set(texts))), count)]
    stretch = keep_one_part_per_text(data, stretch, tuple(sizes))
    splits = []
    for k in range(count):
        part = np.where(stretch == LEFT_OUT, LEFT_OUT, np.where(stretch == k, TEST, TRAIN))
        after = (places(clock) - (k + 1) / count) % 1
        part[(part == TRAIN) & (after < share * (1 - 1 / count))] = DEV
        others = len(set(texts[(part == TRAIN) | (part == DEV)]))
        n_dev = min(max(round(others * share), 1), others - 1)
        sizes_now = (others - n_dev, n_dev, len(set(texts[part == TEST])))
        part = keep_one_part_per_text(data, part, sizes_now)
        splits.append(split_of(data, part, f"blocks, gap {gap:g} {clock.unit}, fold {k + 1} of {count}", seed, gap))
    return splits


def places(clock: Clock) -> np.ndarray:
    """Return each sample's place in its recording, from 0 (first, or time unknown) to below 1, float64 `[N]`."""
    found = np.zeros(len(clock))
    for rows in clock.recordings().values():
        rows = rows[clock.known[rows]]
        found[rows[np.argsort(clock.spans[rows, 0], kind="stable")]] = np.arange(len(rows)) / max(1, len(rows))
    return found


def text_names(data: DataFile) -> np.ndarray:
    """Return a name of each sample's text, `[N]`: the normalized text; for windows, stimulus and first segment."""
    return data.sentence_id.astype(str) if data.is_windows else np.array([normalize(text) for text in data.sentence])


def keep_one_part_per_text(data: DataFile, part: np.ndarray, sizes: Sequence[int]) -> np.ndarray:
    """Return `part` `[N]` with each text in one part only: samples of the text in other parts get `LEFT_OUT`.

    Parts choose from the last to the first: part k takes the `sizes[k]` texts, of those not yet taken, with the largest
    share of their samples in part k. Part 0 takes the rest.
    """
    text = np.unique(text_names(data), return_inverse=True)[1]
    used = part != LEFT_OUT
    counts = np.zeros((text.max() + 1, len(sizes)))
    np.add.at(counts, (text[used], part[used]), 1)
    share = counts / np.maximum(counts.sum(1, keepdims=True), 1)
    owner = np.full(len(share), LEFT_OUT)
    for k in reversed(range(len(sizes))):
        free = np.flatnonzero((owner == LEFT_OUT) & (counts[:, k] > 0))
        chosen = free[np.argsort(-share[free, k], kind="stable")][: sizes[k] if k else None]
        owner[chosen] = k
    return np.where(owner[text] == part, part, LEFT_OUT)


def keep_one_part_per_unit(
    data: DataFile,
    part: np.ndarray,
    ratio: tuple[float, float, float],
    rng: np.random.Generator,
    what: str,
    units: np.ndarray,
) -> np.ndarray:
    """Return `part` `[N]` with each of `units` `[N]` in one part only: its samples in other parts get `LEFT_OUT`.

    Raises UserError if there are fewer units than parts; `what` is their name in the plural.
    """
    names, unit = np.unique(units.astype(str), return_inverse=True)
    if len(names) < len(PARTS):
        raise UserError(
            f"{data.path}: split.unique_{what} gives each part {what} of its own, and there are {len(names)} of "
            f"them; expected {len(PARTS)} or more."
        )
    return np.where(cut_nodes(len(names), ratio, rng)[unit] == part, part, LEFT_OUT)


def split_of(data: DataFile, part: np.ndarray, method: str, seed: int, gap: float) -> Split:
    """Return the split; train samples near dev or test, and dev samples near test, in time or segment, are dropped."""
    part, clock = part.copy(), data.clock
    for keeps, gives in ((TEST, TRAIN), (TEST, DEV), (DEV, TRAIN)):
        for rows in clock.recordings().values():
            stay, go = rows[part[rows] == keeps], rows[part[rows] == gives]
            part[go[too_near(clock.spans[go], clock.spans[stay], gap)]] = LEFT_OUT
        if data.is_windows:
            segments = readings_of(data).segments.windows
            go = np.flatnonzero(part == gives)
            part[go[share_segments(segments[go], segments[part == keeps])]] = LEFT_OUT
    return Split.of(data, method, seed, part)


def too_near(spans: np.ndarray, others: np.ndarray, gap: float) -> np.ndarray:
    """Return which spans `[N, 2]` (start, end) overlap one of `others [M, 2]` or are nearer than `gap`; bool `[N]`."""
    if not len(others):
        return np.zeros(len(spans), bool)
    others = others[np.argsort(others[:, 0])]
    last = np.maximum.accumulate(others[:, 1])  # latest end of each span and all before it
    before = np.searchsorted(others[:, 0], spans[:, 0], side="right")
    ended = np.where(before > 0, last[before - 1], -np.inf)
    begins = np.where(before < len(others), others[np.minimum(before, len(others) - 1), 0], np.inf)
    apart = np.minimum(spans[:, 0] - ended, begins - spans[:, 1])
    return (apart < gap) | (apart < 0)


def share_segments(windows: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Return which windows `[N, 2]` (first segment, number of segments) overlap one of the others; bool `[N]`."""
    ends = [np.stack([first, first + length], axis=1).astype(float) for first, length in (windows.T, others.T)]
    return too_near(ends[0] - [0, 0.5], ends[1] - [0, 0.5], 0)
