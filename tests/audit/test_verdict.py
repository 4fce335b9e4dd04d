"""Verdicts: the rules, the one value behind console, JSON, Python, color and exit status, and sets of known truth."""

import dataclasses
import itertools
import json

import numpy as np
import pytest
from rows import changed, edited, simulated_rows

from eeg2text_jax.instrument.auditing.audit import audit
from eeg2text_jax.instrument.auditing.result import result_text
from eeg2text_jax.instrument.auditing.verdict import (
    EXIT_STATUS,
    PRECEDENCE,
    Carrier,
    Comparison,
    Contrast,
    Level,
    Ruling,
    Time,
    Verdict,
    deciding_one,
    in_words,
    judge,
    judge_alone,
)


def made(effect=0.0, se=0.1, p=None, sd=1.0, control="noise"):
    """A contrast with these figures; by default p agrees with the interval."""
    p = (0.001 if effect > 2 * se else 0.999 if effect < -2 * se else 0.5) if p is None else p
    return Contrast(control, (0.0,), (0.0,), effect, p, 1 - p, None, se, sd, 1.0, (), np.zeros(1000), ())


ABOVE, NOTHING, BELOW, UNSURE = made(5), made(0), made(-5), made(1, se=2)
LITTLE, LITTLE_LESS = made(0.5), made(-0.5)
FLAT = made(0, se=0, p=1, sd=0)


@pytest.mark.parametrize(
    ("found", "own", "verdict"),
    [
        (ABOVE, ABOVE, Verdict.USES_EEG),
        (LITTLE, ABOVE, Verdict.BELOW_MARGIN),
        (made(0.9, se=0.2), ABOVE, Verdict.USES_EEG),  # the effect is within the margin, the interval is not
        (NOTHING, ABOVE, Verdict.EQUIVALENT),
        (NOTHING, NOTHING, Verdict.EQUIVALENT),
        (UNSURE, ABOVE, Verdict.UNDERPOWERED),
        (BELOW, ABOVE, Verdict.CONTROL_BETTER),
        (LITTLE_LESS, NOTHING, Verdict.EQUIVALENT),  # a difference that does not matter
        (ABOVE, NOTHING, Verdict.NO_CONTENT),  # the control fits other sentences better than its own
        (ABOVE, UNSURE, Verdict.UNDERPOWERED),  # its own content may be there
        (made(5, p=0.2), ABOVE, Verdict.UNDERPOWERED),  # p and interval must agree
        (made(5, se=4, p=0.01), ABOVE, Verdict.UNDERPOWERED),
        (NOTHING, FLAT, Verdict.UNDERPOWERED),  # a constant text has no score that could change
    ],
)
def test_a_comparison_is_judged_by_both_contrasts(found, own, verdict):
    assert judge(found, own, 1.0) is verdict
    assert judge(found, own, 1.0, identical=True) is Verdict.EQUIVALENT


@pytest.mark.parametrize(
    ("own", "verdict"),
    [
        (ABOVE, Verdict.CONTENT),
        (LITTLE, Verdict.BELOW_MARGIN),
        (NOTHING, Verdict.NO_CONTENT),
        (FLAT, Verdict.NO_CONTENT),
    ],
)
def test_without_a_control_content_is_judged_alone(own, verdict):
    assert judge_alone(own, 1.0) is verdict


def test_outputs_that_score_the_same_against_every_sentence_are_said_to_tell_nothing():
    """A minimum detectable effect of 0.00 would read as great power."""
    for control in ("", "noise"):
        verdict = judge(made(control=control), FLAT, 1.0) if control else judge_alone(FLAT, 1.0)
        said = in_words(Comparison(FLAT, verdict), FLAT, 0.0, 1.0, "EEG")
        assert "nothing can be found" in said
        assert "0.00 would" not in said


