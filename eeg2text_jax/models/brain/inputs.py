"""What every brain encoder does to recordings first."""

import jax
import jax.numpy as jnp


def at_padding(mask: jax.Array, ndim: int) -> jax.Array:
    """Mask `[B, W]` as `[B, W, 1, ...]` of `ndim` axes."""
    return mask.reshape(*mask.shape, *(1,) * (ndim - mask.ndim))


def as_words(features: jax.Array, mask: jax.Array, dtype: jnp.dtype) -> jax.Array:
    """Word features `[B, W, F]`, or volumes `[B, W, X, Y, Z]` voxel after voxel, as `[B, W, F]` with 0 at padding."""
    # Whatever stands at padded positions, infinities included, must not reach a sum.
    x = jnp.where(at_padding(mask, features.ndim), features, 0.0).astype(dtype)
    return x if x.ndim == 3 else x.reshape(*x.shape[:2], -1)
