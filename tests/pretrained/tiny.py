"""Small random checkpoints of every backbone, made by transformers."""

import jax.numpy as jnp
import torch
import transformers
from tokenizers import Tokenizer, models, pre_tokenizers

_SHAPE = {"vocab_size": 40, "d_model": 16, "max_position_embeddings": 32}
_SHAPE |= {"encoder_layers": 2, "encoder_attention_heads": 2, "encoder_ffn_dim": 24}
_SHAPE |= {"decoder_layers": 3, "decoder_attention_heads": 4, "decoder_ffn_dim": 20}
_T5 = {"vocab_size": 40, "d_model": 16, "d_kv": 6, "d_ff": 24, "num_layers": 2, "num_decoder_layers": 3, "num_heads": 2}
_BERT = {"vocab_size": 40, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
_BERT |= {"intermediate_size": 24, "max_position_embeddings": 32}
TOKENS = {"bos_token_id": 0, "pad_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 2}
_T5_V1_1 = {**_T5, **TOKENS, "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}


def bert2bert_config() -> transformers.EncoderDecoderConfig:
    encoder = transformers.BertConfig(**_BERT)
    decoder = transformers.BertConfig(**_BERT, is_decoder=True, add_cross_attention=True)
    return transformers.EncoderDecoderConfig.from_encoder_decoder_configs(encoder, decoder, **TOKENS)


CONFIGS = {
    "bart": lambda: transformers.BartConfig(**_SHAPE, **TOKENS),
    "pegasus": lambda: transformers.PegasusConfig(**_SHAPE, **TOKENS),
    "t5": lambda: transformers.T5Config(**_T5, **TOKENS),
    "t5_v1_1": lambda: transformers.T5Config(**_T5_V1_1),
    "bert2bert": bert2bert_config,
}
CLASSES = {
    "bart": transformers.BartForConditionalGeneration,
    "pegasus": transformers.PegasusForConditionalGeneration,
    "t5": transformers.T5ForConditionalGeneration,
    "t5_v1_1": transformers.T5ForConditionalGeneration,
    "bert2bert": transformers.EncoderDecoderModel,
}


def torch_model(kind: str) -> torch.nn.Module:
    """A model whose every parameter and buffer of the checkpoint is random, zeros and ones included."""
    torch.manual_seed(0)
    model = CLASSES[kind](config=CONFIGS[kind]()).eval()
    if kind == "t5_v1_1":  # transformers makes it tied; checkpoints of version 1.1 have a head of their own
        model.lm_head.weight = torch.nn.Parameter(torch.empty_like(model.shared.weight))
    with torch.no_grad():
        for name, value in model.state_dict().items():
            if "embed_positions" not in name or kind != "pegasus":
                value.normal_(0, 0.3)
    return model


def tokenizer() -> transformers.PreTrainedTokenizerFast:
    """Forty words `w0` ... and the special tokens that the configurations name."""
    names = {0: "<s>", 1: "<pad>", 2: "</s>", 3: "<unk>"}
    words = Tokenizer(models.WordLevel({names.get(i, f"w{i}"): i for i in range(40)}, unk_token="<unk>"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    tokens = {"bos_token": "<s>", "pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"}
    return transformers.PreTrainedTokenizerFast(tokenizer_object=words, **tokens)


def flax_tree(state: dict[str, torch.Tensor]) -> dict:
    """A state dict as Hugging Face's Flax classes wrote it: the leaf's name says what a tensor is, matrices turned."""
    tree: dict = {}
    tables = ("shared", "embed_tokens", "embed_positions", "relative_attention_bias", "_embeddings")
    for name, tensor in state.items():
        *folders, leaf = name.split(".")
        array = jnp.asarray(tensor.float().numpy(), str(tensor.dtype).removeprefix("torch."))
        if leaf == "weight" and folders[-1].endswith(tables):
            leaf = "embedding"
        elif leaf == "weight" and array.ndim == 2:
            leaf, array = "kernel", array.T
        elif leaf == "weight" and "block" not in folders and folders[-1] != "final_layer_norm":
            leaf = "scale"  # T5's norms kept the name weight
        node = tree
        for folder in folders:
            node = node.setdefault(folder, {})
        node[leaf] = array
    return tree
