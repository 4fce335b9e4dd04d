"""Llama 2 and 3: the plain decoder-only model; version 3.1 slows its rotary positions (Touvron et al. 2023)."""

from transformers import LlamaConfig

from eeg2text_jax.backbones import decoder_only
from eeg2text_jax.backbones.mapping import Table
from eeg2text_jax.errors import UserError
from eeg2text_jax.models.spec import Seq2SeqSpec

CONFIG = LlamaConfig  # of its fields are made models with random weights
MODEL_TYPE = "llama"  # in config.json of its checkpoints
ARCHITECTURE = "LlamaForCausalLM"  # the class of transformers that loads them


def spec_from_config(config: LlamaConfig) -> Seq2SeqSpec:
    """Hugging Face configuration -> description of the backbone."""
    if config.mlp_bias:
        raise UserError("config.json: mlp_bias is true; no Llama that was published has biases there.")
    return decoder_only.describe(config, "llama", config.hidden_act, biases=decoder_only.biased(config))


def random_config(fields: dict) -> LlamaConfig:
    """Configuration of a model with random weights."""
    return CONFIG(**fields)


def table(spec: Seq2SeqSpec) -> Table:
    """Rules of `backbone/...`."""
    return decoder_only.table(spec, "Llama")
