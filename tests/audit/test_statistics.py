"""Cluster statistics against brute force and scipy."""

import itertools
import math
from collections import Counter

import numpy as np
import pytest
from rows import row
from scipy import stats

from eeg2text_jax.auditing import statistics
from eeg2text_jax.auditing.align import align
from eeg2text_jax.auditing.content_cells import content_tables
from eeg2text_jax.auditing.contrast import Contrast, contrast
from eeg2text_jax.auditing.endpoints import primary_endpoint
from eeg2text_jax.auditing.strata import blocks_of, length_strata, reader_groups


def total(summed):
    """A score that is the sum itself."""
    return summed[..., 0]


def ratio(summed):
    return summed[..., 0] / summed[..., 1]


def random_pairs(rng, size, k=1, seeds=1):
    return rng.random((seeds, size, size, k)) + 0.5


def cells_of(pairs, blocks):
    """Cells `[..., C, K]` of a full table `[..., S, S, K]`."""
    cells = np.zeros((*pairs.shape[:-3], blocks.n_cells, pairs.shape[-1]))
    for members, block in blocks.views(cells):
        for stratum, result in zip(members, np.moveaxis(block, -4, 0), strict=True):
            result[...] = pairs[..., stratum[:, None], stratum, :]
    return cells


def compare(tables, strata, score, *, resamples, rng, counts=None, groups=()) -> Contrast:
    """Contrast of full tables `[G, S, S, K]`, summed over `counts [G, S]` rows; one row a sentence by default."""
    blocks = blocks_of(strata)
    counts = np.ones(tables[0].shape[:2], int) if counts is None else counts
    sums = [cells_of(table, blocks) for table in tables]
    found = statistics.resample(sums, [counts] * len(tables), blocks, resamples=resamples, rng=rng)
    return contrast(found, score, groups)


def brute_null(pairs, strata):
    """Each reference against the other sentences of its stratum, a plain mean."""
    rows = []
    for t in range(len(strata)):
        others = [s for s in range(len(strata)) if s != t and strata[s] == strata[t]]
        rows.append(np.mean([pairs[s, t] for s in others], axis=0))
    return np.array(rows)


def shares(pairs, strata):
    blocks = blocks_of(strata)
    return statistics.null_shares(cells_of(pairs, blocks), blocks)


def test_content_null_never_holds_a_sentence_against_itself():
    rng = np.random.default_rng(0)
    strata = np.array([0, 1, 0, 1, 1, 0, 2, 2])
    pairs = random_pairs(rng, 8, 3)[0]
    np.testing.assert_allclose(shares(pairs, strata).sum(0), brute_null(pairs, strata).sum(0))
    changed = pairs.copy()
    changed[np.arange(8), np.arange(8)] = 1e6
    np.testing.assert_array_equal(shares(changed, strata), shares(pairs, strata))


def test_content_null_is_the_mean_over_assignments_without_fixed_points():
    """Every reference keeps its rows: with unequal ones, the mean over the derangements of a corpus written out."""
    rng = np.random.default_rng(11)
    counts = np.array([1, 4, 2, 3])
    means = rng.random((4, 4))
    corpora = [
        sum(counts[t] * means[s, t] for s, t in enumerate(order))
        for order in itertools.permutations(range(4))
        if all(s != t for s, t in enumerate(order))
    ]
    sums = means * counts[:, None]
    found = compare([sums[None, ..., None]], np.zeros(4, int), total, resamples=10, rng=rng, counts=counts[None])
    assert len(corpora) == 9
    assert found.nulls[0] == pytest.approx(np.mean(corpora))
    assert found.scores[0] == pytest.approx((counts * means.diagonal()).sum())


def test_merely_easy_predictions_and_references_have_no_content_in_any_sentence():
    rng = np.random.default_rng(12)
    row, column = rng.normal(size=(2, 20))
    pairs = (row[:, None] + column)[..., None]
    strata = np.repeat([0, 1, 2], [4, 6, 10])
    np.testing.assert_allclose(shares(pairs, strata), np.einsum("ssk->sk", pairs))


