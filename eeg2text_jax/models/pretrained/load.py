"""A model and its parameters from a checkpoint's folder or its name on the Hugging Face Hub."""

import contextlib
import dataclasses
import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from transformers import AutoConfig, EncoderDecoderConfig, PretrainedConfig, PreTrainedTokenizerBase

from eeg2text_jax.base.devices.arms import Divided, joined
from eeg2text_jax.base.errors import UserError, one_line
from eeg2text_jax.base.files import parse_json
from eeg2text_jax.data.text import has_vocabulary, load_tokenizer, needs_code
from eeg2text_jax.models.backbones import ModelSettings, bert2bert
from eeg2text_jax.models.backbones.build import (
    BACKBONES,
    UNKNOWN,
    Shape,
    backbone_module,
    backbone_of,
    check_depth,
    describe,
    first_known,
    model_around,
)
from eeg2text_jax.models.backbones.mapping import Rule, Source, Table, Tensors, flatten, match, unflatten
from eeg2text_jax.models.functional import AnyModel, Seq2SeqModel, divide, frozen_shapes
from eeg2text_jax.models.layers import int8_of
from eeg2text_jax.models.nnx_bridge import Params
from eeg2text_jax.models.pretrained import folder as export_files
from eeg2text_jax.models.pretrained.folder import checkpoint_folder, fingerprint, read_tensors
from eeg2text_jax.models.pretrained.wave_folder import wave_sources
from eeg2text_jax.models.spec import Channels, Seq2SeqSpec

# Parameters copied at the same time; copying and the first touch of memory keep more than one core busy.
_AT_ONCE = 2

# Columns copied at once from a transposed view: 2 GB/s, row by row 0.4 (1024 x 4096, float32).
_STRIP = 16

# Abstract parameters (nested dict of jax.ShapeDtypeStruct) -> a sharding for each, in the same structure.
Shardings = Callable[[Params], Any]


def load_pretrained(
    name: str | Path, *, shardings: Shardings | None = None, dtype: str = "float32"
) -> tuple[Seq2SeqModel, Params]:
    """Load a checkpoint of a language model, or an export of `eeg2text export` with its brain encoder.

    Parameters become float32, but for an export's frozen language model, and are copied to their devices shard by
    shard.

    Args:
      name: a folder with config.json and weights, or a name on the Hugging Face Hub.
      shardings: gives each parameter its sharding; None: all are whole on the default device.
      dtype: compute dtype.

    Raises:
      UserError: there is no such checkpoint, its architecture is not supported, or its tensors, which the message
        names, are not those of its configuration.

    Examples:
      >>> from eeg2text_jax import load_pretrained
      >>> model, params = load_pretrained("export")
      >>> model.spec.backbone, model.eeg.features, sorted(params)
      ('bart', 6, ['backbone', 'eeg'])
    """
    folder = checkpoint_folder(name)
    if not (folder / "config.json").is_file() and (folder / export_files.FEEDING).is_file():
        return _around_frozen(folder, shardings, dtype)
    spec = stored_spec(read_config(folder), folder)
    beside = export_files.read_eeg(folder)
    model = Seq2SeqModel(spec, beside and beside[0], dtype)
    return model, assemble(_sources(model, folder), model.shapes, shardings)


