"""Training losses: token cross-entropy, and reconstruction error."""

import functools
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
    log_norm = _log_norm(logits)
    # A masked sum, because XLA may partition a gather from sharded logits across the arms.
    chosen = labels[..., None] == jnp.arange(logits.shape[-1], dtype=labels.dtype).reshape(*[1] * labels.ndim, -1)
    losses = log_norm - jnp.sum(jnp.where(chosen, logits, 0.0), axis=-1)
    if label_smoothing:
        losses = (1 - label_smoothing) * losses + label_smoothing * (log_norm - logits.mean(axis=-1))
    return losses


@jax.custom_vjp
def _log_norm(logits: jax.Array) -> jax.Array:
    """Return `jax.nn.logsumexp(logits, axis=-1)` of float32 logits `[..., V]`."""
    plain = functools.partial(jax.nn.logsumexp, axis=-1)
    return jax.lax.platform_dependent(logits, tpu=_log_norm_by_product, default=plain)


def _log_norm_by_product(logits: jax.Array) -> jax.Array:
    """Return `_log_norm(logits)` with the sum as a matrix product with ones.

    By the TPU compiler's estimate this takes 2.2 ms instead of 4.3 (7,168 x 50,265 logits on a v5e). `HIGH` splits an
    exponential into two bfloat16 numbers: the relative error is at most 2^-17, and 0 for the largest exponential, 1.
    """
    most = jnp.max(logits, axis=-1, keepdims=True)
    ones = jnp.ones((logits.shape[-1], 8), logits.dtype)  # XLA would turn a product with one column into a reduction
    sums = jnp.matmul(jnp.exp(logits - most), ones, precision=jax.lax.Precision.HIGH)
    return jnp.log(sums[..., 0]) + most[..., 0]


def _log_norm_forward(logits: jax.Array) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
    log_norm = _log_norm(logits)
    return log_norm, (logits, log_norm)


def _log_norm_backward(known: tuple[jax.Array, jax.Array], gradient: jax.Array) -> tuple[jax.Array]:
    logits, log_norm = known
    return (jnp.exp(logits - log_norm[..., None]) * gradient[..., None],)


_log_norm.defvjp(_log_norm_forward, _log_norm_backward)


@jax.named_scope("head_loss")
def summed_loss(
    logits: jax.Array, labels: jax.Array, weight: jax.Array, pad_token: int, label_smoothing: float = 0.0
) -> tuple[jax.Array, jax.Array]:
    """Return the loss summed over all tokens of a batch but padding, and their number (float32 scalars).

    `logits` are `[B, T, V]` or `[B*T, V]`, `labels [B, T]` are padded with `pad_token`, and `weight [B]` is 0 for
    padding rows.
    """
    counted = _counted(labels, weight, pad_token)
    shape = logits.shape[:-1]
    losses = token_losses(logits, labels.reshape(shape), label_smoothing)
    return jnp.sum(losses * counted.reshape(shape)), jnp.sum(counted)


def logits_of_rows(x: jax.Array, table: jax.Array, bias: jax.Array | None, cap: float = 0.0) -> jax.Array:
    """Return `logits_of(x, table, bias, cap)` with one row per position, `[B*T, V]`.

    A TPU copies products `[B, T, V]` into another layout (0.3 of 210 ms for BART-large, batch 128).
    """
    return logits_of(x.reshape(-1, x.shape[-1]), table, bias, cap)


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
        logits = logits_of_rows(x, table, bias, cap)
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
