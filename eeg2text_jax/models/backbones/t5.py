"""T5: root-mean-square norms, relative position bias, unscaled attention, no biases (Raffel et al. 2020).

Version 1.0 has a ReLU; its output head is the embedding table, applied to scaled hidden states. Version 1.1 and Flan-T5
have a gated GELU and a separate output head.
"""

from transformers import T5Config

from eeg2text_jax.models.backbones.mapping import Rule, Table, layers_of, norm, under
from eeg2text_jax.models.spec import Seq2SeqSpec, StackSpec

CONFIG = T5Config  # configuration class of models with random weights
MODEL_TYPE = "t5"  # in config.json of its checkpoints
ARCHITECTURE = "T5ForConditionalGeneration"  # the class of transformers that loads them


def spec_from_config(config: T5Config) -> Seq2SeqSpec:
    # transformers 5 turns `tie_word_embeddings: false` of a config.json into `scale_decoder_outputs: false`.
    tied = config.scale_decoder_outputs
    start = getattr(config, "decoder_start_token_id", None)
    return Seq2SeqSpec(
        backbone="t5", vocab_size=config.vocab_size, encoder=_stack(config, config.num_layers, decoder=False),
        decoder=_stack(config, config.num_decoder_layers, decoder=True), pad_token=config.pad_token_id,
        eos_token=config.eos_token_id, start_token=config.pad_token_id if start is None else start,
        embedding_std=config.initializer_factor, frozen_pad=False, tied_head=tied,
        head_scale=config.d_model**-0.5 if tied else 1.0,
    )  # fmt: skip


_RATES = ("embedding_dropout", "dropout", "attention_dropout", "activation_dropout", "final_dropout")


def _stack(config: T5Config, layers: int, *, decoder: bool) -> StackSpec:
    return StackSpec(
        layers=layers, width=config.d_model, heads=config.num_heads, head_dim=config.d_kv, ffn=config.d_ff,
        activation=config.dense_act_fn, decoder=decoder, gated=config.is_gated_act, pre_norm=True, norm="rms",
        norm_eps=config.layer_norm_epsilon, bias=False, scale_attention=False, positions="relative",
        relative_buckets=config.relative_attention_num_buckets,
        relative_max_distance=config.relative_attention_max_distance, final_norm=True, init_std=None,
        **dict.fromkeys(_RATES, config.dropout_rate),
    )  # fmt: skip


def random_config(fields: dict) -> T5Config:
    """The decoder begins with the padding token."""
    return CONFIG(**{"decoder_start_token_id": fields["pad_token_id"], **fields})


_COPIES = ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight")
_PROJECTIONS = {"query": "q", "key": "k", "value": "v", "out": "o"}


def table(spec: Seq2SeqSpec) -> Table:
    if spec.tied_head:
        rules = [Rule("backbone/shared/embedding", "shared.weight", tied=(*_COPIES, "lm_head.weight"))]
    else:
        # transformers 5 ties the head of every T5 that it makes, and then writes the embedding table alone.
        rules = [
            Rule("backbone/shared/embedding", "shared.weight", tied=_COPIES),
            Rule("backbone/head/embedding", "lm_head.weight", otherwise="shared.weight"),
        ]
    rules += [*_stack_rules("encoder", spec.encoder), *_stack_rules("decoder", spec.decoder)]
    # Version 1.0 files carry a relative bias for cross-attention that no implementation reads.
    return Table("T5", tuple(rules), ignored=(r"decoder\.block\.0\.layer\.1\.EncDecAttention\.relative_.*",))


def _stack_rules(side: str, stack: StackSpec) -> list[Rule]:
    last = 2 if stack.decoder else 1  # index of the feed-forward sublayer in a layer
    parts = {"gate": "wi_0", "inner": "wi_1", "outer": "wo"} if stack.gated else {"inner": "wi", "outer": "wo"}
    names = under("self_attention", "0.SelfAttention", _PROJECTIONS) | {"self_norm": "0.layer_norm"}
    names |= {"ffn_norm": f"{last}.layer_norm", **under("ffn", f"{last}.DenseReluDense", parts)}
    if stack.decoder:
        names |= {**under("cross_attention", "1.EncDecAttention", _PROJECTIONS), "cross_norm": "1.layer_norm"}
    relative = f"{side}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
    return [
        Rule(f"backbone/{side}/relative/embedding", relative),
        *norm(f"backbone/{side}/final_norm", f"{side}.final_layer_norm", bias=False),
        *layers_of(f"backbone/{side}/layers", f"{side}.block.{{layer}}.layer", names, stack.layers, bias=False),
    ]
