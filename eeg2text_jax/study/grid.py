"""The grid: which arms are trained, and the keys and means that all their steps read."""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from ml_collections import ConfigDict

from eeg2text_jax.errors import UserError
from eeg2text_jax.streams import stream_key


@dataclasses.dataclass(frozen=True)
class Arm:
    """One training run. Arms of one seed share initial weights, batches and dropout; only the condition differs."""

    condition: str
    seed: int

    def __str__(self) -> str:
        return f"{self.condition}/{self.seed}"


class TextArrays(NamedTuple):
    """Targets on the device, read by every step.

    Fields:
      vectors: float32 `[S, E]`, one row for each distinct sentence.
      sentence: int32 `[N]`, the row of every sample's sentence.
      exchanged: int32 `[N]`, the same under `label_shuffle`.
    """

    vectors: jax.Array
    sentence: jax.Array
    exchanged: jax.Array


class StudyArrays(NamedTuple):
    """What every step reads and none changes: keys and the means that some conditions need.

    Fields:
      dropout: keys `[A]`.
      condition: the key of all random conditions, a scalar.
      means: float32 `[S + 1, F]`, see `ConditionContext`; None where no condition needs it.
      voxels: float32 of a snapshot's shape, 1 where a reconstruction is judged; None: everywhere.
      texts: what the contrastive objective compares with; None with the generative one.
      frozen: the parameters that all arms share, see `parallel.arms.Divided`; None where each has all of its own.
    """

    dropout: jax.Array
    condition: jax.Array
    means: jax.Array | None
    voxels: jax.Array | None = None
    texts: TextArrays | None = None
    frozen: Any = None


def arms(config: ConfigDict) -> tuple[Arm, ...]:
    """The arms of `config.grid`: its training conditions for the first seed, then for the next."""
    return tuple(Arm(name, int(seed)) for seed in config.grid.seeds for name in config.grid.train_conditions)


def init_keys(grid_arms: tuple[Arm, ...], config_seed: int) -> jax.Array:
    """Keys of all arms' initial parameters `[A]`; arms of one seed begin with the same ones."""
    return _keys_by_seed(grid_arms, stream_key(config_seed, "init"))


RNGS = {"threefry": "threefry2x32", "rbg": "rbg"}  # values of train.rng


def dropout_keys(grid_arms: tuple[Arm, ...], config_seed: int, rng: str) -> jax.Array:
    """Keys of all arms' dropout `[A]`, those of their seeds.

    Raises:
      UserError: `rng` (of `config.train`) is not known.
    """
    if rng not in RNGS:
        raise UserError(f"train.rng = {rng!r}; expected 'threefry' or 'rbg'.")
    return _keys_by_seed(grid_arms, stream_key(config_seed, "dropout", RNGS[rng]))


def _keys_by_seed(grid_arms: tuple[Arm, ...], root: jax.Array) -> jax.Array:
    return jnp.stack([jax.random.fold_in(root, arm.seed) for arm in grid_arms])
