"""Add prompt, LoRA adapters and frozen weights to a language model, as the settings of a run ask for."""

import dataclasses
from typing import Any

import numpy as np
from transformers import PreTrainedTokenizerBase

from eeg2text_jax.backbones import LORA_TARGETS
from eeg2text_jax.data.datafile import DataFile
from eeg2text_jax.data.prompt import make_prompt, make_prompts
from eeg2text_jax.errors import UserError
from eeg2text_jax.models.functional import Seq2SeqModel
from eeg2text_jax.models.spec import LoraSpec
from eeg2text_jax.study.sections import Settings


def adapted(model: Seq2SeqModel, config: Settings, tokenizer: Any) -> Seq2SeqModel:
    """Return the model with the prompt, adapters and frozen weights that `config` asks for.

    Raises UserError if the tokenizer has no chat template, or prompt, recording and text exceed the model's positions.
    """
    if config.optim.trainable in ("bridge", "lora"):
        model = dataclasses.replace(model, shared_frozen=True)
    if model.spec.encoder is not None:
        return model
    own = config.model.lora
    decoder = dataclasses.replace(model.spec.decoder, int8=config.model.frozen_dtype == "int8")
    if config.optim.trainable == "lora":
        targets = tuple(LORA_TARGETS[name] for name in own.targets)
        decoder = dataclasses.replace(decoder, lora=LoraSpec(own.rank, own.alpha, own.dropout, targets))
    prompt = make_prompt(tokenizer, config.text.template, config.text.chat)
    eeg = dataclasses.replace(model.eeg, prompt=prompt.before, prompt_after=prompt.after)
    check_positions(model, config, len(prompt.before) + len(prompt.after))
    return dataclasses.replace(model, spec=dataclasses.replace(model.spec, decoder=decoder), eeg=eeg)


def check_positions(model: Seq2SeqModel, config: Settings, prompt: int) -> None:
    """Raise UserError if `prompt` tokens, the longest recording and the longest text exceed the model's positions."""
    recording, positions = max(words for words, _ in config.batch.buckets), model.spec.decoder.max_positions
    longest = prompt + recording + max(config.text.max_tokens, config.decode.max_length)
    if longest > positions:
        raise UserError(
            f"text.template: the prompt ({prompt} tokens), the recording ({recording} words) and the text need "
            f"{longest} positions, but the model has {positions}; shorten the prompt, or lower data.max_words, "
            "text.max_tokens or decode.max_length."
        )


def own_prompts(
    template: str, chat: bool, data: DataFile, tokenizer: PreTrainedTokenizerBase
) -> tuple[np.ndarray, np.ndarray]:
    """Return the token ids before and after each of N recordings, int32 `[N, P]` each, as `make_prompts` does.

    `template` has fields of samples, such as `{subject}`.
    """
    rows = [{"subject": str(subject), "task": str(task)} for subject, task in zip(data.subject, data.task, strict=True)]
    return make_prompts(tokenizer, template, chat, rows)
