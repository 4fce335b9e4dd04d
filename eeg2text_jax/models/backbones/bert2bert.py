"""BERT2BERT: a BERT encoder and a BERT decoder with cross-attention (Rothe et al. 2020).

It equals `EncoderDecoderModel` of transformers: two embedding tables, a dense layer and a norm before the head, and a
dense layer between encoder and decoder if their widths differ.
"""

import numpy as np
from transformers import BertConfig, EncoderDecoderConfig, PretrainedConfig

from eeg2text_jax.base.errors import UserError
from eeg2text_jax.models.backbones.mapping import Rule, Table, dense, layers_of, norm, under
from eeg2text_jax.models.spec import Seq2SeqSpec, StackSpec, head_dim

CONFIG = BertConfig  # configuration class of models with random weights
MODEL_TYPE = "encoder-decoder"  # in config.json of its checkpoints
ARCHITECTURE = "EncoderDecoderModel"  # the class of transformers that loads them
SIDES = ("encoder_", "decoder_")  # prefixes of fields in `config.model.shape` that are for encoder or decoder alone

_ATTENTION = {"query": "self.query", "key": "self.key", "value": "self.value", "out": "output.dense"}
_LAYER = {
    **under("self_attention", "attention", _ATTENTION), "self_norm": "attention.output.LayerNorm",
    "ffn/inner": "intermediate.dense", "ffn/outer": "output.dense", "ffn_norm": "output.LayerNorm",
}  # fmt: skip


def spec_from_config(config: EncoderDecoderConfig) -> Seq2SeqSpec:
    """Raise UserError if the configuration has no padding, end or start token."""
    decoder = config.decoder
    return Seq2SeqSpec(
        backbone="bert2bert", vocab_size=decoder.vocab_size, encoder_vocab_size=config.encoder.vocab_size,
        encoder=bert_stack(config.encoder, decoder=False), decoder=bert_stack(decoder, decoder=True),
        pad_token=_token(config, "pad_token_id", decoder.pad_token_id),
        eos_token=_token(config, "eos_token_id", decoder.eos_token_id),
        start_token=_token(config, "decoder_start_token_id", decoder.bos_token_id), shared_embeddings=False,
        own_pads=(config.encoder.pad_token_id, decoder.pad_token_id), embedding_std=decoder.initializer_range,
        head_transform=True, logits_bias="trained",
    )  # fmt: skip


def bert_stack(config: BertConfig, *, decoder: bool) -> StackSpec:
    """Return the description of a BERT's layers, as an encoder, or as a decoder with cross-attention."""
    return StackSpec(
        layers=config.num_hidden_layers, width=config.hidden_size, heads=config.num_attention_heads,
        head_dim=head_dim(config.hidden_size, config.num_attention_heads), ffn=config.intermediate_size,
        activation=config.hidden_act, decoder=decoder, norm_eps=config.layer_norm_eps, positions="learned",
        max_positions=config.max_position_embeddings, token_types=config.type_vocab_size, embedding_norm=True,
        embedding_dropout=config.hidden_dropout_prob, dropout=config.hidden_dropout_prob,
        attention_dropout=config.attention_probs_dropout_prob, init_std=config.initializer_range,
    )  # fmt: skip


def _token(config: EncoderDecoderConfig, name: str, otherwise: int | None) -> int:
    token = getattr(config, name, None)
    token = otherwise if token is None else token
    if token is None:
        raise UserError(f"config.json of the BERT2BERT checkpoint has no {name}; add it.")
    return token


def random_config(fields: dict) -> EncoderDecoderConfig:
    """The decoder begins with the token at the beginning of texts, or with padding if there is none."""
    both = {name: value for name, value in fields.items() if not name.startswith(SIDES)}
    sides = [
        both | {name.removeprefix(prefix): value for name, value in fields.items() if name.startswith(prefix)}
        for prefix in SIDES
    ]
    encoder, decoder = CONFIG(**sides[0]), CONFIG(**sides[1], is_decoder=True, add_cross_attention=True)
    start = fields["pad_token_id"] if fields["bos_token_id"] is None else fields["bos_token_id"]
    tokens = {name: fields[name] for name in ("pad_token_id", "eos_token_id")}
    return EncoderDecoderConfig.from_encoder_decoder_configs(encoder, decoder, decoder_start_token_id=start, **tokens)


# In files converted from TensorFlow, the parts of a norm are named gamma and beta: (usual name, name there).
OLD_NORMS = ((r"LayerNorm\.weight$", "LayerNorm.gamma"), (r"LayerNorm\.bias$", "LayerNorm.beta"))
UNUSED = (r"(.*\.)?pooler\.dense\.(weight|bias)", r"(.*\.)?embeddings\.position_ids", r"cls\..*")


def table(spec: Seq2SeqSpec) -> Table:
    head, crossing = "decoder.cls.predictions", "decoder.bert.encoder.layer.{layer}"
    cross = under("cross_attention", "crossattention", _ATTENTION) | {"cross_norm": "crossattention.output.LayerNorm"}
    rules = [
        *bert_rules("encoder", "encoder", spec.encoder.layers),
        *bert_rules("decoder", "decoder.bert", spec.decoder.layers, tied=(f"{head}.decoder.weight",)),
        *layers_of("backbone/decoder/layers", crossing, cross, spec.decoder.layers),
        *dense("backbone/head/transform", f"{head}.transform.dense"),
        *norm("backbone/head/transform_norm", f"{head}.transform.LayerNorm"),
        Rule("backbone/head/bias", f"{head}.bias", tied=(f"{head}.decoder.bias",)),
    ]
    if spec.encoder.width != spec.decoder.width:
        rules += dense("backbone/projection", "enc_to_dec_proj")
    return Table("BERT2BERT", tuple(rules), ignored=UNUSED, spellings=OLD_NORMS)


def only_exported(spec: Seq2SeqSpec, config: PretrainedConfig) -> dict[str, np.ndarray]:
    """Return zeros for the encoder's pooler, by tensor name, which transformers expects in a file and does not use."""
    shapes = {"weight": (spec.encoder.width,) * 2, "bias": (spec.encoder.width,)}
    return {f"encoder.pooler.dense.{name}": np.zeros(shape, np.float32) for name, shape in shapes.items()}


def warm_start_table(spec: Seq2SeqSpec, side: str) -> Table:
    """Return the table of the parameters of encoder or decoder (`side`) in a BERT."""
    rules = bert_rules(side, "bert", getattr(spec, side).layers)
    return Table("BERT", tuple(rules), ignored=UNUSED, spellings=((r"^bert\.", ""), *OLD_NORMS))


def bert_rules(side: str, source: str, layers: int, tied: tuple[str, ...] = ()) -> list[Rule]:
    """Return the rules of a BERT without cross-attention, whose names begin with `source`."""
    ours, embeddings = f"backbone/{side}", f"{source}.embeddings"
    return [
        Rule(f"backbone/{side}_embedding/embedding", f"{embeddings}.word_embeddings.weight", tied=tied),
        Rule(f"{ours}/positions/embedding", f"{embeddings}.position_embeddings.weight"),
        Rule(f"{ours}/token_types", f"{embeddings}.token_type_embeddings.weight"),
        *norm(f"{ours}/embedding_norm", f"{embeddings}.LayerNorm"),
        *layers_of(f"{ours}/layers", f"{source}.encoder.layer.{{layer}}", _LAYER, layers),
    ]
