"""Teacher-forced decoding: the argmax at every position, given the true tokens before it.

Most published EEG-to-text scores were computed this way (paper, section "Evaluation").
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array


class TeacherForced(NamedTuple):
    """One forward pass over reference tokens; T is the width of the labels."""

    tokens: Array  # int32 [B, T], argmax at every position, including padding
    log_probs: Array  # float32 [B, T], log-probability of the reference token; 0 at padding
    nll: Array  # float32 [B], negative log-likelihood of the reference, in nats
    n_tokens: Array  # int32 [B], reference tokens including the end token
    logits: Array | None  # float32 [B, T, V]; None unless requested


def teacher_forced(
    model: Any, params: Any, inputs: dict[str, Array], labels: Array, *, with_logits: bool = False
) -> TeacherForced:
    """Score reference tokens and return the argmax at each position.

    Args:
      model: a `Seq2SeqModel`.
      params: its parameters.
      inputs: as for `generate`.
      labels: int32 `[B, T]`, `model.pad_token` after the end token; 56 wide to reproduce the authors, see `cut_at_end`.
      with_logits: also return the logits: 11 MB per sentence for T = 56 and V = 50265.

    Examples:
      >>> import jax.numpy as jnp
      >>> from eeg2text_jax import load_pretrained, teacher_forced
      >>> model, params = load_pretrained("export")
      >>> recordings = {"features": jnp.zeros((1, 4, 6)), "mask": jnp.ones((1, 4), bool)}
      >>> found = teacher_forced(model, params, recordings, jnp.array([[9, 7, model.eos_token, model.pad_token]]))
      >>> found.tokens.shape, int(found.n_tokens[0])
      ((1, 4), 3)
    """
    return _teacher_forced(model, params, inputs, labels, with_logits)


def score_reference(
    model: Any, params: Any, inputs: dict[str, Array], labels: Array, with_logits: bool
) -> TeacherForced:
    """Do what `teacher_forced` does, as a pure function for other JAX transformations."""
    logits = model.forward(params, inputs, model.shift_right(labels)).astype(jnp.float32)  # [B, T, V]
    real = labels != model.pad_token
    picked = jnp.take_along_axis(logits, labels[:, :, None], axis=2)[:, :, 0]
    log_probs = jnp.where(real, picked - jax.nn.logsumexp(logits, axis=2), 0.0)
    return TeacherForced(
        tokens=jnp.argmax(logits, axis=2).astype(jnp.int32), log_probs=log_probs, nll=-log_probs.sum(axis=1),
        n_tokens=real.sum(axis=1, dtype=jnp.int32), logits=logits if with_logits else None,
    )  # fmt: skip


_teacher_forced = jax.jit(score_reference, static_argnames=("model", "with_logits"))


def cut_at_end(tokens: np.ndarray, end_tokens: Sequence[int]) -> list[int]:
    """Return the tokens of a row before the first end token, or all if there is none: the authors' cut.

    `eval_decoding.py` of the paper's code takes the argmax at all 56 positions, padding included, and cuts at the first
    *predicted* end token; its predecessor (Wang and Ji) at the first two consecutive ones. So a prediction without an
    end token continues into the padding, and these tokens are scored, too.
    """
    row = np.asarray(tokens)
    ends = np.flatnonzero(np.isin(row, np.asarray(end_tokens)))
    return row[: ends[0] if ends.size else row.size].tolist()
