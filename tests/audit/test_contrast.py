"""Statistics on tables of scores, by all pairings of small tables, by scipy, by simulation; who carries an effect."""

import itertools

import numpy as np
import pytest
from rows import changed, edited, simulated_rows
from scipy import stats

from eeg2text_jax.instrument.auditing.align import align
from eeg2text_jax.instrument.auditing.audit import audit
from eeg2text_jax.instrument.auditing.table import Cells
from eeg2text_jax.instrument.auditing.verdict import (
    Strata,
    carriers,
    contrast,
    holm,
    seed_mde,
    seed_noise,
    seed_p,
    variance_growth,
    verdict_mde,
)

Z95 = stats.norm.ppf(0.95)


def cells(*blocks):
    nothing = np.zeros(0)
    return Cells(tuple(blocks), nothing, nothing)


def strata_of(*sizes):
    return Strata(np.split(np.arange(sum(sizes)), np.cumsum(sizes)[:-1]))


def blocks_of(rng, *sizes, content=0.0):
    """Tables with easy predictions, easy references and `content` on the diagonal."""
    return [rng.normal(size=(n, n)) + rng.normal(size=(n, 1)) + rng.normal(size=n) + content * np.eye(n) for n in sizes]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("sizes", [(7,), (5, 3), (4, 2, 3)])
def test_content_spread_and_p_are_those_of_all_pairings(sizes, seed):
    """The effect is the mean score less that against others; under all pairings its mean is 0 and its sd is `sd`."""
    rng = np.random.default_rng(seed)
    eeg, control = (blocks_of(rng, *sizes, content=c) for c in (seed / 2, 0))
    found = contrast(strata_of(*sizes), cells(*eeg), cells(*control))
    tables, size = [a - b for a, b in zip(eeg, control, strict=True)], sum(sizes)

    def effect(pairing):
        total = 0
        for table, order in zip(tables, pairing, strict=True):
            for s, t in enumerate(order):
                total += table[s, t] - np.delete(table[s], t).mean()
        return total / size

    every = list(itertools.product(*(itertools.permutations(range(n)) for n in sizes)))
    effects = np.array([effect(pairing) for pairing in every])
    observed = effect([range(n) for n in sizes])
    assert found.effect == pytest.approx(observed)
    assert found.content.mean() == pytest.approx(observed)
    assert effects.mean() == pytest.approx(0, abs=1e-9)
    assert found.sd == pytest.approx(effects.std())
    exact = np.mean(effects >= observed - 1e-9)
    assert found.p == pytest.approx(exact, abs=4 * np.sqrt(exact * (1 - exact) / 1e4) + 2e-4)
    assert found.p_less == pytest.approx(np.mean(effects <= observed + 1e-9), abs=0.02)
    scores = [np.concatenate([np.diag(b) for b in blocks]).mean() for blocks in (eeg, control)]
    assert found.scores == pytest.approx(scores)
    assert (found.scores[0] - found.nulls[0]) - (found.scores[1] - found.nulls[1]) == pytest.approx(observed)


def test_p_is_that_of_scipy_s_permutation_test():
    table = blocks_of(np.random.default_rng(9), 7, content=1)[0]
    exact = stats.permutation_test(
        (np.arange(7),),
        lambda order: table[np.arange(7), np.asarray(order, int)].sum(),
        permutation_type="pairings",
        n_resamples=np.inf,
        alternative="greater",
        vectorized=False,
    )
    found = contrast(strata_of(7), cells(table))
    assert found.p == pytest.approx(exact.pvalue, abs=4 * np.sqrt(exact.pvalue / 1e4) + 2e-4)


def test_easy_predictions_and_easy_references_are_no_content():
    rng = np.random.default_rng(1)
    flat = rng.normal(size=(9, 1)) * 10 + rng.normal(size=9) * 10
    found = contrast(strata_of(9), cells(flat))
    assert found.effect == pytest.approx(0)
    assert not found.varies
    assert (found.p, found.p_less, found.above, found.below) == (1, 1, False, False)


