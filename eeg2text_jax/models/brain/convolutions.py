"""Convolutions of volumes that halve every axis, and their mirrors: channels last, kernel 3, stride 2, padding 1."""

import functools
import math

import jax
import jax.numpy as jnp
from flax import nnx
from jax import lax

from eeg2text_jax.cpu import convolve, convolve_back

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
    """The grid before and after each of some convolutions: 64 x 64 x 27, 32 x 32 x 14, 16 x 16 x 7, ..."""
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
