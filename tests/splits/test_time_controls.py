"""Controls of time: what a clock is fed, what it copies, and whose recording stands in for a neighbor's."""

import dataclasses
import re

import numpy as np
import pytest
from reading_grids import clock_of, data_of, with_clock
from tiny_run import tiny_settings

from eeg2text_jax.base.errors import UserError
from eeg2text_jax.data.prompt import make_prompt
from eeg2text_jax.data.splits.methods import make_split
from eeg2text_jax.data.splits.neighbors import time_leakage
from eeg2text_jax.data.splits.split import Split, readings_of
from eeg2text_jax.data.text import train_tokenizer
from eeg2text_jax.training.conditions._donors import (
    PERIODS,
    clock_features,
    clock_note,
    constant_arrays,
    donor_table,
    label_rows,
    nearest_texts,
    neighbor_table,
    same_place_texts,
)
from eeg2text_jax.training.study import make_samples


@pytest.fixture(scope="module")
def data():
    """Two readers of forty sentences in two tasks, one recording each; a sentence every four seconds."""
    rows = [(s, "AB"[k // 20], k % 20, f"text {'xy'[k % 2]} {k}") for s in ("S1", "S2") for k in range(40)]
    found = data_of(rows, clock=clock_of([r[0] for r in rows], onset=[4.0 * (k % 40) for k in range(80)]))
    lengths = np.array([1 + k % 3 for k in range(80)])
    features = np.ones((lengths.sum(), 30), np.float32)
    return dataclasses.replace(found, offsets=np.concatenate([[0], np.cumsum(lengths)]), features=features)


PARTS = [np.r_[0:30, 40:70], np.r_[30:34, 70:74], np.r_[34:40, 74:80]]


def test_the_clock_knows_recording_and_onset_alone(data):
    found = clock_features(data, PARTS[0], 0)
    assert found.shape == (80, 30)
    assert len(np.unique(found[:, :2], axis=0)) == 2, "one-hot of the recording"
    shared, own = found[:, 2 : 2 + 2 * PERIODS], found[:, 2 + 2 * PERIODS :]
    np.testing.assert_array_equal(shared[:40], shared[40:])  # the same onsets
    assert len(np.unique(shared[:40].round(4), axis=0)) == 40
    for part in (found[:, :2], shared):
        assert np.square(part).mean() == pytest.approx(1.0, rel=1e-5)
    assert np.square(own).mean() == pytest.approx(1.0, rel=0.2)
    assert (np.abs(own[:40] - own[40:]).max(axis=1) > 0.5).all(), "the same onset of two recordings"
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
    one, other = (clock_features(given, PARTS[0], 0)[PARTS[0]] for given in (with_clock(data, onset=onset), data))
    np.testing.assert_array_equal(one, other)


def test_the_neighbor_is_near_of_another_text_and_length(data):
    table = neighbor_table(data, PARTS, donor_table(data, PARTS, 0).donor)
    for part in PARTS:
        for i in part:
            j = table.donor[i]
            assert data.sentence[i] != data.sentence[j]
            assert data.clock.recording[i] == data.clock.recording[j]
            assert abs(i - j) == 1
    train, dev, test = PARTS
    assert set(table.donor[train]) <= {*train}
    assert set(table.donor[dev]) - {*dev} == {29, 69}, "dev may be beside train, never beside test"
    assert set(table.donor[test]) - {*test} == {33, 73}
    assert "100.0% of the test samples have a neighbor in their recording, a median of 4 s away" in table.note
    assert "0.0% of the pairs are of different groups (task)" in table.note


def test_nearest_in_time_copies_the_last_training_text(data):
    near, note = nearest_texts(data, PARTS[0], PARTS[2])
    assert near.tolist() == [29] * 6 + [69] * 6
    assert "100.0% of the test part" in note
    elsewhere, note = nearest_texts(data, np.arange(40), np.arange(40, 50))
    assert elsewhere.tolist() == list(range(10)), "the same onset in another recording"
    assert "0.0% of the test part" in note


def days(onsets="regular"):
    """Two readers of ten texts in the same order in each of three sessions; the second reader has a lead-in."""
    rows = [(s, "A", k, f"text {k}") for s in ("S1", "S2") for _ in range(3) for k in range(10)]
    recording = [f"{rows[10 * r][0]} ses-{r % 3}" for r in range(6) for _ in range(10)]
    onset = [700.0 * (r > 2) + (4 * k if onsets == "regular" else k**2 + (90 if r % 3 == 2 and k > 4 else 0))
             for r in range(6) for k in range(10)]  # fmt: skip
    found = data_of(rows, clock=clock_of(recording, onset=onset))
    found = dataclasses.replace(found, features=np.ones((60, 90), np.float32))
    return found, np.flatnonzero([not name.endswith("2") for name in recording])


def test_the_text_of_the_same_place_in_another_recording_is_copied():
    """In a day held out, `nearest_in_time` copies it, too; of the forms of place, the one that tells most counts."""
    found, train = days("with a break on the third day")
    test = np.setdiff1d(np.arange(60), train)
    for copied, _ in (same_place_texts(found, train, test), nearest_texts(found, train, test)):
        assert (found.sentence[copied] == found.sentence[test]).all()
        assert np.isin(copied, train).all()
    assert "(by index) of another recording is the text of 100.0% of the test part" in same_place_texts(
        found, train, test
    )[1]  # fmt: skip
    here, _ = same_place_texts(found, train, train)
    assert (found.clock.recording[here] != found.clock.recording[train]).all()


def test_a_neighbor_at_a_place_of_another_recording_has_another_text():
    found, train = days()
    alone = found.clock.recording.copy()
    alone[20:30] = [f"alone {k}" for k in range(10)]
    found = with_clock(found, recording=alone)
    parts = [train, np.array([50, 51]), np.arange(20, 30)]
    table = neighbor_table(found, parts, donor_table(found, parts, 0).donor)
    assert (found.sentence[table.donor[20:30]] != found.sentence[20:30]).all()
    assert (alone[table.donor[20:30]] != alone[20:30]).all()


def test_the_clock_is_fed_index_and_share_if_they_are_not_the_time():
    regular, train = days()
    other, _ = days("with a break on the third day")
    found = [clock_features(data, train, 0) for data in (regular, other)]
    subjects = slice(4 + 2 * PERIODS, 6 + 2 * PERIODS)  # after four recordings of the train part
    for fed in found:
        assert (np.unique(fed[:, subjects], axis=0) > 0).sum() == 2
    index = slice(6 + 2 * PERIODS, 6 + 4 * PERIODS)
    assert len(np.unique(found[1][:, index].round(4), axis=0)) == 10, "the same in all recordings, breaks or not"
    assert not np.isclose(found[0][:, index], found[1][:, index]).all()


def test_without_time_no_control_of_time(data):
    blind = dataclasses.replace(data, clock=None)
    for make in (lambda: clock_features(blind, PARTS[0], 0), lambda: nearest_texts(blind, PARTS[0], PARTS[2])):
        with pytest.raises(UserError, match="leave the condition out"):
            make()


def without_time(data, rows):
    """The data, where nobody knows when these rows were recorded."""
    recording, onset, order = (getattr(data.clock, name).copy() for name in ("recording", "onset", "order"))
    recording[rows], onset[rows], order[rows] = "", np.nan, -1
    return with_clock(data, recording=recording, onset=onset, order=order)


def test_a_clock_has_no_code_of_what_training_did_not_see(data):
    """Neither of a recording without training samples nor of a sample of unknown time."""
    found = clock_features(data, np.arange(30), 0)
    assert (found[:40, 0] == 1).all()
    assert not found[40:, 0].any()
    shared = slice(1, 1 + 2 * PERIODS)
    np.testing.assert_array_equal(found[:40, shared], found[40:, shared])
    assert found[:40, 1 + 2 * PERIODS :].any(axis=0).all()
    assert not found[40:, 1 + 2 * PERIODS :].any()
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
    """Where none is as long, the nearest is taken; of a recording without another sample, the same place elsewhere."""
    data, parts = of_two_lengths(data), [*PARTS[:2], np.r_[34:40, 74]]
    donors = donor_table(data, parts, 0).donor
    before = donors.copy()
    table = neighbor_table(data, parts, donors)
    np.testing.assert_array_equal(donors, before)
    kept = np.setdiff1d(np.concatenate(parts), [10])
    assert (np.abs(table.donor[kept] - kept) == 2).all()
    assert abs(table.donor[10] - 10) == 1
    assert "100.0% of the test samples have a neighbor in their recording, a median of 8 s away" in table.note
    lonely = with_clock(data, recording=data.clock.recording.copy())
    lonely.clock.recording[74] = "alone"
    table = neighbor_table(lonely, parts, donors)
    assert table.donor[74] == 20, "the first sample of the first recording of the task"
    apart = dataclasses.replace(lonely, task=np.where(np.arange(80) == 74, "another task", data.task))
    assert neighbor_table(apart, parts, donors).donor[74] == donors[74]
    assert "neighbor: 85.7% of the test samples have a neighbor in their recording, a median of 8 s away" in table.note


def test_a_neighbor_is_the_nearest_sample_of_any_part(data):
    """In a random split, of samples that are in no part, too; of equal lengths, the next sentence is 4 s away."""
    data = dataclasses.replace(data, offsets=np.arange(81), features=data.features[:80])
    test = np.arange(2, 80, 9)
    parts = [np.setdiff1d(np.arange(0, 80, 3), test), np.setdiff1d(np.arange(1, 80, 12), test), test]
    table = neighbor_table(data, parts, donor_table(data, parts, 0).donor)
    assert (np.abs(table.donor[test] - test) == 1).all()
    assert "a median of 4 s away" in table.note
    train, dev, test = parts = [np.arange(0, 80, 4), np.arange(2, 80, 4), np.arange(1, 80, 2)]  # test is beside all
    found = neighbor_table(data, parts, donor_table(data, parts, 0).donor).donor
    assert np.isin(found[train], train).all(), "what is trained on"
    assert not np.isin(found[dev], test).any(), "what chooses the checkpoint"


def test_a_neighbor_is_never_another_reading_of_the_same_sentence(data):
    """Each sentence is read twice in a row, with other capitals the second time."""
    twice = [f"text {k // 2}" if k % 2 else f"Text {k // 2}" for k in range(80)]
    data = dataclasses.replace(data, sentence=np.array(twice, object))
    table = neighbor_table(data, PARTS, donor_table(data, PARTS, 0).donor)
    rows = np.concatenate(PARTS)
    assert (table.donor[rows] // 2 != rows // 2).all()
    assert (data.clock.recording[table.donor[rows]] == data.clock.recording[rows]).all()
    assert (np.abs(table.donor[rows] - rows) <= 2).all()


def test_a_linear_model_tells_blocks_in_another_order_in_each_recording():
    """Six groups in blocks, three recordings with orders of their own; every fourth sentence is not trained on."""
    rows = [(f"S{s}", "T", k, f"text {k}") for s in range(3) for k in range(120)]
    data = data_of(rows, clock=clock_of([r[0] for r in rows], onset=[4.0 * (k % 120) for k in range(360)]))
    data = dataclasses.replace(data, features=np.ones((360, 60), np.float32))
    rng = np.random.default_rng(0)
    group = np.concatenate([np.repeat(rng.permutation(6), 20) for _ in range(3)])
    train = np.flatnonzero(np.arange(360) % 4)
    found = clock_features(data, train, 0).astype(float)
    weights = np.linalg.solve(found[train].T @ found[train] + 3 * np.eye(60), found[train].T @ np.eye(6)[group[train]])
    told = (found @ weights).argmax(axis=1) == group
    assert told[::4].mean() > 0.85


def counted_from(data, begins):
    """The data, where the recorder of each recording began at another time."""
    _, label = np.unique(data.clock.recording.astype(str), return_inverse=True)
    return with_clock(data, onset=data.clock.onset + np.array(begins)[label])


@pytest.mark.parametrize("begins", [(36000.0, 41234.5), (1.7e9, 1.7e9 + 86400.25), (-5.0, 1.9e9)])
def test_time_is_counted_from_the_first_sample_of_each_recording(data, begins):
    """Onsets from 0, in seconds of a day, as Unix time: the same clock, neighbors, copied texts, split and figures."""
    moved = counted_from(data, begins)
    one, other = (clock_features(given, PARTS[0], 0) for given in (data, moved))
    np.testing.assert_allclose(other, one, atol=1e-3)
    assert clock_note(moved, PARTS[0], other) == clock_note(data, PARTS[0], one)
    elsewhere, _ = nearest_texts(moved, np.arange(40), np.arange(40, 50))
    assert elsewhere.tolist() == list(range(10))
    lent = donor_table(data, PARTS, 0).donor
    np.testing.assert_array_equal(neighbor_table(moved, PARTS, lent).donor, neighbor_table(data, PARTS, lent).donor)
    splits = [make_split(given, "blocks", (0.6, 0.2, 0.2), 0, "", 5.0) for given in (data, moved)]
    assert splits[0].digest() == splits[1].digest()
    said = [time_leakage(readings_of(given), splits[0].parts, {}) for given in (data, moved)]
    assert said[0]["neighbors"] == said[1]["neighbors"]


@pytest.mark.parametrize(("row", "onset"), [(7, 5e7), (45, 1.7e9), (0, -1.7e9), (12, 2e4)])
def test_one_wrong_onset_spoils_no_clock(data, row, onset):
    """Whether it is before or after the others: the clock tells the times of all other samples as before."""
    onsets = data.clock.onset.copy()
    onsets[row] = onset
    wrong = with_clock(data, onset=onsets)
    found = clock_features(wrong, PARTS[0], 0)
    assert "a linear fit of its input tells the time to within" in clock_note(wrong, PARTS[0], found)
    for own in (np.arange(40), np.arange(40, 80)):
        own = own[own != row]
        apart = np.sqrt(np.square(np.diff(found[own], axis=0)).sum(1))
        assert apart.min() > 0.5, "samples that follow each other have other inputs"
    train = PARTS[0][PARTS[0] != row]
    longest = found[train][:, 2]  # cosine of the longest period
    assert np.ptp(longest) > 0.25, "in the course of a recording, the slowest wave changes, too"


def test_a_clock_that_tells_no_time_is_refused(data):
    """As the input is where times are taken as they are from 1970 on; it still tells the recording."""
    known = clock_features(data, PARTS[0], 0)
    note = clock_note(data, PARTS[0], known)
    assert re.search(r"tells the time to within \d\.\d% of a recording's length \(median\)", note)
    assert "the recording of 100.0% of the samples, the task of" in note
    blind = known.copy()
    blind[:, 2:] = np.cos(2 * np.pi * (1.7e9 + data.clock.onset[:, None]) / (3.4e9 / 2.0 ** np.arange(28)))
    blind[:, 12:] = 0
    with pytest.raises(UserError, match="an arm trained on it would be no control of time"):
        clock_note(data, PARTS[0], blind)
    with pytest.raises(UserError, match="cannot be fed"):
        clock_note(without_time(data, PARTS[0]), PARTS[0], known)


@pytest.mark.parametrize("width", [1, 2, 3, 8, 21])
def test_a_narrow_clock_tells_the_time_first(data, width):
    narrow = dataclasses.replace(data, features=np.ones((len(data.features), width), np.float32))
    found = clock_features(narrow, PARTS[0], 0)
    assert found.shape == (80, width)
    assert float(re.search(r"within (\S+)%", clock_note(narrow, PARTS[0], found))[1]) < 5


def test_a_text_of_unknown_time_is_not_copied(data):
    near, _ = nearest_texts(without_time(data, [43]), np.arange(40, 50), np.arange(10))
    assert near.tolist() == [40, 41, 42, 42, *range(44, 50)]


def split_of(data):
    return Split("file", 0, dict(zip(("train", "dev", "test"), PARTS, strict=True)), readings_of(data).sample_id)


def test_samples_of_a_run_hold_the_tables_of_its_conditions(data):
    """Each table is that of its own function, and means are those of standardized words of the train part."""
    data = of_two_lengths(data)
    asked = ("eeg", "shuffled", "neighbor", "clock", "nearest_in_time", "same_place", "length_only", "subject_mean")
    config = tiny_settings(seed=3, grid__train_conditions=("eeg", "label_shuffle"), grid__eval_conditions=asked)
    samples = make_samples(config, data, split_of(data), train_tokenizer(data.sentence, 300), 1)
    donors, (train, _, test) = donor_table(data, PARTS, 3).donor, PARTS
    for name, choose in (("nearest_in_time", nearest_texts), ("same_place", same_place_texts)):
        copied = np.full(80, -1)
        copied[test], _ = choose(data, train, test)
        np.testing.assert_array_equal(samples.copies[name], copied, err_msg=name)
    expected = {"donors": donors, "neighbors": neighbor_table(data, PARTS, donors).donor,
                "label_rows": label_rows(data, train, 3), "clock": clock_features(data, train, 3)}  # fmt: skip
    for name, table in expected.items():
        np.testing.assert_array_equal(getattr(samples, name), table, err_msg=name)
    words = np.concatenate([data.words(i) for i in train])
    centre, spread = words.mean(0), words.std(0)
    means = constant_arrays(config.grid.conditions, samples, train, 3)["means"]
    for row, subject in enumerate(("S1", "S2")):
        own = np.concatenate([data.words(i) for i in train if data.subject[i] == subject])
        np.testing.assert_allclose(means[row], (own.mean(0) - centre) / spread, atol=1e-5)
        assert set(samples.subject[data.subject == subject]) == {row}
    np.testing.assert_allclose(means[2], 0, atol=1e-5)


def test_the_prompt_of_a_sample_names_its_own_subject_and_task(data):
    config = tiny_settings(grid__eval_conditions=("eeg",))
    config = dataclasses.replace(config, text=dataclasses.replace(config.text, template="{subject} in {task} <eeg>"))
    tokenizer = train_tokenizer([*data.sentence, "S1 S2 in A B"], 300)
    samples = make_samples(config, data, split_of(data), tokenizer, 1, alone=True)
    before, after = samples.prompts
    for i in range(len(data)):
        own = make_prompt(tokenizer, f"{data.subject[i]} in {data.task[i]} <eeg>", chat=False)
        assert (before[i][before[i] >= 0].tolist(), after[i].tolist()) == (list(own.before), list(own.after))
    assert len({tuple(row) for row in before.tolist()}) == 4
