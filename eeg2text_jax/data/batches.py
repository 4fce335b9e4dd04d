"""Fixed-shape batches in length buckets; their order depends on the seeds alone, so a resumed run repeats it.

Each of the S seeds of a grid has its own order, so the first axis of a training batch is the seed. This transfers S
times the data of one shared order (6 MB per seed and step at ZuCo's size: 32 sentences of 56 words).

A sample goes to the first bucket (words, tokens) that holds its EEG positions and its target. Each epoch shuffles the
samples, fills batches bucket by bucket and shuffles the batches; every sample is in it once. Samples left over in a
bucket move up to the next, so only one batch, in the largest bucket, may be partial, and all epochs have the same
shapes.
"""

import dataclasses
import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Required, TypedDict, cast

import grain
import numpy as np
from jax import Array
from jax import ShapeDtypeStruct as Shape

from eeg2text_jax.base.errors import UserError, shortlist
from eeg2text_jax.base.kinds import is_nested
from eeg2text_jax.data.datafile import DataFile
from eeg2text_jax.data.prompt import pad_ids

Bucket = tuple[int, int]  # largest numbers of EEG positions and of target tokens


class Batch(TypedDict, total=False):
    """Fixed-shape arrays of `B` samples; in training, with a leading axis `[S]` of seeds.

    Rows that only fill the batch repeat the first row with weight 0. Batches for free-running decoding have no labels.
    """

    features: Required[np.ndarray | Array]  # float32 [B, W, F] or [B, W, X, Y, Z], standardized, 0 at padding
    mask: Required[np.ndarray | Array]  # bool [B, W], True at words
    sample_id: Required[np.ndarray | Array]  # int32 [B], row of the data file
    weight: Required[np.ndarray | Array]  # float32 [B], 0 for rows that only fill the batch
    labels: np.ndarray | Array  # int32 [B, T], target token ids; the padding token after the end token
    shuffled_labels: np.ndarray | Array  # int32 [B, T], labels of another sentence, for `label_shuffle`
    subject: np.ndarray | Array  # int32 [B], row of the table of subject means, for `subject_mean`
    donor: np.ndarray | Array  # float32, shaped as features: another sentence's recording, for `shuffled`
    before: np.ndarray | Array  # int32 [B, P], prompt ids before the recording if they differ by sample; -1 at padding
    after: np.ndarray | Array  # int32 [B, P], prompt ids after the recording; -1 at padding
    clock: np.ndarray | Array  # float32 [B, F] (voxels flat), codes of recording and time: the input under `clock`
    neighbor: np.ndarray | Array  # float32, shaped as features: the recording nearest in time, for `neighbor`
    whole: np.ndarray  # int64 [3], only if a host built its own rows: the first seed's samples, target tokens and rows


def batch_shapes(
    bucket: Bucket, size: int, feature_shape: int | Sequence[int], *optional: str, seeds: int = 0
) -> dict[str, Shape]:
    """Return the shapes and dtypes of a batch, to compile programs in advance.

    `feature_shape` is the shape of one position: F or `(X, Y, Z)`. `optional` names further fields. `seeds` is the
    length of the axis of seeds, 0 for none.
    """
    words, tokens = bucket
    first = (seeds, size) if seeds else (size,)
    each = (feature_shape,) if isinstance(feature_shape, int) else tuple(feature_shape)
    features, labels = Shape((*first, words, *each), np.float32), Shape((*first, tokens), np.int32)
    shapes = {
        "features": features,
        "mask": Shape((*first, words), np.bool_),
        "sample_id": Shape(first, np.int32),
        "weight": Shape(first, np.float32),
        "labels": labels,
        "shuffled_labels": labels,
        "subject": Shape(first, np.int32),
        "donor": features,
        "clock": Shape((*first, math.prod(each)), np.float32),
        "neighbor": features,
    }
    return {name: shape for name, shape in shapes.items() if name in Batch.__required_keys__ or name in optional}


