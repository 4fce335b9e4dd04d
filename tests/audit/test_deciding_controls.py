"""Which control decides, and that the weakest of them does."""

import dataclasses
import random
import types

import numpy as np
import pytest
from rows import row
from test_decoders import decoded, exchanged, written

from eeg2text_jax.auditing.audit import audit
from eeg2text_jax.auditing.compare import QUESTIONS, questions
from eeg2text_jax.auditing.report import write_report
from eeg2text_jax.auditing.strata import length_strata
from eeg2text_jax.auditing.verdict import Comparison, Verdict, deciding_one
from eeg2text_jax.predictions.rankings import Candidates, Ranking
from eeg2text_jax.study.configuration import load_config

# What may be said with each verdict, from nothing to most.
STRENGTH = [
    Verdict.NOT_JUDGEABLE,
    Verdict.UNDERPOWERED,
    Verdict.NO_CONTENT,
    Verdict.CONTROL_BETTER,
    Verdict.EQUIVALENT,
    Verdict.UNPROVEN,
    Verdict.BELOW_MARGIN,
    Verdict.USES_EEG,
]


@pytest.mark.parametrize("seed", range(50))
def test_the_verdict_is_never_stronger_than_that_of_any_deciding_control(seed):
    rng = random.Random(seed)
    fields = {field.name: None for field in dataclasses.fields(Comparison)}
    fields["primary"] = types.SimpleNamespace(effect=0.0, smallest_margin=0.0)
    drawn = [
        Comparison(**{**fields, "verdict": rng.choice(STRENGTH), "question": "order?" if rng.random() < 0.3 else ""})
        for _ in range(rng.randrange(1, 6))
    ]
    deciding = [c for c in drawn if not c.question]
    if deciding:
        found = deciding_one(drawn)
        assert STRENGTH.index(found.verdict) == min(STRENGTH.index(c.verdict) for c in deciding)
        assert not found.question


def test_of_equivalent_controls_the_one_with_the_widest_margin_is_quoted():
    fields = {field.name: None for field in dataclasses.fields(Comparison)} | {"question": ""}
    fields["verdict"] = Verdict.EQUIVALENT
    margins = (0.2, 0.9, 0.5)
    found = [types.SimpleNamespace(effect=0.0, smallest_margin=margin) for margin in margins]
    assert deciding_one(Comparison(**{**fields, "primary": one}) for one in found).primary.smallest_margin == 0.9


def test_what_a_control_was_fed_says_its_question_whatever_it_is_called():
    fed = {"eeg": "eeg", "some noise": "noise", "backwards": "time_reversed"}
    conditions = [types.SimpleNamespace(name=n, rows=[row(0, eval_condition=c)]) for n, c in fed.items()]
    aligned = types.SimpleNamespace(conditions=conditions)
    assert questions(aligned, None) == {"backwards": QUESTIONS["time_reversed"]}
    assert questions(aligned, ["time_reversed"]).keys() == {"some noise"}
    assert questions(aligned, ["some noise"]).keys() == {"backwards"}


CONTROLS = ("noise", "shuffled", "zero", "time_reversed", "phase_randomized")


def random_texts(rng):
    """EEG and one to four controls of any quality, on 30 sentences of a few words each."""
    words = [f"w{i}" for i in range(40)]
    read = [" ".join([str(s), *rng.choices(words, k=6)]) for s in range(30)]

    def made(condition, right):
        for s, text in enumerate(read):
            said = [word if rng.random() < right else rng.choice(words) for word in text.split()[1:]]
            yield row(s, eval_condition=condition, reference=text, prediction=" ".join(said), n_words=7)

    chosen = rng.sample(CONTROLS, rng.randrange(1, 5))
    shares = (0.0, 0.02, 0.05, 0.3)
    return list(made("eeg", rng.choice(shares))), {name: list(made(name, rng.choice(shares))) for name in chosen}


