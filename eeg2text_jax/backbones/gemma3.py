"""Gemma 3, of text: norms of every head's query and key, local layers with rotary positions of their own (2025)."""

from transformers import Gemma3TextConfig

from eeg2text_jax.backbones import decoder_only, gemma2
from eeg2text_jax.backbones.mapping import Table
from eeg2text_jax.models.spec import Seq2SeqSpec

CONFIG = Gemma3TextConfig  # of its fields are made models with random weights
MODEL_TYPE = "gemma3_text"  # in config.json of its checkpoints
ARCHITECTURE = "Gemma3ForCausalLM"  # the class of transformers that loads them


def spec_from_config(config: Gemma3TextConfig) -> Seq2SeqSpec:
    """Hugging Face configuration -> description of the backbone."""
    head_dim, rope = config.head_dim, config.rope_parameters
    return decoder_only.describe(
        config,
        "gemma3",
        config.hidden_activation,
        head_norm=True,
        rotary=decoder_only.frequencies(rope["full_attention"], head_dim),
        local_rotary=decoder_only.frequencies(rope["sliding_attention"], head_dim),
        **{**gemma2.fields(config), "score_cap": 0.0},
    )


def random_config(fields: dict) -> Gemma3TextConfig:
    """Configuration of a model with random weights."""
    return CONFIG(**fields)


def table(spec: Seq2SeqSpec) -> Table:
    """Rules of `backbone/...`."""
    return decoder_only.table(spec, "Gemma 3")
