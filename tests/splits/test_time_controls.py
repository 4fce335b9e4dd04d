"""Controls of time: what a clock is fed, what it copies, and whose recording stands in for a neighbor's."""

import dataclasses

import numpy as np
import pytest
from reading_grids import data_of
from tiny_run import tiny_settings

from eeg2text_jax.conditions.donors import donor_table, label_rows
from eeg2text_jax.conditions.time_controls import PERIODS, clock_features, nearest_texts, neighbor_table
from eeg2text_jax.data.clock import Clock
from eeg2text_jax.data.text import train_tokenizer
from eeg2text_jax.errors import UserError
from eeg2text_jax.splits.split import Split, readings_of
from eeg2text_jax.study.study import make_samples


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
    for part in (found[:, :2], found[:, 2 : 2 + 2 * PERIODS]):
        assert np.square(part).mean() == pytest.approx(1.0, rel=1e-5)
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
    assert "100.0% of the test samples have a neighbor in their recording, a median of 4 s away" in table.note
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


def without_time(data, rows):
    """The data, where nobody knows when these rows were recorded."""
    recording, onset, order = (getattr(data.clock, name).copy() for name in ("recording", "onset", "order"))
    recording[rows], onset[rows], order[rows] = "", np.nan, -1
    clock = dataclasses.replace(data.clock, recording=recording, onset=onset, order=order)
    return dataclasses.replace(data, clock=clock)


def test_a_clock_has_no_code_of_what_training_did_not_see(data):
    """Neither of a recording without training samples nor of a sample of unknown time."""
    found = clock_features(data, np.arange(30), 0)
    assert (found[:40, 0] == 1).all()
    assert not found[40:, 0].any()
    np.testing.assert_array_equal(found[:40, 1:], found[40:, 1:])
    assert not found[:, 1 + 2 * PERIODS :].any()
    lost, whole = (clock_features(given, PARTS[0], 0) for given in (without_time(data, [5]), data))
    assert not lost[5].any()
    np.testing.assert_array_equal(np.delete(lost, 5, 0), np.delete(whole, 5, 0))


def of_two_lengths(data):
    """One word and nine by turns, and nineteen in row 10."""
    lengths = np.where(np.arange(80) % 2, 9, 1)
    lengths[10] = 19
    features = np.random.default_rng(0).normal(size=(lengths.sum(), 30)).astype(np.float32)
    return dataclasses.replace(data, offsets=np.concatenate([[0], np.cumsum(lengths)]), features=features)


def test_a_neighbor_of_a_like_length_goes_before_a_nearer_one(data):
    """Where none is as long, the nearest is taken; of a recording without another sample, the donor of `shuffled`."""
    data, parts = of_two_lengths(data), [*PARTS[:2], np.r_[34:40, 74]]
    donors = donor_table(data, parts, 0).donor
    before = donors.copy()
    table = neighbor_table(data, parts, donors)
    np.testing.assert_array_equal(donors, before)
    kept = np.setdiff1d(np.concatenate(parts), [10, 74])
    assert (np.abs(table.donor[kept] - kept) == 2).all()
    assert abs(table.donor[10] - 10) == 1
    assert table.donor[74] == donors[74]
    assert "neighbor: 85.7% of the test samples have a neighbor in their recording, a median of 8 s away" in table.note


def test_a_text_of_unknown_time_is_not_copied(data):
    near, _ = nearest_texts(without_time(data, [43]), np.arange(40, 50), np.arange(10))
    assert near.tolist() == [40, 41, 42, 42, *range(44, 50)]


def test_samples_of_a_run_hold_the_tables_of_its_conditions(data):
    """Each table is that of its own function, and means are those of standardized words of the train part."""
    data = of_two_lengths(data)
    asked = ("eeg", "shuffled", "neighbor", "clock", "nearest_in_time", "length_only", "subject_mean")
    config = tiny_settings(seed=3, grid__train_conditions=("eeg", "label_shuffle"), grid__eval_conditions=asked)
    split = Split("file", 0, dict(zip(("train", "dev", "test"), PARTS, strict=True)), readings_of(data).sample_id)
    samples, means = make_samples(config, data, split, train_tokenizer(data.sentence, 300), 1)
    donors, (train, _, test) = donor_table(data, PARTS, 3).donor, PARTS
    nearest = np.full(80, -1)
    nearest[test], _ = nearest_texts(data, train, test)
    expected = {"donors": donors, "neighbors": neighbor_table(data, PARTS, donors).donor, "nearest": nearest,
                "label_rows": label_rows(data, train, 3), "clock": clock_features(data, train, 3)}  # fmt: skip
    for name, table in expected.items():
        np.testing.assert_array_equal(getattr(samples, name), table, err_msg=name)
    words = np.concatenate([data.words(i) for i in train])
    centre, spread = words.mean(0), words.std(0)
    for row, subject in enumerate(("S1", "S2")):
        own = np.concatenate([data.words(i) for i in train if data.subject[i] == subject])
        np.testing.assert_allclose(means[row], (own.mean(0) - centre) / spread, atol=1e-5)
        assert set(samples.subject[data.subject == subject]) == {row}
    np.testing.assert_allclose(means[2], 0, atol=1e-5)
