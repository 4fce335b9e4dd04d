"""Encoder-decoders and decoder-only language models, their embedding table and output head."""

import contextlib
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx
from jax import Array

from eeg2text_jax.base.cpu import fenced
from eeg2text_jax.base.devices.mesh import divided_weights, replicate, shard_rows
from eeg2text_jax.models._heads import capped
from eeg2text_jax.models._stack import Layer, Stack, dropout_keys
from eeg2text_jax.models.attention import Cache, LayerCache, Rotation, history_bias, mask_bias, own_position
from eeg2text_jax.models.layers import ACTIVATIONS, Norm, int8_of, int8_product, make_dense, zero_at_padding
from eeg2text_jax.models.nnx_bridge import Keep, scan_layers
from eeg2text_jax.models.spec import Seq2SeqSpec
from eeg2text_jax.models.waves import Downsampling


class Embedding(nnx.Module):
    """Table of token embeddings `[V, D]`; the row of `frozen_token` gets no gradient from lookups."""

    def __init__(self, spec: Seq2SeqSpec, rows: int, width: int, frozen_token: int | None, rngs: nnx.Rngs) -> None:
        init = jax.nn.initializers.normal(spec.embedding_std)
        self.embedding = nnx.Param(init(rngs.params(), (rows, width), jnp.float32))
        self.scale, self.frozen_token = spec.embedding_scale, frozen_token

    @jax.named_scope("embeddings")
    def __call__(self, ids: Array) -> Array:
        """Return float32 embeddings `[B, T, D]` of token ids `[B, T]`."""
        x = shard_rows(self.embedding[...][ids]) * self.scale
        if self.frozen_token is None:
            return x
        return jnp.where((ids == self.frozen_token)[..., None], jax.lax.stop_gradient(x), x)

    @jax.named_scope("embeddings")
    def of_step(self, ids: Array, table: "Array | StepTable | Int8Table | None") -> Array:
        """Return the embeddings of `ids` from a search's table, unless None: it is cast already.

        Else a TPU would cast the embeddings for each batch (0.6 of 114 ms for BART-large). Only a scale that is a power
        of two gives the same numbers after the cast as before.
        """
        if table is None or isinstance(table, Int8Table) or math.frexp(self.scale)[0] != 0.5:
            return self(ids)
        return (table.values if isinstance(table, StepTable) else table)[ids] * self.scale


class Int8Table(NamedTuple):
    """Table of the output head rounded to int8: `values * scale[:, None]`."""

    values: Array  # int8 [V, D]
    scale: Array  # float32 [V]


class StepTable(NamedTuple):
    """Table of the output head for the steps of a search; a GPU uses `padded`, made before the loop."""

    values: Array  # [V, D]
    padded: Array  # `_padded(values, 0)`


@jax.custom_vjp
def _head_product(x: Array, table: Array) -> Array:
    """Return the float32 products `[..., V]` of hidden states `[..., D]` with each row of the table `[V, D]`.

    In the backward pass, except on TPUs, the gradient of the products is first rounded to the dtype of `x`, as in
    PyTorch's autocast: a GPU would multiply float32 as TF32, at half the speed and with twice the memory traffic. A TPU
    rounds operands itself, and XLA fuses the gradient with the products that use it; rounding it first took 1 of 75 ms
    (BART-large, batch 32).

    CUDA GPUs multiply a table padded with zeros to a multiple of 64 rows, as cuBLAS has no fast product for rows of
    50,265 numbers: on an H100, it saved 5.9 of 81.5 ms (BART-large, batch 128).
    """

    def padded(x: Array, table: Array) -> Array:
        return _product_of_padded(x, table, _padded(table, 0))

    return jax.lax.platform_dependent(x, table, cuda=padded, default=_plain_product)


def _head_product_backward(inputs: tuple[Array, Array], gradient: Array) -> tuple[Array, Array]:
    def rounded(x: Array, table: Array, gradient: Array) -> tuple[Array, Array]:
        return _head_gradients(x, table, gradient.astype(x.dtype))

    def padded(x: Array, table: Array, gradient: Array) -> tuple[Array, Array]:
        to_x, to_table = _head_gradients(x, _padded(table, 0), _padded(gradient.astype(x.dtype), -1))
        return to_x, to_table[: len(table)]

    return jax.lax.platform_dependent(*inputs, gradient, tpu=_head_gradients, cuda=padded, default=rounded)


