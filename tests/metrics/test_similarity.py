"""Cosine similarity of sentences against the few lines of PyTorch that define it."""

import dataclasses
import json
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import transformers
from tiny_encoders import OTHERS, SENTENCES, write_encoder

from eeg2text_jax.base.errors import UserError
from eeg2text_jax.judge._meaning import MeaningMetrics, Similarity
from eeg2text_jax.models.pretrained.encoders import TextEmbedder, load_encoder, read_modules


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_encoder(tmp_path_factory.mktemp("encoder") / "tiny", "bert")


def their_vectors(folder, texts, mode="mean"):
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModel.from_pretrained(folder).eval()
    batch = tokenizer(list(texts), padding=True, return_tensors="pt")
    with torch.no_grad():
        hidden = model(**batch).last_hidden_state
    mask = batch["attention_mask"][..., None].float()
    pooled = (hidden * mask).sum(1) / mask.sum(1) if mode == "mean" else hidden[:, 0]
    return torch.nn.functional.normalize(pooled, dim=-1).numpy()


@pytest.mark.parametrize("mode", ["mean", "cls"])
def test_vectors_and_cosines_are_those_of_pytorch(folder, mode, tmp_path):
    write_modules(folder, mode)
    metric = Similarity(TextEmbedder(load_encoder(folder)))
    expected = [their_vectors(folder, texts, mode) for texts in (OTHERS, SENTENCES)]
    np.testing.assert_allclose(metric.vectors(OTHERS), expected[0], atol=1e-5)
    np.testing.assert_allclose(metric.pairwise(OTHERS, SENTENCES)[..., 0], expected[0] @ expected[1].T, atol=1e-5)
    cosines = (expected[0] * expected[1]).sum(1)
    np.testing.assert_allclose(metric.statistics(OTHERS, SENTENCES)[:, 0], cosines, atol=1e-5)
    assert metric.score(OTHERS, SENTENCES)["similarity"] == pytest.approx(100 * cosines.mean(), abs=1e-3)
    assert f"|max:64|prefix-space:-|pooling:{mode}|" in metric.signature


def test_blank_text_has_no_direction(folder):
    metric = Similarity(TextEmbedder(load_encoder(folder)))
    np.testing.assert_array_equal(metric.statistics(["", "word"], ["word", " "])[:, 0], 0)


def test_texts_are_lower_cased_where_the_modules_say_so(folder):
    metric, asked = Similarity(TextEmbedder(load_encoder(folder))), []
    metric._embedder = SimpleNamespace(
        tokens=lambda texts, _: asked.extend(texts) or [[0]] * len(texts),
        states=lambda ids: [np.ones((1, 4))] * len(ids),
    )
    for lower in (False, True):
        metric._modules, metric._vectors = dataclasses.replace(metric._modules, lower_case=lower), {}
        metric.vectors(["A Film"])
    assert asked == ["A Film", "a film"]


def test_similarity_is_of_the_last_layer_whatever_the_layer_of_bertscore(folder):
    write_modules(folder)
    _, similarity = MeaningMetrics(["bertscore", "similarity"], folder, layer=1)(SENTENCES)
    np.testing.assert_allclose(similarity.vectors(OTHERS), their_vectors(folder, OTHERS), atol=1e-5)


def write_modules(folder, mode="mean", kind="sentence_transformers.models.Normalize"):
    modules = ["sentence_transformers.models.Transformer", "sentence_transformers.models.Pooling", kind]
    paths = ["", "1_Pooling", "2_Last"]
    listed = [{"idx": i, "path": p, "type": t} for i, (p, t) in enumerate(zip(paths, modules, strict=True))]
    (folder / "modules.json").write_text(json.dumps(listed))
    (folder / "1_Pooling").mkdir(exist_ok=True)
    names = {"mean": "pooling_mode_mean_tokens", "cls": "pooling_mode_cls_token", "max": "pooling_mode_max_tokens"}
    settings = {name: key == mode for key, name in names.items()}
    (folder / "1_Pooling" / "config.json").write_text(json.dumps({"word_embedding_dimension": 32, **settings}))
    (folder / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": 64, "do_lower_case": False}))


def test_unknown_modules_and_poolings_are_refused(tmp_path):
    write_modules(tmp_path, kind="sentence_transformers.models.CNN")
    with pytest.raises(UserError, match=r"a stage 'sentence_transformers\.models\.CNN', which is not supported"):
        read_modules(tmp_path)
    write_modules(tmp_path, "nothing")
    with pytest.raises(UserError, match="asks for no pooling; expected cls, max, mean"):
        read_modules(tmp_path)
    (tmp_path / "1_Pooling" / "config.json").write_text('{"pooling_mode": "median"}')
    with pytest.raises(UserError, match="asks for median"):
        read_modules(tmp_path)
    (tmp_path / "modules.json").write_text("{")
    with pytest.raises(UserError, match="cannot be read as JSON"):
        read_modules(tmp_path)


def test_without_module_files_the_signature_says_that_pooling_is_unstated(tmp_path):
    metric = Similarity(TextEmbedder(load_encoder(write_encoder(tmp_path / "plain", "bert"))))
    assert "|pooling:mean,unstated|" in metric.signature
