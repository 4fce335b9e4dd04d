"""The KV cache of the decoder, in which beams are reordered without moving keys and values.

The K beams (rows) of a sentence write K entries at each position, and `ancestors` says which of these is in the history
of each row. All K rows attend to all entries of their sentence, with other histories masked. Reordering then moves
B * K * T integers instead of 82 MB of keys and values per step (BART-base, 8 sentences, 5 beams, 56 positions), and
attention is a matrix product with K query rows.

On a TPU the cache grows during a beam search, see `lengths_of`.
"""

import itertools
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from eeg2text_jax.models.attention import MASK_VALUE
from eeg2text_jax.models.fused_decoding import attend_cached, fits
from eeg2text_jax.models.heads import LANES, Heads, attend, gather, spread


class LayerCache(NamedTuple):
    """Keys and values of one decoder layer; layers are not stacked, since a slice would be copied in every step.

    Row k of a sentence writes entry `t * K + k` at position t. A decoder-only model has no cross-attention; the S
    entries of its prompt come first, once per sentence, shared by its beams.
    """

    self_keys: jax.Array  # [B, H, Dh, max_length * K]
    self_values: jax.Array  # [B, H, max_length * K, Dh]
    cross_keys: jax.Array | None  # [B, H, S, Dh]: once per sentence, shared by its beams
    cross_values: jax.Array | None  # [B, H, S, Dh]

    @classmethod
    def empty(cls, heads: int, cross_keys: jax.Array, cross_values: jax.Array, entries: int) -> "LayerCache":
        """Make a cache of `entries` zeros for self-attention, with cross-attention keys and values `[B, S, H*Dh]`."""
        keys, values = (new.reshape(*new.shape[:2], heads, -1).swapaxes(1, 2) for new in (cross_keys, cross_values))
        batch, _, _, head_dim = keys.shape
        own_keys = jnp.zeros((batch, heads, head_dim, entries), keys.dtype)
        return cls(own_keys, jnp.zeros((batch, heads, entries, head_dim), keys.dtype), keys, values)

    @classmethod
    def after(cls, heads: int, keys: jax.Array, values: jax.Array, entries: int) -> "LayerCache":
        """Make a cache that holds a prompt's keys and values `[B, S, H*Dh]`, with room for `entries` more."""
        keys, values = (new.reshape(*new.shape[:2], heads, -1) for new in (keys, values))
        none, room = (0, 0), (0, entries)
        keys = jnp.pad(keys.transpose(0, 2, 3, 1), (none, none, none, room))
        return cls(keys, jnp.pad(values.transpose(0, 2, 1, 3), (none, none, room, none)), None, None)

    def remember(self, keys: jax.Array, values: jax.Array, index: jax.Array, prompt: int = 0) -> "LayerCache":
        """Return the cache with keys and values `[B*K, H*Dh]` of position `index` stored after `prompt` entries."""
        batch, heads, head_dim, _ = self.self_keys.shape
        dtype = self.self_keys.dtype
        keys, values = (new.astype(dtype).reshape(batch, -1, heads, head_dim) for new in (keys, values))
        start = prompt + index * keys.shape[1]
        return self._replace(
            self_keys=lax.dynamic_update_slice_in_dim(self.self_keys, keys.transpose(0, 2, 3, 1), start, axis=3),
            self_values=lax.dynamic_update_slice_in_dim(self.self_values, values.transpose(0, 2, 1, 3), start, axis=2),
        )

    def own(self, queries: jax.Array, bias: jax.Array, index: jax.Array, cap: float = 0.0) -> jax.Array:
        """Return self-attention `[B*K, H*Dh]` of queries `[B*K, H*Dh]` of position `index` over all entries.

        `bias` masks the entries that are not in a query's history.
        """
        filled = (index + 1) * (len(queries) // len(bias))
        return self._on_each_platform(queries, self.self_keys, self.self_values, bias, filled, cap, keys_last=True)

    def cross(self, queries: jax.Array, bias: jax.Array) -> jax.Array:
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
        queries: jax.Array,
        keys: jax.Array,
        values: jax.Array,
        bias: jax.Array,
        filled: jax.Array,
        cap: float = 0.0,
        *,
        keys_last: bool,
    ) -> jax.Array:
        """Attend with `attend_cached` on GPUs, if this kernel supports the attention, and else with `_attend`.

        Keys are `[B, H, Dh, E]` if `keys_last`, else `[B, H, E, Dh]`; entries from `filled` on are not written yet.
        """

        def apart(queries: jax.Array, keys: jax.Array, values: jax.Array, bias: jax.Array, _: jax.Array) -> jax.Array:
            return self._attend(queries, keys.swapaxes(2, 3) if keys_last else keys, values, bias, cap)

        batch, heads, _, head_dim = values.shape
        beams = len(queries) // batch
        fused = self.cross_keys is not None and values.dtype == jnp.bfloat16 and not cap and fits(head_dim, beams)
        if not fused or queries.shape[1] != heads * head_dim:
            return apart(queries, keys, values, bias, filled)
        cuda = partial(attend_cached, keys_last=keys_last)
        return lax.platform_dependent(queries, keys, values, bias, filled, cuda=cuda, default=apart)

    def _attend(
        self, queries: jax.Array, keys: jax.Array, values: jax.Array, bias: jax.Array, cap: float = 0.0
    ) -> jax.Array:
        batch, heads, _, head_dim = keys.shape
        groups, dtype = queries.shape[1] // (heads * head_dim), queries.dtype
        queries = queries.astype(keys.dtype)
        if groups == 1:
            split = queries.reshape(batch, -1, heads, head_dim).swapaxes(1, 2)
            return attend(split, keys, values, (bias,), cap=cap).swapaxes(1, 2).reshape(queries.shape).astype(dtype)
        # Several query heads may share a key head (grouped heads): they become further query positions of one head.
        split = queries.reshape(batch, -1, heads, groups, head_dim).transpose(0, 2, 1, 3, 4)
        bias = jnp.repeat(bias, groups, axis=2)
        mixed = attend(split.reshape(batch, heads, -1, head_dim), keys, values, (bias,), cap=cap)
        return mixed.reshape(split.shape).transpose(0, 2, 1, 3, 4).reshape(queries.shape).astype(dtype)


