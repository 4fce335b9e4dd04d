"""EEG and its controls by name: `features [B, W, F]` of a batch -> what the encoder is fed.

Where F is written, the axes of a volume `[X, Y, Z]` may stand; its frames are the words.

Every condition keeps the shape and the mask, and so the number of words; what else it keeps is said where it is
defined. All run on the device inside jit. Two conditions are choices of data rather than of features:
`label_shuffle` (training only) feeds the EEG and takes the text of another sentence, see `donors.label_rows`; a
gaze baseline is a data file with gaze features.

Noise keeps the number of words and destroys everything else; constants show what the number of words, or the subject,
gives away on its own; a sample's own EEG, rearranged along its words, keeps its statistics and loses which word is
where.
"""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from eeg2text_jax.parallel.arms import choose_by_arm
from eeg2text_jax.streams import stream_key

_PREFIX_STABLE = "threefry2x32"


class ConditionContext(NamedTuple):
    """A pytree that goes into the compiled step with the batch. Leave `None` what no condition in use needs.

    Fields:
      key: from `condition_key`, a scalar.
      sample_id: int32 `[B]`, the row of each sample in the data file: its noise is the same in every batch.
      step: int32 scalar, the training step; only `noise_redrawn` looks at it. 0 in evaluation.
      subject: int32 `[B]`, the row of each sample's subject in `means`.
      means: float32 `[S + 1, F]` from `donors.train_means`: each subject's mean word, then the mean word of all.
      donor: float32 `[B, W, F]`, words of the sample's donor in `donors.donor_table`, as many as the sample has.
      clock: float32 `[B, F]` (of volumes flat), from `time_controls.clock_features`.
      neighbor: float32 `[B, W, F]`, words of the neighbor in `time_controls.neighbor_table`, as `donor`.
    """

    key: jax.Array
    sample_id: jax.Array | np.ndarray
    step: jax.Array | np.ndarray
    subject: jax.Array | np.ndarray | None = None
    means: jax.Array | np.ndarray | None = None
    donor: jax.Array | np.ndarray | None = None
    clock: jax.Array | np.ndarray | None = None
    neighbor: jax.Array | np.ndarray | None = None

    @classmethod
    def of(
        cls, batch: Mapping[str, Any], key: jax.Array, means: jax.Array | None, step: jax.Array
    ) -> "ConditionContext":
        """What the conditions may know about a batch `[B, ...]`."""
        return cls(key, batch["sample_id"], step, batch.get("subject"), means, batch.get("donor"),
                   batch.get("clock"), batch.get("neighbor"))  # fmt: skip


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


def zero(features: jax.Array, mask: jax.Array, context: ConditionContext) -> jax.Array:
    """Zeros `[B, W, F]`: keeps the number of words. The same as `length_only` where features are standardized."""
    return jnp.zeros_like(features)


def length_only(features: jax.Array, mask: jax.Array, context: ConditionContext) -> jax.Array:
    """The mean word of the train part at every word `[B, W, F]`: keeps the number of words, on the data's scale."""
    return jnp.broadcast_to(context.means[-1][None, None], features.shape)


def subject_mean(features: jax.Array, mask: jax.Array, context: ConditionContext) -> jax.Array:
    """The subject's mean word in the train part at every word `[B, W, F]`: keeps the subject and number of words."""
    return jnp.broadcast_to(context.means[context.subject][:, None], features.shape)


# What keeps the draws of different conditions apart for the same sample.
_FIXED, _REDRAWN, _UNIFORM, _PHASES = 1, 2, 3, 4


def noise(features: jax.Array, mask: jax.Array, context: ConditionContext) -> jax.Array:
    """Standard normal `[B, W, F]`, drawn once for each sample, as the authors of the noise study do."""
    return _draw(jax.random.normal, sample_keys(context, _FIXED), features)


def noise_redrawn(features: jax.Array, mask: jax.Array, context: ConditionContext) -> jax.Array:
    """Standard normal `[B, W, F]`, another draw at every step: nothing to memorize a sentence by."""
    keys = jax.vmap(jax.random.fold_in, (0, None))(sample_keys(context, _REDRAWN), context.step)
    return _draw(jax.random.normal, keys, features)


def noise_uniform(features: jax.Array, mask: jax.Array, context: ConditionContext) -> jax.Array:
    """Uniform in [0, 1) `[B, W, F]`, as the first EEG-to-text code; there redrawn in every batch, here fixed."""
    return _draw(jax.random.uniform, sample_keys(context, _UNIFORM), features)


def _draw(distribution, keys: jax.Array, features: jax.Array) -> jax.Array:
    return jax.vmap(lambda key: distribution(key, features.shape[1:]))(keys)


def time_reversed(features: jax.Array, mask: jax.Array, context: ConditionContext) -> jax.Array:
    """The words in reverse order `[B, W, F]`: keeps every word's features, destroys their order."""
    words = jnp.arange(mask.shape[1], dtype=jnp.int32)
    index = jnp.clip(_lengths(mask)[:, None] - 1 - words[None], 0)  # --> [B, W]
    return jnp.take_along_axis(features, _like(index, features), axis=1)


