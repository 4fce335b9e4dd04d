"""Noise in the place of EEG: keeps the number of words, destroys everything else."""

import jax

from eeg2text_jax.conditions.context import ConditionContext, sample_keys

# What keeps the draws of different conditions apart for the same sample.
_FIXED, _REDRAWN, _UNIFORM = 1, 2, 3


def noise(features: jax.Array, mask: jax.Array, context: ConditionContext) -> jax.Array:
    """Standard normal `[B, W, F]`, drawn once for each sample, as the authors of the noise study do."""
    return _draw(jax.random.normal, sample_keys(context, _FIXED), features)


def noise_redrawn(features: jax.Array, mask: jax.Array, context: ConditionContext) -> jax.Array:
    """Standard normal `[B, W, F]`, another draw at every step: nothing to memorize a sentence by."""
    keys = jax.vmap(jax.random.fold_in, (0, None))(sample_keys(context, _REDRAWN), context.step)
    return _draw(jax.random.normal, keys, features)


def noise_uniform(features: jax.Array, mask: jax.Array, context: ConditionContext) -> jax.Array:
    """Uniform in [0, 1) `[B, W, F]`, as the first EEG-to-text code; there redrawn in every batch, here fixed."""
    return _draw(jax.random.uniform, sample_keys(context, _UNIFORM), features)


def _draw(distribution, keys: jax.Array, features: jax.Array) -> jax.Array:
    return jax.vmap(lambda key: distribution(key, features.shape[1:]))(keys)