def test_the_verdict_is_that_of_the_least_favorable_control():
    for several in itertools.product((*PRECEDENCE,), repeat=2):
        comparisons = [Comparison(made(control=str(i)), v) for i, v in enumerate(several)]
        main = deciding_one([*comparisons, Comparison(made(-9), Verdict.NOT_JUDGEABLE, "a question?")])
        assert main.verdict is min(several, key=PRECEDENCE.index)
    same = [Comparison(made(effect, control=name), Verdict.USES_EEG) for effect, name in ((5, "a"), (3, "c"), (4, "b"))]
    wide = [Comparison(made(0, se=se, control=str(se)), Verdict.EQUIVALENT) for se in (0.1, 0.5, 0.3)]
    for order in itertools.permutations(range(3)):
        assert deciding_one(same[i] for i in order).control == "c"
        assert deciding_one(wide[i] for i in order).control == "0.5"


NOT_KNOWN = "uses EEG (of the sentence or of its kind: not known)"
ALL = "uses EEG: not beyond its time, of its kind, carried by reader S3"
CARRIER = (Carrier("reader S3", 0.3),)


@pytest.mark.parametrize(  # the headline is the value if there is nothing to add
    ("ruling", "value", "headline", "color", "status"),
    [
        ((Verdict.USES_EEG,), "uses EEG", "", "good", 0),
        ((Verdict.USES_EEG, Level.SENTENCE), "uses EEG", "uses EEG: of the sentence", "good", 0),
        ((Verdict.USES_EEG, None, Time.BEYOND), "uses EEG", "uses EEG: beyond its time", "good", 0),
        ((Verdict.USES_EEG, Level.UNKNOWN, Time.UNKNOWN), "uses EEG", NOT_KNOWN, "good", 0),
        ((Verdict.USES_EEG, Level.KIND), "uses EEG: of its kind", "", "open", 11),
        ((Verdict.USES_EEG, None, Time.NOT_BEYOND), "uses EEG: not beyond its time", "", "open", 10),
        ((Verdict.USES_EEG, Level.KIND, Time.NOT_BEYOND, CARRIER), ALL, "", "open", 10),
        ((Verdict.USES_EEG, None, None, CARRIER), "uses EEG: carried by reader S3", "", "open", 0),
        ((Verdict.CONTENT, Level.KIND), "content above its null: of its kind", "", "open", 11),
        ((Verdict.BELOW_MARGIN, Level.KIND), "detectable but below the margin: of its kind", "", "bad", 3),
        ((Verdict.UNPROVEN, None, Time.NOT_BEYOND), "content of unproven origin: not beyond its time", "", "open", 9),
        ((Verdict.UNDERPOWERED,), "underpowered", "", "open", 4),
        ((Verdict.EQUIVALENT,), "equivalent to control", "", "bad", 5),
        ((Verdict.CONTROL_BETTER,), "control better", "", "bad", 6),
        ((Verdict.NO_CONTENT,), "no content found above its null", "", "bad", 7),
        ((Verdict.NOT_JUDGEABLE,), "not judgeable", "", "bad", 8),
    ],
)
def test_one_value_gives_name_headline_color_and_exit_status(ruling, value, headline, color, status):
    found = Ruling(*ruling)
    assert (found.value, found.headline, found.color, found.exit_status) == (value, headline or value, color, status)
    assert str(found) == found.headline


def test_further_words_of_a_headline():
    equivalent = Ruling(Verdict.EQUIVALENT, unseen=3 / 112)
    assert "decoding of up to 2.7% of all sentences could go unseen" in equivalent.headline
    assert equivalent.value == "equivalent to control"
    assert Ruling(Verdict.NOT_JUDGEABLE, reason="too few sentences").headline == "not judgeable: too few sentences"
    assert Ruling(Verdict.USES_EEG, recording="fMRI").value == "uses fMRI"


def test_every_verdict_has_an_exit_status_of_its_own():
    assert set(Verdict) <= EXIT_STATUS.keys()
    assert set(EXIT_STATUS.values()).isdisjoint({1, 2})
    claims = {Verdict.USES_EEG, Verdict.CONTENT}
    assert len({s for v, s in EXIT_STATUS.items() if v not in claims}) == len(EXIT_STATUS) - 2
    assert set(PRECEDENCE) == set(Verdict)


