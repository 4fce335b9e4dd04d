"""Attention over the concatenated rows `[N*T, H*Dh]` of all sentences, and groups of heads for a TPU's registers.

A TPU's registers and matrix unit are 128 columns wide. A group is adjacent heads that fill 128 columns. Its queries are
repeated once per head with the other heads' columns set to zero, and each head keeps its own columns of the result: no
more work for the matrix unit than separate heads. Cross-attention over the cache uses them.
"""

import dataclasses
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.experimental.layout import Layout, with_layout_constraint

from eeg2text_jax.models.layers import column_sums, draw_kept, drop, site_key

LANES = 128  # columns of a TPU's registers and of its matrix unit


@dataclasses.dataclass(frozen=True)
class Heads:
    """Number of sentences N (`batch`) and heads H, and the dropout rate of attention weights."""

    batch: int
    heads: int
    rate: float

    def side_by_side(self, head_dim: int) -> int:
        """Return how many heads of width `head_dim` make a group; 1 if they do not fill groups."""
        each = LANES // head_dim
        return each if each * head_dim == LANES and self.heads % each == 0 else 1


def attend_apart(
    shape: Heads,
    queries: Array,
    keys: Array,
    values: Array,
    biases: Sequence[Array],
    dropout_key: Array | None,
    cap: float = 0.0,
) -> Array:
    """Return attention `[N*Tq, H*Dh]` of queries `[N*Tq, H*Dh]`, computed with an axis of heads.

    Keys and values `[N*Tk, ...]` may have fewer heads, each shared by a group of query heads.
    """

    def split(x: Array) -> Array:
        # Heads first, over all rows: a TPU's matrix unit writes a small batch transposed at no cost (an attention of
        # BART-large with its gradient: 0.54 ms by the compiler's estimate, 0.71 with heads within each sentence).
        heads = x.reshape(x.shape[0], -1, head_dim).swapaxes(0, 1)
        return heads.reshape(heads.shape[0], shape.batch, -1, head_dim)

    rows, head_dim = queries.shape, queries.shape[1] // shape.heads
    queries, keys, values = split(queries), split(keys), split(values)
    groups, length = shape.heads // len(keys), queries.shape[2]
    if groups > 1:
        queries = _into_further_positions(queries, groups)
        biases = [_bias_of_positions(bias, groups, length) for bias in biases]
    mixed = attend(queries, keys, values, biases, shape.rate, dropout_key, cap)
    mixed = _from_further_positions(mixed, groups) if groups > 1 else mixed
    return mixed.reshape(shape.heads, rows[0], -1).swapaxes(0, 1).reshape(rows)


