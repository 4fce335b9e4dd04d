"""The verdict on sets whose truth is known, and the warnings on files with one fault each."""

import dataclasses
import json
import random
import types
from collections import Counter

import pytest
from rows import changed, one_file_each, row, simulated_rows

from eeg2text_jax.auditing import red_flags
from eeg2text_jax.auditing.audit import audit
from eeg2text_jax.auditing.contrast import Contrast
from eeg2text_jax.auditing.result import result_text
from eeg2text_jax.auditing.statistics import content_difference
from eeg2text_jax.auditing.verdict import EXIT_STATUS, Verdict, deciding_one, judge, judge_alone
from eeg2text_jax.errors import UserError
from eeg2text_jax.predictions.rankings import CandidateScores


def quick(eeg, controls, **options):
    return audit(eeg, controls, **{"resamples": 300, "proof": "the test planted all of it", **options})


def flags(result):
    return {flag.code: flag for flag in result.flags}


def found(effect, p, interval_90, p_seeds=None):
    values = dict.fromkeys((f.name for f in dataclasses.fields(Contrast)), 0.0)
    margin = max(-interval_90[0], interval_90[1])
    values |= {"effect": effect, "p": p, "p_less": 1 - p, "interval_90": interval_90, "smallest_margin": margin}
    values |= {"permutation_sd": 0.5, "seed_effects": (effect,) * 3}
    return Contrast(**values | {"p_seeds": p_seeds})


@pytest.mark.parametrize(
    ("contrast", "verdict"),
    [
        (found(1.5, 0.01, (0.6, 2.4)), Verdict.USES_EEG),
        (found(0.5, 0.01, (0.1, 0.9)), Verdict.BELOW_MARGIN),
        (found(0.1, 0.4, (-0.5, 0.7)), Verdict.EQUIVALENT),
        (found(0.3, 0.3, (-0.9, 1.5)), Verdict.UNDERPOWERED),
        (found(-1.5, 0.98, (-2.4, -0.6)), Verdict.CONTROL_BETTER),
        (found(-1.5, 0.98, (-2.4, -0.6), p_seeds=0.99), Verdict.CONTROL_BETTER),
        (found(-1.5, 0.98, (-2.4, -0.6), p_seeds=0.8), Verdict.UNDERPOWERED),
        (found(-0.5, 0.98, (-0.9, -0.1)), Verdict.EQUIVALENT),
        (found(1.5, 0.01, (0.6, 2.4), p_seeds=0.2), Verdict.UNDERPOWERED),
        (found(0.3, 0.3, (-0.9, 1.0)), Verdict.UNDERPOWERED),
        (found(1.5, 0.04, (-0.1, 3.1)), Verdict.UNDERPOWERED),
        (found(-1.5, 0.97, (-3.1, 0.1)), Verdict.UNDERPOWERED),
    ],
)
def test_judge(contrast, verdict):
    assert judge(contrast, 1.0) is verdict


def overall(verdicts):
    figures = types.SimpleNamespace(effect=0.0, smallest_margin=0.0)
    found = [types.SimpleNamespace(verdict=verdict, question="", primary=figures) for verdict in verdicts]
    return deciding_one(found).verdict


def test_every_control_must_be_beaten():
    assert overall([Verdict.CONTENT]) is Verdict.CONTENT
    assert overall([Verdict.USES_EEG, Verdict.USES_EEG]) is Verdict.USES_EEG
    assert overall([Verdict.USES_EEG, Verdict.UNDERPOWERED]) is Verdict.UNDERPOWERED
    assert overall([Verdict.UNDERPOWERED, Verdict.EQUIVALENT, Verdict.USES_EEG]) is Verdict.UNDERPOWERED
    assert overall([Verdict.EQUIVALENT, Verdict.USES_EEG]) is Verdict.EQUIVALENT
    assert overall([Verdict.CONTROL_BETTER, Verdict.NOT_JUDGEABLE]) is Verdict.NOT_JUDGEABLE
    assert len(set(EXIT_STATUS.values()) - {1, 2}) == 8  # 0 serves two verdicts; 1 and 2 mean failure


