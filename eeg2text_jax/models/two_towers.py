"""The contrastive model: a brain encoder trained to output the embedding of the sentence that was read.

Embeddings of sentences come from a frozen text encoder and are data (`study.text_targets`).
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
LONGEST_WAVE = 100.0  # longest wavelength / 2 pi, so wavelengths are from 6 to 600 words
HIGHEST_SCALE = math.log(100.0)  # largest log(1 / temperature) that is learned, as in CLIP (Radford et al. 2021)


class BrainTower(nnx.Module):
    """Brain encoder, mean over words plus features of their number, and a dense layer to the text embeddings' width E.

    Models of EEG and of controls such as noise must all know the number of words, or comparing them is unfair. The mean
    alone does not tell the number: the mean of constant features does not depend on it, the mean of noise only becomes
    smaller with it.
    """

    def __init__(self, model: "ContrastiveModel", dtype: jnp.dtype, rngs: nnx.Rngs) -> None:
        self.eeg = make_encoder(model.eeg, model.width, dtype, rngs)
        self.length = nnx.Linear(LENGTH_FEATURES, model.width, dtype=dtype, rngs=rngs)
        self.output = nnx.Linear(model.width, model.outputs, dtype=dtype, rngs=rngs)
        if model.learn_temperature:
            self.log_scale = nnx.Param(jnp.full((1,), -math.log(model.temperature), jnp.float32))

    def __call__(self, inputs: Inputs, dropout_key: jax.Array | None, **options) -> jax.Array:
        """Return unit-norm embeddings, float32 `[B, E]`, of `features [B, W, F]` and `mask [B, W]` in `inputs`."""
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
    """Return sines and cosines, `[B, LENGTH_FEATURES]`, of numbers of words, float32 `[B, 1]`."""
    waves = LENGTH_FEATURES // 2
    rates = LONGEST_WAVE ** (-jnp.arange(waves, dtype=jnp.float32) / (waves - 1))
    angles = count * rates[None]
    return jnp.concatenate([jnp.sin(angles), jnp.cos(angles)], axis=1)


def unit_length(x: jax.Array) -> jax.Array:
    """Divide vectors `[..., E]` by their length; a zero vector stays zero, and its gradient is finite."""
    return x * jax.lax.rsqrt(jnp.maximum(jnp.sum(x * x, axis=-1, keepdims=True), 1e-12))


@dataclasses.dataclass(frozen=True)
class ContrastiveModel(PureModel):
    """The contrastive model as pure functions of its parameters."""

    base: Seq2SeqModel  # generative model of the same configuration; its brain encoder and token ids are used
    width: int  # width of the brain encoder's output
    outputs: int  # E, width of the text embeddings
    temperature: float  # divisor of cosines; its initial value if it is learned
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
        """Return unit-norm embeddings, float32 `[B, E]`, of `features [B, W, F]` and `mask [B, W]` in `inputs`."""
        remat = self.base.keep if self.base.remat else None
        params = in_compute_dtype(params, jnp.dtype(self.base.dtype), layers=not self.base.remat)
        return self._module(params)(inputs, dropout_key, remat=remat)

    def scale(self, params: Params) -> jax.Array:
        """Return 1 / temperature, by which cosines are multiplied: float32 scalar, at most 100 if it is learned."""
        if not self.learn_temperature:
            return jnp.float32(1.0 / self.temperature)
        return jnp.exp(jnp.minimum(params["log_scale"][0], jnp.float32(HIGHEST_SCALE)))

    def _make(self) -> functools.partial:
        return functools.partial(BrainTower, self, jnp.dtype(self.base.dtype))
