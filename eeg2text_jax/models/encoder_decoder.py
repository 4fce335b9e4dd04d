"""Encoder-decoder language models, and the embedding table and output head that decoder-only ones use, too."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx

from eeg2text_jax.cpu import fenced
from eeg2text_jax.models.cache import Cache
from eeg2text_jax.models.heads import capped
from eeg2text_jax.models.layers import ACTIVATIONS, Norm, int8_of, int8_product, make_dense
from eeg2text_jax.models.spec import Seq2SeqSpec
from eeg2text_jax.models.stack import Stack
from eeg2text_jax.parallel.mesh import replicate, shard_rows


class Embedding(nnx.Module):
    """Table of token embeddings `[V, D]`; the row of `frozen_token` gets no gradient from lookups."""

    def __init__(self, spec: Seq2SeqSpec, rows: int, width: int, frozen_token: int | None, rngs: nnx.Rngs) -> None:
        init = jax.nn.initializers.normal(spec.embedding_std)
        self.embedding = nnx.Param(init(rngs.params(), (rows, width), jnp.float32))
        self.scale, self.frozen_token = spec.embedding_scale, frozen_token

    @jax.named_scope("embeddings")
    def __call__(self, ids: jax.Array) -> jax.Array:
        """Return the embeddings of token ids `[B, T]`, float32 `[B, T, D]`."""
        x = shard_rows(self.embedding[...][ids]) * self.scale
        if self.frozen_token is None:
            return x
        return jnp.where((ids == self.frozen_token)[..., None], jax.lax.stop_gradient(x), x)


class Int8Table(NamedTuple):
    """Table of the output head rounded to int8: `values * scale[:, None]`."""

    values: jax.Array  # int8 [V, D]
    scale: jax.Array  # float32 [V]


class StepTable(NamedTuple):
    """Table of the output head for the steps of a search; a GPU uses `padded`, which is made before the loop."""

    values: jax.Array  # [V, D]
    padded: jax.Array  # `_padded(values, 0)`


@jax.custom_vjp
def _head_product(x: jax.Array, table: jax.Array) -> jax.Array:
    """Return the float32 products `[..., V]` of hidden states `[..., D]` with each row of the table `[V, D]`.

    In the backward pass, except on TPUs, the gradient of the products is first rounded to the dtype of `x`, as in
    PyTorch's autocast: a GPU would multiply float32 as TF32, at half the speed and with twice the memory traffic. A TPU
    rounds the operands of a product itself, and XLA fuses the computation of the gradient with the products that use
    it; rounding the gradient first took 1 of 75 ms (BART-large, batch 32).

    CUDA GPUs multiply a table that is padded with zeros to a multiple of 64 rows. cuBLAS has no fast product for an
    array with rows of 50,265 numbers: on an H100, padding saved 5.9 of 81.5 ms (BART-large, batch 128).
    """
    return jax.lax.platform_dependent(x, table, cuda=_padded_product, default=_plain_product)


def _head_product_forward(x: jax.Array, table: jax.Array) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
    return _head_product(x, table), (x, table)


def _head_product_backward(known: tuple[jax.Array, jax.Array], gradient: jax.Array) -> tuple[jax.Array, jax.Array]:
    def rounded(x: jax.Array, table: jax.Array, gradient: jax.Array) -> tuple[jax.Array, jax.Array]:
        return _head_gradients(x, table, gradient.astype(x.dtype))

    return jax.lax.platform_dependent(*known, gradient, tpu=_head_gradients, cuda=_padded_gradients, default=rounded)


_head_product.defvjp(_head_product_forward, _head_product_backward)


def _head_gradients(x: jax.Array, table: jax.Array, gradient: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return the gradients of `x [..., D]` and the table `[V, D]` from the `gradient [..., V]` of their products."""
    to_x = jnp.einsum("...v,vd->...d", gradient, table.astype(gradient.dtype))
    to_table = jnp.einsum("...v,...d->vd", gradient, x.astype(gradient.dtype))
    return to_x.astype(x.dtype), to_table.astype(table.dtype)


def _plain_product(x: jax.Array, table: jax.Array) -> jax.Array:
    return jnp.einsum("...d,vd->...v", x, table, preferred_element_type=jnp.float32)


def _padded_product(x: jax.Array, table: jax.Array) -> jax.Array:
    """Return `_plain_product(x, table)`, computed with a padded table."""
    return _product_of_padded(x, table, _padded(table, 0))


