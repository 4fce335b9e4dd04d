"""Constants in the place of EEG: what the number of words, or the subject, gives away on its own."""

import jax
import jax.numpy as jnp

from eeg2text_jax.conditions.context import ConditionContext


def zero(features: jax.Array, mask: jax.Array, context: ConditionContext) -> jax.Array:
    """Zeros `[B, W, F]`: keeps the number of words. The same as `length_only` where features are standardized."""
    return jnp.zeros_like(features)


def length_only(features: jax.Array, mask: jax.Array, context: ConditionContext) -> jax.Array:
    """The mean word of the train part at every word `[B, W, F]`: keeps the number of words, on the data's scale."""
    return jnp.broadcast_to(context.means[-1][None, None], features.shape)


def subject_mean(features: jax.Array, mask: jax.Array, context: ConditionContext) -> jax.Array:
    """The subject's mean word in the train part at every word `[B, W, F]`: keeps the subject and number of words."""
    return jnp.broadcast_to(context.means[context.subject][:, None], features.shape)
