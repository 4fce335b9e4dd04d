"""Workarounds for XLA's CPU backend, and one for GPUs, with their measured gains."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

BLOCK, WIDE = 128, 4096  # scores in a block; rows with fewer than WIDE scores use JAX's own functions


def top_k(scores: jax.Array, count: int) -> tuple[jax.Array, jax.Array]:
    """Return `lax.top_k(scores, count)` of `scores [N, V]`: values and indices `[N, count]`; faster on CPUs and GPUs.

    The largest scores are in the `count` blocks with the largest maxima. With 50,265 scores a row, 40 rows take 1.7
    instead of 5.4 ms and 160 rows 5.4 instead of 12.8 ms on a CPU; on an H200, `lax.top_k` takes 0.28 ms for 160 rows.
    The barrier is for CPUs: fused with what makes the scores, `lax.top_k` is five times slower.
    """
    scores = jax.lax.optimization_barrier(scores)

    def whole(scores: jax.Array) -> tuple[jax.Array, jax.Array]:
        return tuple(jax.lax.top_k(scores, count))

    if scores.shape[1] < max(WIDE, count * BLOCK):
        return whole(scores)
    by_blocks = partial(_top_k_by_blocks, count=count)
    return jax.lax.platform_dependent(scores, cpu=by_blocks, cuda=by_blocks, default=whole)


def _top_k_by_blocks(scores: jax.Array, count: int) -> tuple[jax.Array, jax.Array]:
    rows, vocabulary = scores.shape
    n_blocks = vocabulary // BLOCK
    rest = jnp.arange(n_blocks * BLOCK, vocabulary, dtype=jnp.int32)  # fill no block: always candidates
    maxima = scores[:, : n_blocks * BLOCK].reshape(rows, n_blocks, BLOCK).max(axis=2)
    # Sorted, as `lax.top_k` takes the first of equal scores.
    blocks = jnp.sort(jax.lax.top_k(maxima, count)[1], axis=1)
    places = (blocks[:, :, None] * BLOCK + jnp.arange(BLOCK)[None, None, :]).reshape(rows, -1)
    places = jnp.concatenate([places, jnp.broadcast_to(rest[None, :], (rows, rest.size))], axis=1)
    best, indices = jax.lax.top_k(jnp.take_along_axis(scores, places, axis=1), count)
    return best, jnp.take_along_axis(places, indices, axis=1)


def log_softmax(logits: jax.Array, largest: jax.Array) -> jax.Array:
    """Return `jax.nn.log_softmax(logits)` of float32 `[N, V]`, given the maximum of each row, `largest [N, 1]`.

    For large V, CPUs and TPUs use a matrix product: on a CPU, 10 instead of 16 ms for 160 rows of 50,265 logits in a
    decoder step of 119 ms (BART-base in int8), on a TPU 15 instead of 100 us in a step of 1.46 ms (BART-large, by the
    compiler's estimate). There, `HIGH` splits an exponential into two bfloat16 (error 2^-17).
    """

    def plain(logits: jax.Array, _: jax.Array) -> jax.Array:
        return jax.nn.log_softmax(logits, axis=-1)

    if logits.shape[1] < WIDE:
        return plain(logits, largest)
    # XLA for TPUs turns a product with one column into a sum.
    tpu = partial(_log_softmax_by_product, columns=8, precision=jax.lax.Precision.HIGH)
    return jax.lax.platform_dependent(logits, largest, cpu=_log_softmax_by_product, tpu=tpu, default=plain)


def _log_softmax_by_product(
    logits: jax.Array, largest: jax.Array, columns: int = 1, precision: jax.lax.Precision | None = None
) -> jax.Array:
    ones = jnp.ones((logits.shape[1], columns), logits.dtype)
    return logits - (largest + jnp.log(jnp.matmul(jnp.exp(logits - largest), ones, precision=precision)[:, :1]))


def fenced(head: Callable[[jax.Array], jax.Array], x: jax.Array, true: jax.Array) -> jax.Array:
    """Return `head(x)`; on a CPU, inside a branch that is always taken, as `true` is True at run time.

    Otherwise XLA:CPU fuses the product with the softmax and takes three times as long (BART-base, 160 rows: 378 instead
    of 126 ms); it removes an `optimization_barrier` before.
    """

    def branch(x):
        nothing = jax.eval_shape(head, x)
        return jax.lax.cond(true, head, lambda _: jnp.zeros(nothing.shape, nothing.dtype), x)

    return jax.lax.platform_dependent(x, cpu=branch, default=head)


def summed_by_blocks(
    function: Callable[[Any, jax.Array, Any], jax.Array], shared: Any, x: jax.Array, fixed: Any, blocks: int
) -> jax.Array:
    """Return `function(shared, x, fixed)`, a scalar sum over axis 1 of `x` and `fixed`, computed in blocks of axis 1.

    It is differentiable in `shared` and `x`. A block's gradient comes with its value, so intermediates such as logits
    exist for one block at a time. On a CPU new buffers cost page faults: a training step of BART-base with 32 texts of
    40 tokens takes 8.4 s in blocks and 9.2 s without.
    """

    def cut(rows: jax.Array) -> jax.Array:
        return jnp.moveaxis(rows.reshape(len(rows), blocks, -1, *rows.shape[2:]), 1, 0)

    @jax.custom_vjp
    def run(shared: Any, x: jax.Array, fixed: Any) -> jax.Array:
        return jax.lax.map(lambda part: function(shared, *part), jax.tree.map(cut, (x, fixed))).sum()

    def forward(shared: Any, x: jax.Array, fixed: Any) -> tuple[jax.Array, Any]:
        def add(sums: Any, part: Any) -> tuple[Any, jax.Array]:
            value, (to_shared, to_x) = jax.value_and_grad(function, argnums=(0, 1))(shared, *part)
            return jax.tree.map(lambda a, b: a + b.astype(a.dtype), sums, (value, to_shared)), to_x

        zeros = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, jnp.float32), (jnp.zeros(()), shared))
        (value, to_shared), to_x = jax.lax.scan(add, zeros, jax.tree.map(cut, (x, fixed)))
        return value, (to_shared, jnp.moveaxis(to_x, 0, 1).reshape(x.shape))

    def backward(stored: Any, gradient: jax.Array) -> tuple[Any, jax.Array, None]:
        to_shared, to_x = stored
        to_shared = jax.tree.map(lambda summed, leaf: (summed * gradient).astype(leaf.dtype), to_shared, shared)
        return to_shared, to_x * gradient.astype(to_x.dtype), None

    run.defvjp(forward, backward)
    return run(shared, x, fixed)


def convolve(x: jax.Array, kernel: jax.Array) -> jax.Array:
    """Convolve volumes, stride 2, padding 1: `[N, X, Y, Z, C]`, kernel `[3, 3, 3, C, D]` -> `[N, X/2, Y/2, Z/2, D]`.

    XLA:CPU has scalar loops: forward and backward of 32 volumes of 64 x 64 x 27 through four convolutions and four
    transposed ones take 122 s; as matrix products of 3 x 3 x 3 patches, 1.6 s.
    """
    for axis in (3, 2, 1):  # patches from the even and odd halves of each axis: gathers and strided slices are slow
        even, odd = _halves(x, axis)
        x = jnp.concatenate([_moved(odd, axis, 1), even, odd], axis=-1)
    return x @ kernel.reshape(-1, kernel.shape[-1])


def convolve_back(x: jax.Array, kernel: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    """Transposed convolution: `[N, x, y, z, D]`, kernel `[3, 3, 3, C, D]` -> `[N, *shape, C]`; see `convolve`."""
    x = x @ kernel.reshape(-1, kernel.shape[-1]).T
    for axis in (1, 2, 3):
        before, at, after = jnp.split(x, 3, axis=-1)
        both = jnp.stack([at, after + _moved(before, axis, -1)], axis=axis + 1)
        both = both.reshape(*x.shape[:axis], -1, *at.shape[axis + 1 :])
        x = jax.lax.slice_in_dim(both, 0, shape[axis - 1], axis=axis)
    return x


def _halves(x: jax.Array, axis: int) -> tuple[jax.Array, jax.Array]:
    """Return the entries at even and odd places of an axis, padded with 0."""
    if x.shape[axis] % 2:
        x = jnp.pad(x, [(0, int(number == axis)) for number in range(x.ndim)])
    x = x.reshape(*x.shape[:axis], -1, 2, *x.shape[axis + 1 :])
    return tuple(jax.lax.index_in_dim(x, half, axis + 1, keepdims=False) for half in (0, 1))


def _moved(x: jax.Array, axis: int, by: int) -> jax.Array:
    """Shift entries by one place (`by` 1 or -1) along an axis, filling with 0."""
    edge = (1, -1, 0) if by > 0 else (-1, 1, 0)
    return jax.lax.pad(x, jnp.zeros((), x.dtype), [edge if number == axis else (0, 0, 0) for number in range(x.ndim)])
