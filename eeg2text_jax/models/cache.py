"""The decoder's memory between two steps: a plain pytree, passed in and returned.

Beams never move in it. What the K rows of a sentence wrote at a position stays where it is, and `ancestors` says which
of those K entries belongs to the history of each row; all K rows attend to all entries of their sentence, foreign ones
masked. Changing the beams' order then moves B * K * T integers in place of every key and value (82 MB a step for
BART-base, 8 sentences, 5 beams, 56 positions), and attention is a matrix product with K query rows, not with one.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from eeg2text_jax.models.attention import MASK_VALUE
from eeg2text_jax.models.heads import attend


class LayerCache(NamedTuple):
    """Keys and values of one decoder layer: an array of its own, since a slice of a stack would be copied every step.

    Entry `t * K + k` of a sentence is what its row k wrote at position t. A decoder-only model has no cross-attention:
    the S entries of its prompt stand before these, once per sentence, shared by its beams.
    """

    self_keys: jax.Array  # [B, H, Dh, max_length * K]
    self_values: jax.Array  # [B, H, max_length * K, Dh]
    cross_keys: jax.Array | None  # [B, H, S, Dh]: once per sentence, shared by its beams
    cross_values: jax.Array | None  # [B, H, S, Dh]

    @classmethod
    def empty(cls, heads: int, cross_keys: jax.Array, cross_values: jax.Array, entries: int) -> "LayerCache":
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

    @classmethod
    def after(cls, heads: int, keys: jax.Array, values: jax.Array, entries: int) -> "LayerCache":
        """A prompt's keys and values `[B, S, H*Dh]`, with room for more entries."""
        keys, values = (new.reshape(*new.shape[:2], heads, -1) for new in (keys, values))
        room = (0, entries)
        return cls(
            jnp.pad(keys.transpose(0, 2, 3, 1), ((0, 0), (0, 0), (0, 0), room)),
            jnp.pad(values.transpose(0, 2, 1, 3), ((0, 0), (0, 0), room, (0, 0))),
            None,
            None,
        )

    def remember(self, keys: jax.Array, values: jax.Array, index: jax.Array, prompt: int = 0) -> "LayerCache":
        """Puts the keys and values `[B*K, H*Dh]` of position `index` after a prompt into memory."""
        batch, heads, head_dim, _ = self.self_keys.shape
        keys, values = (new.reshape(batch, -1, heads, head_dim) for new in (keys, values))
        start = prompt + index * keys.shape[1]
        return self._replace(
            self_keys=lax.dynamic_update_slice_in_dim(self.self_keys, keys.transpose(0, 2, 3, 1), start, axis=3),
            self_values=lax.dynamic_update_slice_in_dim(self.self_values, values.transpose(0, 2, 1, 3), start, axis=2),
        )

    def own(self, queries: jax.Array, bias: jax.Array, cap: float = 0.0) -> jax.Array:
        """Queries `[B*K, H*Dh]` -> what they see of their sentence's own positions, `[B*K, H*Dh]`."""
        return self._attend(queries, self.self_keys.swapaxes(2, 3), self.self_values, bias, cap)

    def cross(self, queries: jax.Array, bias: jax.Array) -> jax.Array:
        """The same of the context."""
        return self._attend(queries, self.cross_keys, self.cross_values, bias)

    def _attend(
        self, queries: jax.Array, keys: jax.Array, values: jax.Array, bias: jax.Array, cap: float = 0.0
    ) -> jax.Array:
        batch, heads, _, head_dim = keys.shape
        groups = queries.shape[1] // (heads * head_dim)
        if groups == 1:
            split = queries.reshape(batch, -1, heads, head_dim).swapaxes(1, 2)
            return attend(split, keys, values, (bias,), cap=cap).swapaxes(1, 2).reshape(queries.shape)
        # Queries that share a head of keys are further query positions of it.
        split = queries.reshape(batch, -1, heads, groups, head_dim).transpose(0, 2, 1, 3, 4)
        bias = jnp.repeat(bias, groups, axis=2)
        mixed = attend(split.reshape(batch, heads, -1, head_dim), keys, values, (bias,), cap=cap)
        return mixed.reshape(split.shape).transpose(0, 2, 1, 3, 4).reshape(queries.shape)


class Cache(NamedTuple):
    """The memory of all decoder layers. Reordering beams touches `ancestors` alone."""

    layers: tuple[LayerCache, ...]
    ancestors: jax.Array  # int32 [B, K, max_length]: the row that wrote position t of row k's history
    cross_mask: jax.Array  # [B, S] bool: real positions of the context, or of the prompt
    start: jax.Array | None = None  # [B, D], what a decoder-only model is fed first: the end of its prompt


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
    bias = jnp.where(mine[:, None], position_bias[..., None], MASK_VALUE)  # [B, H or 1, K, T, K]
    return bias.reshape(batch, bias.shape[1], beams, length * beams)
