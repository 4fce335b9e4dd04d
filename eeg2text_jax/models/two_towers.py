"""The contrastive model: a brain encoder whose output is close to a frozen embedding of the sentence that was read.

The other tower is not trained and is no part of the model: embeddings of texts are data (`study.text_targets`).
"""

import dataclasses
import functools
import math

import jax
import jax.numpy as jnp
from flax import nnx

from eeg2text_jax.models.brain.encoder import encode_brain, make_encoder
from eeg2text_jax.models.eeg2text import Inputs
from eeg2text_jax.models.functional import Seq2SeqModel
from eeg2text_jax.models.nnx_bridge import Params, bind, in_compute_dtype, init_params, structure_of
from eeg2text_jax.models.spec import EEGSpec, Seq2SeqSpec

LENGTH_FEATURES = 32  # sines and cosines of the number of words
LONGEST_WAVE = 100.0  # in radians: wavelengths are from 6 to 600 words
HIGHEST_SCALE = math.log(100.0)  # of the learned temperature's inverse, as in CLIP (Radford et al. 2021)


class BrainTower(nnx.Module):
    """The brain encoder of the generative model, the mean over words, and a dense layer to the width of the targets.

    The number of words is added to the mean openly. A mean shows it to some arms and hides it from others: of constant
    features it is the same whatever the length, of noise it shrinks as sentences grow. An arm that could not know the
    length would be no control for one that does.
    """

    def __init__(self, model: "ContrastiveModel", dtype: jnp.dtype, rngs: nnx.Rngs) -> None:
        self.eeg = make_encoder(model.eeg, model.width, dtype, rngs)
        self.length = nnx.Linear(LENGTH_FEATURES, model.width, dtype=dtype, rngs=rngs)
        self.output = nnx.Linear(model.width, model.outputs, dtype=dtype, rngs=rngs)
        if model.learn_temperature:
            self.log_scale = nnx.Param(jnp.full((1,), -math.log(model.temperature), jnp.float32))

    def __call__(self, inputs: Inputs, dropout_key: jax.Array | None, **options) -> jax.Array:
        """`features [B, W, F]` and `mask [B, W]` -> `[B, E]` of length 1, float32."""
        mask = inputs["mask"]
        with jax.named_scope("eeg_encoder"):
            words, mask = encode_brain(self.eeg, inputs["features"], mask, dropout_key=dropout_key, **options)
            words = words.astype(jnp.float32)
        real = mask[..., None].astype(jnp.float32)
        count = jnp.sum(real, axis=1)  # --> [B, 1]
        pooled = jnp.sum(words * real, axis=1) / jnp.maximum(count, 1.0)
        pooled = pooled + self.length(length_features(count)).astype(jnp.float32)
        return unit_length(self.output(pooled).astype(jnp.float32))


def length_features(count: jax.Array) -> jax.Array:
    """Numbers of words, float32 `[B, 1]` -> sines and cosines of waves of several lengths, `[B, LENGTH_FEATURES]`."""
    waves = LENGTH_FEATURES // 2
    rates = LONGEST_WAVE ** (-jnp.arange(waves, dtype=jnp.float32) / (waves - 1))
    angles = count * rates[None]
    return jnp.concatenate([jnp.sin(angles), jnp.cos(angles)], axis=1)


def unit_length(x: jax.Array) -> jax.Array:
    """Vectors `[..., E]` over their length; zeros stay zeros, and have a gradient."""
    return x * jax.lax.rsqrt(jnp.maximum(jnp.sum(x * x, axis=-1, keepdims=True), 1e-12))


@dataclasses.dataclass(frozen=True)
class ContrastiveModel:
    """Functions of one model; hashable and without parameters, as `Seq2SeqModel`.

    `base` is the generative model of the same configuration: its EEG encoder is the one here, and its tokens are what
    batches are padded with. Nothing else of it is used or trained.
    """

    base: Seq2SeqModel
    width: int  # of what the EEG encoder hands over
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

    @property
    def shapes(self) -> Params:
        """`jax.ShapeDtypeStruct` of every parameter, in dicts of the caller's own."""
        return jax.tree.map(lambda leaf: leaf, _structure(self)[1])

    def init(self, key: jax.Array) -> Params:
        """Random parameters, float32."""
        return init_params(self._make(), key)

    def embed(self, params: Params, inputs: Inputs, *, dropout_key: jax.Array | None = None) -> jax.Array:
        """`features [B, W, F]` and `mask [B, W]` -> embeddings of length 1, `[B, E]` float32."""
        remat = self.base.keep if self.base.remat else None
        return self._bind(params)(inputs, dropout_key, remat=remat)

    def scale(self, params: Params) -> jax.Array:
        """What cosines are multiplied by, a float32 scalar: one over the temperature, at most 100 where learned."""
        if not self.learn_temperature:
            return jnp.float32(1.0 / self.temperature)
        return jnp.exp(jnp.minimum(params["log_scale"][0], jnp.float32(HIGHEST_SCALE)))

    def _make(self) -> functools.partial:
        return functools.partial(BrainTower, self, jnp.dtype(self.base.dtype))

    def _bind(self, params: Params) -> BrainTower:
        layers = not self.base.remat
        return bind(_structure(self)[0], in_compute_dtype(params, jnp.dtype(self.base.dtype), layers=layers))


@functools.lru_cache(maxsize=32)
def _structure(model: ContrastiveModel) -> tuple[nnx.GraphDef, Params]:
    return structure_of(model._make())
