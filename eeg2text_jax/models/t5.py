"""T5: root-mean-square norms, relative position bias, unscaled attention, no biases (Raffel et al. 2020).

Version 1.0 has a ReLU and ties its head to the embeddings, scaling what enters it; 1.1 and Flan have a gated GELU and
a head of their own.
"""

from transformers import T5Config

from eeg2text_jax.models.spec import Seq2SeqSpec, StackSpec

CONFIG = T5Config  # of its fields are made models with random weights
MODEL_TYPE = "t5"  # in config.json of its checkpoints
ARCHITECTURE = "T5ForConditionalGeneration"  # the class of transformers that loads them


def spec_from_config(config: T5Config) -> Seq2SeqSpec:
    """Hugging Face configuration -> description of the backbone."""
    # transformers 5 turns `tie_word_embeddings: false` of a config.json into `scale_decoder_outputs: false`.
    tied = config.scale_decoder_outputs
    start = getattr(config, "decoder_start_token_id", None)
    return Seq2SeqSpec(
        backbone="t5",
        vocab_size=config.vocab_size,
        encoder=_stack(config, config.num_layers, decoder=False),
        decoder=_stack(config, config.num_decoder_layers, decoder=True),
        pad_token=config.pad_token_id,
        eos_token=config.eos_token_id,
        start_token=config.pad_token_id if start is None else start,
        embedding_std=config.initializer_factor,
        frozen_pad=False,
        tied_head=tied,
        head_scale=config.d_model**-0.5 if tied else 1.0,
    )


def _stack(config: T5Config, layers: int, *, decoder: bool) -> StackSpec:
    return StackSpec(
        layers=layers,
        width=config.d_model,
        heads=config.num_heads,
        head_dim=config.d_kv,
        ffn=config.d_ff,
        activation=config.dense_act_fn,
        decoder=decoder,
        gated=config.is_gated_act,
        pre_norm=True,
        norm="rms",
        norm_eps=config.layer_norm_epsilon,
        bias=False,
        scale_attention=False,
        positions="relative",
        relative_buckets=config.relative_attention_num_buckets,
        relative_max_distance=config.relative_attention_max_distance,
        final_norm=True,
        embedding_dropout=config.dropout_rate,
        dropout=config.dropout_rate,
        attention_dropout=config.dropout_rate,
        activation_dropout=config.dropout_rate,
        final_dropout=config.dropout_rate,
        init_std=None,
    )


def random_config(fields: dict) -> T5Config:
    """Configuration of a model with random weights; the decoder starts with the padding token."""
    return CONFIG(**{"decoder_start_token_id": fields["pad_token_id"], **fields})