class Cache(NamedTuple):
    """The KV cache of all decoder layers; reordering beams changes only `ancestors`."""

    layers: tuple[LayerCache, ...]
    ancestors: jax.Array  # int32 [B, K, max_length]: the row that wrote position t of row k's history
    cross_mask: jax.Array  # [B, S] bool: real positions of the encoder output, or of a decoder-only model's prompt
    start: jax.Array | None = None  # [B, D], first input of a decoder-only model: the last position of its prompt


def own_position(ancestors: jax.Array, index: jax.Array) -> jax.Array:
    """Return `ancestors [B, K, T]` with k at position `index` of each row k: that row wrote the entry itself."""
    own = jnp.broadcast_to(jnp.arange(ancestors.shape[1])[None, :], ancestors.shape[:2])
    return lax.dynamic_update_index_in_dim(ancestors, own, index, axis=2)


def reorder_beams(cache: Cache, parents: jax.Array) -> Cache:
    """Return the cache in which row k of each sentence has the history of row `parents[:, k]`, int32 `[B, K]`."""
    return cache._replace(ancestors=jnp.take_along_axis(cache.ancestors, parents[:, :, None], axis=1))


def history_bias(ancestors: jax.Array, position_bias: jax.Array) -> jax.Array:
    """Return attention biases `[B, H or 1, K, max_length * K]` that mask entries outside of each row's history.

    Entries of the row's history get the bias of their position, `position_bias [1, H or 1, 1, max_length]`.
    """
    batch, beams, length = ancestors.shape
    mine = ancestors[:, :, :, None] == jnp.arange(beams)[None, None, None, :]  # [B, K, T, K]
    bias = jnp.where(mine[:, None], position_bias[..., None], MASK_VALUE)  # [B, H or 1, K, T, K]
    return bias.reshape(batch, bias.shape[1], beams, length * beams)


