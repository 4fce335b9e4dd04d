"""Attention of a decoder step over the KV cache on a GPU, as one kernel written with Pallas for Triton.

A block of threads computes one head of all beams of one sentence: the beams are query positions over one shared cache,
see `models.cache`. Keys and values are read once, in groups of positions, with the running maximum and sum of
FlashAttention (Dao et al. 2022); positions that are not written yet are not read.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu

from eeg2text_jax.models.fused_attention import KERNELS, LONGEST, WIDEST, block_of, inside, supported

GROUP = 64  # entries of the cache that are read at once


def fits(head_dim: int, beams: int) -> bool:
    """Return whether the kernel can compute attention of these sizes."""
    return beams <= LONGEST and head_dim <= WIDEST and supported()


def attend_cached(
    queries: jax.Array,
    keys: jax.Array,
    values: jax.Array,
    bias: jax.Array,
    filled: jax.Array,
    *,
    keys_last: bool,
    interpret: bool = False,
) -> jax.Array:
    """Return attention `[B*K, H*Dh]` of K beams of B sentences, queries `[B*K, H*Dh]`, over a cache of E entries.

    It has no gradient.

    Args:
      keys: `[B, H, Dh, E]` if `keys_last`, else `[B, H, E, Dh]`.
      values: `[B, H, E, Dh]`.
      bias: float32 `[B, H or 1, K or 1, E]`.
      filled: int32, number of entries that are written and visible, at least 1; the rest is not read.
      interpret: compute without a GPU, for tests.
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

    def read(i: jax.Array, carry: tuple[jax.Array, jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array, jax.Array]:
        found, greatest, total = carry
        part, left = pl.ds(i * GROUP, GROUP), last - i * GROUP
        if keys_last:
            block = keys.at[:, part]
            known = plgpu.load(block, mask=inside(block.shape, head_dim, left), other=0.0)
        else:
            block = keys.at[part, :]
            known = plgpu.load(block, mask=inside(block.shape, left, head_dim), other=0.0).T
        block = bias.at[:, part]
        scores = plgpu.dot(asked, known) + plgpu.load(block, mask=inside(block.shape, beams, left), other=0.0)
        scores = jnp.where(inside(scores.shape, scores.shape[0], left), scores, -jnp.inf)
        highest = jnp.maximum(greatest, jnp.max(scores, axis=1, keepdims=True))
        powers, shrink = jnp.exp(scores - highest), jnp.exp(greatest - highest)
        block = values.at[part, :]
        known = plgpu.load(block, mask=inside(block.shape, left, head_dim), other=0.0)
        found = found * shrink + plgpu.dot(powers.astype(known.dtype), known)
        return found, highest, total * shrink + jnp.sum(powers, axis=1, keepdims=True)

    column = (asked.shape[0], 1)
    nothing = jnp.zeros(asked.shape, jnp.float32), jnp.full(column, -jnp.inf), jnp.zeros(column, jnp.float32)
    found, _, total = jax.lax.fori_loop(0, (last + GROUP - 1) // GROUP, read, nothing)
    plgpu.store(mixed, (found / total).astype(mixed.dtype), mask=within)
