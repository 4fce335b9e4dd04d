"""The whole network: brain encoder and bridge, or text, into an encoder-decoder language model."""

from collections.abc import Mapping

import jax
import jax.numpy as jnp
from flax import nnx

from eeg2text_jax.models.brain.encoder import encode_brain, make_encoder
from eeg2text_jax.models.encoder_decoder import EncoderDecoder
from eeg2text_jax.models.spec import EEGSpec, Seq2SeqSpec

Inputs = Mapping[str, jax.Array]


class EEG2Text(nnx.Module):
    """A backbone, with a brain encoder in front of it if `eeg` is given."""

    def __init__(self, spec: Seq2SeqSpec, eeg: EEGSpec | None, dtype: jnp.dtype, rngs: nnx.Rngs) -> None:
        self.backbone = EncoderDecoder(spec, dtype, rngs)
        if eeg is not None:
            self.eeg = make_encoder(eeg, spec.d_model, dtype, rngs)
        self.prompt = eeg.prompt if eeg is not None else ()

    def encode(self, inputs: Inputs, dropout_key: jax.Array | None, **options) -> tuple[jax.Array, jax.Array]:
        """One of `features`, `inputs_embeds [B, S, D]`, `input_ids [B, S]`, and `mask` of the same length.

        Features are those of words, `[B, W, F]`, or volumes, `[B, W, X, Y, Z]`.

        Returns hidden states `[B, S, D]` and their mask `[B, S]`; a prompt lengthens EEG input by its tokens.
        """
        eeg_key, text_key = (None, None) if dropout_key is None else jax.random.split(dropout_key)
        mask = inputs["mask"]
        if "features" in inputs:
            with jax.named_scope("eeg_encoder"):
                x, mask = encode_brain(self.eeg, inputs["features"], mask, dropout_key=eeg_key, **options)
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
