"""The paper's EEG encoder: a transformer over the words, then the bridge; without layers, the bridge alone."""

import jax
import jax.numpy as jnp
from flax import nnx

from eeg2text_jax.errors import UserError
from eeg2text_jax.models.brain.inputs import as_words
from eeg2text_jax.models.spec import EEGSpec, StackSpec
from eeg2text_jax.models.stack import Stack


class TransformerEncoder(nnx.Module):
    """Post-norm transformer encoder without positions, then `relu(dense)` to the backbone's width.

    As in the paper (section 2) and the authors' code: what tells words apart in order is the backbone's own
    positions.
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
    """Width of the EEG encoder: as configured, or F padded to a multiple of the heads.

    Raises:
      UserError: heads do not divide the configured width.
    """
    if not spec.layers:
        return spec.width or spec.features
    if spec.width and spec.width % spec.heads:
        raise UserError(
            f"config.model.encoder_width is {spec.width}, which encoder_heads {spec.heads} does not divide; "
            "choose a multiple, or 0 to pad the features."
        )
    return spec.width or -(-spec.features // spec.heads) * spec.heads


def stack_spec(spec: EEGSpec) -> StackSpec:
    """The paper's encoder in the words of the shared stack; it equals torch.nn.TransformerEncoder."""
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
