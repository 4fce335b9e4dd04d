"""Contrasts: intervals, spread without the effect, seeds as a level, detectable effects and single subjects."""

import types

import numpy as np
import pytest
from test_statistics import compare, random_pairs, ratio, total

from eeg2text_jax.auditing import statistics
from eeg2text_jax.auditing.content_cells import RowTable
from eeg2text_jax.auditing.contrast import SampledGroups, _growth, _interval, subject_effects
from eeg2text_jax.auditing.strata import blocks_of


def test_an_interval_has_the_quantiles_of_the_draws_and_is_not_narrower_than_permutations_say():
    draws = np.arange(101.0)
    assert _interval(50.0, draws, 0.0, 0.90) == pytest.approx((5, 95))
    assert _interval(50.0, draws, 0.0, 0.95) == pytest.approx((2.5, 97.5))
    assert _interval(50.0, draws, 100.0, 0.90) == pytest.approx((50 - 164.485, 50 + 164.485), abs=0.01)


def test_nine_of_ten_draws_are_in_the_interval_that_decides():
    rng = np.random.default_rng(0)
    found = compare([random_pairs(rng, 24)], np.repeat(range(4), 6), total, resamples=1000, rng=rng)
    low, high = found.interval_90
    assert np.mean((found.boot_draws >= low) & (found.boot_draws <= high)) >= 0.9


def test_the_spread_of_permutations_does_not_count_the_effect():
    """Only own references are hit: what permutations change is the effect that sentences in their place keep."""
    pairs = np.eye(12)[None, ..., None]
    found = compare([pairs], np.repeat([0, 1], 6), total, resamples=200, rng=np.random.default_rng(0))
    assert found.effect == pytest.approx(12)
    assert found.null_draws.std() > 1
    assert found.permutation_sd == pytest.approx(0, abs=1e-9)


def test_where_both_conditions_vary_alike_an_effect_is_detectable():
    """A style shifts every score by one point, so no permutation changes the difference."""
    rng = np.random.default_rng(5)
    control = rng.integers(9, size=(1, 12, 12, 1)).astype(float)
    found = compare([control + 1, control], np.repeat([0, 1], 6), total, resamples=100, rng=rng)
    assert found.permutation_sd == 0
    assert np.isfinite(found.mde)


def test_seeds_are_a_level_from_three_on_and_limit_what_is_detectable():
    rng = np.random.default_rng(1)
    strata, options = np.repeat([0, 1], 6), {"resamples": 50, "rng": np.random.default_rng(0)}
    assert compare([random_pairs(rng, 12, seeds=2)], strata, total, **options).p_seeds is None
    seeds = random_pairs(rng, 12, k=2, seeds=3)
    seeds[..., 1] = 1
    seeds[..., 0] -= 1000
    seeds[:, np.arange(12), np.arange(12), 0] += np.array([[0.0], [50], [200]])
    found = compare([seeds], strata, ratio, **options)
    assert found.p_seeds == pytest.approx(statistics.seed_p_value(np.array(found.seed_effects)))
    assert found.mde >= statistics.seed_detectable_effect(np.array(found.seed_effects))


def test_scores_below_zero_count_no_hits_so_their_variance_does_not_grow():
    assert _growth(np.array([1.0, 3.0])) == pytest.approx(0.5)
    assert _growth(np.array([-1.0, 3.0])) == 0


def test_the_detectable_effect_is_that_of_the_interval_towards_0():
    """One sentence holds the whole effect: the draws have a long tail, away from 0, which is no matter."""
    pairs = 0.01 * np.random.default_rng(0).normal(size=(1, 36, 36, 1))
    pairs[0, 0, 0] += 10
    found = compare([pairs], np.repeat(range(6), 6), total, resamples=400, rng=np.random.default_rng(1))
    low, high = found.interval_90
    assert high - found.effect > 1.5 * (found.effect - low)
    assert found.mde == pytest.approx((1 + 1.2816 / 1.6449) * (found.effect - low), rel=1e-3)


def test_an_observed_effect_below_zero_makes_no_other_effect_detectable_than_none_does():
    below, none = (statistics.interval_detectable_effect(1.0, effect, growth=0.5) for effect in (-5.0, 0.0))
    assert below == none
    assert statistics.interval_detectable_effect(1.0, 0.0) == pytest.approx(1 + 1.2816 / 1.6449, abs=1e-4)


