"""Language models (backbones): descriptions from transformers configurations, and tables of tensor names.

Encoder-decoders have a module each; decoder-only models are entries of `decoder_only.MODELS`.
"""

import dataclasses
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from eeg2text_jax.base.kinds import channels, flag, many, number, one_of, place, settings, text, whole
from eeg2text_jax.models.spec import ENCODERS, WAVE_ENCODERS

ENCODER_DECODERS = ("bart", "bert2bert", "pegasus", "t5", "whisper")
DECODERS = ("gemma", "gemma2", "gemma3", "llama", "mistral", "qwen2", "qwen3")
# Dense layers that can have a low-rank adapter: name in checkpoints -> name in our parameters.
LORA_TARGETS = {
    "q_proj": "query", "k_proj": "key", "v_proj": "value", "o_proj": "out", "gate_proj": "gate", "up_proj": "inner",
    "down_proj": "outer",
}  # fmt: skip
BACKBONES = (*ENCODER_DECODERS, *DECODERS)


@dataclasses.dataclass(frozen=True)
class UnicornSettings:
    """Section `model.unicorn` of a configuration: the UniCoRN brain encoder."""

    channels: Annotated[tuple[int, ...], channels()]
    hidden: Annotated[int, whole(1, 1_000_000)]
    activation: Annotated[str, one_of("gelu", "relu")]
    positions: Annotated[str, one_of("sinusoidal", "none")]
    bridge: Annotated[str, one_of("linear", "relu")]


@dataclasses.dataclass(frozen=True)
class WavesSettings:
    """Section `model.waves` of a configuration: encoders of samples."""

    strides: Annotated[tuple[int, ...], channels()]
    patch: Annotated[int, whole(2, 100_000)]
    overlap: Annotated[int, whole(0, 100_000)]
    pool: Annotated[bool, flag()]
    positions: Annotated[str, place()]


@dataclasses.dataclass(frozen=True)
class LoraSettings:
    """Section `model.lora` of a configuration: low-rank adapters of a frozen language model."""

    rank: Annotated[int, whole(1, 100_000)]
    alpha: Annotated[float, number(0, 1e6, above=True)]
    dropout: Annotated[float, number(0, 1, below=True)]
    targets: Annotated[tuple[str, ...], many(one_of(*LORA_TARGETS))]
    stacks: Annotated[tuple[str, ...], many(one_of("encoder", "decoder"))]


@dataclasses.dataclass(frozen=True)
class ModelSettings:
    """Section `model` of a configuration: language model (backbone) and brain encoder."""

    backbone: Annotated[str, one_of(*BACKBONES)]
    checkpoint: Annotated[str, place()]
    dtype: Annotated[str, one_of("float32", "bfloat16")]  # float16 would need loss scaling
    shape: Annotated[Mapping[str, Any], settings()]
    encoder: Annotated[str, one_of(*ENCODERS, *WAVE_ENCODERS)]
    encoder_checkpoint: Annotated[str, place()]
    encoder_train: Annotated[str, one_of("all", "frozen", "adapters")]
    encoder_layers: Annotated[int, whole(0, 1000)]
    encoder_heads: Annotated[int, whole(1, 10_000)]
    encoder_ffn: Annotated[int, whole(1, 1_000_000)]
    encoder_width: Annotated[int, whole(0, 1_000_000)]
    dropout: Annotated[float, number(0, 1, below=True)]
    unicorn: UnicornSettings
    waves: WavesSettings
    remat: Annotated[bool, flag()]
    keep: Annotated[Literal["products", "nothing"], one_of("products", "nothing")]
    prompt: Annotated[str, text()]
    decoder_prompt: Annotated[str, text()]
    lora: LoraSettings
    frozen_dtype: Annotated[str, one_of("bfloat16", "float32", "int8")]
