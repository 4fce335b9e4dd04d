"""The decoder's memory between two steps: a plain pytree, passed in and returned."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from eeg2text_jax.models.spec import StackSpec


class Cache(NamedTuple):
    """Keys and values of all decoder layers. Reordering beams touches `self_keys` and `self_values` alone."""

    self_keys: jax.Array  # [L, B*K, H, max_length, Dh]
    self_values: jax.Array  # [L, B*K, H, max_length, Dh]
    cross_keys: jax.Array  # [L, B, H, S, Dh]: once per sentence, shared by its beams
    cross_values: jax.Array  # [L, B, H, S, Dh]
    cross_mask: jax.Array  # [B, S] bool


def empty_self_cache(spec: StackSpec, rows: int, max_length: int, dtype: jnp.dtype) -> jax.Array:
    """Room for the keys (or values) of `rows` sequences in every layer."""
    return jnp.zeros((spec.layers, rows, spec.heads, max_length, spec.head_dim), dtype)


def write(buffer: jax.Array, new: jax.Array, layer: jax.Array, index: jax.Array) -> jax.Array:
    """Put `new [N, H, 1, Dh]` at position `index` of layer `layer`."""
    zero = jnp.zeros((), index.dtype)
    return lax.dynamic_update_slice(buffer, new[None], (layer.astype(index.dtype), zero, zero, index, zero))


def read(buffer: jax.Array, layer: jax.Array) -> jax.Array:
    """Keys (or values) of one layer: `[N, H, max_length, Dh]`."""
    return lax.dynamic_index_in_dim(buffer, layer, axis=0, keepdims=False)
