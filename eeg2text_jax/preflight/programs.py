"""The real training step and beam search of a configuration, traced for devices that need not exist.

Also `largest_batch`: extrapolate memory linearly from two compilations, and confirm the result by a third.
"""

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import AbstractMesh, Mesh, NamedSharding
from ml_collections import ConfigDict

from eeg2text_jax.backbones.build import build_model
from eeg2text_jax.conditions.condition import condition_key, needs
from eeg2text_jax.data.batches import batch_shapes
from eeg2text_jax.data.datafile import read_outline
from eeg2text_jax.data.text import load_tokenizer
from eeg2text_jax.decoding.sharded import generate_program
from eeg2text_jax.errors import UserError
from eeg2text_jax.models.functional import Seq2SeqModel
from eeg2text_jax.parallel.arms import compile_step
from eeg2text_jax.parallel.placement import Placement, batch_sharding, fed_sharding, replicated, seeds_sharding
from eeg2text_jax.pretrained.start import model_from_checkpoint
from eeg2text_jax.search.settings import GenerationSpec
from eeg2text_jax.stores.copying import at_hand
from eeg2text_jax.study.grid import Arm, StudyArrays, arms, dropout_keys
from eeg2text_jax.study.ranges import check_config
from eeg2text_jax.training.loop import make_program
from eeg2text_jax.training.step import GridProgram

ZUCO_CHANNELS = 105
ZUCO_FEATURES = 8 * ZUCO_CHANNELS  # per word: one feature per band and channel
# Vocabulary size of each backbone's usual checkpoint, used if the configuration names no tokenizer.
VOCABULARY = {"bart": 50265, "pegasus": 96103, "t5": 32128, "bert2bert": 30522}


@dataclasses.dataclass(frozen=True)
class Program:
    """A jitted function and its argument shapes with shardings."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...]

    def argument_bytes(self) -> int:
        """The bytes of the arguments on one device."""
        return sum(_device_bytes(leaf) for leaf in jax.tree.leaves(self.arguments))


@dataclasses.dataclass(frozen=True)
class Outline:
    """The inputs of a study's compiled programs, without its data."""

    config: ConfigDict
    model: Seq2SeqModel
    arms: tuple[Arm, ...]
    features: tuple[int, ...]  # (F,), or (X, Y, Z) of volumes

    @property
    def bucket(self) -> tuple[int, int]:
        """The largest bucket (words, tokens), which needs the most memory."""
        return self.buckets[0]

    @property
    def buckets(self) -> list[tuple[int, int]]:
        """All buckets (words, tokens), the largest first."""
        return sorted({tuple(map(int, bucket)) for bucket in self.config.batch.buckets}, reverse=True)

    def mapped(self, mapping: str) -> "Outline":
        """Return a copy that computes the arms of a device by `vmap` (in parallel) or `map` (in sequence)."""
        config = self.config.copy_and_resolve_references()
        config.parallel.arms = mapping
        return dataclasses.replace(self, config=config)

    def training(self, placement: Placement, batch_size: int, bucket: tuple[int, int] | None = None) -> Program:
        """Return the training step of all arms; default bucket: the largest."""
        program = self._program(placement.mesh)
        state = placement.abstract(program.state_shapes())
        step = compile_step(program.train_step, placement.mesh, placement.formats(state))
        fields, seeds = self._batch_fields(), len({arm.seed for arm in self.arms})
        shapes = batch_shapes(bucket or self.bucket, batch_size, self.features, *fields, seeds=seeds)
        batch = _placed(shapes, seeds_sharding(placement.mesh))
        return Program(step, (state, batch, _placed(self._study_arrays(), replicated(placement.mesh))))

    def search(self, placement: Placement) -> Program:
        """Return the beam search of all arms on the longest sentences, with parameters sharded as after training."""
        mesh, size, words = placement.mesh, int(self.config.decode.batch_size), self.bucket[0]
        spec = GenerationSpec.from_fields(self.config.decode, self.model)
        params = placement.abstract(self._program().state_shapes().params)
        rows, shared = fed_sharding(mesh), batch_sharding(mesh)
        features = jax.ShapeDtypeStruct((len(self.arms), size, words, *self.features), jnp.float32, sharding=rows)
        mask = jax.ShapeDtypeStruct((size, words), jnp.bool_, sharding=shared)
        keys = None
        if spec.do_sample:
            keys = _placed(jax.eval_shape(lambda: jax.random.split(jax.random.key(0), size)), shared)
        return Program(
            generate_program(self.model, spec, mesh, self.config.decode.compactions),
            (params, {"features": features}, ({"mask": mask}, keys)),
        )

    def _program(self, mesh: Mesh | AbstractMesh | None = None) -> GridProgram:
        return make_program(self.config, self.model, self.arms, mesh)

    def _batch_fields(self) -> list[str]:
        """Optional fields that the study's training batches have."""
        needed = [name for name in ("subject", "donor", "clock", "neighbor") if name in self._needs]
        return ["labels", *needed, *(["shuffled_labels"] if "label_shuffle" in self._conditions else [])]

    def _study_arrays(self) -> StudyArrays:
        keys = jax.eval_shape(lambda: (dropout_keys(self.arms, 0, self.config.train.rng), condition_key(0)))
        means = jax.ShapeDtypeStruct((2, *self.features), jnp.float32) if "means" in self._needs else None
        return StudyArrays(*keys, means)

    @property
    def _conditions(self) -> list[str]:
        """All conditions of the grid: batches carry the fields that any of them needs."""
        return sorted({*self.config.grid.train_conditions, *self.config.grid.eval_conditions})

    @property
    def _needs(self) -> frozenset[str]:
        return needs(self._conditions)


