"""UniCoRN's encoder (Xi et al. 2023) as far as it is described, and the mirror that reconstructs its input.

The paper's abstract and the re-evaluation of 2024 describe an encoder of single snapshots and a transformer over the
series of them. Both are trained by reconstruction with a decoder that mirrors the encoder and is then discarded; then
the language model is trained. There is no public code. So layers, widths, activation and positions are fields of the
configuration, with our defaults: this is a UniCoRN, not the UniCoRN.

A snapshot is one volume or one word's features; `W` snapshots make a series. Convolutions halve every axis of a volume,
their mirrors double it: channels last, kernel 3, stride 2, padding 1.
"""

import functools
import math

import jax
import jax.numpy as jnp
from flax import nnx
from jax import lax

from eeg2text_jax.cpu import convolve, convolve_back
from eeg2text_jax.models.layers import ACTIVATIONS, without_padding
from eeg2text_jax.models.spec import EEGSpec, StackSpec
from eeg2text_jax.models.stack import Stack

_LAYOUT = ("NXYZC", "XYZIO", "NXYZC")
TAPS = 27


class Convolution(nnx.Module):
    """`[N, X, Y, Z, C] -> [N, ceil(X/2), ceil(Y/2), ceil(Z/2), D]`, as `torch.nn.Conv3d(C, D, 3, 2, 1)`."""

    def __init__(self, n_in: int, n_out: int, dtype: jnp.dtype, rngs: nnx.Rngs) -> None:
        self.kernel = nnx.Param(_draw(rngs, (3, 3, 3, n_in, n_out), TAPS * n_in))
        self.bias = nnx.Param(jnp.zeros((n_out,), jnp.float32))
        self.dtype = dtype

    def __call__(self, x: jax.Array) -> jax.Array:
        kernel, bias = self.kernel[...].astype(self.dtype), self.bias[...].astype(self.dtype)
        y = lax.platform_dependent(x.astype(self.dtype), kernel, cpu=convolve, default=_convolve)
        return y + bias.reshape(1, 1, 1, 1, -1)


class Mirror(nnx.Module):
    """`[N, x, y, z, D] -> [N, *shape, C]`, as `torch.nn.ConvTranspose3d(D, C, 3, 2, 1)` of that output size."""

    def __init__(self, n_in: int, n_out: int, dtype: jnp.dtype, rngs: nnx.Rngs) -> None:
        # An output voxel is reached by 27/8 taps on average.
        self.kernel = nnx.Param(_draw(rngs, (3, 3, 3, n_out, n_in), TAPS * n_in / 8))
        self.bias = nnx.Param(jnp.zeros((n_out,), jnp.float32))
        self.dtype = dtype

    def __call__(self, x: jax.Array, shape: tuple[int, ...]) -> jax.Array:
        kernel, bias = self.kernel[...].astype(self.dtype), self.bias[...].astype(self.dtype)
        own, usual = (functools.partial(function, shape=shape) for function in (convolve_back, _convolve_back))
        return lax.platform_dependent(x.astype(self.dtype), kernel, cpu=own, default=usual) + bias.reshape(
            1, 1, 1, 1, -1
        )


