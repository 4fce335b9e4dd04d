"""The workload of benchmarks: a BART of known size behind an EEG encoder, and batches with ZuCo's sentence lengths.

Weights and features are random. The training program is the one of `eeg2text train`, compiled before it is timed.
"""

import argparse
import dataclasses
import time
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from transformers import BartConfig

from eeg2text_jax.base.devices.arms import compile_step
from eeg2text_jax.base.devices.mesh import REPLICATED, make_mesh, put_batch, state_shardings
from eeg2text_jax.commands.bench import LONGEST, WORDS_SCALE, WORDS_SHAPE
from eeg2text_jax.data.batches import Batch, Bucket, EpochPlan, Samples, make_batch, stack_seeds
from eeg2text_jax.data.datafile import DataFile
from eeg2text_jax.models.backbones import bart
from eeg2text_jax.models.functional import Seq2SeqModel
from eeg2text_jax.models.spec import EEGSpec
from eeg2text_jax.training.conditions.condition import condition_key
from eeg2text_jax.training.sections import OptimSettings
from eeg2text_jax.training.step import GridProgram, make_optimizer, trainable_only
from eeg2text_jax.training.study import Arm, StudyArrays, dropout_keys, init_keys

# Fitted to the 1,107 sentences of ZuCo 1.0 (SR, NR, TSR), as the words of `eeg2text bench`: PEGASUS tokens are 1.22 per
# word plus 1.48, standard deviation 3.0; T5's tokenizer gives 1.43 tokens per word.
TOKENS_PER_WORD, MORE_TOKENS, TOKENS_SPREAD = 1.22, 1.48, 3.0


class Lengths(NamedTuple):
    words: np.ndarray  # int64 [N], 1 to 56
    tokens: np.ndarray  # int64 [N], including the end token, 2 to 56


def sentence_lengths(count: int) -> Lengths:
    """Draw the lengths of `count` sentences from the fit."""
    rng = np.random.default_rng(0)
    words = rng.gamma(WORDS_SHAPE, WORDS_SCALE, count).round()
    tokens = TOKENS_PER_WORD * words + MORE_TOKENS + rng.normal(0, TOKENS_SPREAD, count)
    return Lengths(words.clip(1, LONGEST).astype(int), tokens.round().clip(2, LONGEST).astype(int))


BUCKETS: tuple[Bucket, ...] = ((16, 24), (28, 40), (56, 56))  # (words, tokens) as in configs/default.py


class Shape(NamedTuple):
    """The sizes of a BART backbone and of the EEG encoder in front of it."""

    width: int
    ffn: int
    layers: int
    heads: int
    vocabulary: int
    features: int
    eeg_layers: int
    eeg_ffn: int

    def bart_config(self, **fields: Any) -> BartConfig:
        """Return the backbone's configuration with other `fields`; the rest has transformers' defaults."""
        sizes = {"layers": self.layers, "attention_heads": self.heads, "ffn_dim": self.ffn}
        sides = {f"{side}_{name}": n for side in ("encoder", "decoder") for name, n in sizes.items()}
        return BartConfig(d_model=self.width, vocab_size=self.vocabulary, **sides, **fields)

    def eeg_spec(self) -> EEGSpec:
        return EEGSpec(features=self.features, layers=self.eeg_layers, ffn=self.eeg_ffn)


SHAPES = {
    "base": Shape(768, 3072, 6, 12, 50265, 840, 6, 2048),  # BART-base behind the paper's encoder
    "large": Shape(1024, 4096, 12, 16, 50265, 840, 6, 2048),
    "tiny": Shape(48, 64, 1, 4, 400, 16, 1, 32),
}


def stage_parser(stage: str, repeats: int) -> argparse.ArgumentParser:
    """Return a parser with the options that all stages have."""
    parser = argparse.ArgumentParser(prog=f"beside.py {stage}")
    parser.add_argument("--shape", choices=SHAPES, default="base", help="sizes of the model")
    parser.add_argument("--json", default="", help="file for the figures")
    parser.add_argument("--dtype", default="float32", choices=("float32", "bfloat16"), help="of both libraries")
    parser.add_argument("--repeats", type=int, default=repeats, help="timed runs, of which the fastest counts")
    return parser


SENTENCES = 1024  # samples from which batches are drawn
OPTIMIZER = OptimSettings(  # AdamW at a constant learning rate, for all libraries
    name="adamw", trainable="all", lr=1e-4, schedule="constant", lr_end=0.0, decay_every=1, decay_epochs=0,
    decay_rate=1.0, warmup_steps=0, weight_decay=0.01, momentum=0.0, grad_clip=1.0,
)  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Work:
    """The model and the data of one training benchmark."""

    config: BartConfig  # the backbone's configuration, for other libraries
    model: Seq2SeqModel
    samples: Samples
    size: int  # batch size
    buckets: tuple[Bucket, ...]  # buckets with at least one full batch
    batches: dict[Bucket, int]  # bucket -> number of full batches in an epoch
    examples: dict[Bucket, Batch]  # one batch of each bucket

    def program(self) -> GridProgram:
        """Return the training program of one arm."""
        optimizer = trainable_only(make_optimizer(OPTIMIZER, 1000), self.model, "all")
        return GridProgram(self.model, (Arm("eeg", 0),), optimizer, label_smoothing=0.0, mapping="vmap")


