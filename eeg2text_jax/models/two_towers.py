"""The contrastive model: a brain encoder whose output is close to a frozen embedding of the sentence that was read.

The other tower is not trained and is no part of the model: embeddings of texts are data (`study.text_targets`).
"""

import dataclasses
import functools
import math

import jax
import jax.numpy as jnp
from flax import nnx

from eeg2text_jax.models.brain.encoder import make_encoder
from eeg2text_jax.models.functional import Inputs, Seq2SeqModel
from eeg2text_jax.models.nnx_bridge import Params, PureModel, in_compute_dtype
from eeg2text_jax.models.spec import EEGSpec, Seq2SeqSpec

LENGTH_FEATURES = 32  # sines and cosines of the number of words
LONGEST_WAVE = 100.0  # in radians: wavelengths are from 6 to 600 words
HIGHEST_SCALE = math.log(100.0)  # of the learned temperature's inverse, as in CLIP (Radford et al. 2021)


class BrainTower(nnx.Module):
    """The brain encoder of the generative model, the mean over words, and a dense layer to the width of the targets.

    The number of words is added to the mean. The mean alone shows the length to some arms and hides it from others: it
    does not change with the length for constant features, and shrinks with it for noise. An arm that cannot know the
    length is no control for one that does.
    """

    def __init__(self, model: "ContrastiveModel", dtype: jnp.dtype, rngs: nnx.Rngs) -> None:
        self.eeg = make_encoder(model.eeg, model.width, dtype, rngs)
        self.length = nnx.Linear(LENGTH_FEATURES, model.width, dtype=dtype, rngs=rngs)
        self.output = nnx.Linear(model.width, model.outputs, dtype=dtype, rngs=rngs)
        if model.learn_temperature:
            self.log_scale = nnx.Param(jnp.full((1,), -math.log(model.temperature), jnp.float32))

    def __call__(self, inputs: Inputs, dropout_key: jax.Array | None, **options) -> jax.Array:
        """Map `features [B, W, F]` and `mask [B, W]` to unit-norm `[B, E]`, float32."""
        mask = inputs["mask"]
        with jax.named_scope("eeg_encoder"):
            words, mask = self.eeg(inputs["features"], mask, dropout_key=dropout_key, **options)
            words = words.astype(jnp.float32)
        real = mask[..., None].astype(jnp.float32)
        count = jnp.sum(real, axis=1)  # --> [B, 1]
        pooled = jnp.sum(words * real, axis=1) / jnp.maximum(count, 1.0)
        pooled = pooled + self.length(length_features(count)).astype(jnp.float32)
        return unit_length(self.output(pooled).astype(jnp.float32))


def length_features(count: jax.Array) -> jax.Array:
    """Map numbers of words, float32 `[B, 1]`, to sines and cosines of several wavelengths, `[B, LENGTH_FEATURES]`."""
    waves = LENGTH_FEATURES // 2
    rates = LONGEST_WAVE ** (-jnp.arange(waves, dtype=jnp.float32) / (waves - 1))
    angles = count * rates[None]
    return jnp.concatenate([jnp.sin(angles), jnp.cos(angles)], axis=1)


def unit_length(x: jax.Array) -> jax.Array:
    """Divide vectors `[..., E]` by their length; zeros stay zeros, and have a gradient."""
    return x * jax.lax.rsqrt(jnp.maximum(jnp.sum(x * x, axis=-1, keepdims=True), 1e-12))


@dataclasses.dataclass(frozen=True)
class ContrastiveModel(PureModel):
    """A brain tower as pure functions of its parameters.

    `base` is the generative model of the same configuration: its EEG encoder is the one here, and its tokens pad
    batches.
    """

    base: Seq2SeqModel
    width: int  # of the output of the EEG encoder
    outputs: int  # E, the width of the targets
    temperature: float  # that cosines are divided by; where it is learned, the first one
    learn_temperature: bool

    @property
    def spec(self) -> Seq2SeqSpec:
        return self.base.spec

    @property
    def eeg(self) -> EEGSpec:
        return self.base.eeg

    @property
    def start_token(self) -> int:
        return self.base.start_token

    @property
    def pad_token(self) -> int:
        return self.base.pad_token

    @property
    def eos_token(self) -> int:
        return self.base.eos_token

    def embed(self, params: Params, inputs: Inputs, *, dropout_key: jax.Array | None = None) -> jax.Array:
        """Map `features [B, W, F]` and `mask [B, W]` to unit-norm embeddings `[B, E]`, float32."""
        remat = self.base.keep if self.base.remat else None
        params = in_compute_dtype(params, jnp.dtype(self.base.dtype), layers=not self.base.remat)
        return self._bound(params)(inputs, dropout_key, remat=remat)

    def scale(self, params: Params) -> jax.Array:
        """Return the factor of cosines, a float32 scalar: one over the temperature, at most 100 if it is learned."""
        if not self.learn_temperature:
            return jnp.float32(1.0 / self.temperature)
        return jnp.exp(jnp.minimum(params["log_scale"][0], jnp.float32(HIGHEST_SCALE)))

    def _make(self) -> functools.partial:
        return functools.partial(BrainTower, self, jnp.dtype(self.base.dtype))
