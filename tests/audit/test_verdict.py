"""Verdict, interval, p and sentence never contradict each other: over made-up figures, and over random sets."""

import dataclasses
import math
import re
import types

import numpy as np
import pytest
from rows import changed, simulated_rows
from test_auditing import found as figures

from eeg2text_jax.auditing.audit import audit
from eeg2text_jax.auditing.compare import decide
from eeg2text_jax.auditing.contrast import Contrast, Evidence
from eeg2text_jax.auditing.endpoints import primary_endpoint
from eeg2text_jax.auditing.guessed_strata import EQUAL_LENGTHS
from eeg2text_jax.auditing.provenance import Level, Provenance, joined
from eeg2text_jax.auditing.result import EFFECT_HEADINGS, directed_p, effect_rows, result_text
from eeg2text_jax.auditing.text_table import TextTable
from eeg2text_jax.auditing.verdict import (
    EXIT_STATUS,
    Comparison,
    Verdict,
    alone_reading,
    both_p,
    judge,
    judge_alone,
    p_text,
    paired_reading,
    uncountable,
    verdict_mde,
)

CLAIMS = {  # what only the sentence of this verdict may say
    Verdict.USES_EEG: "the model uses the EEG",
    Verdict.BELOW_MARGIN: "but by less than the margin",
    Verdict.EQUIVALENT: "equivalent to noise within",
    Verdict.CONTROL_BETTER: "which speaks against eeg and not for noise",
    Verdict.UNDERPOWERED: "neither a difference nor equivalence",
    Verdict.CONTENT: "the file holds content",
    Verdict.NO_CONTENT: "the file shows no content",
    Verdict.NOT_JUDGEABLE: "Not judgeable: ",
    Verdict.UNPROVEN: "there is content of unproven origin",
}
NUMBER = r"([+-]?\d+\.\d\d)"


def made_up(rng):
    """Figures as a test might give them, near the bounds that decide."""
    effect = rng.normal(0, 1.5)
    low, high = effect - rng.gamma(2.0, 0.4), effect + rng.gamma(2.0, 0.4)
    p = rng.choice([rng.uniform(0, 0.1), rng.uniform(0.9, 1), rng.random()])
    values = dict.fromkeys((field.name for field in dataclasses.fields(Contrast)), 0.0)
    values |= {"effect": effect, "p": p, "p_less": min(1.0, 1 - p + 0.01), "interval_90": (low, high)}
    values |= {"interval": (low - 0.2, high + 0.2), "smallest_margin": max(-low, high)}
    values["mde"] = rng.choice([0.4, math.inf])
    values |= {"scores": (15.0, 14.0), "nulls": (14.0, 14.0), "permutation_sd": 0.3, "seed_effects": (effect,)}
    if rng.random() < 0.3:
        values |= {"p_seeds": rng.random(), "seed_effects": (effect,) * 3}
    return Contrast(**values | {"p_seeds": values["p_seeds"] or None})


def check(verdict, sentence, found, margin):
    """`found` are the figures under every kind of strata, the first of them printed."""
    for other, claim in CLAIMS.items():
        assert (claim in sentence) == (other is verdict), (verdict, claim, sentence)
    if verdict in (Verdict.USES_EEG, Verdict.BELOW_MARGIN, Verdict.CONTENT):
        assert all(c.p_primary <= 0.05 and c.effect > 0 and c.interval_90[0] > 0 for c in found)
    if verdict is Verdict.CONTROL_BETTER:
        assert all(c.p_less_primary <= 0.05 and c.effect < 0 and c.interval_90[1] < 0 for c in found)
        assert p_text(found[0].p) not in sentence or found[0].p == found[0].p_less
    if verdict in (Verdict.BELOW_MARGIN, Verdict.EQUIVALENT):
        assert all(-margin < c.interval_90[0] and c.interval_90[1] < margin for c in found)
    if verdict in (Verdict.USES_EEG, Verdict.UNDERPOWERED):
        assert not all(-margin < c.interval_90[0] and c.interval_90[1] < margin for c in found)
    if verdict in (Verdict.UNDERPOWERED, Verdict.NO_CONTENT) and found[0].p_primary <= 0.05:
        assert "claimed" in sentence
    assert "outputs of both are the same" not in sentence, "their smallest margin is a number"
    low, high = (float(value) for value in re.search(rf"90 % CI {NUMBER} to {NUMBER}", sentence).groups())
    effect = float(re.search(rf"(?:\) was|difference of) {NUMBER} \(90 % CI", sentence)[1])
    assert (low, high, effect) == pytest.approx((*found[0].interval_90, found[0].effect), abs=0.006)
    assert low <= effect <= high