SIDES = simulated_rows(7, sentences=48, subjects=3)
MUCH = simulated_rows(7, sentences=48, subjects=3, information=0.3)[0]
NOISE = SIDES[1]
FOUND, NONE = {"uses EEG", Verdict.BELOW_MARGIN}, {"underpowered", "equivalent to control", "control better"}
ALONE, UNFIT, UNPROVEN = {"no content found above its null"}, {"not judgeable"}, {"content of unproven origin"}
USES = {"uses EEG"}
TEXTS = sorted({r.reference for r in NOISE})
VOCABULARY = [word for text in TEXTS for word in text.split()]
UNKNOWN, FORCED = {"mode": "unknown"}, {"mode": "teacher_forced"}


def other(r, rng):
    return rng.choice([text for text in TEXTS if text != r.reference])


def by(field):
    texts = {getattr(r, field): r.prediction for r in SIDES[0]}
    return changed(SIDES[0], prediction=lambda r: texts[getattr(r, field)])


def words(count, right):
    def text(r, rng):
        return " ".join(rng.choice(r.reference.split() if k < right else VOCABULARY) for k in range(count))

    return edited(NOISE, text)


def exchanged(r, _):
    own = r.reference.split()
    return " ".join(word for pair in zip(own[1::2], own[::2], strict=False) for word in pair)


def case(true, eeg, control=NOISE):
    return true, eeg, {"noise": control} if control else {}


STYLED, LITTLE_ROWS = (
    simulated_rows(7, sentences=48, subjects=3, **dials)[0] for dials in ({"style_shift": 0.5}, {"information": 0.09})
)
NEXT = [dataclasses.replace(a, prediction=b.prediction) for a, b in zip(MUCH, MUCH[3:] + MUCH[:3], strict=True)]
ATTENDS = edited(NOISE, lambda r, g: r.reference.rsplit(" ", 1)[0], 0.4)
CASES = {  # name -> (what may be said, EEG's rows, controls)
    "little": case(FOUND, LITTLE_ROWS),
    "much": case(USES, MUCH),
    "much, alone": case({"content above its null"}, MUCH, None),
    "much, of unknown mode": case(UNPROVEN, changed(MUCH, **UNKNOWN), changed(NOISE, **UNKNOWN)),
    "much, of unknown mode, alone": case(UNPROVEN, changed(MUCH, **UNKNOWN), None),
    "nothing": case(NONE, SIDES[0]),
    "nothing, alone": case(ALONE, SIDES[0], None),
    "style": case(NONE, STYLED),
    "style, alone": case(ALONE, STYLED, None),
    "one sentence for all": case(NONE, changed(SIDES[0], prediction=TEXTS[0])),
    "one sentence for all, alone": case(ALONE, changed(SIDES[0], prediction=TEXTS[0]), None),
    "constant control": case(NONE, SIDES[0], changed(NOISE, prediction="w1 w2 w3")),
    "constant control, much": case(USES, MUCH, changed(NOISE, prediction="w1 w2 w3")),
    "constant on both sides": case(NONE, changed(MUCH, prediction="w1"), changed(NOISE, prediction="w2")),
    "wrong sentences": case(NONE, edited(SIDES[0], other)),
    "one text a length": case(NONE, by("n_words")),
    "one text a reader": case(NONE, by("subject")),
    "the next sentence's": case(NONE, NEXT),
    "random digits": case(UNFIT, edited(SIDES[0], lambda r, g: f"{g.random():.9f}")),
    "sides exchanged": case({"control better"}, NOISE, MUCH),
    "the same twice": case({"equivalent to control"}, MUCH, list(MUCH)),
    "one of two not beaten": ({"equivalent to control"}, MUCH, {"noise": NOISE, "copy": list(MUCH)}),
    "half of EEG empty": case(NONE, edited(SIDES[0], lambda r, _: "", 0.5)),
    "empty EEG": case(NONE, changed(SIDES[0], prediction=" ")),
    "empty EEG, alone": case(ALONE, changed(SIDES[0], prediction="</s> ..."), None),
    "tasks unknown": case(NONE, changed(SIDES[0], task=""), changed(NOISE, task="")),
    "tasks unknown, much": case(USES, changed(MUCH, task=""), changed(NOISE, task="")),
    "readers unknown": case(USES, changed(MUCH, subject=""), changed(NOISE, subject="")),
    "teacher-forced": case(UNFIT, changed(MUCH, **FORCED), changed(NOISE, **FORCED)),
    "one right word a row": case(USES, words(1, 1), words(1, 0)),
    "one of two words": case(USES, words(2, 1), words(2, 0)),
    "neighbors exchanged": case(USES, edited(NOISE, exchanged, 0.95)),
    "a reader who attends or not": case(USES, ATTENDS),
}


