"""Multi-head attention, its masks, rotary and T5's relative positions, and the decoder's KV cache.

A mask is an additive float32 bias `[N or 1, H or 1, Tq or 1, Tk]`: 0 for visible positions, the most negative float for
masked ones, whose weight and gradient are then exactly 0. Functions of all positions at once take rows `[N*T, D]`, the
T positions of each of N sentences, and masks with heads first, `[H or 1, N or 1, ...]`.
"""

import itertools
import math
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx
from jax import Array, lax

from eeg2text_jax.base.devices.mesh import data_shards, gathered, weights_are_divided
from eeg2text_jax.models._fused_attention import attend_cached, attend_fused, fits, fits_step
from eeg2text_jax.models._heads import (
    LANES,
    Heads,
    Parts,
    Projections,
    attend,
    attend_apart,
    attend_in_parts,
    gather,
    heads_at_once,
    spread,
)
from eeg2text_jax.models.layers import Norm, make_dense, product, row_major, side_by_side
from eeg2text_jax.models.spec import StackSpec


class Rotation(NamedTuple):
    """Rotary positions (Su et al. 2021), a head's halves paired: cosines and sines `[R, Dh / 2]` of R rows."""

    cos: Array
    sin: Array

    @classmethod
    def of(cls, positions: Array, frequencies: Sequence[float]) -> "Rotation":
        """Return the rotation of rows at `positions [R]` by frequencies `[Dh / 2]`, radians per position."""
        angles = positions.astype(jnp.float32)[:, None] * jnp.asarray(frequencies, jnp.float32)[None]
        return cls(jnp.cos(angles), jnp.sin(angles))

    def __call__(self, x: Array) -> Array:
        """Rotate queries or keys `[R, H, Dh]`, in their dtype."""
        cos, sin = (part.astype(x.dtype)[:, None] for part in self)
        first, second = jnp.split(x, 2, axis=-1)
        return jnp.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)


MASK_VALUE = float(jnp.finfo(jnp.float32).min)


def mask_bias(visible: Array) -> Array:
    return jnp.where(visible, 0.0, MASK_VALUE).astype(jnp.float32)


def padding_bias(mask: Array) -> Array:
    """Return a mask `[N, T]`, True at real positions, as a bias `[N, 1, 1, T]`."""
    return mask_bias(mask)[:, None, None, :]


