"""The toy learns what words that it does not know are: a meaning that is lost."""

import random

import numpy as np

from eeg2text_jax.judge.toy import SLOTS, TOY_WORDS, toy_ids, toy_pair, toy_tokenizer


def unknown(text):
    return [word not in TOY_WORDS for word in text.split()]


def test_pairs_have_unknown_words_and_they_keep_no_meaning():
    rng = random.Random(0)
    alone, single = 0, 0
    for pair, answers in (toy_pair(rng) for _ in range(2000)):
        assert not any(unknown(pair.reference))
        strange = unknown(pair.hypothesis)
        if any(strange):
            assert not pair.preserved
            assert not all(answers[name] for name in SLOTS)
            assert not answers["meaning"]
        if all(strange):
            assert not any(answers.values())
            alone += 1
        single += any(strange) and not all(strange)
    assert 100 < alone < 250
    assert 100 < single < 500


def test_unknown_words_are_one_token():
    tokenizer = toy_tokenizer()
    ids = toy_ids(tokenizer, "the boy saw two houses in london", "xyzzy qqq", "meaning")
    assert np.count_nonzero(ids == tokenizer.unk_token_id) == 2