def phase_randomized(features: jax.Array, mask: jax.Array, context: ConditionContext) -> jax.Array:
    """Fourier surrogates along the words `[B, W, F]` (Theiler et al. 1992; multivariate, Prichard & Theiler 1994).

    Over the real words of a sample every feature keeps its mean, variance and amplitude spectrum, and pairs of
    features their cross-spectrum, since all features of a frequency are turned by the same phase. Which word is
    where, and what phases tell beyond that, is destroyed. A sample of one word has no phase and stays as it is.
    """
    keys = sample_keys(context, _PHASES)
    uniform = jax.vmap(lambda key: jax.random.uniform(key, mask.shape[1:]))(keys)
    words = jnp.arange(mask.shape[1], dtype=jnp.int32)
    length = _lengths(mask)[:, None, None]  # --> [B, 1, 1]
    # Turning the phases is a circular convolution over the sample's length, whose kernel holds the phases:
    # static shapes whatever the length, and real numbers only.
    kernel = _kernel(uniform, length[:, :, 0])  # --> [B, W]
    lag = (words[None, :, None] - words[None, None, :]) % length  # --> [B, W, W]
    circulant = jnp.take_along_axis(kernel[:, None, :], lag, axis=2)
    real = jnp.where(_like(mask, features), features, 0).reshape(*mask.shape, -1)
    turned = jnp.einsum("bwv,bvf->bwf", circulant, real.astype(circulant.dtype), precision=jax.lax.Precision.HIGHEST)
    return turned.reshape(features.shape)


def _like(values: jax.Array, features: jax.Array) -> jax.Array:
    """`[B, W]` as `[B, W, 1, ...]`, with as many axes as features have."""
    return values.reshape(*values.shape, *[1] * (features.ndim - 2))


def _kernel(uniform: jax.Array, length: jax.Array) -> jax.Array:
    """Inverse DFT over `length [B, 1]` of `exp(i phase)`, whose phases come from `uniform [B, W]`; real `[B, W]`."""
    frequency = jnp.arange(uniform.shape[1], dtype=jnp.int32)[None]  # --> [1, W]
    mirror = jnp.clip(length - frequency, 0, uniform.shape[1] - 1)
    phase = jnp.where(
        2 * frequency < length,
        2 * jnp.pi * uniform,
        -2 * jnp.pi * jnp.take_along_axis(uniform, mirror, axis=1),  # a real result: phase[-k] = -phase[k]
    )
    phase = jnp.where(2 * frequency == length, jnp.pi * jnp.round(uniform), phase)  # the highest one: a sign
    phase = jnp.where(frequency == 0, 0.0, phase)  # the mean stays
    turns = (frequency[:, :, None] * frequency[:, None, :]) % length[:, :, None]  # [B, lag, frequency], exact
    angle = 2 * jnp.pi * turns.astype(uniform.dtype) / length[:, :, None].astype(uniform.dtype)
    waves = jnp.where((frequency < length)[:, None, :], jnp.cos(angle + phase[:, None, :]), 0.0)
    return waves.sum(axis=2) / length.astype(uniform.dtype)


def _lengths(mask: jax.Array) -> jax.Array:
    """Real words of every sample, int32 `[B]`; at least 1, so that an all-padding row divides by something."""
    return jnp.maximum(mask.sum(axis=1, dtype=jnp.int32), 1)


Condition = Callable[[jax.Array, jax.Array, ConditionContext], jax.Array]


def eeg(features: jax.Array, mask: jax.Array, context: ConditionContext) -> jax.Array:
    """The recording itself."""
    return features


def shuffled(features: jax.Array, mask: jax.Array, context: ConditionContext) -> jax.Array:
    """The EEG of another sentence: keeps subject, task and statistics of EEG, destroys the content.

    The length, too, where there is such a sentence; see `donors.DonorTable.summary`.
    """
    return context.donor


def prompt_only(features: jax.Array, mask: jax.Array, context: ConditionContext) -> jax.Array:
    """No recording: the model reads its prompt alone, see `fed_mask`. What the prompt says, its task say, stays."""
    return jnp.zeros_like(features)


def fed_mask(names: Sequence[str], mask: jax.Array) -> jax.Array:
    """Real words as each arm's encoder is told of them, bool `[A, ...]`, from a mask `[A or 1, ...]`."""
    told = np.array([name != "prompt_only" for name in names])
    return mask & jnp.asarray(told).reshape(-1, *[1] * (mask.ndim - 1))


def clock(features: jax.Array, mask: jax.Array, context: ConditionContext) -> jax.Array:
    """Recording and time of the sample at every word `[B, W, F]`: keeps the clock and the number of words alone."""
    return jnp.broadcast_to(context.clock.reshape(len(features), 1, *features.shape[2:]), features.shape)


def neighbor(features: jax.Array, mask: jax.Array, context: ConditionContext) -> jax.Array:
    """The recording of the nearest sample in time with another sentence: keeps subject, minute and about the length."""
    return context.neighbor


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
        "prompt_only": prompt_only,
        "clock": clock,
        "neighbor": neighbor,
    }
)
RANDOM = frozenset({"noise", "noise_redrawn", "noise_uniform", "phase_randomized"})
_NEEDS = {"shuffled": ("donor",), "subject_mean": ("subject", "means"), "length_only": ("means",),
          "clock": ("clock",), "neighbor": ("neighbor",)}  # fmt: skip


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
    return jnp.where(_like(mask, features), fed.astype(features.dtype), jnp.zeros((), features.dtype))


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
