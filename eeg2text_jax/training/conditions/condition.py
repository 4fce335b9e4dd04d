"""EEG and its controls: functions inside jit from features `[B, W, F]` to the encoder's input of that shape.

A word is one of the W positions of a recording; of volumes, F stands for `[X, Y, Z]` and words are frames. Every
condition keeps the mask, and so the number of words.
"""

import functools
from collections.abc import Callable, Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from eeg2text_jax.base.devices.arms import choose_by_arm
from eeg2text_jax.base.errors import UserError, did_you_mean
from eeg2text_jax.data.datafile import DataFile
from eeg2text_jax.training.conditions import FED

# Random streams: purpose -> a constant above any step, sample, seed or epoch, which is folded in first: otherwise keys
# coincide, as `split(key, n)[i]` is `fold_in(key, i)`, and NumPy's `default_rng(s)` is `default_rng([s, 0])`.
# Changing a constant changes results.
STREAMS = {
    "init": 0xA3C59AC3,  # initial parameters, by seed of the arm
    "dropout": 0xB7E15163,  # by seed of the arm, then by step
    "condition": 0xC6EF3720,  # noise and random phases, by seed of the arm, then by condition and sample
    "sampling": 0xD1310BA6,  # tokens drawn while decoding, by sample
    "clock": 0x5D7A3C41,  # the random projection of recording and time to features
    "donors": 0xE19B01AA,  # choice of donors, see `_donors.donor_table`
    "label_rows": 0xF39CC060,  # choice of texts, see `_donors.label_rows`
}


def stream_key(seed: int | jax.Array, name: str, impl: str | None = None) -> jax.Array:
    """Return the root key of a stream for a configuration's `seed`; `impl` names the PRNG."""
    return jax.random.fold_in(jax.random.key(seed, impl=impl), np.uint32(STREAMS[name]))


def stream_rng(seed: int, name: str) -> np.random.Generator:
    """Return NumPy's generator of a stream for a configuration's `seed`."""
    return np.random.default_rng([STREAMS[name], seed])


_PREFIX_STABLE = "threefry2x32"
Array: TypeAlias = jax.Array | np.ndarray


class ConditionContext(NamedTuple):
    """Inputs of the conditions besides features and mask; None: no condition in use needs it."""

    key: Array  # scalar, from `condition_key`
    sample_id: Array  # int32 [B], row in the data file
    step: Array  # int32 scalar, for `noise_redrawn`; 0 in evaluation
    subject: Array | None = None  # int32 [B], row of each sample's subject in `means`
    means: Array | None = None  # float32 [S + 1, F], mean words, from `_donors.train_means`
    donor: Array | None = None  # float32 [B, W, F], donors' features, cut or repeated to each length
    clock: Array | None = None  # float32 [B, F] (volumes flat), code of recording and time in it
    neighbor: Array | None = None  # float32 [B, W, F], features of the samples nearest in time
    kernel: Array | None = None  # float32 [K, F], gives white noise a spectrum, see `noise_kernel`

    @classmethod
    def of(cls, batch: Mapping[str, Any], constants: Any, step: Array) -> "ConditionContext":
        """Return the context of a batch `[B, ...]`; `constants` are a `StudyArrays`."""
        fed = {name: batch.get(name) for name in FED}
        return cls(constants.condition, batch["sample_id"], step, means=constants.means, kernel=constants.kernel, **fed)


def condition_key(seed: int) -> jax.Array:
    """Return the key of all random conditions: threefry, so that a sample's noise does not depend on its batch.

    The first `w` rows of a draw `[W, F]` are a draw `[w, F]`, and under `vmap` a key draws as it does alone; with `rbg`
    neither holds.
    """
    return stream_key(seed, "condition", _PREFIX_STABLE)


def sample_keys(context: ConditionContext, purpose: int) -> jax.Array:
    """Return a key per sample, `[B]`, for a `purpose`; `context.key` must be a `condition_key`."""
    if str(kind := jax.random.key_impl(context.key)) != _PREFIX_STABLE:
        raise ValueError(f"conditions need a key from condition_key, got one of {kind}")
    return jax.vmap(jax.random.fold_in, (None, 0))(jax.random.fold_in(context.key, purpose), context.sample_id)


MOST_LAGS = 256  # half of the longest kernel of `noise_spectrum`
# Purposes of `sample_keys`, so that a sample's draws are independent.
_FIXED, _REDRAWN, _UNIFORM, _PHASES, _SPECTRUM = 1, 2, 3, 4, 5


def noise_spectrum(features: jax.Array, mask: jax.Array, context: ConditionContext) -> jax.Array:
    """Noise with each feature's mean spectrum over the train part, drawn once per sample."""
    taps, width = context.kernel.shape[0], features.shape[1] + context.kernel.shape[0] - 1
    shape = (width, *features.shape[2:])
    white = jax.vmap(lambda key: jax.random.normal(key, shape))(sample_keys(context, _SPECTRUM))
    kernel = context.kernel.reshape(taps, *features.shape[2:])
    size = 1 << (width - 1).bit_length()
    spectrum = jnp.fft.rfft(white, size, axis=1) * jnp.conj(jnp.fft.rfft(kernel, size, axis=0))[None]
    return jnp.fft.irfft(spectrum, size, axis=1)[:, : features.shape[1]]


