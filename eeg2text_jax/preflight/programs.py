"""The real training step and beam search of a configuration, compiled for devices that need not exist."""

import dataclasses
import re
import time
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from ml_collections import ConfigDict

from eeg2text_jax.conditions.condition import needs
from eeg2text_jax.conditions.context import condition_key
from eeg2text_jax.data.text import load_tokenizer
from eeg2text_jax.decoding.generate import search
from eeg2text_jax.decoding.spec import GenerationSpec
from eeg2text_jax.grid import arm_keys, arms
from eeg2text_jax.models.build import build_model
from eeg2text_jax.models.functional import Seq2SeqModel
from eeg2text_jax.parallel.arms import compile_apart, compile_step
from eeg2text_jax.parallel.hlo import bytes_by_axis, collectives
from eeg2text_jax.parallel.mesh import ARM, DATA, make_mesh, mesh_shape
from eeg2text_jax.parallel.partition import FULLY_SHARDED, REPLICATED, state_shardings
from eeg2text_jax.training.optimizer import make_optimizer
from eeg2text_jax.training.state import init_params, init_state
from eeg2text_jax.training.step import GridProgram, StudyArrays

ZUCO_FEATURES = 840
# Vocabulary of each backbone's usual checkpoint, where the configuration names no tokenizer.
VOCABULARY = {"bart": 50265, "pegasus": 96103, "t5": 32128, "bert2bert": 30522}
_OUT_OF_MEMORY = re.compile(r"Used ([\d.]+)([KMG]) of ([\d.]+)([KMG]) hbm")
_UNITS = {"K": 2**10, "M": 2**20, "G": 2**30}


@dataclasses.dataclass(frozen=True)
class Compiled:
    """What a program takes on one device, in bytes, as its compiler reports; `arguments` includes what is donated.

    `total` is what must be in memory at once. A program that the compiler refused for want of memory has only that.
    """

    total: int
    arguments: int | None
    temporaries: int | None
    traffic: dict[str, int]  # bytes received through collectives in one run, by mesh axis
    seconds: float  # compilation


