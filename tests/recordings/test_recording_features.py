"""From a recorded sentence to features, by the corrected rules."""

import numpy as np
import pytest
import torch

from eeg2text_jax.data.recordings._features import Dropped, Sentence, Word, default_sample

PLAIN = ("keep", True)  # tokens without letters, z-scores
RAW = ("keep", False)


def word(content, fixations=1.0, value=1.0, bands=2):
    size = 105 if fixations else 0
    return Word(content, fixations, tuple(value + band + np.arange(size) / 7 for band in range(bands)))


def sentence(*words):
    text = " ".join(w.content for w in words)
    return Sentence(text, words, tuple(w.content for w in words), frozenset(), ())


def replace(w, band):
    return Word(w.content, w.fixations, (band, *w.eeg[1:]))


def test_fixated_words_in_order_and_band_major():
    features, text = default_sample(sentence(word("a", value=1), word("b", None), word("c", 2.0, value=5)), "GD", *RAW)
    assert text == "a b c"
    assert features.shape == (2, 210)
    assert features.dtype == np.float32
    np.testing.assert_allclose(features[:, [0, 1, 105]], [[1, 1 + 1 / 7, 2], [5, 5 + 1 / 7, 6]], rtol=1e-6)


def test_zscore_is_torch_std():
    row = np.random.default_rng(0).gamma(2, 2, 210)
    w = Word("a", 1.0, (row[:105], row[105:]))
    features, _ = default_sample(sentence(w), "GD", *PLAIN)
    tensor = torch.from_numpy(row)
    np.testing.assert_allclose(features[0], (tensor - tensor.mean()) / tensor.std(), rtol=1e-6)


def test_words_are_told_from_non_words():
    given = sentence(word("It"), word("--", value=3), word("…", value=4), word("é", value=5), word("3", value=6))
    assert len(default_sample(given, "GD", *RAW)[0]) == 5
    kept, text = default_sample(given, "GD", "skip", zscore=False)
    np.testing.assert_allclose(kept[:, 0], [1, 5, 6])  # with their own EEG
    assert text == given.content


def test_single_fixation_measure_takes_the_words_that_have_it():
    twice = Word("b", 2.0, (np.empty(0), np.empty(0)))
    assert len(default_sample(sentence(word("a"), twice, word("c")), "SFD", *RAW)[0]) == 2
    with pytest.raises(Dropped, match="wrong length"):
        default_sample(sentence(word("a"), twice, word("c")), "GD", *RAW)


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (None, "missing"),
        (Sentence("text", None, (), frozenset(), ()), "missing"),
        (sentence(word("a", None), word("b", None)), "no fixated word"),
        (sentence(word("a", 0.0)), "no fixated word"),
        (Sentence(" ", (word("a"),), ("a",), frozenset(), ()), "no text"),
        (sentence(word("a"), replace(word("b"), np.full(105, np.nan))), "NaN band"),
        (sentence(replace(word("b"), np.r_[np.nan, np.ones(104)])), "NaN band"),
        (sentence(replace(word("b"), np.full(104, 1.0))), "wrong length"),
        (sentence(replace(word("b"), np.full(1, np.nan))), "wrong length"),
        (sentence(replace(word("b"), np.r_[1e9, np.ones(104)])), "above 1000 µV"),
        (sentence(replace(word("b"), np.r_[-np.inf, np.ones(104)])), "above 1000 µV"),
        (sentence(Word("b", 1.0, (np.ones(105), np.ones(105)))), "constant band values"),
        (sentence(Word("b", 1.0, (np.full(105, 3.7e-6), np.full(105, 3.7e-6)))), "constant band values"),
        (sentence(word("a"), Word("b", None, (np.ones(105),))), "fixations contradict EEG"),
        (sentence(Word("b", np.nan, word("b").eeg)), "fixations contradict EEG"),
        (sentence(Word("b", 1.5, word("b").eeg)), "fixations contradict EEG"),
        (sentence(Word("b", -1.0, word("b").eeg)), "fixations contradict EEG"),
        (sentence(Word("b", np.inf, word("b").eeg)), "fixations contradict EEG"),
    ],
)
def test_reasons_to_drop(given, reason):
    with pytest.raises(Dropped, match=reason):
        default_sample(given, "GD", *PLAIN)


def test_typing_errors_of_the_recordings():
    given = sentence(word("feels"), word("emp11111ty"), word(","), word("a"), word("film.1"))
    assert default_sample(given, "GD", *PLAIN)[1] == "feels empty , a film."
