"""Training losses: token cross-entropy, and reconstruction error."""

from typing import Any

import jax
import jax.numpy as jnp

from eeg2text_jax.cpu import summed_by_blocks
from eeg2text_jax.models.encoder_decoder import logits_of
from eeg2text_jax.parallel.mesh import shard_rows

BLOCK = 1 << 26  # bytes of float32 logits in one block of `summed_loss_by_blocks`


def token_losses(logits: jax.Array, labels: jax.Array, label_smoothing: float = 0.0) -> jax.Array:
    """Return the negative log-likelihood in nats of labels `[B, T]` under logits `[B, T, V]`, float32 `[B, T]`.

    `label_smoothing` is the share of the target distribution spread evenly over the vocabulary.
    """
    logits = shard_rows(logits.astype(jnp.float32))
    log_norm = jax.nn.logsumexp(logits, axis=-1)
    # A masked sum, because XLA may partition a gather from sharded logits across the arms.
    chosen = labels[..., None] == jnp.arange(logits.shape[-1], dtype=labels.dtype).reshape(*[1] * labels.ndim, -1)
    losses = log_norm - jnp.sum(jnp.where(chosen, logits, 0.0), axis=-1)
    if label_smoothing:
        losses = (1 - label_smoothing) * losses + label_smoothing * (log_norm - logits.mean(axis=-1))
    return losses


@jax.named_scope("head_loss")
def summed_loss(
    logits: jax.Array, labels: jax.Array, weight: jax.Array, pad_token: int, label_smoothing: float = 0.0
) -> tuple[jax.Array, jax.Array]:
    """Return the loss summed over all tokens of a batch but padding, and their number (float32 scalars).

    `labels [B, T]` are padded with `pad_token`; `weight [B]` is 0 for padding rows.
    """
    counted = _counted(labels, weight, pad_token)
    return jnp.sum(token_losses(logits, labels, label_smoothing) * counted), jnp.sum(counted)


@jax.named_scope("head_loss")
def summed_loss_by_blocks(
    x: jax.Array,
    table: jax.Array,
    bias: jax.Array | None,
    cap: float = 0.0,
    *,
    labels: jax.Array,
    weight: jax.Array,
    pad_token: int,
    label_smoothing: float = 0.0,
) -> tuple[jax.Array, jax.Array]:
    """Return `summed_loss` of `logits_of(x, table, bias, cap)` without holding the logits of all positions in memory.

    `x [B, T, D]` are the decoder's hidden states; `table [V, D]` and `bias [V]` are parameters of the output head.
    """

    def of_block(head: Any, x: jax.Array, rows: tuple[jax.Array, jax.Array]) -> jax.Array:
        labels, counted = (leaf.reshape(-1) for leaf in rows)
        table, bias = head
        logits = logits_of(x.reshape(-1, x.shape[-1]), table, bias, cap)
        return jnp.sum(token_losses(logits, labels, label_smoothing) * counted)

    counted = _counted(labels, weight, pad_token)
    length, smallest = labels.shape[1], -(-4 * labels.size * len(table) // BLOCK)
    blocks = next((n for n in range(smallest, length) if length % n == 0), length)
    return summed_by_blocks(of_block, (table, bias), x, (labels, counted), blocks), jnp.sum(counted)


def count_tokens(labels: jax.Array, weight: jax.Array, pad_token: int) -> jax.Array:
    """Return the number of tokens in `labels [B, T]` without padding and padding rows, a float32 scalar."""
    return jnp.sum(_counted(labels, weight, pad_token))


def _counted(labels: jax.Array, weight: jax.Array, pad_token: int) -> jax.Array:
    return (labels != pad_token).astype(jnp.float32) * weight[:, None]  # [B, T]


LOSSES = {"mae": jnp.abs, "mse": jnp.square}


@jax.named_scope("reconstruction_loss")
def reconstruction_loss(
    given: jax.Array, made: jax.Array, judged: jax.Array, weight: jax.Array, kind: str, voxels: jax.Array | None = None
) -> tuple[jax.Array, jax.Array]:
    """Return the sum over snapshots of a snapshot's mean error, and the number of snapshots (float32 scalars).

    Args:
      given: the encoder's input, `[B, W, ...]`; a snapshot is its input at one of W positions.
      made: the reconstruction; broadcasts to the input's shape.
      judged: bool `[B, W]`, the snapshots that enter the loss.
      weight: float32 `[B]`, 0 for padding rows.
      kind: "mae" or "mse".
      voxels: float32 `[...]`, 1 at voxels that enter the loss; None: all do.
    """
    counted = judged.astype(jnp.float32) * weight[:, None]  # [B, W]
    error = LOSSES[kind](given.astype(jnp.float32) - made)
    axes = tuple(range(2, given.ndim))
    means = error.mean(axis=axes) if voxels is None else (error * voxels[None, None]).sum(axis=axes) / voxels.sum()
    # `where`, because the error at padding may be inf or nan.
    return jnp.sum(jnp.where(counted > 0, means * counted, 0.0)), jnp.sum(counted)