def test_planted_information_is_found_against_every_control():
    eeg, noise = simulated_rows(information=0.2, style_shift=0.2)
    result = quick(eeg, {"noise": noise})
    assert result.verdict is Verdict.USES_EEG
    assert result.exit_status == 0
    assert (result.n_rows, result.n_sentences, result.n_subjects) == (144, 48, 3)
    assert all(subject.effect > 0 for subject in result.comparisons[0].subjects)
    both = quick(eeg, {"noise": noise, "itself": eeg})
    assert both.verdict is Verdict.EQUIVALENT
    assert "with itself" in both.sentence
    assert both.comparisons[0].verdict is Verdict.USES_EEG


def test_a_style_gap_is_not_content():
    eeg, noise = simulated_rows(style_shift=0.4, sentences=80)
    result = quick(eeg, {"noise": noise}, margin=3.0)
    assert result.comparisons[0].primary.observed > 1
    assert result.verdict is Verdict.EQUIVALENT
    assert "gap_is_style" in flags(result)


def test_control_better():
    eeg, noise = simulated_rows(information=0.2)
    result = quick(noise, {"swapped": eeg})
    assert result.verdict is Verdict.CONTROL_BETTER
    assert "one-sided for less content with eeg: p = 0.003" in result.sentence
    assert "on its own swapped has content above its null (p = 0.003), look for its source" in result.sentence
    assert "p = 1.000" not in result.sentence
    assert "0.003 (less)" in result_text(result)


def test_control_better_by_chance_does_not_say_that_the_control_holds_content():
    """In one comparison of twenty neither side holds anything."""
    for seed in range(100, 160):
        eeg, noise = simulated_rows(seed=seed, sentences=30, subjects=2)
        result = quick(eeg, {"noise": noise}, resamples=200, margin=0.2)
        if result.verdict is Verdict.CONTROL_BETTER and result.conditions[1].p > 0.05:
            assert "on its own noise has none above its null" in result.sentence
            assert "one comparison in twenty ends like this by chance" in result.sentence
            return
    raise AssertionError("no set of 60 ended with a better control")


def test_one_file_without_a_control():
    eeg, noise = simulated_rows(information=0.2)
    result = quick(eeg, {})
    assert result.verdict is Verdict.CONTENT
    assert "only a control can tell" in result.sentence
    assert quick(noise, {}).verdict is Verdict.NO_CONTENT


def test_seeds_are_a_level():
    eeg, noise = simulated_rows(information=0.15, seeds=3, sentences=30)
    result = quick(eeg, {"noise": noise})
    contrast = result.comparisons[0].primary
    assert len(contrast.seed_effects) == 3
    assert contrast.p_primary == max(contrast.p, contrast.p_seeds)
    assert "over 3 seeds" in result.sentence


def test_the_order_of_rows_does_not_matter():
    eeg, noise = simulated_rows(information=0.1, sentences=30)
    one, other = quick(eeg, {"noise": noise}), quick(eeg, {"noise": noise[::-1]})
    a, b = one.comparisons[0].primary, other.comparisons[0].primary
    assert (a.effect, a.p, a.mde) == pytest.approx((b.effect, b.p, b.mde))


def test_json_is_plain_and_complete():
    eeg, noise = simulated_rows(sentences=20)
    plain = json.loads(json.dumps(quick(eeg, {"noise": noise}).to_json(), allow_nan=False))
    comparison = plain["comparisons"][0]
    assert plain["exit_status"] == EXIT_STATUS[Verdict(plain["verdict"])]
    assert {"effect", "p", "interval", "mde", "smallest_margin"} <= comparison["primary"].keys()
    assert "null_draws" not in comparison["primary"]
    assert {s["label"] for s in comparison["secondary"]} == {"BLEU-4", "WER", "ROUGE-1 F", "ROUGE-L F"}


def test_text_holds_the_verdict_and_its_reason():
    eeg, noise = simulated_rows(sentences=20)
    text = result_text(quick(eeg, {"a|b_c": noise}))
    assert text.endswith("VERDICT: not judgeable")
    assert "Not judgeable: 20 sentences are too few" in text
    assert "a|b_c" in text


