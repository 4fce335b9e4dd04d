"""The decoder's memory between two steps: a plain pytree, passed in and returned.

Beams never move in it. What the K rows of a sentence wrote at a position stays where it is, and `ancestors` says which
of those K entries belongs to the history of each row; all K rows attend to all entries of their sentence, foreign ones
masked. Changing the beams' order then moves B * K * T integers in place of every key and value (82 MB a step for
BART-base, 8 sentences, 5 beams, 56 positions), and attention is a matrix product with K query rows, not with one.
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from eeg2text_jax.models.attention import HIDDEN, attend

LANES = 128  # of a TPU's memory and matrix unit


class HeadCache(NamedTuple):
    """Keys and values of one decoder layer by heads: an array of its own, since a slice of a stack would be copied.

    Entry `t * K + k` of a sentence is what its row k wrote at position t.
    """

    self_keys: jax.Array  # [B, H, Dh, max_length * K]
    self_values: jax.Array  # [B, H, max_length * K, Dh]
    cross_keys: jax.Array  # [B, H, S, Dh]: once per sentence, shared by its beams
    cross_values: jax.Array  # [B, H, S, Dh]

    @classmethod
    def empty(cls, heads: int, cross_keys: jax.Array, cross_values: jax.Array, entries: int) -> "HeadCache":
        """Nothing written yet; keys and values of the context `[B, S, H*Dh]`."""
        keys, values = (
            cross.reshape(*cross.shape[:2], heads, -1).swapaxes(1, 2) for cross in (cross_keys, cross_values)
        )
        batch, _, _, head_dim = keys.shape
        return cls(
            jnp.zeros((batch, heads, head_dim, entries), keys.dtype),
            jnp.zeros((batch, heads, entries, head_dim), keys.dtype),
            keys,
            values,
        )

    def bias(self, bias: jax.Array, heads: int) -> jax.Array:
        """`[B, H or 1, K or 1, entries]` as `own` and `cross` want it."""
        return bias

    def remember(self, keys: jax.Array, values: jax.Array, index: jax.Array) -> "HeadCache":
        """Puts the keys and values `[B*K, H*Dh]` of position `index` into memory."""
        batch, heads, head_dim, _ = self.self_keys.shape
        keys, values = (new.reshape(batch, -1, heads, head_dim) for new in (keys, values))
        start = index * keys.shape[1]
        return self._replace(
            self_keys=lax.dynamic_update_slice_in_dim(self.self_keys, keys.transpose(0, 2, 3, 1), start, axis=3),
            self_values=lax.dynamic_update_slice_in_dim(self.self_values, values.transpose(0, 2, 1, 3), start, axis=2),
        )

    def own(self, queries: jax.Array, bias: jax.Array) -> jax.Array:
        """Queries `[B*K, H*Dh]` -> what they see of their sentence's own positions, `[B*K, H*Dh]`."""
        return self._attend(queries, self.self_keys.swapaxes(2, 3), self.self_values, bias)

    def cross(self, queries: jax.Array, bias: jax.Array) -> jax.Array:
        """The same of the context."""
        return self._attend(queries, self.cross_keys, self.cross_values, bias)

    def _attend(self, queries: jax.Array, keys: jax.Array, values: jax.Array, bias: jax.Array) -> jax.Array:
        batch, heads, _, head_dim = keys.shape
        split = queries.reshape(batch, -1, heads, head_dim).swapaxes(1, 2)
        return attend(split, keys, values, (bias,)).swapaxes(1, 2).reshape(queries.shape)