def _around_frozen(folder: Path, shardings: Shardings | None, dtype: str) -> tuple[Seq2SeqModel, Params]:
    """Load an export without its frozen language model, which is `Feeding.base` in `Feeding.base_dtype`."""
    feeding, beside = export_files.read_feeding(folder), export_files.read_eeg(folder)
    if not feeding.base or beside is None:
        raise UserError(f"{folder}: has no config.json and names no language model; export the run again.")
    place = feeding.base  # a path begins with a dot, and is relative to the export
    base = checkpoint_folder(os.path.normpath(folder / place) if place.startswith(".") else place)
    if feeding.base_fingerprint not in ("", fingerprint(base)):
        said = f"its weights are not the weights that {folder} was trained with"
        raise UserError(f"{base}: {said}; restore the original weights.")
    spec = stored_spec(read_config(base), base)
    names = backbone_table(spec)
    spec = export_files.with_adapters(folder, spec, names)
    spec = dataclasses.replace(spec, decoder=dataclasses.replace(spec.decoder, int8=feeding.base_dtype == "int8"))
    model = Seq2SeqModel(spec, beside[0], dtype, shared_frozen=True)
    shapes = model.shapes
    expected = tensor_shapes(shapes)
    sources = match(names, read_tensors(base), expected, str(base))
    frozen = assemble(sources, frozen_shapes(model, feeding.base_dtype), shardings)
    sources = eeg_sources(beside[1], shapes, folder)
    if spec.adapters is not None:
        sources |= export_files.adapter_sources(folder, spec, names, expected)
    return model, joined(Divided(assemble(sources, shapes, shardings), frozen))


def read_config(folder: Path) -> PretrainedConfig:
    """Return a checkpoint folder's Hugging Face configuration; raise a UserError if it cannot be read."""
    where = folder / "config.json"
    if not where.is_file():
        raise UserError(f"{folder}: has no config.json beside the weights; download or copy the checkpoint again.")
    with contextlib.suppress(ValueError):  # transformers' reason is in the message below
        check_depth(parse_json(where.read_bytes()), str(where))
    try:
        return AutoConfig.from_pretrained(str(folder), local_files_only=True, trust_remote_code=False)
    except Exception as error:  # transformers raises many kinds of exceptions
        if needs_code(error):
            raise UserError(
                f"{where}: needs Python code of the folder (auto_map), which is never executed; expected a model_type "
                "that transformers knows."
            ) from error
        raise UserError(f"{where}: cannot be read as a model's configuration ({one_line(error)}).") from error


def spec_of(config: PretrainedConfig, where: Path) -> Seq2SeqSpec:
    """Return the description of a checkpoint's backbone; raise a UserError if it is not supported."""
    backbone = backbone_of(config)
    if backbone is None:
        kinds = ", ".join(backbone_module(name).MODEL_TYPE for name in BACKBONES)
        raise UserError(f"{where / 'config.json'}: model_type is {config.model_type!r}; expected one of {kinds}.")
    return describe(config, backbone, str(where / "config.json"))


def stored_spec(config: PretrainedConfig, folder: Path) -> Seq2SeqSpec:
    """Return `spec_of`, as it fits the checkpoint's tensors: PEGASUS may have learned positions."""
    spec = spec_of(config, folder)
    module = backbone_module(spec.backbone)
    return module.as_stored(spec, read_tensors(folder)) if hasattr(module, "as_stored") else spec


def backbone_table(spec: Seq2SeqSpec) -> Table:
    """Return the table that maps a backbone's parameters to the tensor names in its checkpoints."""
    return backbone_module(spec.backbone).table(spec)


def tensor_shapes(shapes: Params) -> dict[str, tuple[int, ...]]:
    """Return the shape of each parameter by its path, for `match`."""
    return {path: leaf.shape for path, leaf in flatten(shapes).items()}