def test_many_sentences_need_no_draws():
    rng = np.random.default_rng(2)
    blocks = blocks_of(rng, *[100] * 11, content=0.05)
    found = contrast(strata_of(*[100] * 11), cells(*blocks))
    assert found.p == pytest.approx(stats.norm.sf(found.effect / found.sd))
    few = contrast(strata_of(*[100] * 10), cells(*blocks[:10]))
    assert few.p == pytest.approx(stats.norm.sf(few.effect / few.sd), abs=0.02)


def test_the_interval_covers_the_truth_at_its_level():
    rng, hits = np.random.default_rng(5), 0
    for _ in range(400):
        low, high = contrast(strata_of(20, 20), cells(*blocks_of(rng, 20, 20, content=1))).interval()
        hits += low <= 1 <= high
    assert 0.86 < hits / 400 < 0.94


def counted(rng, sizes, unit, mean, controls=0):
    """Tables of an EEG whose content is a Poisson number of hits of `unit` points a sentence, and of controls."""
    eeg = blocks_of(rng, *sizes)
    for block in eeg:
        block += np.diag(unit * rng.poisson(mean / unit, size=len(block)))
    return eeg, [blocks_of(rng, *sizes) for _ in range(controls)]


@pytest.mark.parametrize("controls", [0, 3])
def test_power_at_the_detectable_effect_is_that_which_is_promised(controls):
    """Hits are counts, so their variance grows with them: without this growth the power is far too small."""
    rng, sizes, unit = np.random.default_rng(7), (15, 15), 12.0
    strata, growth = strata_of(*sizes), unit / 30

    def study(mean):
        eeg, others = counted(rng, sizes, unit, mean, controls)
        own = contrast(strata, cells(*eeg), growth=growth)
        return [own, *(contrast(strata, cells(*eeg), cells(*other), growth=growth) for other in others)]

    null = [study(0.0) for _ in range(5)]
    detectable = np.mean([verdict_mde(found, growth) for found in null])
    power = np.mean([all(c.above for c in study(detectable)) for _ in range(150)])
    assert 0.82 <= power <= 0.98


@pytest.mark.parametrize("growth", [0.0, 0.3])
def test_all_controls_together_are_harder_to_beat_than_each(growth):
    rng = np.random.default_rng(8)
    strata, eeg = strata_of(40), blocks_of(rng, 40)
    pairs = [contrast(strata, cells(*eeg), cells(*blocks_of(rng, 40)), growth=growth) for _ in range(5)]
    detectable = [verdict_mde(pairs[:k], growth) for k in (1, 3, 5)]
    assert detectable[0] == pytest.approx(pairs[0].mde)
    assert detectable[0] < detectable[1] < detectable[2]
    parts = [np.concatenate([block.ravel() for block in pair.centred]) for pair in pairs]
    covariance = np.array([[(a * b).sum() / 39 for a in parts] for b in parts]) / 40**2 + growth * detectable[2]
    drawn = np.random.default_rng(1).multivariate_normal(np.full(5, detectable[2]), covariance, size=20_000)
    assert np.mean((drawn > Z95 * np.sqrt(np.diag(covariance))).all(1)) == pytest.approx(0.9, abs=0.01)


def test_the_growth_counts_different_predictions_of_a_sentence():
    eeg, _ = simulated_rows(sentences=30, subjects=3)
    aligned = align({"eeg": eeg})
    kept = np.arange(30)
    found = variance_growth(aligned.eeg, aligned.n_words, kept, 100.0)
    assert found == pytest.approx(np.mean(100 / aligned.n_words / 3) / 30)
    same = align({"eeg": changed(eeg, prediction="the same")})
    assert variance_growth(same.eeg, same.n_words, kept, 100.0) == pytest.approx(3 * found)


