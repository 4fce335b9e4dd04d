"""The benchmark of training on a tiny shape, beside PyTorch with the same weights."""

import json

import numpy as np
import pytest

from eeg2text_jax.bench.train_work import make_work
from eeg2text_jax.cli import main

TINY = ["bench", "--stage=train", "--shape=tiny", "--batch=4", "--buckets=20:30,56:56", "--repeats=1"]


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    """What a run beside PyTorch, the input side with it, leaves in its JSON."""
    out = tmp_path_factory.mktemp("bench") / "bench.json"
    status = main([*TINY, "--peer=torch", "--input", f"--json={out}"])
    return status, json.loads(out.read_text())


def test_the_first_losses_agree(told):
    status, report = told
    assert status == 0
    assert report["first_loss"]["relative_difference"] < 1e-5
    assert report["first_loss"]["torch"] == pytest.approx(np.log(400), rel=0.1)  # random weights know nothing


def test_figures_of_every_bucket(told):
    rows = {(row["name"], tuple(row["bucket"])): row for row in told[1]["buckets"]}
    assert rows.keys() == {(name, bucket) for name in ("eeg2text_jax", "torch") for bucket in ((20, 30), (56, 56))}
    for row in rows.values():
        assert row["samples_per_second"] == pytest.approx(4 / min(row["seconds"]))
        assert 0 < row["word_padding"] < 1
        assert 0 < row["token_padding"] < 1
        assert row["mfu"] is None  # a CPU's peak is in no table
    assert rows["eeg2text_jax", (20, 30)]["compile_seconds"] > 0


def test_an_epoch_weighs_the_buckets(told):
    report = told[1]
    rows = [row for row in report["buckets"] if row["name"] == "torch"]
    seconds = sum(row["batches_of_an_epoch"] * min(row["seconds"]) for row in rows)
    samples = sum(row["batches_of_an_epoch"] * 4 for row in rows)
    assert report["epoch"]["torch"]["samples_per_second"] == pytest.approx(samples / seconds)
    padded = report["epoch"]["torch, padded to 56"]["samples_per_second"]
    assert padded == pytest.approx(4 / min(rows[-1]["seconds"]))
    assert report["input"]["batches_per_second"] > 0


def test_batches_are_those_of_training():
    work = make_work("tiny", 4, ((20, 30), (56, 56)), "", "float32")
    for (words, tokens), batch in work.examples.items():
        assert batch["features"].shape == (4, words, 16)
        assert batch["labels"].shape == (4, tokens)
        assert (batch["weight"] == 1).all()
    assert sum(work.batches.values()) in (255, 256)


def test_mistakes_are_one_sentence(monkeypatch, capsys, tmp_path):
    assert main([*TINY, "--sentences", str(tmp_path / "none.txt")]) == 2
    assert "none.txt: cannot be read" in capsys.readouterr().err
    assert main(["bench", "--stage=train", "--buckets=16-24"]) == 2
    assert "expected words:tokens" in capsys.readouterr().err
