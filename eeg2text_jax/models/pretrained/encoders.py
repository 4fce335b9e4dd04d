"""Text encoders from checkpoints, up to any layer: BERT, RoBERTa, or the encoder of BART, PEGASUS or T5."""

import dataclasses
import functools
import hashlib
import json
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax import Array
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from scipy import special
from transformers import PretrainedConfig, PreTrainedTokenizerBase

from eeg2text_jax.base.devices.hosts import to_host
from eeg2text_jax.base.errors import UserError
from eeg2text_jax.base.files import file_digest, parse_json
from eeg2text_jax.data.text import load_tokenizer
from eeg2text_jax.models._stack import Stack
from eeg2text_jax.models.backbones import bart, pegasus, t5
from eeg2text_jax.models.backbones.bert2bert import OLD_NORMS, UNUSED, bert_rules, bert_stack
from eeg2text_jax.models.backbones.build import backbone_module
from eeg2text_jax.models.backbones.mapping import Rule, Table, match
from eeg2text_jax.models.nnx_bridge import Params, PureModel
from eeg2text_jax.models.pretrained.folder import INDEX, checkpoint_folder, read_tensors, weights_file
from eeg2text_jax.models.pretrained.load import assemble, backbone_table, read_config, tensor_shapes
from eeg2text_jax.models.spec import StackSpec

_BACKBONES = {module.MODEL_TYPE: module for module in (bart, pegasus, t5)}
MODEL_TYPES = ("bert", "roberta", *_BACKBONES)  # `model_type` of supported encoders in config.json


@dataclasses.dataclass(frozen=True)
class EncoderSpec:
    """A text encoder and its embedding table."""

    model_type: str
    vocab_size: int
    stack: StackSpec
    pad_token: int
    embedding_scale: float = 1.0

    @property
    def table(self) -> str:
        """Name of the embedding table among our parameters, as in the whole backbone."""
        return "shared" if self.model_type in _BACKBONES else "encoder_embedding"


def encoder_spec(config: PretrainedConfig, where: str) -> EncoderSpec:
    """Return the description of a Hugging Face configuration's encoder; raise a UserError if it is not supported."""
    kind = config.model_type
    if kind in _BACKBONES:
        spec = _BACKBONES[kind].spec_from_config(config)
        return EncoderSpec(kind, spec.vocab_size, spec.encoder, spec.pad_token, spec.embedding_scale)
    if kind not in MODEL_TYPES:
        raise UserError(
            f"{where}: model_type in config.json is {kind!r}; expected one of {', '.join(MODEL_TYPES)} for a text "
            "encoder; choose another checkpoint."
        )
    stack = bert_stack(config, decoder=False)
    if kind == "roberta":
        offset = config.pad_token_id + 1
        stack = dataclasses.replace(stack, position_offset=offset, max_positions=stack.max_positions - offset)
    return EncoderSpec(kind, config.vocab_size, stack, config.pad_token_id)


class _Network(nnx.Module):
    """A text encoder with the parameter names, and so the table, of a whole encoder-decoder."""

    def __init__(self, spec: EncoderSpec, dtype: jnp.dtype, rngs: nnx.Rngs) -> None:
        init = jax.nn.initializers.normal(spec.stack.init_std or 1.0)
        table = nnx.Param(init(rngs.params(), (spec.vocab_size, spec.stack.width), jnp.float32))
        parts = {spec.table: nnx.Dict(embedding=table), "encoder": Stack(spec.stack, dtype, rngs)}
        self.backbone, self.spec = nnx.Dict(**parts), spec

    def __call__(self, ids: Array, mask: Array) -> Array:
        table = self.backbone[self.spec.table]["embedding"]
        return self.backbone.encoder(table[...][ids] * self.spec.embedding_scale, mask)


@dataclasses.dataclass(frozen=True)
class TextEncoder(PureModel):
    """A text encoder as pure functions of its parameters."""

    spec: EncoderSpec
    dtype: str = "float32"  # compute dtype

    def hidden(self, params: Params, ids: Array, mask: Array) -> Array:
        """Map ids int32 `[B, T]` and their mask `[B, T]` to hidden states `[B, T, D]`, without a meaning at padding."""
        return self._module(params)(ids, mask)

    def _make(self) -> functools.partial:
        return functools.partial(_Network, self.spec, jnp.dtype(self.dtype))