_head_product.defvjp(lambda x, table: (_head_product(x, table), (x, table)), _head_product_backward)


def _head_gradients(x: Array, table: Array, gradient: Array) -> tuple[Array, Array]:
    """Return the gradients of `x [..., D]` and the table `[V, D]` from that of their products, `[..., V]`."""
    to_x = jnp.einsum("...v,vd->...d", gradient, table.astype(gradient.dtype))
    to_table = jnp.einsum("...v,...d->vd", gradient, x.astype(gradient.dtype))
    return to_x.astype(x.dtype), to_table.astype(table.dtype)


def _plain_product(x: Array, table: Array) -> Array:
    return jnp.einsum("...d,vd->...v", x, table, preferred_element_type=jnp.float32)


def _padded(values: Array, axis: int) -> Array:
    """Append zeros along an axis, to the next multiple of 64."""
    widths = [(0, 0)] * values.ndim
    widths[axis] = (0, -values.shape[axis] % 64)
    return jnp.pad(values, widths)


def _product_of_padded(x: Array, values: Array, padded: Array) -> Array:
    return _plain_product(x, padded.astype(x.dtype))[..., : len(values)]


def _product_of_values(x: Array, values: Array, _: Array) -> Array:
    return _plain_product(x, values.astype(x.dtype))


def logits_of(x: Array, table: Array | StepTable | Int8Table, bias: Array | None, cap: float = 0.0) -> Array:
    """Return float32 logits `[..., V]` of hidden states `[..., D]`, see `capped`."""
    if isinstance(table, Int8Table):
        logits = int8_product(x, table.values)
        logits = logits * table.scale.reshape(*[1] * (logits.ndim - 1), -1)
    elif isinstance(table, StepTable):
        logits = jax.lax.platform_dependent(x, *table, cuda=_product_of_padded, default=_product_of_values)
    else:
        logits = _head_product(x, table.astype(x.dtype))
    logits = capped(logits, cap)
    # A frozen model has model.frozen_dtype, also its bias.
    return logits if bias is None else logits + bias.astype(logits.dtype).reshape(*[1] * (logits.ndim - 1), -1)


Step = Callable[[Array, Array, Cache], tuple[Array, Cache]]
ReadOut = Callable[[Array, Array, Array | None, float], Any]  # (hidden states, table, bias, cap) -> result


class Head(nnx.Module):
    """The output head: hidden states `[..., D]` -> float32 logits `[..., V]`."""

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
    def table(self, tied: Array) -> Array:
        """Return the head's own table, or the tied embeddings `[V, D]`, in the compute dtype."""
        return replicate((tied if self.spec.tied_head else self.embedding[...]).astype(self.dtype))

    @jax.named_scope("head_loss")
    def step_table(self, tied: Array, *, int8: bool = False) -> Array | StepTable | Int8Table:
        """Return the table for the steps of a search, made before the loop."""
        table = self.table(tied)
        if int8:
            return Int8Table(*int8_of(table, axis=1))
        return StepTable(table, _padded(table, 0)) if len(table) % 64 else table

    @jax.named_scope("head_loss")
    def __call__(self, x: Array, table: Array | StepTable | Int8Table, read_out: ReadOut = logits_of) -> Any:
        """Return logits, or the result of another `read_out`; `table` is from a method above."""
        if self.spec.head_transform:
            x = self.transform_norm(ACTIVATIONS[self.spec.decoder.activation](self.transform(x)))
        bias = None if self.spec.logits_bias == "none" else self.bias[...]
        if self.spec.logits_bias == "frozen":
            # BART's and PEGASUS's final_logits_bias is a buffer, never trained.
            bias = jax.lax.stop_gradient(bias)
        return read_out(x * self.spec.head_scale, table, bias, self.spec.logits_cap)


