"""Which brain encoder stands before the language model, and what each of them is to the rest of the model.

An encoder is made from `(spec, d_model, dtype, rngs)` and called with what was recorded and a mask `[B, W]`: word
features `[B, W, F]` or volumes `[B, W, X, Y, Z]`, W positions in time. It returns embeddings `[B, S, D]` as wide as the
language model and their mask `[B, S]`. Options are those of `Stack`.
"""

import jax
import jax.numpy as jnp
from flax import nnx

from eeg2text_jax.errors import UserError
from eeg2text_jax.models.brain import ENCODERS
from eeg2text_jax.models.brain.lstm import LSTMEncoder
from eeg2text_jax.models.brain.transformer import TransformerEncoder
from eeg2text_jax.models.brain.unicorn import UnicornEncoder
from eeg2text_jax.models.spec import EEGSpec

# "none" is the transformer without layers: the bridge alone, the authors' naive model.
_CLASSES: dict[str, type[nnx.Module]] = {
    "transformer": TransformerEncoder,
    "unicorn": UnicornEncoder,
    "lstm": LSTMEncoder,
    "none": TransformerEncoder,
}


def make_encoder(spec: EEGSpec, d_model: int, dtype: jnp.dtype, rngs: nnx.Rngs) -> nnx.Module:
    """The encoder that a description asks for, in front of a language model of width `d_model`.

    Raises:
      UserError: there is no such encoder.
    """
    if spec.kind not in _CLASSES:
        raise UserError(f"config.model.encoder is {spec.kind!r}; expected one of {', '.join(ENCODERS)}.")
    return _CLASSES[spec.kind](spec, d_model, dtype, rngs)


def encode_brain(encoder: nnx.Module, features: jax.Array, mask: jax.Array, **options) -> tuple[jax.Array, jax.Array]:
    """Recordings and mask `[B, W]` -> embeddings `[B, S, D]` and their mask `[B, S]`."""
    return encoder(features, mask, **options)