# Last part of a model's name -> the layer that agrees best with human judgement of translations, by bert-score 0.3.13
# (Zhang et al. 2020, appendix B); MiniLM's last layer was the best in our comparison.
BEST_LAYERS = {
    "roberta-large": 17, "roberta-base": 10, "bert-base-uncased": 9, "bert-large-uncased": 18, "bart-base": 6,
    "bart-large": 10, "t5-small": 6, "t5-base": 11, "t5-large": 23, "pegasus-large": 8, "minilm": 6,
}  # fmt: skip


class LoadedEncoder(NamedTuple):
    """A text encoder up to the layer in use, with its parameters and tokenizer."""

    name: str  # the last part of the checkpoint's name
    encoder: TextEncoder
    params: Params
    tokenizer: PreTrainedTokenizerBase
    folder: Path
    digest: str  # of the weights, see `weights_digest`
    tuned_layer: bool  # the user or BEST_LAYERS chose the layer
    is_whole: bool  # all layers of the checkpoint are loaded


def load_encoder(name: str | Path, layer: int | Literal["last"] | None = None) -> LoadedEncoder:
    """Load BERT, RoBERTa, or the encoder of BART, PEGASUS or T5, up to the layer `layer`.

    `name` is as for `checkpoint_folder`; layer 0 are the embeddings, None is the layer in `BEST_LAYERS`, or the last.
    The final norm of T5 and PEGASUS comes after it, as in bert-score. Raises UserError if there is no such checkpoint,
    encoder or layer.
    """
    folder = checkpoint_folder(name)
    config = read_config(folder)
    whole = encoder_spec(config, str(folder))
    short, depth = str(name).rstrip("/").rpartition("/")[2], whole.stack.layers
    n_layers = min(BEST_LAYERS.get(short, depth), depth) if layer is None else depth if layer == "last" else layer
    if not 0 <= n_layers <= depth:
        raise UserError(f"--layer={layer}: {short} has layers 0 (its embeddings) to {depth}.")
    encoder = TextEncoder(dataclasses.replace(whole, stack=dataclasses.replace(whole.stack, layers=n_layers)))
    shapes = encoder.shapes
    sources = match(_cut_table(whole, n_layers, config), read_tensors(folder), tensor_shapes(shapes), str(folder))
    # RoBERTa's first word, too, follows a space; in the tokenizer's calls, transformers 5 ignores this option.
    tokenizer = load_tokenizer(folder, **({"add_prefix_space": True} if whole.model_type == "roberta" else {}))
    params, digest, tuned = assemble(sources, shapes), weights_digest(folder), layer is not None or short in BEST_LAYERS
    return LoadedEncoder(short, encoder, params, tokenizer, folder, digest, tuned, n_layers == depth)


def weights_digest(folder: Path) -> str:
    """Return the SHA-256 of a checkpoint's weights file, or of the digests of its shards by name."""
    name = weights_file({path.name for path in folder.iterdir()})
    if not name.endswith(INDEX):
        return file_digest(folder / name)
    shards = sorted(set(json.loads((folder / name).read_text("utf8"))["weight_map"].values()))
    return hashlib.sha256("".join(file_digest(folder / Path(shard).name) for shard in shards).encode()).hexdigest()


def _cut_table(whole: EncoderSpec, layers: int, config: PretrainedConfig) -> Table:
    """Return the table of the first `layers` layers; other known tensors are ignored."""
    if whole.table == "shared":
        table = backbone_table(backbone_module(whole.model_type).spec_from_config(config))
    else:
        prefix = whole.model_type
        rules = bert_rules("encoder", prefix, whole.stack.layers)
        unused = (*UNUSED, r"lm_head\..*", r"classifier\..*", r"(.*\.)?embeddings\.token_type_ids")
        table = Table(prefix.upper(), tuple(rules), unused, ((rf"^{prefix}\.", ""), *OLD_NORMS))
    ours = (f"backbone/{whole.table}/", "backbone/encoder/")
    cut_rules: list[Rule] = []
    passed: set[str] = set()
    for rule in table.rules:
        passed |= {*rule.names(), *rule.tied}
        if rule.target.startswith(ours) and (layers or not rule.layers):
            cut_rules.append(dataclasses.replace(rule, layers=min(rule.layers, layers)))
            passed -= {*cut_rules[-1].names(), *rule.tied}
    for prefix in table.spellings[:1]:  # in some files, names lack this prefix
        passed |= {re.sub(*prefix, name) for name in passed}
    return dataclasses.replace(table, rules=tuple(cut_rules), ignored=(*table.ignored, *map(re.escape, sorted(passed))))