@pytest.mark.parametrize("name", CASES)
def test_what_is_said_is_true(name):
    true, eeg, controls = CASES[name]
    found = audit(eeg, controls)
    assert found.verdict.base.value in true
    assert (found.exit_status == 0) == bool(true & {"uses EEG", "content above its null"})


@pytest.mark.parametrize("case", ["much", "much, alone", "nothing", "teacher-forced", "one of two not beaten"])
def test_console_json_python_and_exit_status_say_the_same(case):
    _, eeg, controls = CASES[case]
    found = audit(eeg, controls)
    written = json.loads(json.dumps(found.to_json(), allow_nan=False))
    assert written["verdict"] == found.verdict.value
    assert written["headline"] == found.verdict.headline
    assert written["exit_status"] == found.exit_status == found.verdict.exit_status
    assert result_text(found).endswith(f"VERDICT: {found.verdict.headline}")
    assert written["qualifiers"]["level"] == (str(found.verdict.level) if found.verdict.level else None)
    for shown in (found._repr_html_(), repr(found)):
        assert found.verdict.headline in shown
    assert [c["verdict"] for c in written["comparisons"]] == [str(c.verdict) for c in found.comparisons]
    first = written["comparisons"][0]["contrast"]
    assert first["interval_90"] == pytest.approx(found.comparisons[0].contrast.interval())
    assert written["sentence"] == found.sentence


def told(effect, *, control="noise", se=0.25, p=0.011, p_less=0.022, p_seeds=None):
    """A contrast in which no two figures are equal."""
    return Contrast(control, (0.0,), (0.0,), effect, p, p_less, p_seeds, se, 1.0, 7.0, (), np.zeros(1000), ())


MAIN, LESS, OWN = told(1.5), told(-1.5), told(2.5, control="", se=0.5, p=0.033)
ALONE_MAIN, LITTLE_MORE, LITTLE_FEWER = told(1.5, control=""), told(0.1), told(-0.1)
FIGURES = "+1.50 points (90 % CI +1.09 to +1.91; p = {})"
OF_OWN = "(+2.50 points (90 % CI +1.68 to +3.32; p = 0.033))"
MORE, FEWER = "+0.10 points (90 % CI -0.31 to +0.51; p = 0.011)", "-0.10 points (90 % CI -0.51 to +0.31; p = 0.011)"
POWER = "90 % of such studies would find an effect of 3.00."
FIT, FEW = "The outputs fit their own sentences", "Too few sentences to tell:"
THAN = "better with MEG than with noise"
LAY = [
    (MAIN, Verdict.USES_EEG, "0.011", f"{FIT} {THAN}: {FIGURES}."),
    (MAIN, Verdict.BELOW_MARGIN, "0.011", f"{FIT} {THAN}: {FIGURES}, but by less than the margin of 4."),
    (ALONE_MAIN, Verdict.BELOW_MARGIN, "0.011", f"{FIT} better than others: {FIGURES}. Only a control could say why."),
    (told(1.5, p_seeds=0.044), Verdict.UNPROVEN, "0.044",
     f"{FIT} {THAN}: {FIGURES}. A decoder that was given the true text with MEG would look the same."),
    (MAIN, Verdict.EQUIVALENT, "0.055 for equivalence",
     f"On average over the sentences, content differs by less than 4 points from the control's: {FIGURES}."),
    (LESS, Verdict.CONTROL_BETTER, "",
     f"{FIT} less well with MEG than with noise: -1.50 points (90 % CI -1.91 to -1.09; p = 0.022 for less)."),
    (MAIN, Verdict.UNDERPOWERED, "0.011",
     f"{FEW} the outputs fit their own sentences better than noise's do ({FIGURES}), but were not found to fit them "
     f"better than others {OF_OWN}; {POWER}"),
    (LITTLE_MORE, Verdict.UNDERPOWERED, "", f"{FEW} with MEG minus with noise, {MORE}; {POWER}"),
    (LITTLE_FEWER, Verdict.UNDERPOWERED, "", f"{FEW} with MEG minus with noise, {FEWER}; {POWER}"),
    (MAIN, Verdict.NO_CONTENT, "",
     f"{FIT} no better than others {OF_OWN}; the difference from noise says only that its outputs fit other sentences "
     "better than their own."),
    (told(0.1, control=""), Verdict.NO_CONTENT, "",
     f"Nothing shows that the outputs fit their own sentences better than others: {MORE}; {POWER}"),
]  # fmt: skip


