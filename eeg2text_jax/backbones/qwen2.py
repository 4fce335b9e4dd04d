"""Qwen 2 and 2.5: Llama with biases of queries, keys and values (Yang et al. 2024)."""

from transformers import Qwen2Config

from eeg2text_jax.backbones import decoder_only
from eeg2text_jax.backbones.mapping import Table
from eeg2text_jax.models.spec import Seq2SeqSpec

CONFIG = Qwen2Config  # of its fields are made models with random weights
MODEL_TYPE = "qwen2"  # in config.json of its checkpoints
ARCHITECTURE = "Qwen2ForCausalLM"  # the class of transformers that loads them


def spec_from_config(config: Qwen2Config) -> Seq2SeqSpec:
    """Hugging Face configuration -> description of the backbone."""
    biases = ("query", "key", "value")
    windows = decoder_only.windows(config)
    return decoder_only.describe(config, "qwen2", config.hidden_act, biases=biases, **windows)


def random_config(fields: dict) -> Qwen2Config:
    """Configuration of a model with random weights."""
    return CONFIG(**fields)


def table(spec: Seq2SeqSpec) -> Table:
    """Rules of `backbone/...`."""
    return decoder_only.table(spec, "Qwen2")
