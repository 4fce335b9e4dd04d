"""Attention of short sequences on a GPU: a kernel for each direction, written with Pallas for Triton.

A block of threads computes one head of one sentence. It reads its head's columns of the rows `[N*T, H*Dh]` in place and
writes its columns of the result: neither transposed copies nor attention weights, which the backward pass computes
again, go through memory.
"""

import functools
import re
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu
from jax.sharding import PartitionSpec

from eeg2text_jax.base.devices.mesh import DATA, data_shards
from eeg2text_jax.models._heads import Heads
from eeg2text_jax.models.layers import draw_kept, drop

# Most positions, and the largest width of a head, that were measured; longer rows may not fit registers.
LONGEST, WIDEST = 64, 128
KERNELS = "fused_attention"  # how the names of the kernels begin in a profile
NARROWEST = 16  # rows and columns of the smallest matrix product of Triton


def capabilities() -> list[str]:
    """Return the compute capabilities of this machine's GPUs, such as "9.0", or "gfx90a" of AMD."""
    gpus = jax.local_devices() if jax.default_backend() == "gpu" else []
    return [str(getattr(gpu, "compute_capability", "")) for gpu in gpus]


def supported() -> bool:
    """Return whether this machine's GPUs, if any, run the kernels: bfloat16 in Triton needs capability 8 (A100)."""
    return all(re.fullmatch(r"\d+\.\d+", capability) and float(capability) >= 8.0 for capability in capabilities())


def fits(batch: int, head_dim: int, n_queries: int, n_keys: int) -> bool:
    """Return whether the kernels compute attention of these sizes; `batch` counts the sentences of all devices."""
    small = max(n_queries, n_keys) <= LONGEST and head_dim <= WIDEST
    return small and batch % data_shards() == 0 and supported()


