"""Gemma: scaled embeddings, norms that store scale - 1, a tied head (Mesnard et al. 2024)."""

from transformers import GemmaConfig, PretrainedConfig

from eeg2text_jax.backbones import decoder_only
from eeg2text_jax.backbones.mapping import Table
from eeg2text_jax.models.spec import Seq2SeqSpec

CONFIG = GemmaConfig  # of its fields are made models with random weights
MODEL_TYPE = "gemma"  # in config.json of its checkpoints
ARCHITECTURE = "GemmaForCausalLM"  # the class of transformers that loads them


def spec_from_config(config: GemmaConfig) -> Seq2SeqSpec:
    """Hugging Face configuration -> description of the backbone."""
    return decoder_only.describe(config, "gemma", config.hidden_act, **fields(config))


def fields(config: PretrainedConfig) -> dict:
    """What all versions of Gemma have."""
    return {
        "norm_offset": 1.0,
        "embedding_scale": config.hidden_size**0.5,
        "biases": decoder_only.biased(config),
    }


def random_config(fields: dict) -> GemmaConfig:
    """Configuration of a model with random weights."""
    return CONFIG(**fields)


def table(spec: Seq2SeqSpec) -> Table:
    """Rules of `backbone/...`."""
    return decoder_only.table(spec, "Gemma")