def test_warnings_on_one_fault_each():
    eeg, noise = simulated_rows(sentences=30, seed=6)
    clean = set(flags(quick(eeg, {"noise": noise})))
    assert clean <= {"rows_not_independent", "gap_is_style", "metrics_disagree"}
    per_sentence = {r.sentence_id: r.prediction for r in eeg}
    by_row = {(r.sentence_id, r.subject): r.prediction for r in eeg}
    identical = [dataclasses.replace(a, prediction=b.prediction) for a, b in zip(eeg, noise, strict=True)]
    frequent = Counter(word for r in eeg for word in r.reference.split()).most_common(40)
    rng = random.Random(0)
    half = [dataclasses.replace(r, prediction="") if i % 2 else r for i, r in enumerate(eeg)]
    faults = {
        "same_for_all_readers": changed(eeg, prediction=lambda r: per_sentence[r.sentence_id]),
        "duplicate_subjects": changed(eeg, prediction=lambda r: by_row[r.sentence_id, r.subject.replace("0", "1")]),
        "identical_conditions": identical,
        "collapsed": changed(eeg, prediction="he was born in new york"),
        "empty_predictions": [*eeg[1:], dataclasses.replace(eeg[0], prediction="")],
        "half_empty": half,
        "empty_on_one_side": half,
        "token_residue": changed(eeg, prediction=lambda r: f"{r.prediction} </s> ,"),
        "literal_padding": changed(eeg, prediction=lambda r: f"{r.prediction} , , , , , ,"),
        "too_good": changed(eeg, prediction=lambda r: f"{r.reference} x"),
        "repetition": changed(eeg, prediction=lambda r: f"{r.prediction} {r.prediction}"),
        "frequency_list": [dataclasses.replace(r, prediction=f"the of and a in to is {i}") for i, r in enumerate(eeg)],
        "frequency_only": changed(eeg, prediction=lambda r: " ".join(rng.choice(frequent)[0] for _ in range(14))),
        "large_vocabulary": changed(eeg, prediction=lambda r: " ".join(f"x{rng.randrange(10**6)}" for _ in range(60))),
        "one_row_carries": [dataclasses.replace(eeg[0], prediction=" ".join(["x y"] * 2000)), *eeg[1:]],
        "same_beginning": changed(eeg, prediction=lambda r: f"He was {r.prediction}"),
        "style_shift": changed(eeg, prediction=lambda r: f"{r.prediction} " + "x y z u v " * 3),
    }
    for code, rows in faults.items():
        assert code in set(flags(quick(rows, {"noise": noise}, resamples=100))) - clean, code
    forced = quick(changed(faults["too_good"], mode="teacher_forced"), {}, resamples=100)
    assert "too_good" not in flags(forced)


def test_a_claim_is_below_the_margin_only_where_it_is_so_under_all_strata():
    large, small = found(1.5, 0.01, (1.1, 1.9)), found(0.5, 0.01, (0.1, 0.9))
    assert judge(large, 1.0, [large]) is Verdict.USES_EEG
    assert judge(large, 1.0, [small]) is judge(small, 1.0, [large]) is Verdict.USES_EEG
    assert judge_alone(small, 1.0, [large]) is Verdict.CONTENT
    assert judge(small, 1.0, [small]) is judge_alone(small, 1.0, [small]) is Verdict.BELOW_MARGIN


def test_warnings_on_rows_that_were_left_out_and_on_recipes():
    eeg, noise = simulated_rows(sentences=32)
    picked = quick(eeg[5:], {"noise": noise}, resamples=100, common=True)
    assert "5 of 96 rows are not in every condition" in flags(picked)["rows_differ"].message
    unknown = quick(changed(eeg, mode="unknown"), {"noise": changed(noise, mode="unknown")}, resamples=100)
    assert "mode_unknown" in flags(unknown)
    clean = quick(eeg, {"noise": noise}, resamples=100, training_text=["another"])
    assert flags(clean)["training_text"].level == "note"
    recipe = quick(eeg, {"noise": changed(noise, train_condition="noise")}, resamples=100)
    assert "recipe_without_seeds" in flags(recipe)


