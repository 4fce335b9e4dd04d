"""Assign samples to training batches: shuffled epochs in length buckets, each epoch computed from its number alone.

A bucket is a pair (words, tokens); a sample goes to the first bucket that holds both its EEG positions and its target.
Each epoch shuffles the samples, fills batches bucket by bucket and shuffles the batches. Samples left over in a bucket
move up to the next one, so only one batch of an epoch, in the largest bucket, may be partial. An epoch has every sample
exactly once, and all epochs have batches of the same shapes.
"""

from collections.abc import Sequence

import numpy as np

from eeg2text_jax.base.errors import UserError
from eeg2text_jax.base.kinds import is_nested

Bucket = tuple[int, int]  # largest numbers of EEG positions and of target tokens


def count_batches(samples: int, size: int) -> int:
    """Return the number of batches per epoch, of which one may be partial; the buckets do not change the number."""
    return -(-samples // size)


class EpochPlan:
    """The batches of every epoch, as sample numbers."""

    def __init__(
        self, words: np.ndarray, tokens: np.ndarray, buckets: Sequence[Bucket], size: int, seed: int, grid_seed: int = 0
    ):
        """Assign samples of `words` EEG positions and `tokens` target tokens, `[N]` each, to increasing `buckets`.

        `size` is the number of samples per batch. `seed` alone determines the order of the bucket shapes in an epoch;
        with `grid_seed` it determines which samples are in which batch. Raises UserError if a sample fits no bucket, or
        if a bucket is not larger than the one before it.
        """
        self._size, self._seed, self._grid_seed = size, seed, grid_seed
        self._buckets = [tuple(map(int, bucket)) for bucket in buckets]
        if not is_nested(self._buckets):
            raise UserError(
                f"batch.buckets is {tuple(self._buckets)}; expected pairs (words, tokens), each larger than the pair "
                "before it in one number, and at least as large in the other."
            )
        fits = np.array([(words <= w) & (tokens <= t) for w, t in self._buckets])  # bool [buckets, N]
        if not fits.any(axis=0).all():
            worst = int(np.argmin(fits.any(axis=0)))
            raise UserError(
                f"batch.buckets has no bucket for a sample of {words[worst]} words and {tokens[worst]} tokens; "
                f"the largest is {max(self._buckets)}; add one that holds this sample, or lower data.max_words or "
                "text.max_tokens."
            )
        self._bucket_of = fits.argmax(axis=0)
        self.batches_per_epoch = len(self.epoch(0))

    def epoch(self, number: int) -> list[tuple[np.ndarray, Bucket]]:
        """Return the batches of an epoch in order, each as (sample numbers, bucket)."""
        rng_of_seed = np.random.default_rng([self._seed, number, 1 + self._grid_seed])
        order = rng_of_seed.permutation(len(self._bucket_of))
        batches, left = [], np.array([], int)
        for k, bucket in enumerate(self._buckets):
            rows = np.concatenate([left, order[self._bucket_of[order] == k]])
            full = len(rows) - len(rows) % self._size
            batches += [(part, bucket) for part in np.split(rows[:full], range(self._size, full, self._size)) if full]
            left = rows[full:]
        if len(left):
            batches.append((left, self._buckets[-1]))
        shared = np.random.default_rng([self._seed, number])  # same for all grid seeds: their batches are stacked
        return [batches[i] for i in shared.permutation(len(batches))]
