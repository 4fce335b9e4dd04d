"""`bench --config`: the programs of a run, figures, and the comparison with an earlier report."""

import copy
import json
import re
from pathlib import Path
from types import SimpleNamespace

import jax
import numpy as np
import pytest
from tiny_run import as_flag

from eeg2text_jax.base.devices.arms import _jitted
from eeg2text_jax.commands import bench
from eeg2text_jax.commands.bench import compared, has_recordings, lines, mfu, rates
from eeg2text_jax.commands.cli import main
from eeg2text_jax.decoding.generate import generate_program, teacher_forced_program
from eeg2text_jax.training.configuration import parse_config
from eeg2text_jax.training.metrics_log import BatchWork

SMALL = """from configs import {module}


def get_config():
    c = {module}.get_config("{argument}")
    sides = {{f"{{side}}_{{name}}": n for side in ("encoder", "decoder")
             for name, n in {{"layers": 1, "attention_heads": 2, "ffn_dim": 16}}.items()}}
    c.model.shape = {{**c.model.shape, "d_model": 16, **sides}}
    c.model.encoder_layers, c.model.encoder_heads, c.model.encoder_ffn = 1, 2, 16
    c.batch.size, c.batch.buckets, c.parallel.mesh = 8, (({words}, 56),), (1, 1)
    c.decode.max_length, c.decode.num_beams, c.decode.batch_size = 6, 2, 8
    {more}return c
"""
SMALL_PAPER = SMALL.format(module="paper", argument="backbone=bart,checkpoint=random", words=56, more="")
SMALL_WAVES = SMALL.format(
    module="waves",
    argument="encoder=labram,weights=random,checkpoint=random,seconds=1,rate=64",
    words=64,
    more="c.model.encoder_width, c.model.waves.patch = 24, 16\n    ",
)


def lowered_by(arguments: list[str], folder) -> dict[str, str]:
    """Name of a jitted function -> its lowered text (StableHLO), of the programs that a command compiles."""
    for cached in (_jitted, generate_program, teacher_forced_program):
        cached.cache_clear()
    jax.clear_caches()
    jax.config.update("jax_dump_ir_to", str(folder))
    try:
        assert main(arguments) == 0
    finally:
        jax.config.update("jax_dump_ir_to", None)
    found = {name: sorted(folder.glob(f"*{name}*.mlir")) for name in ("jit_train_step", "jit_apart")}
    return {f"{name} {i}": without_lines(p.read_text()) for name, paths in found.items() for i, p in enumerate(paths)}


def without_lines(text: str) -> str:
    """A lowered program without the places in our code from which it was traced."""
    inside = r"(?:[^()]|\((?:[^()]|\([^()]*\))*\))*"
    return re.sub(rf" ?loc\({inside}\)", "", re.sub(r"^#loc.*\n", "", text, flags=re.MULTILINE))


def test_it_runs_the_programs_of_a_run(tmp_path):
    """The training step and both modes of decoding are lowered to the same text as in `run`."""
    config = as_flag(train__steps=2, train__eval_every=2, grid__eval_conditions=("eeg",))
    of_run = lowered_by(["run", config, f"--workdir={tmp_path / 'run'}"], tmp_path / "of_run")
    out = tmp_path / "bench.json"
    of_bench = lowered_by(["bench", config, "--steps=2", f"--json={out}"], tmp_path / "of_bench")
    assert [name for name in of_run if "train" in name] == ["jit_train_step 0"]
    assert len(of_run) == 3  # one training step, beam search and teacher forcing
    assert of_bench == of_run
    report = json.loads(out.read_text())
    assert report["data"] == "its own"
    assert report["machine"]["versions"]["jax"] == jax.__version__
    for stage in ("train", "decode"):
        assert report[stage]["samples_per_second"] > 0
        assert 0 < report[stage]["p50_ms"] <= report[stage]["p90_ms"]
    assert report["train"]["memory_bytes"] > 0
    assert len(lines(report)) == 10


def test_without_recordings_some_are_made_up(tmp_path, monkeypatch, capsys):
    """The paper's configuration made small: the vocabulary stays that of the checkpoint."""
    monkeypatch.chdir(tmp_path)
    Path("small.py").write_text(SMALL_PAPER)
    command = ["bench", "--config=small.py", "--steps=2"]
    assert main([*command, "--json=first.json"]) == 0
    told = capsys.readouterr().out
    report = json.loads((tmp_path / "first.json").read_text())
    assert report["data"] == "made up"
    assert report["config"]["model"]["shape"]["vocab_size"] == 50265
    assert "data made up" in told
    assert main([*command, "--baseline=nothing.json"]) == 2
    assert "--baseline=nothing.json: " in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("data", ["its own", "made up"])