def test_content_null_shares_have_the_variance_of_the_statistic():
    """Over sets of random sentences the sd of the content is what the shares of one set say."""
    rng = np.random.default_rng(1)
    size, contents, predicted = 40, [], []
    strata = np.zeros(size, int)
    for _ in range(400):
        row, column = rng.normal(size=(2, size))  # easy predictions, easy references
        pairs = (row[:, None] + column + rng.normal(size=(size, size)))[..., None]
        difference = np.einsum("ssk->sk", pairs) - shares(pairs, strata)
        contents.append(difference.sum())
        predicted.append(difference.std(ddof=1) * np.sqrt(size))
    assert np.mean(predicted) == pytest.approx(np.std(contents), rel=0.1)


def test_permutations_stay_in_strata_and_are_uniform():
    strata = np.array([1, 0, 1, 0, 1, 2])
    blocks = blocks_of(strata)
    assert sorted(blocks.sentences.tolist()) == [0, 1, 2, 3, 4]  # the last one is alone in its stratum
    tables = np.indices((6, 6))[:, None, ..., None] + np.zeros((1, 1, 6, 6, 1))
    sentences, references = (cells_of(table, blocks)[0, :, 0] for table in tables)
    drawn = blocks.permuted(6000, np.random.default_rng(0))
    assert (sentences[drawn] == blocks.sentences).all()
    assert (strata[references[drawn].astype(int)] == strata[blocks.sentences]).all()
    assert (np.sort(references[drawn], 1) == np.arange(5)).all()
    _, counts = np.unique(drawn, axis=0, return_counts=True)
    assert len(counts) == 6 * 2
    assert stats.chisquare(counts).pvalue > 1e-3


def test_permutation_p_agrees_with_scipy():
    """One row per cluster, one stratum: the exact test over all pairings."""
    rng = np.random.default_rng(3)
    pairs = rng.normal(size=(7, 7))
    pairs[np.arange(7), np.arange(7)] += 0.8

    def statistic(order):
        return pairs[np.arange(7), order.astype(int)].sum()

    options = {"permutation_type": "pairings", "alternative": "greater", "n_resamples": 10**5}
    exact = stats.permutation_test((np.arange(7),), statistic, **options)
    found = compare([pairs[None, ..., None]], np.zeros(7, int), total, resamples=40_000, rng=np.random.default_rng(0))
    assert 0.005 < exact.pvalue < 0.5
    assert found.p == pytest.approx(exact.pvalue, abs=4 * np.sqrt(0.25 / 40_000))
    assert found.observed == pytest.approx(exact.statistic)


def test_bootstrap_interval_agrees_with_scipy():
    rng = np.random.default_rng(4)
    rows = rng.gamma(2.0, size=(60, 2))
    options = {"paired": True, "method": "percentile", "n_resamples": 20_000, "rng": np.random.default_rng(0)}
    result = stats.bootstrap(tuple(rows.T), lambda a, b, axis: a.sum(axis) / b.sum(axis), **options)
    totals = statistics.bootstrap_totals(rows[None, :, None], 20_000, np.random.default_rng(1))
    draws = np.concatenate([ratio(total[:, 0]) for total in totals])
    assert draws.std() == pytest.approx(result.standard_error, rel=0.03)
    interval = result.confidence_interval
    np.testing.assert_allclose(np.quantile(draws, [0.025, 0.975]), interval, atol=0.05 * draws.std() + 0.01)


def test_bootstrap_draws_seeds_as_a_level():
    """With sentences that do not vary, the sd over draws is that of a mean over seeds."""
    effects = np.array([1.0, 2.0, 4.0])
    rows = np.repeat(effects[:, None], 50, 1)[..., None, None] / 150  # [G, S, 1, 1]
    totals = statistics.bootstrap_totals(rows, 40_000, np.random.default_rng(0))
    draws = np.concatenate([total[:, 0, 0] for total in totals])
    assert draws.mean() == pytest.approx(effects.mean(), abs=0.02)
    assert draws.std() == pytest.approx(effects.std(ddof=1) / np.sqrt(3), rel=0.03)


