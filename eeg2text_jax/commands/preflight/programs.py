"""The training step and beam search of a configuration, with argument shapes for devices that need not exist."""

import dataclasses
import math
import re
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import AbstractMesh, Mesh

from eeg2text_jax.base.devices import mesh as meshes
from eeg2text_jax.base.devices.arms import Divided, compile_step
from eeg2text_jax.base.devices.mesh import FULLY_SHARDED, REPLICATED, Placement, batch_sharding, with_sharding
from eeg2text_jax.base.errors import UserError
from eeg2text_jax.base.stores.buckets import at_hand
from eeg2text_jax.data.batches import batch_shapes
from eeg2text_jax.data.datafile import read_outline
from eeg2text_jax.data.source_settings import DataSettings
from eeg2text_jax.data.text import load_tokenizer
from eeg2text_jax.decoding.generate import generate_program, prepared_arms
from eeg2text_jax.decoding.settings import GenerationSpec
from eeg2text_jax.models.backbones.build import build_model
from eeg2text_jax.models.functional import Prepared, Seq2SeqModel, frozen_shapes
from eeg2text_jax.models.pretrained.load import model_from_checkpoint
from eeg2text_jax.models.spec import Channels
from eeg2text_jax.models.waves import LABRAM_CHANNELS
from eeg2text_jax.runs.opening import AnyTokenizer
from eeg2text_jax.training.conditions import FED
from eeg2text_jax.training.conditions.condition import MOST_LAGS, condition_key, needs
from eeg2text_jax.training.grid_program import make_program
from eeg2text_jax.training.sections import Settings
from eeg2text_jax.training.step import GridProgram
from eeg2text_jax.training.study import Arm, StudyArrays, adapted, arms, channels_of, dropout_keys

ZUCO_CHANNELS = 105
ZUCO_FEATURES = 8 * ZUCO_CHANNELS  # per word: one feature per band and channel
# of each backbone's usual checkpoint, used if the configuration names no tokenizer
VOCABULARY = {
    "bart": 50265, "pegasus": 96103, "t5": 32128, "bert2bert": 30522, "whisper": 51866, "llama": 128256,
    "mistral": 32768, "qwen2": 152064, "qwen3": 151936, "gemma": 256000, "gemma2": 256000, "gemma3": 262208,
}  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Program:
    """A jitted function and the shapes of its arguments."""

    function: Any
    arguments: tuple[Any, ...]  # trees of `ShapeDtypeStruct` with shardings

    def argument_bytes(self) -> int:
        """Return the bytes of the arguments on one device."""
        leaves = jax.tree.leaves(self.arguments)
        return sum(math.prod(leaf.sharding.shard_shape(leaf.shape)) * leaf.dtype.itemsize for leaf in leaves)


@dataclasses.dataclass(frozen=True)
class Outline:
    """What the programs of a run are made from, without data."""

    config: Settings
    model: Seq2SeqModel
    arms: tuple[Arm, ...]
    features: tuple[int, ...]  # shape of one position: (F,), or (X, Y, Z) of volumes

    @property
    def bucket(self) -> tuple[int, int]:
        """The largest bucket (words, tokens), which needs the most memory."""
        return self.buckets[0]

    @property
    def buckets(self) -> list[tuple[int, int]]:
        """All buckets (words, tokens), the largest first."""
        return sorted(set(self.config.batch.buckets), reverse=True)

    def mapped(self, mapping: str) -> "Outline":
        return dataclasses.replace(self, config=self.config.changed({"parallel.arms": mapping}))

    def training(self, placement: Placement, batch_size: int, bucket: tuple[int, int] | None = None) -> Program:
        """Return the training step of all arms, by default for the largest bucket."""
        program = self._program(placement.mesh)
        state = placement.abstract(program.state_shapes())
        study = self._study_arrays(placement)
        where = placement.formats(state), jax.tree.map(lambda leaf: leaf.sharding, study)
        step = compile_step(program.train_step, placement.mesh, *where)
        fields, seeds = ["labels", *(name for name in FED if name in self._needs)], len({arm.seed for arm in self.arms})
        fields += ["shuffled_labels"] if "label_shuffle" in self.config.grid.conditions else []
        shapes = batch_shapes(bucket or self.bucket, batch_size, self.features, *fields, seeds=seeds)
        batch = with_sharding(shapes, meshes.seeds_sharding(placement.mesh))
        return Program(step, (state, batch, study))

    def search(self, placement: Placement) -> Program:
        """Return the beam search of all arms for the largest bucket, with parameters sharded as in training."""
        mesh, size, words = placement.mesh, self.config.decode.batch_size, self.bucket[0]
        spec = GenerationSpec.from_fields(self.config.decode.fields(), self.model)
        params = placement.abstract(self._program().state_shapes().params)
        frozen = self._frozen()
        tensor_parallel = self.config.decode.tensor_parallel and frozen is not None
        if frozen is not None:
            where = meshes.frozen_shardings(frozen, mesh, FULLY_SHARDED if tensor_parallel else REPLICATED)
            params = Divided(params, with_sharding(frozen, where))
        else:
            weights = jax.eval_shape(lambda params: prepared_arms(self.model, params, spec).weights, params)
            params = Prepared(params, with_sharding(weights, meshes.arm_sharding(mesh)))
        rows, shared = meshes.fed_sharding(mesh), batch_sharding(mesh)
        features = jax.ShapeDtypeStruct((len(self.arms), size, words, *self.features), jnp.float32, sharding=rows)
        mask = jax.ShapeDtypeStruct((size, words), jnp.bool_, sharding=shared)
        keys = None
        if spec.do_sample:
            keys = with_sharding(jax.eval_shape(lambda: jax.random.split(jax.random.key(0), size)), shared)
        program = generate_program(self.model, spec, mesh, self.config.decode.compactions, tensor_parallel)
        return Program(program, (params, {"features": features}, ({"mask": mask}, keys)))

    def _program(self, mesh: Mesh | AbstractMesh | None = None) -> GridProgram:
        return make_program(self.config, self.model, self.arms, mesh)

    def _study_arrays(self, placement: Placement) -> StudyArrays:
        keys = jax.eval_shape(lambda: (dropout_keys(self.arms, 0, self.config.train.rng), condition_key(0)))
        means = jax.ShapeDtypeStruct((2, *self.features), jnp.float32) if "means" in self._needs else None
        taps = (2 * MOST_LAGS, math.prod(self.features))
        kernel = jax.ShapeDtypeStruct(taps, jnp.float32) if "kernel" in self._needs else None
        arrays = StudyArrays(keys[0], keys[1], means, kernel=kernel)
        study, frozen = with_sharding(arrays, meshes.replicated(placement.mesh)), self._frozen()
        if frozen is not None:
            study = study._replace(frozen=with_sharding(frozen, placement.frozen(frozen)))
        return study

    def _frozen(self) -> Any:
        if not self.model.shared_frozen:
            return None
        return frozen_shapes(self.model, self.config.model.frozen_dtype)

    @property
    def _needs(self) -> frozenset[str]:
        return needs(self.config.grid.conditions)