def make_outline(config: ConfigDict) -> Outline:
    """Return the outline of a configuration without reading data.

    The model's shape comes from a local checkpoint folder; otherwise (also for a Hub name) from `model.shape` with the
    vocabulary of the backbone's usual tokenizer. The feature shape comes from the data file if it exists, else from the
    synthetic data, ZuCo's EEG, or for `narratives.h5` from `data.fmri.grid`.

    Raises:
      UserError: a field of the configuration is not usable.
    """
    check_config(config)
    if config.objective != "generate":
        raise UserError(
            f"preflight compiles training and decoding of objective=generate; objective is {config.objective!r}, whose "
            "encoder fits wherever a generative model does."
        )
    features = _features(config)
    if config.parallel.arms == "auto":  # "auto" would look at this machine's devices
        config = config.copy_and_resolve_references()
        config.parallel.arms = "vmap"
    checkpoint = Path(at_hand(config.model.checkpoint)).expanduser()
    if config.model.checkpoint and checkpoint.is_dir():
        tokenizer = load_tokenizer(config.text.tokenizer or checkpoint)
        model = model_from_checkpoint(config.model, features, tokenizer)
    else:
        tokenizer = TokenIds(config.model.backbone)
        model = build_model(config.model, features, tokenizer)
    together = int(config.parallel.wave) or None  # 0: all of them
    return Outline(config, model, arms(config)[:together], features)


def _features(config: ConfigDict) -> tuple[int, ...]:
    """Return the feature shape of one position of the configured data, which need not exist."""
    source = str(config.data.source)
    if source == "synthetic":
        return (int(config.data.synthetic.features),)
    if source == "synthetic-fmri":
        return tuple(config.data.synthetic_fmri.grid)
    if source.endswith((".tsv", ".csv")):
        return (len(config.data.table.feature_columns) or ZUCO_FEATURES,)
    if source.endswith(".h5"):
        if Path(source).exists():
            return read_outline(source).feature_shape
        return tuple(config.data.fmri.grid) if Path(source).stem == "narratives" else (ZUCO_FEATURES,)
    return (ZUCO_CHANNELS * len(config.data.recordings.bands),)


class TokenIds:
    """A stand-in for a backbone's usual tokenizer: its special tokens and vocabulary size."""

    bos_token_id = cls_token_id = 0
    pad_token_id = 1
    eos_token_id = sep_token_id = 2

    def __init__(self, backbone: str):
        self._size = VOCABULARY.get(backbone, 0)

    def __len__(self) -> int:
        return self._size

    def __call__(self, text: str, **_: Any) -> dict[str, list[int]]:
        """Return one token per word of a prompt; only the number matters."""
        return {"input_ids": [3] * len(text.split())}


