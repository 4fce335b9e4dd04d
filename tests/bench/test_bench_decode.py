"""The bench runs on a tiny shape, and transformers writes the same tokens there."""

import json
import sys

from eeg2text_jax.cli import main


def test_tiny_shape_beside_transformers(tmp_path, capsys):
    out = tmp_path / "bench.json"
    flags = ["--shape=tiny", "--batch=2", "--words=5", "--steps=6", "--repeats=1", "--peer=transformers"]
    assert main(["bench", "--stage=decode", *flags, f"--json={out}"]) == 0
    shown = capsys.readouterr().out
    assert "2 of 2 sentences have transformers' tokens" in shown
    assert "sentences/s" in shown
    rows = json.loads(out.read_text())["rows"]
    assert {row["decoder"] for row in rows} == {"eeg2text_jax", "transformers"}
    assert all(row["sentences_per_second"] > 0 for row in rows)


def test_a_missing_peer_is_named(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "ctranslate2", None)
    flags = ["--shape=tiny", "--batch=1", "--words=4", "--steps=4", "--repeats=1", "--peer=ctranslate2"]
    assert main(["bench", "--stage=decode", *flags]) == 2
    assert "ctranslate2 is not installed" in capsys.readouterr().err