def make_outline(config: Settings) -> Outline:
    """Return the configuration, model and arms of a run, without reading data.

    The model's shape comes from a local checkpoint; without one (also for a Hub name) from `model.shape` and the
    backbone's usual vocabulary. Raises UserError if a field is not usable.
    """
    if config.objective != "generate":
        raise UserError(
            f"preflight compiles training and decoding of objective=generate; objective is {config.objective!r}, whose "
            "encoder fits wherever a generative model does."
        )
    features, channels = feature_shape(config.data), made_up_channels(config.data)
    if config.parallel.arms == "auto":  # "auto" would depend on this machine's devices
        config = config.changed({"parallel.arms": "vmap"})
    checkpoint = Path(at_hand(config.model.checkpoint)).expanduser()
    if config.model.checkpoint and checkpoint.is_dir():
        tokenizer = load_tokenizer(config.text.tokenizer or checkpoint)
        model = model_from_checkpoint(config.model, features, tokenizer, channels)
    else:
        tokenizer = UsualTokenizer(config.model.backbone)
        model = build_model(config.model, features, tokenizer, channels)
    wave = config.parallel.wave or None  # 0: all arms at once
    return Outline(config, adapted(model, config, tokenizer), arms(config.grid)[:wave], features)


def feature_shape(data: DataSettings) -> tuple[int, ...]:
    """Return the feature shape of one position of the configured data.

    A missing data file counts as ZuCo's EEG, or as `data.fmri.grid` if its name is `narratives.h5`.
    """
    source = data.source
    if source == "synthetic":
        return (data.synthetic.features,)
    if source == "synthetic-fmri":
        return data.synthetic_fmri.grid
    if source.endswith((".tsv", ".csv")):
        return (len(data.table.feature_columns) or ZUCO_FEATURES,)
    if source.endswith(".h5"):
        if Path(source).exists():
            return read_outline(source).feature_shape
        if data.raw.is_waves:
            return (len(data.raw.channels) or ZUCO_CHANNELS,)
        return data.fmri.grid if Path(source).stem == "narratives" else (ZUCO_FEATURES,)
    return (ZUCO_CHANNELS * len(data.recordings.bands),)


def made_up_channels(data: DataSettings) -> Channels:
    """Return what the data file says of its channels; without a file, places and names that LaBraM knows."""
    if data.source.endswith(".h5") and Path(data.source).exists():
        return channels_of(read_outline(data.source))
    count = math.prod(feature_shape(data))
    names = tuple(LABRAM_CHANNELS[n % len(LABRAM_CHANNELS)] for n in range(count))
    return Channels(names, data.raw.resample, ((0.0, 0.0, 0.1),) * count)


class UsualTokenizer(AnyTokenizer):
    """A tokenizer of a backbone's usual vocabulary size, with one token per word of a prompt."""

    chat_template = "the user's words"

    def __init__(self, backbone: str):
        self._size = VOCABULARY.get(backbone, 0)

    def __len__(self) -> int:
        return self._size

    def apply_chat_template(self, said: list[dict[str, str]], **_: Any) -> str:
        return said[0]["content"]  # a real chat template adds a few tokens

    def __call__(self, text: str, **_: Any) -> dict[str, list[int]]:
        """Return a token id per word or `<|special token|>`; only their number matters."""
        return {"input_ids": [3] * len(re.findall(r"<\|[^|]*\|>|\S+", text))}

    def get_added_vocab(self) -> dict[str, int]:
        return {"": 3}
