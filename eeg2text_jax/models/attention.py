"""Multi-head attention, its masks, rotary positions and T5's relative positions.

A mask is an additive float32 bias `[N or 1, H or 1, Tq or 1, Tk]`: 0 for visible positions, the most negative float for
masked ones, whose weight and gradient are then exactly 0. Functions that compute all positions at once take activations
as rows `[N*T, D]`, the T positions of each of N sentences, and masks with heads first, `[H or 1, N or 1, ...]`.
"""

import math
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx

from eeg2text_jax.models.affine import row_major
from eeg2text_jax.models.attention_parts import Parts, Projections, attend_in_parts, heads_at_once
from eeg2text_jax.models.fused_attention import attend_fused, fits
from eeg2text_jax.models.heads import Heads, attend_apart
from eeg2text_jax.models.layers import Norm, make_dense, product
from eeg2text_jax.models.spec import StackSpec
from eeg2text_jax.parallel.mesh import data_shards


class Rotation(NamedTuple):
    """Rotary position embedding (Su et al. 2021): cosines and sines of the angles by which each of R rows is rotated.

    Dimension i of a head's first half is paired with i of its second half, as in transformers.
    """

    cos: jax.Array  # float32 [R, Dh / 2]
    sin: jax.Array  # float32 [R, Dh / 2]

    @classmethod
    def of(cls, positions: jax.Array, frequencies: Sequence[float]) -> "Rotation":
        """Return the rotation of rows at `positions [R]` by frequencies `[Dh / 2]`, radians per position."""
        angles = positions.astype(jnp.float32)[:, None] * jnp.asarray(frequencies, jnp.float32)[None]
        return cls(jnp.cos(angles), jnp.sin(angles))

    def __call__(self, x: jax.Array) -> jax.Array:
        """Rotate queries or keys `[R, H, Dh]`, in their dtype."""
        cos, sin = (part.astype(x.dtype)[:, None] for part in self)
        first, second = jnp.split(x, 2, axis=-1)
        return jnp.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)


MASK_VALUE = float(jnp.finfo(jnp.float32).min)


def mask_bias(visible: jax.Array) -> jax.Array:
    """Convert a boolean mask to an additive float32 bias of the same shape."""
    return jnp.where(visible, 0.0, MASK_VALUE).astype(jnp.float32)


def padding_bias(mask: jax.Array) -> jax.Array:
    """Convert a mask `[N, T]`, True at real positions, to a bias `[N, 1, 1, T]`."""
    return mask_bias(mask)[:, None, None, :]