def test_seeds_are_tested_as_scipy_does():
    effects = np.array([0.4, 1.1, 0.2, 0.7])
    assert seed_p(effects) == pytest.approx(stats.ttest_1samp(effects, 0, alternative="greater").pvalue)
    assert seed_p(-effects) == pytest.approx(1 - seed_p(effects))
    assert (seed_p(np.ones(3)), seed_p(-np.ones(3))) == (0, 1)
    spread = effects.std(ddof=1)
    drawn = np.random.default_rng(0).normal(seed_mde(effects), spread, size=(4000, 4))
    power = np.mean(stats.ttest_1samp(drawn, 0, axis=1, alternative="greater").pvalue <= 0.05)
    assert power == pytest.approx(0.9, abs=0.02)


def test_three_seeds_are_a_level_and_two_are_not():
    blocks = blocks_of(np.random.default_rng(1), 30, content=2)
    plain = contrast(strata_of(30), cells(*blocks))
    two = contrast(strata_of(30), cells(*blocks), seeds=np.array([0.0, 4.0]))
    assert (two.p_seeds, two.se, two.decisive_p) == (None, plain.se, plain.p)
    seeds = np.array([0.0, 2.0, 4.0])
    three = contrast(strata_of(30), cells(*blocks), seeds=seeds)
    assert three.se == pytest.approx(np.sqrt(plain.se**2 + seeds.var(ddof=1) / 3))
    assert three.decisive_p == three.p_seeds > 0.05 > plain.p
    assert (plain.above, three.above) == (True, False)
    assert three.mde == verdict_mde([three, plain], 0.0) == seed_mde(seeds) > plain.mde
    less = [-block for block in blocks]
    assert contrast(strata_of(30), cells(*less)).below
    for alike, effects in ((False, -seeds), (True, np.array([-1.9, -2.0, -2.1])), (False, np.array([1.9, 2.0, 2.1]))):
        found = contrast(strata_of(30), cells(*less), seeds=effects)
        assert (found.below, found.above) == (alike, False), "seeds that contradict a claim of less content bar it"


def test_the_spread_of_seeds_that_sentences_explain_is_not_counted_twice():
    """Each seed's effect varies by the noise of its sentences, which is in the error over sentences already."""
    rng, effect, spread = np.random.default_rng(4), np.array([1.0, -1.0, 3.0, 0.0]), 2.0
    drawn = [seed_noise(effect[:, None] + rng.normal(0, spread, (4, 50)) + rng.normal(size=50)) for _ in range(400)]
    assert np.mean(drawn) == pytest.approx(spread**2 / 50, rel=0.03)
    blocks, seeds = blocks_of(np.random.default_rng(0), 30, content=2.0), np.array([0.0, 2.0, 4.0])
    plain = contrast(strata_of(30), cells(*blocks))
    for noise, left in ((1.5, 2.5), (9.0, 0.0)):
        found = contrast(strata_of(30), cells(*blocks), seeds=seeds, seed_noise=noise)
        assert found.se == pytest.approx(np.sqrt(plain.se**2 + left / 3))


@pytest.mark.parametrize("seed", range(3))
def test_holm_is_the_closed_test_of_bonferroni(seed):
    """Adjusted p of a hypothesis: the largest Bonferroni p of all sets of hypotheses that contain it."""
    p = np.random.default_rng(seed).random(5) ** 3
    subsets = [s for k in range(1, 6) for s in itertools.combinations(range(5), k)]
    closed = [max(min(1, len(s) * p[list(s)].min()) for s in subsets if i in s) for i in range(5)]
    assert holm(p) == pytest.approx(closed)


def test_outliers_on_both_sides_carry_nothing():
    values = np.ones(200)
    values[:4], values[4:8] = 40.0, -40.0
    whole = contrast(strata_of(200), cells(np.diag(values)))
    assert carriers(whole, [], strata_of(200), {}) == []
    values[:4], values[4:8] = 100.0, 1.0
    (found,) = carriers(contrast(strata_of(200), cells(np.diag(values))), [], strata_of(200), {})
    assert found.name == "4 of 200 sentences"
    assert found.left == pytest.approx(1.0, abs=0.02)