def _into_further_positions(queries: Array, groups: int) -> Array:
    """Concatenate, along positions, the G query heads that share a key head: `[H, N, Tq, Dh] -> [H/G, N, G*Tq, Dh]`.

    With repeated keys, XLA:CPU of jaxlib 0.10.2 fuses the broadcast of one key head with product and softmax, and from
    16 sentences on the fusion ignores the keys.
    """
    heads, batch, length, head_dim = queries.shape
    apart = queries.reshape(-1, groups, batch, length, head_dim).swapaxes(1, 2)
    return apart.reshape(heads // groups, batch, groups * length, head_dim)


def _from_further_positions(mixed: Array, groups: int) -> Array:
    """Undo `_into_further_positions`: `[H/G, N, G*Tq, Dh] -> [H, N, Tq, Dh]`."""
    heads, batch, length, head_dim = mixed.shape
    apart = mixed.reshape(heads, batch, groups, -1, head_dim).swapaxes(1, 2)
    return apart.reshape(heads * groups, batch, length // groups, head_dim)


def _bias_of_positions(bias: Array, groups: int, length: int) -> Array:
    """Return a bias `[H or 1, N or 1, Tq or 1, Tk]` for `G * Tq` query positions, Tq of each of `groups` heads."""
    if bias.shape[0] == 1 and bias.shape[2] == 1:
        return bias
    bias = bias.reshape(-1, groups if bias.shape[0] > 1 else 1, *bias.shape[1:]).swapaxes(1, 2)
    bias = jnp.broadcast_to(bias, (*bias.shape[:2], groups, length, bias.shape[-1]))
    return bias.reshape(*bias.shape[:2], -1, bias.shape[-1])


def capped(scores: Array, cap: float) -> Array:
    """Return `cap * tanh(scores / cap)` (Gemma 2), or `scores` if `cap` is 0."""
    return cap * jnp.tanh(scores / cap) if cap else scores


def spread(x: Array, each: int) -> Array:
    """Repeat each group once per head, other heads' columns set to zero: `[X, N, T, 128] -> [X, N, each*T, 128]`."""
    return jnp.concatenate([jnp.where(columns(each, g), x, jnp.zeros((), x.dtype)) for g in range(each)], axis=2)


def gather(x: Array, each: int) -> Array:
    """Take each head's columns from its repetition, `[X, N, each*T, 128] -> [X, N, T, 128]`: transpose of `spread`."""
    copies = jnp.split(x, each, axis=2)
    gathered = copies[0]
    for g in range(1, each):
        gathered = jnp.where(columns(each, g), copies[g], gathered)
    return gathered


def columns(each: int, head: int) -> Array:
    """Return which columns are of head number `head` in a group of `each` heads, bool `[1, 1, 1, 128]`."""
    return (jnp.arange(LANES) // (LANES // each) == head)[None, None, None]


def attend(
    queries: Array,
    keys: Array,
    values: Array,
    biases: Sequence[Array],
    rate: float = 0.0,
    dropout_key: Array | None = None,
    cap: float = 0.0,
) -> Array:
    """Return attention of `[X, Y, Tq, Dh]`, X and Y heads and sentences; scores are `capped`, then biases added."""
    return _attend(rate, cap, queries, keys, values, tuple(biases), dropout_key)


@partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _attend(rate, cap, queries, keys, values, biases, key):
    weights = jax.nn.softmax(_scores(cap, queries, keys, biases), axis=-1)
    return _mix(drop(weights, draw_kept(weights.shape, rate, key), rate), values)


def _products(queries: Array, keys: Array) -> Array:
    return jnp.einsum("xyqd,xykd->xyqk", queries, keys, preferred_element_type=jnp.float32)


def _scores(cap: float, queries: Array, keys: Array, biases: Sequence[Array]) -> Array:
    """Return scores with their biases, float32 `[X, Y, Tq, Tk]`."""
    scores = capped(_products(queries, keys), cap)
    for bias in biases:
        scores = scores + bias
    return scores


def _mix(weights: Array, values: Array) -> Array:
    return jnp.einsum("xyqk,xykd->xyqd", weights.astype(values.dtype), values)


# With autodiff, a TPU computes the exponential of every score six times. Here it is computed once, and softmax's
# weighted sum of a row's gradients from the row's result times its gradient (as in FlashAttention, Dao et al. 2022).
# What is stored is float32; scaling, dropout and rounding are fused into the products: a pass that rounds takes 26 to
# 45 us, products, exponentials and sums 5 to 10 (16 heads, 32 x 56 x 56, by the TPU compiler's estimate).
def attend_forward(rate, cap, queries, keys, values, biases, key):
    """Return the result of `attend`, and what `attend_backward` needs."""
    scores = _scores(cap, queries, keys, biases)
    exponentials = jnp.exp(scores - jnp.max(scores, axis=-1, keepdims=True))
    inverse = 1.0 / jnp.sum(exponentials, axis=-1, keepdims=True)
    exponentials, inverse = lax.optimization_barrier((_queries_last(exponentials), inverse))
    keep_mask = draw_kept(exponentials.shape, rate, key)
    mixed = _mix(drop(exponentials * inverse, keep_mask, rate), values)
    return mixed, (queries, keys, values, biases, exponentials, inverse, keep_mask, mixed)


def attend_backward(rate, cap, residuals, gradient):
    """Return the gradients of queries, keys, values, each of the biases, and None for the key."""
    queries, keys, values, biases, exponentials, inverse, keep_mask, mixed = residuals
    along = jnp.sum(gradient.astype(jnp.float32) * mixed.astype(jnp.float32), axis=-1, keepdims=True)
    for_queries, for_keys, for_values = (exponentials * apart for apart in _unmerged(inverse, along))
    to_weights = jnp.einsum("xyqd,xykd->xyqk", gradient, values, preferred_element_type=jnp.float32)
    to_biases = to_scores = lax.optimization_barrier(drop(to_weights, keep_mask, rate) - along)
    if cap:
        to_scores = to_scores * (1.0 - jnp.square(jnp.tanh(_products(queries, keys) / cap)))
    to_keys = jnp.einsum("xyqk,xyqd->xykd", (for_keys * to_scores).astype(queries.dtype), queries)
    to_values = jnp.einsum("xyqk,xyqd->xykd", drop(for_values, keep_mask, rate).astype(gradient.dtype), gradient)
    summed = tuple(_summed((for_queries * to_biases).astype(bias.dtype), bias.shape) for bias in biases)
    # The gradient of the queries comes last: else a TPU goes on with it, and holds two attentions' scores at once.
    to_scores, to_keys, to_values = lax.optimization_barrier((to_scores, to_keys, to_values))
    return _mix(for_queries * to_scores, keys), to_keys, to_values, summed, None


def _unmerged(x: Array, other: Array) -> tuple[Array, Array, Array]:
    """Return `x` three times, so that XLA does not compute its products with an array once, in a pass of its own."""
    barrier = lax.optimization_barrier
    return barrier(x), barrier((x, other))[0], barrier((other, x))[1]


_attend.defvjp(attend_forward, attend_backward)


def _queries_last(weights: Array) -> Array:
    """Give the weights `[X, Y, Tq, Tk]` of self-attention a layout with queries last on a TPU.

    XLA chooses it but for T5's encoder, where softmax and dropout took 2.4 ms instead of 1.3.
    """
    if weights.shape[2] != weights.shape[3]:
        return weights
    layout = Layout(major_to_minor=(0, 1, 3, 2))
    return lax.platform_dependent(weights, tpu=lambda x: with_layout_constraint(x, layout), default=lambda x: x)


def _summed(x: Array, shape: tuple[int, ...]) -> Array:
    """Sum `x` over the axes in which it is larger than `shape`: the gradient of a broadcast from `shape`."""
    axes = [axis for axis, (wide, narrow) in enumerate(zip(x.shape, shape, strict=True)) if wide != narrow]
    return x.sum(axes, keepdims=True)


# Attention with its four projections, a few heads at a time, for TPUs: scores of a few stay in the vector memory (VMEM,
# 128 MiB on a v5e), those of all may go to HBM and back at every use. An attention with its gradient takes 2.3 ms
# instead of 4.3 (BART-large, 128 sentences of 56 positions, by the compiler's estimate).

SCORES = 2**22  # scores held at once, at most: 16 MiB in float32


class Projections(NamedTuple):
    """Kernels and biases of queries, keys, values and output, in the compute dtype."""

    kernels: tuple[Array, ...]  # three of [D, H*Dh], and [H*Dh, D]
    biases: tuple[Array | None, ...]  # three of [H*Dh], and [D]


@dataclasses.dataclass(frozen=True)
class Parts:
    """Division of the heads into parts of `at_once` heads each; queries are multiplied by `scale`."""

    heads: Heads
    head_dim: int
    at_once: int
    scale: float

    def columns(self) -> list[slice]:
        width = self.at_once * self.head_dim
        return [slice(i * width, (i + 1) * width) for i in range(self.heads.heads // self.at_once)]

    def split(self, rows: Array) -> Array:
        """Return rows `[N*T, h*Dh]` of a part, which has h heads, with the heads on an axis: `[h, N, T, Dh]`."""
        apart = rows.reshape(rows.shape[0], self.at_once, self.head_dim).swapaxes(0, 1)
        return apart.reshape(self.at_once, self.heads.batch, -1, self.head_dim)

    def join(self, apart: Array) -> Array:
        """Undo `split`."""
        return apart.reshape(self.at_once, -1, self.head_dim).swapaxes(0, 1).reshape(-1, self.at_once * self.head_dim)


def heads_at_once(heads: int, batch: int, queries: int, keys: int) -> int:
    """Return the number of heads per part: the largest divisor of `heads` with at most `SCORES` scores per part, or 1.

    A TPU stores the scores `[keys, queries]` of a head of one of `batch` sentences in tiles of 8 x 128.
    """
    most = SCORES // (batch * -(-keys // 8) * 8 * -(-queries // LANES) * LANES)
    return next(count for count in range(heads, 0, -1) if heads % count == 0 and (count <= most or count == 1))


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def attend_in_parts(
    parts: Parts, x: Array, context: Array, projections: Projections, biases: Sequence[Array], key: Array | None
) -> Array:
    """Return attention `[N*Tq, D]` of rows `[N*Tq, D]` over rows `[N*Tk, D]`; other dropout masks than `attend_apart`.

    The backward pass recomputes all intermediate values. `biases` are `[H or 1, N or 1, Tq or 1, Tk]`.
    """
    mixed: list[Array] = []
    for number in range(len(parts.columns())):
        if mixed:
            x, context, key, mixed[-1] = _afterwards(x, context, key, mixed[-1])
        mixed.append(parts.join(_forward(parts, number, x, context, projections, biases, key)[0]))
    return _project(jnp.concatenate(mixed, axis=1), projections, 3)


def _attend_backward(parts, arguments, gradient):
    x, context, projections, biases, key = arguments
    (*kernels, kernel_out), gradients, to_biases = projections.kernels, [], []
    for number, columns in enumerate(parts.columns()):
        if gradients:
            x, context, key, gradient, gradients[-1] = _afterwards(x, context, key, gradient, gradients[-1])
        mixed, residuals = _forward(parts, number, x, context, projections, biases, key)
        to_mixed = parts.split(gradient @ kernel_out[columns].T)
        to_queries, *others, of_biases, _ = attend_backward(parts.heads.rate, 0.0, residuals, to_mixed)
        gradients.append(tuple(map(parts.join, (to_queries * parts.scale, *others, mixed))))
        to_biases.append(of_biases)
    *to_projected, mixed = (jnp.concatenate(each, axis=1) for each in zip(*gradients, strict=True))
    to_x, to_keys, to_values = (g @ kernel.T for g, kernel in zip(to_projected, kernels, strict=True))
    pairs = list(zip((x, context, context, mixed), (*to_projected, gradient), strict=True))
    to_projections = Projections(
        tuple(rows.T @ g for rows, g in pairs),
        tuple(
            None if bias is None else column_sums(g, stored=True).astype(bias.dtype)
            for (_, g), bias in zip(pairs, projections.biases, strict=True)
        ),
    )
    whole = tuple(
        sum(each) if len(bias) == 1 else jnp.concatenate(each)
        for bias, each in zip(biases, zip(*to_biases, strict=True), strict=True)
    )
    return to_x, to_keys + to_values, to_projections, whole, None


attend_in_parts.defvjp(lambda parts, *arguments: (attend_in_parts(parts, *arguments), arguments), _attend_backward)


def _afterwards(*values: Any) -> Any:
    """Return the values; XLA uses none before all are computed. Else parts do not fit into VMEM (3.0 ms, not 2.4)."""
    return lax.optimization_barrier(values)


def _forward(parts, number, x, context, projections, biases, key):
    """Return part `number`'s weighted sums of values `[h, N, Tq, Dh]`, and the residuals of `attend_backward`."""
    columns, at = parts.columns()[number], number * parts.at_once
    queries = parts.split(_project(x, projections, 0, columns) * parts.scale)
    keys, values = (parts.split(_project(context, projections, each, columns)) for each in (1, 2))
    biases = tuple(bias if len(bias) == 1 else bias[at : at + parts.at_once] for bias in biases)
    key = None if key is None else jax.random.fold_in(site_key(key, 0), number)
    return attend_forward(parts.heads.rate, 0.0, queries, keys, values, biases, key)


def _project(rows: Array, projections: Projections, number: int, columns: slice = slice(None)) -> Array:
    y, bias = rows @ projections.kernels[number][:, columns], projections.biases[number]
    return y if bias is None else y + bias[None, columns]
