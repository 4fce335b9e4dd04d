"""The split by time: no two samples of different parts in one recording closer than the gap, texts of their own."""

import dataclasses

import numpy as np
import pytest
from reading_grids import data_of

from eeg2text_jax.data.clock import Clock
from eeg2text_jax.errors import UserError
from eeg2text_jax.splits.certificate import certify, certify_data, split_report
from eeg2text_jax.splits.methods import make_folds, make_split
from eeg2text_jax.splits.neighbors import WITHIN, high_neighbors, neighbor_accuracy, one_block
from eeg2text_jax.splits.split import PARTS, normalize, readings_of
from eeg2text_jax.splits.stretches import share_segments, too_near

RATIO = (0.6, 0.2, 0.2)


def timed(seed, order="same", texts=60, subjects=3, seconds=True):
    """Readers with a run for each half of the texts; onsets irregular, some samples missing, some overlapping."""
    rng = np.random.default_rng(seed)
    rows, recording, onset, duration = [], [], [], []
    for subject in range(subjects):
        for run, own in enumerate(np.array_split(np.arange(texts), 2)):
            own = rng.permutation(own) if order == "random" else own
            begin = 0.0
            for index in own[rng.random(len(own)) > 0.05]:
                rows.append((f"S{subject}", "T", int(index), f"text {'abc'[index % 3]} {index}"))
                recording.append(f"S{subject}/{run}")
                onset.append(begin)
                duration.append(rng.uniform(1, 6))
                begin += rng.uniform(2, 9)
    data, blank = data_of(rows), [np.nan] * len(rows)
    columns = {"recording": recording, "onset": onset if seconds else blank, "duration": duration if seconds else blank}
    clock = Clock.of({**columns, "order": [-1 if seconds else int(o * 1000) for o in onset]})
    return dataclasses.replace(data, clock=clock)


def least_distance(data, split):
    """The smallest time between samples of different parts of a recording, by brute force."""
    part = {int(i): name for name in PARTS for i in split.parts[name]}
    least = np.inf
    for i, a in part.items():
        for j, b in part.items():
            if i < j and a != b and data.clock.recording[i] == data.clock.recording[j]:
                (begin, end), (other, stop) = data.clock.spans[i], data.clock.spans[j]
                least = min(least, other - end if begin < other else begin - stop)
    return least


def own_texts(data, split):
    texts = [{normalize(str(data.sentence[i])) for i in split.parts[name]} for name in PARTS]
    return not (texts[0] & texts[1] or texts[0] & texts[2] or texts[1] & texts[2])


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("order", ["same", "random"])
def test_no_two_samples_of_different_parts_are_closer_than_the_gap(seed, order):
    data, gap = timed(seed, order), (0.0, 3.0, 10.0, 20.0)[seed % 4]
    split = make_split(data, "blocks", RATIO, seed, gap=gap)
    assert least_distance(data, split) >= gap
    assert own_texts(data, split)
    for fold in make_folds(data, "blocks", 3, RATIO, seed, gap=gap):
        assert least_distance(data, fold) >= gap
        assert own_texts(data, fold)


@pytest.mark.parametrize("gap", [0, 1, 3])
def test_spans_too_near_are_those_of_a_brute_force(gap):
    rng = np.random.default_rng(gap)
    for _ in range(50):
        one, other = (np.cumsum(rng.integers([0, 1], 9, (rng.integers(1, 6), 2)), axis=1) for _ in range(2))
        apart = np.maximum(one[:, None, 0] - other[None, :, 1], other[None, :, 0] - one[:, None, 1]).min(axis=1)
        # Spans that touch are apart where no gap is asked for.
        np.testing.assert_array_equal(too_near(one, other, gap), (apart < gap) | (apart < 0))
    assert not too_near(one, other[:0], gap).any()


def test_windows_share_segments_as_sets_do():
    rng = np.random.default_rng(0)
    for _ in range(50):
        one, other = (np.stack([rng.integers(0, 30, n), rng.integers(1, 5, n)], axis=1) for n in rng.integers(1, 6, 2))
        taken = {s for first, length in other.tolist() for s in range(first, first + length)}
        expected = [bool(taken & set(range(first, first + length))) for first, length in one.tolist()]
        np.testing.assert_array_equal(share_segments(one, other), expected)


