"""Controls of time: what a clock is fed, what it copies, and whose recording stands in for a neighbor's."""

import dataclasses

import numpy as np
import pytest
from reading_grids import data_of

from eeg2text_jax.conditions.donors import donor_table
from eeg2text_jax.conditions.time_controls import PERIODS, clock_features, nearest_texts, neighbor_table
from eeg2text_jax.data.clock import Clock
from eeg2text_jax.errors import UserError


@pytest.fixture(scope="module")
def data():
    """Two readers of forty sentences in two tasks, one recording each; a sentence every four seconds."""
    rows = [(s, "AB"[k // 20], k % 20, f"text {'xy'[k % 2]} {k}") for s in ("S1", "S2") for k in range(40)]
    found = data_of(rows)
    blank = [np.nan] * 80
    clock = Clock.of({"recording": [r[0] for r in rows], "onset": [4.0 * (k % 40) for k in range(80)],
                      "duration": blank, "order": [-1] * 80})  # fmt: skip
    lengths = np.array([1 + k % 3 for k in range(80)])
    features = np.ones((lengths.sum(), 30), np.float32)
    return dataclasses.replace(found, clock=clock, offsets=np.concatenate([[0], np.cumsum(lengths)]), features=features)


PARTS = [np.r_[0:30, 40:70], np.r_[30:34, 70:74], np.r_[34:40, 74:80]]


def test_the_clock_knows_recording_and_onset_alone(data):
    found = clock_features(data, PARTS[0], 0)
    assert found.shape == (80, 30)
    assert len(np.unique(found[:, :2], axis=0)) == 2, "one-hot of the recording"
    np.testing.assert_array_equal(found[:40, 2:], found[40:, 2:])  # the same onsets
    assert len(np.unique(found[:40, 2:].round(4), axis=0)) == 40
    other = dataclasses.replace(data, sentence=data.sentence[::-1], features=data.features + 1)
    np.testing.assert_array_equal(clock_features(other, PARTS[0], 0), found)
    narrow = dataclasses.replace(data, features=data.features[:, :5])
    assert clock_features(narrow, PARTS[0], 0).shape == (80, 5)


def test_a_clock_that_just_fits_is_not_mixed(data):
    width = 2 + 2 * PERIODS
    just = dataclasses.replace(data, features=np.ones((len(data.features), width), np.float32))
    wide = dataclasses.replace(data, features=np.ones((len(data.features), width + 1), np.float32))
    one, other = (clock_features(given, PARTS[0], 0) for given in (just, wide))
    np.testing.assert_array_equal(one, other[:, :width], strict=True)


def test_what_is_after_training_changes_no_clock_of_training(data):
    onset = data.clock.onset.copy()
    onset[PARTS[2]] += 1000
    later = dataclasses.replace(data, clock=dataclasses.replace(data.clock, onset=onset))
    one, other = (clock_features(given, PARTS[0], 0)[PARTS[0]] for given in (later, data))
    np.testing.assert_array_equal(one, other)


def test_the_neighbor_is_near_of_another_text_and_length(data):
    table = neighbor_table(data, PARTS, donor_table(data, PARTS, 0).donor)
    for part in PARTS:
        for i in part:
            j = table.donor[i]
            assert j in part
            assert data.sentence[i] != data.sentence[j]
            assert data.clock.recording[i] == data.clock.recording[j]
            assert abs(i - j) == 1
    assert "100.0% have one in their recording, a median of 4 s away" in table.note
    assert "0.0% of the pairs are of different groups (task)" in table.note


def test_nearest_in_time_copies_the_last_training_text(data):
    near, note = nearest_texts(data, PARTS[0], PARTS[2])
    assert near.tolist() == [29] * 6 + [69] * 6
    assert "100.0% of the test part" in note
    elsewhere, note = nearest_texts(data, np.arange(40), np.arange(40, 50))
    assert elsewhere.tolist() == list(range(10)), "the same onset in another recording"
    assert "0.0% of the test part" in note


def test_without_time_no_control_of_time(data):
    blind = dataclasses.replace(data, clock=None)
    for make in (lambda: clock_features(blind, PARTS[0], 0), lambda: nearest_texts(blind, PARTS[0], PARTS[2])):
        with pytest.raises(UserError, match="leave the condition out"):
            make()
