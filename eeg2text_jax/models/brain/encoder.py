"""The paper's EEG encoder, and the choice between it and the other brain encoders.

An encoder is made from `(spec, d_model, dtype, rngs)` and called with recordings and a mask `[B, W]`: word features
`[B, W, F]` or volumes `[B, W, X, Y, Z]`, W positions in time. It returns embeddings `[B, S, D]` in the width of the
language model and their mask `[B, S]`. Options are those of `Stack`.
"""

import jax
import jax.numpy as jnp
from flax import nnx

from eeg2text_jax.errors import UserError
from eeg2text_jax.models.brain import ENCODERS
from eeg2text_jax.models.brain.lstm import LSTMEncoder
from eeg2text_jax.models.brain.unicorn import UnicornEncoder
from eeg2text_jax.models.layers import as_words
from eeg2text_jax.models.spec import EEGSpec, StackSpec
from eeg2text_jax.models.stack import Stack


def make_encoder(spec: EEGSpec, d_model: int, dtype: jnp.dtype, rngs: nnx.Rngs) -> nnx.Module:
    """Return the encoder of a description, in front of a language model of width `d_model`."""
    # "none" is the transformer without layers: the bridge alone, the authors' naive model.
    classes = {
        "unicorn": UnicornEncoder,
        "lstm": LSTMEncoder,
        **dict.fromkeys(("transformer", "none"), TransformerEncoder),
    }
    if spec.kind not in classes:
        raise UserError(f"config.model.encoder is {spec.kind!r}; expected one of {', '.join(ENCODERS)}.")
    return classes[spec.kind](spec, d_model, dtype, rngs)


class TransformerEncoder(nnx.Module):
    """Post-norm transformer over the words, without positions, then the bridge `relu(dense)` to the backbone's width.

    As in the paper (section 2) and the authors' code: the order of the words enters by the backbone's positions alone.
    Without layers, the bridge alone.
    """

    def __init__(self, spec: EEGSpec, d_model: int, dtype: jnp.dtype, rngs: nnx.Rngs) -> None:
        width = encoder_width(spec)
        xavier = jax.nn.initializers.xavier_uniform()
        if spec.width:
            self.project = nnx.Linear(spec.features, width, dtype=dtype, kernel_init=xavier, rngs=rngs)
        if spec.layers:
            self.encoder = Stack(stack_spec(spec), dtype, rngs)
        self.bridge = nnx.Linear(width, d_model, dtype=dtype, kernel_init=xavier, rngs=rngs)
        self.spec, self.dtype, self.padding = spec, dtype, width - spec.features

    def __call__(self, features: jax.Array, mask: jax.Array, **options) -> tuple[jax.Array, jax.Array]:
        """Features `[B, W, F]`, mask `[B, W]` -> `[B, W, D]` and the mask; options as of `Stack`."""
        x = as_words(features, mask, self.dtype)
        if self.spec.width:
            x = self.project(x)
        elif self.padding:
            x = jnp.pad(x, ((0, 0), (0, 0), (0, self.padding)))
        if self.spec.layers:
            x = self.encoder(x, mask, **options)
        return jax.nn.relu(self.bridge(x)), mask


def encoder_width(spec: EEGSpec) -> int:
    """Return the width of the EEG encoder: as configured, or F padded to a multiple of the heads."""
    if not spec.layers:
        return spec.width or spec.features
    if spec.width and spec.width % spec.heads:
        raise UserError(
            f"config.model.encoder_width is {spec.width}, which encoder_heads {spec.heads} does not divide; "
            "choose a multiple, or 0 to pad the features."
        )
    return spec.width or -(-spec.features // spec.heads) * spec.heads


def stack_spec(spec: EEGSpec) -> StackSpec:
    """Return the paper's encoder as a stack; it equals torch.nn.TransformerEncoder."""
    width = encoder_width(spec)
    return StackSpec(
        layers=spec.layers,
        width=width,
        heads=spec.heads,
        head_dim=width // spec.heads,
        ffn=spec.ffn,
        activation="relu",
        dropout=spec.dropout,
        attention_dropout=spec.dropout,
        activation_dropout=spec.dropout,
        init_std=None,
    )