def assemble(
    sources: Mapping[str, Source],
    shapes: Params,
    shardings: Shardings | None = None,
    arms: int | None = None,
    dtype: Any = None,
) -> Params:
    """Return nested parameters read from `sources`, copied to their devices, a few at a time.

    Args:
      sources: where each parameter is read from, by path.
      shapes: shapes of these parameters, and possibly of others.
      shardings: see `load_pretrained`; it is called with the shapes `[A, ...]` if `arms` is given.
      arms: number of arms `A`: a first axis `[A, ...]` with equal entries; None: no such axis.
      dtype: of the parameters; None: those in `shapes`. Int8 kernels are rounded, with scales, see `layers.int8_of`.
    """
    first = () if arms is None else (arms,)
    wanted = {*sources, *(f"{path}_scale" for path in sources if path.endswith("/kernel"))}
    leaves = {path: leaf for path, leaf in flatten(shapes).items() if path in wanted}
    flat = {path: jax.ShapeDtypeStruct((*first, *leaf.shape), leaf.dtype) for path, leaf in leaves.items()}
    where: Mapping[str, Any] = {} if shardings is None else flatten(shardings(unflatten(flat)))

    def put(path: str) -> Array:
        source, stored = sources[path], dtype or flat[path].dtype
        stored = source.pieces[0].dtype if stored == np.int8 else stored
        try:
            return place(source.pieces, where.get(path), stacked=source.stacked, arms=arms, dtype=stored)
        except _NotANumberError as error:
            name = source.names[error.args[0]]
            raise UserError(
                f"{source.where}: {name} holds values that are not a number (NaN); copy the checkpoint again, or take "
                "one from before its training failed."
            ) from None

    kernels = [path for path in sources if flat[path].dtype == np.int8]
    others = [path for path in sources if path not in kernels]
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        placed = dict(zip(others, pool.map(put, others), strict=True))
    # One kernel (of all layers) after the other: devices hold only one unrounded, and hosts use the same order.
    for path in kernels:
        both = path, f"{path}_scale"
        shardings_of_both = tuple(where[name] for name in both) if where else None
        rounded = jax.jit(int8_of, static_argnums=1, out_shardings=shardings_of_both)(put(path), -2)
        placed |= dict(zip(both, jax.block_until_ready(rounded), strict=True))
    return unflatten({path: placed[path] for path in flat})


def eeg_sources(tensors: Mapping[str, Any], shapes: Params, folder: Path) -> dict[str, Source]:
    """Return where the brain encoder's parameters are read from: `tensors` of an export."""
    rules = tuple(Rule(path, path.removeprefix("eeg/").replace("/", ".")) for path in flatten({"eeg": shapes["eeg"]}))
    return match(Table("EEG encoder", rules), tensors, tensor_shapes(shapes), str(folder / export_files.EEG_ENCODER))


def place(
    pieces: Sequence[np.ndarray],
    sharding: jax.sharding.Sharding | None,
    *,
    stacked: bool,
    arms: int | None = None,
    dtype: Any = np.float32,
) -> Array:
    """Return a parameter: `pieces[0]`, or with `stacked` the pieces, of one shape, on a new leading axis `[L, ...]`.

    The shards of this process's devices are copied one by one and cast to `dtype`, so that host memory holds one at a
    time (and the parameter itself, if the device is a CPU). With `arms` there is a first axis `[A, ...]` with equal
    entries. `sharding` None is whole on the default device.
    """
    layers = (len(pieces),) if stacked else ()
    shape = (*(() if arms is None else (arms,)), *layers, *pieces[0].shape)
    if sharding is None:
        sharding = jax.sharding.SingleDeviceSharding(jax.local_devices()[0])

    def shard(index: tuple[slice, ...]) -> np.ndarray:
        if arms is None:
            return _one_arm(pieces, index, stacked, dtype)
        one = _one_arm(pieces, index[1:], stacked, dtype)
        return np.broadcast_to(one, (len(range(arms)[index[0]]), *one.shape))

    # Wait, so that the shards of many parameters are not in host memory at once.
    return jax.block_until_ready(jax.make_array_from_callback(shape, sharding, shard, dtype=dtype))


class _NotANumberError(Exception):
    """A tensor holds NaN; the argument is its number among the parameter's pieces."""


def _one_arm(pieces: Sequence[np.ndarray], index: tuple[slice, ...], stacked: bool, dtype: Any) -> np.ndarray:
    if not stacked:
        piece = pieces[0][index]
        return _copy(piece, _empty(piece.shape, dtype), 0)
    parts = [piece[index[1:]] for piece in pieces[index[0]]]
    out = _empty((len(parts), *parts[0].shape), dtype)
    for number, target, part in zip(range(len(pieces))[index[0]], out, parts, strict=True):
        _copy(part, target, number)
    return out


