"""Every method by name: parts, sizes, determinism, and what it leaks on a full grid."""

import numpy as np
import pytest
from reading_grids import ZUCO_SUBJECTS, data_of, grid

from eeg2text_jax.base.errors import UserError
from eeg2text_jax.commands.data import part_cells
from eeg2text_jax.data.splits.certificate import assess_leakage, certify_data, paper_table1, size_lines
from eeg2text_jax.data.splits.methods import METHODS, make_split
from eeg2text_jax.data.splits.split import PARTS, Split, normalize, part_sizes, readings_of

RATIO = (0.8, 0.1, 0.1)
SMALL = grid(sentences={"SR": 40, "NR": 30, "TSR": 41})


@pytest.mark.parametrize("method", METHODS)
def test_a_sample_is_in_one_part_at_most_and_a_seed_fixes_the_split(method):
    split = make_split(SMALL, method, RATIO, 3)
    rows = np.concatenate([split.parts[name] for name in PARTS])
    assert len(np.unique(rows)) == len(rows) == split.kept
    assert all((np.diff(split.parts[name]) > 0).all() for name in PARTS)
    assert rows.min() >= 0
    assert rows.max() < len(SMALL)
    assert make_split(SMALL, method, RATIO, 3).digest() == split.digest()


@pytest.mark.parametrize("method", ["unique_text", "a", "c", "d", "f"])
def test_another_seed_is_another_split(method):
    digests = {make_split(SMALL, method, RATIO, seed).digest() for seed in range(4)}
    assert len(digests) == 4


@pytest.mark.parametrize(
    ("method", "texts", "subjects"),
    [("unique_text", 0, 12), ("a", 111, 0), ("d", 0, 12), ("f", 0, 0), ("unique_sent", 0, 12)],
)
def test_what_train_and_test_share(method, texts, subjects):
    leak = assess_leakage(readings_of(SMALL), make_split(SMALL, method, RATIO, 0).parts)[0]
    assert (leak.seen, leak.judged) == ("train", "test")
    assert set(leak.shared_texts.values()) == {texts}
    assert len(leak.shared_subjects) == subjects


def test_pooled_shares_texts_and_subjects():
    leak = assess_leakage(readings_of(SMALL), make_split(SMALL, "c", RATIO, 0).parts)[0]
    assert leak.shared_texts["letters-digits"] > 60
    assert len(leak.shared_subjects) == 12


def test_a_text_read_in_two_tasks_stays_together_under_unique_text_and_f_but_not_under_d():
    texts = {"NR": [f"Shared – text {i}" for i in range(30)], "TSR": [f"shared - 'Text' {i}." for i in range(30)]}
    data = grid(texts=texts)
    for method, shared in (("unique_text", False), ("f", False), ("d", True), ("unique_sent", False)):
        leak = assess_leakage(readings_of(data), make_split(data, method, RATIO, 1).parts)[0]
        assert bool(leak.shared_texts["letters-digits"]) == shared, method
        assert leak.shared_texts["sentence-id"] == 0


