"""EEG and its controls by name: functions from the features `[B, W, F]` of a batch to the encoder's input.

A word is one of the W positions of a recording; for volumes, F stands for the axes `[X, Y, Z]` and words are frames.
Every condition keeps the shape and the mask, and with them the number of words. All run on the device inside jit.

Noise keeps only the number of words. Constants show what the number of words, or the subject, tells about the text.
Rearranged EEG keeps the statistics of the recording and loses the place of each word. `label_shuffle` (training only)
feeds the EEG with the text of another sentence as the target, see `_donors.label_rows`.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from eeg2text_jax.base.devices.arms import choose_by_arm
from eeg2text_jax.base.errors import UserError, did_you_mean
from eeg2text_jax.data.datafile import DataFile
from eeg2text_jax.training.conditions import CONDITIONS as NAMES
from eeg2text_jax.training.conditions import FED

# The random streams of a run: one per purpose, with no key in common.
#
# `jax.random.split(key, n)[i]` equals `fold_in(key, i)`, so keys that differ by small numbers (seeds, steps, samples)
# coincide if two purposes start from the same key. Each purpose therefore folds in its own constant first; NumPy's
# generators likewise (`default_rng(s)` and `default_rng([s, 0])` are the same stream).

# Purpose -> a constant larger than any step, sample, seed or epoch. Changing one changes results.
STREAMS = {
    "init": 0xA3C59AC3,  # initial parameters, by seed of the arm
    "dropout": 0xB7E15163,  # by seed of the arm, then by step
    "condition": 0xC6EF3720,  # noise and random phases, by seed of the arm, then by condition and sample
    "sampling": 0xD1310BA6,  # tokens drawn while decoding, by sample
    "clock": 0x5D7A3C41,  # the random projection of recording and time to features
    "donors": 0xE19B01AA,  # choice of donors: under `shuffled`, a donor's EEG replaces a sample's own
    "label_rows": 0xF39CC060,  # choice of the texts that replace the samples' own under `label_shuffle`
}


def stream_key(seed: int | jax.Array, name: str, impl: str | None = None) -> jax.Array:
    """Return the root key of the stream `name` for a configuration's `seed`; `impl` names the PRNG."""
    return jax.random.fold_in(jax.random.key(seed, impl=impl), np.uint32(STREAMS[name]))


def stream_rng(seed: int, name: str) -> np.random.Generator:
    """Return NumPy's generator of the stream `name` for a configuration's `seed`."""
    return np.random.default_rng([STREAMS[name], seed])


_PREFIX_STABLE = "threefry2x32"


class ConditionContext(NamedTuple):
    """Inputs of the conditions besides features and mask, a pytree; fields that no condition in use needs are None."""

    key: jax.Array  # scalar, from `condition_key`
    sample_id: jax.Array | np.ndarray  # int32 [B], row in the data file: a sample has the same noise in every batch
    step: jax.Array | np.ndarray  # int32 scalar, the training step, for `noise_redrawn`; 0 in evaluation
    subject: jax.Array | np.ndarray | None = None  # int32 [B], row of each sample's subject in `means`
    means: jax.Array | np.ndarray | None = None  # float32 [S + 1, F], mean words, from `_donors.train_means`
    donor: jax.Array | np.ndarray | None = None  # float32 [B, W, F], donors' features, cut or repeated to each length
    clock: jax.Array | np.ndarray | None = None  # float32 [B, F] (volumes flat), code of recording and time in it
    neighbor: jax.Array | np.ndarray | None = None  # float32 [B, W, F], features of the samples nearest in time
    kernel: jax.Array | np.ndarray | None = None  # float32 [K, F], gives white noise a spectrum, see `noise_kernel`

    @classmethod
    def of(cls, batch: Mapping[str, Any], constants: Any, step: jax.Array | np.ndarray) -> "ConditionContext":
        """Return the context of a batch `[B, ...]`; `constants` are a `StudyArrays`."""
        fed = {name: batch.get(name) for name in FED}
        return cls(constants.condition, batch["sample_id"], step, means=constants.means, kernel=constants.kernel, **fed)