# Hidden states of distinct texts, in batches of fixed widths. Shapes: N texts, T tokens, D width.

# Widths of batches in tokens; each in use is compiled once.
WIDTHS = (8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048)
# Tokens of a batch, padding included. A CPU is as fast with 1024 as with 4096, with fewer empty rows at the end.
TOKENS = {"cpu": 1024, "gpu": 32768, "tpu": 32768}
KEPT = 1 << 30  # largest size of the cache of hidden states, bytes
LONGEST = 512  # limit in tokens if neither tokenizer nor position embeddings set one


class TextEmbedder:
    """Token ids and hidden states of texts, for all metrics of one encoder; up to `KEPT` bytes of states are cached."""

    def __init__(self, loaded: LoadedEncoder):
        self.loaded = loaded
        limits = (loaded.tokenizer.model_max_length, loaded.encoder.spec.stack.max_positions)
        self.max_tokens = int(min([LONGEST, *filter(None, limits)]))
        self.cut = 0  # number of texts so far that were longer than their limit
        self._mesh = Mesh(np.array(jax.local_devices()), ("data",))
        self._params = jax.device_put(loaded.params, NamedSharding(self._mesh, P()))
        self._states: dict[bytes, np.ndarray] = {}
        self._bytes = 0

    def tokens(self, texts: Sequence[str], max_tokens: int | None = None) -> list[np.ndarray]:
        """Return the token ids of every stripped text, with special tokens, int32 `[T]`, cut to `max_tokens`.

        The tokenizer file's settings of truncation and padding are ignored.
        """
        tokenizer, limit = self.loaded.tokenizer, min(max_tokens or self.max_tokens, self.max_tokens)
        if not texts:  # transformers fails on an empty list
            return []
        stripped = [text.strip() for text in texts]
        encoded = tokenizer(stripped, truncation=False, padding=False, verbose=False)["input_ids"]
        if long := [row for row, ids in enumerate(encoded) if len(ids) > limit]:
            self.cut += len(long)
            short = tokenizer([stripped[row] for row in long], truncation=True, max_length=limit, padding=False)
            for row, ids in zip(long, short["input_ids"], strict=True):
                encoded[row] = ids
        return [np.asarray(ids, np.int32) for ids in encoded]

    def states(self, ids: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Return the hidden states of every sequence of tokens, float32 `[T, D]`; distinct ones are computed once."""
        keys = [one.tobytes() for one in ids]
        new = {key: one for key, one in zip(keys, ids, strict=True) if key not in self._states}
        state_of = dict(zip(new, self._compute(list(new.values())), strict=True))
        state_of |= {key: self._states[key] for key in keys if key not in state_of}
        for key in new:
            self._states[key] = state_of[key]
            self._bytes += state_of[key].nbytes
        while self._bytes > KEPT:
            self._bytes -= self._states.pop(next(iter(self._states))).nbytes
        return [state_of[key] for key in keys]

    def forget(self) -> None:
        self._states.clear()
        self._bytes = 0

    def _compute(self, ids: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Compute the states `[T, D]`; a batch is read after the next is dispatched, to save time."""
        states: list[np.ndarray] = [np.empty(0, np.float32)] * len(ids)

        def read(places: np.ndarray, batch: Array) -> None:
            for place, state in zip(places, to_host(batch), strict=False):
                states[place] = state[: len(ids[place])].copy()

        rows = NamedSharding(self._mesh, P("data"))
        pending: tuple[np.ndarray, Array] | None = None
        for places, width, size in plan_batches([len(one) for one in ids], len(jax.local_devices())):
            block = np.full((size, width), self.loaded.encoder.spec.pad_token, np.int32)
            lengths = np.ones(size, np.int32)  # padding rows have length 1
            for row, place in enumerate(places):
                block[row, : len(ids[place])], lengths[row] = ids[place], len(ids[place])
            dispatched = _encode(self.loaded.encoder, self._params, *jax.device_put((block, lengths), rows))
            if pending:
                read(*pending)
            pending = places, dispatched
        if pending:
            read(*pending)
        return states

    def describe(self, max_tokens: int | None = None) -> str:
        """Return the part of a metric's signature that names encoder and layer."""
        loaded, limit = self.loaded, min(max_tokens or self.max_tokens, self.max_tokens)
        layer = f"{loaded.encoder.spec.stack.layers}{'' if loaded.tuned_layer else ',untuned'}"
        space = "yes" if loaded.encoder.spec.model_type == "roberta" else "-"
        return f"model:{loaded.name}[sha256:{loaded.digest[:12]}]|layer:{layer}|max:{limit}|prefix-space:{space}"


def plan_batches(lengths: Sequence[int], devices: int) -> Iterator[tuple[np.ndarray, int, int]]:
    """Yield (indices of texts, width in tokens, number of rows) of every batch of texts of similar length.

    Rows are a multiple of the devices. Texts that do not fill a batch move to the next larger width in use, if they
    take fewer positions there: 479 texts of 23 tokens on average then take 14,000 positions instead of 29,000.
    """
    lengths = np.asarray(lengths, int)
    budget = TOKENS.get(jax.default_backend(), TOKENS["gpu"])
    bucket = np.searchsorted(WIDTHS, lengths)
    used = np.unique(bucket).tolist()
    left = np.zeros(0, int)
    for number, wider in zip(used, [*used, None][1:], strict=True):
        width = WIDTHS[number]
        inside = np.concatenate([left, np.flatnonzero(bucket == number)])
        size = max(budget // width // devices, 1) * devices
        whole = len(inside) // size * size
        carried = wider is not None and (len(inside) - whole) * WIDTHS[wider] < size * width
        left, inside = (inside[whole:], inside[:whole]) if carried else (inside[:0], inside)
        for start in range(0, len(inside), size):
            yield inside[start : start + size], width, size


@functools.partial(jax.jit, static_argnums=0)
def _encode(encoder: TextEncoder, params: Params, ids: Array, lengths: Array) -> Array:
    """Map ids `[N, T]`, the first `lengths [N]` of them real, to hidden states `[N, T, D]`, float32."""
    mask = jnp.arange(ids.shape[1])[None] < lengths[:, None]
    return encoder.hidden(params, ids, mask).astype(jnp.float32)


# Modules of sentence-transformers: `modules.json` lists the encoder and what follows it, with a folder each. SentenceT5
# (Ni et al. 2021) is a T5 encoder, the mean over tokens, a dense layer without bias, normalization.

# Hidden states `[T, D]` of a text -> vector `[D]`; special tokens count. Several poolings are concatenated in this
# order.
POOLINGS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "cls": lambda states: states[0],
    "max": lambda states: states.max(0),
    "mean": lambda states: states.mean(0),
    "mean_sqrt_len_tokens": lambda states: states.sum(0) / np.sqrt(len(states)),
    "weightedmean": lambda states: np.arange(1, len(states) + 1) @ states / (len(states) * (len(states) + 1) / 2),
    "lasttoken": lambda states: states[-1],
}
# Flag in files of older versions of sentence-transformers -> name in POOLINGS, in the same order.
_FLAGS = ("cls_token", "max_tokens", "mean_tokens", "mean_sqrt_len_tokens", "weightedmean_tokens", "lasttoken")
FLAGS = {f"pooling_mode_{flag}": name for flag, name in zip(_FLAGS, POOLINGS, strict=True)}
ACTIVATIONS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "Identity": lambda x: x,
    "Tanh": np.tanh,
    "ReLU": lambda x: np.maximum(x, 0),
    "Sigmoid": special.expit,
    "GELU": lambda x: x * special.ndtr(x),
    "SiLU": lambda x: x * special.expit(x),
}


