"""Levels of content: a decoder of the class alone, a decoder of words, and one that knows nothing."""

import numpy as np
import pytest

from eeg2text_jax.auditing.align import align
from eeg2text_jax.auditing.endpoints import primary_endpoint
from eeg2text_jax.auditing.levels import curve, labels_of, levels
from eeg2text_jax.errors import UserError
from eeg2text_jax.predictions.foreign import ForeignRow, complete

CLASSES, EACH = 12, 8


def planted(kind: str, seed: int = 0):
    """96 sentences of 12 classes; predictions name the class, a word of the sentence, or neither."""
    rng = np.random.default_rng(seed)
    groups, rows, control = {}, [], []
    for number in range(CLASSES * EACH):
        group, noise = number // EACH, " ".join(f"w{i}" for i in rng.integers(40, size=3))
        text = f"class{group} thing{group} {noise} own{number}"
        groups[text] = f"c{group}"
        told = {"class": f"class{group} thing{group}", "words": f"own{number}", "nothing": "a"}[kind]
        for target, start in ((rows, told), (control, "a")):
            tail = " ".join(f"w{i}" for i in rng.integers(40, size=4))
            target.append(ForeignRow(number + 1, text, {("eeg", "free_running"): f"{start} {tail}"}))
    aligned = align({"eeg": complete(rows, "x"), "noise": complete(control, "x")})
    return aligned, groups


def found(kind: str, seed: int = 0):
    aligned, groups = planted(kind, seed)
    labels = labels_of(aligned, groups, "class")
    return levels(aligned, labels, "class", primary_endpoint(), resamples=200, rng=np.random.default_rng(0))[0]


def test_a_decoder_of_the_class_has_content_between_classes_and_none_within():
    level = found("class")
    assert level.control == "noise"
    assert level.groups == CLASSES
    assert level.between.p < 0.01
    assert level.between.effect > 10
    assert level.within.p > 0.05
    assert abs(level.within.effect) < level.within.mde


def test_a_decoder_of_words_has_content_within_classes_and_none_between():
    level = found("words")
    assert level.within.p < 0.01
    assert level.within.effect > 5
    assert abs(level.between.effect) < min(level.between.mde, 0.2 * level.within.effect)


def test_a_decoder_of_nothing_is_seldom_given_a_level():
    """At most 4 of 20 sets at the 5 % level: a sound test exceeds that in 3 of 1000 runs."""
    sets = [found("nothing", seed) for seed in range(20)]
    assert sum(level.between.p <= 0.05 for level in sets) <= 4
    assert sum(level.within.p <= 0.05 for level in sets) <= 4


def test_the_curve_falls_for_a_decoder_of_the_class_and_stays_for_words():
    falls, stays = (
        curve(planted(kind)[0], primary_endpoint(), resamples=200, rng=np.random.default_rng(0), clusters=(1, 12))
        for kind in ("class", "words")
    )
    assert [count for count, _ in falls] == [1, 12]
    assert falls[1][1].effect < 0.5 * falls[0][1].effect
    assert stays[1][1].effect > 0.8 * stays[0][1].effect


def test_references_without_a_label_are_refused():
    aligned, groups = planted("class")
    groups.popitem()
    with pytest.raises(UserError, match="1 references have no label"):
        labels_of(aligned, groups, "class")
    with pytest.raises(UserError, match="the same label"):
        labels_of(aligned, dict.fromkeys(aligned.references, "one"), "class")
