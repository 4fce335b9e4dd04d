"""Where a token stands, as vectors: a table (BART, BERT) or sines and cosines (PEGASUS, unless its file has others)."""

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from eeg2text_jax.errors import UserError
from eeg2text_jax.models.spec import StackSpec


class LearnedPositions(nnx.Module):
    """One vector per position; the first `position_offset` rows of the table are never used."""

    def __init__(self, spec: StackSpec, rngs: nnx.Rngs) -> None:
        init = jax.nn.initializers.normal(spec.init_std or spec.width**-0.5)
        rows = spec.max_positions + spec.position_offset
        self.embedding = nnx.Param(init(rngs.params(), (rows, spec.width), jnp.float32))
        self.offset, self.frozen = spec.position_offset, spec.frozen_positions

    def __call__(self, positions: jax.Array) -> jax.Array:
        """Positions `[T]` -> `[T, D]`."""
        table = self.embedding[...]
        return (jax.lax.stop_gradient(table) if self.frozen else table)[positions + self.offset]


def sinusoidal_table(length: int, width: int) -> np.ndarray:
    """`[T, D]` float32: sines in the first half, cosines in the second, not interleaved (PEGASUS)."""
    angles = np.arange(length)[:, None] / 10000.0 ** (np.arange(0, width, 2) / width)[None]
    return np.concatenate([np.sin(angles), np.cos(angles)[:, : width // 2]], axis=-1).astype(np.float32)


def check_length(spec: StackSpec, length: int) -> None:
    """Refuse a sequence for which the table of positions has no row.

    Raises:
      UserError: `length` exceeds the usable rows.
    """
    if spec.max_positions is not None and length > spec.max_positions:
        raise UserError(
            f"a sequence of {length} positions is longer than the backbone's table of {spec.max_positions}; "
            "shorten it, or raise max_position_embeddings in config.model.shape."
        )