@pytest.mark.parametrize(("noise", "named"), [(0.0, ["kind a"]), (20.0, [])])
def test_a_group_carries_an_effect_only_if_the_others_surely_have_less(noise, named):
    values = np.tile([noise, -noise], 10)
    values[:4] = 10.0
    whole, labels = contrast(strata_of(20), cells(np.diag(values))), np.array(list("aaaa" + "b" * 16))
    assert [found.name for found in carriers(whole, [], strata_of(20), {"kind": labels})] == named


def test_what_is_left_without_a_group_is_the_content_of_the_others_alone():
    rng = np.random.default_rng(1)
    blocks, labels = blocks_of(rng, 9, 11), np.array(list("ab" * 10))
    for block, of in zip(blocks, (labels[:9], labels[9:]), strict=True):
        block[np.diag_indices(len(block))] += 30.0 * (of == "a")
    (found,) = carriers(contrast(strata_of(9, 11), cells(*blocks)), [], strata_of(9, 11), {"kind": labels})
    others = [block[np.ix_(of == "b", of == "b")] for block, of in zip(blocks, (labels[:9], labels[9:]), strict=True)]
    assert found.name == "kind a"
    assert found.left == pytest.approx(contrast(strata_of(*map(len, others)), cells(*others)).effect)


def of_few(chosen, share=1.0, subjects=8, seed=0):
    """Rows of noise, in which those that are `chosen` have most of their words."""
    eeg, noise = simulated_rows(seed, sentences=112, subjects=subjects)
    words = edited(eeg, lambda r, g: " ".join(g.choice(r.reference.split()) for _ in range(12)), share)
    return [b if chosen(a) else a for a, b in zip(eeg, words, strict=True)], noise


def sides(pair):
    return pair[0], {"noise": pair[1]}


def carried(eeg, noise, **options):
    return [carrier.name for carrier in audit(eeg, {"noise": noise}, **options).verdict.carriers]


def test_a_reader_who_holds_all_content_is_named_and_two_who_share_it_are_not():
    found = audit(*sides(of_few(lambda r: r.subject == "subject 3")))
    assert [c.name for c in found.verdict.carriers] == ["reader subject 3"]
    assert abs(found.verdict.carriers[0].left) < 1
    assert found.verdict.value == "uses EEG: carried by reader subject 3"
    assert found.limits[0].startswith("Carried by reader subject 3: without it ")
    assert carried(*of_few(lambda r: r.subject in ("subject 3", "subject 5"))) == []
    assert carried(*of_few(lambda r: True, share=0.2)) == []


@pytest.mark.parametrize("seed", range(5))
def test_three_sentences_of_112_that_were_decoded_are_named_or_not_claimed(seed):
    """Never are they called equivalent: content that is not spread is not bounded by the margin."""
    found = audit(*sides(of_few(lambda r: r.sentence_id in ("s5", "s40", "s90"), subjects=3, seed=seed)))
    assert found.verdict.base in ("uses EEG", "underpowered", "no content found above its null")
    names = ["3 of 112 sentences"] if found.verdict.base == "uses EEG" else []
    assert [c.name for c in found.verdict.carriers] == names
    assert seed not in (2, 3) or names


def test_the_sentences_that_a_reader_read_alone_are_gone_without_this_reader():
    """Seven of ten sentences have one reader, the others another one, and all have the same content."""
    eeg, noise = simulated_rows(sentences=60, subjects=1, information=0.6)
    eeg, noise = (
        changed(rows, subject=lambda r: "A" if int(r.sentence_id[1:]) % 10 < 7 else "B") for rows in (eeg, noise)
    )
    assert carried(eeg, noise) == []


def test_a_group_that_holds_all_content_is_named():
    groups = {f"s{i}": f"topic {i % 4}" for i in range(112)}
    eeg, noise = of_few(lambda r: groups[r.sentence_id] == "topic 2", share=0.4, subjects=2)
    topics = {r.reference: groups[r.sentence_id] for r in eeg}
    assert carried(eeg, noise, groups={"topic": topics}) == ["topic topic 2"]


def test_nobody_carries_what_was_not_found():
    assert carried(*of_few(lambda r: False, subjects=3)) == []