def condition_key(seed: int) -> jax.Array:
    """Return the PRNG key of all random conditions, always threefry.

    With threefry (partitionable, JAX's default) a sample's noise does not depend on its batch: the first `w` rows of a
    draw of `[W, F]` equal a draw of `[w, F]`, and under `vmap` each key draws as it does alone. With `rbg` neither
    would hold.
    """
    return stream_key(seed, "condition", _PREFIX_STABLE)


def sample_keys(context: ConditionContext, purpose: int) -> jax.Array:
    """Return a PRNG key per sample, `[B]`, different for every `purpose`; `context.key` must be a `condition_key`."""
    if str(jax.random.key_impl(context.key)) != _PREFIX_STABLE:
        raise ValueError(f"conditions need a key from condition_key, got one of {jax.random.key_impl(context.key)}")
    return jax.vmap(jax.random.fold_in, (None, 0))(jax.random.fold_in(context.key, purpose), context.sample_id)


def zero(features: jax.Array, mask: jax.Array, context: ConditionContext) -> jax.Array:
    """Zeros: keep the number of words. For standardized features they equal `length_only`."""
    return jnp.zeros_like(features)


def length_only(features: jax.Array, mask: jax.Array, context: ConditionContext) -> jax.Array:
    """The mean word of the train part at every word: keeps the number of words and the data's scale."""
    return jnp.broadcast_to(context.means[-1][None, None], features.shape)


def subject_mean(features: jax.Array, mask: jax.Array, context: ConditionContext) -> jax.Array:
    """The subject's mean word of the train part at every word: keeps the subject and the number of words."""
    return jnp.broadcast_to(context.means[context.subject][:, None], features.shape)


MOST_LAGS = 256  # half of the longest kernel of `noise_spectrum`
# Purposes of `sample_keys`, one for each random condition: their draws for a sample are independent.
_FIXED, _REDRAWN, _UNIFORM, _PHASES, _SPECTRUM = 1, 2, 3, 4, 5


def noise(features: jax.Array, mask: jax.Array, context: ConditionContext) -> jax.Array:
    """Standard normal noise, drawn once per sample, as the authors of the noise study (Jo et al.) do."""
    return _draw(jax.random.normal, sample_keys(context, _FIXED), features)


def noise_redrawn(features: jax.Array, mask: jax.Array, context: ConditionContext) -> jax.Array:
    """Standard normal noise, redrawn at every step, so that the model cannot memorize sentences by their noise."""
    keys = jax.vmap(jax.random.fold_in, (0, None))(sample_keys(context, _REDRAWN), context.step)
    return _draw(jax.random.normal, keys, features)


def noise_uniform(features: jax.Array, mask: jax.Array, context: ConditionContext) -> jax.Array:
    """Uniform noise in [0, 1), drawn once per sample (the first published EEG-to-text code redraws it per batch)."""
    return _draw(jax.random.uniform, sample_keys(context, _UNIFORM), features)


def noise_spectrum(features: jax.Array, mask: jax.Array, context: ConditionContext) -> jax.Array:
    """Normal noise in which each feature has its mean spectrum over the train part; drawn once per sample.

    It is white noise times `context.kernel`, summed over K positions, so a wider batch has the same noise.
    """
    taps, width = context.kernel.shape[0], features.shape[1] + context.kernel.shape[0] - 1
    shape = (width, *features.shape[2:])
    white = jax.vmap(lambda key: jax.random.normal(key, shape))(sample_keys(context, _SPECTRUM))
    kernel = context.kernel.reshape(taps, *features.shape[2:])
    size = 1 << (width - 1).bit_length()
    spectrum = jnp.fft.rfft(white, size, axis=1) * jnp.conj(jnp.fft.rfft(kernel, size, axis=0))[None]
    return jnp.fft.irfft(spectrum, size, axis=1)[:, : features.shape[1]]


def _draw(distribution, keys: jax.Array, features: jax.Array) -> jax.Array:
    return jax.vmap(lambda key: distribution(key, features.shape[1:]))(keys)


def time_reversed(features: jax.Array, mask: jax.Array, context: ConditionContext) -> jax.Array:
    """The words in reverse order: keeps every word's features, destroys their order."""
    words = jnp.arange(mask.shape[1], dtype=jnp.int32)
    index = jnp.clip(_lengths(mask)[:, None] - 1 - words[None], 0)  # --> [B, W]
    return jnp.take_along_axis(features, _like(index, features), axis=1)


