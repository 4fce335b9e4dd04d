"""The bench runs on a tiny shape, and transformers writes the same tokens there."""

import json
import sys

from eeg2text_jax.cli import main


def test_tiny_shape_beside_transformers(tmp_path, capsys):
    out = tmp_path / "bench.json"
    flags = ["--shape=tiny", "--batch=2", "--words=5", "--steps=6", "--repeats=1", "--peer=transformers"]
    assert main(["bench", "--stage=decode", *flags, f"--trace={tmp_path / 'trace'}", f"--json={out}"]) == 0
    shown = capsys.readouterr().out
    assert "2 of 2 sentences have transformers' tokens" in shown
    assert "sentences/s" in shown
    assert "profile of a search of 5 steps: " in shown
    assert list((tmp_path / "trace/batch_2/plugins/profile").glob("*/*.xplane.pb"))
    rows = json.loads(out.read_text())["rows"]
    assert {row["decoder"] for row in rows} == {"eeg2text_jax", "transformers"}
    assert all(row["sentences_per_second"] > 0 for row in rows)


def test_a_missing_peer_is_named(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "ctranslate2", None)
    flags = ["--shape=tiny", "--batch=1", "--words=4", "--steps=4", "--repeats=1", "--peer=ctranslate2"]
    assert main(["bench", "--stage=decode", *flags]) == 2
    assert "ctranslate2 is not installed" in capsys.readouterr().err
    assert main(["bench", "--stage=decode", *flags[:-1], "--peer=ctranslate"]) == 2
    assert "there is no peer 'ctranslate'; expected some of transformers,ctranslate2," in capsys.readouterr().err


def test_a_test_set_of_free_lengths(tmp_path, capsys):
    sentences, out = tmp_path / "sentences.txt", tmp_path / "bench.json"
    sentences.write_text("one two three\n\nfour words in here\n")
    flags = ["--shape=tiny", "--count=5", "--forced=2", "--batch=2", "--compactions=0,1", f"--sentences={sentences}"]
    assert main(["bench", "--stage=test_set", *flags, f"--json={out}"]) == 0
    report = json.loads(out.read_text())
    assert report["forced"]["steps_taken"] == 55
    free, halved = report["free, 0 compactions"], report["free, 1 compactions"]
    assert free["steps_needed"] == halved["steps_needed"] <= halved["steps_taken"] <= free["steps_taken"] < 20
    assert "peak memory above the weights" in capsys.readouterr().out
    sentences.write_text(" ")
    assert main(["bench", "--stage=test_set", f"--sentences={sentences}"]) == 2
    assert "no sentence in it" in capsys.readouterr().err