def test_a_permutation_keeps_the_share_of_the_rows_of_sentences_that_stay():
    """Hits on the own reference alone: a total under a permutation is the rows that it leaves in place."""
    counts, blocks = np.array([1, 5, 2, 4]), blocks_of(np.zeros(4, int))
    table = np.diag(counts).astype(float).reshape(1, 16, 1)
    options = {"resamples": 100, "rng": np.random.default_rng(0)}
    (found,) = statistics.resample_tables([table], [counts], blocks, **options)
    np.testing.assert_allclose(found.in_place, found.permuted[:, 0] / counts.sum())
    assert len(set(found.in_place.round(6).tolist())) > 5


def test_a_subject_has_the_sentences_that_it_read_and_that_have_a_null():
    """A read 3 of 30 sentences with the same content, and one without a null; B's differ from sentence to sentence."""
    subject = ["A"] * 4 + ["B"] * 26
    own = np.concatenate([[1.0, 1, 1, 100], np.random.default_rng(0).normal(size=26)])[:, None]
    null = np.where(own == 100, np.nan, np.where(np.arange(30)[:, None] < 3, 0.25, 0.0))
    condition = types.SimpleNamespace(rows=[types.SimpleNamespace(subject=s) for s in subject], sentence=np.arange(30))
    options = {"resamples": 4000, "rng": np.random.default_rng(1)}
    first, second = subject_effects([condition], [RowTable(own, null)], total, **options)
    assert (first.subject, first.sentences, second.sentences) == ("A", 3, 26)
    assert (first.effect, *first.interval) == pytest.approx((2.25, 2.25, 2.25))
    expected = 2 * 1.96 * own[4:].std() * np.sqrt(26)
    assert second.interval[1] - second.interval[0] == pytest.approx(expected, rel=0.08)


def test_the_interval_of_a_gap_is_of_the_scores_and_not_of_their_nulls():
    pairs = random_pairs(np.random.default_rng(0), 12)
    pairs[:, np.arange(12), np.arange(12)] = 1
    found = compare([pairs], np.repeat([0, 1], 6), total, resamples=50, rng=np.random.default_rng(1))
    assert found.gap_interval == pytest.approx((12, 12))
    assert found.interval[0] < found.effect < found.interval[1]


def detectable_in_studies(spread, known):
    """Mean MDE of 100 studies, over the effect that nine of ten of them find.

    A study has 8 groups of 6 sentences. The effect differs between groups with the standard deviation `spread`, and
    between sentences with 1. It is found if its interval, which is of sentences, excludes 0.
    """
    labels, strata = np.repeat(range(8), 6), np.tile(range(6), 8)
    groups = [SampledGroups("class", labels, known)] if known else []
    studies = []
    for seed in range(100):
        rng = np.random.default_rng(seed)
        own = 2.5 + spread * rng.standard_normal(8)[labels] + rng.standard_normal(48)
        tables = 0.1 * rng.standard_normal((2, 48, 48)) - 10  # scores below 0 count no hits
        tables[0] += np.diag(own)
        studies.append(compare(tables[:, None, ..., None], strata, total, resamples=100, rng=rng, groups=groups))
    reach = np.mean([one.effect - one.interval_90[0] for one in studies])
    return np.mean([one.mde for one in studies]) / (reach + 1.2816 * np.std([one.effect for one in studies]))


def test_the_detectable_effect_counts_that_another_study_tests_other_groups():
    assert detectable_in_studies(spread=2.0, known=0) < 0.65
    assert detectable_in_studies(spread=2.0, known=1000) == pytest.approx(1, abs=0.1)
    assert 0.75 < detectable_in_studies(spread=2.0, known=16) < 0.85  # half of the groups would be tested again


def test_the_detectable_effect_does_not_grow_where_groups_differ_by_chance_or_all_are_tested():
    alone = detectable_in_studies(spread=0.0, known=0)
    assert detectable_in_studies(spread=0.0, known=1000) == pytest.approx(alone, rel=0.02)
    assert detectable_in_studies(spread=2.0, known=8) == detectable_in_studies(spread=2.0, known=0)