def test_made_up_figures():
    rng, seen = np.random.default_rng(0), set()
    eeg, words = types.SimpleNamespace(name="eeg", rows=range(1000)), primary_endpoint()
    for _ in range(3000):
        primary = made_up(rng)
        derived = {"order": made_up(rng), "texts": made_up(rng)} if rng.random() < 0.5 else {}
        margin, others, found = rng.choice([0.5, 1.0, 2.0]), list(derived.values()), [primary, *derived.values()]
        verdict = judge(primary, margin, others)
        aligned = types.SimpleNamespace(eeg=eeg, references=range(100), task_known=not derived)
        table = TextTable(aligned, words, words, ())
        figures = table.in_figures(Evidence("noise", primary, derived, [], []), verdict)
        control = {"eeg": "eeg", "control": "noise", "p_control": rng.random(), "margin": margin}
        check(verdict, f"{figures}: {paired_reading(verdict, primary, others, **control)}.", found, margin)
        assert ("equal task and length" in figures) == (not derived)
        alone = judge_alone(primary, margin, others)
        text = table.in_figures(Evidence("", primary, derived, [], []), alone)
        check(alone, f"{text}: {alone_reading(alone, primary, others, margin)}.", found, margin)
        seen |= {verdict, alone}
    assert seen == set(Verdict) - {Verdict.NOT_JUDGEABLE, Verdict.UNPROVEN}


def random_set(rng):
    """Sides of a set and its margin: any dial, some tasks unknown, some rows missing on both sides."""
    dials = {
        "information": rng.choice([0, 0, 0.02, 0.05, 0.15]),
        "control_information": rng.choice([0, 0, 0.05]),
        "style_shift": rng.choice([0, 0.4]),
        "eeg_length_leak": rng.choice([0, 0.2]),
        "seeds": int(rng.choice([1, 1, 3])),
        "sentences": int(rng.choice([26, 31, 45])),
    }
    sides = simulated_rows(int(rng.integers(10**6)), subjects=2, **dials)
    if rng.random() < 0.5:
        sides = [changed(rows, task="") for rows in sides]
    kept = rng.random(len(sides[0])) < 0.8
    return [[r for r, keep in zip(rows, kept, strict=True) if keep] for rows in sides], rng.choice([0.5, 2.0, 6.0])


def test_random_sets():
    rng, seen = np.random.default_rng(1), set()
    for number in range(16):
        (eeg, noise), margin = random_set(rng)
        controls = {"noise": noise} if number % 4 else {}
        result = audit(eeg, controls, margin=margin, resamples=100, proof="the test planted all of it, no target")
        found = [result.comparisons[0].primary, *result.comparisons[0].derived.values()]
        check(result.verdict, result.sentence, found, margin)
        assert result.exit_status == EXIT_STATUS[result.verdict]
        assert result_text(result).endswith(f"{result.sentence}\nVERDICT: {result.verdict.value}")
        assert effect_rows(result.comparisons)[0][-1] == result.verdict.value
        again = result.comparisons[0].derived.keys() - {EQUAL_LENGTHS}  # that one where a length leaks
        assert len(again) == (3 if not eeg[0].task else 0)
        assert ("equal task and length" in result.sentence) == bool(eeg[0].task)
        assert (result.verdict is Verdict.NOT_JUDGEABLE) == any(f.level == "severe" for f in result.flags)
        seen.add(result.verdict)
    assert len(seen) >= 4


def test_a_constant_text_against_a_control_is_said_to_be_one():
    """Its own content cannot differ from 0, whatever the figures of the difference are."""
    eeg, noise = simulated_rows(sentences=60, subjects=3, information=0.0, seed=1)
    found = audit(changed(eeg, prediction=noise[0].prediction), {"noise": noise}, resamples=200)
    assert found.verdict is Verdict.UNDERPOWERED
    assert "eeg: the outputs do not depend on the sentence" in found.sentence
    assert "smallest margin" not in found.sentence


def test_a_claimed_difference_has_no_margin_of_equivalence():
    eeg, noise = simulated_rows(sentences=60, subjects=3, information=0.5, seed=1)
    (row,) = effect_rows(audit(eeg, {"noise": noise}, resamples=200).comparisons)
    assert row[-2:] == ("–", "uses EEG")


MORE, LITTLE, NONE = figures(1.5, 0.01, (0.6, 2.4)), figures(0.5, 0.01, (0.1, 0.9)), figures(0.1, 0.4, (-0.5, 0.7))
LESS = figures(-1.5, 0.99, (-2.4, -0.6))


def decided(primary, own, own_derived=None, *, levels=(), p_control=0.4):
    """The comparison with a control whose content is significant in the first strata, but not in all (`p_control`)."""
    words = {"in_figures": lambda *_: "figures", "content_is_about": lambda *_: "of its kind"}
    table = types.SimpleNamespace(same_predictions=lambda _: False, **words)
    conditions = [
        types.SimpleNamespace(name="eeg", content=own, derived=own_derived or {}, p=own.p_primary),
        types.SimpleNamespace(name="noise", content=MORE, derived={}, p=p_control),
    ]
    origin, evidence = Provenance(Level.DECODED_HERE, "known"), Evidence("noise", primary, {}, [], [])
    return decide(evidence, [], table, conditions, 1.0, origin, {}, levels)


