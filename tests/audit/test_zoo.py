"""The zoo holds what it says: decoders with content that grows with quality, controls and nulls without."""

import random
import re
from collections import Counter
from collections.abc import Sequence

import pytest
from decoder_zoo import HONEST, draw
from null_zoo import NULLS, draw_null

from eeg2text_jax.instrument.predictions.file import Prediction
from eeg2text_testing.made_up_text import sentences


def trigrams(text: str) -> Counter:
    letters = re.sub(r"\W+|_", "", text.lower())
    return Counter(letters[i : i + 3] for i in range(max(1, len(letters) - 2)))


def likeness(rows: Sequence[Prediction], references: Sequence[str]) -> float:
    """Return the mean share of letter trigrams of predictions and references that are in both, in percent."""
    shares = []
    for row, reference in zip(rows, references, strict=True):
        ours, theirs = trigrams(row.prediction), trigrams(reference)
        shares.append(2 * (ours & theirs).total() / (ours.total() + theirs.total()))
    return 100 * sum(shares) / len(shares)


def content(rows: Sequence[Prediction]) -> float:
    """Return the likeness to the own reference less that to others."""
    own = [row.reference for row in rows]
    others = [random.Random(shift).sample(own, len(own)) for shift in range(5)]
    return likeness(rows, own) - sum(likeness(rows, other) for other in others) / len(others)


def test_sentences_are_distinct_and_of_4_to_35_words():
    found = sentences("english", 600, 0)
    lengths = [len(text.split()) for text, _ in found]
    assert len(dict(found)) == 600
    assert min(lengths) == 4
    assert 30 <= max(lengths) <= 35
    assert len({genre for _, genre in found}) == 6


@pytest.mark.parametrize("kind", HONEST)
def test_an_honest_decoder_has_content_with_its_quality_and_its_control_has_none(kind):
    poor, middling, good = (draw(kind, quality, 0, size=60) for quality in (0.0, 0.5, 1.0))
    assert poor.eeg != middling.eeg != good.eeg
    assert good.controls == poor.controls == draw(kind, 0.5, 0, size=60).controls
    assert not good.choices or {row.prediction for row in [*poor.eeg, *good.eeg]} <= set(good.choices)
    # Lengths are known to both sides, and in templates the length tells a little.
    none, half, whole = (content(found.eeg) for found in (poor, middling, good))
    assert whole > half > none
    assert whole > none + 2
    assert abs(none) < 3
    assert abs(content(good.controls["noise"])) < 3


@pytest.mark.parametrize("kind", NULLS)
def test_conditions_of_a_null_have_the_same_rows(kind):
    found = draw_null(kind, 3)
    silent = found.controls["noise"]
    assert [(r.sample_id, r.reference, r.task) for r in found.eeg] == [
        (r.sample_id, r.reference, r.task) for r in silent
    ]
    assert len({row.reference for row in found.eeg}) >= 30
    assert draw_null(kind, 3) == found


def test_a_reading_of_one_seed_is_the_same_in_each_leak():
    found = [draw(kind, 0.2, 2, size=60, readers=2) for kind in ("first_half", "copied_rows")]
    assert [r.reference for r in found[0].eeg] == [r.reference for r in found[1].eeg]
    assert found[0] == draw("first_half", 0.2, 2, size=60, readers=2)
