"""Encoders of waves: samples `[B, W, F]` of F channels, whose mask `[B, W]` is True at a recording's samples.

`conv` and `whisper` are convolutions over all channels and a transformer over time, as in Whisper (Radford et al.
2022). LaBraM (Jiang et al. 2024), CBraMod (Wang et al. 2025) and REVE (El Ouahidi et al. 2025) cut each channel into
patches, the positions of their transformers, and compute what braindecode's models compute, whose weights they read
(`models.pretrained.wave_folder`). Those know no padding; here samples after a recording's end change nothing: they are
0 for convolutions, hidden from attention and left out of the statistics of norms.
"""

import dataclasses
import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax import Array, lax

from eeg2text_jax.base.devices.mesh import shard_rows
from eeg2text_jax.models._stack import Stack, dropout_keys
from eeg2text_jax.models.attention import Attention, padding_bias
from eeg2text_jax.models.layers import FeedForward, Norm, at_padding, dropout, gelu, make_dense, zero_at_padding
from eeg2text_jax.models.nnx_bridge import scan_layers, stack_layers
from eeg2text_jax.models.spec import EEGSpec, PatchConvolution, StackSpec, WaveSpec

TAPS = 3  # of the convolutions over channels
# Channels in the order of LaBraM's table of positions, whose row 0 is that of its first token.
_NAMES = (
    "FP1 FPZ FP2 AF9 AF7 AF5 AF3 AF1 AFZ AF2 AF4 AF6 AF8 AF10 F9 F7 F5 F3 F1 FZ F2 F4 F6 F8 F10 FT9 FT7 FC5 FC3 FC1 "
    "FCZ FC2 FC4 FC6 FT8 FT10 T9 T7 C5 C3 C1 CZ C2 C4 C6 T8 T10 TP9 TP7 CP5 CP3 CP1 CPZ CP2 CP4 CP6 TP8 TP10 P9 P7 P5 "
    "P3 P1 PZ P2 P4 P6 P8 P10 PO9 PO7 PO5 PO3 PO1 POZ PO2 PO4 PO6 PO8 PO10 O1 OZ O2 O9 CB1 CB2 IZ O10 T3 T5 T4 T6 M1 "
    "M2 A1 A2 CFC1 CFC2 CFC3 CFC4 CFC5 CFC6 CFC7 CFC8 CCP1 CCP2 CCP3 CCP4 CCP5 CCP6 CCP7 CCP8 T1 T2 FTT9H TTP7H TPP9H "
    "FTT10H TPP8H TPP10H FP1-F7 F7-T7 T7-P7 P7-O1 FP2-F8 F8-T8 T8-P8 P8-O2"
)
LABRAM_CHANNELS = tuple(_NAMES.split())
NEIGHBORS = (19, 7)  # CBraMod: channels and patches that its position convolution reads


class Convolution(nnx.Module):
    """Convolution along time, `[..., T, C] -> [..., T', D]`, as a matrix product: XLA:CPU has no fast one."""

    def __init__(
        self,
        n_in: int,
        n_out: int,
        dtype: jnp.dtype,
        rngs: nnx.Rngs,
        *,
        taps: int = TAPS,
        stride: int = 1,
        padding: int = 1,
        planar: bool = False,
    ) -> None:
        shape = (taps, *((1,) if planar else ()), n_in, n_out)
        self.kernel = nnx.Param(jax.random.normal(rngs.params(), shape, jnp.float32) * (taps * n_in / 2.0) ** -0.5)
        self.bias = nnx.Param(jnp.zeros((n_out,), jnp.float32))
        self.taps, self.stride, self.padding, self.dtype = taps, stride, padding, dtype

    def __call__(self, x: Array) -> Array:
        x = jnp.pad(x.astype(self.dtype), [(0, 0)] * (x.ndim - 2) + [(self.padding, self.padding), (0, 0)])
        last = x.shape[-2] - self.taps
        read = [lax.slice_in_dim(x, t, t + last + 1, self.stride, axis=x.ndim - 2) for t in range(self.taps)]
        kernel = self.kernel[...].astype(self.dtype).reshape(-1, self.bias.shape[0])
        bias = self.bias[...].astype(self.dtype).reshape(*(1,) * (x.ndim - 1), -1)
        return jnp.concatenate(read, axis=-1) @ kernel + bias