@dataclasses.dataclass(frozen=True)
class Samples:
    """A data file with all else that its batches need."""

    data: DataFile
    targets: Sequence[np.ndarray] | None  # token ids of each sample, int32; None without targets
    mean: np.ndarray  # float32 [F]; scalar for volumes
    scale: np.ndarray  # shaped as mean
    max_words: int
    pad_token: int
    subject: np.ndarray | None = None  # [N], row in the table of subject means
    donors: np.ndarray | None = None  # [N], sample whose recording is the input under `shuffled`
    label_rows: np.ndarray | None = None  # [N], sample whose text is the target under `label_shuffle`
    clock: np.ndarray | None = None  # [N, F], codes of recording and time: the input under `clock`
    neighbors: np.ndarray | None = None  # [N], sample whose recording is the input under `neighbor`
    # `nearest_in_time` and `same_place` -> training sample whose text is copied, [N]; -1 outside test
    copies: Mapping[str, np.ndarray] = dataclasses.field(default_factory=dict)
    donor_note: str = ""  # a sentence on how similar test samples and their donors are
    prompts: tuple[np.ndarray, np.ndarray] | None = None  # ids before and after each recording, int32 [N, P] each

    def features(self, i: int) -> np.ndarray:
        """Return the standardized features of sample `i`, float32 `[min(W, max_words), *feature_shape]`."""
        words = self.data.words(i)[: self.max_words]
        return (words - self.mean) / self.scale if self.mean.ndim else words

    def lent_features(self, donors: np.ndarray, i: int) -> np.ndarray:
        """Return the features of sample `donors[i]`, cut or repeated to the length of sample `i`."""
        donor = self.features(int(donors[i]))
        return donor[np.arange(self.n_words[i]) % len(donor)]

    @functools.cached_property
    def n_words(self) -> np.ndarray:
        """Number of positions of each sample, at most `max_words`, `[N]`."""
        return np.minimum(self.data.n_words, self.max_words)

    def n_tokens(self, rows: np.ndarray) -> np.ndarray:
        """Return the number of target tokens of samples `rows`, own or shuffled, whichever is larger."""
        sources = [rows] if self.label_rows is None else [rows, self.label_rows[rows]]
        return np.max([[len(self.targets[i]) for i in source] for source in sources], axis=0)


class FeatureScale(NamedTuple):
    """How features are standardized: subtract `mean`, divide by `scale`.

    Both are float32 `[F]`, or scalars for volumes, whose voxels were standardized when they were prepared.
    """

    mean: np.ndarray
    scale: np.ndarray  # infinite for a constant feature, which is fed as 0
    constant: np.ndarray  # numbers of the features that never change
    nearly: np.ndarray  # numbers of the features that vary only by rounding

    def note(self) -> str:
        """Return a sentence on the features that do not vary, or ""."""
        kinds = (("constant", self.constant), ("nearly constant", self.nearly))
        parts = [f"{len(numbers)} {kind} (number {shortlist(numbers, 10)})" for kind, numbers in kinds if len(numbers)]
        if not parts:
            return ""
        return f"of {len(self.mean)} features, {' and '.join(parts)} over the train part: they are fed as 0."


ROUNDING = 1e-6  # of a feature's largest magnitude; smaller deviations are float32 rounding


def feature_scale(data: DataFile, rows: np.ndarray, standardize: bool) -> FeatureScale:
    """Return mean and deviation of each feature over samples `rows`; 0 and 1 for volumes or without `standardize`."""
    if data.is_windows or not standardize:
        shape, none = () if data.is_windows else data.n_features, np.array([], int)
        return FeatureScale(np.zeros(shape, np.float32), np.ones(shape, np.float32), none, none)
    if data.is_waves:
        least, most, mean, deviation = _wave_moments(data, rows)
        flat = least == most
    else:
        words = np.asarray(data.features)[np.repeat(np.isin(np.arange(len(data)), rows), data.n_words)]
        least, most, mean = words.min(axis=0), words.max(axis=0), words.mean(axis=0, dtype=np.float64)
        deviation = words.std(axis=0, dtype=np.float64)
        flat = deviation <= ROUNDING * np.maximum(np.abs(least), np.abs(most))
    scale, constant = np.where(flat, np.inf, deviation).astype(np.float32), least == most
    return FeatureScale(mean.astype(np.float32), scale, np.flatnonzero(constant), np.flatnonzero(flat & ~constant))


