"""A layer, and a stack of them with positions before and a norm after: every backbone's encoder and decoder."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx

from eeg2text_jax.models.attention import Attention, RelativeBias, bias_of, padding_bias
from eeg2text_jax.models.cache import Cache, empty_layer, history_bias, own_position, remember
from eeg2text_jax.models.layers import FeedForward, Norm, dropout
from eeg2text_jax.models.nnx_bridge import scan_layers, separate_layers, stack_layers
from eeg2text_jax.models.positions import LearnedPositions, check_length, sinusoidal_table
from eeg2text_jax.models.spec import StackSpec

KeysValues = tuple[jax.Array, jax.Array]


class Context(NamedTuple):
    """What a decoder layer looks at besides its own sequence."""

    keys: jax.Array  # [B, H, S, Dh]
    values: jax.Array  # [B, H, S, Dh]
    bias: jax.Array  # [B, 1, 1, S]


class Layer(nnx.Module):
    """Self-attention, cross-attention in a decoder, and a feed-forward network, each with a residual and a norm."""

    def __init__(self, spec: StackSpec, dtype: jnp.dtype, rngs: nnx.Rngs) -> None:
        self.self_attention = Attention(spec, dtype, rngs)
        self.self_norm = Norm(spec, dtype)
        if spec.decoder:
            self.cross_attention = Attention(spec, dtype, rngs)
            self.cross_norm = Norm(spec, dtype)
        self.ffn = FeedForward(spec, dtype, rngs)
        self.ffn_norm = Norm(spec, dtype)
        self.pre_norm, self.rate = spec.pre_norm, spec.dropout

    def __call__(
        self,
        x: jax.Array,
        self_bias: jax.Array,
        context: Context | None = None,
        *,
        history: Callable[[jax.Array, jax.Array], KeysValues] = lambda keys, values: (keys, values),
        dropout_key: jax.Array | None = None,
    ) -> jax.Array:
        """`[N, T, D] -> [N, T, D]`.

        `history` gets the keys and values of `x` and returns those to attend to: in a cached step, all until now.
        """
        sites = [None] * 3 if dropout_key is None else jax.random.split(dropout_key, 3)
        h = self._enter(self.self_norm, x)
        keys, values = history(*self.self_attention.keys_values(h))
        # In a cached step the beams of a sentence, rows of x, are query positions of its one history and one context.
        queries = h.reshape(keys.shape[0], -1, h.shape[-1])
        y = self.self_attention(queries, keys, values, self_bias, sites[0])
        x = self._leave(self.self_norm, x, y.reshape(h.shape), sites[0])
        if context is not None:
            h = self._enter(self.cross_norm, x)
            queries = h.reshape(context.keys.shape[0], -1, h.shape[-1])
            y = self.cross_attention(queries, context.keys, context.values, context.bias, sites[1])
            x = self._leave(self.cross_norm, x, y.reshape(h.shape), sites[1])
        h = self._enter(self.ffn_norm, x)
        return self._leave(self.ffn_norm, x, self.ffn(h, sites[2]), sites[2])

    def _enter(self, norm: Norm, x: jax.Array) -> jax.Array:
        return norm(x) if self.pre_norm else x

    def _leave(self, norm: Norm, x: jax.Array, y: jax.Array, key: jax.Array | None) -> jax.Array:
        x = x + dropout(y, self.rate, key, site=1)
        return x if self.pre_norm else norm(x)


class Stack(nnx.Module):
    """Layers stacked on axis 0 of their parameters and scanned, with what comes before and after them."""

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
        x: jax.Array,
        mask: jax.Array | None,
        hidden: jax.Array | None = None,
        hidden_mask: jax.Array | None = None,
        *,
        dropout_key: jax.Array | None = None,
        remat: bool = False,
        unroll: bool = False,
    ) -> jax.Array:
        """All positions at once: embeddings `[B, T, D]`, mask `[B, T]` -> `[B, T, D]`.

        A decoder is given the encoder's output `hidden [B, S, D]` and its mask `[B, S]`.
        """
        start, end, *keys = _dropout_keys(dropout_key, self.spec.layers)
        positions = jnp.arange(x.shape[1])
        self_bias = self._self_bias(positions, positions, mask)
        hidden_bias = None if hidden is None else padding_bias(hidden_mask)

        def body(layer: Layer, x: jax.Array, key: jax.Array | None) -> tuple[jax.Array, None]:
            context = None
            if hidden is not None:
                context = Context(*layer.cross_attention.keys_values(hidden), hidden_bias)
            return layer(x, self_bias, context, dropout_key=key), None

        x = self._embed(x, positions, x.shape[1], start)
        if self.spec.layers:
            x, _ = scan_layers(self.layers, body, x, *keys, remat=remat, unroll=unroll)
        return self._finish(x, end)

    def init_cache(self, hidden: jax.Array, mask: jax.Array, beams: int, max_length: int) -> Cache:
        """A decoder's cache for `B * beams` sequences over the encoder's output `[B, S, D]`."""
        layers = tuple(
            empty_layer(self.spec, *layer.cross_attention.keys_values(hidden), beams, max_length)
            for layer in self.separate_layers()
        )
        ancestors = jnp.zeros((mask.shape[0], beams, max_length), jnp.int32)
        return Cache(layers, ancestors, mask)

    def separate_layers(self) -> list[Layer]:
        """The layers one by one, as `step` wants them."""
        return separate_layers(self.layers, self.spec.layers)

    def step(self, layers: Sequence[Layer], x: jax.Array, index: jax.Array, cache: Cache) -> tuple[jax.Array, Cache]:
        """Position `index` alone: embeddings `[B*K, 1, D]` -> `[B*K, 1, D]` and the cache with it.

        `layers` come from `separate_layers`, called outside of the loop over positions.
        """
        positions = jnp.arange(cache.ancestors.shape[2])
        ancestors = own_position(cache.ancestors, index)
        self_bias = history_bias(ancestors, self._self_bias(index[None], positions, None))
        hidden_bias = padding_bias(cache.cross_mask)
        x, memory = self._embed(x, index[None], positions.shape[0], None), list(cache.layers)
        for number, layer in enumerate(layers):

            def history(keys: jax.Array, values: jax.Array, number: int = number) -> KeysValues:
                memory[number] = remember(memory[number], keys, values, index)
                return memory[number].self_keys.swapaxes(2, 3), memory[number].self_values

            context = Context(memory[number].cross_keys, memory[number].cross_values, hidden_bias)
            x = layer(x, self_bias, context, history=history)
        return self._finish(x, None), cache._replace(layers=tuple(memory), ancestors=ancestors)

    def _embed(self, x: jax.Array, positions: jax.Array, length: int, key: jax.Array | None) -> jax.Array:
        """Add what `positions [T]`, all below `length`, contribute to the embeddings `[N, T, D]`."""
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

    def _finish(self, x: jax.Array, key: jax.Array | None) -> jax.Array:
        return dropout(self.final_norm(x) if self.spec.final_norm else x, self.spec.final_dropout, key)

    def _self_bias(self, queries: jax.Array, keys: jax.Array, mask: jax.Array | None) -> jax.Array:
        """Additive bias `[B or 1, H or 1, Tq or 1, Tk]` of what each query position may see of itself."""
        visible = jnp.ones((1, 1, 1, keys.shape[0]), bool) if mask is None else mask[:, None, None, :]
        if self.spec.decoder:
            visible = visible & (keys[None, :] <= queries[:, None])[None, None]
        bias = bias_of(visible)
        return bias + self.relative(queries, keys) if self.spec.positions == "relative" else bias


def _dropout_keys(key: jax.Array | None, layers: int) -> tuple:
    """Keys before the layers, after them, and one per layer on axis 0."""
    if key is None:
        return None, None, None
    before, after, within = jax.random.split(key, 3)
    return before, after, jax.random.split(within, layers)
