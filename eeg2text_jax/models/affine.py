"""Scale and shift of rows `[R, D]`, with their gradients; which batches are large, and the layout of their rows."""

import functools

import jax
import jax.numpy as jnp
from jax.experimental.layout import Layout, with_layout_constraint

from eeg2text_jax.parallel.mesh import data_shards

# Least number of rows on a device (positions of all its sentences) from which a batch is called large.
MANY_ROWS = 4096


def row_major(x: jax.Array) -> jax.Array:
    """Return the same rows `[R, D]`; on a TPU, large batches get the row-major layout, which XLA would not choose."""
    if x.shape[0] // data_shards() < MANY_ROWS:
        return x
    layout = Layout(major_to_minor=tuple(range(x.ndim)))
    return jax.lax.platform_dependent(x, tpu=lambda x: with_layout_constraint(x, layout), default=lambda x: x)


def column_sums(x: jax.Array, stored: bool = False) -> jax.Array:
    """Return the sums of `[..., D]` over all but the last axis, float32 `[D]`: the gradient of a bias.

    On GPUs, and on TPUs for small batches or rows that are `stored` before they are summed, the sum is a matrix product
    with ones, accumulated in float32. By the TPU compiler's estimate for BART-large on a v5e, with batch 32 a product
    takes 3 us and a reduction 17 us; with batch 128, 12 us and 107 us. But with batch 128, XLA fuses a reduction with
    the computation of rows that are not stored: a step that has only products takes 218 ms instead of 212. Measured on
    an H100, without merged products (see `compile_step`): batch 32 takes 30.0 ms instead of 35.3 with reductions, and
    batch 128 75.2 instead of 75.6.
    """

    def product_with_ones(rows: jax.Array) -> jax.Array:
        ones = jnp.ones((8, len(rows)), rows.dtype)  # XLA would turn a product with one row into a reduction
        exact = jax.lax.Precision.HIGHEST if rows.dtype == jnp.float32 else None
        return jnp.matmul(ones, rows, precision=exact, preferred_element_type=jnp.float32)[0]

    def reduction(rows: jax.Array) -> jax.Array:
        return rows.sum(0, dtype=jnp.float32)

    rows = x.reshape(-1, x.shape[-1])
    of_tpu = reduction if len(rows) // data_shards() >= MANY_ROWS and not stored else product_with_ones
    return jax.lax.platform_dependent(rows, tpu=of_tpu, cuda=product_with_ones, default=reduction)


@functools.partial(jax.custom_vjp, nondiff_argnums=(3,))
def affine(x: jax.Array, scale: jax.Array | None, shift: jax.Array | None, dtype: jnp.dtype) -> jax.Array:
    """Return `x [..., D] * scale + shift` in `dtype`; scale and shift are `[D]` in the dtype of `x`, or None.

    Without a scale, the dtype of `x` must be `dtype`. The gradients of scale and shift are `column_sums` of products in
    `dtype`.
    """
    ones = (1,) * (x.ndim - 1)
    y = x if scale is None else x * scale.reshape(*ones, -1)
    return (y if shift is None else y + shift.reshape(*ones, -1)).astype(dtype)


def _affine_forward(x, scale, shift, dtype):
    return affine(x, scale, shift, dtype), (None if scale is None else x, scale, shift)


def _affine_backward(dtype, known, gradient):
    x, scale, shift = known
    to_shift = None if shift is None else column_sums(gradient).astype(shift.dtype)
    if scale is None:
        return gradient, None, to_shift
    wide = gradient.astype(x.dtype)
    to_scale = column_sums((wide * x).astype(dtype)).astype(scale.dtype)
    return wide * scale.reshape(*(1,) * (x.ndim - 1), -1), to_scale, to_shift


affine.defvjp(_affine_forward, _affine_backward)