def test_ratio_changes_the_sizes():
    split = make_split(grid(sentences={"SR": 100}), "unique_text", (0.5, 0.2, 0.3), 0)
    assert [len(split.parts[name]) // 12 for name in PARTS] == [50, 20, 30]


@pytest.mark.parametrize(("n", "sizes"), [(12, (9, 1, 2)), (400, (320, 40, 40)), (407, (325, 40, 42)), (10, (8, 1, 1))])
def test_part_sizes_round_like_the_authors(n, sizes):
    assert part_sizes(n, RATIO) == sizes


def test_part_sizes_do_not_lose_a_unit_to_rounding():
    assert (0.58 * 100 < 58, 0.29 * 100 < 29) == (True, True)
    assert part_sizes(100, (0.58, 0.29, 0.13)) == (58, 29, 13)


def test_unique_sent_counts_a_sentence_that_every_subject_lost():
    rows = [(s, "SR", i, f"text {i}") for s in ("A", "B") for i in range(19)]
    by_last_index = make_split(data_of(rows), "unique_sent", RATIO, 0)
    declared = make_split(data_of(rows, {"sentences": {"SR": {"A": 19, "B": 20}}}), "unique_sent", RATIO, 0)
    assert [len(by_last_index.parts[name]) for name in PARTS] == [2 * 15, 2 * 1, 2 * 3]
    assert [len(declared.parts[name]) for name in PARTS] == [2 * 16, 2 * 2, 2 * 1]
    fewer = make_split(data_of(rows, {"sentences": {"SR": {"A": 10}}}), "unique_sent", RATIO, 0)
    assert fewer.digest() == by_last_index.digest(), "a count below the number of sentences says nothing"


def test_unique_subj_is_the_authors_lists():
    data = grid(sentences={"SR": 5, "TSR": 5})
    split = make_split(data, "unique_subj", RATIO, 0)
    who = {name: set(data.subject[split.parts[name]]) for name in PARTS}
    assert who["dev"] == {"ZMG"}
    assert who["test"] == {"ZPH"}
    assert who["train"] == set(ZUCO_SUBJECTS) - {"ZDN", "ZMG", "ZPH"}
    assert {task for name in PARTS for task in data.task[split.parts[name]]} == {"SR"}


@pytest.mark.parametrize(
    ("method", "data", "message"),
    [
        ("unique_subj", grid(sentences={"TSR": 5}), "task SR"),
        ("unique_subj", grid(subjects=("S1", "S2"), sentences={"SR": 5}), "found none"),
        (
            *("f", grid(subjects=("S1", "S2"), sentences={"SR": 50})),
            "split 'f' gives each part subjects of its own, and there are 2 of them; expected 3 or more",
        ),
        ("a", grid(subjects=("S1",), sentences={"SR": 50}), "train part empty"),
        ("unique_txt", SMALL, "did you mean 'unique_text'"),
        ("nonsense", SMALL, "there are unique_text"),
        ("file", SMALL, "split.path"),
    ],
)
def test_mistakes_are_named(method, data, message):
    with pytest.raises(UserError, match=message):
        make_split(data, method, RATIO, 0)


@pytest.mark.parametrize("ratio", [(0.8, 0.2), (0.8, 0.1, 0.2), (0.6, 0.2, 0.1), (1.0, 0.0, 0.0), (0.9, 0.2, -0.1)])
def test_a_bad_ratio_is_named(ratio):
    with pytest.raises(UserError, match=r"split\.ratio"):
        make_split(SMALL, "unique_text", ratio, 0)


def test_paper_table1_counts_samples_by_task():
    data = grid()
    table = paper_table1(data, make_split(data, "unique_sent", RATIO, 0)).splitlines()
    assert [line.split() for line in table] == [
        ["task", "train", "dev", "test", "total"],
        ["SR", "3840", "480", "480", "4800"],
        ["NR", "2880", "360", "360", "3600"],
        ["TSR", "3900", "480", "504", "4884"],
        ["all", "10620", "1320", "1344", "13284"],
    ]


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("(July 6, 1925 – now)", "(july 6, 1925 - now)", True),
        ("Curaçao’s “naïve” café", 'curacao\'s "naive" cafe', True),
        ("40 km²", "40 km˝", True),
        ("in 1925", "in 1926", False),
        ("the end", "then end", False),
    ],
)
def test_normalize_keeps_letters_and_digits(one, other, same):
    assert (normalize(one) == normalize(other)) == same


def test_sizes_that_are_far_from_the_ratio_are_a_warning():
    """One subject of 10 read nearly everything; where it is in dev or test, train is small."""
    rows = [("A", "SR", i, f"text {i}") for i in range(300)]
    rows += [(s, "SR", 30 * k + i, f"text {30 * k + i}") for k, s in enumerate("BCDEFGHIJ") for i in range(10)]
    data = data_of(rows)
    split = next(found for seed in range(30) if 0 in (found := make_split(data, "a", RATIO, seed)).parts["test"])
    (line,) = size_lines(certify_data(data, split, RATIO))
    warning = "warning: the sizes are far from the ratio: train has 20.5% of the kept samples in place of 80%"
    assert line.startswith(warning)
    assert "test has 76.9% of the kept samples in place of 10%" in line
    small = next(found for seed in range(30) if 0 in (found := make_split(data, "a", RATIO, seed)).parts["train"])
    (line,) = size_lines(certify_data(data, small, RATIO))
    assert "dev has 2.6% of the kept samples in place of 10%" in line
    assert "train" not in line, "it has 95 %, less than twice its share"
    (line,) = size_lines(certify_data(data, small, (0.3, 0.35, 0.35)))
    assert "train has 94.9% of the kept samples in place of 30%" in line
    even = grid(sentences={"SR": 40})
    assert size_lines(certify_data(even, make_split(even, "c", RATIO, 0), RATIO)) == []
    assert size_lines(certify_data(data, split)) == []  # of a split file, whose ratio nobody states


def test_the_map_shows_the_part_of_each_subject_and_text():
    """A reads x in train, y in dev and z in train and test; B reads z in test, and her x is discarded."""
    rows = [("A", "T", 0, "x"), ("A", "T", 1, "y"), ("A", "T", 2, "z"), ("A", "U", 0, "z"), ("B", "T", 0, "x"),
            ("B", "T", 2, "z")]  # fmt: skip
    data = data_of(rows)
    parts = {"train": np.array([0, 2]), "dev": np.array([1]), "test": np.array([3, 5])}
    nothing, discarded, train, dev, test, several = range(6)
    found = part_cells(data, Split("file", 0, parts, readings_of(data).sample_id))
    assert found.tolist() == [[train, dev, several], [discarded, nothing, test]]
