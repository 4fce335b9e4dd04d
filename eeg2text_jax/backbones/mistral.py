"""Mistral: Llama whose layers see a window of positions (Jiang et al. 2023); from version 0.2 on there is none."""

from transformers import MistralConfig

from eeg2text_jax.backbones import decoder_only
from eeg2text_jax.backbones.mapping import Table
from eeg2text_jax.models.spec import Seq2SeqSpec

CONFIG = MistralConfig  # of its fields are made models with random weights
MODEL_TYPE = "mistral"  # in config.json of its checkpoints
ARCHITECTURE = "MistralForCausalLM"  # the class of transformers that loads them


def spec_from_config(config: MistralConfig) -> Seq2SeqSpec:
    """Hugging Face configuration -> description of the backbone."""
    window = config.sliding_window or 0
    local = (True,) * config.num_hidden_layers if window else ()
    return decoder_only.describe(config, "mistral", config.hidden_act, window=window, local_layers=local)


def random_config(fields: dict) -> MistralConfig:
    """Configuration of a model with random weights."""
    return CONFIG(**fields)


def table(spec: Seq2SeqSpec) -> Table:
    """Rules of `backbone/...`."""
    return decoder_only.table(spec, "Mistral")