class Attention(nnx.Module):
    """Multi-head attention; `queries`, `keys` and `value` project single positions for decoding with a cache."""

    def __init__(self, spec: StackSpec, dtype: jnp.dtype, rngs: nnx.Rngs) -> None:
        inner, shared = spec.inner, (spec.kv_heads or spec.heads) * spec.head_dim
        # T5 has the factor 1/sqrt(head_dim) in the initial kernel of queries alone.
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
        # What only `attend_apart`, with heads on an axis of their own, implements.
        self.apart = spec.positions == "rotary" or spec.lora is not None or self.normed or bool(self.cap)
        self.apart |= shared != inner
        self.fusible = not (self.apart or spec.positions == "relative")  # the fused kernels give biases no gradient

    def __call__(
        self,
        x: Array,
        context: Array,
        batch: int,
        biases: Sequence[Array],
        dropout_key: Array | None,
        rotation: Rotation | None = None,
    ) -> Array:
        """Return attention `[N*Tq, D]` of rows `x [N*Tq, D]` over rows `context [N*Tk, D]` of N = `batch` sentences.

        The result is marked for storage, see `product`, and in small batches so are queries, keys and values, but for
        self-attention with a feature of `apart`. Those of self-attention save 1.7 of 68.4 ms of a step of BART-large,
        batch 32, by the TPU compiler's estimate.
        """
        unfused = partial(self._unfused, batch, x is context, rotation)
        arrays = x, context, tuple(biases), dropout_key
        lengths = x.shape[0] // batch, context.shape[0] // batch
        if not (self.fusible and x.dtype == jnp.bfloat16 and fits(batch, self.head_dim, *lengths)):
            return unfused(*arrays)
        return jax.lax.platform_dependent(*arrays, cuda=partial(self._fused, batch, x is context), default=unfused)

    def _fused(self, batch: int, of_itself: bool, *arrays: Any) -> Array:
        x, context, biases, key = arrays
        if self.query.quantized or weights_are_divided():
            projected = self._rows(x, context)
        elif of_itself:
            projected = (side_by_side(x, (self.query, self.key, self.value)),)
        else:
            projected = self.query.plain(x), side_by_side(context, (self.key, self.value))
        mixed = attend_fused(Heads(batch, self.heads, self.rate), projected, biases, key, scale=self.scale)
        return self.out(mixed, key, 5)

    def _unfused(self, batch: int, of_itself: bool, rotation: Rotation | None, *arrays: Any) -> Array:
        shape, lengths = Heads(batch, self.heads, self.rate), [len(rows) // batch for rows in arrays[:2]]
        at_once = heads_at_once(self.heads, -(-batch // data_shards()), *lengths)
        whole = self.apart or self.query.quantized or at_once == self.heads
        apart = partial(self._apart, shape, rotation, whole and not (self.apart and of_itself))
        if whole:
            return apart(*arrays)
        in_parts = partial(self._in_parts, Parts(shape, self.head_dim, at_once, self.scale))
        return jax.lax.platform_dependent(*arrays, tpu=in_parts, default=apart)

    def _apart(
        self,
        shape: Heads,
        rotation: Rotation | None,
        stored: bool,
        x: Array,
        context: Array,
        biases: Sequence[Array],
        key: Array | None,
    ) -> Array:
        """Attend with heads on an axis; `stored` marks queries, keys and values for storage."""
        queries, keys, values = self._rows(x, context, rotation, key)
        queries = queries * self.scale
        if stored:
            queries, keys, values = product(queries), product(keys), product(values)
        mixed = attend_apart(shape, queries, keys, values, biases, key, self.cap)
        # Without the barrier, a TPU casts the output's kernel in a pass of its own in the backward pass.
        return self.out(jax.lax.optimization_barrier(mixed), key, 5)

    def _in_parts(self, parts: Parts, x: Array, context: Array, biases: Sequence[Array], key: Array | None) -> Array:
        denses = (self.query, self.key, self.value, self.out)
        projections = Projections(
            tuple(dense.kernel[...].astype(x.dtype) for dense in denses),
            tuple(None if dense.bias is None else dense.bias[...].astype(x.dtype) for dense in denses),
        )
        return product(row_major(attend_in_parts(parts, x, context, projections, tuple(biases), key)))

    def _rows(
        self, x: Array, context: Array, rotation: Rotation | None = None, key: Array | None = None
    ) -> tuple[Array, Array, Array]:
        """Return queries (not scaled), keys and values `[N*T, H*Dh]`; the latter may have fewer heads."""
        whole = gathered(context)
        queries = self._rotate("query", self.query.plain(x, key, 2, whole if x is context else None), rotation)
        keys = self._rotate("key", self.key.plain(context, key, 3, whole), rotation)
        return queries, keys, self.value.plain(context, key, 4, whole)

    def _rotate(self, part: str, x: Array, rotation: Rotation | None) -> Array:
        """Apply per-head norm and rotary positions, if any, to queries or keys `[R, H*Dh]`."""
        if not self.normed and rotation is None:
            return x
        heads = x.reshape(len(x), -1, self.head_dim)
        if self.normed:
            heads = (self.query_norm if part == "query" else self.key_norm)(heads)
        return (heads if rotation is None else rotation(heads)).reshape(x.shape)

    def queries(self, x: Array, rotation: Rotation | None = None) -> Array:
        """Project rows `[R, D]` to scaled queries `[R, H*Dh]`."""
        return self._rotate("query", self.query(x), rotation) * self.scale

    def keys(self, x: Array, rotation: Rotation | None = None) -> Array:
        return self._rotate("key", self.key(x), rotation)


class RelativeBias(nnx.Module):
    """T5's learned attention bias, one per head and bucket of relative positions."""

    def __init__(self, spec: StackSpec, rngs: nnx.Rngs) -> None:
        init = jax.nn.initializers.normal(spec.width**-0.5)
        self.embedding = nnx.Param(init(rngs.params(), (spec.relative_buckets, spec.heads), jnp.float32))
        self.bidirectional = not spec.decoder
        self.buckets, self.max_distance = spec.relative_buckets, spec.relative_max_distance

    def __call__(self, queries: Array, keys: Array) -> Array:
        """Return the bias `[1, H, Tq, Tk]`, float32, for positions of queries `[Tq]` and keys `[Tk]`."""
        distance = keys[None, :] - queries[:, None]
        bucket = relative_bucket(distance, self.bidirectional, self.buckets, self.max_distance)
        return self.embedding[...][bucket].transpose(2, 0, 1)[None]


def relative_bucket(distance: Array, bidirectional: bool, buckets: int, max_distance: int) -> Array:
    """Return T5's bucket for each `distance`, key minus query position (Raffel et al. 2020, section 2.1).

    Half of the buckets hold one distance each; others grow logarithmically up to `max_distance`. Keys after the query
    have the upper half of the buckets if bidirectional, else share bucket 0.
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


# The KV cache of the decoder. The K beams (rows) of a sentence write K entries at each position, and `ancestors` says
# which of these is in the history of each row. All rows attend to all entries of their sentence, with other histories
# masked. So reordering beams moves B * K * T integers instead of 82 MB of keys and values per step (BART-base, 8
# sentences, 5 beams, 56 positions), and attention is a matrix product with K query rows. The cache may grow during a
# search, see `lengths_of`.


class LayerCache(NamedTuple):
    """Keys and values of one decoder layer; layers are not stacked, as each step would copy a slice.

    Row k of a sentence writes entry `t * K + k` at position t. A decoder-only model has no cross-attention; the S
    entries of its prompt come first, shared by a sentence's beams. On a TPU, beams may share the entry of position 0,
    too: entries then begin with `t * K + k = K - 1`.
    """

    self_keys: Array  # [B, H, Dh, max_length * K]
    self_values: Array  # [B, H, max_length * K, Dh]
    cross_keys: Array | None  # [B, H, S, Dh]: once per sentence, shared by its beams
    cross_values: Array | None  # [B, H, S, Dh]

    @classmethod
    def empty(cls, heads: int, cross_keys: Array, cross_values: Array, entries: int) -> "LayerCache":
        """Make a cache of `entries` zeros, with cross-attention keys and values `[B, S, H*Dh]`."""
        keys, values = (new.reshape(*new.shape[:2], heads, -1).swapaxes(1, 2) for new in (cross_keys, cross_values))
        batch, _, _, head_dim = keys.shape
        own_keys = jnp.zeros((batch, heads, head_dim, entries), keys.dtype)
        return cls(own_keys, jnp.zeros((batch, heads, entries, head_dim), keys.dtype), keys, values)

    @classmethod
    def after(cls, heads: int, keys: Array, values: Array, entries: int) -> "LayerCache":
        """Make a cache of a prompt's keys and values `[B, S, H*Dh]`, with room for `entries` more."""
        keys, values = (new.reshape(*new.shape[:2], heads, -1) for new in (keys, values))
        none, room = (0, 0), (0, entries)
        keys = jnp.pad(keys.transpose(0, 2, 3, 1), (none, none, none, room))
        return cls(keys, jnp.pad(values.transpose(0, 2, 1, 3), (none, none, room, none)), None, None)

    def remember(self, keys: Array, values: Array, index: Array, prompt: int = 0) -> "LayerCache":
        """Return the cache with keys and values `[B*K, H*Dh]` of position `index`, from entry `prompt + index * K`."""
        batch, heads, head_dim, _ = self.self_keys.shape
        dtype = self.self_keys.dtype
        keys, values = (new.astype(dtype).reshape(batch, -1, heads, head_dim) for new in (keys, values))
        start = prompt + index * keys.shape[1]
        return self._replace(
            self_keys=lax.dynamic_update_slice_in_dim(self.self_keys, keys.transpose(0, 2, 3, 1), start, axis=3),
            self_values=lax.dynamic_update_slice_in_dim(self.self_values, values.transpose(0, 2, 1, 3), start, axis=2),
        )

    def own(self, queries: Array, bias: Array, index: Array, cap: float = 0.0) -> Array:
        """Return self-attention `[B*K, H*Dh]` of queries `[B*K, H*Dh]` of position `index`; `bias` masks entries."""
        filled = (index + 1) * (len(queries) // len(bias))
        return self._on_each_platform(queries, self.self_keys, self.self_values, bias, filled, cap, keys_last=True)

    def cross(self, queries: Array, bias: Array) -> Array:
        """Return cross-attention `[B*K, H*Dh]` of queries `[B*K, H*Dh]` over the encoder's positions."""
        batch, groups, _, width = self.cross_values.shape
        each = width // self.self_values.shape[3]
        if each > 1:  # see `_group_heads`
            split = queries.astype(self.cross_keys.dtype).reshape(batch, -1, groups, width).swapaxes(1, 2)
            mixed = gather(attend(spread(split, each), self.cross_keys, self.cross_values, (bias,)), each)
            return mixed.swapaxes(1, 2).reshape(queries.shape).astype(queries.dtype)
        filled = jnp.int32(self.cross_values.shape[2])
        return self._on_each_platform(queries, self.cross_keys, self.cross_values, bias, filled, keys_last=False)

    def _on_each_platform(
        self,
        queries: Array,
        keys: Array,
        values: Array,
        bias: Array,
        filled: Array,
        cap: float = 0.0,
        *,
        keys_last: bool,
    ) -> Array:
        """Attend with `attend_cached`, whose arguments these are, on GPUs if it can, else with `_attend`."""

        def apart(queries: Array, keys: Array, values: Array, bias: Array, _: Array) -> Array:
            return self._attend(queries, keys.swapaxes(2, 3) if keys_last else keys, values, bias, cap)

        batch, heads, _, head_dim = values.shape
        beams = len(queries) // batch
        fused = self.cross_keys is not None and values.dtype == jnp.bfloat16 and not cap and fits_step(head_dim, beams)
        if not fused or queries.shape[1] != heads * head_dim:
            return apart(queries, keys, values, bias, filled)
        cuda = partial(attend_cached, keys_last=keys_last)
        return lax.platform_dependent(queries, keys, values, bias, filled, cuda=cuda, default=apart)

    def _attend(self, queries: Array, keys: Array, values: Array, bias: Array, cap: float = 0.0) -> Array:
        batch, heads, _, head_dim = keys.shape
        groups, dtype = queries.shape[1] // (heads * head_dim), queries.dtype
        queries = queries.astype(keys.dtype)
        if groups == 1:
            split = queries.reshape(batch, -1, heads, head_dim).swapaxes(1, 2)
            return attend(split, keys, values, (bias,), cap=cap).swapaxes(1, 2).reshape(queries.shape).astype(dtype)
        # Query heads that share a key head (grouped heads) become further query positions of one head.
        split = queries.reshape(batch, -1, heads, groups, head_dim).transpose(0, 2, 1, 3, 4)
        bias = jnp.repeat(bias, groups, axis=2)
        mixed = attend(split.reshape(batch, heads, -1, head_dim), keys, values, (bias,), cap=cap)
        return mixed.reshape(split.shape).transpose(0, 2, 1, 3, 4).reshape(queries.shape).astype(dtype)


class Cache(NamedTuple):
    """The KV cache of all decoder layers; reordering beams changes only `ancestors`."""

    layers: tuple[LayerCache, ...]
    ancestors: Array  # int32 [B, K, max_length]: the row that wrote position t of row k's history
    cross_mask: Array  # [B, S] bool: real positions of the encoder output, or of a decoder-only model's prompt
    start: Array | None = None  # [B, D], first input of a decoder-only model: the last position of its prompt

    @property
    def before(self) -> int:
        """The entry of position t and row k is number `before + t * K + k`.

        It is the length of a decoder-only model's prompt. If all beams share one entry of position 0, it is 1 - K, and
        `ancestors` names row K - 1 there.
        """
        _, beams, length = self.ancestors.shape
        return self.layers[0].self_keys.shape[3] - length * beams


def own_position(ancestors: Array, index: Array) -> Array:
    """Return `ancestors [B, K, T]` with k at position `index` of each row k, which wrote the entry itself."""
    beam = jnp.broadcast_to(jnp.arange(ancestors.shape[1])[None, :], ancestors.shape[:2])
    return lax.dynamic_update_index_in_dim(ancestors, beam, index, axis=2)


def reorder_beams(cache: Cache, parents: Array) -> Cache:
    """Return the cache in which row k of each sentence has the history of row `parents[:, k]`, int32 `[B, K]`."""
    return cache._replace(ancestors=jnp.take_along_axis(cache.ancestors, parents[:, :, None], axis=1))


def history_bias(ancestors: Array, position_bias: Array, missing: int = 0) -> Array:
    """Return attention biases `[B, H or 1, K, E]` that mask entries outside of each row's history.

    Entries of the history get their position's bias, `position_bias [1, H or 1, 1, max_length]`. The first `missing` of
    `max_length * K` entries are not in the cache, see `Cache.before`.
    """
    batch, beams, length = ancestors.shape
    in_history = ancestors[:, :, :, None] == jnp.arange(beams)[None, None, None, :]  # [B, K, T, K]
    bias = jnp.where(in_history[:, None], position_bias[..., None], MASK_VALUE)  # [B, H or 1, K, T, K]
    return bias.reshape(batch, bias.shape[1], beams, length * beams)[..., missing:]


# Most sizes of a cache of over `LANES` entries in a search on a TPU and on a CPU; each adds a loop to compile.
GROWTHS, CPU_GROWTHS = 3, 4


def lengths_of(beams: int, max_length: int, platform: str | None) -> tuple[int, ...]:
    """Return the successive sizes T, in positions, of the cache `[..., T * K]` of a search with K beams.

    A step on a TPU reads and writes all entries, in groups of 128: with 26, 52, then 56 positions and 5 beams, a search
    of BART-large, 32 sentences, takes 123 ms instead of 153 by `preflight`'s estimate. On a CPU steps read all entries:
    with 14, 28, 42 and 56 positions a step of BART-base in int8 takes 33 instead of 36 ms (8 sentences), and the search
    compiles in 8.5 instead of 4 s. On a GPU, steps in bfloat16 read only what is written.
    """
    if platform not in ("cpu", "tpu") or max_length * beams <= LANES:
        return (max_length,)
    # `shared`: entries of position 0, which all beams share on a TPU
    group, most, shared = (LANES, GROWTHS, 1) if platform == "tpu" else (beams, CPU_GROWTHS, beams)
    groups = -(-(shared + (max_length - 1) * beams) // group)
    sizes = min(most, groups)
    ends = (1 + (-(-groups * (i + 1) // sizes) * group - shared) // beams for i in range(sizes))
    return tuple(sorted({min(end, max_length) for end in ends}))


def steps_of(lengths: Sequence[int], platform: str | None) -> list[int]:
    """Return the number of turns of a search's loops, for each of `lengths_of`; a TPU takes a step before the loops."""
    steps = [end - begin for begin, end in itertools.pairwise((1, *lengths))]
    return [*steps[:-1], steps[-1] - 1] if platform == "tpu" else steps


def _group_heads(layer: LayerCache) -> LayerCache:
    """Put the heads of cross-attention in groups of 128 columns, `[B, H/G, S, G*Dh]`, see `models._heads`.

    A TPU reads a head of 64 columns as if it had 128. A step takes 1.65 instead of 1.76 ms by `preflight`'s estimate
    with 51 positions in the cache (BART-large, 32 sentences); with 25 it would take 1.52 instead of 1.43. In bfloat16,
    a product with a unit matrix, which is exact, groups an array in 19 instead of 54 us.
    """
    if layer.cross_keys is None or layer.cross_keys.shape[3] != layer.self_values.shape[3]:
        return layer
    batch, heads, length, head_dim = layer.cross_keys.shape
    each = Heads(batch, heads, 0.0).side_by_side(head_dim)

    def grouped(x: Array) -> Array:
        apart = x.reshape(batch, heads // each, each, length, head_dim)
        if x.dtype == jnp.bfloat16:
            unit = jnp.eye(each * head_dim, dtype=x.dtype).reshape(each, head_dim, -1)
            return jnp.einsum("bxgsd,gdc->bxsc", apart, unit)
        return jnp.concatenate([apart[:, :, g] for g in range(each)], axis=-1)

    return layer._replace(cross_keys=grouped(layer.cross_keys), cross_values=grouped(layer.cross_values))


def resize(cache: Cache, beams: int, length: int, *, on_tpu: bool) -> Cache:
    """Return the cache with room for `length` positions of `beams` rows: zeros are appended, or the last are dropped.

    New rows share the first entry of a cache of one position. On a TPU, the heads of cross-attention are grouped when a
    cache of several positions grows.
    """
    rows, before = cache.ancestors.shape[1:]
    later, ancestors = on_tpu and 1 < before < length, _resized(cache.ancestors[:, :beams], 2, length - before)
    more = length * beams - before * rows
    if widened := beams > rows:
        more = (length - 1) * beams
        ancestors = jnp.full((len(ancestors), beams, length), beams - 1, jnp.int32)
    fit = partial(_resized, more=more, by_product=on_tpu and more > 0)

    def layer_of(layer: LayerCache) -> LayerCache:
        layer = _group_heads(layer) if later else layer
        keys, values = layer.self_keys, layer.self_values
        if widened:
            keys, values = keys[..., :1], values[..., :1, :]
        return layer._replace(self_keys=fit(keys, 3), self_values=fit(values, 2))

    return cache._replace(layers=tuple(map(layer_of, cache.layers)), ancestors=ancestors)


def _resized(x: Array, axis: int, more: int, by_product: bool = False) -> Array:
    """Append `more` zeros to an axis, or drop its last entries if `more` is negative.

    In bfloat16, zeros may be appended `by_product` with a unit matrix, which is exact: 79 us for 125 to 255 columns
    instead of 157 by the TPU compiler's estimate (BART-large, 32 sentences).
    """
    if not by_product or x.dtype != jnp.bfloat16:
        return lax.pad(x, jnp.zeros((), x.dtype), [(0, more if i == axis else 0, 0) for i in range(x.ndim)])
    unit = jnp.eye(x.shape[axis], x.shape[axis] + more, dtype=x.dtype)
    columns = x.swapaxes(axis, -1)
    return jnp.matmul(columns.reshape(-1, len(unit)), unit).reshape(*columns.shape[:-1], -1).swapaxes(axis, -1)
