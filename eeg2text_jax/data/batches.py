"""Fixed-shape batches in length buckets, with the same order in every run, after every resume, for all arms of a seed.

`epochs.py` assigns samples to batches. Each seed of a grid is a training of its own with its own order, so a training
batch has the seeds on its first axis. This costs S times the transfer of one shared order (at ZuCo's size 6 MB for 32
sentences of 56 words, for each seed and step).
"""

import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Required, TypedDict, cast

import grain
import numpy as np
from jax import Array
from jax import ShapeDtypeStruct as Shape

from eeg2text_jax.data.datafile import DataFile
from eeg2text_jax.data.epochs import Bucket, EpochPlan
from eeg2text_jax.errors import shortlist


class Batch(TypedDict, total=False):
    """Fixed-shape arrays of `B` samples; in a training batch each has the seeds of the grid `[S]` on its first axis.

    Rows that only fill the batch repeat the first with weight 0. A free-running search gets a batch without labels.
    """

    features: Required[np.ndarray | Array]  # float32 [B, W, F] or [B, W, X, Y, Z], standardized, 0 at padding
    mask: Required[np.ndarray | Array]  # bool [B, W], True at words
    sample_id: Required[np.ndarray | Array]  # int32 [B], row of the data file
    weight: Required[np.ndarray | Array]  # float32 [B], 0 for rows that only fill the batch
    labels: np.ndarray | Array  # int32 [B, T], where there are targets; the padding token after the end token
    shuffled_labels: np.ndarray | Array  # int32 [B, T], another sentence's, for `label_shuffle`
    subject: np.ndarray | Array  # int32 [B], row of the table of subject means, for `subject_mean`
    donor: np.ndarray | Array  # float32 as features, another sentence's, for `shuffled`
    before: np.ndarray | Array  # int32 [B, P], token ids of a prompt that differs between samples; -1 at padding
    after: np.ndarray | Array  # the same behind the recording
    clock: np.ndarray | Array  # float32 [B, F], of volumes flat, for `clock`
    neighbor: np.ndarray | Array  # float32 as features, those nearest in time, for `neighbor`


def batch_shapes(
    bucket: Bucket, size: int, feature_shape: int | Sequence[int], *optional: str, seeds: int = 0
) -> dict[str, Shape]:
    """Return the shapes of a batch of `make_batch`, to compile programs before the first batch.

    Args:
      bucket: (words, tokens).
      size: B.
      feature_shape: shape of one position: F, or `(X, Y, Z)`.
      optional: names of the optional fields.
      seeds: S of a training batch; 0 for a batch without that axis.
    """
    words, tokens = bucket
    first = (seeds, size) if seeds else (size,)
    each = (feature_shape,) if isinstance(feature_shape, int) else tuple(feature_shape)
    all_fields = {
        "features": ((*first, words, *each), np.float32),
        "mask": ((*first, words), np.bool_),
        "sample_id": (first, np.int32),
        "weight": (first, np.float32),
        "labels": ((*first, tokens), np.int32),
        "shuffled_labels": ((*first, tokens), np.int32),
        "subject": (first, np.int32),
        "donor": ((*first, words, *each), np.float32),
        "clock": ((*first, int(np.prod(each))), np.float32),
        "neighbor": ((*first, words, *each), np.float32),
    }
    chosen = [name for name in all_fields if name in Batch.__required_keys__ or name in optional]
    return {name: Shape(*all_fields[name]) for name in chosen}


