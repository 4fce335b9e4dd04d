"""The audit of windows: those that overlap are not judged as sentences of their own; words follow the recording."""

import dataclasses
import json

import numpy as np
import pytest

from eeg2text_jax.base.errors import UserError
from eeg2text_jax.instrument.auditing.audit import audit
from eeg2text_jax.instrument.auditing.report import write_report
from eeg2text_jax.instrument.auditing.result import result_text
from eeg2text_jax.instrument.auditing.strata import disjoint
from eeg2text_jax.instrument.predictions.file import Prediction

L = 10


def smooth(rng, n: int, stories: int, knows: bool) -> tuple[list[Prediction], list[Prediction]]:
    """Rows of every window of some stories, with recordings and with noise; predictions change as slowly as texts."""
    eeg, noise = [], []
    for story in range(stories):
        words = [f"w{k}" for k in rng.integers(40, size=n + L)]
        others = [[f"w{k}" for k in rng.integers(40, size=n + L)] for _ in range(2)]
        heard = [w if rng.random() < 0.9 else "w?" for w in words]
        for first in range(n):
            name = f"t{story}:{first}"
            row = {"sample_id": f"S/{name}", "subject": "S", "task": f"t{story}", "sentence_id": name, "n_words": L,
                   "train_condition": "eeg", "seed": 0, "mode": "free_running",
                   "reference": " ".join(words[first : first + L])}  # fmt: skip
            own = heard if knows else others[0]
            eeg.append(Prediction(**row, eval_condition="eeg", prediction=" ".join(own[first : first + L])))
            noise.append(Prediction(**row, eval_condition="noise", prediction=" ".join(others[1][first : first + L])))
    return eeg, noise


def test_windows_that_are_judged_share_no_segment():
    eeg, _ = smooth(np.random.default_rng(0), 47, 2, True)
    kept = disjoint(eeg)
    assert [row.sentence_id for row in kept] == [f"t{s}:{k}" for s in range(2) for k in (0, 10, 20, 30, 40)]


@pytest.mark.parametrize("name", ["3", "t0", "t0:", "t0:three", ""])
def test_a_window_without_story_and_segment_is_named(name):
    eeg, _ = smooth(np.random.default_rng(0), 12, 1, True)
    eeg[5] = dataclasses.replace(eeg[5], sentence_id=name)
    with pytest.raises(UserError, match=f"sample 'S/t0:5': the sentence_id .* is '{name}'; expected STORY:SEGMENT"):
        disjoint(eeg)


def test_windows_that_only_drift_are_not_called_content():
    """Predictions that are as smooth as the texts and unrelated to them, judged at the 5 % level."""
    found = []
    for seed in range(10):
        eeg, noise = smooth(np.random.default_rng(seed), 60, 4, False)
        found.append(audit(eeg, {"noise": noise}, recording="fmri").verdict.value)
    assert sum(verdict.startswith("uses fMRI") for verdict in found) <= 2


def test_the_words_are_those_of_the_recording(tmp_path):
    eeg, noise = smooth(np.random.default_rng(1), 200, 4, True)
    given = {"proof": "it was decoded without any targets"}
    result = audit(eeg, {"noise": noise}, recording="fmri", **given)
    text = result_text(result)
    assert "VERDICT: uses fMRI" in text
    assert "better with fMRI than with noise" in text
    assert "EEG" not in text
    assert result.to_json()["verdict"].startswith("uses fMRI")
    assert "EEG" not in json.dumps(result.to_json())
    write_report(result, tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text()
    assert "Does the model use the fMRI?" in page
    assert "Are {EEG}-to-Text Models Working?" in page  # the title of a paper stays
    assert "EEG" not in page.partition("<details")[0]
    assert "with eeg" not in page + text
    assert json.loads(json.dumps(result.to_json()))["conditions"][0]["name"] == "eeg"
    assert audit(eeg, {"noise": noise}, **given).to_json()["verdict"].startswith("uses EEG")
