"""A sample's own EEG, rearranged along its words: keeps its statistics, destroys which word is where."""

import jax
import jax.numpy as jnp

from eeg2text_jax.conditions.context import ConditionContext, sample_keys

_PHASES = 4  # apart from the purposes in noise.py


def time_reversed(features: jax.Array, mask: jax.Array, context: ConditionContext) -> jax.Array:
    """The words in reverse order `[B, W, F]`: keeps every word's features, destroys their order."""
    words = jnp.arange(mask.shape[1], dtype=jnp.int32)
    index = jnp.clip(_lengths(mask)[:, None] - 1 - words[None], 0)  # --> [B, W]
    return jnp.take_along_axis(features, index[:, :, None], axis=1)


def phase_randomized(features: jax.Array, mask: jax.Array, context: ConditionContext) -> jax.Array:
    """Fourier surrogates along the words `[B, W, F]` (Theiler et al. 1992; multivariate, Prichard & Theiler 1994).

    Over the real words of a sample every feature keeps its mean, variance and amplitude spectrum, and pairs of
    features their cross-spectrum, since all features of a frequency are turned by the same phase. Which word is
    where, and what phases tell beyond that, is destroyed. A sample of one word has no phase and stays as it is.
    """
    keys = sample_keys(context, _PHASES)
    uniform = jax.vmap(lambda key: jax.random.uniform(key, mask.shape[1:]))(keys)
    words = jnp.arange(mask.shape[1], dtype=jnp.int32)
    length = _lengths(mask)[:, None, None]  # --> [B, 1, 1]
    # Turning the phases is a circular convolution over the sample's length, whose kernel holds the phases:
    # static shapes whatever the length, and real numbers only.
    kernel = _kernel(uniform, length[:, :, 0])  # --> [B, W]
    lag = (words[None, :, None] - words[None, None, :]) % length  # --> [B, W, W]
    circulant = jnp.take_along_axis(kernel[:, None, :], lag, axis=2)
    real = jnp.where(mask[:, :, None], features, 0)
    return jnp.einsum("bwv,bvf->bwf", circulant, real.astype(circulant.dtype), precision=jax.lax.Precision.HIGHEST)


def _kernel(uniform: jax.Array, length: jax.Array) -> jax.Array:
    """Inverse DFT over `length [B, 1]` of `exp(i phase)`, whose phases come from `uniform [B, W]`; real `[B, W]`."""
    frequency = jnp.arange(uniform.shape[1], dtype=jnp.int32)[None]  # --> [1, W]
    mirror = jnp.clip(length - frequency, 0, uniform.shape[1] - 1)
    phase = jnp.where(
        2 * frequency < length,
        2 * jnp.pi * uniform,
        -2 * jnp.pi * jnp.take_along_axis(uniform, mirror, axis=1),  # a real result: phase[-k] = -phase[k]
    )
    phase = jnp.where(2 * frequency == length, jnp.pi * jnp.round(uniform), phase)  # the highest one: a sign
    phase = jnp.where(frequency == 0, 0.0, phase)  # the mean stays
    turns = (frequency[:, :, None] * frequency[:, None, :]) % length[:, :, None]  # [B, lag, frequency], exact
    angle = 2 * jnp.pi * turns.astype(uniform.dtype) / length[:, :, None].astype(uniform.dtype)
    waves = jnp.where((frequency < length)[:, None, :], jnp.cos(angle + phase[:, None, :]), 0.0)
    return waves.sum(axis=2) / length.astype(uniform.dtype)


def _lengths(mask: jax.Array) -> jax.Array:
    """Real words of every sample, int32 `[B]`; at least 1, so that an all-padding row divides by something."""
    return jnp.maximum(mask.sum(axis=1, dtype=jnp.int32), 1)