def phase_randomized(features: jax.Array, mask: jax.Array, context: ConditionContext) -> jax.Array:
    """Fourier surrogates along the words (Theiler et al. 1992; multivariate, Prichard & Theiler 1994).

    At each frequency, the same random phase is added to all features. So every feature of a sample keeps mean, variance
    and amplitude spectrum over the real words, and pairs of features keep their cross-spectrum. The place of each word
    and all other phase information are destroyed. A sample of one word is unchanged.
    """
    keys = sample_keys(context, _PHASES)
    uniform = jax.vmap(lambda key: jax.random.uniform(key, mask.shape[1:]))(keys)
    words = jnp.arange(mask.shape[1], dtype=jnp.int32)
    length = _lengths(mask)[:, None, None]  # --> [B, 1, 1]
    if mask.shape[1] > MOST_DENSE:
        phases = _phases(uniform, length[:, :, 0])[:, :, None]
        flat = jnp.where(_like(mask, features), features, 0).reshape(*mask.shape, -1)
        turned = _turn(phases) * _dft(flat, length)
        turned = jnp.where(words[None, :, None] < length, turned, jnp.zeros((), turned.dtype))
        fed = _dft(turned.conj(), length).real / length.astype(phases.dtype)
        return fed.astype(features.dtype).reshape(features.shape)
    # Adding phases in the Fourier domain equals a circular convolution over the sample's length, which needs neither
    # complex numbers nor an FFT of varying length.
    kernel = _kernel(uniform, length[:, :, 0])  # --> [B, W]
    lag = (words[None, :, None] - words[None, None, :]) % length  # --> [B, W, W]
    circulant = jnp.take_along_axis(kernel[:, None, :], lag, axis=2)
    real = jnp.where(_like(mask, features), features, 0).reshape(*mask.shape, -1)
    turned = jnp.einsum("bwv,bvf->bwf", circulant, real.astype(circulant.dtype), precision=jax.lax.Precision.HIGHEST)
    return turned.reshape(features.shape)


MOST_DENSE = 512  # positions up to which `phase_randomized` multiplies by a matrix `[W, W]` for each sample


def _dft(values: jax.Array, length: jax.Array) -> jax.Array:
    """Return the DFT over the first `length [B, 1, 1]` of W positions, complex `[B, W, F]`; values beyond must be 0.

    Bluestein's algorithm: a product with a chirp, a convolution with a chirp by FFTs of one size, and a product.
    """
    n = values.shape[1]
    size, place = 1 << (2 * n - 2).bit_length(), jnp.arange(n, dtype=jnp.int32)[None, :, None]
    turns = (place * place) % (2 * length)  # exact integers; needs n < 46341
    chirp = _turn(jnp.pi * turns.astype(jnp.float32) / length.astype(jnp.float32))  # --> [B, W, 1]
    both = jnp.zeros((len(length), size, 1), chirp.dtype).at[:, :n].set(chirp)
    both = both.at[:, size - n + 1 :].set(chirp[:, :0:-1])
    product = jnp.fft.fft(values.astype(chirp.dtype) * chirp.conj(), size, axis=1) * jnp.fft.fft(both, axis=1)
    return jnp.fft.ifft(product, axis=1)[:, :n] * chirp.conj()


def _turn(phase: jax.Array) -> jax.Array:
    return jax.lax.complex(jnp.cos(phase), jnp.sin(phase))


def _like(values: jax.Array, features: jax.Array) -> jax.Array:
    """Reshape `[B, W]` to `[B, W, 1, ...]`, with as many axes as features."""
    return values.reshape(*values.shape, *[1] * (features.ndim - 2))


def _kernel(uniform: jax.Array, length: jax.Array) -> jax.Array:
    """Return the inverse DFT over `length [B, 1]` words of `exp(i phase)`, see `_phases`, real `[B, W]`."""
    frequency = jnp.arange(uniform.shape[1], dtype=jnp.int32)[None]  # --> [1, W]
    phase = _phases(uniform, length)
    turns = (frequency[:, :, None] * frequency[:, None, :]) % length[:, :, None]  # [B, lag, frequency], exact integers
    angle = 2 * jnp.pi * turns.astype(uniform.dtype) / length[:, :, None].astype(uniform.dtype)
    waves = jnp.where((frequency < length)[:, None, :], jnp.cos(angle + phase[:, None, :]), 0.0)
    return waves.sum(axis=2) / length.astype(uniform.dtype)


