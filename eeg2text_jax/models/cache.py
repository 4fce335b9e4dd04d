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

from eeg2text_jax.models.attention import HIDDEN
from eeg2text_jax.models.spec import StackSpec


class Cache(NamedTuple):
    """Keys and values of all decoder layers. Reordering beams touches `ancestors` alone.

    Entry `t * K + k` of a sentence is what its row k wrote at position t.
    """

    self_keys: jax.Array  # [L, B, H, Dh, max_length * K]
    self_values: jax.Array  # [L, B, H, max_length * K, Dh]
    ancestors: jax.Array  # int32 [B, K, max_length]: the row that wrote position t of row k's history
    cross_keys: jax.Array  # [L, B, H, S, Dh]: once per sentence, shared by its beams
    cross_values: jax.Array  # [L, B, H, S, Dh]
    cross_mask: jax.Array  # [B, S] bool


def empty_cache(
    spec: StackSpec, cross_keys: jax.Array, cross_values: jax.Array, mask: jax.Array, beams: int, max_length: int
) -> Cache:
    """Nothing written yet, for `B * beams` rows over a context of known keys and values."""
    shape = (spec.layers, mask.shape[0], spec.heads)
    entries, dtype = max_length * beams, cross_keys.dtype
    return Cache(
        self_keys=jnp.zeros((*shape, spec.head_dim, entries), dtype),
        self_values=jnp.zeros((*shape, entries, spec.head_dim), dtype),
        ancestors=jnp.zeros((mask.shape[0], beams, max_length), jnp.int32),
        cross_keys=cross_keys,
        cross_values=cross_values,
        cross_mask=mask,
    )


def write_keys(buffer: jax.Array, new: jax.Array, layer: jax.Array, index: jax.Array) -> jax.Array:
    """Put `new [B*K, H, 1, Dh]` at position `index` of layer `layer`."""
    return _write(buffer, _by_sentence(new, buffer).transpose(0, 2, 3, 1), layer, index, axis=4)


def write_values(buffer: jax.Array, new: jax.Array, layer: jax.Array, index: jax.Array) -> jax.Array:
    """Put `new [B*K, H, 1, Dh]` at position `index` of layer `layer`."""
    return _write(buffer, _by_sentence(new, buffer).transpose(0, 2, 1, 3), layer, index, axis=3)


def _by_sentence(new: jax.Array, buffer: jax.Array) -> jax.Array:
    rows, heads, _, head_dim = new.shape
    return new.reshape(buffer.shape[1], rows // buffer.shape[1], heads, head_dim)


def _write(buffer: jax.Array, new: jax.Array, layer: jax.Array, index: jax.Array, axis: int) -> jax.Array:
    starts = [jnp.zeros((), index.dtype)] * buffer.ndim
    starts[0], starts[axis] = layer.astype(index.dtype), index * new.shape[axis - 1]
    return lax.dynamic_update_slice(buffer, new[None], starts)


def read_keys(buffer: jax.Array, layer: jax.Array) -> jax.Array:
    """Keys of one layer: `[B, H, max_length * K, Dh]`."""
    return lax.dynamic_index_in_dim(buffer, layer, axis=0, keepdims=False).swapaxes(2, 3)


def read_values(buffer: jax.Array, layer: jax.Array) -> jax.Array:
    """Values of one layer: `[B, H, max_length * K, Dh]`."""
    return lax.dynamic_index_in_dim(buffer, layer, axis=0, keepdims=False)


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
