"""Beams change places after every step; what the model remembers of them must follow.

Only self-attention belongs to a beam. Cross-attention keys and values are computed once a sentence, shared by its
beams, and never moved.
"""

from typing import Any

import jax
import jax.numpy as jnp


def reorder(cache: Any, parents: jax.Array, index: jax.Array) -> Any:
    """Row k of each sentence goes on from its beam `parents[:, k]`.

    Args:
      cache: has `self_keys` and `self_values`, both `[L, B*K, ...]`.
      parents: int32 `[B, K]`.
      index: position written last.
    """
    del index
    batch, beams = parents.shape
    rows = (parents + jnp.arange(batch)[:, None] * beams).reshape(-1)
    return cache._replace(self_keys=cache.self_keys[:, rows], self_values=cache.self_values[:, rows])
