"""The grid: which arms are trained, and what each is tested with."""

import dataclasses

import jax
import jax.numpy as jnp
from ml_collections import ConfigDict

from eeg2text_jax.errors import UserError


@dataclasses.dataclass(frozen=True)
class Arm:
    """One training run. Arms of one seed share initial weights, batches and dropout; only the condition differs."""

    condition: str
    seed: int

    def __str__(self) -> str:
        return f"{self.condition}/{self.seed}"


def arms(config: ConfigDict) -> tuple[Arm, ...]:
    """The arms of `config.grid`: its training conditions for the first seed, then for the next."""
    return tuple(Arm(name, int(seed)) for seed in config.grid.seeds for name in config.grid.train_conditions)


def arm_keys(arm: Arm, config_seed: int) -> dict[str, jax.Array]:
    """Keys of an arm for `init`, `dropout` and `noise`; equal for the arms of one seed."""
    key = jax.random.fold_in(jax.random.key(config_seed), arm.seed)
    names = ("init", "dropout", "noise")
    return dict(zip(names, jax.random.split(key, len(names)), strict=True))


def init_keys(grid_arms: tuple[Arm, ...], config_seed: int) -> jax.Array:
    """Keys of all arms' initial parameters `[A]`; arms of one seed begin with the same ones."""
    return jnp.stack([arm_keys(arm, config_seed)["init"] for arm in grid_arms])


def dropout_keys(grid_arms: tuple[Arm, ...], config_seed: int, rng: str) -> jax.Array:
    """Keys of all arms' dropout `[A]`: those of their seeds, or with `rbg` one for all.

    Under `vmap` rbg draws from the first key alone, so that keys of their own would tell apart what is paired.

    Raises:
      UserError: `rng` (of `config.train`) is not known.
    """
    if rng == "threefry":
        return jnp.stack([arm_keys(arm, config_seed)["dropout"] for arm in grid_arms])
    if rng == "rbg":
        return jnp.broadcast_to(jax.random.key(config_seed, impl="rbg"), (len(grid_arms),))
    raise UserError(f"train.rng = {rng!r}; expected 'threefry' or 'rbg'.")