def _wave_moments(data: DataFile, rows: np.ndarray) -> tuple[np.ndarray, ...]:
    """Return minimum, maximum, mean and deviation of each channel, reading sample by sample."""
    least, most = np.full(data.n_features, np.inf), np.full(data.n_features, -np.inf)
    total, squares, count = np.zeros(data.n_features), np.zeros(data.n_features), 0
    for i in np.sort(rows):
        waves = data.words(int(i)).astype(np.float64)
        least, most = np.minimum(least, waves.min(axis=0)), np.maximum(most, waves.max(axis=0))
        total, squares, count = total + waves.sum(axis=0), squares + (waves**2).sum(axis=0), count + len(waves)
    mean = total / count
    return least, most, mean, np.sqrt(np.maximum(squares / count - mean**2, 0.0))  # each sentence's mean is about 0


def make_batch(
    samples: Samples, rows: Sequence[int] | np.ndarray, bucket: Bucket, size: int, host_rows: np.ndarray | None = None
) -> Batch:
    """Make a batch of the samples `rows`, filled up to `size`.

    `host_rows` are the rows of the batch to build, see `mesh.own_rows`; None: all.
    """
    words, tokens = bucket
    filled = np.array([*rows, *[rows[0]] * (size - len(rows))])
    real = np.arange(size) < len(rows)
    if host_rows is not None:
        filled, real = filled[host_rows], real[host_rows]
    batch: Batch = {
        "features": stack_features(samples.features, filled, words),
        "mask": np.arange(words) < samples.n_words[filled, None],
        "sample_id": filled.astype(np.int32),
        "weight": real.astype(np.float32),
    }
    if samples.targets is not None:
        batch["labels"] = pad_ids([samples.targets[i] for i in filled], tokens, samples.pad_token)
        if samples.label_rows is not None:
            shuffled = [samples.targets[i] for i in samples.label_rows[filled]]
            batch["shuffled_labels"] = pad_ids(shuffled, tokens, samples.pad_token)
    if samples.subject is not None:
        batch["subject"] = samples.subject[filled].astype(np.int32)
    if samples.donors is not None:
        batch["donor"] = stack_features(functools.partial(samples.lent_features, samples.donors), filled, words)
    if samples.neighbors is not None:
        batch["neighbor"] = stack_features(functools.partial(samples.lent_features, samples.neighbors), filled, words)
    if samples.clock is not None:
        batch["clock"] = samples.clock[filled]
    if samples.prompts is not None:
        batch["before"], batch["after"] = (ids[filled] for ids in samples.prompts)
    return batch


def given_prompts(batch: Mapping[str, Any]) -> dict[str, Any]:
    """Return a batch's prompts, if any, as keyword arguments of a model."""
    return {name: batch[name] for name in ("before", "after") if name in batch}


def stack_features(of: Callable[[int], np.ndarray], rows: Sequence[int] | np.ndarray, words: int) -> np.ndarray:
    """Stack the features `of(i)` of samples `rows`, padded with 0: `[rows, words, *feature_shape]`."""
    first = of(rows[0])
    padded = np.zeros((len(rows), words, *first.shape[1:]), first.dtype)
    for row, i in enumerate(rows):
        features = first if i == rows[0] else of(i)
        padded[row, : len(features)] = features
    return padded


