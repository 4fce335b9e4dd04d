"""Leakage rates: edge cases, and the cells of the splitting paper's Table 1 that counting gives.

For fMRI the numbers of TRs and readers of the 12 tasks are those of the public metadata; windows have L = 10 TRs.
"""

import numpy as np
import pytest
from reading_grids import grid

from eeg2text_jax.data.splits.certificate import assess_leakage, leakage_rate, segment_leakage_rate
from eeg2text_jax.data.splits.methods import make_split
from eeg2text_jax.data.splits.split import part_sizes, readings_of

RATIO = (0.8, 0.1, 0.1)
L = 10
TASK_TRS = (281, 1023, 361, 451, 269, 602, 365, 365, 365, 591, 701, 2225)
READERS = (82, 23, 16, 40, 53, 18, 56, 24, 23, 36, 36, 25)
ZUCO = grid()


def test_rates_by_hand():
    train, test = np.array(["a", "a", "b", "c", "c"]), np.array(["a", "b", "b", "d"])
    # a: 1/2, b: 2/1 capped at 1, c: not in test, d: not in train
    assert leakage_rate(train, test) == pytest.approx((0.5 + 1 + 0) / 3)
    assert leakage_rate(train, test, n_units=4) == pytest.approx(1.5 / 4)
    assert leakage_rate(train, np.array([], str)) == 0
    assert leakage_rate(np.array([], str), test) == 0
    assert leakage_rate(train, train) == 1


def test_segment_rate_by_hand():
    train, test = np.array([1, 1, 2, 3]), np.array([1, 2, 2, 9])
    assert segment_leakage_rate(train, test) == pytest.approx((1 + 1 + 0) / 4)
    assert segment_leakage_rate(train, np.array([], int)) == 0
    assert segment_leakage_rate(train, train) == 1


def eeg(method, seed, what, over=None):
    split = make_split(ZUCO, method, RATIO, seed)
    train, test = split.parts["train"], split.parts["test"]
    column = ZUCO.subject if what == "subject" else ZUCO.sentence_id
    return leakage_rate(column[train], column[test], over)


@pytest.mark.parametrize(
    ("method", "what", "rate"),
    [
        ("a", "subject", 0),
        ("a", "text", 2 / 9),  # printed 22.50, whose spread over seeds comes from missing sentences
        ("d", "subject", 112 / 885),  # printed 12.59
        ("d", "text", 0),
        ("f", "subject", 0),
        ("f", "text", 0),
    ],
)
def test_table_1_cells_of_eeg(method, what, rate):
    assert [eeg(method, seed, what) for seed in (1, 2, 3, 4)] == [pytest.approx(rate)] * 4


def test_table_1_pooled_subjects_of_eeg():
    assert np.mean([eeg("c", seed, "subject") for seed in (1, 2, 3, 4)]) == pytest.approx(0.125, abs=0.001)


def test_table_1_pooled_texts_of_eeg_cannot_be_derived():
    """13.07 is printed; counting gives 13.98 over all texts and 19.49 over those of the test part."""
    n_texts = len(set(ZUCO.sentence_id))
    assert np.mean([eeg("c", seed, "text", n_texts) for seed in (1, 2, 3, 4)]) == pytest.approx(0.1398, abs=0.004)
    assert np.mean([eeg("c", seed, "text") for seed in (1, 2, 3, 4)]) == pytest.approx(0.1949, abs=0.004)


def segments(starts):
    """Text segments of windows that start at `starts`, L each."""
    return (np.asarray(starts)[:, None] + np.arange(L)).ravel()


@pytest.mark.parametrize("length", range(2, 15))
def test_one_boundary_between_consecutive_windows_shares_a_quarter_of_length_squared(length):
    starts = np.arange(100)
    windows = [(part[:, None] + np.arange(length)).ravel() for part in (starts[:50], starts[50:])]
    hits = segment_leakage_rate(*windows) * len(windows[1])
    assert round(hits, 6) == length**2 // 4
    assert np.isin(windows[1], windows[0]).sum() == length * (length - 1) // 2


def fmri(cut):
    """Windows of one reader of each task in train and test, `cut(n_windows) -> (train starts, test starts)`."""
    return [cut(trs - L + 1) for trs in TASK_TRS]


def test_table_1_random_windows_of_fmri():
    """(d): 12.795 / 99.82 printed. Positions are drawn once a task and shared by its readers."""
    rng = np.random.default_rng(0)

    def cut(n):
        train, dev, _ = part_sizes(n, RATIO)
        order = rng.permutation(n)
        return order[:train], order[train + dev :]

    parts = fmri(cut)
    brain = np.average([len(test) / len(train) for train, test in parts], weights=READERS)
    assert brain == pytest.approx(0.1276, abs=0.0005)
    hits = [segment_leakage_rate(segments(train), segments(test)) * len(test) for train, test in parts]
    sizes = [len(test) for _, test in parts]
    assert 0.995 < np.dot(hits, READERS) / np.dot(sizes, READERS) < 1


def test_table_1_consecutive_windows_of_fmri():
    """(e): 12.27 / 9.29 printed. A test block amid train shares 25 clipped segments at each of two boundaries."""

    def cut(n):
        size = int(0.1 * n)
        return np.r_[0:size, 2 * size : n - size], np.arange(size, 2 * size)  # the last block is dev

    parts = fmri(cut)
    rates = [segment_leakage_rate(segments(train), segments(test)) for train, test in parts]
    sizes = np.array([len(test) for _, test in parts])
    np.testing.assert_allclose(rates, 2 * 25 / (L * sizes))
    assert np.average(rates, weights=sizes * READERS) == pytest.approx(0.0915, abs=0.003)
    brain = np.average([len(test) / len(train) for train, test in parts], weights=READERS)
    assert brain == pytest.approx(0.1238, abs=0.0005)


def test_table_1_subjects_of_fmri():
    """(a): 100.00 printed: every text of the test subjects is read by at least as many train subjects."""
    windows = segments(np.arange(200))
    assert segment_leakage_rate(np.tile(windows, 9), np.tile(windows, 2)) == 1


def test_assessment_names_every_pair_and_comparison():
    split = make_split(ZUCO, "unique_sent", RATIO, 0)
    found = assess_leakage(readings_of(ZUCO), split.parts)
    assert [(leak.seen, leak.judged) for leak in found] == [("train", "test"), ("train", "dev"), ("dev", "test")]
    assert set(found[0].tslr) == {"sentence-id", "letters-digits", "case-space"}
    assert found[0].bslr_over_test == found[0].bslr_over_all == pytest.approx(112 / 885)
    assert len(found[0].shared_subjects) == 12


def test_rate_over_all_subjects_divides_by_those_who_do_not_test():
    data = grid(subjects=[f"S{i}" for i in range(10)], sentences={"SR": 10})
    rows = {s: np.flatnonzero(data.subject == s) for s in ("S0", "S1", "S2")}
    parts = {"train": np.r_[rows["S0"], rows["S1"][:8]], "dev": rows["S2"], "test": rows["S1"][8:]}
    leak = assess_leakage(readings_of(data), parts)[0]
    assert leak.bslr_over_test == pytest.approx(2 / 8)
    assert leak.bslr_over_all == pytest.approx(2 / 8 / 10)
