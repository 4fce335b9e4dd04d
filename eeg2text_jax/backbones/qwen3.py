"""Qwen 3: Llama with a norm of every head's query and key (Yang et al. 2025)."""

from transformers import Qwen3Config

from eeg2text_jax.backbones import decoder_only
from eeg2text_jax.backbones.mapping import Table
from eeg2text_jax.models.spec import Seq2SeqSpec

CONFIG = Qwen3Config  # of its fields are made models with random weights
MODEL_TYPE = "qwen3"  # in config.json of its checkpoints
ARCHITECTURE = "Qwen3ForCausalLM"  # the class of transformers that loads them


def spec_from_config(config: Qwen3Config) -> Seq2SeqSpec:
    """Hugging Face configuration -> description of the backbone."""
    details = {"biases": decoder_only.biased(config), "head_norm": True, **decoder_only.windows(config)}
    return decoder_only.describe(config, "qwen3", config.hidden_act, **details)


def random_config(fields: dict) -> Qwen3Config:
    """Configuration of a model with random weights."""
    return CONFIG(**fields)


def table(spec: Seq2SeqSpec) -> Table:
    """Rules of `backbone/...`."""
    return decoder_only.table(spec, "Qwen3")
