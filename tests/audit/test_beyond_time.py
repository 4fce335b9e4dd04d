"""Content beyond time: decoders of the clock, of words, and of both, with and without controls of time."""

import dataclasses
import html
import types

import numpy as np
import pytest
from rows import row
from test_auditing import found as figures

from eeg2text_jax.auditing.align import align
from eeg2text_jax.auditing.audit import audit
from eeg2text_jax.auditing.beyond_time import BEYOND, NOT_BEYOND, NOT_EXCLUDED, beyond_time, stretches
from eeg2text_jax.auditing.levels import labels_of
from eeg2text_jax.auditing.result import result_text
from eeg2text_jax.auditing.verdict import Verdict
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
    assert dataclasses.replace(caught, verdict=Verdict.BELOW_MARGIN).exit_status == 3
    assert dataclasses.replace(caught, verdict=Verdict.EQUIVALENT).verdict_text == "equivalent to control"


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
    assert "these controls keep less than a clock could know" in found.time.sentence


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


ABOVE, NOT_ABOVE = figures(1.5, 0.01, (0.6, 2.4)), figures(0.1, 0.4, (-0.5, 0.7))
BARRED = Verdict.NOT_JUDGEABLE


def time_of(*controls):
    """The status by controls: what was fed, the training condition, the verdict, the contrasts in all strata."""
    conditions = [types.SimpleNamespace(name="eeg", rows=[row(0)])]
    comparisons = []
    for fed, trained, verdict, contrasts in controls:
        rows = [row(0, eval_condition=fed, train_condition=trained)]
        conditions.append(types.SimpleNamespace(name=fed, rows=rows))
        derived = dict(enumerate(contrasts[1:]))
        about = {"primary": contrasts[0], "derived": derived, "contrasts": contrasts}
        comparisons.append(types.SimpleNamespace(control=fed, verdict=verdict, **about))
    aligned = types.SimpleNamespace(eeg=conditions[0], conditions=conditions)
    return beyond_time(aligned, comparisons).status


@pytest.mark.parametrize(
    ("controls", "status"),
    [
        ([("nearest_in_time", "eeg", Verdict.USES_EEG, [ABOVE])], BEYOND),
        ([("nearest_in_time", "eeg", Verdict.USES_EEG, [ABOVE, ABOVE])], BEYOND),
        ([("nearest_in_time", "eeg", Verdict.UNDERPOWERED, [ABOVE, NOT_ABOVE])], NOT_BEYOND),
        (
            [
                ("nearest_in_time", "eeg", Verdict.USES_EEG, [ABOVE]),
                ("neighbor", "eeg", Verdict.UNDERPOWERED, [NOT_ABOVE]),
            ],
            NOT_BEYOND,
        ),
        # A control that cannot be judged neither beats EEG nor is beaten.
        ([("nearest_in_time", "eeg", BARRED, [ABOVE]), ("neighbor", "eeg", Verdict.USES_EEG, [ABOVE])], NOT_EXCLUDED),
        ([("nearest_in_time", "eeg", Verdict.USES_EEG, [ABOVE]), ("neighbor", "eeg", BARRED, [NOT_ABOVE])], BEYOND),
        # A model trained on EEG cannot read the clock. A file may not say on what its models were trained.
        ([("clock", "eeg", Verdict.USES_EEG, [ABOVE])], NOT_EXCLUDED),
        ([("clock", "clock", Verdict.USES_EEG, [ABOVE])], BEYOND),
        ([("clock", "unknown", Verdict.USES_EEG, [ABOVE])], BEYOND),
    ],
)
def test_content_goes_beyond_time_where_all_controls_of_time_are_beaten_and_one_knows_all(controls, status):
    assert time_of(*controls) == status


def strata_of(readings, groups, size=6):
    """Strata of sentences that were read as (sentence, recording), in this order, one a second."""
    rows = [
        row(s, sample_id=f"{k}", subject=name, recording=name, onset=None if name == "?" else float(k))
        for k, (s, name) in enumerate(readings)
    ]
    rows = [dataclasses.replace(r, recording=None) if r.recording == "?" else r for r in rows]
    place = {r.sentence_id: k for k, r in enumerate({r.sentence_id: r for r in rows}.values())}
    sentence = np.array([place[r.sentence_id] for r in rows])
    aligned = types.SimpleNamespace(eeg=types.SimpleNamespace(rows=rows, sentence=sentence))
    found = stretches(aligned, np.array(groups), size)
    return None if found is None else found.tolist()


def test_a_stretch_has_some_sentences_that_the_same_readers_read_after_each_other():
    assert strata_of([(s, "A") for s in range(8)], [0] * 8, size=3) == [0, 0, 0, 1, 1, 1, 2, 2]
    assert strata_of([(s, "AB"[s > 3]) for s in range(8)], [0] * 8) == [0] * 4 + [1] * 4
    assert strata_of([(s, "A?"[s > 6]) for s in range(8)], [0] * 8) is None


def test_a_sentence_that_was_read_again_in_another_run_of_its_group_is_in_no_stretch_with_others():
    """Sentence 1 is of another group; 0 is read before and after it, and then 3 is."""
    found = strata_of([(1, "A"), (0, "A"), (1, "A"), (0, "A"), (3, "A")], [1, 0, 0])
    assert len(set(found)) == 3
