"""Runs of seconds with a small Llama: its checkpoint, and a study around it."""

from pathlib import Path

import jax
from etils import epath
from tiny_run import tiny_config
from transformers import LlamaForCausalLM

from eeg2text_jax.base.devices.arms import Divided
from eeg2text_jax.data.text import train_tokenizer
from eeg2text_jax.instrument.workdir import Workdir
from eeg2text_jax.runs.exported import write_export
from eeg2text_jax.training.loop import trained_params
from eeg2text_jax.training.sections import checked_settings
from eeg2text_jax.training.study import Study, open_study

SHAPE = {
    "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 160, "tie_word_embeddings": True,
}  # fmt: skip


def make_base(folder: Path) -> str:
    """A checkpoint of a small Llama with a tokenizer of the made-up sentences' letters, in bfloat16."""
    letters = ["the quick brown fox jumps over a lazy dog " * 3, "w0 w1 w2 w3 w4 w5 w6 w7 w8 w9"]
    tokenizer = train_tokenizer(letters, 300)
    tokenizer.save_pretrained(folder)
    tokens = {name: getattr(tokenizer, name) for name in ("pad_token_id", "bos_token_id", "eos_token_id")}
    config = LlamaForCausalLM.config_class(vocab_size=len(tokenizer), initializer_range=0.3, **SHAPE, **tokens)
    LlamaForCausalLM(config).bfloat16().save_pretrained(folder)
    return str(folder)


def open_tiny(folder: epath.Path, **changes: object) -> Study:
    changes = {
        "model.backbone": "llama", "grid.eval_conditions": ("eeg", "prompt_only"), "text.template": "say <eeg> now",
        "text.max_tokens": 24, "batch.buckets": ((20, 24),), "data.synthetic.sentences": 40, "train.steps": 3,
        "train.eval_every": 3, "train.save_every": 3, "decode.num_beams": 1, "decode.max_length": 6,
        "model.encoder_layers": 0,
        **changes,
    }  # fmt: skip
    config = tiny_config(**changes)
    with config.unlocked():
        config.model.shape = {} if config.model.checkpoint else SHAPE
    return open_study(checked_settings(config), Workdir(folder))


def export_first(study: Study, folder: Path) -> Divided:
    """Export the first arm of a trained run; its parameters."""
    params = trained_params(study)
    one = params._replace(own=jax.tree.map(lambda leaf: leaf[0], params.own))
    write_export(study, study.arms[0], one, str(folder))
    return one
