"""What a condition may know about a batch besides its features."""

from typing import NamedTuple

import jax
import numpy as np

from eeg2text_jax.streams import stream_key

_PREFIX_STABLE = "threefry2x32"


class ConditionContext(NamedTuple):
    """A pytree that goes into the compiled step with the batch. Leave `None` what no condition in use needs.

    Fields:
      key: from `condition_key`, a scalar.
      sample_id: int32 `[B]`, the row of each sample in the data file: its noise is the same in every batch.
      step: int32 scalar, the training step; only `noise_redrawn` looks at it. 0 in evaluation.
      subject: int32 `[B]`, the row of each sample's subject in `means`.
      means: float32 `[S + 1, F]` from `means.train_means`: each subject's mean word, then the mean word of all.
      donor: float32 `[B, W, F]`, words of the sample's donor in `donors.donor_table`, as many as the sample has.
    """

    key: jax.Array
    sample_id: jax.Array | np.ndarray
    step: jax.Array | np.ndarray
    subject: jax.Array | np.ndarray | None = None
    means: jax.Array | np.ndarray | None = None
    donor: jax.Array | np.ndarray | None = None


def condition_key(seed: int) -> jax.Array:
    """The key of all random conditions; threefry whatever the default generator is.

    With threefry (partitionable, JAX's default) the first `w` rows of a draw of `[W, F]` are a draw of `[w, F]`, and
    a mapped draw is the draw of each key. Both fail for `rbg` under `vmap`: there a sample's noise would depend on
    the batch and the length bucket that it happens to be in.
    """
    return stream_key(seed, "condition", _PREFIX_STABLE)


def sample_keys(context: ConditionContext, purpose: int) -> jax.Array:
    """Keys `[B]`, one a sample, apart for every `purpose`.

    Raises:
      ValueError: the key is not from `condition_key`.
    """
    if str(jax.random.key_impl(context.key)) != _PREFIX_STABLE:
        raise ValueError(f"conditions need a key from condition_key, got one of {jax.random.key_impl(context.key)}")
    return jax.vmap(jax.random.fold_in, (None, 0))(jax.random.fold_in(context.key, purpose), context.sample_id)