class LanguageModel(nnx.Module):
    """What encoder-decoders and decoder-only models share: steps of decoding."""

    spec: Seq2SeqSpec
    decoder: Stack
    head: Head

    def step_table(self, *, int8: bool = False) -> Array | StepTable | Int8Table:
        return self.head.step_table(self._table().embedding[...], int8=int8)

    def decode_step(self, table: Array | StepTable | Int8Table | None = None) -> Step:
        """Return the function (tokens `[B*K]`, position, cache) -> (logits `[B*K, V]`, cache)."""
        layers = self.decoder.separate_layers()
        table = self.step_table() if table is None else table

        def step(tokens: Array, index: Array, cache: Cache) -> tuple[Array, Cache]:
            x = self._first(tokens, index, cache, table)
            with jax.named_scope("decoder"):
                x, cache = self.decoder.step(layers, x, index, cache)
            return fenced(lambda x: self.head(x, table), x, index >= 0), cache

        return step

    def _table(self) -> Embedding:
        return self.shared if self.spec.shared_embeddings else self.decoder_embedding

    def _first(self, tokens: Array, index: Array, cache: Cache, table: Any) -> Array:
        """Return the embeddings `[B*K, 1, D]` that enter the layers in a step."""
        return self._table().of_step(tokens[:, None], table if self.spec.tied_head else None)


class EncoderDecoder(LanguageModel):
    """BART, BERT2BERT, PEGASUS, T5 or Whisper, as `spec` describes it."""

    def __init__(self, spec: Seq2SeqSpec, dtype: jnp.dtype, rngs: nnx.Rngs) -> None:
        if spec.shared_embeddings:
            frozen = spec.pad_token if spec.frozen_pad else None
            self.shared = Embedding(spec, spec.vocab_size, spec.d_model, frozen, rngs)
        else:
            rows = spec.encoder_vocab_size or spec.vocab_size
            self.encoder_embedding = Embedding(spec, rows, spec.encoder.width, spec.own_pads[0], rngs)
            self.decoder_embedding = Embedding(spec, spec.vocab_size, spec.decoder.width, spec.own_pads[1], rngs)
        if spec.stem:
            self.stem = Downsampling(spec.encoder.width, spec.encoder.width, 2, dtype, rngs)
        self.encoder = Stack(spec.encoder, dtype, rngs)
        if spec.encoder.width != spec.decoder.width:
            self.projection = make_dense(spec.decoder, spec.encoder.width, spec.decoder.width, dtype, rngs)
        self.decoder = Stack(spec.decoder, dtype, rngs)
        self.head = Head(spec, dtype, rngs)
        self.spec = spec

    def embed(self, ids: Array) -> Array:
        """Return the encoder's embeddings `[B, S, D]` of token ids `[B, S]`."""
        return (self.shared if self.spec.shared_embeddings else self.encoder_embedding)(ids)

    @jax.named_scope("encoder")
    def encode(self, embeddings: Array, mask: Array, **options) -> tuple[Array, Array]:
        """Return the encoder output `[B, S, D]`, in the decoder's width, and its mask; a stem halves S."""
        if self.spec.stem:
            embeddings, mask = self.stem(zero_at_padding(embeddings, mask, embeddings.dtype), mask)
        hidden = self.encoder(embeddings, mask, **options)
        return (hidden if self.spec.encoder.width == self.spec.decoder.width else self.projection(hidden)), mask

    def decode(
        self,
        ids: Array,
        mask: Array | None,
        hidden: Array,
        hidden_mask: Array,
        *,
        read_out: ReadOut = logits_of,
        **options,
    ) -> Any:
        """Return logits `[B, T, V]`, or the result of another `read_out`, of right-shifted targets `ids [B, T]`.

        `hidden [B, S, D]` and `hidden_mask` come from `encode`; without a `mask` all targets are real. The tokens of
        `spec.decoder_prompt` are put after the start token, and have no logits.
        """
        prompt = jnp.asarray(self.spec.decoder_prompt, ids.dtype)
        if prompt.size:
            prompts = jnp.broadcast_to(prompt[None], (len(ids), prompt.size))
            ids = jnp.concatenate([ids[:, :1], prompts, ids[:, 1:]], axis=1)
            if mask is not None:
                mask = jnp.concatenate([mask[:, :1], jnp.ones_like(prompts, bool), mask[:, 1:]], axis=1)
        x = self._table()(ids)
        with jax.named_scope("decoder"):
            x = self.decoder(x, mask, hidden, hidden_mask, **options)[:, prompt.size :]
        return self.head(x, self.head.table(self._table().embedding[...]), read_out)


