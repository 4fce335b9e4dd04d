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

from eeg2text_jax.conditions.constant import length_only, subject_mean, zero
from eeg2text_jax.conditions.context import ConditionContext
from eeg2text_jax.conditions.noise import noise, noise_redrawn, noise_uniform
from eeg2text_jax.conditions.rearranged import phase_randomized, time_reversed
from eeg2text_jax.errors import UserError, did_you_mean
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
TRAINING_ONLY = frozenset({"label_shuffle"})
_NEEDS = {"shuffled": ("donor",), "subject_mean": ("subject", "means"), "length_only": ("means",)}


def needs(names: Sequence[str]) -> frozenset[str]:
    """The optional fields of `ConditionContext` that some of these conditions read."""
    return frozenset(field for name in names for field in _NEEDS.get(name, ()))


def check_conditions(names: Sequence[str], field: str, *, training: bool) -> None:
    """Checks a list of conditions from the configuration's `field`.

    Raises:
      UserError: the list is empty or names a condition twice, an unknown one, or a training-only one for a test.
    """
    known = [name for name in CONDITIONS if training or name not in TRAINING_ONLY]
    if not names:
        raise UserError(f"{field} is empty; give it at least one of {', '.join(known)}.")
    if len(set(names)) < len(names):
        raise UserError(f"{field} = {tuple(names)} names a condition twice; name each one once.")
    for name in names:
        if name == "gaze":
            raise UserError(
                f"{field}: 'gaze' is not computed from EEG; prepare a data file with gaze features instead."
            )
        if name in TRAINING_ONLY and not training:
            raise UserError(f"{field}: {name!r} changes what a model is trained on and cannot be tested with.")
        if name not in CONDITIONS:
            raise UserError(f"{field}: there is no condition {name!r}; {did_you_mean(name, known)}")


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
    """What every arm's encoder is fed, `[A, B, W, F]`, from one batch.

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
    return choose_by_arm(fed, [distinct.index(pair) for pair in drawn])