def _phases(uniform: jax.Array, length: jax.Array) -> jax.Array:
    """Return the phases that are added at the frequencies of a DFT over `length [B, 1]` words, `[B, W]`.

    They are `2 pi uniform [B, W]`, except at frequency 0 (the mean), the highest and the mirrored frequencies.
    """
    frequency = jnp.arange(uniform.shape[1], dtype=jnp.int32)[None]  # --> [1, W]
    mirror = jnp.clip(length - frequency, 0, uniform.shape[1] - 1)
    phase = jnp.where(
        2 * frequency < length,
        2 * jnp.pi * uniform,
        -2 * jnp.pi * jnp.take_along_axis(uniform, mirror, axis=1),  # phase[-k] = -phase[k] makes the result real
    )
    # The highest frequency gets a random sign; the mean does not change.
    phase = jnp.where(2 * frequency == length, jnp.pi * jnp.round(uniform), phase)
    return jnp.where(frequency == 0, 0.0, phase)


def _lengths(mask: jax.Array) -> jax.Array:
    """Return the number of real words of every sample, int32 `[B]`; at least 1, to avoid division by 0."""
    return jnp.maximum(mask.sum(axis=1, dtype=jnp.int32), 1)


Condition = Callable[[jax.Array, jax.Array, ConditionContext], jax.Array]


def eeg(features: jax.Array, mask: jax.Array, context: ConditionContext) -> jax.Array:
    """The recording itself."""
    return features


def shuffled(features: jax.Array, mask: jax.Array, context: ConditionContext) -> jax.Array:
    """The EEG of another sentence: keeps subject, task, statistics and, if possible, length; destroys content."""
    return context.donor


def fed_mask(names: Sequence[str], mask: jax.Array) -> jax.Array:
    """Return the mask of each arm's encoder input, bool `[A, ...]`, from a mask `[A or 1, ...]`.

    `names` are the conditions of the arms. Under `prompt_only` the mask is False everywhere.
    """
    has_recording = np.array([name != "prompt_only" for name in names])
    return mask & jnp.asarray(has_recording).reshape(-1, *[1] * (mask.ndim - 1))


def clock(features: jax.Array, mask: jax.Array, context: ConditionContext) -> jax.Array:
    """A code of the recording and the time in it, at every word: keeps only these two and the number of words."""
    return jnp.broadcast_to(context.clock.reshape(len(features), 1, *features.shape[2:]), features.shape)


def neighbor(features: jax.Array, mask: jax.Array, context: ConditionContext) -> jax.Array:
    """The EEG of the nearest sample in time with another sentence: keeps subject, time and roughly the length."""
    return context.neighbor


_FUNCTIONS = {
    function.__name__: function
    for function in (eeg, noise, noise_redrawn, noise_uniform, noise_spectrum, zero, shuffled, time_reversed,
                     phase_randomized, subject_mean, length_only, clock, neighbor)
}  # fmt: skip
# Under label_shuffle only the texts differ; under prompt_only the model reads only its prompt, see `fed_mask`.
_FUNCTIONS |= {"label_shuffle": eeg, "prompt_only": zero}
CONDITIONS: Mapping[str, Condition] = MappingProxyType({name: _FUNCTIONS[name] for name in NAMES})
# They depend on the arm's seed.
RANDOM = frozenset({"noise", "noise_redrawn", "noise_uniform", "noise_spectrum", "phase_randomized"})
_NEEDS = {"shuffled": ("donor",), "subject_mean": ("subject", "means"), "length_only": ("means",),
          "clock": ("clock",), "neighbor": ("neighbor",), "noise_spectrum": ("kernel",)}  # fmt: skip


def needs(names: Collection[str]) -> frozenset[str]:
    """Return the names of optional fields of `ConditionContext` that at least one of these conditions reads."""
    return frozenset(field for name in names for field in _NEEDS.get(name, ()))