@pytest.mark.parametrize(
    ("primary", "own", "own_derived", "verdict"),
    [
        (MORE, MORE, {"order": MORE}, Verdict.USES_EEG),
        (MORE, MORE, {"order": NONE}, Verdict.NO_CONTENT),
        (MORE, NONE, {}, Verdict.NO_CONTENT),
        (LITTLE, NONE, {}, Verdict.NO_CONTENT),
        (NONE, dataclasses.replace(NONE, permutation_sd=0.0), {}, Verdict.UNDERPOWERED),
    ],
)
def test_eeg_must_beat_its_own_null_in_all_strata_whatever_it_is_held_against(primary, own, own_derived, verdict):
    assert decided(primary, own, own_derived).verdict is verdict


def test_content_below_the_margin_says_what_it_is_about_where_groups_are_given():
    assert decided(LITTLE, MORE, levels=["a level"]).reading.endswith("of its kind")
    assert not decided(LITTLE, MORE).reading.endswith("of its kind")
    assert decided(MORE, MORE).reading.endswith("of its kind")


def test_a_better_control_has_content_only_if_it_has_it_in_all_strata():
    assert "noise has none above its null (p = 0.400)" in decided(LESS, MORE).reading
    assert "noise has content above its null (p = 0.010)" in decided(LESS, MORE, p_control=0.01).reading


def test_equal_predictions_are_equivalent_though_nothing_can_change_their_score():
    assert judge(NONE, 1.0, scores_vary=False, identical=True) is Verdict.EQUIVALENT
    assert judge(NONE, 1.0, scores_vary=False) is Verdict.UNDERPOWERED


@pytest.mark.parametrize(
    ("scores", "why"),
    [
        ((0.0, 0.0), "no words can be counted here: every score is 0"),
        ((-0.004, 0.004), "no words can be counted here: every score is 0"),
        ((-97.0, -104.0), "the outputs do not depend on the sentence"),  # of an error rate, less is better
        ((0.0, -0.006), "the outputs do not depend on the sentence"),
        ((0.006, 0.0), "the outputs do not depend on the sentence"),
        ((12.0,), "the outputs do not depend on the sentence"),
    ],
)
def test_why_nothing_is_detectable_is_told_by_the_scores_of_any_sign(scores, why):
    none = dataclasses.replace(NONE, mde=math.inf, scores=scores)
    assert uncountable(none).startswith(why)
    assert alone_reading(Verdict.NO_CONTENT, none, [], 1.0).startswith(f"the file shows no content: {why}")
    assert uncountable(dataclasses.replace(none, mde=0.4)) == ""


def test_a_difference_that_is_printed_as_nothing_is_none():
    assert judge(figures(0.004, 0.001, (0.001, 0.007)), 1.0) is Verdict.EQUIVALENT
    assert judge_alone(figures(0.004, 0.001, (0.001, 0.007)), 1.0) is Verdict.NO_CONTENT


def test_an_effect_is_detectable_where_all_strata_would_show_it():
    assert verdict_mde(dataclasses.replace(NONE, mde=1.0), [dataclasses.replace(NONE, mde=3.0)]) == 3


def test_the_table_of_effects_has_the_figures_of_each_comparison_and_its_largest_detectable_effect():
    primary = dataclasses.replace(NONE, mde=1.0, observed=0.25)
    derived = {name: dataclasses.replace(MORE, mde=mde) for name, mde in (("order", 3.0), ("texts", 2.0))}
    paired = Comparison("noise", primary, derived, [], [], Verdict.UNDERPOWERED, "")
    alone = Comparison("", dataclasses.replace(primary, mde=4.0), derived, [], [], Verdict.NO_CONTENT, "")
    shown = ("+0.10", "-0.50 to +0.70", "0.400")
    against_noise, against_its_null = effect_rows([paired, alone])
    assert against_noise == ("noise", "+0.25", *shown, "3.00", "0.70", "underpowered")
    assert against_its_null == ("its null", "–", *shown, "4.00", "–", "no content found above its null")
    assert dict(zip(EFFECT_HEADINGS, against_noise, strict=True))["MDE"] == "3.00"


def test_p_over_seeds_is_of_the_side_that_is_asked_about():
    seeds = figures(-1.5, 0.99, (-2.4, -0.6), p_seeds=0.97)
    assert both_p(seeds, less=True) == "p = 0.010; over 3 seeds p = 0.030"
    assert both_p(seeds, less=False) == "p = 0.990; over 3 seeds p = 0.970"
    assert directed_p(Verdict.UNDERPOWERED, figures(1.5, 0.01, (0.6, 2.4), p_seeds=0.2)) == "0.200"


def test_the_origin_of_content_below_the_margin_does_not_matter():
    unknown = Provenance(Level.UNKNOWN)
    assert joined(Verdict.BELOW_MARGIN, "little", unknown)[0] is Verdict.BELOW_MARGIN
    assert joined(Verdict.USES_EEG, "much", unknown)[0] is Verdict.UNPROVEN
    assert joined(Verdict.EQUIVALENT, "none", unknown) == (Verdict.EQUIVALENT, "none")
