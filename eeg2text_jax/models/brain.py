"""UniCoRN's encoder (Xi et al. 2023) as far as it is published, its pretraining, and encoders of words.

A snapshot is one volume or one word's features; `W` snapshots make a series. UniCoRN encodes each snapshot with one
network, and the series with a transformer. Both first learn to reconstruct their input, with a decoder that mirrors the
encoder and is then discarded. There is no public code: layers, widths, activation and positions are fields of the
configuration.
"""

import dataclasses
import functools
import math
from typing import Literal

import jax
import jax.numpy as jnp
from flax import nnx
from jax import Array, lax

from eeg2text_jax.base.cpu import convolve, convolve_back
from eeg2text_jax.base.errors import UserError
from eeg2text_jax.models._stack import Stack
from eeg2text_jax.models.layers import ACTIVATIONS, at_padding, draw_per_key, dropout, zero_at_padding
from eeg2text_jax.models.nnx_bridge import Keep, Params, PureModel, in_compute_dtype
from eeg2text_jax.models.spec import EEGSpec, StackSpec
from eeg2text_jax.models.waves import ENCODER_CLASSES

_LAYOUT = ("NXYZC", "XYZIO", "NXYZC")
TAPS = 27  # weights of a kernel, 3 x 3 x 3


class Convolution(nnx.Module):
    """Convolution `[N, X, Y, Z, C] -> [N, ceil(X/2), ceil(Y/2), ceil(Z/2), D]`: `torch.nn.Conv3d(C, D, 3, 2, 1)`.

    A `transposed` one is called with the `shape` of its result: `torch.nn.ConvTranspose3d(D, C, 3, 2, 1)`.
    """

    def __init__(self, n_in: int, n_out: int, dtype: jnp.dtype, rngs: nnx.Rngs, *, transposed: bool = False) -> None:
        # An output voxel of a transposed convolution is a sum over 27/8 weights of the kernel on average.
        ends, fan_in = ((n_out, n_in), TAPS * n_in / 8) if transposed else ((n_in, n_out), TAPS * n_in)
        draw = jax.random.normal(rngs.params(), (3, 3, 3, *ends), jnp.float32)
        self.kernel = nnx.Param(draw * math.sqrt(2.0 / fan_in))
        self.bias = nnx.Param(jnp.zeros((n_out,), jnp.float32))
        self.dtype = dtype

    def __call__(self, x: Array, shape: tuple[int, ...] | None = None) -> Array:
        kernel, bias = self.kernel[...].astype(self.dtype), self.bias[...].astype(self.dtype)
        on_cpu, usual = convolve, _convolve
        if shape is not None:
            on_cpu, usual = (functools.partial(function, shape=shape) for function in (convolve_back, _convolve_back))
        y = lax.platform_dependent(x.astype(self.dtype), kernel, cpu=on_cpu, default=usual)
        return y + bias.reshape(1, 1, 1, 1, -1)