def _draw(
    distribution: Any, purpose: int, features: jax.Array, mask: jax.Array, context: ConditionContext
) -> jax.Array:
    keys = sample_keys(context, purpose)
    if purpose == _REDRAWN:
        keys = jax.vmap(jax.random.fold_in, (0, None))(keys, context.step)
    return jax.vmap(lambda key: distribution(key, features.shape[1:]))(keys)


def time_reversed(features: jax.Array, mask: jax.Array, context: ConditionContext) -> jax.Array:
    """The words in reverse order."""
    words = jnp.arange(mask.shape[1], dtype=jnp.int32)
    index = jnp.clip(_lengths(mask)[:, None] - 1 - words[None], 0)  # --> [B, W]
    return jnp.take_along_axis(features, _like(index, features), axis=1)


def phase_randomized(features: jax.Array, mask: jax.Array, context: ConditionContext) -> jax.Array:
    """Fourier surrogates along the words (Theiler et al. 1992; multivariate, Prichard & Theiler 1994).

    All features get the same random phases: each keeps mean, variance and amplitude spectrum over the real words, and
    pairs keep their cross-spectrum. A sample of one word is unchanged.
    """
    uniform = jax.vmap(lambda key: jax.random.uniform(key, mask.shape[1:]))(sample_keys(context, _PHASES))
    words = jnp.arange(mask.shape[1], dtype=jnp.int32)
    length = _lengths(mask)[:, None, None]  # --> [B, 1, 1]
    real = jnp.where(_like(mask, features), features, 0).reshape(*mask.shape, -1)
    if mask.shape[1] > MOST_DENSE:
        phases = _phases(uniform, length[:, :, 0])[:, :, None]
        turned = _turn(phases) * _dft(real, length)
        turned = jnp.where(words[None, :, None] < length, turned, jnp.zeros((), turned.dtype))
        fed = _dft(turned.conj(), length).real / length.astype(phases.dtype)
        return fed.astype(features.dtype).reshape(features.shape)
    # Adding phases is a circular convolution over the sample's length, which needs neither complex numbers nor an FFT
    # of varying length.
    kernel = _kernel(uniform, length[:, :, 0])  # --> [B, W]
    lag = (words[None, :, None] - words[None, None, :]) % length  # --> [B, W, W]
    circulant = jnp.take_along_axis(kernel[:, None, :], lag, axis=2)
    turned = jnp.einsum("bwv,bvf->bwf", circulant, real.astype(circulant.dtype), precision=jax.lax.Precision.HIGHEST)
    return turned.reshape(features.shape)


MOST_DENSE = 512  # positions up to which `phase_randomized` multiplies by a matrix `[W, W]`


def _dft(values: jax.Array, length: jax.Array) -> jax.Array:
    """Return the DFT over the first `length` of W positions (0 beyond), complex `[B, W, F]` (Bluestein's algorithm)."""
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
    """Return the phases added at the frequencies of a DFT over `length [B, 1]` words, `[B, W]`."""
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
    """Return the number of real words of every sample, int32 `[B]`, but at least 1, as a divisor."""
    return jnp.maximum(mask.sum(axis=1, dtype=jnp.int32), 1)


class Condition(NamedTuple):
    """What the encoder is fed."""

    inputs: Callable[[jax.Array, jax.Array, ConditionContext], jax.Array]  # from features, mask and context, as below
    needs: tuple[str, ...] = ()  # optional fields of the context that it reads
    random: bool = False  # whether arms of different seeds get different draws


def fed_mask(names: Sequence[str], mask: jax.Array) -> jax.Array:
    """Return the arms' masks, bool `[A, ...]`, from one `[A or 1, ...]`: under `prompt_only`, all False."""
    has_recording = np.array([name != "prompt_only" for name in names])
    return mask & jnp.asarray(has_recording).reshape(-1, *[1] * (mask.ndim - 1))