@dataclasses.dataclass(frozen=True)
class Samples:
    """The source of batches: a data file, targets for its samples, and the scale of its features.

    `targets` has an int32 array of token ids for every sample of `data`; None if decoding must not see them.
    """

    data: DataFile
    targets: Sequence[np.ndarray] | None
    mean: np.ndarray  # [F]; [] of volumes, which are standardized in the file
    scale: np.ndarray  # as mean
    max_words: int
    pad_token: int
    subject: np.ndarray | None = None  # [N], row of each sample's subject in the table of subject means
    donors: np.ndarray | None = None  # [N], the sample whose EEG stands in for each under `shuffled`
    label_rows: np.ndarray | None = None  # [N], the sample whose text each is trained on under `label_shuffle`
    clock: np.ndarray | None = None  # [N, F], what `clock` feeds at every word
    neighbors: np.ndarray | None = None  # [N], the sample whose recording `neighbor` feeds
    nearest: np.ndarray | None = None  # [N], the training sample whose text `nearest_in_time` copies; -1: no test
    donor_note: str = ""  # a sentence on how near the donors of the test part are
    prompts: tuple[np.ndarray, np.ndarray] | None = None  # ids before and after each recording, int32 [N, P]

    def features(self, i: int) -> np.ndarray:
        """Return the standardized features of sample `i`, float32 `[min(W, max_words), *feature_shape]`."""
        words = self.data.words(i)[: self.max_words]
        return (words - self.mean) / self.scale if self.mean.ndim else words

    def lent_features(self, donors: np.ndarray, i: int) -> np.ndarray:
        """Return the donor's features with as many words as sample `i`: truncated, or repeated from the first word."""
        donor = self.features(int(donors[i]))
        return donor[np.arange(min(self.data.n_words[i], self.max_words)) % len(donor)]

    def n_words(self) -> np.ndarray:
        """Return the EEG positions of every sample, `[N]`."""
        return np.minimum(self.data.n_words, self.max_words)

    def n_tokens(self, rows: np.ndarray) -> np.ndarray:
        """Return the target tokens of `rows`; of two targets, those of the longer one."""
        sources = [rows] if self.label_rows is None else [rows, self.label_rows[rows]]
        return np.max([[len(self.targets[i]) for i in source] for source in sources], axis=0)


class FeatureScale(NamedTuple):
    """Standardization of features: subtract `mean`, divide by `scale`.

    Fields:
      mean, scale: float32 `[F]`; the scale of a constant feature is infinity, so that it is fed as 0. `[]` for volumes,
        whose voxels were standardized over their run during preparation.
      constant: numbers of the features with a single value.
      nearly: numbers of the features that vary only by rounding.
    """

    mean: np.ndarray
    scale: np.ndarray
    constant: np.ndarray
    nearly: np.ndarray

    def note(self) -> str:
        """Return a sentence on the features that do not vary, or ""."""
        kinds = (("constant", self.constant), ("nearly constant", self.nearly))
        found = [f"{len(numbers)} {kind} (number {shortlist(numbers, 10)})" for kind, numbers in kinds if len(numbers)]
        if not found:
            return ""
        return f"of {len(self.mean)} features, {' and '.join(found)} over the train part: they are fed as 0."


ROUNDING = 1e-6  # relative to a feature's largest magnitude; smaller deviations are float32 rounding of a constant


def feature_scale(data: DataFile, rows: np.ndarray, standardize: bool) -> FeatureScale:
    """Return mean and standard deviation of the features of `rows` (the train part); 0 and 1 if not `standardize`."""
    width, none = data.n_features, np.array([], int)
    if len(data.feature_shape) > 1:
        return FeatureScale(np.zeros((), np.float32), np.ones((), np.float32), none, none)
    if not standardize:
        return FeatureScale(np.zeros(width, np.float32), np.ones(width, np.float32), none, none)
    chosen = np.repeat(np.isin(np.arange(len(data)), rows), data.n_words)
    words = np.asarray(data.features)[chosen]
    least, most = words.min(axis=0), words.max(axis=0)
    deviation = words.std(axis=0, dtype=np.float64)
    flat = deviation <= ROUNDING * np.maximum(np.abs(least), np.abs(most))
    scale = np.where(flat, np.inf, deviation).astype(np.float32)
    mean = words.mean(axis=0, dtype=np.float64).astype(np.float32)
    constant = least == most
    return FeatureScale(mean, scale, np.flatnonzero(constant), np.flatnonzero(flat & ~constant))


