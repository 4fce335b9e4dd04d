"""What unequal numbers of rows add to permuted scores: against simulation, and in the detectable effect."""

import numpy as np
import pytest

from eeg2text_jax.auditing.contrast import contrast
from eeg2text_jax.auditing.row_counts import OwnRows, observed_share, row_factors
from eeg2text_jax.auditing.statistics import resample
from eeg2text_jax.auditing.strata import blocks_of
from eeg2text_testing.prediction_sets import Dials, own_rows, simulate, unigram_score, unigram_tables


def centered(counts: np.ndarray, draws: int, rng: np.random.Generator) -> tuple[float, float]:
    """Variances of the observed and of a permuted total of one stratum, less the mean over permutations.

    Rows are independent standard normal against every reference.
    """
    m = len(counts)
    noise = rng.normal(size=(draws, m, m)) / np.sqrt(counts)[:, None]  # mean over the rows of s against reference t
    weighted = noise * counts
    mean = weighted.mean(1).sum(-1)  # each reference held against every sentence with equal chance
    observed = weighted[:, np.arange(m), np.arange(m)].sum(-1) - mean
    shift = [weighted[:, np.roll(np.arange(m), k), np.arange(m)].sum(-1) - mean for k in range(m)]
    return float(observed.var()), float(np.mean([s.var() for s in shift]))


@pytest.mark.parametrize("counts", [[4, 4, 4, 4], [60, 3, 4, 5, 6], [1, 2, 3], [8, 2]])
def test_factors_are_the_variances_of_simulated_rows(counts):
    found = row_factors(np.array([counts]), blocks_of(np.zeros(len(counts), int)))
    assert found == pytest.approx(centered(np.array(counts), 40_000, np.random.default_rng(0)), rel=0.05)


def test_equal_rows_change_nothing():
    observed, permuted = row_factors(np.full((3, 12), 5), blocks_of(np.repeat([0, 1], 6)))
    assert observed == pytest.approx(permuted)
    rows = OwnRows(np.random.default_rng(0).normal(size=(60, 1)), np.repeat(np.arange(12), 5), np.zeros(60, int))
    assert observed_share([rows], [np.ones(1)], (observed, permuted), 3.0) == 1.0


def test_a_seed_without_rows_of_a_sentence_stands_in_with_the_rows_of_others():
    whole = row_factors(np.array([[4, 4, 4], [4, 4, 0]]), blocks_of(np.zeros(3, int)))
    part = row_factors(np.array([[4, 4, 4]]), blocks_of(np.zeros(3, int)))
    assert part[0] < whole[0] < 2 * part[0]  # two references more


def test_rows_of_the_same_readings_are_held_against_each_other():
    """A control that writes what EEG writes leaves no spread of the difference, however far rows scatter."""
    rng = np.random.default_rng(1)
    sentence, factors = np.repeat(np.arange(3), [20, 2, 2]), (10.0, 100.0)
    rows = OwnRows(rng.normal(size=(24, 1)), sentence, np.zeros(24, int))
    signs = [np.ones(1), -np.ones(1)]
    assert observed_share([rows, rows], signs, factors, 20.0) == 1.0
    other = OwnRows(rng.normal(size=(24, 1)), sentence, np.zeros(24, int))
    z = rows.deviations(signs[0]) + other.deviations(signs[1])
    expected = np.sqrt(1 - float(z @ z) / 21 * 90 / 400)
    assert observed_share([rows, other], signs, factors, 20.0) == pytest.approx(expected)


def test_the_detectable_effect_where_one_sentence_holds_half_of_the_rows():
    """It is smaller than without the rows, and the same where all sentences have as many."""

    def effects(readers: str) -> tuple[float, float]:
        rng = np.random.default_rng(2)
        simulated = simulate(Dials(readers=readers), rng)
        blocks, counts = blocks_of(simulated.strata), [simulated.counts] * 2
        sums = [blocks.gather(table) for table in unigram_tables(simulated)]
        rows = own_rows(simulated)
        both = [
            resample(sums, counts, blocks, resamples=200, rng=np.random.default_rng(3), rows=known)
            for known in (None, rows)
        ]
        total = sum(one.values for one in rows)
        assert total.shape == (simulated.counts.sum(), 3)
        for one, found in zip(rows, both[1], strict=True):
            np.testing.assert_allclose(one.values.sum(0), found.own.sum((0, 1)))
        without, known = (contrast(found, unigram_score).mde for found in both)
        return without, known

    without, known = effects("equal")
    assert known == without
    without, known = effects("half")
    assert 0.5 * without < known < 0.97 * without
