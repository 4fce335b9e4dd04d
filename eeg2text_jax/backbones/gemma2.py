"""Gemma 2: norms around sublayers, capped scores and logits, every other layer local (Riviere et al. 2024)."""

from transformers import Gemma2Config, PretrainedConfig

from eeg2text_jax.backbones import decoder_only, gemma
from eeg2text_jax.backbones.mapping import Table
from eeg2text_jax.models.spec import Seq2SeqSpec

CONFIG = Gemma2Config  # of its fields are made models with random weights
MODEL_TYPE = "gemma2"  # in config.json of its checkpoints
ARCHITECTURE = "Gemma2ForCausalLM"  # the class of transformers that loads them


def spec_from_config(config: Gemma2Config) -> Seq2SeqSpec:
    """Hugging Face configuration -> description of the backbone."""
    return decoder_only.describe(config, "gemma2", config.hidden_activation, **fields(config))


def fields(config: PretrainedConfig) -> dict:
    """What Gemma 2 and 3 have."""
    return {
        **gemma.fields(config),
        **decoder_only.windows(config),
        "sandwich_norm": True,
        "query_scale": config.query_pre_attn_scalar**-0.5,
        "score_cap": config.attn_logit_softcapping or 0.0,
        "logits_cap": config.final_logit_softcapping or 0.0,
    }


def random_config(fields: dict) -> Gemma2Config:
    """Configuration of a model with random weights."""
    return CONFIG(**fields)


def table(spec: Seq2SeqSpec) -> Table:
    """Rules of `backbone/...`."""
    return decoder_only.table(spec, "Gemma 2")