class Module(NamedTuple):
    """A step after the encoder: its name in a metric's signature, and a function of a float64 array."""

    name: str
    apply: Callable[[np.ndarray], np.ndarray]


@dataclasses.dataclass(frozen=True)
class SentenceModules:
    """The modules after the encoder, and how texts are prepared before it."""

    modules: tuple[Module, ...] = (Module("mean", POOLINGS["mean"]),)
    max_tokens: int | None = None  # limit of the text's length; None: no limit
    lower_case: bool = False  # whether texts are lower-cased first
    stated: bool = False  # whether the modules come from the folder's `modules.json`

    @property
    def name(self) -> str:
        """Names of the modules for a metric's signature, without a final normalization, which changes no cosine."""
        names = [module.name for module in self.modules]
        return "+".join(names[:-1] if names[-1] == "normalize" else names) + ("" if self.stated else ",unstated")

    def embed(self, states: np.ndarray) -> np.ndarray:
        """Map the hidden states `[T, D]` of a text to its embedding, float64 `[E]`."""
        value = states.astype(np.float64)
        for module in self.modules:
            value = module.apply(value)
        return value


def read_modules(folder: Path) -> SentenceModules:
    """Read `modules.json` and the files that it names; without it, a sentence is the mean over its tokens.

    Raises UserError if a file cannot be read, does not fit, or names an unknown module.
    """
    path = folder / "modules.json"
    if not path.is_file():
        return SentenceModules()
    modules: list[Module] = []
    for module in _read_json(path, list):
        if not isinstance(module, dict) or not isinstance(module.get("type"), str):
            raise UserError(f"{path}: expected a list of objects with `type` and `path`; copy the checkpoint again.")
        kind = module["type"].rpartition(".")[2]
        if kind not in _READERS:
            raise UserError(
                f"{path}: the sentence encoder has a stage {module['type']!r}, which is not supported; expected "
                f"{', '.join(_READERS)}; choose another encoder."
            )
        modules += _READERS[kind](folder / str(module.get("path", "")))
    if not modules or modules[0].name == "normalize" or modules[0].name.startswith("dense"):
        raise UserError(
            f"{path}: no Pooling comes after the encoder, so a sentence has no single vector; choose another encoder."
        )
    beside = folder / "sentence_bert_config.json"
    settings = _read_json(beside, dict) if beside.is_file() else {}
    return SentenceModules(tuple(modules), settings.get("max_seq_length"), bool(settings.get("do_lower_case")), True)