def test_a_style_shift_moves_the_gap_and_not_the_effect():
    """EEG predictions match every reference better: the gap is all style, the content difference is 0."""
    rng = np.random.default_rng(5)
    control = random_pairs(rng, 30)
    strata = np.repeat(np.arange(5), 6)
    found = compare([control + 0.7, control], strata, total, resamples=500, rng=rng)
    assert found.observed == pytest.approx(30 * 0.7)
    assert found.effect == pytest.approx(0, abs=1e-9)
    assert found.p == found.p_less == 1.0  # every permuted difference is the same
    assert found.smallest_margin == pytest.approx(0, abs=1e-9)


def test_swapping_conditions_turns_the_effect_around():
    rng = np.random.default_rng(6)
    a, b = random_pairs(rng, 24), random_pairs(rng, 24)
    strata = np.repeat(np.arange(4), 6)
    one = compare([a, b], strata, total, resamples=400, rng=np.random.default_rng(1))
    other = compare([b, a], strata, total, resamples=400, rng=np.random.default_rng(1))
    assert one.effect == pytest.approx(-other.effect)
    assert one.p == pytest.approx(other.p_less)
    np.testing.assert_allclose(one.interval_90, -np.array(other.interval_90)[::-1])
    assert one.smallest_margin == pytest.approx(other.smallest_margin)


def test_minimum_detectable_effect_is_found_nine_times_in_ten():
    """Standard normal content in six strata of six: the permutation sd is sqrt(6 * 5), a sixth stays in place."""
    strata = np.repeat(np.arange(6), 6)
    expected = (1.6449 + 1.2816) * np.sqrt(30) * 6 / 5
    rng, found, both, test, printed = np.random.default_rng(7), 0, 0, [], []
    for _ in range(200):
        pairs = rng.normal(size=(1, 36, 36, 1))
        nothing = compare([pairs], strata, total, resamples=100, rng=rng)
        sd, in_place = nothing.permutation_sd, 1 / 6 + rng.normal(size=100) * 0.05
        test.append(statistics.minimum_detectable_effect(sd, in_place))
        printed.append(nothing.mde)
        diagonal = pairs[:, np.arange(36), np.arange(36)].copy()
        pairs[:, np.arange(36), np.arange(36)] = diagonal + expected / 36
        found += compare([pairs], strata, total, resamples=199, rng=rng).p <= 0.05
        pairs[:, np.arange(36), np.arange(36)] = diagonal + nothing.mde / 36
        again = compare([pairs], strata, total, resamples=199, rng=rng)
        both += again.p <= 0.05 and again.interval_90[0] > 0
    assert np.mean(test) == pytest.approx(expected, rel=0.03)
    assert found / 200 == pytest.approx(0.9, abs=0.06)
    assert expected <= np.mean(printed) < 1.2 * expected  # the interval has to exclude 0, too
    assert both / 200 == pytest.approx(0.92, abs=0.06)


def test_power_at_the_detectable_effect_of_rare_hits():
    """Two of a hundred words are right by chance: content adds hits, and with each hit variance."""
    strata, rng = np.repeat(np.arange(4), 30), np.random.default_rng(11)
    printed, found = [], []
    for _ in range(150):
        pairs = (rng.random((1, 120, 120, 1)) < 0.02).astype(float)
        nothing = compare([pairs], strata, total, resamples=150, rng=rng)
        printed.append(nothing.mde)
        pairs[:, np.arange(120), np.arange(120), 0] += rng.random((1, 120)) < np.mean(printed) / 120
        again = compare([pairs], strata, total, resamples=150, rng=rng)
        found.append(again.p <= 0.05 and again.interval_90[0] > 0)
    dense = (1.6449 + 1.2816) * np.sqrt(120 * 0.02 * 0.98)  # as if the variance stayed
    assert np.mean(printed) > 1.3 * dense
    assert 0.85 <= np.mean(found) <= 0.96


def test_no_effect_is_detectable_where_too_much_stays_in_place():
    assert statistics.minimum_detectable_effect(1.0, np.repeat([0.0, 1.0], [90, 10])) == float("inf")


def test_scores_that_nothing_can_change_exclude_nothing():
    """All scores 0: no margin passes. A sentence's table may vary as long as the score does."""
    nothing = np.zeros((1, 12, 12, 1))
    found = compare([nothing, nothing], np.repeat([0, 1], 6), total, resamples=100, rng=np.random.default_rng(0))
    assert (found.smallest_margin, found.mde, found.p, found.varies) == (np.inf, np.inf, 1.0, False)


