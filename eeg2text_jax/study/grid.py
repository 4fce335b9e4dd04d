"""The grid: the arms to train, and the constant arrays (keys, means) that every step reads."""

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from eeg2text_jax.errors import UserError
from eeg2text_jax.parallel.placement import Placement
from eeg2text_jax.streams import stream_key
from eeg2text_jax.study.sections import GridSettings, Settings


@dataclasses.dataclass(frozen=True)
class Arm:
    """One training run. Arms of one seed share initial weights, batches and dropout; only the condition differs."""

    condition: str
    seed: int

    def __str__(self) -> str:
        return f"{self.condition}/{self.seed}"


class TextArrays(NamedTuple):
    """Contrastive text targets on the device.

    Fields:
      vectors: float32 `[S, E]`, one row per distinct sentence.
      sentence: int32 `[N]`, the row of every sample's sentence.
      exchanged: int32 `[N]`, the row of every sample's sentence under `label_shuffle`.
    """

    vectors: jax.Array
    sentence: jax.Array
    exchanged: jax.Array


class StudyArrays(NamedTuple):
    """Constant inputs of every step: PRNG keys, and the means that some conditions need.

    Fields:
      dropout: keys `[A]`.
      condition: the key of all random conditions, a scalar.
      means: float32 `[S + 1, F]`, see `ConditionContext`; None if no condition needs it.
      voxels: float32 mask of a snapshot's shape, 1 where the reconstruction loss counts; None: everywhere.
      texts: targets of the contrastive objective; None for other objectives.
      frozen: the parameters that all arms share, see `parallel.arms.Divided`; None if each arm has all of its own.
    """

    dropout: jax.Array
    condition: jax.Array
    means: jax.Array | None
    voxels: jax.Array | None = None
    texts: TextArrays | None = None
    frozen: Any = None


def arms(config: GridSettings) -> tuple[Arm, ...]:
    """Return the arms of `config.grid`: all training conditions of the first seed, then of the next seed."""
    return tuple(Arm(name, int(seed)) for seed in config.seeds for name in config.train_conditions)


def placement_of(settings: Settings, n_arms: int, devices: Sequence[jax.Device] | int | None = None) -> Placement:
    """Return the placement that the settings ask for; see `Placement.choose`."""
    return Placement.choose(settings.parallel, n_arms, settings.batch.size, settings.train.accumulate, devices)


def init_keys(grid_arms: tuple[Arm, ...], config_seed: int) -> jax.Array:
    """Return the keys of all arms' initial parameters, `[A]`; arms of one seed share a key."""
    return _keys_by_seed(grid_arms, stream_key(config_seed, "init"))


RNGS = {"threefry": "threefry2x32", "rbg": "rbg"}  # values of train.rng


def dropout_keys(grid_arms: tuple[Arm, ...], config_seed: int, rng: str) -> jax.Array:
    """Return the dropout keys of all arms, `[A]`; arms of one seed share a key.

    Raises:
      UserError: `rng` (of `config.train`) is not known.
    """
    if rng not in RNGS:
        raise UserError(f"train.rng = {rng!r}; expected 'threefry' or 'rbg'.")
    return _keys_by_seed(grid_arms, stream_key(config_seed, "dropout", RNGS[rng]))


def _keys_by_seed(grid_arms: tuple[Arm, ...], root: jax.Array) -> jax.Array:
    return jnp.stack([jax.random.fold_in(root, arm.seed) for arm in grid_arms])