# Decoder-only models have the interface of an encoder-decoder whose encoder is the identity: `hidden` is the embedded
# prompt with the recording in it. Prompts are padded on the left, so that their last position, at which the decoder
# starts, is the same column in every row. The layers see prompt and target as one sequence.


class CausalStack(Stack):
    """Causal layers without cross-attention; local layers see a sliding window (Mistral, Gemma)."""

    def __call__(  # type: ignore[override]  # one sequence, no context
        self,
        x: Array,
        mask: Array,
        *,
        dropout_key: Array | None = None,
        remat: Keep | None = None,
        unroll: bool = False,
        divided: bool = False,
    ) -> Array:
        """Do what `Stack` does; `divided`: see `divided_weights`."""
        start, end, keys = dropout_keys(dropout_key, self.spec.layers)
        batch, length, width = x.shape
        views = replicate(self._views(mask)) if divided else self._views(mask)

        def body(layer: Layer, x: Array, each: tuple, views: tuple) -> Array:
            key, local = each
            bias, rotation = _view(jax.lax.stop_gradient(views), local)
            with divided_weights() if divided else contextlib.nullcontext():
                return layer(x, batch, (bias,), dropout_key=key, rotation=rotation)

        x = shard_rows(self._embed(shard_rows(x), jnp.arange(length), length, start).reshape(-1, width))
        local = None if None in self._locals() else jnp.asarray(self.spec.local_layers)
        options: dict[str, Any] = {"dtype": self.dtype, "remat": remat, "unroll": unroll, "divided_kernels": divided}
        x = scan_layers(self.layers, body, x, (keys, local), views, **options)
        return shard_rows(self._finish(x, end).reshape(batch, length, width))

    def init_cache(self, hidden: Array, mask: Array, beams: int, max_length: int) -> Cache:
        """Make a KV cache for `B * beams` sequences from prompts `hidden [B, S, D]` without their last position."""
        batch, length, width = hidden.shape
        before = mask.at[:, -1].set(False)
        views = self._views(mask)
        x, memory = self._embed(hidden, jnp.arange(length), length, None).reshape(-1, width), []
        heads = self.spec.kv_heads or self.spec.heads
        for layer, local in zip(self.separate_layers(), self._locals(), strict=True):
            (bias, rotation), h = _view(views, local), layer.self_norm(x)
            parts = layer.self_attention.keys(h, rotation), layer.self_attention.value(h)
            keys, values = (part.reshape(batch, length, -1) for part in parts)
            memory.append(LayerCache.after(heads, keys, values, max_length * beams))
            x = layer(x, batch, (bias,), rotation=rotation)
        ancestors = jnp.zeros((batch, beams, max_length), jnp.int32)
        return Cache(tuple(memory), ancestors, before, hidden[:, -1])

    def step(self, layers: Sequence[Layer], x: Array, index: Array, cache: Cache) -> tuple[Array, Cache]:
        ancestors = own_position(cache.ancestors, index)
        length, prompt = ancestors.shape[2], cache.cross_mask.shape[1]
        views = self._views_of_step(cache.cross_mask, ancestors, index)
        x, memory = self._embed(x, index[None], prompt + length - 1, None)[:, 0], []
        for layer, before, local in zip(layers, cache.layers, self._locals(), strict=True):
            bias, rotation = _view(views, local)
            x, after = layer.step(x, index, before, bias, None, rotation, prompt)
            memory.append(after)
        return self._finish(x, None), cache._replace(layers=tuple(memory), ancestors=ancestors)

    def _locals(self) -> tuple[bool | None, ...]:
        """Return whether each layer is local; all None if all layers are alike."""
        local = self.spec.local_layers
        return local if len(set(local)) > 1 else (None,) * self.spec.layers

    def _views(self, mask: Array) -> tuple:
        """Return pairs of attention bias `[1, B, T, T]` and rotation of rows `[B*T]`, see `_used_views`."""
        places = _positions(mask)
        order = jnp.arange(mask.shape[1])
        far = mask[:, None, :] & (order[None, :] <= order[:, None])[None]
        near = far & (places[:, :, None] - places[:, None, :] < self.spec.window)
        return self._used_views(mask_bias(far)[None], mask_bias(near)[None], places.reshape(-1))

    def _views_of_step(self, mask: Array, ancestors: Array, index: Array) -> tuple:
        """Return the pairs of `_views` for position `index`: biases `[B, 1, K, S + T*K]`, rotations of `[B*K]`."""
        (batch, beams), positions = ancestors.shape[:2], jnp.arange(ancestors.shape[2])
        here = mask.sum(axis=1, dtype=jnp.int32) + index  # --> [B]
        distance = here[:, None] - _positions(mask)

        def bias(seen: Array, written: Array) -> Array:
            prompt = jnp.broadcast_to(mask_bias(seen)[:, None, None], (batch, 1, beams, mask.shape[1]))
            return jnp.concatenate([prompt, history_bias(ancestors, mask_bias(written)[None, None, None])], axis=-1)

        far = bias(mask, positions <= index)
        near = bias(mask & (distance < self.spec.window), (positions <= index) & (index - positions < self.spec.window))
        return self._used_views(far, near, jnp.repeat(here, beams))

    def _used_views(self, far: Array, near: Array, positions: Array) -> tuple:
        """Return one (bias, rotation) if all layers are alike, else those of local layers (`near`) and of others."""
        spec = self.spec
        local = near, Rotation.of(positions, spec.local_rotary or spec.rotary)
        if all(spec.local_layers) and spec.local_layers:
            return (local,)
        others = far, Rotation.of(positions, spec.rotary)
        return (local, others) if any(spec.local_layers) else (others,)