def make_batch(samples: Samples, rows: Sequence[int] | np.ndarray, bucket: Bucket, size: int) -> Batch:
    """Make a batch of `size` rows: `rows`, then repeats of the first with weight 0."""
    words, tokens = bucket
    filled = np.array([*rows, *[rows[0]] * (size - len(rows))])
    lengths = samples.n_words()[filled]
    batch: Batch = {
        "features": _features(samples.features, filled, words),
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
        batch["donor"] = _features(functools.partial(samples.lent_features, samples.donors), filled, words)
    if samples.neighbors is not None:
        batch["neighbor"] = _features(functools.partial(samples.lent_features, samples.neighbors), filled, words)
    if samples.clock is not None:
        batch["clock"] = samples.clock[filled]
    if samples.prompts is not None:
        batch["before"], batch["after"] = (ids[filled] for ids in samples.prompts)
    return batch


def given_prompts(batch: Mapping[str, Any]) -> dict[str, Any]:
    """Return the prompts of a batch as arguments of a model; empty if it has none."""
    return {name: batch[name] for name in ("before", "after") if name in batch}


def _features(of: Callable[[int], np.ndarray], rows: np.ndarray, words: int) -> np.ndarray:
    """Stack the features of rows, 0 at padding, `[rows, words, *feature_shape]`."""
    first = of(rows[0])
    padded = np.zeros((len(rows), words, *first.shape[1:]), first.dtype)
    for row, i in enumerate(rows):
        own = first if i == rows[0] else of(i)
        padded[row, : len(own)] = own
    return padded


def _pad(arrays: Sequence[np.ndarray], length: int, filler: float) -> np.ndarray:
    """Stack `[l, ...]` arrays as `[len(arrays), length, ...]`."""
    padded = np.full((len(arrays), length, *arrays[0].shape[1:]), filler, arrays[0].dtype)
    for row, array in enumerate(arrays):
        padded[row, : len(array)] = array
    return padded


class _TrainingSource:
    """Random access to the training stream by step, for grain."""

    def __init__(self, samples: Samples, rows: np.ndarray, plans: Sequence[EpochPlan], size: int, steps: int):
        self._samples, self._rows, self._plans, self._size, self._steps = samples, rows, plans, size, steps
        self._epoch: tuple[int, list[list[tuple[np.ndarray, Bucket]]]] = (-1, [])

    def __len__(self) -> int:
        return self._steps

    def __getitem__(self, step: Any) -> Batch:
        epoch, place = divmod(int(step), self._plans[0].batches_per_epoch)
        if self._epoch[0] != epoch:
            self._epoch = (epoch, [plan.epoch(epoch) for plan in self._plans])
        chosen = [batches[place] for batches in self._epoch[1]]
        return stack_seeds([make_batch(self._samples, self._rows[own], bucket, self._size) for own, bucket in chosen])


def stack_seeds(batches: Sequence[Batch]) -> Batch:
    """Stack batches `[B, ...]` of one shape, one per seed of the grid, as a training batch `[S, B, ...]`."""
    return cast(Batch, {name: np.stack([batch[name] for batch in batches]) for name in batches[0]})  # type: ignore[literal-required]


def training_batches(
    samples: Samples,
    rows: np.ndarray,
    buckets: Sequence[Bucket],
    size: int,
    seed: int,
    steps: int,
    grid_seeds: Sequence[int] = (0,),
) -> grain.IterDataset:
    """Return `steps` training batches `[S, B, ...]` of the samples `rows`, `B = size`, ordered anew for each grid seed.

    Save and restore the iterator's state to resume. A seed's order depends on it and on `seed`, not on the other seeds.
    """
    words, tokens = samples.n_words()[rows], samples.n_tokens(rows)
    plans = [EpochPlan(words, tokens, buckets, size, seed, grid_seed) for grid_seed in grid_seeds]
    source = _TrainingSource(samples, rows, plans, size, steps)
    return grain.MapDataset.source(source).to_iter_dataset(grain.ReadOptions(num_threads=1, prefetch_buffer_size=4))


def evaluation_batches(samples: Samples, rows: np.ndarray, buckets: Sequence[Bucket], size: int) -> list[Batch]:
    """Return every sample of `rows` once, shortest first; a bucket's last batch is filled with rows of weight 0."""
    return list(each_evaluation_batch(samples, rows, buckets, size))


def each_evaluation_batch(samples: Samples, rows: np.ndarray, buckets: Sequence[Bucket], size: int) -> Iterator[Batch]:
    """Yield the batches of `evaluation_batches`, each made when requested: volumes exceed memory."""
    plan = EpochPlan(samples.n_words()[rows], samples.n_tokens(rows), buckets, size, seed=0)
    for chosen, bucket in sorted(plan.epoch(0), key=lambda batch: (batch[1], int(batch[0][0]))):
        yield make_batch(samples, rows[np.sort(chosen)], bucket, size)