def test_the_same_order_costs_little_and_folds_test_every_text():
    data = timed(0)
    assert make_split(data, "blocks", RATIO, 0).kept > 0.85 * len(data)
    tested = np.concatenate([fold.parts["test"] for fold in make_folds(data, "blocks", 4, RATIO, 0)])
    assert len(set(tested.tolist())) == len(tested) > 0.85 * len(data)


def test_subjects_of_their_own_on_request():
    data = timed(1)
    split = make_split(data, "blocks", RATIO, 0, unique_subjects=True)
    readers = [set(data.subject[split.parts[name]]) for name in PARTS]
    assert not readers[0] & readers[1] | readers[0] & readers[2] | readers[1] & readers[2]
    with pytest.raises(UserError, match="expected 3 or more"):
        make_split(timed(1, subjects=2), "blocks", RATIO, 0, unique_subjects=True)


def test_order_alone_counts_places():
    data = timed(2, seconds=False)
    split = make_split(data, "blocks", RATIO, 0, gap=5000)
    assert least_distance(data, split) >= 5000
    assert "samples" in split.method


def test_without_time_it_says_so():
    data = dataclasses.replace(timed(0), clock=None)
    with pytest.raises(UserError, match="split 'blocks' needs to know when samples were recorded"):
        make_split(data, "blocks", RATIO, 0)


@pytest.mark.parametrize("seconds", [True, False])
def test_neighbors_in_the_certificate_are_those_of_a_brute_force(seconds):
    data = timed(3, seconds=seconds)
    split = make_split(data, "c", RATIO, 0)
    found = certify_data(data, split)["time"]
    assert found["unit"] == ("s" if seconds else "samples")
    spans, recording = data.clock.spans, data.clock.recording
    for judged in ("dev", "test"):
        nearest = []
        for i in split.parts[judged]:
            others = [j for j in split.parts["train"] if recording[j] == recording[i]]
            apart = [max(spans[j][0] - spans[i][1], spans[i][0] - spans[j][1], 0) for j in others]
            nearest.append(min(apart, default=np.inf))
        for limit in WITHIN[found["unit"]]:
            assert found["neighbors"][judged][str(limit)] == pytest.approx(np.mean(np.array(nearest) <= limit))


def test_a_block_design_is_named_and_told_by_time():
    data = timed(4)
    label = np.array([f"class {index // 5}" for index in data.sentence_index], object)
    split = make_split(data, "c", RATIO, 0)
    certificate = certify_data(data, split, groups={"class": label})
    told = certificate["time"]["groups"]["class"]["test"]
    assert told["told"] > 0.6 > 0.2 > told["chance"]
    assert told["p"] < 0.01
    report = split_report(certificate, readings_of(data))
    assert "no split of one recording can separate class from time" in report
    assert f"tells the class of {told['told']:.1%} of {told['samples']} test samples" in report
    rng = np.random.default_rng(0)
    assert one_block(readings_of(data), rng.permutation(label)) < 0.5


def test_groups_in_random_order_are_told_by_chance():
    rng = np.random.default_rng(0)
    told = [neighbor_accuracy(rng.integers(0, 4, 90).astype(str), np.arange(30), rng.integers(30, 90, 30))["p"] <= 0.05
            for _ in range(100)]  # fmt: skip
    assert np.sum(told) <= 12


def test_without_time_the_report_says_so_once():
    data = dataclasses.replace(timed(0), clock=None)
    readings, split = readings_of(data), make_split(data, "c", RATIO, 0)
    certificate = certify(readings, split)
    assert "time" not in certificate
    assert split_report(certificate, readings).count("when samples were recorded is not known") == 1


def test_a_training_sample_just_before_most_test_samples_is_a_warning():
    data = timed(4)
    time = certify_data(data, make_split(data, "c", RATIO, 0))["time"]
    limit, share = list(time["neighbors"]["test"].items())[1]
    assert share >= 0.5
    (said,) = high_neighbors({**time, "groups": {}})
    begins = f"{share:.0%} of the test samples have a training sample of the same recording within {limit} s"
    assert said.startswith(begins)
    time["neighbors"]["test"][limit] = 0.49
    assert high_neighbors({**time, "groups": {}}) == []
    assert "task" not in time["groups"], "one task is no group"
