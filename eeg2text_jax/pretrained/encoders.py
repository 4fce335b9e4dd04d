"""Text encoders from checkpoints, up to any layer: BERT, RoBERTa, or the encoder of BART, PEGASUS or T5.

All are a `models.stack.Stack` with an embedding table.
"""

import dataclasses
import functools
import hashlib
import json
import re
from pathlib import Path
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx
from transformers import PretrainedConfig, PreTrainedTokenizerBase

from eeg2text_jax.backbones import bart, pegasus, t5
from eeg2text_jax.backbones.bert2bert import OLD_NORMS, UNUSED, bert_rules, bert_stack
from eeg2text_jax.backbones.build import backbone_module
from eeg2text_jax.backbones.mapping import Rule, Table, match
from eeg2text_jax.data.text import load_tokenizer
from eeg2text_jax.errors import UserError
from eeg2text_jax.files import file_digest
from eeg2text_jax.models.nnx_bridge import Params, PureModel
from eeg2text_jax.models.spec import StackSpec
from eeg2text_jax.models.stack import Stack
from eeg2text_jax.pretrained.folder import INDEX, checkpoint_folder, read_tensors, weights_file
from eeg2text_jax.pretrained.load import assemble, backbone_table, read_config, tensor_shapes

_BACKBONES = {module.MODEL_TYPE: module for module in (bart, pegasus, t5)}
MODEL_TYPES = ("bert", "roberta", *_BACKBONES)  # `model_type` of supported encoders in config.json


@dataclasses.dataclass(frozen=True)
class EncoderSpec:
    """Description of a text encoder and its embedding table."""

    model_type: str
    vocab_size: int
    stack: StackSpec
    pad_token: int
    embedding_scale: float = 1.0

    @property
    def table(self) -> str:
        """The name of the embedding table among our parameters, the same as in the whole backbone."""
        return "shared" if self.model_type in _BACKBONES else "encoder_embedding"

    def cut(self, layers: int) -> "EncoderSpec":
        """Return the description of the first `layers` layers; 0: the embeddings alone.

        The final norm of T5 and PEGASUS comes after the last of these layers, as in bert-score.
        """
        return dataclasses.replace(self, stack=dataclasses.replace(self.stack, layers=layers))


def encoder_spec(config: PretrainedConfig, where: str) -> EncoderSpec:
    """Return the description of the encoder that a Hugging Face configuration asks for.

    Raises:
      UserError: the encoder is not supported; the message names its checkpoint, `where`.
    """
    kind = config.model_type
    if kind in _BACKBONES:
        spec = _BACKBONES[kind].spec_from_config(config)
        return EncoderSpec(kind, spec.vocab_size, spec.encoder, spec.pad_token, spec.embedding_scale)
    if kind not in MODEL_TYPES:
        raise UserError(
            f"{where}: model_type in config.json is {kind!r}; expected one of {', '.join(MODEL_TYPES)} for a text "
            "encoder; choose another checkpoint."
        )
    if getattr(config, "position_embedding_type", "absolute") not in ("absolute", None):
        raise UserError(
            f"{where}: position_embedding_type is {config.position_embedding_type}; only absolute is supported; choose "
            "another checkpoint."
        )
    stack = bert_stack(config, decoder=False)
    if kind == "roberta":
        offset = config.pad_token_id + 1
        stack = dataclasses.replace(stack, position_offset=offset, max_positions=stack.max_positions - offset)
    return EncoderSpec(kind, config.vocab_size, stack, config.pad_token_id)


class _Backbone(nnx.Module):
    def __init__(self, spec: EncoderSpec, dtype: jnp.dtype, rngs: nnx.Rngs) -> None:
        init = jax.nn.initializers.normal(spec.stack.init_std or 1.0)
        table = nnx.Param(init(rngs.params(), (spec.vocab_size, spec.stack.width), jnp.float32))
        setattr(self, spec.table, nnx.Dict(embedding=table))
        self.encoder = Stack(spec.stack, dtype, rngs)


class _Network(nnx.Module):
    """A text encoder with the parameter names of a whole encoder-decoder, so that both use one table of names."""

    def __init__(self, spec: EncoderSpec, dtype: jnp.dtype, rngs: nnx.Rngs) -> None:
        self.backbone, self.spec = _Backbone(spec, dtype, rngs), spec

    def __call__(self, ids: jax.Array, mask: jax.Array) -> jax.Array:
        table = getattr(self.backbone, self.spec.table)["embedding"]
        return self.backbone.encoder(table[...][ids] * self.spec.embedding_scale, mask)


@dataclasses.dataclass(frozen=True)
class TextEncoder(PureModel):
    """A text encoder as pure functions of its parameters."""

    spec: EncoderSpec
    dtype: str = "float32"  # compute dtype

    def hidden(self, params: Params, ids: jax.Array, mask: jax.Array) -> jax.Array:
        """Map token ids int32 `[B, T]` and their mask `[B, T]` to hidden states `[B, T, D]` after the last layer.

        States at padding have no meaning.
        """
        return self._module(params)(ids, mask)

    def _make(self) -> functools.partial:
        return functools.partial(_Network, self.spec, jnp.dtype(self.dtype))


