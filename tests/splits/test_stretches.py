"""The split by time: no two samples of different parts in one recording closer than the gap, texts of their own."""

import dataclasses

import numpy as np
import pytest
from reading_grids import are_apart, clock_of, data_of, with_clock

from eeg2text_jax.base.errors import UserError
from eeg2text_jax.data.splits.certificate import certify, certify_data, split_report
from eeg2text_jax.data.splits.methods import (
    DEV,
    LEFT_OUT,
    TEST,
    TRAIN,
    keep_one_part_per_text,
    make_folds,
    make_split,
    places,
    share_segments,
    split_of,
    too_near,
)
from eeg2text_jax.data.splits.neighbors import (
    WITHIN,
    high_neighbors,
    neighbor_accuracy,
    one_block,
    time_leakage,
    time_lines,
)
from eeg2text_jax.data.splits.split import PARTS, normalize, readings_of

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
    columns = {"onset": onset, "duration": duration} if seconds else {"order": [int(o * 1000) for o in onset]}
    return data_of(rows, clock=clock_of(recording, **columns))


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
    return are_apart(np.array([normalize(text) for text in data.sentence]), split)


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


def test_subjects_of_their_own_on_request():
    """And sessions: each reader has two runs, here of a session each."""
    data = timed(1, texts=90, subjects=12)
    recording = np.array([f"ses-{name}" for name in data.clock.recording], object)
    data = with_clock(data, recording=recording)
    for asked in ({"unique_subjects"}, {"unique_sessions"}, {"unique_subjects", "unique_sessions"}):
        split = make_split(data, "blocks", (0.4, 0.3, 0.3), 1, **dict.fromkeys(asked, True))
        units = {"unique_subjects": data.subject, "unique_sessions": recording}
        shared = {option: set.intersection(*({*units[option][split.parts[name]]} for name in ("train", "test")))
                  for option in units}  # fmt: skip
        assert not any(shared[option] for option in asked)
        assert own_texts(data, split)
    with pytest.raises(UserError, match="expected 3 or more"):
        make_split(timed(1, subjects=2), "blocks", RATIO, 0, unique_subjects=True)


def test_order_alone_counts_places():
    data = timed(2, seconds=False)
    split = make_split(data, "blocks", RATIO, 0, gap=5000)
    assert least_distance(data, split) >= 5000
    assert "samples" in split.method


@pytest.mark.parametrize("seconds", [True, False])
def test_neighbors_in_the_certificate_are_those_of_a_brute_force(seconds):
    data = timed(3, seconds=seconds)
    split, label = make_split(data, "c", (0.5, 0.2, 0.3), 0), np.array([f"class {i // 4}" for i in range(171)], object)
    label = label[data.sentence_index]
    found = certify_data(data, split, groups={"class": label})["time"]
    assert found["unit"] == ("s" if seconds else "samples")
    spans, recording = data.clock.spans, data.clock.recording
    for judged in ("dev", "test"):
        nearest, told = [], []
        for i in split.parts[judged]:
            others = [j for j in split.parts["train"] if recording[j] == recording[i]]
            apart = {j: max(spans[j][0] - spans[i][1], spans[i][0] - spans[j][1], 0) for j in others}
            best = min(others, key=lambda j: (apart[j], abs(spans[j][0] - spans[i][0])))
            nearest.append(apart[best])
            told.append(label[best] == label[i])
        assert found["groups"]["class"][judged]["samples"] == len(told)
        assert found["groups"]["class"][judged]["told"] == pytest.approx(np.mean(told))
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


def test_without_time_there_are_no_blocks_and_the_report_says_so_once():
    data = dataclasses.replace(timed(0), clock=None)
    with pytest.raises(UserError, match="split 'blocks' needs to know when samples were recorded"):
        make_split(data, "blocks", RATIO, 0)
    readings, split = readings_of(data), make_split(data, "c", RATIO, 0)
    certificate = certify(readings, split)
    assert "time" not in certificate
    assert split_report(certificate, readings).count("when samples were recorded is not known") == 1


