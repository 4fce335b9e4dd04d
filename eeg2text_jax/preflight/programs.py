"""The real training step and beam search of a configuration, traced for devices that need not exist."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding
from ml_collections import ConfigDict

from eeg2text_jax.conditions.condition import needs
from eeg2text_jax.conditions.controls import condition_key
from eeg2text_jax.data.text import load_tokenizer
from eeg2text_jax.decoding.sharded import generate_program
from eeg2text_jax.decoding.spec import GenerationSpec
from eeg2text_jax.grid import Arm, arms, dropout_keys
from eeg2text_jax.models.build import build_model
from eeg2text_jax.models.functional import Seq2SeqModel
from eeg2text_jax.parallel.arms import compile_step
from eeg2text_jax.parallel.partition import batch_sharding, fed_sharding, replicated, seeds_sharding
from eeg2text_jax.parallel.placement import Placement
from eeg2text_jax.pretrained.start import model_from_checkpoint
from eeg2text_jax.ranges import check_config
from eeg2text_jax.training.loop import make_program
from eeg2text_jax.training.step import StudyArrays

ZUCO_CHANNELS = 105
ZUCO_FEATURES = 8 * ZUCO_CHANNELS  # of a word: one for each band and channel
# Vocabulary of each backbone's usual checkpoint, where the configuration names no tokenizer.
VOCABULARY = {"bart": 50265, "pegasus": 96103, "t5": 32128, "bert2bert": 30522}


@dataclasses.dataclass(frozen=True)
class Program:
    """A jitted function and the shapes it is called with, each with its sharding."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...]

    def argument_bytes(self) -> int:
        """Bytes of the arguments on one device."""
        return sum(_device_bytes(leaf) for leaf in jax.tree.leaves(self.arguments))


@dataclasses.dataclass(frozen=True)
class Outline:
    """A study without data: what its compiled programs depend on. It has those fields of a `Study` that they read."""

    config: ConfigDict
    model: Seq2SeqModel
    arms: tuple[Arm, ...]
    features: int  # F

    @property
    def bucket(self) -> tuple[int, int]:
        """The largest (words, tokens) of a batch, which takes the most memory."""
        return self.buckets[0]

    @property
    def buckets(self) -> list[tuple[int, int]]:
        """All (words, tokens), the largest first."""
        return sorted({tuple(map(int, bucket)) for bucket in self.config.batch.buckets}, reverse=True)

    def mapped(self, mapping: str) -> "Outline":
        """The same with the arms of a device side by side (`vmap`) or one after the other (`map`)."""
        config = self.config.copy_and_resolve_references()
        config.parallel.arms = mapping
        return dataclasses.replace(self, config=config)

    def training(self, placement: Placement, batch_size: int, bucket: tuple[int, int] | None = None) -> Program:
        """The training step of all arms, on the largest bucket unless another is given."""
        program = make_program(self, placement.mesh)
        state = placement.abstract(program.state_shapes())
        step = compile_step(program.train_step, placement.mesh, placement.formats(state))
        batch = _placed(self._batch(batch_size, *(bucket or self.bucket)), seeds_sharding(placement.mesh))
        return Program(step, (state, batch, _placed(self._study_arrays(), replicated(placement.mesh))))

    def search(self, placement: Placement) -> Program:
        """Beam search of all arms on the longest sentences, from parameters as training leaves them."""
        mesh, size, words = placement.mesh, int(self.config.decode.batch_size), self.bucket[0]
        spec = GenerationSpec.from_fields(self.config.decode, self.model)
        params = placement.abstract(make_program(self).state_shapes().params)
        rows, shared = fed_sharding(mesh), batch_sharding(mesh)
        features = jax.ShapeDtypeStruct((len(self.arms), size, words, self.features), jnp.float32, sharding=rows)
        mask = jax.ShapeDtypeStruct((size, words), jnp.bool_, sharding=shared)
        keys = None
        if spec.do_sample:
            keys = _placed(jax.eval_shape(lambda: jax.random.split(jax.random.key(0), size)), shared)
        return Program(
            generate_program(self.model, spec, mesh, self.config.decode.halvings),
            (params, {"features": features}, ({"mask": mask}, keys)),
        )

    def _batch(self, size: int, words: int, tokens: int) -> dict[str, jax.ShapeDtypeStruct]:
        """A batch as `data.batches.training_batches` makes it, with the seeds of the arms on its first axis."""
        batch = {
            "features": ((size, words, self.features), jnp.float32),
            "mask": ((size, words), jnp.bool_),
            "sample_id": ((size,), jnp.int32),
            "weight": ((size,), jnp.float32),
            "labels": ((size, tokens), jnp.int32),
        }
        if "label_shuffle" in self._conditions:
            batch["shuffled_labels"] = batch["labels"]
        if "subject" in self._needs:
            batch["subject"] = ((size,), jnp.int32)
        if "donor" in self._needs:
            batch["donor"] = batch["features"]
        n_seeds = len({arm.seed for arm in self.arms})
        return {name: jax.ShapeDtypeStruct((n_seeds, *shape), dtype) for name, (shape, dtype) in batch.items()}

    def _study_arrays(self) -> StudyArrays:
        keys = jax.eval_shape(lambda: (dropout_keys(self.arms, 0, self.config.train.rng), condition_key(0)))
        means = jax.ShapeDtypeStruct((2, self.features), jnp.float32) if "means" in self._needs else None
        return StudyArrays(*keys, means)

    @property
    def _conditions(self) -> list[str]:
        """Those of the whole grid, since batches carry what any of them needs."""
        return sorted({*self.config.grid.train_conditions, *self.config.grid.eval_conditions})

    @property
    def _needs(self) -> frozenset[str]:
        return needs(self._conditions)