def halved(shape: tuple[int, ...], times: int) -> list[tuple[int, ...]]:
    """Return a volume's shape before and after each convolution: (64, 64, 27), (32, 32, 14), ..."""
    return [tuple(-(-length // 2**n) for length in shape) for n in range(times + 1)]


def _convolve(x: Array, kernel: Array) -> Array:
    return lax.conv_general_dilated(x, kernel, (2, 2, 2), [(1, 1)] * 3, dimension_numbers=_LAYOUT)


def _convolve_back(x: Array, kernel: Array, shape: tuple[int, ...]) -> Array:
    turned = jnp.flip(kernel, (0, 1, 2)).swapaxes(3, 4)
    padding = [(1, 1 + (length + 1) % 2) for length in shape]
    return lax.conv_general_dilated(x, turned, (1, 1, 1), padding, (2, 2, 2), dimension_numbers=_LAYOUT)


_HE, _XAVIER = jax.nn.initializers.he_normal(), jax.nn.initializers.xavier_uniform()


class UnicornEncoder(nnx.Module):
    """`Snapshots` encodes each snapshot, `Series` their sequence; the bridge, a dense layer, comes last."""

    def __init__(self, spec: EEGSpec, d_model: int, dtype: jnp.dtype, rngs: nnx.Rngs) -> None:
        self.snapshot = Snapshots(spec, dtype, rngs)
        self.series = Series(spec, dtype, rngs)
        self.bridge = nnx.Linear(spec.width, d_model, dtype=dtype, kernel_init=_XAVIER, rngs=rngs)
        self.spec = spec

    def __call__(self, features: Array, mask: Array, **options) -> tuple[Array, Array]:
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
    def __call__(self, features: Array, mask: Array) -> Array:
        act = ACTIVATIONS[self.spec.activation]
        x = zero_at_padding(features, mask, self.dtype)
        if not self.spec.volume:
            return self.outer(act(self.inner(x)))
        x = x.reshape(-1, *self.spec.volume, 1)
        for number in range(len(self.spec.channels)):
            x = act(getattr(self, f"conv_{number}")(x))
        return self.outer(x.reshape(*mask.shape, -1))


class Series(nnx.Module):
    """Pre-norm transformer `[B, W, d] -> [B, W, d]`; without a final norm, it starts near the identity."""

    def __init__(self, spec: EEGSpec, dtype: jnp.dtype, rngs: nnx.Rngs) -> None:
        self.encoder = Stack(series_spec(spec), dtype, rngs)

    @jax.named_scope("series")
    def __call__(self, x: Array, mask: Array, **options) -> Array:
        return self.encoder(x, mask, **options)


class Reconstruction(nnx.Module):
    """Mirror of `Snapshots`, `[B, W, d] -> [B, W, ...]`, which reconstructs its input."""

    def __init__(self, spec: EEGSpec, dtype: jnp.dtype, rngs: nnx.Rngs) -> None:
        self.outer = nnx.Linear(spec.width, inner_width(spec), dtype=dtype, kernel_init=_HE, rngs=rngs)
        for number, (n_in, n_out) in enumerate(_pairs(spec)):
            setattr(self, f"conv_{number}", Convolution(n_out, n_in, dtype, rngs, transposed=True))
        if not spec.volume:
            self.inner = nnx.Linear(spec.hidden, spec.features, dtype=dtype, kernel_init=_XAVIER, rngs=rngs)
        self.spec = spec

    @jax.named_scope("mirror")
    def __call__(self, x: Array) -> Array:
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
    return spec.stack(spec.width, activation=spec.activation, pre_norm=True, positions=spec.positions)


def inner_width(spec: EEGSpec) -> int:
    """Return the input width of a snapshot's last dense layer."""
    last = halved(spec.volume, len(spec.channels))[-1]
    return math.prod(last) * spec.channels[-1] if spec.volume else spec.hidden


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


# The paper's transformer encoder and an LSTM encoder, and `make_encoder` for all.

DIRECTIONS = ("forward", "backward")


def make_encoder(spec: EEGSpec, d_model: int, dtype: jnp.dtype, rngs: nnx.Rngs) -> nnx.Module:
    """Return the brain encoder that `spec` describes, for a language model of width `d_model`.

    It maps word features `[B, W, F]`, volumes `[B, W, X, Y, Z]` or samples, and their mask `[B, W]`, to embeddings
    `[B, S, D]` and their mask `[B, S]`; it also takes keyword arguments of `Stack`.
    """
    # "none" is the transformer without layers: the bridge alone, the authors' naive model.
    classes = {
        "unicorn": UnicornEncoder, "lstm": LSTMEncoder, **dict.fromkeys(("transformer", "none"), TransformerEncoder),
        **ENCODER_CLASSES,
    }  # fmt: skip
    if spec.kind not in classes:
        raise UserError(f"config.model.encoder is {spec.kind!r}; expected one of {', '.join(classes)}.")
    return classes[spec.kind](spec, d_model, dtype, rngs)


def flat_features(features: Array, mask: Array, dtype: jnp.dtype) -> Array:
    """Return words `[B, W, F]`, or flattened volumes `[B, W, X, Y, Z]`, as `[B, W, F]` with 0 at padding."""
    return zero_at_padding(features, mask, dtype).reshape(*mask.shape, -1)


class TransformerEncoder(nnx.Module):
    """Post-norm transformer over the words, unless there are no layers, then the bridge, `relu(dense)`.

    As in the paper (section 2) and the authors' code, it has no position embeddings; the language model adds its own.
    """

    def __init__(self, spec: EEGSpec, d_model: int, dtype: jnp.dtype, rngs: nnx.Rngs) -> None:
        width = encoder_width(spec)
        if spec.width:
            self.project = nnx.Linear(spec.features, width, dtype=dtype, kernel_init=_XAVIER, rngs=rngs)
        if spec.layers:
            self.encoder = Stack(stack_spec(spec), dtype, rngs)
        self.bridge = nnx.Linear(width, d_model, dtype=dtype, kernel_init=_XAVIER, rngs=rngs)
        self.spec, self.dtype, self.padding = spec, dtype, width - spec.features

    def __call__(self, features: Array, mask: Array, **options) -> tuple[Array, Array]:
        x = flat_features(features, mask, self.dtype)
        if self.spec.width:
            x = self.project(x)
        elif self.padding:
            x = jnp.pad(x, ((0, 0), (0, 0), (0, self.padding)))
        if self.spec.layers:
            x = self.encoder(x, mask, **options)
        return jax.nn.relu(self.bridge(x)), mask


def encoder_width(spec: EEGSpec) -> int:
    """Return the transformer's width: as configured, or F rounded up to a multiple of the heads."""
    if not spec.layers:
        return spec.width or spec.features
    return spec.width or -(-spec.features // spec.heads) * spec.heads


def stack_spec(spec: EEGSpec) -> StackSpec:
    """Describe layers that compute what `torch.nn.TransformerEncoder` does."""
    return spec.stack(encoder_width(spec), activation="relu")


class LSTMEncoder(nnx.Module):
    """Bidirectional LSTM over the words, as in the R1 Translator (Murad et al. 2025, arXiv 2505.13936).

    Dropout is between the layers; the bridge comes last. The layers equal `torch.nn.LSTM` on packed sequences: padding
    does not change the state. Flax's cells keep a random stream among their parameters, which pure functions cannot.
    """

    def __init__(self, spec: EEGSpec, d_model: int, dtype: jnp.dtype, rngs: nnx.Rngs) -> None:
        hidden = hidden_width(spec)
        for number in range(spec.layers):
            width = spec.features if number == 0 else 2 * hidden
            for direction in DIRECTIONS:
                setattr(self, f"{direction}_{number}", Direction(width, hidden, dtype, rngs))
        self.bridge = nnx.Linear(2 * hidden, d_model, dtype=dtype, kernel_init=_XAVIER, rngs=rngs)
        self.spec, self.dtype = spec, dtype

    def __call__(
        self, features: Array, mask: Array, *, dropout_key: Array | None = None, **_: object
    ) -> tuple[Array, Array]:
        x = flat_features(features, mask, self.dtype)
        for number in range(self.spec.layers):
            if number:
                x = dropout(x, self.spec.dropout, dropout_key, site=number)
            forward, backward = (getattr(self, f"{direction}_{number}") for direction in DIRECTIONS)
            x = jnp.concatenate([forward(x, mask), backward(x, mask, reverse=True)], axis=-1)
        return jax.nn.relu(self.bridge(x)), mask


class Direction(nnx.Module):
    """One direction of one LSTM layer; gates in PyTorch's order: input, forget, cell, output."""

    def __init__(self, width: int, hidden: int, dtype: jnp.dtype, rngs: nnx.Rngs) -> None:
        init = jax.nn.initializers.uniform(2 * hidden**-0.5)  # PyTorch draws from -1/sqrt(hidden) to 1/sqrt(hidden)

        def centred(key: Array, shape: tuple[int, ...], dtype: jnp.dtype) -> Array:
            return init(key, shape, dtype) - jnp.asarray(hidden**-0.5, dtype)

        gates = {"dtype": dtype, "kernel_init": centred, "rngs": rngs}
        self.input = nnx.Linear(width, 4 * hidden, **gates)
        self.recurrent = nnx.Linear(hidden, 4 * hidden, use_bias=False, **gates)
        self.hidden, self.dtype = hidden, dtype

    def __call__(self, x: Array, mask: Array, *, reverse: bool = False) -> Array:
        """Return the outputs `[B, W, hidden]` of inputs `[B, W, n_in]`, 0 at padding; the state is float32."""
        driven = self.input(x).swapaxes(0, 1)  # --> [W, B, 4 hidden], all words at once
        nothing = jnp.zeros((x.shape[0], self.hidden), jnp.float32)

        def step(state: tuple, inputs: tuple) -> tuple[tuple, Array]:
            (h, c), (gates, real) = state, inputs
            gates = (gates + self.recurrent(h.astype(self.dtype))).astype(jnp.float32)
            i, f, g, o = jnp.split(gates, 4, axis=-1)
            after = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
            out = jax.nn.sigmoid(o) * jnp.tanh(after)
            real = real[:, None]
            return (jnp.where(real, out, h), jnp.where(real, after, c)), jnp.where(real, out, 0.0).astype(self.dtype)

        out = lax.scan(step, (nothing, nothing), (driven, mask.swapaxes(0, 1)), reverse=reverse)[1]
        return out.swapaxes(0, 1)


def hidden_width(spec: EEGSpec) -> int:
    """Return the number of LSTM units in one direction."""
    return spec.width or spec.features


Of = Literal["snapshot", "series"]


class _Network(nnx.Module):
    """What a pretraining stage trains: parts of the encoder, named as in the whole network, and a mirror."""

    def __init__(self, spec: EEGSpec, of: Of, dtype: jnp.dtype, rngs: nnx.Rngs) -> None:
        self.eeg = nnx.Dict(snapshot=Snapshots(spec, dtype, rngs))
        if of == "series":
            self.eeg["series"] = Series(spec, dtype, rngs)
        self.mirror = Reconstruction(spec, dtype, rngs)


@dataclasses.dataclass(frozen=True)
class ReconstructionModel(PureModel):
    """Encoder and decoder of a pretraining stage as pure functions of their parameters."""

    eeg: EEGSpec
    of: Of  # "snapshot" reconstructs snapshots one by one, "series" passes them through the transformer first
    pad_token: int  # pads the labels of batches, which reconstruction does not read
    hidden_share: float = 0.0  # "series": share of snapshots that are zeroed, and alone enter the loss; 0: all enter it
    dtype: str = "float32"
    remat: bool = False
    keep: Keep = "products"

    def reconstruct(
        self, params: Params, features: Array, mask: Array, *, dropout_key: Array | None = None
    ) -> tuple[Array, Array]:
        """Return reconstructed recordings, float32 `[B, W, ...]`, and the mask `[B, W]` of snapshots in the loss."""
        network = self._module(in_compute_dtype(params, jnp.dtype(self.dtype), layers=not self.remat))
        x, judged = network.eeg.snapshot(features, mask), mask
        if self.of == "series":
            key = None if dropout_key is None else jax.random.fold_in(dropout_key, 0)
            if self.hidden_share:
                hidden = self._hidden(mask, dropout_key)
                x, judged = jnp.where(at_padding(hidden, x.ndim), jnp.zeros((), x.dtype), x), hidden
            x = network.eeg.series(x, mask, dropout_key=key, remat=self.keep if self.remat else None)
        return network.mirror(x), judged

    def _hidden(self, mask: Array, key: Array | None) -> Array:
        """Draw which snapshots `[B, W]` to hide, at least one per recording; without a key (dev), the same."""
        key = jax.random.key(0) if key is None else jax.random.fold_in(key, 1)
        places = draw_per_key(lambda key: jax.random.uniform(key, mask.shape), key)
        lowest = jnp.where(mask, places, 1.0).min(axis=1, keepdims=True)
        return mask & ((places < self.hidden_share) | (places == lowest))

    def _make(self) -> functools.partial:
        return functools.partial(_Network, self.eeg, self.of, jnp.dtype(self.dtype))