def test_a_training_sample_just_before_most_test_samples_is_a_warning():
    data = timed(4)
    time = certify_data(data, make_split(data, "c", RATIO, 0))["time"]
    limit, share = list(time["neighbors"]["test"].items())[1]
    assert share >= 0.5
    (said,) = high_neighbors({**time, "groups": {}, "places": {}})
    begins = f"{share:.0%} of the test samples have a training sample of the same recording within {limit} s"
    assert said.startswith(begins)
    time["neighbors"]["test"][limit] = 0.49
    assert high_neighbors({**time, "groups": {}, "places": {}}) == []
    assert "task" not in time["groups"], "one task is no group"


def in_order(n, subjects=("S1",)):
    """Readers of `n` texts in one order, without onsets."""
    return data_of([(s, "T", k, f"text {k}") for s in subjects for k in range(n)])


@pytest.mark.parametrize("seed", range(6))
def test_dev_and_test_are_each_one_stretch_of_their_share_in_each_task(seed):
    data = data_of([(s, t, k, f"{t} {k}") for s in ("S1", "S2") for t in "TU" for k in range(60)])
    split, begins = make_split(data, "blocks", (0.6, 0.15, 0.25), seed), []
    assert split.kept > 0.95 * len(data)
    for name, texts in (("dev", 9), ("test", 15)):
        for task in "TU":
            own = [data.sentence_index[[i for i in split.parts[name] if (data.subject[i], data.task[i]) == (s, task)]]
                   for s in ("S1", "S2")]  # fmt: skip
            assert own[0].tolist() == own[1].tolist()
            assert len(own[0]) in (texts - 1, texts)
            assert np.ptp(own[0]) == len(own[0]) - 1
            begins.append(int(own[0][0]))
    assert begins[::2] != begins[1::2], "each task has stretches of its own"


def test_stretches_lie_anywhere_in_a_recording():
    data = in_order(60)
    held_out = [{*np.concatenate([split.parts["dev"], split.parts["test"]]).tolist()} for split in
                (make_split(data, "blocks", (0.7, 0.1, 0.2), seed) for seed in range(40))]  # fmt: skip
    assert min(map(min, held_out)) <= 2
    assert max(map(max, held_out)) >= 57


def test_a_part_has_no_more_than_its_share_of_texts_in_any_order():
    """In random orders, stretches of all readers together have nearly all texts."""
    data = timed(5, "random", texts=80, subjects=6)
    split = make_split(data, "blocks", (0.6, 0.15, 0.25), 0)
    texts = [len({normalize(str(data.sentence[i])) for i in split.parts[name]}) for name in PARTS]
    assert texts[1:] <= [12, 20]
    assert texts[1] >= 8
    assert 15 <= texts[2] <= 20
    assert texts[0] >= 44


def test_the_folds_of_one_order_lose_hardly_a_sample():
    """Of 60 texts each fold tests 15, and dev has a quarter of the others, those after test."""
    for k, split in enumerate(make_folds(in_order(60), "blocks", 4, (0.6, 0.2, 0.2), 0)):
        sizes = [len(split.parts[name]) for name in PARTS]
        begin = 15 * (k + 1) % 60
        assert split.parts["test"].tolist() == list(range(15 * k, 15 * k + 15))
        assert {*split.parts["dev"].tolist()} <= {*range(begin, begin + 12)}
        assert sizes[2] == 15
        assert sizes[1] in (11, 12)
        assert sum(sizes) >= 59


def test_samples_of_unknown_time_are_in_no_part():
    data, rows = timed(0), range(3, 150, 10)
    recording = data.clock.recording.copy()
    recording[rows] = ""
    data = with_clock(data, recording=recording)
    for split in (make_split(data, "blocks", RATIO, 0), *make_folds(data, "blocks", 3, RATIO, 0)):
        assert not set(rows) & set(np.concatenate(list(split.parts.values())).tolist())


def test_places_follow_the_onsets_whatever_the_order_of_the_rows():
    clock = clock_of(["a", "b", "a", "a", ""], onset=[9, 0, 1, 5, 2])
    assert places(clock).tolist() == pytest.approx([2 / 3, 0, 0, 1 / 3, 0])