class GroupCache(NamedTuple):
    """The same by groups of heads side by side, 128 columns wide where heads are narrower: for TPUs.

    Their memory has 128 lanes, which a head of 64 fills by half, and their matrix unit multiplies 128 x 128 at a time.
    A query of one head is padded with zeros to its group, which costs that unit nothing. New entries are written as
    they are, not transposed.

    G groups of C heads, H = G * C, are C*Dh wide.
    """

    self_keys: jax.Array  # [B, G, max_length * K, C*Dh]
    self_values: jax.Array  # [B, G, max_length * K, C*Dh]
    cross_keys: jax.Array  # [B, G, S, C*Dh]
    cross_values: jax.Array  # [B, G, S, C*Dh]
    of_head: jax.Array  # [B, C, C*Dh], 1 where a column belongs to a head of its group; the same for every sentence

    @classmethod
    def empty(cls, heads: int, cross_keys: jax.Array, cross_values: jax.Array, entries: int) -> "GroupCache":
        batch, _, inner = cross_keys.shape
        together = math.gcd(heads, max(LANES // (inner // heads), 1))
        groups, wide = heads // together, inner // heads * together
        keys, values = (cross.reshape(batch, -1, groups, wide).swapaxes(1, 2) for cross in (cross_keys, cross_values))
        of_head = jnp.arange(wide)[None, :] // (inner // heads) == jnp.arange(together)[:, None]
        of_head = jnp.broadcast_to(of_head[None], (batch, together, wide)).astype(keys.dtype)
        nothing = jnp.zeros((batch, groups, entries, wide), keys.dtype)
        return cls(nothing, nothing, keys, values, of_head)

    def bias(self, bias: jax.Array, heads: int) -> jax.Array:
        """`[B, H or 1, K or 1, entries]` -> `[B, G or 1, K*C or 1, entries]`."""
        batch, per_head, beams, entries = bias.shape
        if per_head == beams == 1:
            return bias
        together = self.of_head.shape[1]
        if per_head == 1:
            return jnp.repeat(bias, together, axis=2)
        split = jnp.broadcast_to(bias, (batch, heads, beams, entries)).reshape(batch, -1, together, beams, entries)
        return split.swapaxes(2, 3).reshape(batch, -1, beams * together, entries)

    def remember(self, keys: jax.Array, values: jax.Array, index: jax.Array) -> "GroupCache":
        start = index * (keys.shape[0] // self.self_keys.shape[0])
        return self._replace(
            self_keys=lax.dynamic_update_slice_in_dim(self.self_keys, self._grouped(keys), start, axis=2),
            self_values=lax.dynamic_update_slice_in_dim(self.self_values, self._grouped(values), start, axis=2),
        )

    def own(self, queries: jax.Array, bias: jax.Array) -> jax.Array:
        return self._attend(queries, self.self_keys, self.self_values, bias)

    def cross(self, queries: jax.Array, bias: jax.Array) -> jax.Array:
        return self._attend(queries, self.cross_keys, self.cross_values, bias)

    def _grouped(self, rows: jax.Array) -> jax.Array:
        """`[B*K, H*Dh] -> [B, G, K, C*Dh]`."""
        batch, groups, _, wide = self.self_keys.shape
        return rows.reshape(batch, -1, groups, wide).swapaxes(1, 2)

    def _attend(self, queries: jax.Array, keys: jax.Array, values: jax.Array, bias: jax.Array) -> jax.Array:
        batch, groups, _, wide = keys.shape
        of_head = self.of_head[:1, None, None]  # [1, 1, 1, C, C*Dh]
        spread = (self._grouped(queries)[:, :, :, None] * of_head).reshape(batch, groups, -1, wide)
        mixed = attend(spread, keys, values, (bias,)).reshape(batch, groups, -1, *of_head.shape[3:])
        return (mixed * of_head).sum(axis=3).swapaxes(1, 2).reshape(queries.shape)


LayerCache = HeadCache | GroupCache
LAYOUTS: dict[str, type[HeadCache] | type[GroupCache]] = {"heads": HeadCache, "groups": GroupCache}


class Cache(NamedTuple):
    """The memory of all decoder layers. Reordering beams touches `ancestors` alone."""

    layers: tuple[LayerCache, ...]
    ancestors: jax.Array  # int32 [B, K, max_length]: the row that wrote position t of row k's history
    cross_mask: jax.Array  # [B, S] bool


def own_position(ancestors: jax.Array, index: jax.Array) -> jax.Array:
    """Every row's history goes on with what the row itself writes at `index`."""
    own = jnp.broadcast_to(jnp.arange(ancestors.shape[1])[None, :], ancestors.shape[:2])
    return lax.dynamic_update_index_in_dim(ancestors, own, index, axis=2)


def reorder_beams(cache: Cache, parents: jax.Array) -> Cache:
    """Row k of each sentence goes on from the history of row `parents[:, k]`, int32 `[B, K]`."""
    return cache._replace(ancestors=jnp.take_along_axis(cache.ancestors, parents[:, :, None], axis=1))


def history_bias(ancestors: jax.Array, position_bias: jax.Array) -> jax.Array:
    """What each row may see of its sentence's entries: `[B, H or 1, K, max_length * K]`.

    `position_bias [1, H or 1, 1, max_length]` is the bias of the positions alone.
    """
    batch, beams, length = ancestors.shape
    mine = ancestors[:, :, :, None] == jnp.arange(beams)[None, None, None, :]  # [B, K, T, K]
    bias = jnp.where(mine[:, None], position_bias[..., None], HIDDEN)  # [B, H or 1, K, T, K]
    return bias.reshape(batch, bias.shape[1], beams, length * beams)