def test_seed_p_is_a_one_sided_t_test():
    effects = np.array([0.3, 1.1, 0.7, 0.2])
    expected = stats.ttest_1samp(effects, 0, alternative="greater").pvalue
    assert statistics.seed_p_value(effects) == pytest.approx(expected)
    assert statistics.seed_p_value(np.array([1.0, 1.0, 1.0])) == 0.0
    assert statistics.seed_p_value(np.zeros(3)) == 1.0


def test_seed_detectable_effect_has_its_power():
    rng = np.random.default_rng(8)
    effects = rng.normal(size=5)
    detectable = statistics.seed_detectable_effect(effects)
    sets = rng.normal(detectable, effects.std(ddof=1), size=(4000, 5))
    power = np.mean(stats.ttest_1samp(sets, 0, axis=1, alternative="greater").pvalue <= 0.05)
    assert power == pytest.approx(0.9, abs=0.02)


def test_holm():
    adjusted = statistics.holm(np.array([0.01, 0.04, 0.03, 0.005]))
    np.testing.assert_allclose(adjusted, [0.03, 0.06, 0.06, 0.02])


def test_design_effect_counts_copies():
    rng = np.random.default_rng(9)
    rows = rng.random((200, 2)) + 1
    clusters = np.arange(200)
    alone = statistics.design_effect(ratio, rows, clusters)
    assert alone == pytest.approx(1)
    copies = statistics.design_effect(ratio, np.repeat(rows, 4, 0), np.repeat(clusters, 4))
    assert copies == pytest.approx(4)


def test_gradient_of_a_ratio():
    np.testing.assert_allclose(statistics.gradient(ratio, np.array([3.0, 2.0])), [1 / 2, -3 / 4], rtol=1e-6)


def test_p_value_counts_ties_and_the_observed_one():
    assert statistics.p_value(1.0, np.array([0.0, 1.0, 1.0 + 1e-12, 2.0])) == 4 / 5


def test_strata_hold_one_task_and_neighbouring_lengths():
    rng = np.random.default_rng(10)
    tasks = rng.choice(["NR", "SR", "TSR"], size=100)
    lengths = rng.integers(4, 40, size=100)
    strata = length_strata(tasks.tolist(), lengths, 6)
    sizes = np.bincount(strata)
    assert sizes.min() >= 6
    assert sizes.max() <= 11
    spans = {}
    for stratum in range(len(sizes)):
        members = strata == stratum
        assert len(set(tasks[members])) == 1
        spans.setdefault(tasks[members][0], []).append((lengths[members].min(), lengths[members].max()))
    for found in spans.values():  # groups of a task follow each other and do not interleave
        found.sort()
        assert all(a[1] <= b[0] for a, b in itertools.pairwise(found))


def corpus_bleu_1(pairs):
    """BLEU-1 of weighted (weight, prediction, reference) by counting, as a fraction of 100."""
    matched = sum(w * sum((Counter(p.split()) & Counter(r.split())).values()) for w, p, r in pairs)
    said = sum(w * len(p.split()) for w, p, _ in pairs)
    wanted = sum(w * len(r.split()) for w, _, r in pairs)
    return 100 * matched / said * math.exp(min(0.0, 1 - wanted / said))