def test_a_part_takes_the_texts_that_it_has_the_largest_share_of():
    """Of E it has all, of A two of three, of B one of three; what it does not take goes to train."""
    texts = {"A": [TEST, TEST, TRAIN], "B": [TEST, TRAIN, TRAIN], "C": [DEV, LEFT_OUT], "D": [TRAIN], "E": [TEST]}
    data = data_of([(f"S{k}", "T", 0, text) for text, parts in texts.items() for k in range(len(parts))])
    given = np.concatenate(list(texts.values()))
    one, none = TRAIN, LEFT_OUT
    found = keep_one_part_per_text(data, given, (2, 1, 1))
    assert found.tolist() == [none, none, one, none, one, one, DEV, none, one, TEST]
    found = keep_one_part_per_text(data, given, (1, 1, 2))
    assert found.tolist() == [TEST, TEST, none, none, one, one, DEV, none, one, TEST]


def test_train_gives_way_to_dev_and_dev_to_test():
    """With a gap of 2.5 places: dev 6 goes first, so that train 8 is near nothing that stays."""
    part = np.full(20, TRAIN)
    part[[4, 5]], part[[6, 14]] = TEST, DEV
    split = split_of(in_order(20), part, "blocks", 0, 2.5)
    found = {name: rows.tolist() for name, rows in split.parts.items()}
    assert found == {"train": [0, 1, 8, 9, 10, 11, 17, 18, 19], "dev": [14], "test": [4, 5]}
    assert part.tolist().count(LEFT_OUT) == 0, "what was given is changed"


def test_a_neighbor_at_the_limit_counts():
    parts = {"train": np.array([0]), "dev": np.array([1, 5, 6]), "test": np.array([20, 21])}
    found = time_leakage(readings_of(in_order(30)), parts, {})
    assert found["neighbors"]["dev"] == {"1": pytest.approx(1 / 3), "5": pytest.approx(2 / 3), "20": 1.0}
    assert found["neighbors"]["test"] == {"1": 0.0, "5": 0.0, "20": 0.5}
    assert (found["unit"], found["known"]) == ("samples", 1.0)
    data = in_order(30)
    recording = np.where(np.isin(np.arange(30), [5, 6, 20, *range(22, 30)]), "", data.clock.recording).astype(object)
    found = time_leakage(readings_of(with_clock(data, recording=recording)), parts, {})
    assert found["known"] == 0.5, "of the samples of the parts"
    assert found["neighbors"]["dev"] == dict.fromkeys(("1", "5", "20"), pytest.approx(1 / 3))


def test_permutations_that_tell_as_much_count_in_p():
    found = neighbor_accuracy(np.array(["x"] * 8), np.arange(3, 8), np.array([1, 0, -1, 2, 0]))
    assert found == {"samples": 4, "told": 1.0, "chance": 1.0, "p": 1.0}


def test_a_group_that_time_tells_is_a_warning_unless_by_chance_or_by_little():
    plain = {"unit": "s", "neighbors": {"test": {"5": 0.0, "30": 0.0, "120": 1.0}}}

    def warned(**changes):
        told = {"samples": 9, "told": 0.6, "chance": 0.4, "p": 0.05, **changes}
        return len(high_neighbors({**plain, "groups": {"class": {"test": told, "dev": None}}}))

    assert warned() == 1
    assert [warned(p=0.06), warned(told=0.45), warned(samples=0), warned(told=0.2)] == [0] * 4


def test_groups_in_one_block_are_counted_among_those_of_two_samples_or_more():
    """A is shown in two blocks, C in one, B once."""
    readings = readings_of(in_order(6))
    assert one_block(readings, np.array(list("AABACC"), object)) == 0.5
    assert one_block(readings, np.array(list("AAAAAA"), object)) is None


@pytest.mark.parametrize(("shown", "said"), [("EAABBCCDDE", "80%"), ("EAABBDCCDE", "")])
def test_groups_in_one_block_are_named_from_four_of_five_on(shown, said):
    """Of five groups, four are each one block in the first order and three in the second."""
    parts = {"train": np.arange(6), "dev": np.array([6, 7]), "test": np.array([8, 9])}
    time = time_leakage(readings_of(in_order(10)), parts, {"class": np.array(list(shown), object)})
    found = [line for line in time_lines(time) if "in one block each" in line]
    assert [line.split(" of the class groups")[0] for line in found] == [said] * bool(said)
