"""Attention with its four projections, a few heads at a time: for TPUs, if the scores of all heads are too many.

The scores of a part (a few heads) stay in the vector memory (VMEM, 128 MiB on a v5e); the scores of all heads would be
copied to HBM and back at every use. One attention with its gradient takes 2.3 ms instead of 4.3 (BART-large, 128
sentences of 56 positions, by the compiler's estimate).
"""

import dataclasses
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from eeg2text_jax.models.affine import column_sums
from eeg2text_jax.models.heads import LANES, Heads, attend_backward, attend_forward

SCORES = 2**22  # scores held at once, at most: 16 MiB in float32


class Projections(NamedTuple):
    """Kernels and biases of queries, keys, values and output, in the compute dtype."""

    kernels: tuple[jax.Array, ...]  # three of [D, H*Dh], and [H*Dh, D]
    biases: tuple[jax.Array | None, ...]  # three of [H*Dh], and [D]


@dataclasses.dataclass(frozen=True)
class Parts:
    """Division of the heads into parts of `at_once` heads each; queries are multiplied by `scale`."""

    heads: Heads
    head_dim: int
    at_once: int
    scale: float

    def columns(self) -> list[slice]:
        """Return the columns of each part among those of all heads."""
        width = self.at_once * self.head_dim
        return [slice(i * width, (i + 1) * width) for i in range(self.heads.heads // self.at_once)]

    def split(self, rows: jax.Array) -> jax.Array:
        """Return rows `[N*T, h*Dh]` of a part, which has h heads, with the heads on an axis: `[h, N, T, Dh]`."""
        apart = rows.reshape(rows.shape[0], self.at_once, self.head_dim).swapaxes(0, 1)
        return apart.reshape(self.at_once, self.heads.batch, -1, self.head_dim)

    def join(self, apart: jax.Array) -> jax.Array:
        """Undo `split`."""
        return apart.reshape(self.at_once, -1, self.head_dim).swapaxes(0, 1).reshape(-1, self.at_once * self.head_dim)


def heads_at_once(heads: int, batch: int, queries: int, keys: int) -> int:
    """Return the number of heads per part: the largest divisor of `heads` with at most `SCORES` scores per part, or 1.

    A TPU stores the scores of one head and one of the `batch` sentences, `[keys, queries]`, in tiles of 8 x 128.
    """
    most = SCORES // (batch * -(-keys // 8) * 8 * -(-queries // LANES) * LANES)
    return next(count for count in range(heads, 0, -1) if heads % count == 0 and (count <= most or count == 1))


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def attend_in_parts(
    parts: Parts,
    x: jax.Array,
    context: jax.Array,
    projections: Projections,
    biases: Sequence[jax.Array],
    key: jax.Array | None,
) -> jax.Array:
    """Return attention `[N*Tq, D]` of rows `x [N*Tq, D]` over rows `context [N*Tk, D]`.

    The backward pass recomputes all intermediate values. `biases` are `[H or 1, N or 1, Tq or 1, Tk]`. Dropout masks
    differ from the masks of `heads.attend_apart`.
    """
    mixed: list[jax.Array] = []
    for number in range(len(parts.columns())):
        if mixed:
            x, context, key, mixed[-1] = _afterwards(x, context, key, mixed[-1])
        mixed.append(parts.join(_forward(parts, number, x, context, projections, biases, key)[0]))
    return _project(jnp.concatenate(mixed, axis=1), projections, 3)


def _attend_forward(parts, *arguments):
    return attend_in_parts(parts, *arguments), arguments


def _attend_backward(parts, arguments, gradient):
    x, context, projections, biases, key = arguments
    (*kernels, kernel_out), found, to_biases = projections.kernels, [], []
    for number, columns in enumerate(parts.columns()):
        if found:
            x, context, key, gradient, found[-1] = _afterwards(x, context, key, gradient, found[-1])
        mixed, known = _forward(parts, number, x, context, projections, biases, key)
        to_mixed = parts.split(gradient @ kernel_out[columns].T)
        to_queries, *others, of_biases, _ = attend_backward(parts.heads.rate, 0.0, known, to_mixed)
        found.append(tuple(map(parts.join, (to_queries * parts.scale, *others, mixed))))
        to_biases.append(of_biases)
    *to_projected, mixed = (jnp.concatenate(each, axis=1) for each in zip(*found, strict=True))
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


attend_in_parts.defvjp(_attend_forward, _attend_backward)


def _afterwards(*values: Any) -> Any:
    """Return the values unchanged; XLA uses none of the returned values before all of them are computed.

    Without this, XLA computes parts side by side, and their scores do not fit into VMEM (3.0 ms instead of 2.4).
    """
    return lax.optimization_barrier(values)


def _forward(parts, number, x, context, projections, biases, key):
    """Return part `number`'s weighted sums of values `[h, N, Tq, Dh]`, and the tuple `known` of `attend_backward`."""
    columns, at = parts.columns()[number], number * parts.at_once
    queries = parts.split(_project(x, projections, 0, columns) * parts.scale)
    keys, values = (parts.split(_project(context, projections, each, columns)) for each in (1, 2))
    own = tuple(bias if len(bias) == 1 else bias[at : at + parts.at_once] for bias in biases)
    return attend_forward(
        parts.heads.rate, 0.0, queries, keys, values, own, None if key is None else jax.random.fold_in(key, number)
    )


def _project(rows: jax.Array, projections: Projections, number: int, columns: slice = slice(None)) -> jax.Array:
    """Return the given columns of projection `number` of rows `[R, ...]`."""
    y, bias = rows @ projections.kernels[number][:, columns], projections.biases[number]
    return y if bias is None else y + bias[None, columns]
