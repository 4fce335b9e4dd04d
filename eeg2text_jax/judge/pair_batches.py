"""Batches of tokenized pairs, padded to one of a few widths, so that few shapes are compiled."""

import functools
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from eeg2text_jax.errors import UserError


class PairBatches:
    """Training batches: every pair once per epoch, similar lengths together, reshuffled each epoch.

    Args:
      ids: token ids of every pair, `[S]` each.
      yes: bool `[N]`, whether the meaning was kept.
      widths: widths in tokens to which batches are padded.
      size: rows per batch; rows without a pair have weight 0.
      pad: the padding token.
      seed: the seed of the order of the pairs; a batch depends only on the seed and the step.
    """

    def __init__(
        self, ids: Sequence[np.ndarray], yes: np.ndarray, widths: Sequence[int], size: int, pad: int, seed: int
    ):
        self._ids, self._yes, self._widths = list(ids), np.asarray(yes, bool), sorted(widths)
        self._size, self._pad, self._seed = size, pad, seed
        longest = max(map(len, self._ids))
        if longest > self._widths[-1]:
            raise UserError(
                f"batch.widths: the widest is {self._widths[-1]} tokens, but a pair has {longest}; add a width of at "
                f"least {longest}."
            )
        self._length = len(self._plan(0))

    def __call__(self, step: int) -> dict[str, np.ndarray]:
        """Return the batch of a step, counted from 0."""
        epoch, place = divmod(step, self._length)
        rows, width = self._plan(epoch)[place]
        return block(self._ids, self._yes, rows, width, self._size, self._pad)

    @functools.lru_cache(maxsize=2)  # noqa: B019 - lives as long as a run
    def _plan(self, epoch: int) -> list[tuple[np.ndarray, int]]:
        """Return (indices of pairs, width) of every batch of an epoch; pairs left over at a width join the next one."""
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
            plan.append((left, self._widths[int(max(np.searchsorted(self._widths, len(self._ids[r])) for r in left))]))
        return [plan[i] for i in rng.permutation(len(plan))]


def block(
    ids: Sequence[np.ndarray], yes: np.ndarray, rows: Sequence[int] | np.ndarray, width: int, size: int, pad: int
) -> dict[str, np.ndarray]:
    """Return the batch of the pairs `rows`, padded to `size` rows of `width` tokens; padding rows have weight 0.

    Keys: `ids` `[size, width]`, and for each row `length` (in tokens), `yes` (meaning kept) and `weight`, `[size]`.
    """
    found = {
        "ids": np.full((size, width), pad, np.int32),
        "length": np.ones(size, np.int32),
        "yes": np.zeros(size, bool),
        "weight": np.zeros(size, np.float32),
    }
    for place, row in enumerate(rows):
        found["ids"][place, : len(ids[row])] = ids[row]
        found["length"][place], found["yes"][place], found["weight"][place] = len(ids[row]), yes[row], 1.0
    return found


def slices(
    lengths: Sequence[int], widths: Sequence[int], size: Callable[[int], int]
) -> Iterator[tuple[np.ndarray, int]]:
    """Yield (indices of pairs, width) of batches: every pair once, shortest first, up to `size(width)` pairs each."""
    order = np.argsort(lengths, kind="stable")
    widths = sorted(widths)
    bucket = np.searchsorted(widths, lengths)[order]
    for number, width in enumerate(widths):
        inside = order[bucket == number]
        for start in range(0, len(inside), size(width)):
            yield inside[start : start + size(width)], width