def attend_fused(
    shape: Heads,
    projected: Sequence[Array],
    masks: Sequence[Array],
    dropout_key: Array | None,
    *,
    scale: float = 1.0,
    interpret: bool = False,
) -> Array:
    """Return attention `[N*Tq, H*Dh]` of queries `[N*Tq, H*Dh]` over keys and values `[N*Tk, H*Dh]`.

    It is `_heads.attend_apart` of `queries * scale` with the biases `masks`, each `[1, N or 1, Tq or 1, Tk]`, but their
    gradient is zero. Each device runs the kernel on its own sentences. `projected` are queries, keys and values;
    neighbors may be side by side in one array, such as keys and values in `[N*Tk, 2*H*Dh]`. Tests `interpret` the
    kernel.
    """
    shards, factors = data_shards(), (shape.rate, scale)
    lengths = len(projected[0]) // shape.batch, len(projected[-1]) // shape.batch
    keep_mask = draw_kept((shape.heads, shape.batch, *lengths), shape.rate, dropout_key)
    width = sum(x.shape[1] for x in projected) // 3

    def split(x: Array) -> Array:
        return x.reshape(shape.batch // shards, -1, x.shape[1] // width, shape.heads, width // shape.heads)

    def local(rows: tuple[Array, ...], masks: tuple[Array, ...], keep_mask: Array | None) -> Array:
        return _attend(factors, interpret, tuple(map(split, rows)), masks, keep_mask).reshape(-1, width)

    arguments = tuple(projected), tuple(masks), None if keep_mask is None else keep_mask.astype(jnp.int8)
    if shards == 1:
        return local(*arguments)
    rows, of_sentences, whole = PartitionSpec(DATA), PartitionSpec(None, DATA), PartitionSpec()
    specs = (rows, tuple(of_sentences if mask.shape[1] > 1 else whole for mask in masks), of_sentences)
    return jax.shard_map(local, in_specs=specs, out_specs=rows, axis_names={DATA}, check_vma=False)(*arguments)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _attend(factors, interpret, rows, masks, keep_mask):
    batch, length, _, *heads = rows[0].shape
    like = jax.ShapeDtypeStruct((batch, length, 1, *heads), rows[0].dtype)
    return _call(_forward, factors, interpret, rows, (), masks, keep_mask, (like,))[0]


def _attend_forward(factors, interpret, *arguments):
    return _attend(factors, interpret, *arguments), arguments


def _attend_backward(factors, interpret, residuals, gradient):
    rows, masks, keep_mask = residuals
    gradients = _call(_backward, factors, interpret, rows, (gradient,), masks, keep_mask, rows)
    return tuple(gradients), tuple(jnp.zeros_like(mask) for mask in masks), None


_attend.defvjp(_attend_forward, _attend_backward)


def _call(
    kernel: Callable[..., None],
    factors: tuple[float, float],
    interpret: bool,
    rows: tuple[Array, ...],
    gradient: tuple[Array, ...],
    masks: tuple[Array, ...],
    keep_mask: Array | None,
    like: Sequence[Any],
) -> Any:
    """Run a kernel for every sentence and head; its results have the shapes and dtypes of `like`.

    `factors` are the dropout rate and the factor of queries. `rows` are queries, keys and values, one to three of them
    side by side in an array `[N, T, 1 to 3, H, Dh]`. The backward pass has a `gradient [N, Tq, 1, H, Dh]`.
    """
    batch, n_queries, _, heads, head_dim = rows[0].shape
    n_keys = rows[-1].shape[1]
    over_queries, over_keys = block_of(n_queries), block_of(n_keys)
    counts = len(rows) + len(gradient), len(masks), keep_mask is not None

    def columns(x: Any) -> pl.BlockSpec:
        return pl.BlockSpec(
            (None, block_of(x.shape[1]), x.shape[2], None, block_of(head_dim)), lambda n, h: (n, 0, 0, h, 0)
        )

    def mask(x: Array) -> pl.BlockSpec:
        each = x.shape[1] > 1
        block = over_queries if x.shape[2] > 1 else 1
        return pl.BlockSpec((None, None, block, over_keys), lambda n, h: (0, n if each else 0, 0, 0))

    of_kept = [pl.BlockSpec((None, None, over_queries, over_keys), lambda n, h: (h, n, 0, 0))]
    inputs = [*rows, *gradient, *masks, *([] if keep_mask is None else [keep_mask])]
    specs = [columns(x) for x in (*rows, *gradient)] + [mask(x) for x in masks]
    call = pl.pallas_call(
        functools.partial(kernel, *factors, (n_queries, n_keys, head_dim), counts),
        out_shape=[jax.ShapeDtypeStruct(x.shape, x.dtype) for x in like], grid=(batch, heads),
        in_specs=specs + (of_kept if keep_mask is not None else []), out_specs=[columns(x) for x in like],
        interpret=interpret, compiler_params=plgpu.CompilerParams(num_warps=4, num_stages=1),
        name=f"{KERNELS}{kernel.__name__}",
    )  # fmt: skip
    return call(*inputs)


def block_of(length: int) -> int:
    """Return the size of a block for an axis: the next power of two, at least `NARROWEST`."""
    return max(NARROWEST, pl.next_power_of_2(length))


def inside(shape: tuple[int, ...], length: int | Array, width: int | Array) -> Array:
    """Return which elements of a block `shape` lie in an array `[length, width]`."""
    rows, columns = (jax.lax.broadcasted_iota(jnp.int32, shape, axis) for axis in (0, 1))
    return (rows < length) & (columns < width)


def _load(ref: Any, length: int | Array, width: int | Array, other: float = 0.0) -> Array:
    return plgpu.load(ref, mask=inside(ref.shape, length, width), other=other)


def _store(ref: Any, values: Array, length: int, width: int) -> None:
    plgpu.store(ref, values.astype(ref.dtype), mask=inside(ref.shape, length, width))


def _weights(sizes: tuple[int, int, int], queries: Array, keys: Array, masks: Sequence[Any]) -> Array:
    """Return attention weights `[Tq, Tk]` in the dtype of queries; 0 at padded key positions."""
    scores = plgpu.dot(queries, keys.T)
    for mask in masks:
        scores = scores + _load(mask, *sizes[:2], 0)
    scores = jnp.where(inside(scores.shape, scores.shape[0], sizes[1]), scores, -jnp.inf)
    powers = jnp.exp(scores - jnp.max(scores, axis=1, keepdims=True))
    return (powers / jnp.sum(powers, axis=1, keepdims=True)).astype(queries.dtype)


def _dropped(weights: Array, keep_mask: Array | None, rate: float) -> Array:
    return drop(weights.astype(jnp.float32), keep_mask, rate).astype(weights.dtype)


def _by_kind(refs: Sequence[Any], counts: tuple[int, int, bool]) -> tuple[list[Any], Sequence[Any], Any, list[Any]]:
    """Return a kernel's refs: parts of rows, masks, what dropout keeps (None: all), parts of results."""
    n_rows, n_masks, drops = counts
    rows, masks, rest = refs[:n_rows], refs[n_rows : n_rows + n_masks], refs[n_rows + n_masks :]
    [keep_ref], results = (rest[:1], rest[1:]) if drops else ([None], rest)

    def parts(refs: Sequence[Any]) -> list[Any]:
        # Pallas's interpreter (JAX 0.10.2) fails with a Python int as an index.
        return [ref.at[:, np.int32(i), :] for ref in refs for i in range(ref.shape[1])]

    return parts(rows), masks, keep_ref, parts(results)


def _forward(rate, scale, sizes, counts, *refs):
    (n_queries, n_keys, head_dim), ((queries, keys, values), masks, keep_ref, (mixed,)) = sizes, _by_kind(refs, counts)
    queries = _load(queries, n_queries, head_dim) * scale
    keys, values = (_load(x, n_keys, head_dim) for x in (keys, values))
    weights = _weights(sizes, queries, keys, masks)
    keep_mask = None if keep_ref is None else _load(keep_ref, n_queries, n_keys, 0) != 0
    _store(mixed, plgpu.dot(_dropped(weights, keep_mask, rate), values), n_queries, head_dim)


def _backward(rate, scale, sizes, counts, *refs):
    (n_queries, n_keys, head_dim), (rows, masks, keep_ref, results) = sizes, _by_kind(refs, counts)
    (queries, keys, values, gradient), (of_queries, of_keys, of_values) = rows, results
    queries, gradient = (_load(x, n_queries, head_dim) for x in (queries, gradient))
    queries = queries * scale
    keys, values = (_load(x, n_keys, head_dim) for x in (keys, values))
    keep_mask = None if keep_ref is None else _load(keep_ref, n_queries, n_keys, 0) != 0
    weights = _weights(sizes, queries, keys, masks)
    _store(of_values, plgpu.dot(_dropped(weights, keep_mask, rate).T, gradient), n_keys, head_dim)
    to_weights, of_weights = drop(plgpu.dot(gradient, values.T), keep_mask, rate), weights.astype(jnp.float32)
    along = jnp.sum(of_weights * to_weights, axis=1, keepdims=True)
    to_scores = (of_weights * (to_weights - along)).astype(queries.dtype)
    _store(of_queries, plgpu.dot(to_scores, keys) * scale, n_queries, head_dim)
    _store(of_keys, plgpu.dot(to_scores.T, queries), n_keys, head_dim)


# Attention of a decoder step over the KV cache on a GPU. A block of threads computes one head of all beams of a
# sentence, which share its cache, see `models.attention`. Keys and values are read once, in groups of positions, with
# the running maximum and sum of FlashAttention (Dao et al. 2022).

GROUP = 64  # entries of the cache that are read at once


def fits_step(head_dim: int, beams: int) -> bool:
    return beams <= LONGEST and head_dim <= WIDEST and supported()


def attend_cached(
    queries: Array, keys: Array, values: Array, bias: Array, filled: Array, *, keys_last: bool, interpret: bool = False
) -> Array:
    """Return attention `[B*K, H*Dh]` of K beams of B sentences, queries `[B*K, H*Dh]`, over a cache of E entries.

    Keys are `[B, H, Dh, E]` if `keys_last`, else `[B, H, E, Dh]`, as values; `bias` is float32 `[B, H or 1, K or 1,
    E]`. Only the first `filled` entries (int32, at least 1) are read. There is no gradient; tests `interpret` the
    kernel.
    """
    batch, heads, entries, head_dim = values.shape
    split = queries.astype(values.dtype).reshape(batch, -1, heads, head_dim)
    beams, width = split.shape[1], block_of(head_dim)
    whole = pl.next_power_of_2(-(-entries // GROUP) * GROUP)
    rows = pl.BlockSpec((None, block_of(beams), None, width), lambda b, h: (b, 0, h, 0))
    of_values = pl.BlockSpec((None, None, whole, width), lambda b, h: (b, h, 0, 0))
    of_keys = pl.BlockSpec((None, None, width, whole), lambda b, h: (b, h, 0, 0)) if keys_last else of_values
    each_head, each_beam = bias.shape[1] > 1, bias.shape[2] > 1
    of_bias = pl.BlockSpec(
        (None, None, block_of(beams) if each_beam else 1, whole), lambda b, h: (b, h if each_head else 0, 0, 0)
    )
    mixed = pl.pallas_call(
        functools.partial(_kernel, (beams, entries, head_dim), keys_last),
        out_shape=jax.ShapeDtypeStruct(split.shape, values.dtype),
        grid=(batch, heads),
        in_specs=[rows, of_keys, of_values, of_bias, pl.BlockSpec((1,), lambda b, h: (0,))],
        out_specs=rows,
        interpret=interpret,
        compiler_params=plgpu.CompilerParams(num_warps=4, num_stages=2),
        name=f"{KERNELS}_step",
    )(split, keys, values, bias, filled.reshape(1))
    return mixed.reshape(queries.shape).astype(queries.dtype)


def _kernel(
    sizes: tuple[int, int, int],
    keys_last: bool,
    queries: Any,
    keys: Any,
    values: Any,
    bias: Any,
    filled: Any,
    mixed: Any,
) -> None:
    beams, entries, head_dim = sizes
    within = inside(queries.shape, beams, head_dim)
    asked, last = plgpu.load(queries, mask=within, other=0.0), jnp.minimum(filled[0], entries)

    def read(i: Array, carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        weighted, greatest, total = carry
        part, left = pl.ds(i * GROUP, GROUP), last - i * GROUP
        block_keys = _load(keys.at[:, part], head_dim, left) if keys_last else _load(keys.at[part, :], left, head_dim).T
        scores = plgpu.dot(asked, block_keys) + _load(bias.at[:, part], beams, left)
        scores = jnp.where(inside(scores.shape, scores.shape[0], left), scores, -jnp.inf)
        highest = jnp.maximum(greatest, jnp.max(scores, axis=1, keepdims=True))
        powers, shrink = jnp.exp(scores - highest), jnp.exp(greatest - highest)
        block_values = _load(values.at[part, :], left, head_dim)
        weighted = weighted * shrink + plgpu.dot(powers.astype(block_values.dtype), block_values)
        return weighted, highest, total * shrink + jnp.sum(powers, axis=1, keepdims=True)

    column = (asked.shape[0], 1)
    nothing = jnp.zeros(asked.shape, jnp.float32), jnp.full(column, -jnp.inf), jnp.zeros(column, jnp.float32)
    weighted, _, total = jax.lax.fori_loop(0, (last + GROUP - 1) // GROUP, read, nothing)
    plgpu.store(mixed, (weighted / total).astype(mixed.dtype), mask=within)
