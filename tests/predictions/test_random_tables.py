"""No random table is read wrongly without a word; each that docs/layouts.md promises is read."""

import unicodedata
from collections import Counter

import pytest
from random_tables import Case, random_case

from eeg2text_jax.base.errors import UserError
from eeg2text_jax.instrument.predictions.read import describe, read_any


def trouble(case: Case) -> str | None:
    """What is wrong with the reading of a file: other pairs without a word, or a refusal that is not due."""
    try:
        read = read_any(case.path, **case.options)
    except UserError as error:
        return f"refused: {error}" if case.told else None
    found = Counter((p.reference, p.prediction, p.eval_condition) for p in read.predictions)
    fed = case.conditions or ["unknown"] * len(case.pairs)
    expected = Counter(
        (*(unicodedata.normalize("NFC", text) for text in pair), condition)
        for pair, condition in zip(case.pairs, fed, strict=True)
    )
    said = describe(read) + " ".join(read.notes)
    if found == expected or (not found - expected and "left out" in said):
        return None
    return f"wrong: {found - expected} for {expected - found}; {said}"


@pytest.mark.quick("0", "1", "2", "3")
@pytest.mark.parametrize("tens", range(40))
def test_a_random_table_is_read_right_or_refused(tmp_path, tens):
    for seed in range(10 * tens, 10 * tens + 10):
        folder = tmp_path / str(seed)
        folder.mkdir()
        case = random_case(folder, seed)
        assert trouble(case) is None, f"table {seed}: {case.what} {case.options}"