def _padded_gradients(x: jax.Array, table: jax.Array, gradient: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return `_head_gradients` with the gradient rounded to the dtype of `x`, computed with a padded table."""
    to_x, to_table = _head_gradients(x, _padded(table, 0), _padded(gradient.astype(x.dtype), -1))
    return to_x, to_table[: len(table)]


def _padded(values: jax.Array, axis: int) -> jax.Array:
    """Append zeros along an axis, to the next multiple of 64."""
    widths = [(0, 0)] * values.ndim
    widths[axis] = (0, -values.shape[axis] % 64)
    return jnp.pad(values, widths)


def _product_of_padded(x: jax.Array, values: jax.Array, padded: jax.Array) -> jax.Array:
    return _plain_product(x, padded.astype(x.dtype))[..., : len(values)]


def _product_of_values(x: jax.Array, values: jax.Array, _: jax.Array) -> jax.Array:
    return _plain_product(x, values.astype(x.dtype))


def logits_of(
    x: jax.Array, table: jax.Array | StepTable | Int8Table, bias: jax.Array | None, cap: float = 0.0
) -> jax.Array:
    """Return float32 logits `[..., V]` of hidden states `[..., D]`, `cap * tanh(logit / cap)` unless `cap` is 0."""
    if isinstance(table, Int8Table):
        logits = int8_product(x, table.values)
        logits = logits * table.scale.reshape(*[1] * (logits.ndim - 1), -1)
    elif isinstance(table, StepTable):
        logits = jax.lax.platform_dependent(x, *table, cuda=_product_of_padded, default=_product_of_values)
    else:
        logits = _head_product(x, table.astype(x.dtype))
    logits = capped(logits, cap)
    return logits if bias is None else logits + bias.reshape(*[1] * (logits.ndim - 1), -1)


Step = Callable[[jax.Array, jax.Array, Cache], tuple[jax.Array, Cache]]
ReadOut = Callable[[jax.Array, jax.Array, jax.Array | None, float], Any]  # (hidden states, table, bias, cap) -> result


class Head(nnx.Module):
    """The output head: hidden states `[..., D]` -> logits `[..., V]`, float32."""

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
        """Return the head's own table, or the tied embeddings `[V, D]`, in the compute dtype."""
        return replicate((tied if self.spec.tied_head else self.embedding[...]).astype(self.dtype))

    @jax.named_scope("head_loss")
    def step_table(self, tied: jax.Array) -> jax.Array | StepTable:
        """Return the table for the steps of a search; call this before the loop."""
        table = self.table(tied)
        return StepTable(table, _padded(table, 0)) if len(table) % 64 else table

    def int8_table(self, tied: jax.Array) -> Int8Table:
        """Return the table rounded to int8, in place of `step_table`."""
        return Int8Table(*int8_of(self.table(tied), axis=1))

    @jax.named_scope("head_loss")
    def __call__(self, x: jax.Array, table: jax.Array | StepTable | Int8Table, read_out: ReadOut = logits_of) -> Any:
        """Return logits, or the result of another `read_out`; `table` is from one of the three methods above."""
        if self.spec.head_transform:
            x = self.transform_norm(ACTIVATIONS[self.spec.decoder.activation](self.transform(x)))
        bias = None if self.spec.logits_bias == "none" else self.bias[...]
        if self.spec.logits_bias == "frozen":
            # BART's and PEGASUS's final_logits_bias is a buffer: loaded and added, but never trained.
            bias = jax.lax.stop_gradient(bias)
        return read_out(x * self.spec.head_scale, table, bias, self.spec.logits_cap)


class EncoderDecoder(nnx.Module):
    """An encoder-decoder that `spec` describes: BART, PEGASUS, T5 or BERT2BERT."""

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
        """Return the encoder's embeddings `[B, S, D]` of token ids `[B, S]`."""
        return (self.shared if self.spec.shared_embeddings else self.encoder_embedding)(ids)

    def embed_targets(self, ids: jax.Array) -> jax.Array:
        """Return the decoder's embeddings `[B, T, D]` of token ids `[B, T]`."""
        return self._table()(ids)

    @jax.named_scope("encoder")
    def encode(self, embeddings: jax.Array, mask: jax.Array, **options) -> tuple[jax.Array, jax.Array]:
        """Return the encoder output `[B, S, D]`, in the decoder's width, and the mask `[B, S]` of the embeddings.

        `options` are keyword arguments of `Stack.__call__`.
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
        """Return logits `[B, T, V]`, or the result of another `read_out`, of right-shifted targets `ids [B, T]`.

        `hidden [B, S, D]` and `hidden_mask` come from `encode`; `mask` of the targets may be None: all are real.
        """
        x = self.embed_targets(ids)
        with jax.named_scope("decoder"):
            x = self.decoder(x, mask, hidden, hidden_mask, **options)
        return self.head(x, self.head.table(self._table().embedding[...]), read_out)

    def int8_table(self) -> Int8Table:
        """Return the table of the output head rounded to int8, for `decode_step`."""
        return self.head.int8_table(self._table().embedding[...])

    def decode_step(self, table: Int8Table | None = None) -> Step:
        """Return the function of one decoder step: (tokens `[B*K]`, position, cache) -> (logits `[B*K, V]`, cache).

        `table`, from `int8_table`, replaces the output head's own.
        """
        layers = self.decoder.separate_layers()
        table = self.head.step_table(self._table().embedding[...]) if table is None else table

        def step(tokens: jax.Array, index: jax.Array, cache: Cache) -> tuple[jax.Array, Cache]:
            x = self.embed_targets(tokens[:, None])
            with jax.named_scope("decoder"):
                x, cache = self.decoder.step(layers, x, index, cache)
            return fenced(lambda x: self.head(x, table), x, index >= 0), cache

        return step

    def _table(self) -> Embedding:
        """Return the decoder's embedding table."""
        return self.shared if self.spec.shared_embeddings else self.decoder_embedding
