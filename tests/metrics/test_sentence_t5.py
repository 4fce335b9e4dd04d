"""SentenceT5: an encoder-only T5, the mean over tokens, a dense layer and a length of 1, against PyTorch."""

import json

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import save_file
from tiny_encoders import OTHERS, SENTENCES, write_encoder

from eeg2text_jax.base.errors import UserError
from eeg2text_jax.judge._meaning import Similarity
from eeg2text_jax.models.pretrained.encoders import ACTIVATIONS, POOLINGS, TextEmbedder, load_encoder, read_modules

KINDS = ("Transformer", "Pooling", "Dense", "Normalize")


def write_dense(folder, features=(32, 24), bias=False, activation="linear.Identity"):
    torch.manual_seed(5)
    layer = torch.nn.Linear(*features, bias=bias)
    folder.mkdir(exist_ok=True)
    about = {"in_features": features[0], "out_features": features[1], "bias": bias}
    (folder / "config.json").write_text(json.dumps({**about, "activation_function": f"torch.nn.modules.{activation}"}))
    tensors = {f"linear.{name}": tensor.detach() for name, tensor in layer.named_parameters()}
    save_file(tensors, folder / "model.safetensors")
    return layer


@pytest.fixture(scope="module")
def sentence_t5(tmp_path_factory):
    """The folder as sentence-transformers lays SentenceT5 out, with random weights, and its dense layer."""
    root = tmp_path_factory.mktemp("st5")
    whole = write_encoder(root / "whole", "t5")
    folder = root / "sentence-t5-tiny"
    transformers.T5EncoderModel.from_pretrained(whole).save_pretrained(folder)
    transformers.AutoTokenizer.from_pretrained(whole).save_pretrained(folder)
    paths = ["", "1_Pooling", "2_Dense", "3_Normalize"]
    listed = [
        {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for i, (path, kind) in enumerate(zip(paths, KINDS, strict=True))
    ]
    (folder / "modules.json").write_text(json.dumps(listed))
    (folder / "1_Pooling").mkdir()
    flags = {"word_embedding_dimension": 32, "pooling_mode_cls_token": False, "pooling_mode_mean_tokens": True}
    (folder / "1_Pooling/config.json").write_text(json.dumps(flags))
    (folder / "sentence_bert_config.json").write_text('{"max_seq_length": 256, "do_lower_case": false}')
    (folder / "3_Normalize").mkdir()
    return folder, write_dense(folder / "2_Dense")


def test_embeddings_are_those_of_pytorch(sentence_t5):
    folder, dense = sentence_t5
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.T5EncoderModel.from_pretrained(folder).eval()
    batch = tokenizer(OTHERS + SENTENCES, padding=True, return_tensors="pt")
    with torch.no_grad():
        hidden = model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).last_hidden_state
        mask = batch["attention_mask"][..., None].float()
        expected = torch.nn.functional.normalize(dense((hidden * mask).sum(1) / mask.sum(1)), dim=-1).numpy()
    metric = Similarity(TextEmbedder(load_encoder(folder, "last")))
    np.testing.assert_allclose(metric.vectors(OTHERS + SENTENCES), expected, atol=1e-6)
    assert "|max:256|prefix-space:-|pooling:mean+dense[Identity,sha256:" in metric.signature


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations_are_those_of_pytorch(name):
    x = np.linspace(-4, 4, 41)
    np.testing.assert_allclose(ACTIVATIONS[name](x), getattr(torch.nn, name)()(torch.tensor(x)).numpy(), atol=1e-12)


def test_poolings_by_hand():
    states = np.array([[1.0, 8], [2, 4], [6, 0]])
    expected = {
        "cls": [1, 8], "max": [6, 8], "mean": [3, 4], "mean_sqrt_len_tokens": np.array([9, 12]) / np.sqrt(3),
        "weightedmean": [23 / 6, 16 / 6], "lasttoken": [6, 0],
    }  # fmt: skip
    assert expected.keys() == POOLINGS.keys()
    for name, values in expected.items():
        np.testing.assert_allclose(POOLINGS[name](states), values)


def test_several_poolings_stand_side_by_side_and_a_dense_layer_has_its_bias(tmp_path):
    modules = [{"type": f"sentence_transformers.models.{kind}", "path": kind} for kind in KINDS[:3]]
    (tmp_path / "modules.json").write_text(json.dumps(modules))
    (tmp_path / "Pooling").mkdir()
    flags = {"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": True, "pooling_mode_lasttoken": False}
    (tmp_path / "Pooling/config.json").write_text(json.dumps(flags))
    layer = write_dense(tmp_path / "Dense", (4, 3), bias=True, activation="activation.Tanh")
    states = np.array([[1.0, 8], [2, 4]])
    with torch.no_grad():
        expected = torch.tanh(layer(torch.tensor([1.0, 8, 1.5, 6]))).numpy()
    np.testing.assert_allclose(read_modules(tmp_path).embed(states), expected, atol=1e-6)
    (tmp_path / "Pooling/config.json").write_text('{"pooling_mode": ["cls", "mean"]}')
    np.testing.assert_allclose(read_modules(tmp_path).embed(states), expected, atol=1e-6)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"out_features": 5}, r"linear.weight is \[3, 4\], without a bias; config.json has \[5, 4\]"),
        ({"bias": True}, "without a bias"),
        ({"activation_function": "torch.nn.Mish"}, "the activation is Mish; expected Identity"),
        ({"module_input_name": "token_embeddings"}, "is a dense layer of token_embeddings"),
    ],
)
def test_a_dense_layer_that_does_not_fit_is_refused(tmp_path, change, message):
    (tmp_path / "modules.json").write_text('[{"type": "x.Pooling", "path": "."}, {"type": "x.Dense", "path": "d"}]')
    (tmp_path / "config.json").write_text('{"pooling_mode": "mean"}')
    write_dense(tmp_path / "d", (4, 3))
    path = tmp_path / "d/config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(UserError, match=message):
        read_modules(tmp_path)


def test_without_pooling_there_is_no_sentence(tmp_path):
    (tmp_path / "modules.json").write_text('[{"type": "x.Transformer", "path": ""}, {"type": "x.Normalize"}]')
    with pytest.raises(UserError, match="no Pooling comes after the encoder"):
        read_modules(tmp_path)
