"""Sets made to mislead the audit: no answer is wrong, and bad news never reads as good news."""

import pytest
from adversarial import answer, cases

from eeg2text_jax.auditing.result import result_text

CASES = cases()


@pytest.mark.parametrize("name", CASES)
def test_the_answer_is_true(name):
    eeg, controls, options, true = CASES[name]
    said, result = answer(eeg, controls, options)
    assert said in true
    if said in ("not judgeable", "underpowered", "equivalent to control", "control better"):
        assert "the model uses the EEG" not in result.sentence
        assert result.exit_status != 0
        assert result_text(result).endswith(said)
