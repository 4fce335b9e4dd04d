"""The whole network: a brain encoder with a bridge, or text, in front of a language model."""

from collections.abc import Mapping

import jax
import jax.numpy as jnp
from flax import nnx

from eeg2text_jax.models.brain.encoder import make_encoder
from eeg2text_jax.models.causal import CausalLM
from eeg2text_jax.models.encoder_decoder import EncoderDecoder
from eeg2text_jax.models.spec import EEGSpec, Seq2SeqSpec

Inputs = Mapping[str, jax.Array]


class EEG2Text(nnx.Module):
    """A backbone, with a brain encoder in front of it if `eeg` is given."""

    def __init__(self, spec: Seq2SeqSpec, eeg: EEGSpec | None, dtype: jnp.dtype, rngs: nnx.Rngs) -> None:
        self.backbone = (CausalLM if spec.encoder is None else EncoderDecoder)(spec, dtype, rngs)
        if eeg is not None:
            self.eeg = make_encoder(eeg, spec.d_model, dtype, rngs)
        self.prompt = (eeg.prompt, eeg.prompt_after) if eeg is not None else ((), ())

    def encode(self, inputs: Inputs, dropout_key: jax.Array | None, **options) -> tuple[jax.Array, jax.Array]:
        """Return hidden states `[B, S, D]` and their mask `[B, S]`; a prompt adds its tokens to the EEG positions.

        `inputs` has one of `features` (words `[B, W, F]` or volumes `[B, W, X, Y, Z]`), `inputs_embeds [B, S, D]` or
        `input_ids [B, S]`, and `mask` of the same length; optionally per-sample prompts `before` and `after`, int32
        `[B, P]`, -1 at padding.
        """
        eeg_key, text_key = (None, None) if dropout_key is None else jax.random.split(dropout_key)
        mask = inputs["mask"]
        if "features" in inputs:
            with jax.named_scope("eeg_encoder"):
                x, mask = self.eeg(inputs["features"], mask, dropout_key=eeg_key, **options)
            x, mask = self._with_prompt(x, mask, inputs)
        elif "inputs_embeds" in inputs:
            x = inputs["inputs_embeds"]
        else:
            x = self.backbone.embed(inputs["input_ids"])
        return self.backbone.encode(x, mask, dropout_key=text_key, **options)

    def _with_prompt(self, x: jax.Array, mask: jax.Array, inputs: Inputs) -> tuple[jax.Array, jax.Array]:
        """Put the prompt's embeddings around the EEG positions (the authors' T5 prompt comes before them)."""
        around = []
        for name, constant in zip(("before", "after"), self.prompt, strict=True):
            ids = jnp.broadcast_to(jnp.asarray(constant, jnp.int32)[None], (x.shape[0], len(constant)))
            around.append(inputs.get(name, ids))
        if not any(ids.shape[1] for ids in around):
            return x, mask
        before, after = (self.backbone.embed(ids).astype(x.dtype) for ids in around)
        real = [ids >= 0 for ids in around]
        return jnp.concatenate([before, x, after], axis=1), jnp.concatenate([real[0], mask, real[1]], axis=1)