def shorter(length: int, strides: Sequence[int]) -> int:
    """Return the number of positions of `length` samples after convolutions with these strides."""
    for stride in strides:
        length = -(-length // stride)
    return length


class Downsampling(nnx.Module):
    """Convolution over channels and GELU, `[B, W, C] -> [B, ceil(W / stride), D]`, with the mask; 0 at padding."""

    def __init__(self, n_in: int, n_out: int, stride: int, dtype: jnp.dtype, rngs: nnx.Rngs) -> None:
        self.convolution, self.stride = Convolution(n_in, n_out, dtype, rngs, stride=stride), stride

    def __call__(self, x: Array, mask: Array) -> tuple[Array, Array]:
        mask = mask[:, :: self.stride]
        return zero_at_padding(gelu(self.convolution(x)), mask, x.dtype), mask


class ConvEncoder(nnx.Module):
    """Convolutions over all channels, then a transformer over time and the bridge, if the spec has them.

    Without both it replaces the first convolution of a Whisper (Yang et al. 2024, NeuSpeech).
    """

    def __init__(self, spec: EEGSpec, d_model: int, dtype: jnp.dtype, rngs: nnx.Rngs) -> None:
        waves, n_in = spec.waves, spec.features
        for number, stride in enumerate(waves.strides):
            setattr(self, f"conv_{number}", Downsampling(n_in, waves.stack.width, stride, dtype, rngs))
            n_in = waves.stack.width
        if waves.stack.layers:
            self.encoder = Stack(waves.stack, dtype, rngs)
        if spec.bridge != "none":
            self.bridge = _bridge(n_in, d_model, dtype, rngs)
        self.spec, self.dtype = spec, dtype

    def __call__(self, samples: Array, mask: Array, **options) -> tuple[Array, Array]:
        """Return embeddings `[B, S, D]` and the mask `[B, S]`, S = `shorter(W, strides)`."""
        x = zero_at_padding(samples, mask, self.dtype)
        for number in range(len(self.spec.waves.strides)):
            x, mask = getattr(self, f"conv_{number}")(x, mask)
        x = self.encoder(x, mask, **options) if self.spec.waves.stack.layers else x
        return (self.bridge(x) if self.spec.bridge != "none" else x), mask


def _bridge(n_in: int, d_model: int, dtype: jnp.dtype, rngs: nnx.Rngs) -> nnx.Linear:
    return nnx.Linear(n_in, d_model, dtype=dtype, kernel_init=jax.nn.initializers.xavier_uniform(), rngs=rngs)


def count_patches(waves: WaveSpec, length: int) -> int:
    """Return the number of patches of `length` samples, the last filled up with zeros."""
    step = waves.patch - waves.overlap
    return 1 + max(0, -(-(length - waves.patch) // step))


def cut(waves: WaveSpec, samples: Array, mask: Array, dtype: jnp.dtype) -> tuple[Array, Array]:
    """Return patches `[B, C, P, patch]` of the C channels used, and the mask `[B, P]` of patches with a sample."""
    length, step = mask.shape[1], waves.patch - waves.overlap
    count = count_patches(waves, length)
    x = zero_at_padding(samples, mask, dtype)
    if waves.used != tuple(range(x.shape[2])):
        x = x[:, :, np.asarray(waves.used)]
    # What a patch shares with the one before it does not make it real: a recording of one patch has one.
    own = np.arange(count) * step + waves.overlap
    own[0] = 0
    real = mask[:, np.minimum(own, length - 1)] & (own < length)[None]
    x = jnp.pad(x, ((0, 0), (0, max(0, (count - 1) * step + waves.patch - length)), (0, 0))).swapaxes(1, 2)
    pieces = [lax.slice_in_dim(x, p * step, p * step + waves.patch, axis=2) for p in range(count)]
    return jnp.stack(pieces, axis=2), real


class PatchEncoder(nnx.Module):
    """An encoder of patches without its classifier, then the bridge; `tokens` computes all but the bridge."""

    spec: EEGSpec
    bridge: nnx.Linear

    def __call__(self, samples: Array, mask: Array, **options) -> tuple[Array, Array]:
        """Return embeddings `[B, S, D]` and mask `[B, S]` of the means over channels, or of every channel."""
        x, real = self.tokens(samples, mask, **options)
        if self.spec.waves.pooled:
            return self.bridge(x.mean(axis=1)), real
        return self.bridge(x.reshape(x.shape[0], -1, x.shape[-1])), jnp.tile(real, (1, x.shape[1]))

    def tokens(self, samples: Array, mask: Array, **options) -> tuple[Array, Array]:
        """Return the patches `[B, C, P, E]` after all layers, and the mask `[B, P]`."""
        raise NotImplementedError


class GroupNorm(nnx.Module):
    """Group norm of `[B, N, T, C]` whose statistics leave out rows N where `real` is False."""

    def __init__(self, width: int, groups: int, dtype: jnp.dtype) -> None:
        self.scale, self.bias = nnx.Param(jnp.ones((width,))), nnx.Param(jnp.zeros((width,)))
        self.groups, self.dtype = groups, dtype

    def __call__(self, x: Array, real: Array) -> Array:
        wide = x.astype(jnp.float32).reshape(*x.shape[:3], self.groups, -1)
        weight = at_padding(real, wide.ndim).astype(jnp.float32)
        count = weight.sum(axis=1, keepdims=True) * float(wide.shape[2] * wide.shape[4])
        of = partial(jnp.sum, axis=(1, 2, 4), keepdims=True)
        wide = wide - of(wide * weight) / jnp.maximum(count, 1.0)
        power = of(jnp.square(wide) * weight) / jnp.maximum(count, 1.0)
        y = (wide * lax.rsqrt(power + 1e-5)).reshape(x.shape)
        scale, bias = (part[...].astype(jnp.float32).reshape(1, 1, 1, -1) for part in (self.scale, self.bias))
        return (y * scale + bias).astype(self.dtype)


class PatchStem(nnx.Module):
    """Convolutions along the samples of each patch with norm and GELU, `[B, C, P, patch] -> [B, C, P, T, filters]`."""

    def __init__(self, convolutions: Sequence[PatchConvolution], dtype: jnp.dtype, rngs: nnx.Rngs) -> None:
        n_in = 1
        for number, (filters, taps, stride, padding, groups) in enumerate(convolutions):
            sizes: dict[str, Any] = {"taps": taps, "stride": stride, "padding": padding, "planar": True}
            setattr(self, f"conv_{number}", Convolution(n_in, filters, dtype, rngs, **sizes))
            setattr(self, f"norm_{number}", GroupNorm(filters, groups, dtype))
            n_in = filters
        self.count = len(convolutions)

    def __call__(self, patches: Array, mask: Array) -> Array:
        batch, channels, count, _ = patches.shape
        real, x = jnp.tile(mask, (1, channels)), patches.reshape(batch, channels * count, -1, 1)
        for number in range(self.count):
            x = gelu(getattr(self, f"norm_{number}")(getattr(self, f"conv_{number}")(x), real))
        return x.reshape(batch, channels, count, *x.shape[2:])


def stem_length(length: int, convolutions: Sequence[PatchConvolution]) -> int:
    """Return how many values each filter of `PatchStem` makes of a patch of `length` samples."""
    for each in convolutions:
        length = (length + 2 * each.padding - each.taps) // each.stride + 1
    return length


class LabramEncoder(PatchEncoder):
    """LaBraM's neural tokenizer; its first patch has row 0 of the table of times, as in braindecode."""

    def __init__(self, spec: EEGSpec, d_model: int, dtype: jnp.dtype, rngs: nnx.Rngs) -> None:
        waves = spec.waves
        width = waves.stack.width

        def table(rows: int) -> nnx.Param:
            return nnx.Param(jax.random.normal(rngs.params(), (rows, width), jnp.float32) * 0.02)

        self.stem = PatchStem(waves.convolutions, dtype, rngs)
        self.first, self.times = table(1), table(waves.times)
        if waves.rows:
            self.places = table(len(LABRAM_CHANNELS) + 1)
        self.encoder = Stack(waves.stack, dtype, rngs)
        self.bridge = _bridge(width, d_model, dtype, rngs)
        self.spec, self.dtype = spec, dtype

    def tokens(self, samples: Array, mask: Array, **options) -> tuple[Array, Array]:
        waves = self.spec.waves
        patches, real = cut(waves, samples, mask, self.dtype)
        x = self.stem(patches, real)
        x = x.reshape(*x.shape[:3], -1) + self.times[: x.shape[2]].astype(self.dtype)[None, None]
        first = jnp.broadcast_to(self.first[...].astype(self.dtype)[None], (x.shape[0], 1, x.shape[-1]))
        if waves.rows:
            x = x + self.places[...][np.asarray(waves.rows)].astype(self.dtype)[None, :, None]
            first = first + self.places[:1].astype(self.dtype)[None]
        seen = jnp.concatenate([jnp.ones_like(real[:, :1]), jnp.tile(real, (1, x.shape[1]))], axis=1)
        tokens = jnp.concatenate([first, x.reshape(x.shape[0], -1, x.shape[-1])], axis=1)
        return self.encoder(tokens, seen, **options)[:, 1:].reshape(x.shape), real


class CrissCross(nnx.Module):
    """CBraMod's layer: half of the features attend to the channels of a time, half to the times of a channel."""

    def __init__(self, spec: StackSpec, dtype: jnp.dtype, rngs: nnx.Rngs) -> None:
        half = dataclasses.replace(spec, width=spec.width // 2, heads=spec.heads // 2)
        self.channels, self.times = (Attention(half, dtype, rngs) for _ in range(2))
        self.self_norm, self.ffn_norm = Norm(spec, dtype), Norm(spec, dtype)
        self.ffn, self.rate = FeedForward(spec, dtype, rngs), spec.dropout

    def __call__(self, x: Array, seen: Array, key: Array | None) -> Array:
        """Apply the layer to `x [B, C, P, E]`; `seen [1, B * C, 1, P]` is the bias that masks patches."""
        (batch, channels, count, _), sites = x.shape, [None] * 4 if key is None else key
        of_channel, of_time = jnp.split(self.self_norm(x), 2, axis=-1)
        everyone = jnp.zeros((1, 1, 1, channels), jnp.float32)
        rows = of_channel.swapaxes(1, 2).reshape(batch * count * channels, -1)
        rows = self.channels(rows, rows, batch * count, (everyone,), sites[0])
        of_channel = rows.reshape(batch, count, channels, -1).swapaxes(1, 2)
        rows = of_time.reshape(batch * channels * count, -1)
        of_time = self.times(rows, rows, batch * channels, (seen,), sites[1]).reshape(of_channel.shape)
        x = x + dropout(jnp.concatenate([of_channel, of_time], axis=-1), self.rate, sites[2], site=1)
        rows = self.ffn(self.ffn_norm(x).reshape(-1, x.shape[-1]), sites[3])
        return shard_rows(x + dropout(rows, self.rate, sites[3], site=1).reshape(x.shape))


class CbramodEncoder(PatchEncoder):
    """CBraMod: convolutions and the spectrum of each patch, then layers of `CrissCross`."""

    def __init__(self, spec: EEGSpec, d_model: int, dtype: jnp.dtype, rngs: nnx.Rngs) -> None:
        waves = spec.waves
        stack, width = waves.stack, waves.stack.width
        self.stem = PatchStem(waves.convolutions, dtype, rngs)
        self.spectrum = make_dense(stack, waves.patch // 2 + 1, width, dtype, rngs)
        draw = jax.random.normal(rngs.params(), (*NEIGHBORS[::-1], 1, width), jnp.float32)
        self.positions = nnx.Dict(
            kernel=nnx.Param(draw * math.prod(NEIGHBORS) ** -0.5), bias=nnx.Param(jnp.zeros(width))
        )
        self.layers = stack_layers(lambda r: CrissCross(stack, dtype, r), rngs.params(), stack.layers)
        self.output = make_dense(stack, width, waves.outputs, dtype, rngs)
        self.bridge = _bridge(waves.outputs, d_model, dtype, rngs)
        self.spec, self.dtype = spec, dtype

    def tokens(
        self, samples: Array, mask: Array, *, dropout_key: Array | None = None, **options: Any
    ) -> tuple[Array, Array]:
        waves = self.spec.waves
        patches, real = cut(waves, samples, mask, self.dtype)
        start, _, keys = dropout_keys(dropout_key, waves.stack.layers, 4)
        x = self.stem(patches, real).swapaxes(-1, -2)  # a filter's outputs are side by side
        spectrum = jnp.abs(jnp.fft.rfft(patches.astype(jnp.float32), norm="forward")).astype(self.dtype)
        x = x.reshape(*x.shape[:3], -1) + dropout(self.spectrum(spectrum), waves.stack.dropout, start)
        x = jnp.where(real[:, None, :, None], x, jnp.zeros((), x.dtype))  # as at the end of a recording
        x = shard_rows(x + self._near(x))

        def body(layer: CrissCross, x: Array, key: Array | None, seen: Array) -> Array:
            return layer(x, lax.stop_gradient(seen), key)

        seen = jnp.repeat(padding_bias(real), x.shape[1], axis=0).swapaxes(0, 1)
        return self.output(scan_layers(self.layers, body, x, keys, seen, dtype=self.dtype, **options)), real

    def _near(self, x: Array) -> Array:
        """Return position embeddings `[B, C, P, E]`: a convolution of each feature over channels and patches.

        It is a product, as XLA:CPU's convolution with its gradient takes 20 times as long (16 channels).
        """
        kernel, bias = (self.positions[name][...].astype(self.dtype) for name in ("kernel", "bias"))
        (rows, columns), (_, channels, count, _) = NEIGHBORS, x.shape
        offset = np.arange(channels)[None, :] - np.arange(channels)[:, None] + rows // 2  # from each channel to each
        inside = (offset >= 0) & (offset < rows)
        weights = kernel[:, np.clip(offset, 0, rows - 1), 0]  # --> [7, C, C, E]
        weights = jnp.where(inside[None, :, :, None], weights, jnp.zeros((), x.dtype))
        x = jnp.pad(x, ((0, 0), (0, 0), (columns // 2, columns // 2), (0, 0)))
        beside = jnp.stack([x[:, :, j : j + count] for j in range(columns)], axis=3)
        return jnp.einsum("jace,bcpje->bape", weights, beside) + bias.reshape(1, 1, 1, -1)


class ReveEncoder(PatchEncoder):
    """REVE: a dense layer of each patch, embeddings of its place in space and time, a transformer over all."""

    def __init__(self, spec: EEGSpec, d_model: int, dtype: jnp.dtype, rngs: nnx.Rngs) -> None:
        waves = spec.waves
        plain = dataclasses.replace(waves.stack, norm="layer", norm_eps=1e-5, bias=True)
        self.patch = make_dense(plain, waves.patch, waves.stack.width, dtype, rngs)
        self.place = nnx.Linear(4, waves.stack.width, use_bias=False, dtype=dtype, rngs=rngs)
        self.place_norm, self.norm = Norm(plain, dtype), Norm(plain, dtype)
        self.encoder = Stack(waves.stack, dtype, rngs)
        self.bridge = _bridge(waves.stack.width, d_model, dtype, rngs)
        self.spec, self.dtype = spec, dtype

    def tokens(self, samples: Array, mask: Array, **options) -> tuple[Array, Array]:
        waves = self.spec.waves
        patches, real = cut(waves, samples, mask, self.dtype)
        places, embedded = (jnp.asarray(each, self.dtype) for each in places_in_time(waves, patches.shape[2]))
        where = self.norm(embedded + self.place_norm(gelu(self.place(places))))  # --> [C, P, E]
        x = self.patch(patches) + where[None]
        seen = jnp.tile(real, (1, x.shape[1]))
        return self.encoder(x.reshape(x.shape[0], -1, x.shape[-1]), seen, **options).reshape(x.shape), real


def places_in_time(waves: WaveSpec, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return x, y, z and number of each patch, float32 `[C, P, 4]`, and their embedding `[C, P, E]`.

    It has the cosines and sines of all combinations of frequencies along these four axes.
    """
    margin, of_time = 0.4, 0.1  # REVE's: added to every coordinate; a patch's number is multiplied
    places = np.empty((len(waves.places), count, 4), np.float32)
    places[..., :3], places[..., 3] = np.array(waves.places)[:, None], np.arange(count)
    scaled = places * np.array([1, 1, 1, of_time], np.float32) + np.float32(margin)
    rates = (2 * math.pi * np.arange(waves.frequencies) / (1 + 2 * margin)).astype(np.float32)
    angles = np.zeros((*places.shape[:2], 1), np.float32)
    for axis in range(4):  # the last axis varies fastest
        angles = (angles[..., None] + scaled[..., axis, None, None] * rates).reshape(*places.shape[:2], -1)
    angles = angles[..., : waves.stack.width // 2]
    return places, np.concatenate([np.cos(angles), np.sin(angles)], axis=-1)


ENCODER_CLASSES = {
    "conv": ConvEncoder, "whisper": ConvEncoder, "labram": LabramEncoder, "cbramod": CbramodEncoder, "reve": ReveEncoder
}  # fmt: skip


def positions_of(eeg: EEGSpec, words: int) -> int:
    """Return how many positions a recording of `words` words, or samples, has in the language model."""
    waves = eeg.waves
    if waves is None:
        return words
    if waves.strides:
        return shorter(words, waves.strides)
    return count_patches(waves, words) * (1 if waves.pooled else len(waves.used))