def halved(shape: tuple[int, ...], times: int) -> list[tuple[int, ...]]:
    """Return the grid before and after each convolution: 64 x 64 x 27, 32 x 32 x 14, 16 x 16 x 7, ..."""
    grids = [tuple(shape)]
    for _ in range(times):
        grids.append(tuple(-(-length // 2) for length in grids[-1]))
    return grids


def _convolve(x: jax.Array, kernel: jax.Array) -> jax.Array:
    return lax.conv_general_dilated(x, kernel, (2, 2, 2), [(1, 1)] * 3, dimension_numbers=_LAYOUT)


def _convolve_back(x: jax.Array, kernel: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    turned = jnp.flip(kernel, (0, 1, 2)).swapaxes(3, 4)
    padding = [(1, 1 + (length + 1) % 2) for length in shape]
    return lax.conv_general_dilated(x, turned, (1, 1, 1), padding, (2, 2, 2), dimension_numbers=_LAYOUT)


def _draw(rngs: nnx.Rngs, shape: tuple[int, ...], fan_in: float) -> jax.Array:
    return jax.random.normal(rngs.params(), shape, jnp.float32) * math.sqrt(2.0 / fan_in)


_HE, _XAVIER = jax.nn.initializers.he_normal(), jax.nn.initializers.xavier_uniform()


class UnicornEncoder(nnx.Module):
    """Snapshots one by one, the transformer over their series, and the bridge `H W + b`, or `relu` of it."""

    def __init__(self, spec: EEGSpec, d_model: int, dtype: jnp.dtype, rngs: nnx.Rngs) -> None:
        self.snapshot = Snapshots(spec, dtype, rngs)
        self.series = Series(spec, dtype, rngs)
        self.bridge = nnx.Linear(spec.width, d_model, dtype=dtype, kernel_init=_XAVIER, rngs=rngs)
        self.spec = spec

    def __call__(self, features: jax.Array, mask: jax.Array, **options) -> tuple[jax.Array, jax.Array]:
        """Words `[B, W, F]` or volumes `[B, W, X, Y, Z]`, mask `[B, W]` -> `[B, W, D]` and the mask."""
        z = self.bridge(self.series(self.snapshot(features, mask), mask, **options))
        return jax.nn.relu(z) if self.spec.bridge == "relu" else z, mask


class Snapshots(nnx.Module):
    """Each snapshot alone, `[B, W, ...] -> [B, W, d]`: convolutions that halve a volume, or a word's hidden layer."""

    def __init__(self, spec: EEGSpec, dtype: jnp.dtype, rngs: nnx.Rngs) -> None:
        for number, (n_in, n_out) in enumerate(_pairs(spec)):
            setattr(self, f"conv_{number}", Convolution(n_in, n_out, dtype, rngs))
        if not spec.volume:
            self.inner = nnx.Linear(spec.features, spec.hidden, dtype=dtype, kernel_init=_HE, rngs=rngs)
        self.outer = nnx.Linear(inner_width(spec), spec.width, dtype=dtype, kernel_init=_XAVIER, rngs=rngs)
        self.spec, self.dtype = spec, dtype

    @jax.named_scope("snapshot")
    def __call__(self, features: jax.Array, mask: jax.Array) -> jax.Array:
        act = ACTIVATIONS[self.spec.activation]
        x = without_padding(features, mask, self.dtype)
        if not self.spec.volume:
            return self.outer(act(self.inner(x)))
        x = x.reshape(-1, *self.spec.volume, 1)
        for number in range(len(self.spec.channels)):
            x = act(getattr(self, f"conv_{number}")(x))
        return self.outer(x.reshape(*mask.shape, -1))


class Series(nnx.Module):
    """Pre-norm transformer over the snapshots, with positions; `[B, W, d] -> [B, W, d]`.

    It has no final norm, so that it begins near the identity and the mirror gets inputs that it knows.
    """

    def __init__(self, spec: EEGSpec, dtype: jnp.dtype, rngs: nnx.Rngs) -> None:
        self.encoder = Stack(series_spec(spec), dtype, rngs)

    @jax.named_scope("series")
    def __call__(self, x: jax.Array, mask: jax.Array, **options) -> jax.Array:
        return self.encoder(x, mask, **options)


class Reconstruction(nnx.Module):
    """The mirror of `Snapshots`, used only for reconstruction: `[B, W, d] -> [B, W, ...]`, float32."""

    def __init__(self, spec: EEGSpec, dtype: jnp.dtype, rngs: nnx.Rngs) -> None:
        self.outer = nnx.Linear(spec.width, inner_width(spec), dtype=dtype, kernel_init=_HE, rngs=rngs)
        for number, (n_in, n_out) in enumerate(_pairs(spec)):
            setattr(self, f"conv_{number}", Mirror(n_out, n_in, dtype, rngs))
        if not spec.volume:
            self.inner = nnx.Linear(spec.hidden, spec.features, dtype=dtype, kernel_init=_XAVIER, rngs=rngs)
        self.spec = spec

    @jax.named_scope("mirror")
    def __call__(self, x: jax.Array) -> jax.Array:
        spec, act = self.spec, ACTIVATIONS[self.spec.activation]
        hidden = act(self.outer(x))
        if not spec.volume:
            return self.inner(hidden).astype(jnp.float32)
        grids = halved(spec.volume, len(spec.channels))
        hidden = hidden.reshape(-1, *grids[-1], spec.channels[-1])
        for number in reversed(range(len(spec.channels))):
            hidden = getattr(self, f"conv_{number}")(hidden, grids[number])
            hidden = act(hidden) if number else hidden
        return hidden.reshape(*x.shape[:2], *spec.volume).astype(jnp.float32)


def series_spec(spec: EEGSpec) -> StackSpec:
    """Return the transformer over snapshots as a stack."""
    return StackSpec(
        layers=spec.layers,
        width=spec.width,
        heads=spec.heads,
        head_dim=spec.width // spec.heads,
        ffn=spec.ffn,
        activation=spec.activation,
        pre_norm=True,
        positions=spec.positions,
        dropout=spec.dropout,
        attention_dropout=spec.dropout,
        activation_dropout=spec.dropout,
        init_std=None,
    )


def inner_width(spec: EEGSpec) -> int:
    """Return the width between the two halves of a snapshot's network: the smallest grid's, or the hidden layer's."""
    if not spec.volume:
        return spec.hidden
    return math.prod(halved(spec.volume, len(spec.channels))[-1]) * spec.channels[-1]


def snapshot_flops(spec: EEGSpec) -> float:
    """Return the FLOPs of one snapshot through its network; the mirror takes as many."""
    total = 2.0 * inner_width(spec) * spec.width
    if not spec.volume:
        return total + 2.0 * spec.features * spec.hidden
    grids = halved(spec.volume, len(spec.channels))[1:]
    return total + sum(54.0 * a * b * math.prod(grid) for (a, b), grid in zip(_pairs(spec), grids, strict=True))


def _pairs(spec: EEGSpec) -> list[tuple[int, int]]:
    """Channels in and out of each convolution; none for words."""
    return list(zip((1, *spec.channels), spec.channels, strict=False)) if spec.volume else []