GROWTHS = 3  # largest number of sizes that a cache has in one search on a TPU; each adds a loop to compile
CPU_GROWTHS = 4  # the same on a CPU; a cache of at most `LANES` entries has one size on both


def lengths_of(beams: int, max_length: int, platform: str | None) -> tuple[int, ...]:
    """Return the successive sizes T, in positions, of the cache `[..., T * K]` of a search with K beams on a platform.

    Every decoder step on a TPU reads all entries and writes them back, in groups of 128. A cache that grows with the
    tokens written has 25, then 51, then 56 positions with 5 beams: a search of BART-large, 32 sentences, takes 123 ms
    instead of 153 by `preflight`'s estimate. On a CPU, too, steps read all entries: with 14, 28, 42 and 56 positions a
    step of BART-base in int8 takes 33 instead of 36 ms (8 sentences), and the search compiles in 8.5 instead of 4 s.
    On a GPU, steps in bfloat16 read only the entries that are written.
    """
    if platform not in ("cpu", "tpu") or max_length * beams <= LANES:
        return (max_length,)
    group, most = (LANES, GROWTHS) if platform == "tpu" else (beams, CPU_GROWTHS)
    groups = -(-max_length * beams // group)
    sizes = min(most, groups)
    ends = (-(-groups * (i + 1) // sizes) * group // beams for i in range(sizes))
    return tuple(sorted({max(1, min(end, max_length)) for end in ends}))


def steps_of(lengths: Sequence[int]) -> list[int]:
    """Return the number of decoder steps that a search takes at each of the cache's sizes `lengths` (`lengths_of`)."""
    return [end - begin for begin, end in itertools.pairwise((1, *lengths))]


def _group_heads(layer: LayerCache) -> LayerCache:
    """Put the heads of cross-attention in groups of 128 columns, `[B, H/G, S, G*Dh]`, see `models.heads`.

    A TPU reads a head of 64 columns as if it had 128. A step takes 1.65 instead of 1.76 ms by `preflight`'s estimate
    with 51 positions in the cache, where memory traffic bounds it (BART-large, 32 sentences); with 25 positions it
    would take 1.52 instead of 1.43.
    """
    if layer.cross_keys is None or layer.cross_keys.shape[3] != layer.self_values.shape[3]:
        return layer
    batch, heads, length, head_dim = layer.cross_keys.shape
    each = Heads(batch, heads, 0.0).side_by_side(head_dim)

    def grouped(x: jax.Array) -> jax.Array:
        apart = x.reshape(batch, heads // each, each, length, head_dim)
        return jnp.concatenate([apart[:, :, g] for g in range(each)], axis=-1)

    return layer._replace(cross_keys=grouped(layer.cross_keys), cross_values=grouped(layer.cross_values))


def resize(cache: Cache, length: int, *, grouped: bool) -> Cache:
    """Return the cache with room for `length` positions: zeros are appended, or the last positions are dropped.

    When it grows, the heads of cross-attention are grouped if `grouped`.
    """
    beams, before = cache.ancestors.shape[1:]
    more = length - before

    def fit(x: jax.Array, axis: int, by: int) -> jax.Array:
        return lax.pad(x, jnp.zeros((), x.dtype), [(0, by if i == axis else 0, 0) for i in range(x.ndim)])

    layers = tuple(
        layer._replace(
            self_keys=fit(layer.self_keys, 3, more * beams), self_values=fit(layer.self_values, 2, more * beams)
        )
        for layer in cache.layers
    )
    if more > 0 and grouped:
        layers = tuple(map(_group_heads, layers))
    return cache._replace(layers=layers, ancestors=fit(cache.ancestors, 2, more))