def random_ranks(rng):
    """The same of rankings, among 30 candidates."""
    ids, words = [f"T:{i}" for i in range(30)], 5.0 + np.arange(30) // 4
    texts, tasks = [" ".join([f"x{i}"] * 5) for i in range(30)], ["T"] * 30
    found = Candidates("test", texts, ids, tasks, words, length_strata(tasks, words))

    def made(condition, own):
        for i, text in enumerate(texts):
            scores = np.array([rng.gauss(own * (i == j), 1) for j in range(30)])
            about = {"sentence_id": ids[i], "task": "T", "reference": text, "n_words": int(words[i])}
            fields = vars(row(i, eval_condition=condition, mode="contrastive", **about))
            yield Ranking(**fields, scores=scores, candidates=found)

    chosen = rng.sample(CONTROLS, rng.randrange(1, 5))
    return list(made("eeg", rng.choice((0, 1, 3)))), {name: list(made(name, rng.choice((0, 1, 3)))) for name in chosen}


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("kind", ["text", "rankings"])
def test_of_random_sets_no_deciding_control_answers_less_than_the_verdict(kind, seed):
    rng = random.Random(f"{kind} {seed}")
    make, margin = (random_texts, None) if kind == "text" else (random_ranks, 40.0)
    eeg, controls = make(rng)
    found = audit(eeg, controls, resamples=60, margin=margin)
    deciding = [c for c in found.comparisons if not c.question]
    assert {c.control for c in found.comparisons} == controls.keys()
    assert deciding
    assert STRENGTH.index(found.verdict) == min(STRENGTH.index(c.verdict) for c in deciding)


@pytest.fixture(scope="module")
def conditions():
    """A decoder that reads words whatever their order, fed its recording, others' and its recording reversed."""
    eeg = decoded(*written(4), 0.5)
    return eeg, {
        "shuffled": [dataclasses.replace(row, eval_condition="shuffled") for row in exchanged(eeg)],
        "time_reversed": [dataclasses.replace(row, eval_condition="time_reversed") for row in eeg],
    }


@pytest.mark.parametrize(
    ("deciding", "verdict"),
    [(None, Verdict.USES_EEG), (["shuffled"], Verdict.USES_EEG), (["time_reversed"], Verdict.EQUIVALENT)],
)
def test_a_control_that_keeps_the_words_features_asks_a_question_of_its_own(conditions, deciding, verdict):
    eeg, controls = conditions
    found = audit(eeg, controls, resamples=300, deciding=deciding)
    assert found.verdict is verdict
    asked = {c.control: bool(c.question) for c in found.comparisons}
    assert asked == {"shuffled": deciding == ["time_reversed"], "time_reversed": deciding != ["time_reversed"]}


@pytest.mark.parametrize(
    ("name", "question"),
    [
        ("time_reversed", "does the order of the recording matter?"),
        ("phase_randomized", "does the time course of the recording matter, beyond its spectrum?"),
    ],
)
def test_the_question_of_such_a_control_is_printed(conditions, name, question):
    eeg, controls = conditions
    asking = [dataclasses.replace(row, eval_condition=name) for row in controls["time_reversed"]]
    found = audit(eeg, {"shuffled": controls["shuffled"], name: asking}, resamples=300)
    assert found.verdict is Verdict.USES_EEG
    (said,) = [one.sentence for one in found.comparisons if one.control == name]
    assert said.startswith(f"This control does not decide, but answers a question of its own ({question}): ")


def test_controls_that_decide_by_default_keep_no_features_of_the_words():
    taken_away = {"noise", "noise_redrawn", "noise_uniform", "zero", "shuffled", "subject_mean", "length_only"}
    assert set(load_config("default").grid.controls) == taken_away | {"prompt_only"}


def test_alone_it_decides(conditions):
    eeg, controls = conditions
    assert audit(eeg, {"time_reversed": controls["time_reversed"]}, resamples=300).verdict is Verdict.EQUIVALENT


def test_the_headline_quotes_the_strictest_control(conditions, tmp_path):
    """Of controls with one verdict, in whichever order they are given."""
    eeg, controls = conditions
    half = [
        dataclasses.replace(shuffled, prediction=shuffled.prediction if i % 3 else row.prediction)
        for i, (row, shuffled) in enumerate(zip(eeg, controls["shuffled"], strict=True))
    ]
    easy, strict = controls["shuffled"], [dataclasses.replace(row, eval_condition="noise") for row in half]
    for given in ({"easy": easy, "strict": strict}, {"strict": strict, "easy": easy}):
        found = audit(eeg, given, resamples=300)
        effects = {c.control: c.primary.effect for c in found.comparisons}
        assert {c.verdict for c in found.comparisons} == {Verdict.USES_EEG}
        assert effects["strict"] < effects["easy"]
        assert found.deciding.control == "strict"
        assert "with strict" in found.sentence
        write_report(found, tmp_path / "report.html")
        page = (tmp_path / "report.html").read_text(encoding="utf8")
        assert f"<b>{effects['strict']:+.2f}</b><span>content difference" in page
