"""Whisper: convolutions, pre-norm layers without a bias of keys, fixed sines in the encoder (Radford et al. 2022).

The brain encoder replaces its first convolution, over the bands of a log-mel spectrogram; the second one is `stem`.
The encoder sees as many positions as the recording has, not always 30 seconds with padding.
"""

import dataclasses
from typing import Any

import numpy as np
from transformers import WhisperConfig

from eeg2text_jax.models.backbones import bart
from eeg2text_jax.models.backbones.bart import layer_rules
from eeg2text_jax.models.backbones.mapping import Rule, Table, dense, norm
from eeg2text_jax.models.spec import Seq2SeqSpec, StackSpec

CONFIG = WhisperConfig  # configuration class of models with random weights
MODEL_TYPE = "whisper"  # in config.json of its checkpoints
ARCHITECTURE = "WhisperForConditionalGeneration"  # the class of transformers that loads them
BIASES = ("query", "value", "out", "inner", "outer")


def spec_from_config(config: Any) -> Seq2SeqSpec:
    """Describe a configuration, whose `forced_decoder_ids` are the tokens after the start token.

    Older checkpoints and exports of this project have them.
    """
    forced = getattr(config, "forced_decoder_ids", None) or ()
    # Whisper pads with its end token, which labels need: an id that no token has pads them.
    pad = config.vocab_size if config.pad_token_id == config.eos_token_id else config.pad_token_id
    most = {"encoder": config.max_source_positions, "decoder": config.max_target_positions}
    layer = {"bias": False, "biases": BIASES, "pre_norm": True, "final_norm": True}
    encoder, decoder = (bart.stack_of(config, side, max_positions=most[side], **layer) for side in most)
    encoder = dataclasses.replace(encoder, frozen_positions=True)
    prompt = tuple(int(token) for _, token in forced if token is not None)
    return bart.spec_of(config, "whisper", encoder, decoder, pad_token=pad, stem=True, decoder_prompt=prompt)


def random_config(fields: dict) -> WhisperConfig:
    """The decoder begins with the token that begins texts."""
    start = fields["eos_token_id"] if fields["bos_token_id"] is None else fields["bos_token_id"]
    return CONFIG(**{"decoder_start_token_id": start, "begin_suppress_tokens": None, **fields})


def table(spec: Seq2SeqSpec) -> Table:
    rules = [
        Rule("backbone/shared/embedding", "model.decoder.embed_tokens.weight", tied=("proj_out.weight",)),
        *dense("backbone/stem/convolution", "model.encoder.conv2"),
        *side_rules("encoder", spec.encoder),
        *side_rules("decoder", spec.decoder),
    ]
    return Table("Whisper", tuple(rules), ignored=(r"model\.encoder\.conv1\.(weight|bias)",))


def side_rules(side: str, stack: StackSpec) -> list[Rule]:
    return [
        *(rule for rule in layer_rules(side, stack.layers) if not rule.target.endswith("/key/bias")),
        *norm(f"backbone/{side}/final_norm", f"model.{side}.layer_norm"),
        Rule(f"backbone/{side}/positions/embedding", f"model.{side}.embed_positions.weight"),
    ]


def only_exported(spec: Seq2SeqSpec, config: WhisperConfig) -> dict[str, np.ndarray]:
    """Return zeros for the first convolution, by tensor name, which transformers expects in a file."""
    shapes = {"weight": (spec.encoder.width, config.num_mel_bins, 3), "bias": (spec.encoder.width,)}
    return {f"model.encoder.conv1.{name}": np.zeros(shape, np.float32) for name, shape in shapes.items()}
