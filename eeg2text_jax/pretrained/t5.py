"""Names in T5 checkpoints (`T5ForConditionalGeneration`), versions 1.0 and 1.1."""

from eeg2text_jax.models.spec import Seq2SeqSpec, StackSpec
from eeg2text_jax.pretrained.mapping import Rule, Table, attention, dense, norm

_COPIES = ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight")
_PROJECTIONS = {"query": "q", "key": "k", "value": "v", "out": "o"}


def table(spec: Seq2SeqSpec) -> Table:
    """Rules of `backbone/...`."""
    if spec.tied_head:
        rules = [Rule("backbone/shared/embedding", "shared.weight", tied=(*_COPIES, "lm_head.weight"))]
    else:
        # transformers 5 ties every T5 it makes itself and leaves the copy out of the file, whatever the version.
        rules = [
            Rule("backbone/shared/embedding", "shared.weight", tied=_COPIES),
            Rule("backbone/head/embedding", "lm_head.weight", otherwise="shared.weight"),
        ]
    rules += [*_stack("encoder", spec.encoder), *_stack("decoder", spec.decoder)]
    # Version 1.0 files carry a relative bias for cross-attention that no implementation reads.
    return Table("T5", tuple(rules), ignored=(r"decoder\.block\.0\.layer\.1\.EncDecAttention\.relative_.*",))


def _stack(side: str, stack: StackSpec) -> list[Rule]:
    target, source, layers = f"backbone/{side}/layers", f"{side}.block.{{layer}}.layer", stack.layers
    last = 2 if stack.decoder else 1  # number of the feed-forward sublayer
    parts = {"gate": "wi_0", "inner": "wi_1", "outer": "wo"} if stack.gated else {"inner": "wi", "outer": "wo"}
    relative = f"{side}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
    rules = [
        Rule(f"backbone/{side}/relative/embedding", relative),
        *norm(f"backbone/{side}/final_norm", f"{side}.final_layer_norm", bias=False),
        *_attention(f"{target}/self_attention", f"{source}.0.SelfAttention", layers),
        *norm(f"{target}/self_norm", f"{source}.0.layer_norm", layers, bias=False),
        *norm(f"{target}/ffn_norm", f"{source}.{last}.layer_norm", layers, bias=False),
    ]
    for part, name in parts.items():
        rules += dense(f"{target}/ffn/{part}", f"{source}.{last}.DenseReluDense.{name}", layers, bias=False)
    if stack.decoder:
        rules += _attention(f"{target}/cross_attention", f"{source}.1.EncDecAttention", layers)
        rules += norm(f"{target}/cross_norm", f"{source}.1.layer_norm", layers, bias=False)
    return rules


def _attention(target: str, source: str, layers: int) -> list[Rule]:
    names = {part: f"{source}.{name}" for part, name in _PROJECTIONS.items()}
    return attention(target, names, layers, bias=False)
