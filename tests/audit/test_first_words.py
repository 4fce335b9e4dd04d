"""First words of the target on both sides: a prompt, or a number or tag of the sentence."""

import dataclasses
import random

import pytest
from rows import changed, row

from eeg2text_jax.auditing.align import align
from eeg2text_jax.auditing.audit import audit
from eeg2text_jax.auditing.forced_words import same_beginning
from eeg2text_jax.auditing.plain_rows import Rows
from eeg2text_testing.decoders import decoded, exchanged, word_by_word, written

ROWS, VOCABULARY = written(4)
SOME = decoded(ROWS, VOCABULARY, 0.5)


def null():
    """Outputs over other sentences: nothing of their own. Words have no figures."""
    letters = str.maketrans("0123456789", "abcdefghij")
    texts = [(p, p.reference.translate(letters), p.prediction.translate(letters)) for p in exchanged(SOME)]
    return [dataclasses.replace(p, reference=r, prediction=o) for p, r, o in texts]


def findings(rows):
    found = audit(rows, {}, resamples=100)
    return found, [flag.message for flag in found.flags if flag.code == "target_beginning"]


@pytest.mark.parametrize("words", [1, 2, 3])
def test_true_first_words_before_babble_are_a_beginning_of_the_target(words):
    rows = changed(null(), prediction=lambda p: " ".join(p.reference.split()[:words] + p.prediction.split()[words:]))
    found, messages = findings(rows)
    assert found.verdict.value == "not judgeable"
    assert "a beginning of the target reached the decoder" in messages[0]


@pytest.mark.parametrize("tag", ["{}) ", "{}. ", "[S1 trial {}] "])
def test_a_tag_of_the_sentence_on_both_sides_is_named(tag):
    numbers = {}
    rows = [
        dataclasses.replace(p, reference=mark + p.reference, prediction=mark + p.prediction)
        for p in null()
        for mark in [tag.format(numbers.setdefault(p.reference, len(numbers)))]
    ]
    found, messages = findings(rows)
    assert found.verdict.value == "not judgeable"
    assert "predictions and references begin with a number or tag of the sentence" in messages[0]


@pytest.mark.parametrize("maker", [decoded, word_by_word])
@pytest.mark.parametrize("right", [0.3, 0.9, 0.99])
def test_decoders_and_common_openings_are_not_caught(maker, right):
    assert findings(maker(ROWS, VOCABULARY, right))[1] == []
    rows = changed(null(), reference=lambda p: f"a man {p.reference}", prediction=lambda p: f"a man {p.prediction}")
    assert findings(rows)[1] == []


def begun(first, fourth, later):
    """Whether the rule finds rows of ten words, with shares of right first three, fourth and later words."""
    rng, rows = random.Random(0), []
    for i in range(300):
        own = [f"w{i % 60}x{k}" for k in range(10)]
        shares = [float(i >= (1 - first) * 300)] * 3 + [fourth] + [later] * 6
        said = [word if rng.random() < share else "no" for word, share in zip(own, shares, strict=True)]
        rows.append(row(i % 60, sample_id=f"{i}", reference=" ".join(own), prediction=" ".join(said)))
    aligned = align({"eeg": rows})
    return bool([*same_beginning(Rows(aligned.eeg, aligned.references))])


def test_the_odds_of_first_words_are_of_one_word_and_hold_against_all_words_that_follow():
    """Three words that are right in 96 % of rows are right in 98.6 % each: odds of 73, against 1.9 of 65 %."""
    assert begun(0.96, 0.65, 0.65)
    assert not begun(0.96, 0.85, 0.85)
    assert not begun(0.96, 0.0, 0.95), "one place of the sentence is missed, and no beginning is given"
