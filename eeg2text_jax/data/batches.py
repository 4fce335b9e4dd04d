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
    subject: np.ndarray | None = None  # [N], row of each sample's subject in the table of subject means
    donors: np.ndarray | None = None  # [N], the sample whose EEG stands in for each under `shuffled`
    label_rows: np.ndarray | None = None  # [N], the sample whose text each is trained on under `label_shuffle`

    def features(self, i: int) -> np.ndarray:
        """Standardized features of sample `i`, float32 `[min(W, max_words), F]`."""
        return (self.data.words(i)[: self.max_words] - self.mean) / self.scale

    def donor_features(self, i: int) -> np.ndarray:
        """The donor's features with as many words as sample `i` has: cut, or begun again at its first word."""
        return self.features(int(self.donors[i]))[np.arange(len(self.features(i))) % len(self.features(self.donors[i]))]

    def n_words(self) -> np.ndarray:
        """EEG positions of every sample, `[N]`."""
        return np.minimum(self.data.n_words, self.max_words)

    def n_tokens(self, rows: np.ndarray) -> np.ndarray:
        """Target tokens of `rows`; where there are two targets, of the longer one."""
        sources = [rows] if self.label_rows is None else [rows, self.label_rows[rows]]
        return np.max([[len(self.targets[i]) for i in source] for source in sources], axis=0)


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
      `features` float32 [B, W, F], `mask` bool [B, W], `sample_id` int32 [B], `weight` float32 [B]; where there are
      targets, `labels` int32 [B, T] padded with the padding token (and `shuffled_labels` like it); what the
      conditions need: `subject` int32 [B], `donor` float32 [B, W, F].
    """
    words, tokens = bucket
    filled = np.array([*rows, *[rows[0]] * (size - len(rows))])
    lengths = samples.n_words()[filled]
    batch = {
        "features": _pad([samples.features(i) for i in filled], words, 0.0),
        "mask": np.arange(words) < lengths[:, None],
        "sample_id": filled.astype(np.int32),
        "weight": (np.arange(size) < len(rows)).astype(np.float32),
    }
    if samples.targets is not None:
        batch["labels"] = _pad([samples.targets[i] for i in filled], tokens, samples.pad_token)
        if samples.label_rows is not None:
            shuffled = [samples.targets[i] for i in samples.label_rows[filled]]
            batch["shuffled_labels"] = _pad(shuffled, tokens, samples.pad_token)
    if samples.subject is not None:
        batch["subject"] = samples.subject[filled].astype(np.int32)
    if samples.donors is not None:
        batch["donor"] = _pad([samples.donor_features(i) for i in filled], words, 0.0)
    return batch


def _pad(arrays: Sequence[np.ndarray], length: int, filler: float) -> np.ndarray:
    """Stacks `[l, ...]` arrays as `[len(arrays), length, ...]`."""
    padded = np.full((len(arrays), length, *arrays[0].shape[1:]), filler, arrays[0].dtype)
    for row, array in enumerate(arrays):
        padded[row, : len(array)] = array
    return padded


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
    plan = EpochPlan(samples.n_words()[rows], samples.n_tokens(rows), buckets, size, seed)
    source = _TrainingSource(samples, rows, plan, size, steps)
    return grain.MapDataset.source(source).to_iter_dataset(grain.ReadOptions(num_threads=1, prefetch_buffer_size=4))


def evaluation_batches(samples: Samples, rows: np.ndarray, buckets: Sequence[Bucket], size: int) -> list[Batch]:
    """Every sample of `rows` once, shortest first; the last batch of a bucket is filled with rows of weight 0."""
    plan = EpochPlan(samples.n_words()[rows], samples.n_tokens(rows), buckets, size, seed=0)
    return [
        make_batch(samples, rows[np.sort(chosen)], bucket, size) for chosen, bucket in sorted(plan.epoch(0), key=_shape)
    ]


def _shape(batch: tuple[np.ndarray, Bucket]) -> tuple[Bucket, int]:
    return batch[1], int(batch[0][0])
