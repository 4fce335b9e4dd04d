"""Initial parameters of training from a checkpoint, and random values for the parameters that it lacks."""

import dataclasses
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import jax
from transformers import EncoderDecoderConfig, PretrainedConfig, PreTrainedTokenizerBase

from eeg2text_jax.backbones import ModelSettings, bert2bert
from eeg2text_jax.backbones.build import first_known, model_around
from eeg2text_jax.backbones.mapping import Source, Table, Tensors, flatten, match, unflatten
from eeg2text_jax.data.text import has_vocabulary, load_tokenizer
from eeg2text_jax.errors import UserError
from eeg2text_jax.models.functional import Seq2SeqModel, divide, frozen_shapes
from eeg2text_jax.models.nnx_bridge import Params
from eeg2text_jax.models.spec import Seq2SeqSpec
from eeg2text_jax.pretrained import export_files
from eeg2text_jax.pretrained.folder import checkpoint_folder, read_tensors
from eeg2text_jax.pretrained.load import (
    Shardings,
    as_stored,
    assemble,
    backbone_table,
    eeg_sources,
    read_config,
    spec_of,
    tensor_shapes,
)

# A tokenizer with a smaller share of the checkpoint's vocabulary belongs to another checkpoint. Vocabularies are
# often rounded up: T5's 32,100 tokens to 32,128.
_LEAST_SHARE = 0.9


def checkpoint_config(folder: Path, tokenizer: PreTrainedTokenizerBase) -> PretrainedConfig:
    """Return the configuration of a checkpoint; for a BERT, the configuration of the BERT2BERT that is made from it."""
    config = read_config(folder)
    if config.model_type != "bert":
        return config
    decoder = type(config)(**{**config.to_dict(), "is_decoder": True, "add_cross_attention": True})
    return EncoderDecoderConfig.from_encoder_decoder_configs(
        config,
        decoder,
        decoder_start_token_id=tokenizer.cls_token_id,
        eos_token_id=tokenizer.sep_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )


def model_from_checkpoint(
    config: ModelSettings, feature_shape: int | Sequence[int], tokenizer: PreTrainedTokenizerBase
) -> Seq2SeqModel:
    """Return the model of the section `model`, with the backbone of `config.checkpoint`.

    Raises UserError if the checkpoint is of another backbone, or does not fit the tokenizer (see `check_tokenizer`).
    """
    folder = checkpoint_folder(config.checkpoint)
    spec = as_stored(spec_of(checkpoint_config(folder, tokenizer), folder), folder)
    if spec.backbone != config.backbone:
        raise UserError(
            f"config.model.backbone is {config.backbone!r}, but {config.checkpoint} is a {spec.backbone} checkpoint; "
            f"set config.model.backbone={spec.backbone}."
        )
    check_tokenizer(tokenizer, spec, folder)
    if spec.encoder is None:
        spec = dataclasses.replace(spec, eos_token=tokenizer.eos_token_id)
    return model_around(spec, config, feature_shape, tokenizer)


def check_tokenizer(tokenizer: PreTrainedTokenizerBase, spec: Seq2SeqSpec, folder: Path) -> None:
    """Compare a tokenizer with the checkpoint: sizes, special tokens, and every token if the folder has a tokenizer.

    Raises UserError if an id would mean another token than the checkpoint was trained on.
    """
    own = load_tokenizer(folder) if has_vocabulary(folder) else None
    advice = "leave config.text.tokenizer empty to use the checkpoint's own"
    if own is None:
        advice = "set config.text.tokenizer to the one that the checkpoint was trained with"
    if len(tokenizer) > spec.vocab_size:
        raise UserError(f"{folder} has {spec.vocab_size} tokens, the tokenizer {len(tokenizer)}; {advice}.")
    specials = {
        "padding": (tokenizer.pad_token_id, spec.pad_token),
        "end": (first_known(tokenizer.eos_token_id, tokenizer.sep_token_id), spec.eos_token),
    }
    if spec.encoder is None:  # most decoder-only models have no padding token and several end tokens
        specials = {}
    for name, (ours, theirs) in specials.items():
        if ours != theirs:
            raise UserError(f"the tokenizer's {name} token is {ours}, but {folder} has {theirs}; {advice}.")
    if own is None:
        if len(tokenizer) < _LEAST_SHARE * spec.vocab_size:
            raise UserError(
                f"{folder} has {spec.vocab_size} tokens, the tokenizer only {len(tokenizer)}: the tokenizer is of "
                f"another checkpoint; {advice}."
            )
        return
    ids = {id: token for token, id in own.get_vocab().items()}
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
        """Return one line for the user: the number of loaded parameters, and which parts are random."""
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
    model: Seq2SeqModel, checkpoint: str | Path, keys: jax.Array, shardings: Shardings | None = None
) -> Start:
    """Return initial parameters `[A, ...]` of A arms (training runs): the checkpoint's, and random ones for the rest.

    A checkpoint of an encoder-decoder lacks the brain encoder, unless `eeg2text export` wrote one of the same shape
    beside it. A BERT initializes encoder and decoder of a BERT2BERT (Rothe et al. 2020); it lacks the cross-attention,
    and the head's transform if it has no head of masked language modelling. Equal `keys [A]` give equal random
    parameters. Raises UserError if the checkpoint cannot be read, or does not hold what its configuration promises.
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


def frozen_params(
    model: Seq2SeqModel, checkpoint: str, key: jax.Array, shardings: Shardings, dtype: str = "bfloat16"
) -> Params:
    """Return the parameters of the language model that all arms share, in `dtype`: a checkpoint's, or random ones.

    Raises:
      UserError: see `start_from_checkpoint`; or the checkpoint lacks a parameter.
    """
    shapes = frozen_shapes(model, dtype)
    if not checkpoint:

        def init(key: jax.Array) -> Params:
            return jax.tree.map(lambda leaf, stored: leaf.astype(stored.dtype), divide(model.init(key))[1], shapes)

        return jax.jit(init, out_shardings=shardings(shapes))(key)
    folder, wanted = checkpoint_folder(checkpoint), flatten(shapes)
    sources = {path: source for path, source in _sources(model, folder).items() if path in wanted}
    if missing := [path for path in wanted if path.removesuffix("_scale") not in sources and path not in sources]:
        raise UserError(f"{folder}: lacks {missing[0]}, which a frozen model cannot learn; set optim.trainable=all.")
    params = flatten(assemble(sources, shapes, shardings))
    return unflatten({path: params[path] for path in wanted})


def _sources(model: Seq2SeqModel, folder: Path) -> dict[str, Source]:
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
    """Return where a BERT has a BERT2BERT's parameters, by path: encoder, decoder, and the head if the BERT has one."""
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
    model: Seq2SeqModel, keys: jax.Array, paths: tuple[str, ...], shardings: Shardings | None
) -> dict[str, jax.Array]:
    """Return the random parameters `[A, ...]` at `paths`; other parameters are not allocated."""

    def init(keys: jax.Array) -> dict[str, jax.Array]:
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