def _placed(shapes: Any, sharding: NamedSharding) -> Any:
    return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding), shapes)


def _device_bytes(leaf: jax.ShapeDtypeStruct) -> int:
    items = 1
    for length in leaf.sharding.shard_shape(leaf.shape):
        items *= length
    return items * leaf.dtype.itemsize


# Share of a chip's memory available to programs; the rest goes to the runtime and fragmentation.
USABLE = 0.97
LARGEST = 2**14  # upper bound of the search
# If the confirming compilation deviates from the line by more than this share, another one follows.
TOLERANCE = 0.05


@dataclasses.dataclass(frozen=True)
class LargestBatch:
    """The result of `largest_batch`.

    Fields:
      size: the largest compiled batch that fits; 0 if none does.
      confirmed: whether `size` equals the extrapolated batch.
      estimate: the last extrapolated batch; compiled only if `confirmed`.
      tried: bytes by batch size, for every compiled batch.
    """

    size: int
    confirmed: bool
    estimate: int
    tried: dict[int, int]


def second_size(start: int, first: int | None, step: int, limit: int) -> int:
    """Return the second batch size: twice `start`, or half of it if `start` (of `first` bytes) did not fit."""
    return 2 * start if first is None or first <= limit else max(start // 2 // step * step, step)


def largest_batch(
    compile_bytes: Callable[[int], int], known: Mapping[int, int], step: int, limit: int, compilations: int = 5
) -> LargestBatch:
    """Search for the largest multiple of `step` whose memory is at most `limit`.

    Memory is approximately affine in the batch size. The batch extrapolated from two known sizes is compiled. If it
    does not fit, or far more would fit, the line is redrawn through the two sizes nearest to the limit. The result is
    always a batch that was compiled.

    Args:
      compile_bytes: batch size -> bytes on one device.
      known: bytes of two sizes, multiples of `step`.
      step: devices along the batch; the batch must be a multiple.
      limit: bytes on one device.
      compilations: the maximum number of further compilations.
    """
    tried, confirmed = dict(known), False
    estimate = promise(tried, step, limit)
    while compilations and estimate >= step:
        if estimate not in tried:
            compilations -= 1
            tried[estimate] = compile_bytes(estimate)
        after = promise(tried, step, limit)
        confirmed = tried[estimate] <= limit and after - estimate <= max(TOLERANCE * estimate, step)
        if confirmed or after == estimate:
            break
        estimate = after
    fitting = max((size for size, taken in tried.items() if taken <= limit), default=0)
    return LargestBatch(fitting, confirmed and fitting == estimate, estimate, dict(sorted(tried.items())))


def promise(tried: Mapping[int, int], step: int, limit: int) -> int:
    """Return the largest multiple of `step` that fits according to the line through the two sizes nearest to the limit.

    The result is at least the largest size known to fit, and below the smallest size known not to fit; if the line
    leaves this interval, its midpoint is returned. (T5-large needs the same memory at batch 32 and 64 to 0.5 %, because
    the optimizer update dominates.)
    """
    below = max((size for size, taken in tried.items() if taken <= limit), default=0)
    above = min((size for size, taken in tried.items() if taken > limit), default=LARGEST + step)
    near = sorted(tried, key=lambda size: abs(tried[size] - limit))[:2]
    if len(near) < 2:
        return below
    line = _crossing(tried, near[0], near[1], limit) // step * step
    if line >= above and below and above in tried:
        line = _crossing(tried, below, above, limit) // step * step
    return max(min(line, above - step), below)


def _crossing(tried: Mapping[int, int], first: int, second: int, limit: int) -> int:
    """Return the batch size at which the line through two sizes reaches the limit."""
    slope = max((tried[second] - tried[first]) / (second - first), 1.0)
    return int(first + (limit - tried[first]) / slope)