@dataclasses.dataclass(frozen=True)
class Preflight:
    """A configuration on a mesh of devices that need not exist."""

    config: ConfigDict
    model: Seq2SeqModel
    mesh: Mesh
    features: int

    @classmethod
    def from_config(cls, config: ConfigDict, devices: Sequence[jax.Device]) -> "Preflight":
        shape = mesh_shape(len(devices), len(arms(config)), config.batch.size, tuple(config.parallel.mesh))
        features = config.data.synthetic.features if config.data.source == "synthetic" else ZUCO_FEATURES
        tokenizer = load_tokenizer(config.text.tokenizer) if config.text.tokenizer else _Tokens(config.model.backbone)
        return cls(config, build_model(config.model, features, tokenizer), make_mesh(*shape, devices), features)

    @property
    def bucket(self) -> tuple[int, int]:
        """The largest (words, tokens) of a batch, which takes the most memory."""
        return max(tuple(bucket) for bucket in self.config.batch.buckets)

    def train(self, batch_size: int) -> Compiled:
        """The training step of all arms on the largest bucket."""
        program = GridProgram(
            model=self.model,
            arms=arms(self.config),
            optimizer=make_optimizer(self.config.optim, self.config.train.steps),
            label_smoothing=self.config.train.label_smoothing,
            mapping=self.config.parallel.arms,
        )
        keys = [arm_keys(arm, 0) for arm in program.arms]
        init = jnp.stack([key["init"] for key in keys])
        state = jax.eval_shape(lambda k: init_state(init_params(self.model, k), program.optimizer), init)
        shardings = state_shardings(state, self.mesh, self._rules)
        step = compile_step(program.train_step, self.mesh, shardings)
        needed = needs([arm.condition for arm in program.arms])
        means = jax.ShapeDtypeStruct((2, self.features), jnp.float32) if "means" in needed else None
        study = jax.eval_shape(lambda k: StudyArrays(k, condition_key(0), None), init)._replace(means=means)
        return self._compile(step, state, self._batch(batch_size, needed), study)

    def decode(self, batch_size: int) -> Compiled:
        """Beam search of all arms on the longest sentences."""
        fields = {k: v for k, v in self.config.decode.to_dict().items() if k != "batch_size"}
        spec = GenerationSpec.from_fields(fields, self.model)

        def one_arm(params: Any, fed: jax.Array, mask: jax.Array) -> tuple[jax.Array, ...]:
            found = search(self.model, params, {"features": fed, "mask": mask}, spec, None)
            return found.sequences, found.lengths, found.scores

        n_arms, words = len(arms(self.config)), self.bucket[0]
        params = jax.eval_shape(lambda k: init_params(self.model, k), jax.random.split(jax.random.key(0), n_arms))
        shardings = state_shardings(params, self.mesh, REPLICATED)
        params = jax.tree.map(lambda x, s: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=s), params, shardings)
        rows = NamedSharding(self.mesh, PartitionSpec(ARM, DATA))
        fed = jax.ShapeDtypeStruct((n_arms, batch_size, words, self.features), jnp.float32, sharding=rows)
        mask = jax.ShapeDtypeStruct(
            (batch_size, words), jnp.bool_, sharding=NamedSharding(self.mesh, PartitionSpec(DATA))
        )
        return self._compile(compile_apart(one_arm, self.mesh), params, fed, mask)

    @property
    def _rules(self) -> Any:
        return FULLY_SHARDED if self.config.parallel.fsdp else REPLICATED

    def _batch(self, size: int, needed: frozenset[str]) -> dict[str, jax.ShapeDtypeStruct]:
        words, tokens = self.bucket
        shapes = {
            "features": ((size, words, self.features), jnp.float32),
            "mask": ((size, words), jnp.bool_),
            "sample_id": ((size,), jnp.int32),
            "weight": ((size,), jnp.float32),
            "labels": ((size, tokens), jnp.int32),
            "subject": ((size,), jnp.int32),
            "donor": ((size, words, self.features), jnp.float32),
            "shuffled_labels": ((size, tokens), jnp.int32),
        }
        optional = {"subject", "donor", "shuffled_labels"} - set(needed)
        if "label_shuffle" in self.config.grid.train_conditions:
            optional -= {"shuffled_labels"}
        return {name: jax.ShapeDtypeStruct(*shapes[name]) for name in shapes if name not in optional}

    def _compile(self, function: Any, *arguments: Any) -> Compiled:
        begun = time.monotonic()
        try:
            compiled = function.lower(*arguments).compile()
        except jax.errors.JaxRuntimeError as error:
            used = _OUT_OF_MEMORY.search(str(error))
            if used is None:
                raise
            return Compiled(int(float(used[1]) * _UNITS[used[2]]), None, None, {}, time.monotonic() - begun)
        memory = compiled.memory_analysis()
        arguments_, temporaries = memory.argument_size_in_bytes, memory.temp_size_in_bytes
        output = memory.output_size_in_bytes - memory.alias_size_in_bytes
        total = arguments_ + temporaries + output + memory.generated_code_size_in_bytes
        traffic = bytes_by_axis(collectives(compiled.as_text(), self.mesh))
        return Compiled(total, arguments_, temporaries, traffic, time.monotonic() - begun)


class _Tokens:
    """The special tokens that a random backbone asks of a tokenizer, and its size."""

    bos_token_id = cls_token_id = 0
    pad_token_id = 1
    eos_token_id = sep_token_id = 2

    def __init__(self, backbone: str):
        self._size = VOCABULARY.get(backbone, 0)

    def __len__(self) -> int:
        return self._size

    def __call__(self, text: str, **_: Any) -> dict[str, list[int]]:
        return {"input_ids": [3] * len(text.split())}