@pytest.mark.parametrize("share", [0.9, 0.1])
def test_neighbors_in_time_are_a_warning(share):
    eeg, noise = simulated_rows(sentences=32)
    time = {"unit": "s", "neighbors": {"test": {"5": 0.0, "30": share, "120": 1.0}}, "groups": {}}
    found = flags(quick(eeg, {"noise": noise}, resamples=100, neighbors=time)).get("time")
    assert (found is not None) == (share > 0.5)
    assert found is None or (found.level == "warning" and "90% of the test samples" in found.message)


def test_a_sentence_that_carries_the_difference_is_named():
    eeg, noise = simulated_rows(sentences=60, information=0.03, seed=2)
    long = eeg[0].sentence_id
    rows = [dataclasses.replace(r, prediction=" ".join([r.reference] * 6)) if r.sentence_id == long else r for r in eeg]
    result = quick(rows, {"noise": noise}, resamples=500, stratum_size=20)
    assert result.verdict is Verdict.USES_EEG
    assert "one_sentence_carries" in flags(result)


def test_each_comparison_is_searched_for_a_sentence_that_carries_it_with_its_own_control(monkeypatch):
    totals = {}
    monkeypatch.setattr(red_flags, "sentence_flags", lambda _, control, *found: totals.update({control: found}) or [])
    eeg, noise = simulated_rows(information=0.3, sentences=32)
    result = quick(eeg, {"noise": noise, "empty": changed(noise, prediction="the")}, resamples=100)
    assert totals.keys() == {"noise", "empty"}
    for comparison in result.comparisons:
        effect, found, score = totals[comparison.control]
        assert effect == comparison.primary.effect == pytest.approx(content_difference(found.sum(0), score))


def test_leaks_in_one_condition_are_warned_of():
    length = quick(*one_file_each(simulated_rows(eeg_length_leak=0.3, sentences=100)), resamples=400)
    assert "side_channel_in_one_condition" in flags(length)
    both = quick(*one_file_each(simulated_rows(length_leak=0.3, sentences=100)), resamples=400)
    assert "side_channel_in_one_condition" not in flags(both)
    assert both.conditions[0].side_channel.p < 0.01
    subject = quick(*one_file_each(simulated_rows(eeg_subject_leak=0.2)), resamples=100)
    assert "; each stratum belongs to one group of subjects" in flags(subject)["subject_tells_sentence"].message


def test_eeg_bits_come_from_the_teacher_forced_rows_beside():
    eeg, noise = simulated_rows(sentences=20)
    scored = [dataclasses.replace(r, mode="teacher_forced", nll=20.0, n_tokens=10) for r in eeg]
    worse = [dataclasses.replace(r, nll=20.0 + 10 * 0.693147) for r in scored]
    lists = {(r.sample_id, 0): CandidateScores("x", ("x", "y"), (1.0, 2.0)) for r in eeg}
    candidates = {"eeg": lists, "shuffled": lists}
    result = quick([*eeg, *scored], {"shuffled": [*noise, *worse]}, resamples=100, candidates=candidates)
    assert [found.control for found in result.retrieval] == ["shuffled"]
    assert result.mode == "free_running"
    assert result.bits[0].bits_per_token == pytest.approx(1, abs=1e-5)


def test_metric_that_does_not_know_the_script_is_a_note_and_not_a_zero():
    eeg = [row(i, reference="это предложение номер " + "слово " * (i + 1), prediction="это слово") for i in range(8)]
    result = quick(eeg, {}, resamples=100)
    assert any("ROUGE-1 F" in note for note in result.notes)
    assert {s.label for s in result.comparisons[0].secondary} == {"BLEU-4", "WER"}


def test_a_proof_that_says_nothing_is_refused_and_seeds_that_nobody_said_are_unknown():
    rows = simulated_rows()[0]
    with pytest.raises(UserError, match="proof"):
        audit(rows, {}, resamples=20, proof=" ")
    texts = [one.prediction for one in rows]
    found = audit(texts, references=[one.reference for one in rows], mode="free_running", resamples=20)
    assert not found.seeds_stated
    assert (found.n_sentences, found.n_strata, found.n_subjects) == (48, 8, 0)
    assert audit(rows, {}, resamples=20).seeds_stated