class EpochPlan:
    """The batches of every epoch, as sample numbers.

    Samples of `words` positions and `tokens` tokens, `[N]`, go to increasing `buckets`, `size` to a batch. `seed` alone
    determines the order of shapes; `seed` and `grid_seed` determine which samples are in which batch. Raises UserError
    if a sample fits no bucket, or a bucket is not larger than the one before it.
    """

    def __init__(
        self, words: np.ndarray, tokens: np.ndarray, buckets: Sequence[Bucket], size: int, seed: int, grid_seed: int = 0
    ):
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
                f"batch.buckets has no bucket for a sample of {words[worst]} words and {tokens[worst]} tokens; the "
                f"largest is {max(self._buckets)}; add one, or lower data.max_words or text.max_tokens."
            )
        self._bucket_of = fits.argmax(axis=0)
        self.batches_per_epoch = len(self.epoch(0))

    def epoch(self, number: int) -> list[tuple[np.ndarray, Bucket]]:
        """Return the batches of an epoch: (sample numbers, bucket)."""
        order = np.random.default_rng([self._seed, number, 1 + self._grid_seed]).permutation(len(self._bucket_of))
        batches, left = [], np.array([], int)
        for k, bucket in enumerate(self._buckets):
            rows = np.concatenate([left, order[self._bucket_of[order] == k]])
            full = len(rows) - len(rows) % self._size
            batches += [(part, bucket) for part in np.split(rows[:full], range(self._size, full, self._size)) if full]
            left = rows[full:]
        if len(left):
            batches.append((left, self._buckets[-1]))
        shared = np.random.default_rng([self._seed, number])  # same for all grid seeds, whose batches are stacked
        return [batches[i] for i in shared.permutation(len(batches))]


def stack_seeds(batches: Sequence[Batch]) -> Batch:
    """Stack a batch per seed, fields `[B, ...]`, as a training batch, `[S, B, ...]`."""
    return cast(Batch, {name: np.stack([batch[name] for batch in batches]) for name in batches[0]})  # type: ignore[literal-required]


def training_batches(
    samples: Samples,
    rows: np.ndarray,
    buckets: Sequence[Bucket],
    size: int,
    seed: int,
    steps: int,
    grid_seeds: Sequence[int] = (0,),
    host_rows: np.ndarray | None = None,
) -> grain.IterDataset:
    """Return `steps` training batches `[S, B, ...]` of the samples `rows`; `B = size`, S is the number of grid seeds.

    With `host_rows`, only these rows are built, see `mesh.own_rows`. To resume, save and restore the iterator's state.
    The order for a grid seed depends only on it and on `seed`.
    """
    words, tokens = samples.n_words[rows], samples.n_tokens(rows)
    plans = [EpochPlan(words, tokens, buckets, size, seed, grid_seed) for grid_seed in grid_seeds]
    make = functools.partial(make_batch, samples, size=size, host_rows=host_rows)

    @functools.lru_cache(maxsize=1)
    def epoch(number: int) -> list[list[tuple[np.ndarray, Bucket]]]:
        return [plan.epoch(number) for plan in plans]

    def batch_at(step: int) -> Batch:
        number, place = divmod(int(step), plans[0].batches_per_epoch)
        by_seed = [(rows[batches[place][0]], batches[place][1]) for batches in epoch(number)]
        batch = stack_seeds([make(rows=chosen, bucket=bucket) for chosen, bucket in by_seed])
        if host_rows is None:
            return batch
        first = by_seed[0][0]
        tokens = sum(np.count_nonzero(samples.targets[i] != samples.pad_token) for i in first)
        return {**batch, "whole": np.array([len(first), tokens, size])}

    options = grain.ReadOptions(num_threads=1, prefetch_buffer_size=4)
    return grain.MapDataset.range(steps).map(batch_at).to_iter_dataset(options)


def each_evaluation_batch(
    samples: Samples, rows: np.ndarray, buckets: Sequence[Bucket], size: int, host_rows: np.ndarray | None = None
) -> Iterator[Batch]:
    """Yield batches with every sample of `rows` once, shortest bucket first."""
    plan = EpochPlan(samples.n_words[rows], samples.n_tokens(rows), buckets, size, seed=0)
    for places, bucket in sorted(plan.epoch(0), key=lambda batch: (batch[1], int(batch[0][0]))):
        yield make_batch(samples, rows[np.sort(places)], bucket, size, host_rows)