# Last part of a model's name -> the layer whose hidden states agree best with human judgement of translations. Values
# of bert-score 0.3.13 (Zhang et al. 2020, appendix B), except MiniLM: its last layer was the best in our comparison.
BEST_LAYERS = {
    "roberta-large": 17,
    "roberta-base": 10,
    "bert-base-uncased": 9,
    "bert-large-uncased": 18,
    "bart-base": 6,
    "bart-large": 10,
    "t5-small": 6,
    "t5-base": 11,
    "t5-large": 23,
    "pegasus-large": 8,
    "minilm": 6,
}


class LoadedEncoder(NamedTuple):
    """A text encoder up to the layer in use, with its parameters and tokenizer."""

    name: str  # the last part of the checkpoint's name
    encoder: TextEncoder
    params: Params
    tokenizer: PreTrainedTokenizerBase
    folder: Path
    digest: str  # of the weights, see `weights_digest`
    tuned_layer: bool  # the user or BEST_LAYERS chose the layer; False: the last layer, as the default
    is_whole: bool  # whether all layers of the checkpoint are loaded


def load_encoder(name: str | Path, layer: int | Literal["last"] | None = None) -> LoadedEncoder:
    """Load BERT, RoBERTa, or the encoder of BART, PEGASUS or T5, up to the layer `layer`.

    Args:
      name: a checkpoint's folder, its name on the Hugging Face Hub, or `minilm`.
      layer: the layer whose output is used, 0 for the embeddings; None: the layer in `BEST_LAYERS`, or the last.

    Raises:
      UserError: there is no such checkpoint, encoder or layer.
    """
    folder = checkpoint_folder(name)
    config = read_config(folder)
    whole = encoder_spec(config, str(folder))
    short = str(name).rstrip("/").rpartition("/")[2]
    depth = whole.stack.layers
    chosen = min(BEST_LAYERS.get(short, depth), depth) if layer is None else depth if layer == "last" else layer
    if not 0 <= chosen <= depth:
        raise UserError(f"--layer={layer}: {short} has layers 0 (its embeddings) to {depth}.")
    encoder = TextEncoder(whole.cut(chosen))
    shapes = encoder.shapes
    sources = match(_cut_table(whole, chosen, config), read_tensors(folder), tensor_shapes(shapes), str(folder))
    # RoBERTa's tokenizer must put a space before the first word, as before all others. bert-score passes this option in
    # each call of the tokenizer, where transformers 5 ignores it silently.
    tokenizer = load_tokenizer(folder, **({"add_prefix_space": True} if whole.model_type == "roberta" else {}))
    tuned = layer is not None or short in BEST_LAYERS
    return LoadedEncoder(
        short, encoder, assemble(sources, shapes), tokenizer, folder, weights_digest(folder), tuned, chosen == depth
    )


def weights_digest(folder: Path) -> str:
    """Return the SHA-256 of a checkpoint's weights file; for shards, the digest of their digests in order of names."""
    name = weights_file({path.name for path in folder.iterdir()})
    if not name.endswith(INDEX):
        return file_digest(folder / name)
    shards = sorted(set(json.loads((folder / name).read_text("utf8"))["weight_map"].values()))
    return hashlib.sha256("".join(file_digest(folder / Path(shard).name) for shard in shards).encode()).hexdigest()


def _cut_table(whole: EncoderSpec, layers: int, config: PretrainedConfig) -> Table:
    """Return the table of tensor names of the encoder's first `layers` layers; other known tensors are ignored."""
    if whole.table == "shared":
        table = backbone_table(backbone_module(whole.model_type).spec_from_config(config))
    else:
        prefix = whole.model_type
        rules = bert_rules("encoder", prefix, whole.stack.layers)
        unused = (*UNUSED, r"lm_head\..*", r"classifier\..*", r"(.*\.)?embeddings\.token_type_ids")
        table = Table(prefix.upper(), tuple(rules), unused, ((rf"^{prefix}\.", ""), *OLD_NORMS))
    ours = (f"backbone/{whole.table}/", "backbone/encoder/")
    kept: list[Rule] = []
    passed: set[str] = set()
    for rule in table.rules:
        if rule.target.startswith(ours) and (layers or not rule.layers):
            lower = dataclasses.replace(rule, layers=min(rule.layers, layers))
            passed |= {*rule.names()} - {*lower.names()}
            kept.append(lower)
        else:
            passed |= {*rule.names(), *rule.tied}
    for prefix in table.spellings[:1]:  # in some files, names lack this prefix
        passed |= {re.sub(*prefix, name) for name in passed}
    return dataclasses.replace(table, rules=tuple(kept), ignored=(*table.ignored, *map(re.escape, sorted(passed))))
