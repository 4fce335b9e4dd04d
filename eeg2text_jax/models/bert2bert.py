"""BERT2BERT: a BERT encoder and a BERT decoder with cross-attention (Rothe et al. 2020).

As `EncoderDecoderModel` of transformers: two embedding tables, a transformed head tied to the decoder's, a dense layer
between the stacks where their widths differ.
"""

from transformers import BertConfig, EncoderDecoderConfig

from eeg2text_jax.errors import UserError
from eeg2text_jax.models.spec import Seq2SeqSpec, StackSpec, head_dim

CONFIG = BertConfig  # of its fields are made models with random weights
MODEL_TYPE = "encoder-decoder"  # in config.json of its checkpoints
ARCHITECTURE = "EncoderDecoderModel"  # the class of transformers that loads them
SIDES = ("encoder_", "decoder_")  # a field with one of these prefixes is for that side alone


def spec_from_config(config: EncoderDecoderConfig) -> Seq2SeqSpec:
    """Hugging Face configuration -> description of the backbone.

    Raises:
      UserError: the configuration names no start or end token.
    """
    decoder = config.decoder
    return Seq2SeqSpec(
        backbone="bert2bert",
        vocab_size=decoder.vocab_size,
        encoder_vocab_size=config.encoder.vocab_size,
        encoder=bert_stack(config.encoder, decoder=False),
        decoder=bert_stack(decoder, decoder=True),
        pad_token=_token(config, "pad_token_id", decoder.pad_token_id),
        eos_token=_token(config, "eos_token_id", decoder.eos_token_id),
        start_token=_token(config, "decoder_start_token_id", decoder.bos_token_id),
        bos_token=decoder.bos_token_id,
        shared_embeddings=False,
        embedding_std=decoder.initializer_range,
        head_transform=True,
        logits_bias="trained",
    )


def bert_stack(config: BertConfig, *, decoder: bool) -> StackSpec:
    return StackSpec(
        layers=config.num_hidden_layers,
        width=config.hidden_size,
        heads=config.num_attention_heads,
        head_dim=head_dim(config.hidden_size, config.num_attention_heads),
        ffn=config.intermediate_size,
        activation=config.hidden_act,
        decoder=decoder,
        norm_eps=config.layer_norm_eps,
        positions="learned",
        max_positions=config.max_position_embeddings,
        token_types=config.type_vocab_size,
        embedding_norm=True,
        embedding_dropout=config.hidden_dropout_prob,
        dropout=config.hidden_dropout_prob,
        attention_dropout=config.attention_probs_dropout_prob,
        init_std=config.initializer_range,
    )


def _token(config: EncoderDecoderConfig, name: str, otherwise: int | None) -> int:
    token = getattr(config, name, None)
    token = otherwise if token is None else token
    if token is None:
        raise UserError(f"config.json of the BERT2BERT checkpoint has no {name}; add it.")
    return token


def random_config(fields: dict) -> EncoderDecoderConfig:
    """Configuration of a model with random weights; the decoder starts with the tokenizer's first special token."""
    sides = []
    for prefix in SIDES:
        own = {name.removeprefix(prefix): value for name, value in fields.items() if name.startswith(prefix)}
        both = {name: value for name, value in fields.items() if not name.startswith(SIDES)}
        sides.append({**both, **own})
    encoder, decoder = CONFIG(**sides[0]), CONFIG(**sides[1], is_decoder=True, add_cross_attention=True)
    start = fields["pad_token_id"] if fields["bos_token_id"] is None else fields["bos_token_id"]
    tokens = {name: fields[name] for name in ("pad_token_id", "eos_token_id")}
    return EncoderDecoderConfig.from_encoder_decoder_configs(encoder, decoder, decoder_start_token_id=start, **tokens)
