"""Multi-head attention, the biases that mask it, and T5's relative positions.

A mask is an additive float32 bias `[N or 1, H or 1, Tq or 1, Tk]`: 0 where a position may be seen, the most negative
float where not, so that a hidden position gets a weight of exactly 0 and no gradient. Where a layer computes all
positions at once, its activations are rows `[N*T, D]` and heads come first, `[H, N, T, Dh]`.
"""

import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp
from flax import nnx

from eeg2text_jax.models.layers import dropout, make_dense
from eeg2text_jax.models.spec import StackSpec

HIDDEN = float(jnp.finfo(jnp.float32).min)


def bias_of(visible: jax.Array) -> jax.Array:
    """Boolean mask -> additive bias of the same shape, float32."""
    return jnp.where(visible, 0.0, HIDDEN).astype(jnp.float32)


def padding_bias(mask: jax.Array) -> jax.Array:
    """Mask of real positions `[N, T]` -> `[N, 1, 1, T]`."""
    return bias_of(mask)[:, None, None, :]


class Attention(nnx.Module):
    """Multi-head attention with keys and values given apart, so that they may come from a cache."""

    def __init__(self, spec: StackSpec, dtype: jnp.dtype, rngs: nnx.Rngs) -> None:
        inner = spec.heads * spec.head_dim
        # T5 folds the missing 1/sqrt(head_dim) into the initial queries.
        shrink = 1.0 if spec.scale_attention else spec.head_dim**-0.5
        self.query = make_dense(spec, spec.width, inner, dtype, rngs, shrink=shrink)
        self.key = make_dense(spec, spec.width, inner, dtype, rngs)
        self.value = make_dense(spec, spec.width, inner, dtype, rngs)
        self.out = make_dense(spec, inner, spec.width, dtype, rngs)
        self.heads, self.head_dim = spec.heads, spec.head_dim
        self.scale = spec.head_dim**-0.5 if spec.scale_attention else 1.0
        self.rate = spec.attention_dropout

    def keys_values(self, context: jax.Array, batch: int) -> tuple[jax.Array, jax.Array]:
        """Rows `[N*Tk, D] -> keys and values, [H, N, Tk, Dh] each`."""
        return self._split(self.key(context), batch), self._split(self.value(context), batch)

    def __call__(
        self,
        x: jax.Array,
        keys: jax.Array,
        values: jax.Array,
        biases: Sequence[jax.Array],
        dropout_key: jax.Array | None,
    ) -> jax.Array:
        """Rows `x [N*Tq, D]`, keys and values `[H, N, Tk, Dh]` -> `[N*Tq, D]`; softmax in float32.

        `biases` are added to the scores, each `[H or 1, N or 1, Tq or 1, Tk]`.
        """
        queries = self._split(self.queries(x), keys.shape[1])  # [H, N, Tq, Dh]
        mixed = attend(queries, keys, values, biases, self.rate, dropout_key)
        return self.out(mixed.reshape(self.heads, -1, self.head_dim).swapaxes(0, 1).reshape(x.shape[0], -1))

    def queries(self, x: jax.Array) -> jax.Array:
        """Rows `[R, D] -> [R, H*Dh]`, scaled."""
        return self.query(x) * self.scale

    def _split(self, x: jax.Array, batch: int) -> jax.Array:
        # Heads first, over all rows: a TPU's matrix unit writes its product transposed at no cost, and no copy is left
        # (0.54 ms for forward and backward of one attention of BART-large, by the compiler's estimate; with heads
        # within each sentence 0.71).
        heads = x.reshape(-1, self.heads, self.head_dim).swapaxes(0, 1)
        return heads.reshape(self.heads, batch, -1, self.head_dim)


def attend(
    queries: jax.Array,
    keys: jax.Array,
    values: jax.Array,
    biases: Sequence[jax.Array],
    rate: float = 0.0,
    dropout_key: jax.Array | None = None,
) -> jax.Array:
    """Queries `[X, Y, Tq, Dh]`, keys and values `[X, Y, Tk, Dh]` -> `[X, Y, Tq, Dh]`, whichever of heads is X."""
    scores = jnp.einsum("xyqd,xykd->xyqk", queries, keys, preferred_element_type=jnp.float32)
    for bias in biases:
        scores = scores + bias
    weights = dropout(jax.nn.softmax(scores, axis=-1), rate, dropout_key)
    return jnp.einsum("xyqk,xykd->xyqd", weights.astype(values.dtype), values)


class RelativeBias(nnx.Module):
    """T5's learned bias per head and bucket of the distance between key and query."""

    def __init__(self, spec: StackSpec, rngs: nnx.Rngs) -> None:
        init = jax.nn.initializers.normal(spec.width**-0.5)
        self.embedding = nnx.Param(init(rngs.params(), (spec.relative_buckets, spec.heads), jnp.float32))
        self.bidirectional = not spec.decoder
        self.buckets, self.max_distance = spec.relative_buckets, spec.relative_max_distance

    def __call__(self, queries: jax.Array, keys: jax.Array) -> jax.Array:
        """Positions `[Tq]` and `[Tk]` -> bias `[1, H, Tq, Tk]`, float32."""
        distance = keys[None, :] - queries[:, None]
        bucket = relative_bucket(distance, self.bidirectional, self.buckets, self.max_distance)
        return self.embedding[...][bucket].transpose(2, 0, 1)[None]


def relative_bucket(distance: jax.Array, bidirectional: bool, buckets: int, max_distance: int) -> jax.Array:
    """Key position minus query position -> bucket, as in T5 (Raffel et al. 2020, section 2.1).

    Half of the buckets hold one distance each, the others grow logarithmically up to `max_distance`. With both
    directions, the upper half of all buckets is for keys after the query; else those share bucket 0.
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