def _pooling(folder: Path) -> list[Module]:
    path = folder / "config.json"
    settings = _read_json(path, dict)
    modes = settings.get("pooling_mode")
    if modes is None:
        flags = [name for name, value in settings.items() if name.startswith("pooling_mode_") and value is True]
        modes = sorted(flags, key=lambda name: [*FLAGS, name].index(name))
    poolings = [FLAGS.get(str(name), str(name)) for name in ([modes] if isinstance(modes, str) else modes)]
    if not poolings or not {*poolings} <= POOLINGS.keys():
        asked = ", ".join(poolings) or "no pooling"
        raise UserError(f"{path}: asks for {asked}; expected {', '.join(POOLINGS)}; choose another encoder.")
    return [Module(",".join(poolings), lambda states: np.concatenate([POOLINGS[name](states) for name in poolings]))]


def _dense(folder: Path) -> list[Module]:
    path = folder / "config.json"
    settings = _read_json(path, dict)
    name = str(settings.get("activation_function", "torch.nn.modules.activation.Tanh")).rpartition(".")[2]
    if name not in ACTIVATIONS:
        raise UserError(f"{path}: the activation is {name}; expected {' or '.join(ACTIVATIONS)}; choose another one.")
    if (read := settings.get("module_input_name", "sentence_embedding")) != "sentence_embedding":
        raise UserError(f"{path}: is a dense layer of {read}; expected sentence_embedding; choose another encoder.")
    tensors = read_tensors(folder)
    weight = np.asarray(tensors.get("linear.weight", ()), np.float64)
    bias = np.asarray(tensors["linear.bias"], np.float64) if "linear.bias" in tensors else None
    shape = settings.get("out_features"), settings.get("in_features")
    if weight.shape != shape or (bias is not None) != bool(settings.get("bias", True)):
        raise UserError(
            f"{folder}: linear.weight is {list(weight.shape)}, {'with' if bias is not None else 'without'} a bias; "
            f"config.json has {list(shape)} and bias {settings.get('bias', True)}; copy the checkpoint again."
        )
    shift, digest = 0.0 if bias is None else bias, weights_digest(folder)[:12]
    return [Module(f"dense[{name},sha256:{digest}]", lambda x: ACTIVATIONS[name](weight @ x + shift))]


def normalize(vector: np.ndarray) -> np.ndarray:
    """Scale a vector to length 1; a zero vector stays zero."""
    return vector / max(float(np.linalg.norm(vector)), 1e-12)


_READERS: dict[str, Callable[[Path], list[Module]]] = {
    "Transformer": lambda folder: [],
    "Pooling": _pooling,
    "Dense": _dense,
    "Normalize": lambda folder: [Module("normalize", normalize)],
}


def _read_json(path: Path, kind: type) -> Any:
    try:
        value = parse_json(path.read_text("utf8"))
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: cannot be read as JSON; copy the checkpoint again.") from error
    if not isinstance(value, kind):
        raise UserError(f"{path}: expected a JSON {kind.__name__}, found {type(value).__name__}; copy it again.")
    return value
