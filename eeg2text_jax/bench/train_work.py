"""What the benchmark of training trains: a model of a known shape and batches as long as ZuCo's sentences."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
from ml_collections import ConfigDict
from transformers import BartConfig

from eeg2text_jax.bench.lengths import LONGEST, sentence_lengths
from eeg2text_jax.bench.shapes import SHAPES, Shape
from eeg2text_jax.conditions.context import condition_key
from eeg2text_jax.data.batches import Batch, Samples, make_batch
from eeg2text_jax.data.datafile import DataFile
from eeg2text_jax.data.epochs import Bucket, EpochPlan
from eeg2text_jax.grid import Arm, dropout_keys
from eeg2text_jax.models import bart
from eeg2text_jax.models.freezing import only_free
from eeg2text_jax.models.functional import Seq2SeqModel
from eeg2text_jax.training.optimizer import make_optimizer
from eeg2text_jax.training.step import GridProgram, StudyArrays

SENTENCES = 1024  # samples that batches are drawn from
CONDITIONS = ("eeg", "noise")  # of the first arm and of the second
OPTIMIZER = {  # AdamW at a constant rate, on both sides
    "name": "adamw", "free": "all", "lr": 1e-4, "schedule": "constant", "warmup_steps": 0, "weight_decay": 0.01,
    "grad_clip": 1.0,
}  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Work:
    """One benchmark's model and data.

    Fields:
      config: of the backbone, for peers.
      samples: what batches are cut from.
      buckets: (words, tokens) of the batches.
      batches: how many an epoch has of each bucket.
      examples: a batch of each bucket.
    """

    config: BartConfig
    model: Seq2SeqModel
    samples: Samples
    size: int
    buckets: tuple[Bucket, ...]
    batches: dict[Bucket, int]
    examples: dict[Bucket, Batch]

    def program(self, n_arms: int, mapping: str) -> GridProgram:
        """The training program of `n_arms` arms of one seed."""
        optimizer = only_free(make_optimizer(ConfigDict(OPTIMIZER), 1000), self.model, "all")
        arms = tuple(Arm(condition, 0) for condition in CONDITIONS[:n_arms])
        return GridProgram(self.model, arms, optimizer, label_smoothing=0.0, mapping=mapping)


def make_work(shape: str, size: int, buckets: tuple[Bucket, ...], sentences: str, dtype: str) -> Work:
    """Random weights and features; lengths from `sentences`, a file, or from the fit to ZuCo's.

    Raises:
      UserError: the file cannot be read.
    """
    chosen = SHAPES[shape]
    config = chosen.bart_config()
    model = Seq2SeqModel(bart.spec_from_config(config), chosen.eeg_spec(), dtype=dtype)
    samples = make_samples(chosen, sentences, model.pad_token)
    rows = np.arange(len(samples.data))
    plan = EpochPlan(samples.n_words(), samples.n_tokens(rows), buckets, size, seed=0)
    epoch = [(chosen_rows, tuple(bucket)) for chosen_rows, bucket in plan.epoch(0) if len(chosen_rows) == size]
    used = [bucket for bucket in buckets if any(bucket == b for _, b in epoch)]
    return Work(
        config=config,
        model=model,
        samples=samples,
        size=size,
        buckets=tuple(used),
        batches={bucket: sum(bucket == b for _, b in epoch) for bucket in used},
        examples={
            bucket: make_batch(samples, next(rows for rows, b in epoch if b == bucket), bucket, size) for bucket in used
        },
    )


def make_samples(shape: Shape, sentences: str, pad_token: int) -> Samples:
    """Random features and targets of the lengths that people read."""
    lengths = sentence_lengths(SENTENCES, sentences)
    rng = np.random.default_rng(1)
    offsets = np.concatenate([[0], np.cumsum(lengths.words)])
    names = np.array(["bench"] * SENTENCES, object)
    data = DataFile(
        path=Path("bench"),
        features=rng.standard_normal((int(offsets[-1]), shape.features), np.float32),
        offsets=offsets,
        sentence=names,
        subject=names,
        task=names,
        sentence_index=np.arange(SENTENCES),
        features_are="random",
        provenance={},
    )
    targets = [rng.integers(4, shape.vocabulary, n).astype(np.int32) for n in lengths.tokens]
    zeros, ones = np.zeros(shape.features, np.float32), np.ones(shape.features, np.float32)
    return Samples(data, targets, zeros, ones, max_words=LONGEST, pad_token=pad_token)


def study_arrays(program: GridProgram) -> StudyArrays:
    """Keys of the arms and of the conditions."""
    return StudyArrays(dropout_keys(program.arms, 0, "threefry"), condition_key(0), None)


def real_positions(work: Work, bucket: Bucket) -> dict[str, Any]:
    """Real and computed positions of the bucket's example, words and tokens."""
    batch = work.examples[bucket]
    return {
        "words": int(batch["mask"].sum()),
        "tokens": int((batch["labels"] != work.samples.pad_token).sum()),
        "word_positions": work.size * bucket[0],
        "token_positions": work.size * bucket[1],
    }
