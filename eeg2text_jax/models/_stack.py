"""The transformer layer, and stacks of layers: every encoder and decoder."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jax import Array

from eeg2text_jax.base.devices.mesh import data_shards, shard_rows
from eeg2text_jax.models.attention import (
    Attention,
    Cache,
    LayerCache,
    RelativeBias,
    Rotation,
    history_bias,
    mask_bias,
    own_position,
    padding_bias,
)
from eeg2text_jax.models.layers import (
    MANY_ROWS,
    SITES,
    Dense,
    FeedForward,
    LearnedPositions,
    Norm,
    affine,
    check_length,
    dropout,
    product,
    row_major,
    sinusoidal_table,
)
from eeg2text_jax.models.nnx_bridge import Keep, scan_layers, separate_layers, stack_layers
from eeg2text_jax.models.spec import StackSpec

Sublayer = Callable[[Array, Array | None], Array]  # (rows, dropout key) -> rows added to the residual


class Layer(nnx.Module):
    """Self-attention, cross-attention in a decoder, and a feed-forward network, each with a residual and a norm.

    With rows `[R, D]` of all sentences, BART-large's feed-forward network and its gradient take a TPU 0.54 ms by the
    compiler's estimate, with three axes 0.59.
    """

    def __init__(self, spec: StackSpec, dtype: jnp.dtype, rngs: nnx.Rngs) -> None:
        self.self_attention = Attention(spec, dtype, rngs)
        self.self_norm = Norm(spec, dtype)
        if spec.decoder and not spec.alone:
            self.cross_attention = Attention(spec, dtype, rngs)
            self.cross_norm = Norm(spec, dtype)
        self.ffn = FeedForward(spec, dtype, rngs)
        self.ffn_norm = Norm(spec, dtype)
        if spec.sandwich_norm:
            self.self_norm_after, self.ffn_norm_after = Norm(spec, dtype), Norm(spec, dtype)
        if spec.layer_scale:
            for name in ("self_scale", "ffn_scale"):
                setattr(self, name, nnx.Param(jnp.full((spec.width,), spec.layer_scale, jnp.float32)))
        self.pre_norm, self.sandwich, self.rate = spec.pre_norm, spec.sandwich_norm, spec.dropout
        self.scaled = bool(spec.layer_scale)

    def __call__(
        self,
        x: Array,
        batch: int,
        self_biases: Sequence[Array],
        hidden: Array | None = None,
        hidden_bias: Array | None = None,
        dropout_key: Array | None = None,
        rotation: Rotation | None = None,
    ) -> Array:
        """Apply the layer to the rows `[N*T, D]` of N = `batch` sentences; biases: `[H or 1, N or 1, Tq or 1, Tk]`.

        A decoder with cross-attention also reads the encoder output, rows `hidden [N*S, D]`.
        """

        def within(h: Array, site: Array | None) -> Array:
            return self.self_attention(h, h, batch, self_biases, site, rotation)

        def cross(h: Array, site: Array | None) -> Array:
            return self.cross_attention(h, hidden, batch, (hidden_bias,), site)

        return self._sublayers(x, within, None if hidden is None else cross, dropout_key)

    def round_to_int8(self) -> None:
        for block in (self.self_attention, self.ffn, getattr(self, "cross_attention", None)):
            for part in vars(block).values() if block else ():
                if isinstance(part, Dense):
                    part.round_rows()

    def step(
        self,
        x: Array,
        index: Array,
        cache: LayerCache,
        own_bias: Array,
        cross_bias: Array | None,
        rotation: Rotation | None = None,
        prompt: int = 0,
    ) -> tuple[Array, LayerCache]:
        """Apply the layer to position `index` of K beams of B sentences: return rows `[B*K, D]` and the new cache.

        In a decoder-only model, `cross_bias` is None, and the first `prompt` entries of the cache are of the prompt.
        """
        attention = self.self_attention

        def within(h: Array, _: None) -> Array:
            nonlocal cache
            cache = cache.remember(attention.keys(h, rotation), attention.value(h), index, prompt)
            return attention.out(cache.own(attention.queries(h, rotation), own_bias, index, attention.cap))

        def cross(h: Array, _: None) -> Array:
            return self.cross_attention.out(cache.cross(self.cross_attention.queries(h), cross_bias))

        x = self._sublayers(x, within, None if cross_bias is None else cross, None)
        return x, cache

    def _sublayers(self, x: Array, within: Sublayer, cross: Sublayer | None, key: Array | None) -> Array:
        sites = [None] * 3 if key is None else key
        after: tuple[Any, ...] = (self.self_norm_after, self.ffn_norm_after) if self.sandwich else (None, None)
        if self.scaled:
            scales = (self.self_scale[...], self.ffn_scale[...])
            after = tuple(lambda x, s=s: affine(x, s.astype(x.dtype), None, x.dtype) for s in scales)
        x = self._around(self.self_norm, within, x, sites[0], after[0])
        if cross is not None:
            x = self._around(self.cross_norm, cross, x, sites[1])
        return self._around(self.ffn_norm, self.ffn, x, sites[2], after[1])

    def _around(self, norm: Norm, sublayer: Sublayer, x: Array, key: Array | None, after: Any = None) -> Array:
        """Apply a sublayer with its residual and norm; `after`, unless None, is applied to the sublayer's output.

        With layer norms, the sum and the norm's statistics are marked for storage, see `product`: recomputing them
        would take BART-large 68.0 instead of 66.6 ms, but takes T5-large (RMS norms) 124.9 instead of 126.6 (batch 32,
        by the TPU compiler's estimate).
        """
        y = sublayer(norm(x) if self.pre_norm else x, key)
        y = y if after is None else after(y)
        x = shard_rows(row_major(x + dropout(y, self.rate, key, site=1)))
        x = product(x) if norm.centered else x
        return x if self.pre_norm else row_major(norm(x))


class Stack(nnx.Module):
    """Stacked transformer layers `[L, ...]`, with position embeddings and norms before and after."""

    def __init__(self, spec: StackSpec, dtype: jnp.dtype, rngs: nnx.Rngs) -> None:
        if spec.positions == "learned":
            self.positions = LearnedPositions(spec, rngs)
        elif spec.positions == "relative":
            self.relative = RelativeBias(spec, rngs)
        if spec.token_types:
            init = jax.nn.initializers.normal(spec.init_std or spec.width**-0.5)
            self.token_types = nnx.Param(init(rngs.params(), (spec.token_types, spec.width), jnp.float32))
        if spec.embedding_norm:
            self.embedding_norm = Norm(spec, dtype)
        if spec.layers:
            self.layers = stack_layers(lambda r: Layer(spec, dtype, r), rngs.params(), spec.layers)
        if spec.final_norm:
            self.final_norm = Norm(spec, dtype)
        self.spec, self.dtype = spec, dtype

    def __call__(
        self,
        x: Array,
        mask: Array | None,
        hidden: Array | None = None,
        hidden_mask: Array | None = None,
        *,
        dropout_key: Array | None = None,
        remat: Keep | None = None,
        unroll: bool = False,
    ) -> Array:
        """Return hidden states `[B, T, D]` of embeddings `x [B, T, D]` with the mask `[B, T]`.

        A decoder also reads the encoder output `hidden [B, S, D]` and its mask `[B, S]`.
        """
        start, end, keys = dropout_keys(dropout_key, self.spec.layers)
        batch, length, width = x.shape
        positions = jnp.arange(length)
        seen, *learned = [bias.swapaxes(0, 1) for bias in self._self_biases(positions, positions, mask)]
        rows, hidden_seen = None, None
        if hidden is not None:
            rows, hidden_seen = hidden.reshape(-1, hidden.shape[-1]), padding_bias(hidden_mask).swapaxes(0, 1)

        def body(layer: Layer, x: Array, key: Array | None, shared: tuple) -> Array:
            (seen, hidden_seen), learned, rows = jax.lax.stop_gradient(shared[0]), *shared[1:]
            return layer(x, batch, (seen, *learned), rows, hidden_seen, key)

        x = shard_rows(self._embed(shard_rows(x), positions, length, start).reshape(-1, width))
        if self.spec.layers:
            shared, late = ((seen, hidden_seen), learned, rows), x.shape[0] // data_shards() < MANY_ROWS
            options = {"dtype": self.dtype, "remat": remat, "unroll": unroll, "late": late}
            x = scan_layers(self.layers, body, x, keys, shared, **options)
        return shard_rows(self._finish(x, end).reshape(batch, length, width))

    def init_cache(self, hidden: Array, mask: Array, beams: int, max_length: int) -> Cache:
        """Make a KV cache for `B * beams` sequences from the encoder output `[B, S, D]` and its mask."""

        def empty(layer: Layer) -> LayerCache:
            attention = layer.cross_attention
            keys, values = attention.key(hidden), attention.value(hidden)
            return LayerCache.empty(self.spec.heads, keys, values, max_length * beams)

        layers = tuple(map(empty, self.separate_layers()))
        return Cache(layers, jnp.zeros((mask.shape[0], beams, max_length), jnp.int32), mask)

    def separate_layers(self) -> list[Layer]:
        return separate_layers(self.layers, self.spec.layers)

    def step(self, layers: Sequence[Layer], x: Array, index: Array, cache: Cache) -> tuple[Array, Cache]:
        """Decode one position: embeddings `[B*K, 1, D]` -> rows `[B*K, D]`; `layers` are from `separate_layers`."""
        positions = jnp.arange(cache.ancestors.shape[2])
        ancestors = own_position(cache.ancestors, index)
        missing = max(-cache.before, 0)
        own_bias = history_bias(ancestors, sum(self._self_biases(index[None], positions, None)), missing)
        cross_bias = padding_bias(cache.cross_mask)
        x, memory = self._embed(x, index[None], positions.shape[0], None)[:, 0], []
        for layer, before in zip(layers, cache.layers, strict=True):
            x, after = layer.step(x, index, before, own_bias, cross_bias, prompt=-missing)
            memory.append(after)
        return self._finish(x, None), cache._replace(layers=tuple(memory), ancestors=ancestors)

    @jax.named_scope("embeddings")
    def _embed(self, x: Array, positions: Array, length: int, key: Array | None) -> Array:
        """Add embeddings of token type and `positions [T] < length` to `x [N, T, D]`; apply norm and dropout."""
        check_length(self.spec, length)
        x = x.astype(self.dtype)
        if self.spec.positions == "learned":
            x = x + self.positions(positions).astype(self.dtype)[None]
        elif self.spec.positions == "sinusoidal":
            x = x + jnp.asarray(sinusoidal_table(length, self.spec.width), self.dtype)[positions][None]
        if self.spec.token_types:
            x = x + self.token_types[0].astype(self.dtype)[None, None]
        if self.spec.embedding_norm:
            x = self.embedding_norm(x)
        return dropout(x, self.spec.embedding_dropout, key)

    def _finish(self, x: Array, key: Array | None) -> Array:
        return dropout(self.final_norm(x) if self.spec.final_norm else x, self.spec.final_dropout, key)

    def _self_biases(self, queries: Array, keys: Array, mask: Array | None) -> list[Array]:
        """Return the mask and T5's relative bias, if any, `[B or 1, H or 1, Tq or 1, Tk]`.

        They are not added up, so that each layer sums the gradient of the relative bias over the batch.
        """
        visible = jnp.ones((1, 1, 1, keys.shape[0]), bool) if mask is None else mask[:, None, None, :]
        if self.spec.decoder:
            visible = visible & (keys[None, :] <= queries[:, None])[None, None]
        biases = [mask_bias(visible)]
        return [*biases, self.relative(queries, keys)] if self.spec.positions == "relative" else biases


def dropout_keys(key: Array | None, layers: int, sublayers: int = 3) -> tuple:
    """Return dropout keys of embeddings, output and layers, these `[L, sublayers, SITES]`; three None without `key`.

    All are made before the loop over layers, where each of 30 operations would take a TPU 1.2 us.
    """
    if key is None:
        return None, None, None
    before, after, within = jax.random.split(key, 3)

    def of_layer(key: Array) -> Array:
        sites = jax.vmap(jax.random.fold_in, (None, 0))
        return jax.vmap(lambda key: sites(key, jnp.arange(SITES)))(jax.random.split(key, sublayers))

    return before, after, jax.vmap(of_layer)(jax.random.split(within, layers))
