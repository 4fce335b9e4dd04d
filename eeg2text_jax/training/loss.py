"""Cross entropy over the target tokens that are there."""

import jax
import jax.numpy as jnp


def token_losses(logits: jax.Array, labels: jax.Array, label_smoothing: float = 0.0) -> jax.Array:
    """Negative log-likelihood of every label in nats, float32 `[B, T]`.

    Args:
      logits: float32 `[B, T, V]`.
      labels: int32 `[B, T]`.
      label_smoothing: share of the target distribution spread evenly over the vocabulary.
    """
    log_probs = jax.nn.log_softmax(logits.astype(jnp.float32))
    losses = -jnp.take_along_axis(log_probs, labels[..., None], axis=-1)[..., 0]
    if label_smoothing:
        losses = (1 - label_smoothing) * losses - label_smoothing * log_probs.mean(axis=-1)
    return losses


def summed_loss(
    logits: jax.Array, labels: jax.Array, weight: jax.Array, pad_token: int, label_smoothing: float = 0.0
) -> tuple[jax.Array, jax.Array]:
    """Summed loss over the real tokens of the real rows, and their number (both float32 scalars).

    Args:
      logits: `[B, T, V]`.
      labels: int32 `[B, T]`, padded with `pad_token`.
      weight: float32 `[B]`, 0 for rows that only fill the batch.
    """
    counted = (labels != pad_token).astype(jnp.float32) * weight[:, None]  # [B, T]
    return jnp.sum(token_losses(logits, labels, label_smoothing) * counted), jnp.sum(counted)
