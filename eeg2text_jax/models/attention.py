"""Multi-head attention, the biases that mask it, rotary positions and T5's relative positions.

A mask is an additive float32 bias `[N or 1, H or 1, Tq or 1, Tk]`: 0 for visible positions, the most negative float for
masked ones, whose weight and gradient are then exactly 0. A layer that computes all positions at once has activations
as rows `[N*T, D]` and heads first, `[H, N, T, Dh]`.
"""

import math
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx

from eeg2text_jax.models.heads import Heads, attend_apart, attend_together, from_groups, into_groups
from eeg2text_jax.models.layers import MANY_ROWS, Dense, Norm, make_dense, product, row_major
from eeg2text_jax.models.spec import StackSpec
from eeg2text_jax.parallel.mesh import data_shards


class Rotation(NamedTuple):
    """Rotary positions (Su et al. 2021): cosines and sines of the angles of every row, `[R, Dh / 2]` float32.

    A pair is dimension i of the first half and i of the second, as in transformers. The angle of each pair is data of
    the backbone (`StackSpec.rotary`), so scaled frequencies need no code here.
    """

    cos: jax.Array
    sin: jax.Array

    @classmethod
    def of(cls, positions: jax.Array, frequencies: Sequence[float]) -> "Rotation":
        """Rotation of rows at `positions [R]`, by frequencies `[Dh / 2]` in radians a position."""
        angles = positions.astype(jnp.float32)[:, None] * jnp.asarray(frequencies, jnp.float32)[None]
        return cls(jnp.cos(angles), jnp.sin(angles))

    def __call__(self, x: jax.Array) -> jax.Array:
        """Turn rows of heads, `[R, H, Dh] -> [R, H, Dh]`, in the dtype of `x`."""
        cos, sin = (part.astype(x.dtype)[:, None] for part in self)
        first, second = jnp.split(x, 2, axis=-1)
        return jnp.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)


def choose(local: jax.Array | bool, here: Rotation, there: Rotation) -> Rotation:
    """`here` in a local layer, else `there`."""
    return jax.tree.map(lambda a, b: jnp.where(local, a, b), here, there)


MASK_VALUE = float(jnp.finfo(jnp.float32).min)


def mask_bias(visible: jax.Array) -> jax.Array:
    """Convert a boolean mask to an additive float32 bias of the same shape."""
    return jnp.where(visible, 0.0, MASK_VALUE).astype(jnp.float32)


def padding_bias(mask: jax.Array) -> jax.Array:
    """Convert a padding mask `[N, T]` to a bias `[N, 1, 1, T]`."""
    return mask_bias(mask)[:, None, None, :]


