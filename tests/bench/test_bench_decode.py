"""The bench runs on a tiny shape, and transformers writes the same tokens there."""

import json
import os
import re
import sys

import beside
import numpy as np
import pytest
from peers import peer_place

from eeg2text_jax.base.errors import UserError
from eeg2text_jax.commands.bench import gpu_state


def test_tiny_shape_beside_transformers(tmp_path, capsys):
    out = tmp_path / "bench.json"
    flags = ["--shape=tiny", "--batch=2", "--words=5", "--steps=6", "--repeats=1", "--peer=transformers", "--int8"]
    assert beside.main(["decode", *flags, f"--json={out}"]) == 0
    shown = capsys.readouterr().out
    assert "2 of 2 sentences have transformers' tokens" in shown
    assert "sentences/s" in shown
    rows = json.loads(out.read_text())["rows"]
    assert {row["decoder"] for row in rows} == {"eeg2text_jax", "eeg2text_jax-int8", "transformers"}
    assert re.search(r"batch 2: \d of 2 sentences have the same tokens in int8", shown)
    assert shown.count("eeg2text_jax-int8 is") == shown.count("eeg2text_jax is") == 1
    assert all(row["sentences_per_second"] > 0 for row in rows)


@pytest.mark.quick("in-making")
@pytest.mark.parametrize("without_a_decoder", [False, True], ids=["in-decoding", "in-making"])
def test_a_peer_that_fails_or_differs_keeps_the_times_of_the_others(tmp_path, monkeypatch, without_a_decoder):
    def broken(*_, static=False, **__):
        if static and without_a_decoder:
            raise RuntimeError("no kernel\nfor this")

        def decode(size):
            if static:
                raise RuntimeError("no kernel\nfor this")
            return np.zeros((size, 6), np.int32)

        return decode

    monkeypatch.setattr("beside.transformers_decoder", broken)
    out = tmp_path / "bench.json"
    flags = ["--shape=tiny", "--batch=2", "--words=5", "--steps=6", "--repeats=1", "--dtype=bfloat16"]
    assert beside.main(["decode", *flags, "--peer=transformers,transformers-static", f"--json={out}"]) == 1
    report = json.loads(out.read_text())
    assert report["sentences_with_transformers_tokens"] == {"2": 0}
    assert report["failed_peers"] == {"transformers-static": "no kernel"}
    assert {row["decoder"] for row in report["rows"]} == {"eeg2text_jax", "transformers"}
    assert report["machine"]["versions"]["jax"]


def test_a_peer_never_runs_on_the_host_beside_a_gpu(monkeypatch):
    monkeypatch.setattr("jax.default_backend", lambda: "gpu")
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(UserError, match=r"JAX runs on a GPU, but torch .* finds none"):
        peer_place("float32")
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    assert peer_place("bfloat16") == ("cuda", "bfloat16")


def test_products_of_both_libraries(tmp_path, capsys):
    out = tmp_path / "products.json"
    assert beside.main(["products", "--shape=tiny", "--rows=8", "--repeats=1", f"--json={out}"]) == 0
    assert "XLA is" in capsys.readouterr().out
    rows = json.loads(out.read_text())["rows"]
    assert [row["what"] for row in rows] == ["attention projection", "feed-forward", "output head"]
    assert all(rate > 0 for row in rows for rate in row["flop_per_s"].values())


def test_a_gpus_state_is_read(monkeypatch, tmp_path):
    command = tmp_path / "nvidia-smi"
    command.write_text(
        "#!/bin/sh\necho 'NVIDIA H100, 570.1, 1980 MHz, 1980 MHz, 2619 MHz, 71.2 W, 700.00 W, 33, 1 MiB'\n"
    )
    command.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    (gpu,) = gpu_state()
    assert (gpu["driver_version"], gpu["clocks.sm"], gpu["power.limit"]) == ("570.1", "1980 MHz", "700.00 W")


def test_a_missing_peer_is_named(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "ctranslate2", None)
    flags = ["--shape=tiny", "--batch=1", "--words=4", "--steps=4", "--repeats=1", "--peer=ctranslate2"]
    assert beside.main(["decode", *flags]) == 2
    assert "ctranslate2 is not installed" in capsys.readouterr().err
    assert beside.main(["decode", *flags[:-1], "--peer=ctranslate"]) == 2
    said = capsys.readouterr().err
    assert "there is no peer 'ctranslate'; expected some of transformers,transformers-static," in said
