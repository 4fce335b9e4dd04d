"""Our aggregation of BLEU against sacrebleu and nltk."""

import random
import tracemalloc

import numpy as np
import pytest
import sacrebleu
from nltk.translate.bleu_score import corpus_bleu
from rouge_score.tokenize import tokenize as rouge_score_tokenize
from sacrebleu.tokenizers.tokenizer_13a import Tokenizer13a

from eeg2text_jax.instrument.metrics.metric import Bleu, MetricError, Rouge, rouge_score_words, word_bleu, words_13a

TEXT = "the a cat dog sat on mat , . it's (well) U.S. 1,000 He was in New-York 'quoted' end."
WORDS = TEXT.split()


def random_corpus(seed: int, size: int = 60, shortest: int = 0) -> tuple[list[str], list[str]]:
    rng = random.Random(seed)

    def sentence(shortest: int) -> str:
        return " ".join(rng.choices(WORDS, k=rng.randint(shortest, 14)))

    references = [sentence(1) for _ in range(size)]
    predictions = [reference if rng.random() < 0.1 else sentence(shortest) for reference in references]
    return predictions, references


@pytest.mark.parametrize("seed", range(5))
def test_words_agree_with_sacrebleu(seed):
    predictions, references = random_corpus(seed)
    ours = word_bleu().score(predictions, references)
    for n in (1, 2, 3, 4):
        theirs = sacrebleu.BLEU(tokenize="13a", smooth_method="none", max_ngram_order=n)
        expected = theirs.corpus_score(predictions, [references]).score
        assert ours[f"word_bleu-{n}"] == pytest.approx(expected, abs=1e-9)


@pytest.mark.filterwarnings(r"ignore:\s*The hypothesis contains 0 counts")  # nltk says so of an order without a match
@pytest.mark.parametrize("seed", range(5))
def test_tokens_agree_with_nltk_even_where_predictions_are_short(seed):
    predictions, references = random_corpus(seed, size=8 if seed == 4 else 60)
    ours = Bleu("token_bleu", str.split, "ids", short_counts_one=True).score(predictions, references)
    for n in (1, 2, 3, 4):
        pairs = [[r.split()] for r in references], [p.split() for p in predictions]
        expected = 100 * corpus_bleu(*pairs, weights=(1 / n,) * n)
        assert ours[f"token_bleu-{n}"] == pytest.approx(expected, abs=1e-9)


def test_pairwise_holds_the_rows_of_statistics():
    predictions, references = random_corpus(0, size=12)
    metric = word_bleu()
    table = metric.pairwise(predictions, references[:7])
    assert table.shape == (12, 7, len(metric.statistic_names))
    for i, j in [(0, 0), (3, 6), (11, 2)]:
        np.testing.assert_array_equal(table[i, j], metric.statistics([predictions[i]], [references[j]])[0])


def test_corpus_takes_any_leading_shape():
    predictions, references = random_corpus(1)
    metric = word_bleu()
    rows = metric.statistics(predictions, references)
    draws = np.random.default_rng(0).integers(0, len(rows), (4, 3, len(rows)))
    scores = metric.corpus(rows[draws].sum(-2))
    assert scores.shape == (4, 3, 4)
    np.testing.assert_allclose(scores[2, 1], metric.corpus(rows[draws[2, 1]].sum(0)), atol=1e-12)


def test_empty_texts_have_a_meaning():
    metric = word_bleu()
    assert metric.score(["", ""], ["a b", "c"]) == dict.fromkeys(metric.columns, 0.0)
    assert all(np.isnan(v) for v in metric.score(["a", ""], ["", ""]).values())
    full = metric.score(["a b c d"], ["a b c d"])
    assert metric.score(["a b c d", ""], ["a b c d", ""]) == full


def test_pieces_are_tokenized_as_whole_texts_are():
    """Of all that the tokenizers look at: signs beside digits, entities, line ends, other kinds of white space."""
    rng = random.Random(0)
    marks = [*"ab1.,-'&;:()/_~$ \n\t\u00a0\u2028é΢İ%", "1,000", "-\n", "&amp;", "<skipped>", "...", "Σ ", " - "]
    theirs = Tokenizer13a()
    for _ in range(3000):
        text = "".join(rng.choices(marks, k=rng.randint(0, 14)))
        assert words_13a(text) == theirs(text).split(), repr(text)
        assert rouge_score_words(text) == rouge_score_tokenize(text, None), repr(text)


@pytest.mark.parametrize("metric", [word_bleu(), Rouge()])
def test_rows_and_all_against_all_agree(metric):
    """The two ways of counting n-grams, by sorting and by a sparse product."""
    predictions, references = random_corpus(7)
    everything = metric.pairwise(predictions, references)
    np.testing.assert_array_equal(metric.statistics(predictions, references), everything[range(60), range(60)])


def test_many_rows_are_scored_in_parts_with_the_same_sum(monkeypatch):
    predictions, references = random_corpus(3, size=50)
    told = []
    whole = Rouge().total(predictions, references)
    monkeypatch.setattr("eeg2text_jax.instrument.metrics.metric.ROWS_AT_ONCE", 7)
    np.testing.assert_allclose(Rouge().total(predictions, references, told.append), whole, rtol=1e-12)
    assert told == [7] * 7 + [1]
    with pytest.raises(MetricError, match="row 37:") as error:
        Rouge().total(predictions, [*references[:36], "Привет", *references[37:]])
    assert error.value.index == 36


def test_memory_does_not_grow_with_the_rows(monkeypatch):
    """A million rows were tokenized at once; now some thousand are, whatever the number of rows."""
    monkeypatch.setattr("eeg2text_jax.instrument.metrics.metric.ROWS_AT_ONCE", 250)
    peaks = []
    for size in (500, 3000):
        predictions, references = random_corpus(1, size=size)
        tracemalloc.start()
        word_bleu().score(predictions, references)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.5 * peaks[0]


def test_matches_are_counted_in_parts_with_the_same_sum(monkeypatch):
    predictions, references = random_corpus(2, size=20)
    whole = word_bleu().pairwise(predictions, references)
    monkeypatch.setattr("eeg2text_jax.instrument.metrics.metric.AT_ONCE", 7)
    np.testing.assert_array_equal(word_bleu().pairwise(predictions, references), whole)
