"""BART: post-norm layers, learned positions with offset 2, a norm after the embeddings (Lewis et al. 2020)."""

from transformers import BartConfig

from eeg2text_jax.models.spec import Seq2SeqSpec, StackSpec, head_dim

CONFIG = BartConfig  # of its fields are made models with random weights
MODEL_TYPE = "bart"  # in config.json of its checkpoints
ARCHITECTURE = "BartForConditionalGeneration"  # the class of transformers that loads them


def spec_from_config(config: BartConfig) -> Seq2SeqSpec:
    """Hugging Face configuration -> description of the backbone."""
    encoder, decoder = (_stack(config, side) for side in ("encoder", "decoder"))
    return Seq2SeqSpec(
        backbone="bart",
        vocab_size=config.vocab_size,
        encoder=encoder,
        decoder=decoder,
        pad_token=config.pad_token_id,
        eos_token=config.eos_token_id,
        start_token=config.decoder_start_token_id,
        bos_token=getattr(config, "bos_token_id", None),
        embedding_std=config.init_std,
        embedding_scale=config.d_model**0.5 if config.scale_embedding else 1.0,
        logits_bias="frozen",
    )


def _stack(config: BartConfig, side: str) -> StackSpec:
    heads = getattr(config, f"{side}_attention_heads")
    return StackSpec(
        layers=getattr(config, f"{side}_layers"),
        width=config.d_model,
        heads=heads,
        head_dim=head_dim(config.d_model, heads),
        ffn=getattr(config, f"{side}_ffn_dim"),
        activation=config.activation_function,
        decoder=side == "decoder",
        positions="learned",
        max_positions=config.max_position_embeddings,
        position_offset=2,
        embedding_norm=True,
        embedding_dropout=config.dropout,
        dropout=config.dropout,
        attention_dropout=config.attention_dropout,
        activation_dropout=config.activation_dropout,
        init_std=config.init_std,
    )


def random_config(fields: dict) -> BartConfig:
    """Configuration of a model with random weights; the decoder starts with the end token, as in BART."""
    end = fields["eos_token_id"]
    return CONFIG(**{"decoder_start_token_id": end, "forced_eos_token_id": end, **fields})
