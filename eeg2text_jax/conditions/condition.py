"""EEG and its controls by name: `features [B, W, F]` of a batch -> what the encoder is fed.

Every condition keeps the shape and the mask, and so the number of words; what else it keeps is said where it is
defined. All run on the device inside jit. Two conditions are choices of data rather than of features:
`label_shuffle` (training only) feeds the EEG and takes the text of another sentence, see `donors.label_rows`; a
gaze baseline is a data file with gaze features.
"""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

import jax
import jax.numpy as jnp

from eeg2text_jax.conditions.controls import (
    ConditionContext,
    length_only,
    noise,
    noise_redrawn,
    noise_uniform,
    phase_randomized,
    subject_mean,
    time_reversed,
    zero,
)
from eeg2text_jax.parallel.arms import choose_by_arm

Condition = Callable[[jax.Array, jax.Array, ConditionContext], jax.Array]


def eeg(features: jax.Array, mask: jax.Array, context: ConditionContext) -> jax.Array:
    """The recording itself."""
    return features


def shuffled(features: jax.Array, mask: jax.Array, context: ConditionContext) -> jax.Array:
    """The EEG of another sentence: keeps subject, task, length and all statistics of EEG, destroys the content."""
    return context.donor


CONDITIONS: Mapping[str, Condition] = MappingProxyType(
    {
        "eeg": eeg,
        "noise": noise,
        "noise_redrawn": noise_redrawn,
        "noise_uniform": noise_uniform,
        "zero": zero,
        "shuffled": shuffled,
        "time_reversed": time_reversed,
        "phase_randomized": phase_randomized,
        "subject_mean": subject_mean,
        "length_only": length_only,
        "label_shuffle": eeg,
    }
)
RANDOM = frozenset({"noise", "noise_redrawn", "noise_uniform", "phase_randomized"})
_NEEDS = {"shuffled": ("donor",), "subject_mean": ("subject", "means"), "length_only": ("means",)}


def needs(names: Sequence[str]) -> frozenset[str]:
    """The optional fields of `ConditionContext` that some of these conditions read."""
    return frozenset(field for name in names for field in _NEEDS.get(name, ()))


def apply_condition(name: str, features: jax.Array, mask: jax.Array, context: ConditionContext) -> jax.Array:
    """What the encoder is fed under a condition: `[B, W, F]`, zero at padding.

    Args:
      name: one of `CONDITIONS`; static under jit.
      features: `[B, W, F]` of the recordings.
      mask: bool `[B, W]`, True at real words, which come first. The mask holds for the result, too.
      context: what the condition needs to know, see `needs`.

    Raises:
      ValueError: the context lacks what this condition needs.
    """
    for field in _NEEDS.get(name, ()):
        if getattr(context, field) is None:
            raise ValueError(f"condition {name!r} needs context.{field}")
    fed = CONDITIONS[name](features, mask, context)
    return jnp.where(mask[:, :, None], fed.astype(features.dtype), jnp.zeros((), features.dtype))


def condition_inputs(
    arms: Sequence[tuple[str, int]], features: jax.Array, mask: jax.Array, context: ConditionContext
) -> jax.Array:
    """What every arm's encoder is fed, `[A, B, W, F]`, from one batch; see `distinct_inputs`."""
    return choose_by_arm(*distinct_inputs(arms, features, mask, context))


def distinct_inputs(
    arms: Sequence[tuple[str, int]], features: jax.Array, mask: jax.Array, context: ConditionContext
) -> tuple[list[jax.Array], list[int]]:
    """What encoders are fed from one batch, each `[B, W, F]`, and which of it every arm is fed.

    Args:
      arms: condition and seed of each arm, static under jit. Arms with different seeds draw different noise; what
        arms share is computed once.
    """
    drawn = [(name, seed if name in RANDOM else None) for name, seed in arms]
    distinct = list(dict.fromkeys(drawn))
    fed = []
    for name, seed in distinct:
        key = context.key if seed is None else jax.random.fold_in(context.key, seed)
        fed.append(apply_condition(name, features, mask, context._replace(key=key)))
    return fed, [distinct.index(pair) for pair in drawn]