def make_outline(config: ConfigDict) -> Outline:
    """The outline of a configuration; reads no data.

    The model has the shape of a checkpoint in a local folder; else that of `model.shape`, also where the configuration
    names a checkpoint on the Hub, with the vocabulary of the backbone's usual tokenizer. F is that of ZuCo's EEG or of
    the synthetic data.

    Raises:
      UserError: a field of the configuration is not usable.
    """
    check_config(config)
    features = _features(config)
    if config.parallel.arms == "auto":  # which is about the machine that this is run on
        config = config.copy_and_resolve_references()
        config.parallel.arms = "vmap"
    checkpoint = Path(config.model.checkpoint).expanduser()
    if config.model.checkpoint and checkpoint.is_dir():
        tokenizer = load_tokenizer(config.text.tokenizer or checkpoint)
        model = model_from_checkpoint(config.model, features, tokenizer)
    else:
        tokenizer = TokenIds(config.model.backbone)
        model = build_model(config.model, features, tokenizer)
    together = int(config.parallel.wave) or None  # 0: all of them
    return Outline(config, model, arms(config)[:together], features)


def _features(config: ConfigDict) -> int:
    """F of the data that the configuration names, which need not be there."""
    source = str(config.data.source)
    if source == "synthetic":
        return int(config.data.synthetic.features)
    if source.endswith((".tsv", ".csv")):
        return len(config.data.table.feature_columns) or ZUCO_FEATURES
    if source.endswith(".h5"):
        return ZUCO_FEATURES
    return ZUCO_CHANNELS * len(config.data.recordings.bands)


class TokenIds:
    """The special tokens and the size of a backbone's usual tokenizer: what a model with random weights asks of one."""

    bos_token_id = cls_token_id = 0
    pad_token_id = 1
    eos_token_id = sep_token_id = 2

    def __init__(self, backbone: str):
        self._size = VOCABULARY.get(backbone, 0)

    def __len__(self) -> int:
        return self._size

    def __call__(self, text: str, **_: Any) -> dict[str, list[int]]:
        """A token for every word of a prompt; only their number matters."""
        return {"input_ids": [3] * len(text.split())}


def _placed(shapes: Any, sharding: NamedSharding) -> Any:
    return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding), shapes)


def _device_bytes(leaf: jax.ShapeDtypeStruct) -> int:
    items = 1
    for length in leaf.sharding.shard_shape(leaf.shape):
        items *= length
    return items * leaf.dtype.itemsize
