"""The benchmark of training on a tiny shape, beside PyTorch with the same weights."""

import json
from pathlib import Path

import beside
import numpy as np
import pytest
from bench_train import epoch_row
from workload import make_work

BUCKETS = ((20, 30), (56, 56))
TINY = ["--shape=tiny", "--batch=4", "--buckets=56:56", "--repeats=1"]


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """What a run beside PyTorch leaves in its JSON."""
    out = tmp_path_factory.mktemp("bench") / "bench.json"
    status = beside.main(["train", *TINY, "--peer=torch", f"--trace={out.parent}", f"--json={out}"])
    return status, json.loads(out.read_text())


def test_the_first_losses_agree(measured):
    status, report = measured
    assert status == 0
    assert report["first_loss"]["relative_difference"] < 1e-5
    assert report["first_loss"]["torch"] == pytest.approx(np.log(400), rel=0.1)  # random weights know nothing


def test_figures(measured):
    report = measured[1]
    rows = {row["name"]: row for row in report["buckets"]}
    assert rows.keys() == {"eeg2text_jax", "torch"}
    for name, row in rows.items():
        assert row["samples_per_second"] == pytest.approx(4 / min(row["seconds"]))
        assert 0 < row["word_padding"] < 1
        assert 0 < row["token_padding"] < 1
        assert row["mfu"] is None  # a CPU's peak is in no table
        assert report["epoch"][name]["samples_per_second"] == pytest.approx(row["samples_per_second"])
    assert rows["eeg2text_jax"]["compile_seconds"] > 0
    assert report["epoch"].keys() == {"eeg2text_jax", "torch", "torch, padded to 56"}


def test_a_profile_says_where_the_time_goes(measured):
    row = next(row for row in measured[1]["buckets"] if row["name"] == "eeg2text_jax")
    assert Path(row["profile"]).exists()
    measured = row["measured_ms_by_part"]
    assert 0 < sum(measured.values()) < 1e4
    assert list(measured.values()) == sorted(measured.values(), reverse=True)
    assert row["estimated_ms_by_part"] is None  # only a TPU's compiler has a clock


def test_an_epoch_weighs_the_buckets():
    work = make_work("tiny", 4, BUCKETS, "float32")
    seconds = {(20, 30): 1.0, (56, 56): 3.0}
    row = epoch_row(work, seconds)
    total = work.batches[20, 30] + 3 * work.batches[56, 56]
    assert row["samples_per_second"] == pytest.approx(4 * sum(work.batches.values()) / total)
    words = {bucket: int(batch["mask"].sum()) for bucket, batch in work.examples.items()}
    expected = sum(work.batches[bucket] * words[bucket] for bucket in BUCKETS) / total
    assert row["words_per_second"] == pytest.approx(expected)


def test_batches_are_those_of_training():
    work = make_work("tiny", 4, BUCKETS, "float32")
    for (words, tokens), batch in work.examples.items():
        assert batch["features"].shape == (4, words, 16)
        assert batch["labels"].shape == (4, tokens)
        assert (batch["weight"] == 1).all()
    assert sum(work.batches.values()) in (255, 256)


def test_mistakes_are_one_sentence(capsys):
    assert beside.main(["train", "--buckets=16-24"]) == 2
    assert "error: --buckets=16-24: expected words:tokens" in capsys.readouterr().err


@pytest.mark.slow
def test_a_peer_that_fails_keeps_the_times_of_the_others(tmp_path, monkeypatch, capsys):
    def compile_none(function, **_):
        def fail(*_):
            raise RuntimeError("no compiler")

        return fail

    monkeypatch.setattr("torch.compile", compile_none)
    out = tmp_path / "bench.json"
    assert beside.main(["train", *TINY, "--dtype=bfloat16", "--peer=torch,torch-compiled", f"--json={out}"]) == 0
    report = json.loads(out.read_text())
    assert report["failed_peers"] == {"torch-compiled": "no compiler"}
    assert report["first_loss"]["relative_difference"] < 1e-5  # in float32, whatever the times are of
    assert {row["name"] for row in report["buckets"]} == {"eeg2text_jax", "torch"}
    assert beside.main(["train", *TINY, "--peer=tensorflow"]) == 2
    assert "there is no peer 'tensorflow'; expected some of torch,torch-compiled." in capsys.readouterr().err
