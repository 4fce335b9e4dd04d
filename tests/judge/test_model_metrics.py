"""Metrics that need a model: every setting reaches the one that it is for."""

from types import SimpleNamespace

import pytest

from eeg2text_jax.base.errors import UserError
from eeg2text_jax.judge import _judge_folder, _meaning
from eeg2text_jax.judge.model_metrics import configured, makers_of


@pytest.fixture
def asked(monkeypatch):
    """What was asked for, by the kind of model; each gives one metric and one note."""
    found = {}

    def stand_in(kind):
        def make(*given, **settings):
            found[kind] = (*given, settings)
            maker = lambda references: [f"{kind} of {len(references)}"]  # noqa: E731
            maker.notes = lambda: [f"a note of the {kind}"]
            return maker

        return make

    monkeypatch.setattr(_meaning, "MeaningMetrics", stand_in("encoder"))
    monkeypatch.setattr(_judge_folder, "load_judged", lambda folder: (f"{folder}.json", "frozen"))
    monkeypatch.setattr(_judge_folder, "LatteScore", stand_in("judge"))
    return found


def test_settings_reach_the_encoder_and_the_judge(asked):
    names = ["bleu", "similarity", "lattescore", "bertscore", "similarity"]
    made = makers_of(names, "minilm", "work/judge", layer=3, idf=True, rescale="base.csv", truncate=True)
    assert asked["encoder"] == (["similarity", "bertscore"], "minilm", {"layer": 3, "idf": True, "rescale": "base.csv"})
    assert asked["judge"] == ("work/judge.json", "frozen", True, {})
    assert made(["a", "b"]) == ["encoder of 2", "judge of 2"]
    assert made.notes() == ["a note of the encoder", "a note of the judge"]
    assert makers_of(["bleu", "wer"], None, None) is None
    with pytest.raises(UserError, match="--layer is for bertscore and similarity"):
        makers_of(["wer"], None, None, layer=0)


@pytest.mark.parametrize(("layer", "expected"), [(4, 4), (0, 0), (-1, None)])
def test_a_run_needs_what_its_metrics_and_endpoints_do(asked, layer, expected):
    metrics = SimpleNamespace(names=("bleu", "bertscore"), layer=layer, encoder="small", judge="old/judge")
    audit = SimpleNamespace(endpoint="similarity", secondary=("words", "lattescore-mean"))
    assert configured(SimpleNamespace(metrics=metrics, audit=audit)) is not None
    assert asked["encoder"][:2] == (["bertscore", "similarity"], "small")
    assert asked["encoder"][2]["layer"] == expected
    assert asked["judge"][:3] == ("old/judge.json", "frozen", False)
