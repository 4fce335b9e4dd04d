"""Our aggregation of BLEU against sacrebleu and nltk."""

import random

import numpy as np
import pytest
import sacrebleu
from nltk.translate.bleu_score import corpus_bleu
from rouge_score.tokenize import tokenize as rouge_score_tokenize
from sacrebleu.tokenizers.tokenizer_13a import Tokenizer13a

from eeg2text_jax.instrument.metrics.metric import (
    Bleu,
    MetricError,
    Rouge,
    character_error_rate,
    rouge_score_words,
    word_bleu,
    word_error_rate,
    words_13a,
)

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


@pytest.mark.parametrize("make", [word_bleu, Rouge, lambda: Rouge(paper=True), word_error_rate, character_error_rate])
def test_pairwise_holds_the_rows_of_statistics(make):
    """The two ways of counting n-grams, by sorting and by a sparse product."""
    metric, (predictions, references) = make(), random_corpus(0, size=20)
    predictions[3] = predictions[7]
    table = metric.pairwise(predictions, references[:6])
    assert table.shape == (20, 6, len(metric.statistic_names))
    np.testing.assert_array_equal(table, [metric.statistics([p] * 6, references[:6]) for p in predictions])


def test_empty_texts_have_a_meaning():
    metric = word_bleu()
    assert metric.score(["", ""], ["a b", "c"]) == dict.fromkeys(metric.columns, 0.0)
    assert all(np.isnan(v) for v in metric.score(["a", ""], ["", ""]).values())
    full = metric.score(["a b c d"], ["a b c d"])
    assert metric.score(["a b c d", ""], ["a b c d", ""]) == full


def test_pieces_are_tokenized_as_whole_texts_are():
    rng = random.Random(0)
    marks = [*"ab1.,-'&;:()/_~$ \n\t\u00a0\u2028é΢İ%", "1,000", "-\n", "&amp;", "<skipped>", "...", "Σ ", " - "]
    theirs = Tokenizer13a()
    for _ in range(3000):
        text = "".join(rng.choices(marks, k=rng.randint(0, 14)))
        assert words_13a(text) == theirs(text).split(), repr(text)
        assert rouge_score_words(text) == rouge_score_tokenize(text, None), repr(text)


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


def test_matches_are_counted_in_parts_with_the_same_sum(monkeypatch):
    predictions, references = random_corpus(2, size=20)
    whole = word_bleu().pairwise(predictions, references)
    monkeypatch.setattr("eeg2text_jax.instrument.metrics.metric.AT_ONCE", 7)
    np.testing.assert_array_equal(word_bleu().pairwise(predictions, references), whole)
