"""Methods of the splitting paper that stories need: by task (b), and consecutive samples within each task (e).

(b) shares no text but subjects. (e) shares subjects and, where samples are windows that overlap, the texts at the ends
of its blocks.
"""

import numpy as np

from eeg2text_jax.data.datafile import DataFile
from eeg2text_jax.errors import UserError
from eeg2text_jax.splits.bipartite import at_least_one
from eeg2text_jax.splits.split import PARTS, Split, part_sizes


def by_task(data: DataFile, ratio: tuple[float, float, float], seed: int) -> Split:
    """(b): all samples of a task go together, and with it those of tasks that tell the same story.

    Raises:
      UserError: there are fewer than three tasks.
    """
    group = (data.task if data.text_group is None else data.text_group).astype(str)
    distinct = np.unique(group)
    if len(distinct) < len(PARTS):
        raise UserError(
            f"{data.path}: split 'b' deals out tasks, found {len(distinct)} ({', '.join(distinct)}); expected three or "
            "more. Use split.method=d or f."
        )
    sizes = at_least_one(part_sizes(len(distinct), ratio))
    dealt = np.split(np.random.default_rng(seed).permutation(distinct), np.cumsum(sizes)[:-1])
    rows = {name: np.flatnonzero(np.isin(group, chosen)) for name, chosen in zip(PARTS, dealt, strict=True)}
    return Split.of(data, "b", seed, rows)


def consecutive(data: DataFile, ratio: tuple[float, float, float], seed: int) -> Split:
    """(e): in each task one run of places is for dev and one for test, the same places for all subjects.

    Raises:
      UserError: a task has fewer than three places.
    """
    rng, part = np.random.default_rng(seed), np.empty(len(data), np.int64)
    for task in np.unique(data.task.astype(str)):
        inside = data.task == task
        places, of_sample = np.unique(data.sentence_index[inside], return_inverse=True)
        if len(places) < len(PARTS):
            raise UserError(
                f"{data.path}: split 'e' cuts each task into three, task {task} has {len(places)} samples; use "
                "split.method=c or f."
            )
        part[inside] = _blocks(len(places), ratio, rng)[of_sample]
    return Split.of(data, "e", seed, {name: np.flatnonzero(part == k) for k, name in enumerate(PARTS)})


def _blocks(n: int, ratio: tuple[float, float, float], rng: np.random.Generator) -> np.ndarray:
    """The part of every place: dev and test as a run each, in either order, with train before, between and after."""
    train, *blocks = at_least_one(part_sizes(n, ratio))
    before, between = np.diff(np.sort(rng.integers(0, train + 1, 2)), prepend=0)
    first, second = rng.permutation([1, 2])
    runs = [(0, before), (first, blocks[first - 1]), (0, between), (second, blocks[second - 1])]
    return np.concatenate([*(np.full(length, k) for k, length in runs), np.full(train - before - between, 0)])