def test_p_with_unequal_rows_agrees_with_an_enumeration_of_all_assignments():
    """Every reference keeps its rows: all 4! x 3! assignments of two strata, each corpus written out as text."""
    rng = np.random.default_rng(3)
    vocabulary = [f"w{i}" for i in range(12)]
    texts = [" ".join(rng.choice(vocabulary[:9] if i < 4 else vocabulary[3:], 7)) for i in range(7)]
    counts, strata = [1, 7, 2, 4, 9, 1, 3], [0, 0, 0, 0, 1, 1, 1]
    sides = ("eeg", "control")
    said = {side: [[" ".join(rng.choice(vocabulary, 6)) for _ in range(n)] for n in counts] for side in sides}
    words = {text: " ".join(text.split()) for text in texts}

    def gap(order):
        scores = []
        for side in ("eeg", "control"):
            pairs = [
                (counts[t] / counts[s], prediction, words[texts[t]])
                for s, t in enumerate(order)
                for prediction in said[side][s]
            ]
            scores.append(corpus_bleu_1(pairs))
        return scores[0] - scores[1]

    orders = [(*a, *b) for a in itertools.permutations(range(4)) for b in itertools.permutations(range(4, 7))]
    gaps = np.array([gap(order) for order in orders])
    exact = np.mean(gaps >= gap(tuple(range(7))) - 1e-9)
    rows = {
        side: [
            row(r, subject="", reference=texts[s], prediction=p, sample_id=f"{s} {r}", n_words=s // 4)
            for s in range(7)
            for r, p in enumerate(said[side][s])
        ]
        for side in said
    }
    aligned = align(rows, stratum_size=3)
    order = [texts.index(text) for text in aligned.references]
    assert [strata[i] for i in order] == aligned.strata.tolist()
    options = {"resamples": 40_000, "rng": np.random.default_rng(0)}
    tables = content_tables(aligned, aligned.strata, primary_endpoint().metric, **options)
    found = contrast([table.sampled for table in tables], primary_endpoint().score)
    assert found.observed == pytest.approx(gap(tuple(range(7))))
    assert 0.01 < exact < 0.6
    assert found.p == pytest.approx(exact, abs=4 * np.sqrt(exact * (1 - exact) / 40_000))


def test_references_keep_their_rows_where_those_go_with_the_kind_of_sentence():
    """Outputs that hold nothing, rows that go with an easy kind of sentence: at most one set in twenty is significant.

    With rows that travel with the predictions 20 of 60 sets and more are.
    """
    easy = np.arange(30) % 2 == 1
    counts = np.where(easy, 18, 9)[None]
    kept, travelling = 0, 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        match = (0.2 + 0.3 * easy) * np.ones((30, 1)) + 0.02 * rng.normal(size=(30, 30))
        eeg = np.stack([match, np.ones((30, 30))], -1)[None] * counts[..., None, None]
        options = {"resamples": 199, "rng": rng}
        kept += compare([eeg], np.repeat(range(5), 6), ratio, counts=counts, **options).p <= 0.05
        travelling += compare([eeg], np.repeat(range(5), 6), ratio, counts=np.ones_like(counts), **options).p <= 0.05
    assert kept <= 7
    assert travelling >= 50


def test_a_seed_without_a_sentence_borrows_the_other_seeds_predictions():
    """References keep their rows in every seed; the diagonal is the corpus as it is."""
    blocks = blocks_of(np.zeros(3, int))
    counts = np.array([[2, 0, 1], [1, 3, 1]])
    sums = np.arange(18.0).reshape(2, 9, 1) * np.repeat(counts, 3, axis=1)[..., None]  # means 0..8, 9..17
    kept = statistics.keep_row_counts(sums, counts, blocks).reshape(2, 3, 3)
    assert kept[0, 1].tolist() == [12 * 2, 13 * 0, 14 * 1]  # seed 0 has no row of sentence 1: seed 1's means
    assert kept[0, 0].tolist() == [0 * 2, 1 * 0, 2 * 1]
    np.testing.assert_allclose(kept[:, [0, 1, 2], [0, 1, 2]], sums.reshape(2, 3, 3)[:, [0, 1, 2], [0, 1, 2]])


def test_sentences_go_with_those_of_the_same_readers():
    sentence = np.repeat(np.arange(12), 3)
    subject = np.tile([0, 1, 2], 12) + 10 * (sentence % 2)
    groups = reader_groups(sentence, subject, 6)
    assert (groups == groups[0]).tolist() == [True, False] * 6
    assert not reader_groups(sentence, np.tile([0, 1, 2], 12), 6).any()
    assert not reader_groups(sentence, subject, 7).any()  # too few of a kind
    few = np.repeat(np.arange(16), 3)
    others = np.tile([0, 1, 2], 16) + 10 * (few >= 12)
    assert not reader_groups(few, others, 6).any()  # too few of one kind
    some = np.arange(36) % 7 != 0  # recordings that are missing part nobody
    np.testing.assert_array_equal(reader_groups(sentence[some], subject[some], 6), groups)