def _view(views: tuple, local: Array | bool | None) -> tuple[Array, Rotation]:
    """Return a layer's (bias, rotation) from `_used_views`; `local` as in `_locals`."""
    if local is None:
        return views[0]
    if isinstance(local, bool):
        return views[0] if local else views[1]
    return jax.tree.map(lambda near, far: jnp.where(local, near, far), *views)


def _positions(mask: Array) -> Array:
    """Return each real token's position among those of its row, `[B, S]`; 0 at padding before them."""
    return jnp.maximum(jnp.cumsum(mask.astype(jnp.int32), axis=1) - 1, 0)


class CausalLM(LanguageModel):
    """Llama, Mistral, Qwen or Gemma, as `spec` describes it."""

    def __init__(self, spec: Seq2SeqSpec, dtype: jnp.dtype, rngs: nnx.Rngs) -> None:
        self.shared = Embedding(spec, spec.vocab_size, spec.d_model, spec.pad_token if spec.frozen_pad else None, rngs)
        self.decoder = CausalStack(spec.decoder, dtype, rngs)
        self.head = Head(spec, dtype, rngs)
        self.spec = spec

    def embed(self, ids: Array) -> Array:
        """Return the embeddings `[B, S, D]` of token ids `[B, S]`; ids out of range (padding) are clipped."""
        return self.shared(jnp.clip(ids, 0, self.spec.vocab_size - 1))

    def encode(self, embeddings: Array, mask: Array, **options) -> tuple[Array, Array]:
        """Return the embedded prompt `[B, S, D]` and its mask, padded on the left; no layer is applied."""
        order = jnp.argsort(mask, axis=1, stable=True)
        return jnp.take_along_axis(embeddings, order[:, :, None], axis=1), jnp.take_along_axis(mask, order, axis=1)

    def decode(
        self,
        ids: Array,
        mask: Array | None,
        hidden: Array,
        hidden_mask: Array,
        *,
        read_out: ReadOut = logits_of,
        **options,
    ) -> Any:
        """Return logits `[B, T, V]`, or the result of another `read_out`, of right-shifted targets `ids [B, T]`.

        The last position of the prompt `hidden [B, S, D]` replaces the start token, the first column of `ids`.
        """
        x = jnp.concatenate([hidden, self.embed(ids[:, 1:]).astype(hidden.dtype)], axis=1)
        later = jnp.ones_like(ids[:, 1:], bool) if mask is None else mask[:, 1:]
        with jax.named_scope("decoder"):
            x = self.decoder(x, jnp.concatenate([hidden_mask, later], axis=1), **options)
        return self.head(x[:, hidden.shape[1] - 1 :], self.head.table(self.shared.embedding[...]), read_out)

    def _first(self, tokens: Array, index: Array, cache: Cache, table: Any) -> Array:
        start = jnp.repeat(cache.start, cache.ancestors.shape[1], axis=0)
        return jnp.where(index == 0, start, self.embed(tokens).astype(start.dtype))[:, None]
