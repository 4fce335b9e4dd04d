"""The arms to train, their PRNG keys, and the constant arrays that every training step reads."""

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
    """Text embeddings on the device, the targets of the contrastive objective."""

    vectors: jax.Array  # float32 [S, E], a row for each distinct sentence
    sentence: jax.Array  # int32 [N], row of `vectors` for each sample
    exchanged: jax.Array  # int32 [N], row of `vectors` for each sample under the condition `label_shuffle`


class StudyArrays(NamedTuple):
    """Constant inputs of every training step."""

    dropout: jax.Array  # PRNG keys of dropout, [A]: one for each arm
    condition: jax.Array  # scalar, the PRNG key from which all random conditions draw
    means: jax.Array | None  # float32 [S + 1, F]: mean features of each subject, then of all; None: not needed
    voxels: jax.Array | None = None  # float32, shape of one volume: 1 where the reconstruction loss counts; None: all 1
    texts: TextArrays | None = None  # targets of the contrastive objective; None for any other objective
    frozen: Any = None  # parameters that all arms share, see `parallel.arms.Divided`; None: no parameters are shared


def arms(config: GridSettings) -> tuple[Arm, ...]:
    """Return the arms of `config.grid`: all training conditions of the first seed, then of the next seed."""
    return tuple(Arm(name, int(seed)) for seed in config.seeds for name in config.train_conditions)


def placement_of(settings: Settings, n_arms: int, devices: Sequence[jax.Device] | int | None = None) -> Placement:
    """Return the mesh and the sharding of `n_arms` arms under these settings; see `Placement.choose`."""
    return Placement.choose(settings.parallel, n_arms, settings.batch.size, settings.train.accumulate, devices)


def init_keys(grid_arms: tuple[Arm, ...], config_seed: int) -> jax.Array:
    """Return the keys of all arms' initial parameters, `[A]`; arms of one seed share a key."""
    return _keys_by_seed(grid_arms, stream_key(config_seed, "init"))


RNGS = {"threefry": "threefry2x32", "rbg": "rbg"}  # values of train.rng -> JAX's PRNG implementations


def dropout_keys(grid_arms: tuple[Arm, ...], config_seed: int, rng: str) -> jax.Array:
    """Return the dropout keys of all arms, `[A]`; arms of one seed share a key. `rng` is the field `train.rng`."""
    if rng not in RNGS:
        raise UserError(f"train.rng = {rng!r}; expected 'threefry' or 'rbg'.")
    return _keys_by_seed(grid_arms, stream_key(config_seed, "dropout", RNGS[rng]))


def _keys_by_seed(grid_arms: tuple[Arm, ...], root: jax.Array) -> jax.Array:
    return jnp.stack([jax.random.fold_in(root, arm.seed) for arm in grid_arms])
