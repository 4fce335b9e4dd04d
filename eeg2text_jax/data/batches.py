"""Fixed-shape batches in length buckets: the same ones in the same order for every arm, every run and every resume.

A bucket is a pair (words, tokens); a sample goes to the first bucket that holds both its EEG positions and its
target. Each epoch shuffles the samples, fills batches bucket by bucket and shuffles the batches. Samples left over
in a bucket move up to the next one, and the last batch of all is filled with rows of weight 0, so an epoch trains
every sample exactly once and every epoch has the same shapes.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import grain
import numpy as np

from eeg2text_jax.data.datafile import DataFile
from eeg2text_jax.errors import UserError

Batch = dict[str, np.ndarray]
Bucket = tuple[int, int]


@dataclasses.dataclass(frozen=True)
class Samples:
    """What batches are cut from: a data file, targets for its samples, and the scale of its features.

    `targets` has an int32 array of token ids for every sample of `data`, or is None where decoding may not see any.
    """

    data: DataFile
    targets: Sequence[np.ndarray] | None
    mean: np.ndarray  # [F]
    scale: np.ndarray  # [F]
    max_words: int
    pad_token: int

    def features(self, i: int) -> np.ndarray:
        """Standardized features of sample `i`, float32 `[min(W, max_words), F]`."""
        return (self.data.words(i)[: self.max_words] - self.mean) / self.scale

    def n_words(self) -> np.ndarray:
        return np.minimum(self.data.n_words, self.max_words)


def feature_scale(data: DataFile, rows: np.ndarray, standardize: bool) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation `[F]` of the features of `rows` (the train part); 0 and 1 if not `standardize`."""
    width = data.n_features
    if not standardize:
        return np.zeros(width, np.float32), np.ones(width, np.float32)
    chosen = np.repeat(np.isin(np.arange(len(data)), rows), data.n_words)
    words = data.features[chosen]
    deviation = words.std(axis=0, dtype=np.float64)
    deviation[deviation < 1e-6] = 1.0  # a constant feature stays as it is, less its mean
    return words.mean(axis=0, dtype=np.float64).astype(np.float32), deviation.astype(np.float32)


def make_batch(samples: Samples, rows: Sequence[int], bucket: Bucket, size: int) -> Batch:
    """One batch of `size` rows: those of `rows`, then repeats of the first with weight 0.

    Returns:
      `features` float32 [B, W, F], `mask` bool [B, W], `sample_id` int32 [B], `weight` float32 [B] and, where there
      are targets, `labels` int32 [B, T] padded with the padding token.
    """
    words, tokens = bucket
    filled = [*rows, *[rows[0]] * (size - len(rows))]
    batch = {
        "features": np.zeros((size, words, samples.data.n_features), np.float32),
        "mask": np.zeros((size, words), bool),
        "sample_id": np.array(filled, np.int32),
        "weight": (np.arange(size) < len(rows)).astype(np.float32),
    }
    for row, i in enumerate(filled):
        features = samples.features(i)
        batch["features"][row, : len(features)] = features
        batch["mask"][row, : len(features)] = True
    if samples.targets is not None:
        batch["labels"] = np.full((size, tokens), samples.pad_token, np.int32)
        for row, i in enumerate(filled):
            batch["labels"][row, : len(samples.targets[i])] = samples.targets[i]
    return batch


class EpochPlan:
    """Which samples form which batch of an endless shuffled stream, computable for any batch number."""

    def __init__(self, words: np.ndarray, tokens: np.ndarray, buckets: Sequence[Bucket], size: int, seed: int):
        """`words` and `tokens` are the lengths of the samples, `[N]`; see the module for the rest.

        Raises:
          UserError: a sample fits no bucket.
        """
        self._size, self._seed = size, seed
        self._buckets = [tuple(map(int, bucket)) for bucket in buckets]
        fits = np.array([(words <= w) & (tokens <= t) for w, t in self._buckets])  # [buckets, N]
        if not fits.any(axis=0).all():
            worst = int(np.argmin(fits.any(axis=0)))
            raise UserError(
                f"batch.buckets has no bucket for a sample of {words[worst]} words and {tokens[worst]} tokens; "
                f"the largest is {max(self._buckets)}; add one at least that large or lower data.max_words or "
                "text.max_tokens."
            )
        self._bucket_of = fits.argmax(axis=0)
        self.batches_per_epoch = len(self.epoch(0))

    def epoch(self, number: int) -> list[tuple[np.ndarray, Bucket]]:
        """(sample numbers, bucket) of every batch of epoch `number`, in order."""
        rng = np.random.default_rng([self._seed, number])
        order = rng.permutation(len(self._bucket_of))
        batches, left = [], np.array([], int)
        for k, bucket in enumerate(self._buckets):
            rows = np.concatenate([left, order[self._bucket_of[order] == k]])
            full = len(rows) - len(rows) % self._size
            batches += [(part, bucket) for part in np.split(rows[:full], range(self._size, full, self._size)) if full]
            left = rows[full:]
        if len(left):
            batches.append((left, self._buckets[-1]))
        return [batches[i] for i in rng.permutation(len(batches))]


class _TrainingSource:
    """Random access to the training stream by step, as grain wants it."""

    def __init__(self, samples: Samples, rows: np.ndarray, plan: EpochPlan, size: int, steps: int):
        self._samples, self._rows, self._plan, self._size, self._steps = samples, rows, plan, size, steps
        self._epoch: tuple[int, list[tuple[np.ndarray, Bucket]]] = (-1, [])

    def __len__(self) -> int:
        return self._steps

    def __getitem__(self, step: Any) -> Batch:
        epoch, place = divmod(int(step), self._plan.batches_per_epoch)
        current, batches = self._epoch
        if current != epoch:
            batches = self._plan.epoch(epoch)
            self._epoch = (epoch, batches)
        chosen, bucket = batches[place]
        return make_batch(self._samples, self._rows[chosen], bucket, self._size)


def training_batches(
    samples: Samples, rows: np.ndarray, buckets: Sequence[Bucket], size: int, seed: int, steps: int
) -> grain.IterDataset:
    """`steps` training batches of the samples `rows`; iterate it, and save and restore the iterator's state."""
    assert samples.targets is not None
    tokens = np.array([len(samples.targets[i]) for i in rows])
    plan = EpochPlan(samples.n_words()[rows], tokens, buckets, size, seed)
    source = _TrainingSource(samples, rows, plan, size, steps)
    return grain.MapDataset.source(source).to_iter_dataset(grain.ReadOptions(num_threads=1, prefetch_buffer_size=4))


def evaluation_batches(samples: Samples, rows: np.ndarray, buckets: Sequence[Bucket], size: int) -> list[Batch]:
    """Every sample of `rows` once, shortest first; the last batch of a bucket is filled with rows of weight 0."""
    assert samples.targets is not None
    tokens = np.array([len(samples.targets[i]) for i in rows])
    plan = EpochPlan(samples.n_words()[rows], tokens, buckets, size, seed=0)
    return [
        make_batch(samples, rows[np.sort(chosen)], bucket, size) for chosen, bucket in sorted(plan.epoch(0), key=_shape)
    ]


def _shape(batch: tuple[np.ndarray, Bucket]) -> tuple[Bucket, int]:
    return batch[1], int(batch[0][0])