def apply_condition(name: str, features: jax.Array, mask: jax.Array, context: ConditionContext) -> jax.Array:
    """Return the encoder's input under condition `name` (static under jit): `[B, W, F]`, zero at padding.

    `mask`, bool `[B, W]`, is True at real words, which precede padding; it is the mask of the result, too. Raises
    ValueError if the context lacks a needed field, see `needs`.
    """
    for field in _NEEDS.get(name, ()):
        if getattr(context, field) is None:
            raise ValueError(f"condition {name!r} needs context.{field}")
    fed = CONDITIONS[name](features, mask, context)
    return jnp.where(_like(mask, features), fed.astype(features.dtype), jnp.zeros((), features.dtype))


def condition_inputs(
    arms: Sequence[tuple[str, int]], features: jax.Array, mask: jax.Array, context: ConditionContext
) -> jax.Array:
    """Return the encoder input of every arm, `[A, B, W, F]`, from one batch; see `distinct_inputs`."""
    return choose_by_arm(*distinct_inputs(arms, features, mask, context))


def distinct_inputs(
    arms: Sequence[tuple[str, int]], features: jax.Array, mask: jax.Array, context: ConditionContext
) -> tuple[list[jax.Array], list[int]]:
    """Return the distinct encoder inputs of one batch, each `[B, W, F]`, and for each arm the index of its input.

    `arms` are condition and seed of each arm, static under jit. Arms with different seeds draw different noise; an
    input that several arms share is computed once.
    """
    inputs = [(name, seed if name in RANDOM else None) for name, seed in arms]
    distinct = list(dict.fromkeys(inputs))
    fed = []
    for name, seed in distinct:
        key = context.key if seed is None else jax.random.fold_in(context.key, seed)
        fed.append(apply_condition(name, features, mask, context._replace(key=key)))
    return fed, [distinct.index(pair) for pair in inputs]


# Describe the encoder's input under a condition in numbers, for `eeg2text check DATA.h5 --condition=noise`.


def condition_lines(data: DataFile, name: str) -> list[str]:
    """Return lines of text on the encoder's input for the first 64 samples, in a run and an arm with seed 0.

    Raises UserError if there is no such condition, it needs a split, or the samples are windows of scans.
    """
    if name not in CONDITIONS:
        raise UserError(f"--condition={name}: there is no such condition; {did_you_mean(name, CONDITIONS)}")
    if wanted := needs([name]):
        raise UserError(
            f"--condition={name}: is made from a split's parts ({', '.join(sorted(wanted))}), which a data file does "
            f"not have; expected one of {', '.join(other for other in CONDITIONS if not needs([other]))}."
        )
    if data.is_windows:
        raise UserError(f"--condition={name}: {data.path} has windows of scans; expected words.")
    n_words = data.n_words[:64]
    mask = np.arange(n_words.max()) < n_words[:, None]
    features = np.zeros((*mask.shape, data.n_features), np.float32)
    features[mask] = data.features[0 : n_words.sum()]
    context = ConditionContext(condition_key(0), np.arange(len(mask), dtype=np.int32), np.int32(0))
    (fed,), _ = distinct_inputs([(name, 0)], features, mask, context)
    fed = np.asarray(fed)
    real, recorded = fed[mask], features[mask]
    constant = not real.std() or not recorded.std()
    correlation = "none, as one is constant" if constant else f"{np.corrcoef(real.ravel(), recorded.ravel())[0, 1]:.3f}"
    same = int(((fed != 0).any(-1).sum(1) == mask.sum(1)).sum())
    first = " ".join(f"{value:.3f}" for value in fed[0, 0, :6])
    return [
        f"condition {name}, seed 0: {len(mask)} of {len(data)} samples, {len(real)} words of {data.n_features} numbers",
        f"  fed: {spread(real)}; in the file: {spread(recorded)}; correlation {correlation}",
        f"  as many words as in the file in {same} of {len(mask)} samples; largest value at padding "
        f"{np.abs(fed[~mask]).max(initial=0):g}",
        f"  first word of {data.subject[0]}/{data.task[0]}:{data.sentence_index[0]}: {first} ...",
    ]


def spread(values: np.ndarray) -> str:
    """Return a phrase with mean, standard deviation and range of values."""
    return f"mean {values.mean():.3f}, sd {values.std():.3f}, from {values.min():.2f} to {values.max():.2f}"
