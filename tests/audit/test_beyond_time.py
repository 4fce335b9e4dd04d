"""Content beyond time: decoders of the clock, of words, and of both, with and without controls of time."""

import dataclasses
import html

import numpy as np
import pytest

from eeg2text_jax.auditing.align import align
from eeg2text_jax.auditing.audit import audit
from eeg2text_jax.auditing.beyond_time import BEYOND, NOT_BEYOND, NOT_EXCLUDED, stretches
from eeg2text_jax.auditing.levels import labels_of
from eeg2text_jax.auditing.result import result_text
from eeg2text_testing.clock_decoders import Clocked, made

SETS = {
    "clock": Clocked(sentences=240, subjects=3),
    "words": Clocked(sentences=240, subjects=3, block=1, words=0.5),
    "both": Clocked(sentences=240, subjects=3, words=0.5),
}


def judged(rows, controls, **options):
    return audit(rows["eeg"], {name: rows[name] for name in controls}, resamples=300, **options)


@pytest.fixture(scope="module")
def sets():
    return {name: made(spec, 1) for name, spec in SETS.items()}


def test_the_trap_is_shown_and_caught(sets):
    rows, _ = sets["clock"]
    usual = judged(rows, ["shuffled"])
    assert usual.verdict.value == "uses EEG"
    assert (usual.time.status, usual.exit_status) == (NOT_EXCLUDED, 0)
    assert usual.verdict_text == "uses EEG"
    assert "Time: not excluded, as there is no control of time" in result_text(usual)
    caught = judged(rows, ["shuffled", "clock", "nearest_in_time", "neighbor"])
    assert caught.verdict_text == f"uses EEG: {NOT_BEYOND}"
    assert caught.exit_status == 10
    assert f"VERDICT: uses EEG: {NOT_BEYOND}" in result_text(caught)


def test_the_sentence_of_a_verdict_says_the_time_once(sets):
    controls = ["shuffled", "clock", "nearest_in_time", "neighbor"]
    for kind, names in (("clock", controls), ("words", controls), ("words", ["shuffled"])):
        found = judged(sets[kind][0], names)
        assert found.sentence == f"{found.deciding.sentence} {found.time.sentence}"
        assert found.sentence in found.to_json()["sentence"]
        for shown in (repr(found), result_text(found), found._repr_html_()):
            assert shown.count(html.escape(found.time.sentence)) == 1
    nothing = judged({**sets["words"][0], "eeg": sets["words"][0]["shuffled"]}, ["clock"])
    assert nothing.sentence == nothing.deciding.sentence


@pytest.mark.parametrize("kind", ["words", "both"])
def test_words_go_beyond_their_time(sets, kind):
    found = judged(sets[kind][0], ["shuffled", "clock", "nearest_in_time", "neighbor"])
    assert found.verdict_text == f"uses EEG: {BEYOND}"
    assert found.exit_status == 0
    assert found.to_json()["time"]["status"] == BEYOND


def test_weak_controls_of_time_exclude_nothing(sets):
    found = judged(sets["both"][0], ["shuffled", "neighbor"])
    assert found.time.status == NOT_EXCLUDED
    assert "these keep less than a clock could know" in found.time.sentence


def test_rows_without_time_say_so_once(sets):
    blank = {"recording": None, "onset": None, "duration": None, "order": None}
    rows = {name: [dataclasses.replace(row, **blank) for row in own] for name, own in sets["both"][0].items()}
    found = judged(rows, ["shuffled"])
    assert result_text(found).count("the rows do not say when they were recorded") == 1


def test_stretches_never_cross_a_change_of_group(sets):
    rows, classes = sets["clock"]
    same = made(dataclasses.replace(SETS["clock"], same_order=True), 3)
    aligned = align({"eeg": same[0]["eeg"]})
    labels = labels_of(aligned, same[1], "class")
    strata = stretches(aligned, labels)
    place = {s: row.order for s, row in zip(aligned.eeg.sentence.tolist(), aligned.eeg.rows, strict=True)}
    shown = [labels[s] for s in sorted(place, key=place.get)]
    runs = dict(zip(sorted(place, key=place.get), np.cumsum(np.diff(shown, prepend=shown[0]) != 0), strict=True))
    for stratum in np.unique(strata):
        members = np.flatnonzero(strata == stratum)
        assert len(members) <= 6
        assert len({runs[s] for s in members}) == 1
    level = judged(same[0], ["shuffled"], groups={"class": same[1]}).levels[0]
    assert level.stretches is not None
    assert level.stretches.p > 0.05
    other = align({"eeg": rows["eeg"]})
    apart = stretches(other, labels_of(other, classes, "class"))
    assert apart is not None