@pytest.mark.parametrize(("main", "verdict", "p", "said"), LAY)
def test_a_lay_sentence_has_the_figures_that_it_names(main, verdict, p, said):
    equal = 0.055 if verdict is Verdict.EQUIVALENT else None
    assert in_words(Comparison(main, verdict, "", equal), OWN, 3.0, 4.0, "MEG") == said.format(p)


def test_the_p_of_a_verdict_is_that_of_its_claim():
    for contrast, verdict, equal, p in (
        (told(1.5, p_seeds=0.044), Verdict.USES_EEG, None, (0.044, "")),
        (told(1.5, p_seeds=0.001), Verdict.USES_EEG, None, (0.011, "")),
        (LESS, Verdict.CONTROL_BETTER, None, (0.022, "less")),
        (MAIN, Verdict.EQUIVALENT, 0.055, (0.055, "equivalence")),
    ):
        assert Comparison(contrast, verdict, "", equal).p == p


def test_choices_and_a_plan_stand_beside_the_verdict():
    _, eeg, controls = CASES["much"]
    controls = {**controls, "zero": changed(controls["noise"], eval_condition="zero")}
    found = audit(eeg, controls, margin=0.5, endpoint="rouge-1", deciding=["noise"], plan="fixed by plan.toml")
    said = "fixed by plan.toml; endpoint ROUGE-1 F; margin 0.5 (default 1); deciding: noise"
    assert f"Chosen, and not the default: {said}." in result_text(found)
    assert "not the default" not in result_text(audit(eeg, controls))


def test_seeds_are_a_level_from_three_on():
    eeg, noise = simulated_rows(3, sentences=40, subjects=2, seeds=3, information=0.2, seed_sd=1.0)
    whole = audit(eeg, {"noise": noise})
    found = whole.deciding.contrast
    assert whole.adjusted_p == found.decisive_p > found.p, "the only one that is printed"
    assert len(found.seed_effects) == 3
    assert np.mean(found.seed_effects) == pytest.approx(found.effect, abs=0.01)
    assert found.decisive_p == max(found.p, found.p_seeds)
    contents = []
    for seed, effect in enumerate(found.seed_effects):
        one = audit(*([r for r in rows if r.seed == seed] for rows in (eeg, noise)))
        assert effect == pytest.approx(one.deciding.contrast.effect), "as if there were no other seed"
        parts = [[r for r in one.rows if r.condition == c.name] for c in one.conditions]
        texts = sorted({r.reference for r in one.rows})
        contents.append(
            [np.subtract(*(np.mean([r.content for r in p if r.reference == t]) for p in parts)) for t in texts]
        )
    contents = np.array(contents)
    rest = contents - contents.mean(0) - contents.mean(1, keepdims=True) + contents.mean()
    between = contents.mean(1).var(ddof=1) - (rest**2).sum() / (2 * 39) / 40
    alike = (
        [dataclasses.replace(r, seed=0, sample_id=f"{r.sample_id} {r.seed}") for r in rows] for rows in (eeg, noise)
    )
    plain = audit(*alike).deciding.contrast
    assert plain.effect == pytest.approx(found.effect)
    assert found.se == pytest.approx(np.sqrt(plain.se**2 + between / 3))
    assert found.se > 1.01 * plain.se
    two = [[r for r in rows if r.seed < 2] for rows in (eeg, noise)]
    assert audit(two[0], {"noise": two[1]}).deciding.contrast.p_seeds is None


def test_a_control_may_not_have_the_name_of_the_eeg():
    with pytest.raises(ValueError, match="a control has the name of the EEG condition"):
        audit(MUCH, {"eeg": NOISE})
