"""Texts in common between parts and between tasks, found by comparing all pairs one by one."""

import itertools

import numpy as np
import pytest
from reading_grids import data_of, grid

from eeg2text_jax.data.splits.certificate import certify, find_duplicates, shared_between_tasks, verdict
from eeg2text_jax.data.splits.methods import make_split
from eeg2text_jax.data.splits.split import Split, readings_of, tokens

PARTS = {"train": np.array([0, 1]), "dev": np.array([2]), "test": np.array([3, 4])}
ROWS = [
    ("S1", "NR", 0, "He won the Nobel Prize – in 1928."),
    ("S2", "NR", 1, "One two three four five six seven eight nine ten"),
    ("S1", "NR", 2, "nothing of this is anywhere else"),
    ("S1", "TSR", 0, "He won the  NOBEL prize - in 1928"),
    ("S2", "TSR", 1, "One two three four five six seven eight nine eleven"),
]


def test_equal_and_near_texts_are_named():
    equal, near = find_duplicates(readings_of(data_of(ROWS)), PARTS)
    ids = {"seen_sentences": ["NR:0"], "judged_sentences": ["TSR:0"], "other_sentences": ["NR:0"]}
    assert equal == {"seen": "train", "judged": "test", "overlap": 1, **ids}
    assert (near["seen_sentences"], near["judged_sentences"]) == (["NR:1"], ["TSR:1"])
    assert near["overlap"] == pytest.approx(9 / 11)


@pytest.mark.parametrize(("threshold", "found"), [(9 / 11, 2), (0.82, 1)])
def test_the_threshold_is_a_least_overlap(threshold, found):
    assert len(find_duplicates(readings_of(data_of(ROWS)), PARTS, threshold)) == found


def test_the_same_sentence_of_another_subject_is_no_other_sentence():
    rows = [(s, "NR", 0, "the very same") for s in ("S1", "S2", "S3")]
    parts = {"train": np.array([0]), "dev": np.array([1]), "test": np.array([2])}
    for duplicate in find_duplicates(readings_of(data_of(rows)), parts):
        assert duplicate["seen_sentences"] == duplicate["judged_sentences"] == ["NR:0"]
        assert duplicate["other_sentences"] == []


def test_overlaps_are_those_of_sets_compared_one_by_one():
    rng = np.random.default_rng(0)
    texts = {"T": [" ".join(rng.choice(list("abcdefgh"), rng.integers(2, 9))) for _ in range(80)]}
    data = grid(subjects=("S1",), texts=texts)
    split = make_split(data, "unique_text", (0.6, 0.2, 0.2), 0)
    expected = set()
    for seen, judged in (("train", "test"), ("train", "dev"), ("dev", "test")):
        for i, j in itertools.product(split.parts[judged], split.parts[seen]):
            a, b = set(tokens(data.sentence[i])), set(tokens(data.sentence[j]))
            if len(a & b) / len(a | b) >= 0.8:
                expected.add((seen, judged, f"T:{j}", f"T:{i}", round(len(a & b) / len(a | b), 9)))
    found = {
        (d["seen"], d["judged"], b, a, round(d["overlap"], 9))
        for d in find_duplicates(readings_of(data), split.parts)
        for a in d["judged_sentences"]
        for b in d["seen_sentences"]
    }
    assert found == expected
    assert len(found) > 5


def test_texts_without_letters_share_nothing():
    rows = [("S1", "NR", 0, "--"), ("S1", "NR", 1, "a"), ("S1", "NR", 2, "b")]
    parts = {name: np.array([k]) for k, name in enumerate(("train", "dev", "test"))}
    assert find_duplicates(readings_of(data_of(rows)), parts) == []


def test_tasks_share_texts_by_each_comparison():
    shared = shared_between_tasks(readings_of(data_of(ROWS)))
    assert [tuple(s.values()) for s in shared] == [
        (("NR", "TSR"), "letters-digits", [["NR:0", "TSR:0"]]),
        (("NR", "TSR"), "case-space", []),
    ]


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        (PARTS, "train and test share 1 text (by letters-digits), 1 near-duplicate and 2 subjects"),
        (
            {"train": np.array([0, 1]), "dev": np.array([3, 4]), "test": np.array([2])},
            "train and test share no texts (by letters-digits), no near-duplicates and 1 subject",
        ),
        (
            {"train": np.array([2]), "dev": np.array([0, 1]), "test": np.array([3, 4])},
            "train and test share no texts (by letters-digits), no near-duplicates and 1 subject",
        ),
    ],
)
def test_the_verdict_counts_what_train_and_test_share(parts, said):
    readings = readings_of(data_of(ROWS))
    assert verdict(certify(readings, Split("file", 0, parts, readings.sample_id))) == said
