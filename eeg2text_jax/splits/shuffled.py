"""Splits that shuffle one kind of unit and cut the shuffled list: methods (a), (c) and (d) of the splitting paper.

All three leak (`papers/003`, section 3.2): (a) shares texts, (c) texts and subjects, (d) subjects. They are here to
show what a leak does to scores and to reproduce published numbers. (b) shuffles tasks, of which ZuCo has too few, and
(e) takes consecutive samples, which for whole sentences is (d).
"""

import numpy as np

from eeg2text_jax.data.datafile import DataFile
from eeg2text_jax.splits.split import PARTS, Split, part_sizes


def deal(units: np.ndarray, ratio: tuple[float, float, float], rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Shuffles the distinct values of `units` `[N]` and cuts them at `ratio`; every sample follows its unit."""
    distinct, group = np.unique(units, return_inverse=True)
    bounds = np.cumsum(part_sizes(len(distinct), ratio))[:-1]
    chosen = np.split(rng.permutation(len(distinct)), bounds)
    return {name: np.flatnonzero(np.isin(group, units)) for name, units in zip(PARTS, chosen, strict=True)}


def by_subject(data: DataFile, ratio: tuple[float, float, float], seed: int) -> Split:
    """(a): all samples of a subject go together; every text is in every part."""
    return Split.of(data, "a", seed, deal(data.subject.astype(str), ratio, np.random.default_rng(seed)))


def pooled(data: DataFile, ratio: tuple[float, float, float], seed: int) -> Split:
    """(c): samples are independent; texts and subjects are in every part."""
    return Split.of(data, "c", seed, deal(np.arange(len(data)), ratio, np.random.default_rng(seed)))


def by_sentence(data: DataFile, ratio: tuple[float, float, float], seed: int) -> Split:
    """(d): sentence ids are shuffled inside each task, the same for all subjects; subjects are in every part.

    A text that two tasks share has two ids and may be in two parts; `unique_text` prevents that.
    """
    rng = np.random.default_rng(seed)
    rows: dict[str, list[np.ndarray]] = {name: [] for name in PARTS}
    for task in np.unique(data.task.astype(str)):
        inside = np.flatnonzero(data.task == task)
        for name, chosen in deal(data.sentence_index[inside], ratio, rng).items():
            rows[name].append(inside[chosen])
    return Split.of(data, "d", seed, {name: np.sort(np.concatenate(lists)) for name, lists in rows.items()})
