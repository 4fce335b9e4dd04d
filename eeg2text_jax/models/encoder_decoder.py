"""An encoder-decoder language model from its description: embeddings, two stacks, output head."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from eeg2text_jax.cpu import fenced
from eeg2text_jax.models.cache import Cache
from eeg2text_jax.models.heads import capped
from eeg2text_jax.models.layers import ACTIVATIONS, Norm, make_dense
from eeg2text_jax.models.spec import Seq2SeqSpec
from eeg2text_jax.models.stack import Stack
from eeg2text_jax.parallel.batch_axis import replicate, shard_rows


class Embedding(nnx.Module):
    """Table of token vectors `[V, D]`; looking up `frozen_token` trains nothing."""

    def __init__(self, spec: Seq2SeqSpec, rows: int, width: int, frozen_token: int | None, rngs: nnx.Rngs) -> None:
        init = jax.nn.initializers.normal(spec.embedding_std)
        self.embedding = nnx.Param(init(rngs.params(), (rows, width), jnp.float32))
        self.scale, self.frozen_token = spec.embedding_scale, frozen_token

    @jax.named_scope("embeddings")
    def __call__(self, ids: jax.Array) -> jax.Array:
        """Token ids `[B, T]` -> `[B, T, D]`, float32."""
        x = shard_rows(self.embedding[...][ids]) * self.scale
        if self.frozen_token is None:
            return x
        return jnp.where((ids == self.frozen_token)[..., None], jax.lax.stop_gradient(x), x)


def logits_of(x: jax.Array, table: jax.Array, bias: jax.Array | None, cap: float = 0.0) -> jax.Array:
    """Hidden states `[..., D]`, `[V, D]` and `[V]` -> logits `[..., V]`, float32; `cap` as in `heads.capped`."""
    logits = capped(jnp.einsum("...d,vd->...v", x, table, preferred_element_type=jnp.float32), cap)
    return logits if bias is None else logits + bias.reshape(*[1] * (logits.ndim - 1), -1)


ReadOut = Callable[[jax.Array, jax.Array, jax.Array | None, float], Any]  # as `logits_of`


class Head(nnx.Module):
    """Hidden states `[..., D]` -> logits `[..., V]`, float32."""

    def __init__(self, spec: Seq2SeqSpec, dtype: jnp.dtype, rngs: nnx.Rngs) -> None:
        stack = spec.decoder
        if spec.head_transform:
            self.transform = make_dense(stack, stack.width, stack.width, dtype, rngs)
            self.transform_norm = Norm(stack, dtype)
        if not spec.tied_head:
            init = jax.nn.initializers.normal(spec.embedding_std)
            self.embedding = nnx.Param(init(rngs.params(), (spec.vocab_size, stack.width), jnp.float32))
        if spec.logits_bias != "none":
            self.bias = nnx.Param(jnp.zeros((spec.vocab_size,), jnp.float32))
        self.spec, self.dtype = spec, dtype

    @jax.named_scope("head_loss")
    def table(self, tied: jax.Array) -> jax.Array:
        """The head's own table or `tied [V, D]`, the decoder's embeddings, in the dtype that is computed in."""
        return replicate((tied if self.spec.tied_head else self.embedding[...]).astype(self.dtype))

    @jax.named_scope("head_loss")
    def __call__(self, x: jax.Array, table: jax.Array, read_out: ReadOut = logits_of) -> Any:
        """`table [V, D]` is that of `table`, which a loop over tokens asks for once; `read_out` makes the result."""
        if self.spec.head_transform:
            x = self.transform_norm(ACTIVATIONS[self.spec.decoder.activation](self.transform(x)))
        bias = None if self.spec.logits_bias == "none" else self.bias[...]
        if self.spec.logits_bias == "frozen":
            # BART's and PEGASUS's final_logits_bias is a buffer of the checkpoint: loaded, added, never trained.
            bias = jax.lax.stop_gradient(bias)
        return read_out(x * self.spec.head_scale, table, bias, self.spec.logits_cap)


class EncoderDecoder(nnx.Module):
    """BART, PEGASUS, T5, BERT2BERT, as `spec` says."""

    def __init__(self, spec: Seq2SeqSpec, dtype: jnp.dtype, rngs: nnx.Rngs) -> None:
        if spec.shared_embeddings:
            frozen = spec.pad_token if spec.frozen_pad else None
            self.shared = Embedding(spec, spec.vocab_size, spec.d_model, frozen, rngs)
        else:
            rows = spec.encoder_vocab_size or spec.vocab_size
            self.encoder_embedding = Embedding(spec, rows, spec.encoder.width, spec.own_pads[0], rngs)
            self.decoder_embedding = Embedding(spec, spec.vocab_size, spec.decoder.width, spec.own_pads[1], rngs)
        self.encoder = Stack(spec.encoder, dtype, rngs)
        if spec.encoder.width != spec.decoder.width:
            self.projection = make_dense(spec.decoder, spec.encoder.width, spec.decoder.width, dtype, rngs)
        self.decoder = Stack(spec.decoder, dtype, rngs)
        self.head = Head(spec, dtype, rngs)
        self.spec = spec

    def embed(self, ids: jax.Array) -> jax.Array:
        """Encoder token ids `[B, S]` -> `[B, S, D]`."""
        return (self.shared if self.spec.shared_embeddings else self.encoder_embedding)(ids)

    def embed_targets(self, ids: jax.Array) -> jax.Array:
        """Decoder token ids `[B, T]` -> `[B, T, D]`."""
        return self._table()(ids)

    @jax.named_scope("encoder")
    def encode(self, embeddings: jax.Array, mask: jax.Array, **options) -> tuple[jax.Array, jax.Array]:
        """`[B, S, D]` and mask `[B, S]` -> hidden states `[B, S, D]`, as wide as the decoder, and their mask.

        Options are those of `Stack`.
        """
        hidden = self.encoder(embeddings, mask, **options)
        return (hidden if self.spec.encoder.width == self.spec.decoder.width else self.projection(hidden)), mask

    def decode(
        self,
        ids: jax.Array,
        mask: jax.Array | None,
        hidden: jax.Array,
        hidden_mask: jax.Array,
        *,
        read_out: ReadOut = logits_of,
        **options,
    ) -> Any:
        """Targets `[B, T]`, shifted right, and the encoder's output -> logits `[B, T, V]`, or what `read_out` makes."""
        x = self.embed_targets(ids)
        with jax.named_scope("decoder"):
            x = self.decoder(x, mask, hidden, hidden_mask, **options)
        return self.head(x, self.head.table(self._table().embedding[...]), read_out)

    def decode_step(self) -> Callable[[jax.Array, jax.Array, Cache], tuple[jax.Array, Cache]]:
        """(tokens `[B*K]`, their position, cache) -> (logits `[B*K, V]`, the cache with them)."""
        layers, table = self.decoder.separate_layers(), self.head.table(self._table().embedding[...])

        def step(tokens: jax.Array, index: jax.Array, cache: Cache) -> tuple[jax.Array, Cache]:
            x = self.embed_targets(tokens[:, None])
            with jax.named_scope("decoder"):
                x, cache = self.decoder.step(layers, x, index, cache)
            return fenced(lambda x: self.head(x, table), x, index >= 0), cache

        return step

    def _table(self) -> Embedding:
        return self.shared if self.spec.shared_embeddings else self.decoder_embedding
