"""UniCoRN's encoder (Xi et al. 2023) as far as it is published, and the decoder that reconstructs its input.

A snapshot is one volume or one word's features; `W` snapshots make a series. One network encodes each snapshot, and a
transformer the series. Both are first trained to reconstruct their input, with a decoder that mirrors the encoder and
is then discarded; then the language model is trained. There is no public code: layers, widths, activation and positions
are fields of the configuration, with our defaults.

A convolution halves every axis of a volume, and a transposed one doubles it: channels last, kernel 3, stride 2,
padding 1.
"""

import functools
import math

import jax
import jax.numpy as jnp
from flax import nnx
from jax import lax

from eeg2text_jax.cpu import convolve, convolve_back
from eeg2text_jax.models.layers import ACTIVATIONS, zero_at_padding
from eeg2text_jax.models.spec import EEGSpec, StackSpec
from eeg2text_jax.models.stack import Stack

_LAYOUT = ("NXYZC", "XYZIO", "NXYZC")
TAPS = 27  # weights of a kernel, 3 x 3 x 3


class Convolution(nnx.Module):
    """Convolution `[N, X, Y, Z, C] -> [N, ceil(X/2), ceil(Y/2), ceil(Z/2), D]`: `torch.nn.Conv3d(C, D, 3, 2, 1)`."""

    def __init__(self, n_in: int, n_out: int, dtype: jnp.dtype, rngs: nnx.Rngs) -> None:
        self.kernel = nnx.Param(_draw(rngs, (3, 3, 3, n_in, n_out), TAPS * n_in))
        self.bias = nnx.Param(jnp.zeros((n_out,), jnp.float32))
        self.dtype = dtype

    def __call__(self, x: jax.Array) -> jax.Array:
        kernel, bias = self.kernel[...].astype(self.dtype), self.bias[...].astype(self.dtype)
        y = lax.platform_dependent(x.astype(self.dtype), kernel, cpu=convolve, default=_convolve)
        return y + bias.reshape(1, 1, 1, 1, -1)


class TransposedConvolution(nnx.Module):
    """Transposed convolution `[N, x, y, z, D] -> [N, *shape, C]`, as `torch.nn.ConvTranspose3d(D, C, 3, 2, 1)`."""

    def __init__(self, n_in: int, n_out: int, dtype: jnp.dtype, rngs: nnx.Rngs) -> None:
        # An output voxel is a sum over 27/8 weights of the kernel on average.
        self.kernel = nnx.Param(_draw(rngs, (3, 3, 3, n_out, n_in), TAPS * n_in / 8))
        self.bias = nnx.Param(jnp.zeros((n_out,), jnp.float32))
        self.dtype = dtype

    def __call__(self, x: jax.Array, shape: tuple[int, ...]) -> jax.Array:
        kernel, bias = self.kernel[...].astype(self.dtype), self.bias[...].astype(self.dtype)
        own, usual = (functools.partial(function, shape=shape) for function in (convolve_back, _convolve_back))
        y = lax.platform_dependent(x.astype(self.dtype), kernel, cpu=own, default=usual)
        return y + bias.reshape(1, 1, 1, 1, -1)


def halved(shape: tuple[int, ...], times: int) -> list[tuple[int, ...]]:
    """Return a volume's shape before and after each convolution: (64, 64, 27), (32, 32, 14), (16, 16, 7), ..."""
    return [tuple(-(-length // 2**n) for length in shape) for n in range(times + 1)]


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
    """UniCoRN: `Snapshots` encodes each snapshot, `Series` their sequence; the bridge, a dense layer, comes last."""

    def __init__(self, spec: EEGSpec, d_model: int, dtype: jnp.dtype, rngs: nnx.Rngs) -> None:
        self.snapshot = Snapshots(spec, dtype, rngs)
        self.series = Series(spec, dtype, rngs)
        self.bridge = nnx.Linear(spec.width, d_model, dtype=dtype, kernel_init=_XAVIER, rngs=rngs)
        self.spec = spec

    def __call__(self, features: jax.Array, mask: jax.Array, **options) -> tuple[jax.Array, jax.Array]:
        """Return embeddings `[B, W, D]` and the mask `[B, W]` of words `[B, W, F]` or volumes `[B, W, X, Y, Z]`."""
        z = self.bridge(self.series(self.snapshot(features, mask), mask, **options))
        return jax.nn.relu(z) if self.spec.bridge == "relu" else z, mask


class Snapshots(nnx.Module):
    """Encoder of single snapshots, `[B, W, ...] -> [B, W, d]`: convolutions of a volume, or a word's hidden layer."""

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
        x = zero_at_padding(features, mask, self.dtype)
        if not self.spec.volume:
            return self.outer(act(self.inner(x)))
        x = x.reshape(-1, *self.spec.volume, 1)
        for number in range(len(self.spec.channels)):
            x = act(getattr(self, f"conv_{number}")(x))
        return self.outer(x.reshape(*mask.shape, -1))


class Series(nnx.Module):
    """Pre-norm transformer over the snapshots of a series, `[B, W, d] -> [B, W, d]`.

    Without a final norm it starts near the identity, so `Reconstruction` gets inputs like those it was trained on.
    """

    def __init__(self, spec: EEGSpec, dtype: jnp.dtype, rngs: nnx.Rngs) -> None:
        self.encoder = Stack(series_spec(spec), dtype, rngs)

    @jax.named_scope("series")
    def __call__(self, x: jax.Array, mask: jax.Array, **options) -> jax.Array:
        return self.encoder(x, mask, **options)


class Reconstruction(nnx.Module):
    """Decoder that reconstructs the input of `Snapshots`, with its layers reversed: `[B, W, d] -> [B, W, ...]`."""

    def __init__(self, spec: EEGSpec, dtype: jnp.dtype, rngs: nnx.Rngs) -> None:
        self.outer = nnx.Linear(spec.width, inner_width(spec), dtype=dtype, kernel_init=_HE, rngs=rngs)
        for number, (n_in, n_out) in enumerate(_pairs(spec)):
            setattr(self, f"conv_{number}", TransposedConvolution(n_out, n_in, dtype, rngs))
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
    """Return the description of the transformer over a series of snapshots."""
    return spec.stack(spec.width, activation=spec.activation, pre_norm=True, positions=spec.positions)


def inner_width(spec: EEGSpec) -> int:
    """Return the input width of a snapshot's last dense layer: values after all convolutions, or hidden units."""
    if not spec.volume:
        return spec.hidden
    return math.prod(halved(spec.volume, len(spec.channels))[-1]) * spec.channels[-1]


def snapshot_flops(spec: EEGSpec) -> float:
    """Return the FLOPs of `Snapshots` for one snapshot; `Reconstruction` takes as many."""
    total = 2.0 * inner_width(spec) * spec.width
    if not spec.volume:
        return total + 2.0 * spec.features * spec.hidden
    grids = halved(spec.volume, len(spec.channels))[1:]
    return total + sum(54.0 * a * b * math.prod(grid) for (a, b), grid in zip(_pairs(spec), grids, strict=True))


def _pairs(spec: EEGSpec) -> list[tuple[int, int]]:
    """Return (channels in, channels out) of each convolution; empty for words."""
    return list(zip((1, *spec.channels), spec.channels, strict=False)) if spec.volume else []
