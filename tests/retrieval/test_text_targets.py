"""Embeddings of sentences as targets: what they are made of, and what of the train part alone."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import transformers
from etils import epath
from tiny_run import tiny_settings

from eeg2text_jax.base.errors import UserError
from eeg2text_jax.data.datafile import DataFile
from eeg2text_jax.training import study
from eeg2text_jax.training.conditions._donors import label_rows
from eeg2text_jax.training.study import (
    TextTargets,
    chosen_layer,
    hashed_tfidf,
    hidden_means,
    open_targets,
    standardized,
)

TEXTS = ["the dog saw it", "a cat  ran off", "no hen was there", "the fox", "The Dog saw it", "an owl sat up there"]


def data_of(texts):
    n = len(texts)
    text, subject, task = (np.array(column, object) for column in (texts, ["S"] * n, ["T"] * n))
    return DataFile(
        Path("x.h5"), np.ones((n, 1), np.float32), np.arange(n + 1), text, subject, task, np.arange(n), "", {}
    )


def test_embeddings_are_standardized_over_the_train_sentences():
    vectors = np.random.default_rng(0).normal(3, 5, (7, 4))
    train = np.arange(7) < 4
    vectors[train, 2] = 1.5
    found = standardized(vectors, train)
    expected = (vectors - vectors[:4].mean(0)) / np.where(np.arange(4) == 2, np.inf, vectors[:4].std(0))
    np.testing.assert_allclose(found, expected, atol=1e-6)
    with pytest.raises(UserError, match="all have the same embedding"):
        standardized(np.ones((3, 2)), np.array([True, True, False]))


def test_words_are_weighted_by_their_rarity_in_the_train_part():
    """Of two train sentences `a` is in both and `b` in one; `d` is in none."""
    sentences = ["a b b", "A c", "a", "b", "d", "d a a"]
    vectors = hashed_tfidf(sentences, np.arange(6) < 2, 64)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1)
    assert np.unique(np.abs(vectors[2:5])).size == 1, "a sign for each number"

    def weights(row, *words):
        found = np.linalg.lstsq(vectors[list(words)].T, vectors[row], rcond=None)[0]
        return found / found[0]

    np.testing.assert_allclose(weights(0, 2, 3), [1, 2 * (1 + np.log(3 / 2))])
    np.testing.assert_allclose(weights(5, 2, 4), [1, (1 + np.log(3)) / 2])


def test_texts_outside_of_the_train_part_change_no_target_of_it(tmp_path):
    config = tiny_settings(objective="contrastive", contrastive__hashed=16)
    split = SimpleNamespace(parts={"train": [0, 1, 4], "dev": [2], "test": [3, 5]})
    other = [*TEXTS[:2], "another text", *TEXTS[3:5], "the dog"]
    paths = [epath.Path(tmp_path / f"{k}.npz") for k in (0, 1)]
    one, two = (
        open_targets(config, path, data_of(texts), split) for path, texts in zip(paths, (TEXTS, other), strict=True)
    )
    for texts, same in ((TEXTS[:2], True), (TEXTS[4:5], True), (TEXTS[5:], False)):
        expected = two.vectors[two.rows(texts if same else other[5:])]
        assert np.array_equal(one.vectors[one.rows(texts)], expected) == same
    again = open_targets(config, paths[0], data_of(TEXTS), split)
    np.testing.assert_array_equal(again.vectors, one.vectors)
    assert again.signature == one.signature
    with pytest.raises(UserError, match=r"0\.npz: has \d embeddings for 2 sentences"):
        open_targets(config, paths[0], data_of(TEXTS[:2]), split)


def test_exchanged_targets_are_those_of_the_exchanged_texts():
    data, split = data_of(TEXTS), SimpleNamespace(parts={"train": np.array([0, 1, 2, 3])})
    targets = TextTargets(tuple(dict.fromkeys(map(study.sentence_key, TEXTS))), np.zeros((6, 2), np.float32), "")
    for exchanged in (None, label_rows(data, split.parts["train"], 4)):
        arrays = targets.arrays(data.sentence, exchanged)
        assert arrays.sentence.tolist() == targets.rows(TEXTS).tolist()
        rows = np.arange(6) if exchanged is None else exchanged
        assert arrays.exchanged.tolist() == targets.rows(data.sentence[rows]).tolist()
    assert arrays.exchanged.tolist()[:4] != arrays.sentence.tolist()[:4]


def test_hidden_states_are_averaged_over_tokens_that_are_not_special(monkeypatch):
    """A text of special tokens alone has their mean."""

    class Embedder:
        def __init__(self, loaded):
            self.loaded = loaded

        def tokens(self, texts):
            return [np.array([0, 5, 6, 2]), np.array([0, 2])]

        def states(self, ids):
            return [np.array([[9.0, 9.0], [2.0, 3.0], [4.0, 5.0], [7.0, 1.0]]), np.array([[1.0, 3.0], [3.0, 5.0]])]

        def describe(self):
            return "made up"

    loaded = SimpleNamespace(tokenizer=SimpleNamespace(all_special_ids=[2, 0]))
    monkeypatch.setattr(study, "TextEmbedder", Embedder)
    monkeypatch.setattr(study, "load_encoder", lambda name, layer: loaded)
    monkeypatch.setattr(study, "chosen_layer", lambda name, layer: layer)
    means, _ = hidden_means("x", 1, ["a b", ""])
    assert means.tolist() == [[3, 4], [2, 4]]


@pytest.mark.parametrize(("depth", "chosen"), [(12, 8), (6, 4), (2, 1)])
def test_the_layer_is_at_two_thirds_of_the_depth_unless_it_is_named(tmp_path, depth, chosen):
    transformers.BertConfig(num_hidden_layers=depth).save_pretrained(tmp_path)
    assert [chosen_layer(str(tmp_path), layer) for layer in (-1, 0, 1, depth)] == [chosen, 0, 1, depth]
    with pytest.raises(UserError, match=rf"contrastive\.layer is {depth + 1}; .* \(its embeddings\) to {depth}"):
        chosen_layer(str(tmp_path), depth + 1)
