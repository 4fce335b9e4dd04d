"""Decoder-only language models, with the interface of an encoder-decoder whose encoder is the identity.

`hidden` is the embedded prompt with the recording in it, and the decoder starts at the prompt's last position. Prompts
are padded on the left, so this position is the same column in every row. The layers see prompt and target as one
sequence.
"""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from eeg2text_jax.cpu import fenced
from eeg2text_jax.models.attention import Rotation, mask_bias
from eeg2text_jax.models.cache import Cache, LayerCache, history_bias, own_position
from eeg2text_jax.models.encoder_decoder import Embedding, Head, Int8Table, ReadOut, Step, logits_of
from eeg2text_jax.models.nnx_bridge import scan_layers
from eeg2text_jax.models.remat import Keep
from eeg2text_jax.models.spec import Seq2SeqSpec
from eeg2text_jax.models.stack import Layer, Stack, dropout_keys
from eeg2text_jax.parallel.mesh import shard_rows


def left_padded(x: jax.Array, mask: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return `x [B, S, D]` and its mask `[B, S]` with all real positions at the end of their rows, in order."""
    order = jnp.argsort(mask, axis=1, stable=True)
    return jnp.take_along_axis(x, order[:, :, None], axis=1), jnp.take_along_axis(mask, order, axis=1)


class CausalStack(Stack):
    """Stack of causal layers without cross-attention; local layers see a sliding window (Mistral, Gemma)."""

    def __call__(  # type: ignore[override]  # one sequence, no context
        self,
        x: jax.Array,
        mask: jax.Array,
        *,
        dropout_key: jax.Array | None = None,
        remat: Keep | None = None,
        unroll: bool = False,
    ) -> jax.Array:
        """Return hidden states `[B, T, D]` of all positions from embeddings `x [B, T, D]` and their mask `[B, T]`."""
        start, end, keys = dropout_keys(dropout_key, self.spec.layers)
        batch, length, width = x.shape
        views = self._views(mask)

        def body(layer: Layer, x: jax.Array, each: tuple, views: tuple) -> jax.Array:
            key, local = each
            bias, rotation = _view(jax.lax.stop_gradient(views), local)
            return layer(x, batch, (bias,), dropout_key=key, rotation=rotation)

        x = shard_rows(self._embed(shard_rows(x), jnp.arange(length), length, start).reshape(-1, width))
        local = jnp.asarray(self.spec.local_layers) if self._mixed else None
        x = scan_layers(self.layers, body, x, (keys, local), views, dtype=self.dtype, remat=remat, unroll=unroll)
        return shard_rows(self._finish(x, end).reshape(batch, length, width))

    def init_cache(self, hidden: jax.Array, mask: jax.Array, beams: int, max_length: int) -> Cache:
        """Make a KV cache for `B * beams` sequences from prompts `hidden [B, S, D]` without their last position."""
        batch, length, width = hidden.shape
        before = mask.at[:, -1].set(False)
        views = self._views(mask)
        x, memory = self._embed(hidden, jnp.arange(length), length, None).reshape(-1, width), []
        for layer, local in zip(self.separate_layers(), self._locals(), strict=True):
            (bias, rotation), h = _view(views, local), layer.self_norm(x)
            parts = layer.self_attention.keys(h, rotation), layer.self_attention.value(h)
            keys, values = (part.reshape(batch, length, -1) for part in parts)
            heads = self.spec.kv_heads or self.spec.heads
            memory.append(LayerCache.after(heads, keys, values, max_length * beams))
            x = layer(x, batch, (bias,), rotation=rotation)
        ancestors = jnp.zeros((batch, beams, max_length), jnp.int32)
        return Cache(tuple(memory), ancestors, before, hidden[:, -1])

    def step(self, layers: Sequence[Layer], x: jax.Array, index: jax.Array, cache: Cache) -> tuple[jax.Array, Cache]:
        """Decode position `index` after the prompt: return hidden states `[B*K, D]` and the new cache.

        `x [B*K, 1, D]` are embeddings; `layers` come from `separate_layers`.
        """
        ancestors = own_position(cache.ancestors, index)
        length, prompt = ancestors.shape[2], cache.cross_mask.shape[1]
        views = self._views_of_step(cache.cross_mask, ancestors, index)
        x, memory = self._embed(x, index[None], prompt + length - 1, None)[:, 0], []
        for layer, before, local in zip(layers, cache.layers, self._locals(), strict=True):
            bias, rotation = _view(views, local)
            x, after = layer.step(x, index, before, bias, None, rotation, prompt)
            memory.append(after)
        return self._finish(x, None), cache._replace(layers=tuple(memory), ancestors=ancestors)

    @property
    def _mixed(self) -> bool:
        """Whether some layers are local (see a sliding window) and others are not."""
        return len(set(self.spec.local_layers)) > 1

    def _locals(self) -> tuple[bool | None, ...]:
        """Return for each layer whether it is local (sees a window); all None if all layers are alike."""
        return self.spec.local_layers if self._mixed else (None,) * self.spec.layers

    def _views(self, mask: jax.Array) -> tuple:
        """Return pairs of attention bias `[1, B, T, T]` and rotation of rows `[B*T]`, as `_used_views` selects them."""
        places = _positions(mask)
        order = jnp.arange(mask.shape[1])
        far = mask[:, None, :] & (order[None, :] <= order[:, None])[None]
        near = far & (places[:, :, None] - places[:, None, :] < self.spec.window)
        return self._used_views(mask_bias(far)[None], mask_bias(near)[None], places.reshape(-1))

    def _views_of_step(self, mask: jax.Array, ancestors: jax.Array, index: jax.Array) -> tuple:
        """Return the pairs of `_views` for decoding position `index` after prompts with `mask [B, S]`.

        Biases are `[B, 1, K, S + T*K]`, over the entries of the cache; rotations are of rows `[B*K]`.
        """
        (batch, beams), own = ancestors.shape[:2], jnp.arange(ancestors.shape[2])
        here = mask.sum(axis=1, dtype=jnp.int32) + index  # --> [B]
        distance = here[:, None] - _positions(mask)

        def bias(seen: jax.Array, written: jax.Array) -> jax.Array:
            prompt = jnp.broadcast_to(mask_bias(seen)[:, None, None], (batch, 1, beams, mask.shape[1]))
            return jnp.concatenate([prompt, history_bias(ancestors, mask_bias(written)[None, None, None])], axis=-1)

        far = bias(mask, own <= index)
        near = bias(mask & (distance < self.spec.window), (own <= index) & (index - own < self.spec.window))
        return self._used_views(far, near, jnp.repeat(here, beams))

    def _used_views(self, far: jax.Array, near: jax.Array, positions: jax.Array) -> tuple:
        """Return one (bias, rotation) if all layers are alike, or two: of local layers (`near`), of others (`far`)."""
        spec = self.spec
        local = near, Rotation.of(positions, spec.local_rotary or spec.rotary)
        if all(spec.local_layers) and spec.local_layers:
            return (local,)
        others = far, Rotation.of(positions, spec.rotary)
        return (local, others) if any(spec.local_layers) else (others,)


def _view(views: tuple, local: jax.Array | bool | None) -> tuple[jax.Array, Rotation]:
    """Return a layer's (bias, rotation) from `_used_views`; `local`: whether it is local, None if all are alike."""
    if local is None:
        return views[0]
    if isinstance(local, bool):
        return views[0] if local else views[1]
    return jax.tree.map(lambda near, far: jnp.where(local, near, far), *views)


def _positions(mask: jax.Array) -> jax.Array:
    """Return the position of each real token among the real tokens of its row, `[B, S]`; 0 at padding before them."""
    return jnp.maximum(jnp.cumsum(mask.astype(jnp.int32), axis=1) - 1, 0)


class CausalLM(nnx.Module):
    """A decoder-only model that `spec` describes: Llama, Mistral, Qwen or Gemma."""

    def __init__(self, spec: Seq2SeqSpec, dtype: jnp.dtype, rngs: nnx.Rngs) -> None:
        self.shared = Embedding(spec, spec.vocab_size, spec.d_model, spec.pad_token if spec.frozen_pad else None, rngs)
        self.decoder = CausalStack(spec.decoder, dtype, rngs)
        self.head = Head(spec, dtype, rngs)
        self.spec = spec

    def embed(self, ids: jax.Array) -> jax.Array:
        """Return the embeddings `[B, S, D]` of token ids `[B, S]`; ids out of range (at padding) are clipped."""
        return self.shared(jnp.clip(ids, 0, self.spec.vocab_size - 1))

    def encode(self, embeddings: jax.Array, mask: jax.Array, **options) -> tuple[jax.Array, jax.Array]:
        """Return the embedded prompt `[B, S, D]` and its mask, padded on the left; no layer is applied."""
        return left_padded(embeddings, mask)

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

        The last position of the prompt, `hidden [B, S, D]`, replaces the start token, the first column of `ids`.
        """
        x = jnp.concatenate([hidden, self.embed(ids[:, 1:]).astype(hidden.dtype)], axis=1)
        later = jnp.ones_like(ids[:, 1:], bool) if mask is None else mask[:, 1:]
        with jax.named_scope("decoder"):
            x = self.decoder(x, jnp.concatenate([hidden_mask, later], axis=1), **options)
        return self.head(x[:, hidden.shape[1] - 1 :], self.head.table(self.shared.embedding[...]), read_out)

    def int8_table(self) -> Int8Table:
        """Return the table of the output head rounded to int8, for `decode_step`."""
        return self.head.int8_table(self.shared.embedding[...])

    def decode_step(self, table: Int8Table | None = None) -> Step:
        """Return the function of one decoder step: (tokens `[B*K]`, position, cache) -> (logits `[B*K, V]`, cache).

        `table`, from `int8_table`, replaces the output head's own.
        """
        layers = self.decoder.separate_layers()
        table = self.head.step_table(self.shared.embedding[...]) if table is None else table

        def step(tokens: jax.Array, index: jax.Array, cache: Cache) -> tuple[jax.Array, Cache]:
            start = jnp.repeat(cache.start, cache.ancestors.shape[1], axis=0)
            x = jnp.where(index == 0, start, self.embed(tokens).astype(start.dtype))[:, None]
            with jax.named_scope("decoder"):
                x, cache = self.decoder.step(layers, x, index, cache)
            return fenced(lambda x: self.head(x, table), x, index >= 0), cache

        return step
