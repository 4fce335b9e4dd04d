"""PEGASUS: pre-norm layers, sinusoidal positions, scaled embeddings, a norm after each stack (Zhang et al. 2020)."""

import dataclasses

from transformers import PegasusConfig

from eeg2text_jax.models import bart
from eeg2text_jax.models.spec import Seq2SeqSpec, StackSpec

CONFIG = PegasusConfig  # of its fields are made models with random weights
MODEL_TYPE = "pegasus"  # in config.json of its checkpoints
ARCHITECTURE = "PegasusForConditionalGeneration"  # the class of transformers that loads them


def spec_from_config(config: PegasusConfig) -> Seq2SeqSpec:
    """Hugging Face configuration, whose fields are BART's -> description of the backbone."""
    spec = bart.spec_from_config(config)
    return dataclasses.replace(
        spec, backbone="pegasus", encoder=_pre_norm(spec.encoder), decoder=_pre_norm(spec.decoder)
    )


def _pre_norm(stack: StackSpec) -> StackSpec:
    return dataclasses.replace(
        stack,
        pre_norm=True,
        positions="sinusoidal",
        max_positions=None,
        position_offset=0,
        embedding_norm=False,
        final_norm=True,
    )


def random_config(fields: dict) -> PegasusConfig:
    """Configuration of a model with random weights; the decoder starts with the padding token."""
    return CONFIG(**{"decoder_start_token_id": fields["pad_token_id"], **fields})
