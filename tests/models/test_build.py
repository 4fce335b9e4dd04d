"""From the configuration to a model, and what is refused."""

import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from ml_collections import ConfigDict
from test_properties import BARTISH, make_model
from transformers import LlamaConfig, T5Config
from transformers.models.bart.modeling_bart import shift_tokens_right
from transformers.models.t5.modeling_t5 import T5Attention

from configs import default
from eeg2text_jax.base.errors import UserError
from eeg2text_jax.models.attention import relative_bucket
from eeg2text_jax.models.backbones import DECODERS, t5
from eeg2text_jax.models.backbones.build import BACKBONES, backbone_module, build_model
from eeg2text_jax.models.functional import Seq2SeqModel
from eeg2text_jax.models.layers import check_length

SHAPES = {
    "bart": {"d_model": 16, "encoder_layers": 1, "decoder_layers": 2, "encoder_attention_heads": 2,
             "decoder_attention_heads": 4, "encoder_ffn_dim": 8, "decoder_ffn_dim": 8},
    "t5": {"d_model": 16, "d_kv": 4, "d_ff": 8, "num_layers": 1, "num_heads": 2},
    "bert2bert": {"hidden_size": 16, "num_hidden_layers": 1, "decoder_num_hidden_layers": 2,
                  "num_attention_heads": 2, "intermediate_size": 8},
}  # fmt: skip
DECODER = {
    "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1,
    "intermediate_size": 8,
}  # fmt: skip
SHAPES |= dict.fromkeys(DECODERS, DECODER)
SHAPES["pegasus"] = SHAPES["whisper"] = SHAPES["bart"]


class Tokenizer(types.SimpleNamespace):
    """As much of a tokenizer as a model needs."""

    def __init__(self, **ids: int | None) -> None:
        names = ("bos_token_id", "eos_token_id", "pad_token_id", "cls_token_id", "sep_token_id")
        super().__init__(**{name: ids.get(name) for name in names})

    def __len__(self) -> int:
        return 50

    def __call__(self, text: str, add_special_tokens: bool) -> dict[str, list[int]]:
        return {"input_ids": [len(word) for word in text.split()]}


TOKENIZER = Tokenizer(bos_token_id=0, eos_token_id=2, pad_token_id=1)


def model_config(backbone: str = "bart", shape: dict | None = None, **fields) -> ConfigDict:
    config = default.get_config().model
    config.backbone = backbone
    config.shape = ConfigDict(SHAPES[backbone] if shape is None else shape)
    config.update(encoder_layers=1, encoder_heads=2, encoder_ffn=8, **fields)
    return config


def test_the_backbones() -> None:
    decoders = ("gemma", "gemma2", "gemma3", "llama", "mistral", "qwen2", "qwen3")
    assert ("bart", "bert2bert", "pegasus", "t5", "whisper", *decoders) == BACKBONES


@pytest.mark.parametrize("backbone", BACKBONES)
def test_each_backbone_is_built_and_runs(backbone: str) -> None:
    model = build_model(model_config(backbone), 6, TOKENIZER)
    assert hash(model) == hash(build_model(model_config(backbone), 6, TOKENIZER))
    assert (model.pad_token, model.eos_token) == (1, 2)
    assert model.start_token == {"bart": 2, "pegasus": 1, "t5": 1, "bert2bert": 0, "whisper": 0}.get(backbone, 50)
    inputs = {"features": jax.ShapeDtypeStruct((3, 4, 6), jnp.float32), "mask": jax.ShapeDtypeStruct((3, 4), bool)}
    params = model.shapes
    logits = jax.eval_shape(model.forward, params, inputs, jax.ShapeDtypeStruct((3, 5), jnp.int32))
    assert (logits.shape, logits.dtype) == ((3, 5, 50), jnp.float32)


def test_options_of_the_eeg_encoder() -> None:
    model = build_model(model_config(prompt="transcribe in English:", dropout=0.2, dtype="bfloat16"), 6, TOKENIZER)
    assert model.eeg.prompt == (10, 2, 8)
    assert model.eeg.dropout == 0.2
    assert model.dtype == "bfloat16"


def test_bert_tokens_serve_as_start_and_end() -> None:
    model = build_model(model_config("bert2bert"), 6, Tokenizer(cls_token_id=7, sep_token_id=8, pad_token_id=0))
    assert (model.start_token, model.eos_token, model.pad_token) == (7, 8, 0)


