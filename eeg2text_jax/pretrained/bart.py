"""Names in BART checkpoints (`BartForConditionalGeneration`, or `BartModel` without the prefix `model.`)."""

from eeg2text_jax.models.spec import Seq2SeqSpec
from eeg2text_jax.pretrained.mapping import Rule, Table, attention, dense, norm


def table(spec: Seq2SeqSpec) -> Table:
    """Rules of `backbone/...`."""
    rules = shared_rules()
    for side, stack in (("encoder", spec.encoder), ("decoder", spec.decoder)):
        rules += layer_rules(side, stack.layers)
        rules += norm(f"backbone/{side}/embedding_norm", f"model.{side}.layernorm_embedding")
        rules.append(Rule(f"backbone/{side}/positions/embedding", f"model.{side}.embed_positions.weight"))
    return Table("BART", tuple(rules), ignored=(r"(model\.)?(en|de)coder\.version",), spellings=((r"^model\.", ""),))


def shared_rules() -> list[Rule]:
    """Embedding table and output bias, named the same in PEGASUS."""
    copies = ("model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight", "lm_head.weight")
    return [
        Rule("backbone/shared/embedding", "model.shared.weight", tied=copies),
        Rule("backbone/head/bias", "final_logits_bias", squeeze=True, optional=True),
    ]


def layer_rules(side: str, layers: int) -> list[Rule]:
    """Layers of BART's encoder or decoder, named the same in PEGASUS."""
    target, source = f"backbone/{side}/layers", f"model.{side}.layers.{{layer}}"
    rules = [
        *attention(f"{target}/self_attention", _projections(f"{source}.self_attn"), layers),
        *norm(f"{target}/self_norm", f"{source}.self_attn_layer_norm", layers),
        *dense(f"{target}/ffn/inner", f"{source}.fc1", layers),
        *dense(f"{target}/ffn/outer", f"{source}.fc2", layers),
        *norm(f"{target}/ffn_norm", f"{source}.final_layer_norm", layers),
    ]
    if side == "decoder":
        rules += attention(f"{target}/cross_attention", _projections(f"{source}.encoder_attn"), layers)
        rules += norm(f"{target}/cross_norm", f"{source}.encoder_attn_layer_norm", layers)
    return rules


def _projections(source: str) -> dict[str, str]:
    parts = {"query": "q_proj", "key": "k_proj", "value": "v_proj", "out": "out_proj"}
    return {part: f"{source}.{name}" for part, name in parts.items()}
