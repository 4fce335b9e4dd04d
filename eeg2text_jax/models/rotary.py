"""Rotary positions (Su et al. 2021): each head's dimensions as pairs, turned by an angle that grows with the position.

A pair is dimension i of the first half and i of the second, as in transformers. Which angle belongs to which pair is
data of the backbone (`StackSpec.rotary`), so that every scaling of frequencies is a matter of its description.
"""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp


class Rotation(NamedTuple):
    """Cosines and sines of the angles of every row, `[R, Dh / 2]` float32."""

    cos: jax.Array
    sin: jax.Array

    @classmethod
    def of(cls, positions: jax.Array, frequencies: Sequence[float]) -> "Rotation":
        """Rotation of rows at `positions [R]`, by frequencies `[Dh / 2]` in radians a position."""
        angles = positions.astype(jnp.float32)[:, None] * jnp.asarray(frequencies, jnp.float32)[None]
        return cls(jnp.cos(angles), jnp.sin(angles))

    def __call__(self, x: jax.Array) -> jax.Array:
        """Turn rows of heads, `[R, H, Dh] -> [R, H, Dh]`, in the dtype of `x`."""
        cos, sin = (part.astype(x.dtype)[:, None] for part in self)
        first, second = jnp.split(x, 2, axis=-1)
        return jnp.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)


def choose(local: jax.Array | bool, here: Rotation, there: Rotation) -> Rotation:
    """`here` in a local layer, else `there`."""
    return jax.tree.map(lambda a, b: jnp.where(local, a, b), here, there)
