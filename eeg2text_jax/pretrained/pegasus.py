"""Names in PEGASUS checkpoints (`PegasusForConditionalGeneration`); its positions are computed, not loaded."""

from eeg2text_jax.models.spec import Seq2SeqSpec
from eeg2text_jax.pretrained.bart import layer_rules, shared_rules
from eeg2text_jax.pretrained.mapping import Table, norm


def table(spec: Seq2SeqSpec) -> Table:
    """Rules of `backbone/...`."""
    rules = shared_rules()
    for side, stack in (("encoder", spec.encoder), ("decoder", spec.decoder)):
        rules += layer_rules(side, stack.layers)
        rules += norm(f"backbone/{side}/final_norm", f"model.{side}.layer_norm")
    return Table(
        "PEGASUS",
        tuple(rules),
        ignored=(r"(model\.)?(en|de)coder\.embed_positions\.weight",),
        spellings=((r"^model\.", ""),),
    )