def make_work(shape: str, size: int, buckets: tuple[Bucket, ...], dtype: str, *, remat: bool = False) -> Work:
    """Make a model, random samples, and one epoch's batches of `size` samples; `remat`: see `Seq2SeqModel`."""
    model_shape = SHAPES[shape]
    config = model_shape.bart_config()
    model = Seq2SeqModel(bart.spec_from_config(config), model_shape.eeg_spec(), dtype=dtype, remat=remat)
    samples = make_samples(model_shape, model.pad_token)
    plan = EpochPlan(samples.n_words, samples.n_tokens(np.arange(SENTENCES)), buckets, size, seed=0)
    full = [(tuple(bucket), rows) for rows, bucket in plan.epoch(0) if len(rows) == size]
    counts, first = Counter(bucket for bucket, _ in full), dict(reversed(full))
    used = tuple(bucket for bucket in buckets if bucket in counts)
    examples = {bucket: make_batch(samples, first[bucket], bucket, size) for bucket in used}
    return Work(config, model, samples, size, used, {bucket: counts[bucket] for bucket in used}, examples)


def make_samples(shape: Shape, pad_token: int) -> Samples:
    """Make `SENTENCES` samples with random features and targets."""
    lengths = sentence_lengths(SENTENCES)
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


def real_positions(work: Work, bucket: Bucket) -> dict[str, Any]:
    """Return the numbers of words and tokens in a bucket's example batch, and of positions including padding."""
    batch = work.examples[bucket]
    return {
        "words": int(batch["mask"].sum()),
        "tokens": int((batch["labels"] != work.samples.pad_token).sum()),
        "word_positions": work.size * bucket[0],
        "token_positions": work.size * bucket[1],
    }


class OurTraining:
    """The training of one arm on one device: state, and compiled steps by batch shape."""

    def __init__(self, program: GridProgram):
        self._program, self._mesh = program, make_mesh(1, 1, jax.devices()[:1])
        self._arrays = StudyArrays(dropout_keys(program.arms, 0, "threefry"), condition_key(0), None)
        self._compiled: dict[Any, Any] = {}
        self._shardings = state_shardings(program.state_shapes(), self._mesh, REPLICATED)
        start = jax.jit(program.initial_state, out_shardings=self._shardings)
        self._state = start(init_keys(program.arms, 0))

    def compile(self, batch: Batch) -> dict[str, float]:
        """Compile the training step for batches of this shape; return the seconds it took, and the memory it needs."""
        start = time.perf_counter()
        step: Any = compile_step(self._program.train_step, self._mesh, self._shardings)
        compiled = step.lower(self._state, self._put(batch), self._arrays).compile()
        self._compiled[batch["labels"].shape] = compiled
        memory = compiled.memory_analysis()
        taken = memory.argument_size_in_bytes + memory.temp_size_in_bytes + memory.output_size_in_bytes
        return {
            "compile_seconds": time.perf_counter() - start,
            "memory_bytes": taken - memory.alias_size_in_bytes,
        }

    def text(self, batch: Batch) -> str:
        """Return the optimized HLO of the step that `compile` made for batches of this shape."""
        return self._compiled[batch["labels"].shape].as_text()

    def step(self, batch: Batch) -> float:
        """Do one training step, wait for it, and return its loss."""
        compiled = self._compiled[batch["labels"].shape]
        self._state, metrics = compiled(self._state, self._put(batch), self._arrays)
        jax.block_until_ready(self._state)
        return float(metrics["loss"][0])

    def _put(self, batch: Batch) -> dict[str, jax.Array]:
        """Put a batch `[B, ...]` on the device, with a leading axis for its single seed."""
        return put_batch(stack_seeds([batch]), self._mesh, seeds=True)

    def first_loss(self, batch: Batch, program: GridProgram) -> float:
        """Return the loss in nats per token, by the evaluation step of `program` and without TF32."""
        with jax.default_matmul_precision("highest"):
            placed = put_batch(batch, self._mesh)
            summed, count = jax.jit(program.eval_step)(self._state.params, placed, self._arrays)
        return float(summed[0] / count[0])

    def host_params(self) -> Any:
        """Return the parameters as NumPy arrays."""
        return jax.tree.map(lambda leaf: jax.device_get(leaf[0]), self._state.params)