def test_a_t5_without_a_start_token_begins_with_padding() -> None:
    assert t5.spec_from_config(T5Config(pad_token_id=3)).start_token == 3


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"backbone": "gpt2", "shape": {}}, "config.model.backbone is 'gpt2'; it must be one of bart, bert2bert"),
        ({"shape": {"encoder_layer": 1}}, "'encoder_layer' that BartConfig does not know; .* 'encoder_layers'"),
        ({"shape": {"activation_function": "mish"}}, "config.model.shape: there is no activation 'mish' here"),
        ({"shape": {"d_model": "16"}}, "config.model.shape makes no BartConfig .*'d_model'"),
        ({"shape": {"d_model": 0}}, "config.model.shape: its width is 0"),
        ({"shape": {"encoder_attention_heads": 0}}, "no multiple of its 0 attention heads"),
        ({"shape": {"dropout": 1.5}}, "config.model.shape: a rate of dropout is 1.5"),
        ({"shape": {"dropout": 1.0}}, "a rate of dropout is 1.0; expected a number from 0 to below 1"),
        ({"shape": {"attention_dropout": -0.1}}, "a rate of dropout is -0.1"),
        ({"shape": {"vocab_size": 30}}, "vocab_size is 30, but the tokenizer has 50 tokens"),
        ({"shape": {"pad_token_id": None}}, "config.model.shape: pad_token_id is None; expected one token id"),
        ({"backbone": "t5", "shape": {"feed_forward_proj": "gated-mish"}}, "there is no activation 'mish'"),
        ({"backbone": "t5", "shape": {"d_model": 0}}, "config.model.shape: describes no t5 model"),
        ({"backbone": "bert2bert", "shape": {"encoder_vocab_size": 3}, "prompt": "aaaaa"}, "prompt has token 5"),
        ({"shape": {"d_model": 15, "encoder_attention_heads": 2}}, "width 15 is no multiple of its 2 attention heads"),
    ],
)
def test_mistakes_are_named(fields: dict, message: str) -> None:
    with pytest.raises(UserError, match=message):
        build_model(model_config(**fields), 6, TOKENIZER)


def test_tokenizer_without_end_is_refused() -> None:
    with pytest.raises(UserError, match="no end or no padding token"):
        build_model(model_config(), 6, Tokenizer(pad_token_id=0))


def test_too_long_a_sequence_is_refused() -> None:
    check_length(BARTISH, 12)
    with pytest.raises(UserError, match="13 positions is longer than the backbone's table of 12"):
        check_length(BARTISH, 13)
    model = make_model(BARTISH)
    params = model.shapes
    inputs = {"input_ids": jnp.ones((1, 13), jnp.int32), "mask": jnp.ones((1, 13), bool)}
    with pytest.raises(UserError, match="13 positions"):
        jax.eval_shape(model.encode, params, inputs)


def test_labels_are_shifted_as_in_torch() -> None:
    model: Seq2SeqModel = make_model(BARTISH)
    labels = np.array([[5, 6, 7, -100], [8, -100, -100, -100]])
    expected = shift_tokens_right(torch.tensor(labels), model.pad_token, model.start_token)
    np.testing.assert_array_equal(model.shift_right(jnp.asarray(labels)), expected.numpy())


@pytest.mark.parametrize("bidirectional", [True, False])
@pytest.mark.parametrize(("buckets", "farthest"), [(32, 128), (6, 7), (8, 20)])
def test_relative_buckets_are_torchs(bidirectional: bool, buckets: int, farthest: int) -> None:
    distance = np.arange(-300, 301)
    expected = T5Attention._relative_position_bucket(torch.tensor(distance), bidirectional, buckets, farthest)
    ours = relative_bucket(jnp.asarray(distance, jnp.int32), bidirectional, buckets, farthest)
    np.testing.assert_array_equal(ours, expected.numpy())


@pytest.mark.parametrize("end", [2, [2, 3]])
def test_an_end_token_is_never_padding_to_a_language_model(end):
    """Where both are one token in the checkpoint, padding is a token of its own, so that the model learns to end."""
    shape = {"vocab_size": 10, "hidden_size": 8, "num_attention_heads": 2, "intermediate_size": 8}
    spec = backbone_module("llama").spec_from_config(LlamaConfig(**shape, eos_token_id=end, pad_token_id=2))
    assert (spec.eos_token, spec.pad_token) == (2, 10)
    apart = backbone_module("llama").spec_from_config(LlamaConfig(**shape, eos_token_id=end, pad_token_id=1))
    assert apart.pad_token == 1