class Attention(nnx.Module):
    """Multi-head attention; keys and values are separate arguments, so that they can come from a cache."""

    def __init__(self, spec: StackSpec, dtype: jnp.dtype, rngs: nnx.Rngs) -> None:
        inner, shared = spec.heads * spec.head_dim, (spec.kv_heads or spec.heads) * spec.head_dim
        # T5 has no factor 1/sqrt(head_dim); its initialization of the queries includes it.
        shrink = 1.0 if spec.scale_attention else spec.head_dim**-0.5
        self.query = make_dense(spec, spec.width, inner, dtype, rngs, shrink=shrink, name="query")
        self.key = make_dense(spec, spec.width, shared, dtype, rngs, name="key")
        self.value = make_dense(spec, spec.width, shared, dtype, rngs, name="value")
        self.out = make_dense(spec, inner, spec.width, dtype, rngs, name="out")
        if spec.head_norm:
            self.query_norm, self.key_norm = (Norm(spec, dtype, spec.head_dim) for _ in range(2))
        self.heads, self.head_dim = spec.heads, spec.head_dim
        self.scale = spec.query_scale or (spec.head_dim**-0.5 if spec.scale_attention else 1.0)
        self.rate, self.cap, self.normed = spec.attention_dropout, spec.score_cap, spec.head_norm
        # What stands between projections and scores wants heads apart, and so do adapters.
        self.apart = spec.positions == "rotary" or spec.lora is not None

    def __call__(
        self,
        x: jax.Array,
        context: jax.Array,
        batch: int,
        biases: Sequence[jax.Array],
        dropout_key: jax.Array | None,
        rotation: Rotation | None = None,
    ) -> jax.Array:
        """Attend from rows `x [N*Tq, D]` to rows `context [N*Tk, D]` of the same sentence, N = `batch`: `[N*Tq, D]`.

        The backward pass stores the result and, for cross-attention in small batches, queries and keys. For
        self-attention and large batches, a TPU recomputes them faster than it writes and reads them (4 of 140 ms for
        T5-large, batch 32, by the compiler's estimate).
        """
        shape = Heads(batch, self.heads, self.rate)
        if self.apart or not shape.side_by_side(self.head_dim) or x.shape[0] // data_shards() < MANY_ROWS:
            queries, keys, values = self._rows(x, context, rotation, dropout_key)
            if x is not context:
                queries, keys, values = product(queries), product(keys), product(values)
            return self.out(attend_apart(shape, queries, keys, values, biases, dropout_key, self.cap), dropout_key, 5)
        together, apart = partial(self._together, shape), partial(self._apart, shape)
        return jax.lax.platform_dependent(x, context, tuple(biases), dropout_key, tpu=together, default=apart)

    def _apart(
        self, shape: Heads, x: jax.Array, context: jax.Array, biases: Sequence[jax.Array], key: jax.Array | None
    ) -> jax.Array:
        return self.out(attend_apart(shape, *self._rows(x, context), biases, key))

    def _together(
        self, shape: Heads, x: jax.Array, context: jax.Array, biases: Sequence[jax.Array], key: jax.Array | None
    ) -> jax.Array:
        queries = into_groups(x, *self._weights(self.query, x.dtype)) * self.scale
        keys = into_groups(context, *self._weights(self.key, x.dtype))
        values = into_groups(context, *self._weights(self.value, x.dtype))
        mixed = attend_together(shape, self.head_dim, queries, keys, values, biases, key)
        return product(row_major(from_groups(mixed, *self._weights(self.out, x.dtype))))

    def _rows(
        self,
        x: jax.Array,
        context: jax.Array,
        rotation: Rotation | None = None,
        key: jax.Array | None = None,
    ) -> tuple[jax.Array, jax.Array, jax.Array]:
        """Return queries, keys and values, each `[N*T, H*Dh]`; keys and values may have fewer heads."""
        queries = self._placed("query", self.query.plain(x, key, 2), rotation) * self.scale
        return (
            queries,
            self._placed("key", self.key.plain(context, key, 3), rotation),
            self.value.plain(context, key, 4),
        )

    def _placed(self, part: str, x: jax.Array, rotation: Rotation | None) -> jax.Array:
        """Apply the per-head norm and the rotary positions to queries or keys `[R, H*Dh]`, if the spec has them."""
        if not self.normed and rotation is None:
            return x
        heads = x.reshape(len(x), -1, self.head_dim)
        if self.normed:
            heads = (self.query_norm if part == "query" else self.key_norm)(heads)
        return (heads if rotation is None else rotation(heads)).reshape(x.shape)

    def _weights(self, dense: Dense, dtype: jnp.dtype) -> tuple[jax.Array, jax.Array | None, int]:
        """Return kernel, bias and number of heads, for `into_groups` and `from_groups`."""
        bias = None if dense.bias is None else dense.bias[...].astype(dtype)
        return dense.kernel[...].astype(dtype), bias, self.heads

    def queries(self, x: jax.Array, rotation: Rotation | None = None) -> jax.Array:
        """Project rows `[R, D]` to scaled queries `[R, H*Dh]`."""
        return self._placed("query", self.query(x), rotation) * self.scale

    def keys(self, x: jax.Array, rotation: Rotation | None = None) -> jax.Array:
        """Project rows `[R, D]` to keys `[R, H*Dh]`, in the layout of the cache."""
        return self._placed("key", self.key(x), rotation)


class RelativeBias(nnx.Module):
    """T5's learned bias per head and bucket of the relative position."""

    def __init__(self, spec: StackSpec, rngs: nnx.Rngs) -> None:
        init = jax.nn.initializers.normal(spec.width**-0.5)
        self.embedding = nnx.Param(init(rngs.params(), (spec.relative_buckets, spec.heads), jnp.float32))
        self.bidirectional = not spec.decoder
        self.buckets, self.max_distance = spec.relative_buckets, spec.relative_max_distance

    def __call__(self, queries: jax.Array, keys: jax.Array) -> jax.Array:
        """Return the bias `[1, H, Tq, Tk]`, float32, for query positions `[Tq]` and key positions `[Tk]`."""
        distance = keys[None, :] - queries[:, None]
        bucket = relative_bucket(distance, self.bidirectional, self.buckets, self.max_distance)
        return self.embedding[...][bucket].transpose(2, 0, 1)[None]


def relative_bucket(distance: jax.Array, bidirectional: bool, buckets: int, max_distance: int) -> jax.Array:
    """Map key position minus query position to T5's bucket (Raffel et al. 2020, section 2.1).

    Half of the buckets hold one distance each; the others grow logarithmically up to `max_distance`. If bidirectional,
    the upper half of all buckets is for keys after the query; otherwise such keys share bucket 0.
    """
    offset = jnp.zeros_like(distance)
    if bidirectional:
        buckets //= 2
        offset = jnp.where(distance > 0, buckets, 0)
        distance = jnp.abs(distance)
    else:
        distance = jnp.maximum(-distance, 0)
    exact = buckets // 2
    ratio = jnp.log(jnp.maximum(distance, 1).astype(jnp.float32) / exact) / math.log(max_distance / exact)
    logarithmic = exact + (ratio * (buckets - exact)).astype(jnp.int32)
    return offset + jnp.where(distance < exact, distance, jnp.minimum(logarithmic, buckets - 1))
