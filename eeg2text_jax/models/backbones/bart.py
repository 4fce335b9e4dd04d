"""BART: post-norm layers, learned positions with offset 2, a norm after the embeddings (Lewis et al. 2020)."""

from typing import Any

from transformers import BartConfig

from eeg2text_jax.models.backbones.mapping import Rule, Table, layers_of, norm, under
from eeg2text_jax.models.spec import Seq2SeqSpec, StackSpec, head_dim

CONFIG = BartConfig  # configuration class of models with random weights
MODEL_TYPE = "bart"  # in config.json of its checkpoints
ARCHITECTURE = "BartForConditionalGeneration"  # the class of transformers that loads them

_PROJECTIONS = {"query": "q_proj", "key": "k_proj", "value": "v_proj", "out": "out_proj"}
_LAYER = {
    **under("self_attention", "self_attn", _PROJECTIONS), "self_norm": "self_attn_layer_norm",
    "ffn/inner": "fc1", "ffn/outer": "fc2", "ffn_norm": "final_layer_norm",
}  # fmt: skip
_CROSS = {**under("cross_attention", "encoder_attn", _PROJECTIONS), "cross_norm": "encoder_attn_layer_norm"}


def spec_from_config(config: BartConfig) -> Seq2SeqSpec:
    positions = {"max_positions": config.max_position_embeddings, "position_offset": 2, "embedding_norm": True}
    encoder, decoder = (stack_of(config, side, **positions) for side in ("encoder", "decoder"))
    return spec_of(config, "bart", encoder, decoder, pad_token=config.pad_token_id, logits_bias="frozen")


def spec_of(config: Any, backbone: str, encoder: StackSpec, decoder: StackSpec, **others: Any) -> Seq2SeqSpec:
    """Return the description of a backbone whose configuration names its fields as BART's does."""
    return Seq2SeqSpec(
        backbone=backbone, vocab_size=config.vocab_size, encoder=encoder, decoder=decoder,
        eos_token=config.eos_token_id, start_token=config.decoder_start_token_id, embedding_std=config.init_std,
        embedding_scale=config.d_model**0.5 if config.scale_embedding else 1.0, **others,
    )  # fmt: skip


def stack_of(config: Any, side: str, **others: Any) -> StackSpec:
    """Return the description of the `side` (encoder or decoder) of such a backbone, with learned positions."""
    heads = getattr(config, f"{side}_attention_heads")
    return StackSpec(
        layers=getattr(config, f"{side}_layers"), width=config.d_model, heads=heads,
        head_dim=head_dim(config.d_model, heads), ffn=getattr(config, f"{side}_ffn_dim"),
        activation=config.activation_function, decoder=side == "decoder", positions="learned",
        embedding_dropout=config.dropout, dropout=config.dropout, attention_dropout=config.attention_dropout,
        activation_dropout=config.activation_dropout, init_std=config.init_std, **others,
    )  # fmt: skip


def random_config(fields: dict) -> BartConfig:
    """The decoder begins with the end token."""
    end = fields["eos_token_id"]
    return CONFIG(**{"decoder_start_token_id": end, "forced_eos_token_id": end, **fields})


def table(spec: Seq2SeqSpec) -> Table:
    rules = shared_rules()
    for side, stack in (("encoder", spec.encoder), ("decoder", spec.decoder)):
        rules += layer_rules(side, stack.layers)
        rules += norm(f"backbone/{side}/embedding_norm", f"model.{side}.layernorm_embedding")
        rules.append(Rule(f"backbone/{side}/positions/embedding", f"model.{side}.embed_positions.weight"))
    return Table("BART", tuple(rules), ignored=(r"(model\.)?(en|de)coder\.version",), spellings=((r"^model\.", ""),))


def shared_rules() -> list[Rule]:
    """Return the rules of embedding table and output bias; PEGASUS has the same."""
    copies = ("model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight", "lm_head.weight")
    return [
        Rule("backbone/shared/embedding", "model.shared.weight", tied=copies),
        Rule("backbone/head/bias", "final_logits_bias", squeeze=True, optional=True),
    ]


def layer_rules(side: str, layers: int) -> list[Rule]:
    """Return the rules of the layers of `side`; PEGASUS and Whisper have the same."""
    names = _LAYER | (_CROSS if side == "decoder" else {})
    return layers_of(f"backbone/{side}/layers", f"model.{side}.layers.{{layer}}", names, layers)