def test_waves_are_measured(data, tmp_path, monkeypatch):
    """Of synthetic recordings, and of a file of waves that is made up, with channels that LaBraM knows."""
    monkeypatch.chdir(tmp_path)
    Path("small.py").write_text(SMALL_WAVES)
    own = as_flag(
        data__raw__features="waves", data__raw__window=0.15, data__synthetic__features=4, data__max_words=60,
        batch__buckets=((60, 56),), model__encoder="conv", model__encoder_width=16,
    )  # fmt: skip
    config = "--config=small.py" if data == "made up" else own
    assert main(["bench", config, "--steps=2", "--json=first.json"]) == 0
    report = json.loads(Path("first.json").read_text())
    assert report["data"] == data
    assert report["config"]["data"]["raw"]["features"] == "waves"
    assert min(report["train"][f"{of}samples_per_second"] for of in ("", "input_")) > 0
    assert report["decode"]["samples_per_second"] > 0


def test_rates_are_of_all_steps_and_the_share_of_the_peak_of_all_arms_and_devices(monkeypatch):
    works = [BatchWork(3, 20, 7, 5, 4), BatchWork(4, 30, 9, 6, 4), BatchWork(1, 10, 7, 5, 4)]
    found = rates(works, [10.0, 11.0, 13.0, 16.0])
    assert found == {"samples_per_second": 8 / 6, "tokens_per_second": 10.0, "p50_ms": 2000.0, "p90_ms": 2800.0}
    monkeypatch.setattr(bench, "chip_of_device", lambda kind: SimpleNamespace(flops=1e9))
    monkeypatch.setattr(bench, "training_flops", lambda model, *sizes: 1e6 * np.prod(sizes))
    study = SimpleNamespace(model=None, arms=range(3), placement=SimpleNamespace(mesh=SimpleNamespace(size=8)))
    assert mfu(study, works, 6.0) == pytest.approx(3 * 1e6 * (4 * 7 * 5 + 4 * 9 * 6 + 4 * 7 * 5) / 6.0 / (8 * 1e9))
    monkeypatch.setattr(bench, "chip_of_device", lambda kind: None)
    assert mfu(study, works, 6.0) is None


@pytest.mark.parametrize(
    ("conditions", "fed"),
    [(("noise", "eeg"), "noise"), (("same_place", "nearest_in_time", "zero"), "zero"), (("same_place",), "eeg")],
)
def test_batches_are_decoded_under_a_condition_that_feeds_a_model(monkeypatch, conditions, fed):
    """Not under one whose texts are copied."""
    asked = []
    monkeypatch.setattr(bench, "decoder_of", lambda *_: None)
    monkeypatch.setattr(bench, "slices_of", lambda study, rows, condition, *_: asked.append(condition) or ([], None))
    grid, mesh = SimpleNamespace(eval_conditions=conditions), SimpleNamespace(mesh=None)
    study = SimpleNamespace(
        split=SimpleNamespace(parts={"test": []}), config=SimpleNamespace(grid=grid), placement=mesh
    )
    with pytest.raises(ZeroDivisionError):  # there is no batch to time
        bench.decode(study, None, 2)
    assert asked == [fed]


def test_a_slower_build_is_called_worse():
    figures = {"samples_per_second": 100.0, "p50_ms": 10.0, "mfu": None, "compile_seconds": 2.0}
    old = {"machine": {"versions": {"jax": "1"}}, "config": {"batch": {"size": 8}}, "train": figures, "steps": 5}
    new = copy.deepcopy(old)
    assert compared(new, old)[-1] == "  same machine, versions and configuration"
    new["train"] |= {"samples_per_second": 80.0, "p50_ms": 12.5}
    new["machine"]["versions"]["jax"], new["config"]["batch"]["size"] = "2", 16
    told = "\n".join(compared(new, old))
    assert "0.800  worse   samples/s: 80, was 100" in told
    assert "1.250  worse   ms of a step or batch, p50: 12.5, was 10" in told
    assert "1.000  same    s to compile" in told
    assert "machine.versions.jax (now '2', there '1')" in told
    assert "config.batch.size (now 16, there 8)" in told


@pytest.mark.parametrize(("source", "there"), [("synthetic", True), ("zuco_none.h5", False), ("gs://a/b.h5", True)])
def test_which_recordings_are_there(source, there):
    assert has_recordings(source) is there


def test_mistakes(capsys, tmp_path):
    assert main(["bench", as_flag(), "--steps=1"]) == 2
    assert "--steps=1: expected" in capsys.readouterr().err
    other = tmp_path / "other.json"
    other.write_text("[]")
    assert main(["bench", as_flag(), f"--baseline={other}"]) == 2
    assert "is no such report; expected what `eeg2text bench --config=... --json=FILE` wrote" in capsys.readouterr().err
    assert parse_config([as_flag()], "bench", optional=("json", "baseline", "steps")).options["steps"] == ""
