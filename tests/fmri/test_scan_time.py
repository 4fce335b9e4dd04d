"""When, not what, in scans: slow drift tells the scene of a story, which controls of time show."""

import numpy as np
import pytest
import time_trap

from eeg2text_jax import prepare
from eeg2text_jax.base.errors import UserError

SMALL = {**time_trap.SCANS, "subjects": 2, "stories": 2, "heard": 2, "grid": (4, 4, 3), "signal": 0.0}


def made(folder, name="scans", **changes):
    fields = {f"data__synthetic_fmri__{field}": value for field, value in {**SMALL, **changes}.items()}
    windows = {**time_trap.WINDOWS, "window": 1, "stride": 1}
    fields |= {f"data__fmri__{field}": value for field, value in windows.items()}
    return prepare("synthetic-fmri", folder / f"{name}.h5", **fields)


@pytest.mark.parametrize("design", ["drift, scenes", "words, scenes"])
def test_the_trap_is_shown_and_caught_by_text_and_by_retrieval(design):
    found = time_trap.audits(design, 0)
    assert all(time_trap.right(design, found).values())
    assert {result.verdict.base.value for result in found.values()} == {"uses EEG"}
    beyond = "not beyond its time" if "drift" in design else "beyond its time"
    assert {found[f"time, {kind}"].verdict.time.value for kind in ("text", "retrieval")} == {beyond}
    usual = {found[f"usual, {kind}"].verdict.time.value for kind in ("text", "retrieval")}
    assert usual == {"beyond its time: not known"}


def test_a_story_has_scenes_with_words_of_their_own(tmp_path):
    data = made(tmp_path)
    groups, words = SMALL["groups"], SMALL["vocabulary"]
    rows = np.flatnonzero((data.subject == "sub-01") & (data.task == "story01"))
    rows = rows[np.argsort(data.clock.onset[rows])]
    scenes = [{word for i in part for word in data.sentence[i].split()} for part in np.array_split(rows, groups)]
    for k, own in enumerate(scenes[1:]):
        assert len(own & scenes[k]) <= 3, "at the change of scene a window may lie on either side"
    assert len(set.union(*scenes)) <= words


def test_the_drift_is_slow_and_knows_of_no_word(tmp_path):
    still, slow = made(tmp_path, "still", drift=0.0), made(tmp_path, "slow", drift=5.0)
    assert still.sentence.tolist() == slow.sentence.tolist()
    assert still.clock.onset.tolist() == slow.clock.onset.tolist()

    def alike(data):
        """Mean correlation of frames of one scan that follow each other."""
        values = data.features[0 : len(data.features)].reshape(len(data.features), -1)
        ends = np.stack([values[:-1], values[1:]])[:, np.abs(values[1:]).sum(1) > 0]
        apart = (ends[0] * ends[1]).sum(1) / np.sqrt((ends[0] ** 2).sum(1) * (ends[1] ** 2).sum(1))
        return float(np.nanmean(apart))

    assert alike(slow) > 0.65 > 0.4 > alike(still)


def test_too_few_words_for_the_scenes_are_refused(tmp_path):
    with pytest.raises(UserError, match=r"vocabulary is 100 for 6 groups; expected at least 20"):
        made(tmp_path, groups=6, vocabulary=100)
