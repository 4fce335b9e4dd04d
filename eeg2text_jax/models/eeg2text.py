"""The whole network: EEG encoder and bridge, or text, into an encoder-decoder language model."""

from collections.abc import Mapping

import jax
import jax.numpy as jnp
from flax import nnx

from eeg2text_jax.errors import UserError
from eeg2text_jax.models.encoder_decoder import EncoderDecoder
from eeg2text_jax.models.spec import EEGSpec, Seq2SeqSpec, StackSpec
from eeg2text_jax.models.stack import Stack


class EEGEncoder(nnx.Module):
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

    def __call__(self, features: jax.Array, mask: jax.Array, **options) -> jax.Array:
        """Features `[B, W, F]`, mask `[B, W]` -> `[B, W, D]`; options as of `Stack`."""
        # Whatever stands at padded positions, infinities included, must not reach a sum.
        x = jnp.where(mask[..., None], features, 0.0).astype(self.dtype)
        if self.spec.width:
            x = self.project(x)
        elif self.padding:
            x = jnp.pad(x, ((0, 0), (0, 0), (0, self.padding)))
        if self.spec.layers:
            x = self.encoder(x, mask, **options)
        return jax.nn.relu(self.bridge(x))


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


Inputs = Mapping[str, jax.Array]


class EEG2Text(nnx.Module):
    """A backbone, with an EEG encoder in front of it if `eeg` is given."""

    def __init__(self, spec: Seq2SeqSpec, eeg: EEGSpec | None, dtype: jnp.dtype, rngs: nnx.Rngs) -> None:
        self.backbone = EncoderDecoder(spec, dtype, rngs)
        if eeg is not None:
            self.eeg = EEGEncoder(eeg, spec.d_model, dtype, rngs)
        self.prompt = eeg.prompt if eeg is not None else ()

    def encode(self, inputs: Inputs, dropout_key: jax.Array | None, **options) -> tuple[jax.Array, jax.Array]:
        """One of `features [B, W, F]`, `inputs_embeds [B, S, D]`, `input_ids [B, S]`, and `mask` of the same length.

        Returns hidden states `[B, S, D]` and their mask `[B, S]`; a prompt lengthens EEG input by its tokens.
        """
        eeg_key, text_key = (None, None) if dropout_key is None else jax.random.split(dropout_key)
        mask = inputs["mask"]
        if "features" in inputs:
            with jax.named_scope("eeg_encoder"):
                x = self.eeg(inputs["features"], mask, dropout_key=eeg_key, **options)
            x, mask = self._with_prompt(x, mask)
        elif "inputs_embeds" in inputs:
            x = inputs["inputs_embeds"]
        else:
            x = self.backbone.embed(inputs["input_ids"])
        return self.backbone.encode(x, mask, dropout_key=text_key, **options), mask

    def _with_prompt(self, x: jax.Array, mask: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Put the prompt's embeddings before the EEG positions, as the authors do for T5."""
        if not self.prompt:
            return x, mask
        shape = (x.shape[0], len(self.prompt))
        prompt = self.backbone.embed(jnp.broadcast_to(jnp.asarray(self.prompt)[None], shape))
        return (
            jnp.concatenate([prompt.astype(x.dtype), x], axis=1),
            jnp.concatenate([jnp.ones(shape, bool), mask], axis=1),
        )
