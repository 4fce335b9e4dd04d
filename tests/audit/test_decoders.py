"""Decoders that work, of any quality and any number of readers, are judged; `test_signs.py` has signs of a target."""

import random

import pytest
from rows import changed

from eeg2text_jax.instrument.auditing.audit import audit
from eeg2text_jax.instrument.auditing.notices import DECODED_HERE
from eeg2text_testing.decoders import decoded, exchanged, of_words, unsaid, word_by_word, written


@pytest.mark.quick("1-0.2", "1-0.97", "10-0.6", "18-0.3")
@pytest.mark.parametrize(
    ("readers", "right"), [(1, 0.2), (1, 0.6), (1, 0.97), (10, 0.2), (10, 0.6), (10, 0.9), (18, 0.3), (18, 0.85)]
)
def test_a_decoder_that_works_uses_the_eeg_with_and_without_control(readers, right):
    rows = decoded(*written(readers), right)
    for maker in (rows, word_by_word(*written(readers), right)):
        paired = audit(maker, {"shuffled": exchanged(maker)})
        assert paired.verdict.base.value == "uses EEG", [notice.message for notice in paired.notices if notice.bars]
        assert "better with EEG than with shuffled" in paired.sentence
        assert paired.provenance.level.value == "stated"
    assert audit(rows, {}).verdict.base.value == "content above its null"
    assert audit(unsaid(rows), {}).verdict.base.value == "content of unproven origin"


def test_a_choice_without_errors_is_judged_if_its_control_shows_the_choice_or_its_list_is_given():
    rows, _ = written(4)
    perfect = changed(rows, prediction=lambda r: r.reference)
    barred = audit(perfect, {"noise": rows})
    assert barred.verdict.headline == "not judgeable: a target reached the decoder"
    assert "if the decoder chose from a list, give it with --choices" in barred.limits[0]
    some = [changed([r], prediction=rows[-1].reference)[0] if i == 9 else r for i, r in enumerate(rows)]
    assert audit(perfect, {"noise": some}).verdict.base.value == "not judgeable", "one of many is a coincidence"
    stated = audit(perfect, {"noise": rows}, choices=[r.reference for r in rows])
    for found in (stated, audit(perfect, {"shuffled": exchanged(perfect)})):
        assert found.verdict.base.value == "uses EEG"
        assert any("Unusual" in limit and "hold their reference" in limit for limit in found.limits)


def test_a_closed_vocabulary_has_the_same_words_wrong_for_all_readers():
    """Half of the words are known, and another becomes one of them, always the same; else nothing is wrong."""
    rows, after = of_words(60)
    rng, words = random.Random(8), list(after)
    known = rng.sample(words, 100)
    becomes = {word: rng.choice(known) for word in words} | {word: word for word in known}
    said = changed(rows, prediction=lambda r: " ".join(becomes[w] for w in r.reference.split()))
    assert audit(said, {}).verdict.base.value == "content above its null"
    spoilt = {}  # as many words wrong, whichever they are
    for r in rows:
        text = " ".join(w if rng.random() < 0.5 else rng.choice(words) for w in r.reference.split())
        spoilt.setdefault(r.reference, text)
    said = changed(rows, prediction=lambda r: spoilt[r.reference])
    assert "input_independent" in {notice.code for notice in audit(said, {}).notices}


def test_a_perfect_decoder_of_ours_is_judged():
    """By digests it is known that no target was given: a file of references alone is then a decoder without errors."""
    rows, _ = written(4)
    perfect = changed(rows, prediction=lambda row: row.reference)
    found = audit(perfect, {"shuffled": exchanged(perfect)}, decoded=DECODED_HERE)
    assert (found.verdict.base.value, found.provenance.level.value) == ("uses EEG", "decoded here")
    assert "target_copies" in {notice.code for notice in found.notices if not notice.bars}
