"""Fixed-shape batches in length buckets: the same ones in the same order for all arms of a seed, every run and resume.

Which samples share a batch, `epochs.py` says. The seeds of a grid are trainings of their own and have an order of
samples each, so a training batch has the seeds on its first axis. It costs the host and the way to the device S times
as much as one order for all would (at ZuCo's size 6 MB for 32 sentences of 56 words, for each seed and step).
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


class Batch(TypedDict, total=False):
    """Fixed-shape arrays of `B` samples; of a training batch each has the seeds of the grid `[S]` on its first axis.

    Rows that only fill the batch are repeats with weight 0. A free-running search is handed a batch without labels.
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
    """Shapes of a batch as `make_batch` makes it, for programs that are compiled before there is one.

    Args:
      bucket: (words, tokens).
      size: B.
      feature_shape: of one position: F, or `(X, Y, Z)`.
      optional: which of the fields that not every batch has.
      seeds: S of a training batch; 0 for one without that axis.
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
    """What batches are cut from: a data file, targets for its samples, and the scale of its features.

    `targets` has an int32 array of token ids for every sample of `data`, or is None where decoding may not see any.
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
        """Standardized features of sample `i`, float32 `[min(W, max_words), *feature_shape]`."""
        words = self.data.words(i)[: self.max_words]
        return (words - self.mean) / self.scale if self.mean.ndim else words

    def lent_features(self, donors: np.ndarray, i: int) -> np.ndarray:
        """The donor's features with as many words as sample `i` has: cut, or begun again at its first word."""
        donor = self.features(int(donors[i]))
        return donor[np.arange(min(self.data.n_words[i], self.max_words)) % len(donor)]

    def n_words(self) -> np.ndarray:
        """EEG positions of every sample, `[N]`."""
        return np.minimum(self.data.n_words, self.max_words)

    def n_tokens(self, rows: np.ndarray) -> np.ndarray:
        """Target tokens of `rows`; where there are two targets, of the longer one."""
        sources = [rows] if self.label_rows is None else [rows, self.label_rows[rows]]
        return np.max([[len(self.targets[i]) for i in source] for source in sources], axis=0)


class FeatureScale(NamedTuple):
    """How features are standardized: less `mean`, over `scale`.

    Fields:
      mean, scale: float32 `[F]`; a feature that does not vary has the scale infinity, so that it is fed as 0. `[]` of
        volumes, where nothing is done: each voxel was standardized over its run when they were prepared.
      constant: numbers of the features with one value alone.
      nearly: numbers of those that vary by no more than rounding does.
    """

    mean: np.ndarray
    scale: np.ndarray
    constant: np.ndarray
    nearly: np.ndarray

    def note(self) -> str:
        """A sentence that counts and names the features that do not vary; empty where all do."""
        kinds = (("constant", self.constant), ("nearly constant", self.nearly))
        found = [f"{len(numbers)} {kind} (number {_listed(numbers)})" for kind, numbers in kinds if len(numbers)]
        if not found:
            return ""
        return f"of {len(self.mean)} features, {' and '.join(found)} over the train part: they are fed as 0."


def _listed(numbers: np.ndarray) -> str:
    shown = ", ".join(map(str, numbers[:10]))
    return f"{shown}, ..." if len(numbers) > 10 else shown


# Of the largest magnitude of a feature: a smaller deviation is what float32 leaves of a constant, whatever the unit.
ROUNDING = 1e-6


def feature_scale(data: DataFile, rows: np.ndarray, standardize: bool) -> FeatureScale:
    """Mean and standard deviation of the features of `rows` (the train part); 0 and 1 if not `standardize`."""
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
    """One batch of `size` rows: those of `rows`, then repeats of the first with weight 0.

    It has labels where `samples` have targets, and what they have for the conditions.
    """
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
    """What a model is fed of a batch's own prompts, where it has them."""
    return {name: batch[name] for name in ("before", "after") if name in batch}


def _features(of: Callable[[int], np.ndarray], rows: np.ndarray, words: int) -> np.ndarray:
    """Features of some rows, 0 at padding, `[rows, words, *feature_shape]`; no more of them at once than needed."""
    first = of(rows[0])
    padded = np.zeros((len(rows), words, *first.shape[1:]), first.dtype)
    for row, i in enumerate(rows):
        own = first if i == rows[0] else of(i)
        padded[row, : len(own)] = own
    return padded


def _pad(arrays: Sequence[np.ndarray], length: int, filler: float) -> np.ndarray:
    """Stacks `[l, ...]` arrays as `[len(arrays), length, ...]`."""
    padded = np.full((len(arrays), length, *arrays[0].shape[1:]), filler, arrays[0].dtype)
    for row, array in enumerate(arrays):
        padded[row, : len(array)] = array
    return padded


class _TrainingSource:
    """Random access to the training stream by step, as grain wants it."""

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
    """Batches `[B, ...]` of one shape, one a seed of the grid, as a training batch `[S, B, ...]`."""
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
    """`steps` training batches `[S, B, ...]` of the samples `rows`, `B = size`, in an order for each of `grid_seeds`.

    Iterate it, and save and restore the iterator's state. The order of a seed follows from it and from `seed`, whatever
    other seeds there are.
    """
    words, tokens = samples.n_words()[rows], samples.n_tokens(rows)
    plans = [EpochPlan(words, tokens, buckets, size, seed, grid_seed) for grid_seed in grid_seeds]
    source = _TrainingSource(samples, rows, plans, size, steps)
    return grain.MapDataset.source(source).to_iter_dataset(grain.ReadOptions(num_threads=1, prefetch_buffer_size=4))


def evaluation_batches(samples: Samples, rows: np.ndarray, buckets: Sequence[Bucket], size: int) -> list[Batch]:
    """Every sample of `rows` once, shortest first; the last batch of a bucket is filled with rows of weight 0."""
    return list(each_evaluation_batch(samples, rows, buckets, size))


def each_evaluation_batch(samples: Samples, rows: np.ndarray, buckets: Sequence[Bucket], size: int) -> Iterator[Batch]:
    """The same ones, each made when it is asked for: of volumes, all are more than fits into memory."""
    plan = EpochPlan(samples.n_words()[rows], samples.n_tokens(rows), buckets, size, seed=0)
    for chosen, bucket in sorted(plan.epoch(0), key=_shape):
        yield make_batch(samples, rows[np.sort(chosen)], bucket, size)


def _shape(batch: tuple[np.ndarray, Bucket]) -> tuple[Bucket, int]:
    return batch[1], int(batch[0][0])