class Attention(nnx.Module):
    """Multi-head attention; `queries`, `keys` and `value` project single positions for decoding with a cache."""

    def __init__(self, spec: StackSpec, dtype: jnp.dtype, rngs: nnx.Rngs) -> None:
        inner, shared = spec.heads * spec.head_dim, (spec.kv_heads or spec.heads) * spec.head_dim
        # T5 has no factor 1/sqrt(head_dim) at run time, but in the initial kernel of queries.
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
        # Features that only `attend_apart`, which has the heads on an axis of their own, implements.
        self.apart = spec.positions == "rotary" or spec.lora is not None or self.normed or bool(self.cap)
        self.apart |= shared != inner
        self.fusible = not (self.apart or spec.positions == "relative")  # the fused kernels give biases no gradient

    def __call__(
        self,
        x: jax.Array,
        context: jax.Array,
        batch: int,
        biases: Sequence[jax.Array],
        dropout_key: jax.Array | None,
        rotation: Rotation | None = None,
    ) -> jax.Array:
        """Return attention `[N*Tq, D]` of rows `x [N*Tq, D]` over rows `context [N*Tk, D]` of N = `batch` sentences.

        The result is marked for storage, see `product`, and so are queries, keys and values of cross-attention in small
        batches. In self-attention or large batches, a TPU recomputes queries, keys and values faster than it writes and
        reads them (4 of 140 ms for T5-large, batch 32, by the compiler's estimate).
        """
        unfused = partial(self._unfused, batch, x is context, rotation)
        lengths = x.shape[0] // batch, context.shape[0] // batch
        if not (self.fusible and x.dtype == jnp.bfloat16 and fits(batch, self.head_dim, *lengths)):
            return unfused(x, context, tuple(biases), dropout_key)
        cuda = partial(self._fused, batch)
        return jax.lax.platform_dependent(x, context, tuple(biases), dropout_key, cuda=cuda, default=unfused)

    def _fused(
        self, batch: int, x: jax.Array, context: jax.Array, biases: Sequence[jax.Array], key: jax.Array | None
    ) -> jax.Array:
        shape = Heads(batch, self.heads, self.rate)
        return self.out(attend_fused(shape, *self._rows(x, context), biases, key), key, 5)

    def _unfused(
        self,
        batch: int,
        of_itself: bool,
        rotation: Rotation | None,
        x: jax.Array,
        context: jax.Array,
        biases: Sequence[jax.Array],
        dropout_key: jax.Array | None,
    ) -> jax.Array:
        shape = Heads(batch, self.heads, self.rate)
        lengths = x.shape[0] // batch, context.shape[0] // batch
        at_once = heads_at_once(self.heads, -(-batch // data_shards()), *lengths)
        whole = self.apart or self.query.quantized or at_once == self.heads
        apart = partial(self._apart, shape, rotation, whole and not of_itself)
        if whole:
            return apart(x, context, biases, dropout_key)
        in_parts = partial(self._in_parts, Parts(shape, self.head_dim, at_once, self.scale))
        return jax.lax.platform_dependent(x, context, tuple(biases), dropout_key, tpu=in_parts, default=apart)

    def _apart(
        self,
        shape: Heads,
        rotation: Rotation | None,
        stored: bool,
        x: jax.Array,
        context: jax.Array,
        biases: Sequence[jax.Array],
        key: jax.Array | None,
    ) -> jax.Array:
        """Attend with heads on an axis; queries, keys and values are marked for storage if `stored`."""
        queries, keys, values = self._rows(x, context, rotation, key)
        if stored:
            queries, keys, values = product(queries), product(keys), product(values)
        return self.out(attend_apart(shape, queries, keys, values, biases, key, self.cap), key, 5)

    def _in_parts(
        self, parts: Parts, x: jax.Array, context: jax.Array, biases: Sequence[jax.Array], key: jax.Array | None
    ) -> jax.Array:
        denses = (self.query, self.key, self.value, self.out)
        projections = Projections(
            tuple(dense.kernel[...].astype(x.dtype) for dense in denses),
            tuple(None if dense.bias is None else dense.bias[...].astype(x.dtype) for dense in denses),
        )
        return product(row_major(attend_in_parts(parts, x, context, projections, tuple(biases), key)))

    def _rows(
        self, x: jax.Array, context: jax.Array, rotation: Rotation | None = None, key: jax.Array | None = None
    ) -> tuple[jax.Array, jax.Array, jax.Array]:
        """Return queries (scaled), keys and values, `[N*T, H*Dh]` each; keys and values may have fewer heads than H."""
        queries = self._rotate("query", self.query.plain(x, key, 2), rotation) * self.scale
        keys = self._rotate("key", self.key.plain(context, key, 3), rotation)
        return queries, keys, self.value.plain(context, key, 4)

    def _rotate(self, part: str, x: jax.Array, rotation: Rotation | None) -> jax.Array:
        """Apply the per-head norm and the rotary positions, if the spec has them, to queries or keys `[R, H*Dh]`."""
        if not self.normed and rotation is None:
            return x
        heads = x.reshape(len(x), -1, self.head_dim)
        if self.normed:
            heads = (self.query_norm if part == "query" else self.key_norm)(heads)
        return (heads if rotation is None else rotation(heads)).reshape(x.shape)

    def queries(self, x: jax.Array, rotation: Rotation | None = None) -> jax.Array:
        """Project rows `[R, D]` to scaled queries `[R, H*Dh]`."""
        return self._rotate("query", self.query(x), rotation) * self.scale

    def keys(self, x: jax.Array, rotation: Rotation | None = None) -> jax.Array:
        """Project rows `[R, D]` to keys `[R, H*Dh]`."""
        return self._rotate("key", self.key(x), rotation)


class RelativeBias(nnx.Module):
    """T5's learned attention bias, one per head and bucket of relative positions."""

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
    """Return the number of T5's bucket for each `distance`, key minus query position (Raffel et al. 2020, section 2.1).

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
