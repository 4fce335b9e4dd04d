"""Decoder-only language models: Llama, Mistral, Qwen and Gemma.

All have RMS norms, rotary positions and a gated feed-forward network; `MODELS` has what differs.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import transformers
from transformers import PretrainedConfig

from eeg2text_jax.base.errors import UserError
from eeg2text_jax.models.backbones.mapping import Rule, Table, layers_of, norm
from eeg2text_jax.models.spec import Seq2SeqSpec, StackSpec

PROJECTIONS = {
    "query": "self_attn.q_proj", "key": "self_attn.k_proj", "value": "self_attn.v_proj", "out": "self_attn.o_proj",
    "gate": "mlp.gate_proj", "inner": "mlp.up_proj", "outer": "mlp.down_proj",
}  # fmt: skip
_ATTENTION = ("query", "key", "value", "out")


def frequencies(rope: Mapping[str, Any], head_dim: int) -> tuple[float, ...]:
    """Return the rotary frequency of each pair of a head's dimensions, radians per position, rounded as in PyTorch.

    Raises UserError if a scaling is not implemented.
    """
    kind = rope.get("rope_type", "default")
    exponents = np.arange(0, head_dim, 2).astype(np.float32) / np.float32(head_dim)
    plain = (1.0 / np.power(np.float32(rope["rope_theta"]), exponents)).astype(np.float32)
    if kind == "linear":
        plain = plain / np.float32(rope["factor"])
    elif kind == "llama3":
        plain = _llama3(plain, rope)
    elif kind != "default":
        raise UserError(f"config.json: rope_type is {kind!r}; expected default, linear or llama3; take another model.")
    return tuple(map(float, plain))


def _llama3(plain: np.ndarray, rope: Mapping[str, Any]) -> np.ndarray:
    """Divide low frequencies by a factor, keep high ones, blend those in between (Llama 3.1)."""
    low, high = rope["low_freq_factor"], rope["high_freq_factor"]
    # Full turns of each pair of dimensions within the context length of pretraining.
    turns = rope["original_max_position_embeddings"] * plain / np.float32(2 * np.pi)
    blend = np.clip((turns - low) / (high - low), 0, 1).astype(np.float32)
    return (1 - blend) * plain / np.float32(rope["factor"]) + blend * plain


def windows(config: PretrainedConfig) -> dict[str, Any]:
    """Return `window` and `local_layers` of `StackSpec` from a field `layer_types`."""
    local = tuple(kind == "sliding_attention" for kind in config.layer_types)
    return {"window": config.sliding_window or 0, "local_layers": local if any(local) else ()}


def biased(config: PretrainedConfig) -> tuple[str, ...]:
    """Return the dense layers with biases: all four of attention if `attention_bias` is set, else none."""
    return _ATTENTION if config.attention_bias else ()


# For each model: transformers configuration -> its own fields of `StackSpec` and `Seq2SeqSpec`.


def _llama(config: Any) -> dict[str, Any]:
    if config.mlp_bias:
        raise UserError("config.json: mlp_bias is true; expected false, as in every published Llama; set it to false.")
    return {"biases": biased(config)}


def _mistral(config: Any) -> dict[str, Any]:
    window = config.sliding_window or 0
    return {"window": window, "local_layers": (True,) * config.num_hidden_layers if window else ()}


def _qwen2(config: Any) -> dict[str, Any]:
    return {"biases": ("query", "key", "value"), **windows(config)}


def _qwen3(config: Any) -> dict[str, Any]:
    return {"biases": biased(config), "head_norm": True, **windows(config)}


def _gemma(config: Any) -> dict[str, Any]:
    return {"norm_offset": 1.0, "embedding_scale": config.hidden_size**0.5, "biases": biased(config)}


def _gemma2(config: Any) -> dict[str, Any]:
    return {
        **_gemma(config),
        **windows(config),
        "sandwich_norm": True,
        "query_scale": config.query_pre_attn_scalar**-0.5,
        "score_cap": config.attn_logit_softcapping or 0.0,
        "logits_cap": config.final_logit_softcapping or 0.0,
    }


def _gemma3(config: Any) -> dict[str, Any]:
    rope = config.rope_parameters
    return {
        **_gemma2(config),
        "score_cap": 0.0,
        "head_norm": True,
        "rotary": frequencies(rope["full_attention"], config.head_dim),
        "local_rotary": frequencies(rope["sliding_attention"], config.head_dim),
    }


@dataclasses.dataclass(frozen=True)
class DecoderOnly:
    """A decoder-only backbone, with the interface of the encoder-decoders' modules."""

    name: str
    title: str  # name for messages
    transformers_name: str  # first part of the names of its classes in transformers
    MODEL_TYPE: str  # in config.json of its checkpoints
    details: Callable[[Any], dict[str, Any]]  # configuration -> fields of `StackSpec` and `Seq2SeqSpec`
    config_suffix: str = "Config"

    @property
    def CONFIG(self) -> type[PretrainedConfig]:
        return getattr(transformers, self.transformers_name + self.config_suffix)

    @property
    def ARCHITECTURE(self) -> str:
        return f"{self.transformers_name}ForCausalLM"

    def spec_from_config(self, config: Any) -> Seq2SeqSpec:
        details = {"kv_heads": config.num_key_value_heads, **self.details(config)}
        head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        if "rotary" not in details:
            details["rotary"] = frequencies(config.rope_parameters, head_dim)
        of_model = {field.name for field in dataclasses.fields(Seq2SeqSpec)} & details.keys()
        ends = config.eos_token_id if isinstance(config.eos_token_id, list | tuple) else [config.eos_token_id]
        pad = config.pad_token_id if config.pad_token_id not in ends else None
        decoder = StackSpec(
            layers=config.num_hidden_layers, width=config.hidden_size, heads=config.num_attention_heads,
            head_dim=head_dim, ffn=config.intermediate_size, decoder=True, alone=True, gated=True, pre_norm=True,
            activation=config.hidden_activation if hasattr(config, "hidden_activation") else config.hidden_act,
            norm="rms", norm_eps=config.rms_norm_eps, bias=False, positions="rotary", final_norm=True,
            max_positions=config.max_position_embeddings, attention_dropout=config.attention_dropout,
            init_std=config.initializer_range,
            **{name: value for name, value in details.items() if name not in of_model},
        )  # fmt: skip
        return Seq2SeqSpec(
            backbone=self.name, vocab_size=config.vocab_size, encoder=None, decoder=decoder, eos_token=ends[0],
            pad_token=config.vocab_size if pad is None else pad, start_token=config.vocab_size,
            embedding_std=config.initializer_range, frozen_pad=config.pad_token_id is not None,
            tied_head=config.tie_word_embeddings, **{name: details[name] for name in of_model},
        )  # fmt: skip

    def random_config(self, fields: dict[str, Any]) -> PretrainedConfig:
        return self.CONFIG(**fields)

    def table(self, spec: Seq2SeqSpec) -> Table:
        stack, layer, target = spec.decoder, "model.layers.{layer}", "backbone/decoder/layers"
        rules = [
            Rule("backbone/shared/embedding", "model.embed_tokens.weight", tied=("lm_head.weight",) * spec.tied_head),
            *norm("backbone/decoder/final_norm", "model.norm", bias=False),
        ]
        if not spec.tied_head:
            rules.append(Rule("backbone/head/embedding", "lm_head.weight"))
        for part, name in PROJECTIONS.items():
            ours = f"{'self_attention' if part in _ATTENTION else 'ffn'}/{part}"
            rules += layers_of(target, layer, {ours: name}, stack.layers, bias=part in stack.biases)
        norms = {"self_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm"}
        if stack.sandwich_norm:
            norms = {
                "self_norm": "input_layernorm", "self_norm_after": "post_attention_layernorm",
                "ffn_norm": "pre_feedforward_layernorm", "ffn_norm_after": "post_feedforward_layernorm",
            }  # fmt: skip
        if stack.head_norm:
            norms |= {f"self_attention/{part}_norm": f"self_attn.{part[0]}_norm" for part in ("query", "key")}
        for part, name in norms.items():
            rules += norm(f"{target}/{part}", f"{layer}.{name}", stack.layers, bias=False)
        return Table(self.title, tuple(rules), ignored=(r".*rotary_emb\.inv_freq",))


MODELS = {
    model.name: model
    for model in (
        DecoderOnly("llama", "Llama", "Llama", "llama", _llama),  # Touvron et al. 2023; for 3.1 see `_llama3`
        DecoderOnly("mistral", "Mistral", "Mistral", "mistral", _mistral),  # Jiang et al. 2023; from v0.2, no window
        DecoderOnly("qwen2", "Qwen2", "Qwen2", "qwen2", _qwen2),  # Yang et al. 2024; Qwen 2.5 too
        DecoderOnly("qwen3", "Qwen3", "Qwen3", "qwen3", _qwen3),  # Yang et al. 2025
        DecoderOnly("gemma", "Gemma", "Gemma", "gemma", _gemma),  # Mesnard et al. 2024; norms store scale - 1
        DecoderOnly("gemma2", "Gemma 2", "Gemma2", "gemma2", _gemma2),  # Riviere et al. 2024; every second layer local
        DecoderOnly("gemma3", "Gemma 3", "Gemma3", "gemma3_text", _gemma3, "TextConfig"),  # 2025; its text part
    )
}