def _copy(source: np.ndarray, target: np.ndarray, number: int) -> np.ndarray:
    """Copy a piece or a part of it; raise `_NotANumberError` with its number if it holds NaN."""
    if source.ndim == 2 and source.strides[0] < source.strides[1]:  # a transposed view
        for start in range(0, source.shape[1], _STRIP):
            target[:, start : start + _STRIP] = source[:, start : start + _STRIP]
    else:
        target[...] = source
    of_bits = target.dtype == jnp.bfloat16  # whose minimum numpy finds slowly
    if target.size and ((target.view(np.uint16) & 0x7FFF).max() > 0x7F80 if of_bits else np.isnan(target.min())):
        raise _NotANumberError(number)
    return target


def _empty(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """Return uninitialized memory, aligned to 64 bytes, which XLA needs to use it on a CPU without a copy."""
    size = np.dtype(dtype).itemsize * math.prod(shape)
    memory = np.empty(size + 64, np.uint8)
    start = -memory.ctypes.data % 64
    return memory[start : start + size].view(dtype).reshape(shape)


# Initial parameters of training: a checkpoint's, and random ones that it lacks.

# A tokenizer with a smaller share of the vocabulary is of another checkpoint; T5 rounds 32,100 tokens up to 32,128.
_LEAST_SHARE = 0.9


def checkpoint_config(folder: Path, tokenizer: PreTrainedTokenizerBase) -> PretrainedConfig:
    """Return a checkpoint's configuration; for a BERT, that of the BERT2BERT that is made from it."""
    config = read_config(folder)
    if config.model_type != "bert":
        return config
    decoder = type(config)(**{**config.to_dict(), "is_decoder": True, "add_cross_attention": True})
    ends = {"eos_token_id": tokenizer.sep_token_id, "pad_token_id": tokenizer.pad_token_id}
    tokens = {"decoder_start_token_id": tokenizer.cls_token_id, **ends}
    return EncoderDecoderConfig.from_encoder_decoder_configs(config, decoder, **tokens)


def model_from_checkpoint(
    config: ModelSettings, feature_shape: Shape, tokenizer: PreTrainedTokenizerBase, channels: Channels = UNKNOWN
) -> Seq2SeqModel:
    """Return the model of the section `model`, with the backbone of `config.checkpoint`, see `check_tokenizer`."""
    folder = checkpoint_folder(config.checkpoint)
    spec = stored_spec(checkpoint_config(folder, tokenizer), folder)
    if spec.backbone != config.backbone:
        raise UserError(
            f"config.model.backbone is {config.backbone!r}, but {config.checkpoint} is a {spec.backbone} checkpoint; "
            f"set config.model.backbone={spec.backbone}."
        )
    check_tokenizer(tokenizer, spec, folder)
    if spec.encoder is None:
        spec = dataclasses.replace(spec, eos_token=tokenizer.eos_token_id)
    return model_around(spec, config, feature_shape, tokenizer, channels)


def check_tokenizer(tokenizer: PreTrainedTokenizerBase, spec: Seq2SeqSpec, folder: Path) -> None:
    """Raise a UserError if a token's id differs between a tokenizer and a checkpoint, or their sizes do not fit."""
    own = load_tokenizer(folder) if has_vocabulary(folder) else None
    advice = "leave config.text.tokenizer empty to use the checkpoint's own"
    if own is None:
        advice = "set config.text.tokenizer to the one that the checkpoint was trained with"
    if len(tokenizer) > spec.vocab_size:
        raise UserError(f"{folder} has {spec.vocab_size} tokens, the tokenizer {len(tokenizer)}; {advice}.")
    pad = spec.eos_token if spec.pad_token == spec.vocab_size else spec.pad_token
    end = first_known(tokenizer.eos_token_id, tokenizer.sep_token_id)
    for name, ours, theirs in (("padding", tokenizer.pad_token_id, pad), ("end", end, spec.eos_token)):
        # Most decoder-only models have no padding token and several end tokens.
        if spec.encoder is not None and ours != theirs:
            raise UserError(f"the tokenizer's {name} token is {ours}, but {folder} has {theirs}; {advice}.")
    if own is None and len(tokenizer) < _LEAST_SHARE * spec.vocab_size:
        few = f"the tokenizer only {len(tokenizer)}: the tokenizer is of another checkpoint"
        raise UserError(f"{folder} has {spec.vocab_size} tokens, {few}; {advice}.")
    ids = {} if own is None else {id: token for token, id in own.get_vocab().items()}
    wrong = [(id, token, ids[id]) for token, id in tokenizer.get_vocab().items() if ids.get(id, token) != token]
    if wrong:
        id, ours, theirs = min(wrong)
        raise UserError(
            f"{len(wrong)} ids mean other tokens to the tokenizer than to {folder} (id {id} is {ours!r}, not "
            f"{theirs!r}); {advice}."
        )


@dataclasses.dataclass(frozen=True)
class Start:
    """Initial parameters of training, and which of them came from a checkpoint."""

    params: Params  # nested dict of float32 arrays `[A, ...]`, A arms
    loaded: tuple[str, ...]  # paths of the parameters that came from the checkpoint
    random: tuple[str, ...]  # paths of randomly initialized parameters

    def summary(self) -> str:
        """Return one line: the number of loaded parameters, and which parts are random."""
        loaded = f"{self._millions(self.loaded):.1f} M parameters loaded"
        if not self.random:
            return loaded
        others = tuple(path for path in self.random if "lora_" not in path)
        adapters = ["adapters"] if len(others) < len(self.random) else []
        parts = ", ".join([*_parts(others, self.loaded), *adapters])
        return f"{loaded}; {self._millions(self.random):.1f} M initialised at random: {parts}"

    def _millions(self, paths: tuple[str, ...]) -> float:
        flat = flatten(self.params)
        return sum(flat[path][0].size for path in paths) / 1e6


def start_from_checkpoint(
    model: Seq2SeqModel, checkpoint: str | Path, keys: Array, shardings: Shardings | None = None
) -> Start:
    """Return initial parameters `[A, ...]` of A arms (training runs): the checkpoint's, and random ones for the rest.

    A checkpoint lacks the brain encoder, unless `eeg2text export` wrote one of the same shape beside it. A BERT
    initializes encoder and decoder of a BERT2BERT (Rothe et al. 2020), but for the cross-attention, and the head's
    transform without a head of masked language modelling. Equal `keys [A]` give equal random parameters. Raises
    UserError if the checkpoint cannot be read, or does not hold what its configuration promises.
    """
    folder = checkpoint_folder(checkpoint)
    sources, shapes = _sources(model, folder), model.shapes
    if model.shared_frozen:
        shapes = divide(shapes)[0]
        sources = {path: source for path, source in sources.items() if path in flatten(shapes)}
    params = flatten(assemble(sources, shapes, shardings, arms=len(keys)))
    random = tuple(path for path in flatten(shapes) if path not in sources)
    if random:
        params |= _random_params(model, keys, random, shardings)
    ordered = {path: params[path] for path in flatten(shapes)}
    return Start(unflatten(ordered), tuple(sources), random)


def start_of_encoder(model: AnyModel, checkpoint: str, arms: int, shardings: Shardings) -> Params:
    """Return the parameters `[A, ...]` of an encoder of waves that its own checkpoint has, see `match`."""
    sources = wave_sources(model.eeg, checkpoint, tensor_shapes(model.shapes))
    return assemble(sources, model.shapes, shardings, arms=arms)


def frozen_params(
    model: Seq2SeqModel, checkpoint: str, key: Array, shardings: Shardings, dtype: str = "bfloat16"
) -> Params:
    """Return, in `dtype`, the language model's parameters that all arms share: a checkpoint's, or random ones."""
    shapes = frozen_shapes(model, dtype)
    if not checkpoint:

        def init(key: Array) -> Params:
            return jax.tree.map(lambda leaf, stored: leaf.astype(stored.dtype), divide(model.init(key))[1], shapes)

        return jax.jit(init, out_shardings=shardings(shapes))(key)
    folder, wanted = checkpoint_folder(checkpoint), flatten(shapes)
    sources = {path: source for path, source in _sources(model, folder).items() if path in wanted}
    if missing := [path for path in wanted if path.removesuffix("_scale") not in sources and path not in sources]:
        raise UserError(f"{folder}: lacks {missing[0]}, which a frozen model cannot learn; set optim.trainable=all.")
    params = flatten(assemble(sources, shapes, shardings))
    return unflatten({path: params[path] for path in wanted})


def _sources(model: Seq2SeqModel, folder: Path) -> dict[str, Source]:
    """Return where a checkpoint has the model's parameters, and those of a brain encoder beside it that is equal."""
    tensors, shapes = read_tensors(folder), model.shapes
    expected = tensor_shapes(shapes)
    if read_config(folder).model_type == "bert":
        return _warm_start(model.spec, tensors, expected, str(folder))
    sources = match(backbone_table(model.spec), tensors, expected, str(folder))
    beside = export_files.read_eeg(folder)
    if beside is not None and beside[0] == model.eeg:
        sources |= eeg_sources(beside[1], shapes, folder)
    return sources


def _warm_start(spec: Seq2SeqSpec, tensors: Tensors, shapes: dict[str, Any], where: str) -> dict[str, Source]:
    """Return where a BERT has a BERT2BERT's parameters: encoder, decoder, and the head if it has one."""
    sources: dict[str, Any] = {}
    for side in ("encoder", "decoder"):
        sources |= match(bert2bert.warm_start_table(spec, side), tensors, shapes, where)
    head = {name: tensor for name, tensor in tensors.items() if name.startswith("cls.predictions.")}
    if head:
        whole = bert2bert.table(spec)
        rules = tuple(
            dataclasses.replace(rule, source=rule.source.removeprefix("decoder."), tied=())
            for rule in whole.rules
            if rule.target.startswith("backbone/head/")
        )
        copies = (r"cls\.predictions\.decoder\.(weight|bias)",)
        sources |= match(Table("BERT", rules, ignored=copies, spellings=whole.spellings), head, shapes, where)
    return sources


def _random_params(
    model: Seq2SeqModel, keys: Array, paths: tuple[str, ...], shardings: Shardings | None
) -> dict[str, Array]:
    """Return the random parameters `[A, ...]` at `paths`; others are not allocated."""

    def init(keys: Array) -> dict[str, Array]:
        params = flatten(jax.vmap(model.init)(keys))
        return {path: params[path] for path in paths}

    if shardings is None:
        return jax.jit(init)(keys)
    where = flatten(shardings(unflatten(jax.eval_shape(init, keys))))
    return jax.jit(init, out_shardings={path: where[path] for path in paths})(keys)


def _parts(random: Iterable[str], loaded: Iterable[str]) -> list[str]:
    """Return the shortest paths that, as prefixes, cover all paths `random` and none of `loaded`."""
    loaded = list(loaded)
    parts: dict[str, None] = {}
    for path in random:
        names = path.split("/")
        prefixes = ("/".join(names[:n]) for n in range(1, len(names) + 1))
        parts[next(p for p in prefixes if not any(f"{other}/".startswith(f"{p}/") for other in loaded))] = None
    return list(parts)