# `inputs` returns values that are broadcast to the shape of the features, `[B, W, F]`.
CONDITIONS: Mapping[str, Condition] = MappingProxyType(
    {
        # The recording itself.
        "eeg": Condition(lambda features, mask, context: features),
        # Standard normal noise, drawn once per sample, as in the noise study of Jo et al.
        "noise": Condition(functools.partial(_draw, jax.random.normal, _FIXED), random=True),
        # Redrawn at every step, so that no model memorizes sentences by their noise.
        "noise_redrawn": Condition(functools.partial(_draw, jax.random.normal, _REDRAWN), random=True),
        # Uniform in [0, 1), drawn once per sample (the first published EEG-to-text code redraws it per batch).
        "noise_uniform": Condition(functools.partial(_draw, jax.random.uniform, _UNIFORM), random=True),
        "noise_spectrum": Condition(noise_spectrum, needs=("kernel",), random=True),
        # For standardized features, zeros equal `length_only`.
        "zero": Condition(lambda features, mask, context: jnp.zeros_like(features)),
        # The EEG of another sentence: keeps subject, task, statistics and, if possible, length.
        "shuffled": Condition(lambda features, mask, context: context.donor, needs=("donor",)),
        "time_reversed": Condition(time_reversed),
        "phase_randomized": Condition(phase_randomized, random=True),
        # The subject's mean word of the train part at every word.
        "subject_mean": Condition(
            lambda features, mask, context: context.means[context.subject][:, None], needs=("subject", "means")
        ),
        # The mean word of the train part at every word.
        "length_only": Condition(lambda features, mask, context: context.means[-1][None, None], needs=("means",)),
        # Only the texts differ, see `_donors.label_rows`.
        "label_shuffle": Condition(lambda features, mask, context: features),
        # The model reads only its prompt, see `fed_mask`.
        "prompt_only": Condition(lambda features, mask, context: jnp.zeros_like(features)),
        # A code of the recording and the time in it, at every word.
        "clock": Condition(
            lambda features, mask, context: context.clock.reshape(len(features), 1, *features.shape[2:]),
            needs=("clock",),
        ),
        # The EEG of the nearest sample in time with another sentence.
        "neighbor": Condition(lambda features, mask, context: context.neighbor, needs=("neighbor",)),
    }
)


def needs(names: Collection[str]) -> frozenset[str]:
    """Return the optional fields of `ConditionContext` that these conditions read."""
    return frozenset(field for name in CONDITIONS if name in names for field in CONDITIONS[name].needs)


def apply_condition(name: str, features: jax.Array, mask: jax.Array, context: ConditionContext) -> jax.Array:
    """Return the encoder's input under condition `name` (static under jit), `[B, W, F]`, zero at padding.

    `mask`, bool `[B, W]`, is True at real words, which come first. ValueError for what the context lacks.
    """
    for field in CONDITIONS[name].needs:
        if getattr(context, field) is None:
            raise ValueError(f"condition {name!r} needs context.{field}")
    fed = jnp.broadcast_to(CONDITIONS[name].inputs(features, mask, context), features.shape)
    return jnp.where(_like(mask, features), fed.astype(features.dtype), jnp.zeros((), features.dtype))


def condition_inputs(
    arms: Sequence[tuple[str, int]], features: jax.Array, mask: jax.Array, context: ConditionContext
) -> jax.Array:
    """Return the encoder input of every arm, `[A, B, W, F]`; see `distinct_inputs`."""
    return choose_by_arm(*distinct_inputs(arms, features, mask, context))


def distinct_inputs(
    arms: Sequence[tuple[str, int]], features: jax.Array, mask: jax.Array, context: ConditionContext
) -> tuple[list[jax.Array], list[int]]:
    """Return the distinct encoder inputs of one batch, each `[B, W, F]`, and for each arm the index of its input.

    `arms` are condition and seed of each, static under jit; another seed draws other noise.
    """
    inputs = [(name, seed if CONDITIONS[name].random else None) for name, seed in arms]
    distinct = list(dict.fromkeys(inputs))
    fed = []
    for name, seed in distinct:
        key = context.key if seed is None else jax.random.fold_in(context.key, seed)
        fed.append(apply_condition(name, features, mask, context._replace(key=key)))
    return fed, [distinct.index(pair) for pair in inputs]


def condition_lines(data: DataFile, name: str) -> list[str]:
    """Return lines on the encoder's input for the first 64 samples; UserError if the condition needs a split."""
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
    fed = np.asarray(distinct_inputs([(name, 0)], features, mask, context)[0][0])
    real, recorded = fed[mask], features[mask]
    constant = not real.std() or not recorded.std()
    correlation = "none, as one is constant" if constant else f"{np.corrcoef(real.ravel(), recorded.ravel())[0, 1]:.3f}"
    same = int(((fed != 0).any(-1).sum(1) == mask.sum(1)).sum())
    first = " ".join(f"{value:.3f}" for value in fed[0, 0, :6])
    return [
        f"condition {name}, seed 0: {len(mask)} of {len(data)} samples, {len(real)} words of {data.n_features} numbers",
        f"  fed: {_spread(real)}; in the file: {_spread(recorded)}; correlation {correlation}",
        f"  as many words as in the file in {same} of {len(mask)} samples; largest value at padding "
        f"{np.abs(fed[~mask]).max(initial=0):g}",
        f"  first word of {data.subject[0]}/{data.task[0]}:{data.sentence_index[0]}: {first} ...",
    ]


def _spread(values: np.ndarray) -> str:
    return f"mean {values.mean():.3f}, sd {values.std():.3f}, from {values.min():.2f} to {values.max():.2f}"
