"""Texts of scripts without spaces are judged by characters."""

import random

from rows import changed

from eeg2text_jax.auditing.audit import audit
from eeg2text_testing.decoders import written

CHARACTERS = [chr(0x4E00 + i) for i in range(600)]


def chinese(right: float, seed: int = 0):
    """Rows of 60 sentences of 8 to 20 characters, a share of them right, read by two."""
    rng = random.Random(seed)
    rows, _ = written(2)
    texts = {row.reference: "".join(rng.choices(CHARACTERS, k=rng.randrange(8, 21))) for row in rows}

    def said(text):
        return "".join(c if rng.random() < right else rng.choice(CHARACTERS) for c in text)

    rows = changed(rows, reference=lambda row: texts[row.reference])
    return changed(rows, prediction=lambda row: said(row.reference), n_words=lambda row: len(row.reference))


def test_four_characters_of_ten_are_found_and_none_is_not():
    noise = {"noise": changed(chinese(0.0, 0), eval_condition="noise")}
    kinds = {row.reference: str(i // 2 % 2) for i, row in enumerate(chinese(0.4))}
    found = audit(chinese(0.4), noise, resamples=200, groups={"kind": kinds})
    assert found.verdict.value == "uses EEG"
    assert 30 < found.deciding.primary.effect < 45
    assert found.n_strata > 5
    nothing = audit(chinese(0.0, 3), {}, resamples=200)
    assert nothing.verdict.value == "no content found above its null"
