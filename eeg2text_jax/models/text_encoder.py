"""A text encoder, cut at any layer: BERT, RoBERTa, or the encoder of BART, PEGASUS or T5, as pure functions.

RoBERTa is BERT with positions that begin after the padding token's and with one token type: a variant in data.
"""

import dataclasses
import functools

import jax
import jax.numpy as jnp
from flax import nnx
from transformers import PretrainedConfig

from eeg2text_jax.errors import UserError
from eeg2text_jax.models import bart, pegasus, t5
from eeg2text_jax.models.bert2bert import bert_stack
from eeg2text_jax.models.nnx_bridge import Params, bind, init_params, structure_of
from eeg2text_jax.models.spec import StackSpec
from eeg2text_jax.models.stack import Stack

_BACKBONES = {module.MODEL_TYPE: module for module in (bart, pegasus, t5)}
MODEL_TYPES = ("bert", "roberta", *_BACKBONES)  # `model_type` in the config.json of what can be an encoder here


@dataclasses.dataclass(frozen=True)
class EncoderSpec:
    """An encoder and its embedding table."""

    model_type: str
    vocab_size: int
    stack: StackSpec
    pad_token: int
    embedding_scale: float = 1.0

    @property
    def table(self) -> str:
        """Where the embedding table stands among the parameters: seq2seq backbones share it with their decoder."""
        return "shared" if self.model_type in _BACKBONES else "encoder_embedding"

    def cut(self, layers: int) -> "EncoderSpec":
        """The same encoder without the layers above `layers`; 0 leaves the embeddings alone.

        What stands behind the last layer (the final norm of T5 and PEGASUS) stays, as in bert-score.
        """
        return dataclasses.replace(self, stack=dataclasses.replace(self.stack, layers=layers))


def encoder_spec(config: PretrainedConfig, where: str) -> EncoderSpec:
    """Hugging Face configuration -> description of the encoder.

    Raises:
      UserError: there is no such encoder here; `where` names its checkpoint.
    """
    kind = config.model_type
    if kind in _BACKBONES:
        spec = _BACKBONES[kind].spec_from_config(config)
        return EncoderSpec(kind, spec.vocab_size, spec.encoder, spec.pad_token, spec.embedding_scale)
    if kind not in MODEL_TYPES:
        raise UserError(
            f"{where}: config.json has the model type {kind!r}; as a text encoder only {', '.join(MODEL_TYPES)} can be "
            "read."
        )
    if getattr(config, "position_embedding_type", "absolute") not in ("absolute", None):
        raise UserError(f"{where}: its positions are {config.position_embedding_type}; only absolute ones are known.")
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
    """Names its parameters as a whole seq2seq model does, so that tables of names serve both."""

    def __init__(self, spec: EncoderSpec, dtype: jnp.dtype, rngs: nnx.Rngs) -> None:
        self.backbone, self.spec = _Backbone(spec, dtype, rngs), spec

    def __call__(self, ids: jax.Array, mask: jax.Array) -> jax.Array:
        table = getattr(self.backbone, self.spec.table)["embedding"]
        return self.backbone.encoder(table[...][ids] * self.spec.embedding_scale, mask)


@dataclasses.dataclass(frozen=True)
class TextEncoder:
    """Functions of one encoder; hashable and without parameters, which are a nested dict of float32 arrays."""

    spec: EncoderSpec
    dtype: str = "float32"  # of the computation

    @property
    def shapes(self) -> Params:
        """`jax.ShapeDtypeStruct` of every parameter."""
        return _structure(self)[1]

    def init(self, key: jax.Array) -> Params:
        """Random parameters."""
        return init_params(self._make(), key)

    def hidden(self, params: Params, ids: jax.Array, mask: jax.Array) -> jax.Array:
        """Token ids int32 `[B, T]` and mask of real tokens `[B, T]` -> hidden states `[B, T, D]` after the last layer.

        What stands at padding has no meaning.
        """
        return bind(_structure(self)[0], params)(ids, mask)

    def _make(self) -> functools.partial:
        return functools.partial(_Network, self.spec, jnp.dtype(self.dtype))


@functools.lru_cache(maxsize=32)
def _structure(encoder: TextEncoder) -> tuple[nnx.GraphDef, Params]:
    return structure_of(encoder._make())
