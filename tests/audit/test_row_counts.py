"""What unequal numbers of rows add to permuted scores: against simulation, and in the detectable effect."""

import numpy as np
import pytest

from eeg2text_jax.auditing.contrast import _observed_share, contrast
from eeg2text_jax.auditing.row_counts import OwnRows, RowSpread, row_factors
from eeg2text_jax.auditing.statistics import resample
from eeg2text_jax.auditing.strata import blocks_of
from eeg2text_testing.prediction_sets import Dials, gather, own_rows, simulate, unigram_score, unigram_tables


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
    assert found[:2] == pytest.approx(centered(np.array(counts), 40_000, np.random.default_rng(0)), rel=0.05)


def drawn(counts: np.ndarray, between: float, rng: np.random.Generator) -> tuple[np.ndarray, OwnRows]:
    """Sums `[1, S, S, 1]` over rows, and the rows, that scatter by 1 within a sentence and by `between` around it."""
    size = len(counts)
    sentence = np.repeat(np.arange(size), counts)
    values = between * rng.normal(size=(size, size))[sentence] + rng.normal(size=(len(sentence), size))
    sums = np.stack([np.bincount(sentence, column, minlength=size) for column in values.T], 1)
    own = values[np.arange(len(sentence)), sentence]
    return sums[None, ..., None], OwnRows(own[:, None], sentence, np.zeros(len(sentence), int))


def test_spread_is_that_of_the_rows():
    rng, counts = np.random.default_rng(1), np.random.default_rng(0).integers(2, 9, size=120)
    blocks = blocks_of(np.repeat(np.arange(20), 6))
    shares = []
    for between in (0.0, 0.7):
        sums, rows = drawn(counts, between, rng)
        found = resample([gather(blocks, sums)], [counts[None]], blocks, resamples=2, rng=rng, rows=[rows])[0].spread
        assert found.within[0, 0] == pytest.approx(1, abs=0.2)
        assert found.between[0, 0] == pytest.approx(between**2, abs=0.1)
        shares.append(found.observed_share(np.ones(1)))
    observed, permuted, both = found.factors
    assert shares[0] == pytest.approx(np.sqrt(observed / permuted), abs=0.03)
    assert shares[1] == pytest.approx(np.sqrt((observed + 0.49 * both) / (permuted + 0.49 * both)), abs=0.03)


def test_equal_rows_change_nothing():
    observed, permuted, _ = row_factors(np.full((3, 12), 5), blocks_of(np.repeat([0, 1], 6)))
    assert observed == pytest.approx(permuted)


def test_a_seed_without_rows_of_a_sentence_stands_in_with_the_rows_of_others():
    whole = row_factors(np.array([[4, 4, 4], [4, 4, 0]]), blocks_of(np.zeros(3, int)))
    part = row_factors(np.array([[4, 4, 4]]), blocks_of(np.zeros(3, int)))
    assert part[0] < whole[0] < 2 * part[0]  # two references more


def test_rows_of_the_same_readings_are_held_against_each_other():
    """A control that writes what EEG writes has no spread of the difference; one that does not has twice the spread."""
    rng, counts = np.random.default_rng(2), np.array([40, 3, 3, 4, 5, 6])
    blocks = blocks_of(np.zeros(6, int))
    sums, rows = drawn(counts, 0.0, rng)
    other, others = drawn(counts, 0.0, rng)
    signs = np.array([1.0, -1.0])
    options = {"resamples": 2, "rng": rng}
    for second, own, spread in ((sums, rows, 0), (other, others, 2)):
        tables = [gather(blocks, sums), gather(blocks, second)]
        found = resample(tables, [counts[None]] * 2, blocks, rows=[rows, own], **options)[0].spread
        assert signs @ found.within @ signs == pytest.approx(spread, abs=1.2 * bool(spread) + 1e-9)
    assert found.observed_share(signs) < 0.9


def test_the_same_rows_on_both_sides_leave_no_spread_of_their_difference():
    rng, counts = np.random.default_rng(2), np.array([40, 3, 3, 4, 5, 6])
    sums, rows = drawn(counts, 0.0, rng)
    blocks = blocks_of(np.zeros(6, int))
    options = {"resamples": 2, "rng": rng, "rows": [rows, rows]}
    found = resample([gather(blocks, sums)] * 2, [counts[None]] * 2, blocks, **options)
    signs = np.array([1.0, -1.0])
    assert _observed_share(found, lambda summed: summed[..., 0], signs) == 1
    assert _observed_share(found[:1], lambda summed: summed[..., 0], signs[:1]) < 0.9


def test_a_difference_that_is_rounding_has_no_spread():
    """Sums of equal conditions differ in the last digit on some CPUs; a small difference that is real counts."""
    ones = np.ones((2, 2))
    spread = RowSpread(1.1 * ones, -0.05 * ones, (100.0, 300.0, 1400.0))
    assert spread.observed_share(np.array([1.0, -1.0 + 1e-15])) == 1
    assert spread.observed_share(np.zeros(2)) == 1
    assert spread.observed_share(np.array([1.0, -0.999])) == pytest.approx(np.sqrt(1 / 3))


def test_the_detectable_effect_where_one_sentence_holds_half_of_the_rows():
    """It is smaller than without the rows, and the same where all sentences have as many."""

    def effects(readers: str) -> tuple[float, float]:
        rng = np.random.default_rng(2)
        simulated = simulate(Dials(readers=readers), rng)
        blocks, counts = blocks_of(simulated.strata), [simulated.counts] * 2
        sums = [gather(blocks, table) for table in unigram_tables(simulated)]
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
