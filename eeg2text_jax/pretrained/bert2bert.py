"""Names in BERT2BERT checkpoints (`EncoderDecoderModel` of two BERTs), and in a BERT that warm-starts one."""

import numpy as np
from transformers import PretrainedConfig

from eeg2text_jax.models.spec import Seq2SeqSpec
from eeg2text_jax.pretrained.mapping import Rule, Table, attention, dense, norm

# Files converted from TensorFlow name the parts of a norm gamma and beta.
OLD_NORMS = ((r"LayerNorm\.weight$", "LayerNorm.gamma"), (r"LayerNorm\.bias$", "LayerNorm.beta"))
UNUSED = (r"(.*\.)?pooler\.dense\.(weight|bias)", r"(.*\.)?embeddings\.position_ids", r"cls\..*")


def table(spec: Seq2SeqSpec) -> Table:
    """Rules of `backbone/...`."""
    head = "decoder.cls.predictions"
    rules = [
        *bert_rules("encoder", "encoder", spec.encoder.layers),
        *bert_rules("decoder", "decoder.bert", spec.decoder.layers, tied=(f"{head}.decoder.weight",)),
        *_cross_attention("decoder.bert", spec.decoder.layers),
        *dense("backbone/head/transform", f"{head}.transform.dense"),
        *norm("backbone/head/transform_norm", f"{head}.transform.LayerNorm"),
        Rule("backbone/head/bias", f"{head}.bias", tied=(f"{head}.decoder.bias",)),
    ]
    if spec.encoder.width != spec.decoder.width:
        rules += dense("backbone/projection", "enc_to_dec_proj")
    return Table("BERT2BERT", tuple(rules), ignored=UNUSED, spellings=OLD_NORMS)


def only_exported(spec: Seq2SeqSpec, config: PretrainedConfig) -> dict[str, np.ndarray]:
    """The encoder's pooler, which transformers makes and nothing in a BERT2BERT reads: zeros."""
    width = spec.encoder.width
    return {
        "encoder.pooler.dense.weight": np.zeros((width, width), np.float32),
        "encoder.pooler.dense.bias": np.zeros(width, np.float32),
    }


def warm_start_table(spec: Seq2SeqSpec, side: str) -> Table:
    """Rules that fill the encoder or the decoder (`side`) from a BERT's checkpoint; the rest stays as initialised."""
    layers = spec.encoder.layers if side == "encoder" else spec.decoder.layers
    rules = bert_rules(side, "bert", layers)
    return Table("BERT", tuple(rules), ignored=UNUSED, spellings=((r"^bert\.", ""), *OLD_NORMS))


def bert_rules(side: str, source: str, layers: int, tied: tuple[str, ...] = ()) -> list[Rule]:
    """A BERT named `source`: embeddings and layers, without cross-attention."""
    ours, target, layer = f"backbone/{side}", f"backbone/{side}/layers", f"{source}.encoder.layer.{{layer}}"
    embeddings = f"{source}.embeddings"
    return [
        Rule(f"backbone/{side}_embedding/embedding", f"{embeddings}.word_embeddings.weight", tied=tied),
        Rule(f"{ours}/positions/embedding", f"{embeddings}.position_embeddings.weight"),
        Rule(f"{ours}/token_types", f"{embeddings}.token_type_embeddings.weight"),
        *norm(f"{ours}/embedding_norm", f"{embeddings}.LayerNorm"),
        *attention(f"{target}/self_attention", _attention(f"{layer}.attention"), layers),
        *norm(f"{target}/self_norm", f"{layer}.attention.output.LayerNorm", layers),
        *dense(f"{target}/ffn/inner", f"{layer}.intermediate.dense", layers),
        *dense(f"{target}/ffn/outer", f"{layer}.output.dense", layers),
        *norm(f"{target}/ffn_norm", f"{layer}.output.LayerNorm", layers),
    ]


def _cross_attention(source: str, layers: int) -> list[Rule]:
    target, name = "backbone/decoder/layers", f"{source}.encoder.layer.{{layer}}.crossattention"
    return [
        *attention(f"{target}/cross_attention", _attention(name), layers),
        *norm(f"{target}/cross_norm", f"{name}.output.LayerNorm", layers),
    ]


def _attention(source: str) -> dict[str, str]:
    names = {"query": "self.query", "key": "self.key", "value": "self.value", "out": "output.dense"}
    return {part: f"{source}.{name}" for part, name in names.items()}
