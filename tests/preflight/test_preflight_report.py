"""What the command says: topologies and chips, verdicts, remedies, and programs lowered for GPUs."""

import dataclasses
import json

import jax
import pytest
from tiny_run import as_flag, tiny_config

from eeg2text_jax.cli import main
from eeg2text_jax.errors import UserError
from eeg2text_jax.parallel.chips import CHIPS, chip_of_device
from eeg2text_jax.parallel.hlo import Collective
from eeg2text_jax.parallel.placement import Placement
from eeg2text_jax.preflight.compiling import Compiled, refused_bytes
from eeg2text_jax.preflight.fitting import LargestBatch
from eeg2text_jax.preflight.programs import make_outline
from eeg2text_jax.preflight.render import to_json, to_text
from eeg2text_jax.preflight.report import ProgramReport, Report, Task
from eeg2text_jax.preflight.topology import parse_topology

GIB = 2**30
WITHIN = Collective("all-reduce", ("data",), 3 * 2**20, 2)
ACROSS = Collective("all-gather", ("arm",), 100, 1)


def compiled(total: int, *collectives: Collective) -> Compiled:
    return Compiled(total, total // 2, total // 4, total // 8, total // 8, collectives, 1.0)


def task(name: str, flops: float) -> Task:
    return Task(name, 32, (56, 56), "", None, flops, 32 * 56)


def report(train: Compiled, largest: LargestBatch | None = None) -> Report:
    programs = [
        ProgramReport(task("training step", 197e12), train, 5 * GIB, 1.0, 0.1),
        ProgramReport(task("beam search", 1e12), compiled(GIB), GIB, 0.1, 0.1),
    ]
    largest = largest or LargestBatch(64, True, 64, {32: GIB, 64: 2 * GIB})
    return Report(
        tiny_config(),
        parse_topology("v5e:2x4"),
        {"arm": 2, "data": 4},
        ["eeg/0", "noise/0"],
        (56, 56),
        programs,
        largest,
        "least",
    )


def test_a_program_that_fits():
    good = report(compiled(8 * GIB, WITHIN))
    text = to_text(good)
    assert good.good
    assert "training step, batch 32, 56 words, 56 tokens: 8.00 GiB of 15.52 GiB a chip, fits" in text
    assert "data 6.0 MiB; across arms: none" in text
    assert "modelled, not measured: 197.00 TFLOP a device, at least 1000.0 ms" in text
    assert "64, confirmed by compiling it (32: 1.00 GiB, 64: 2.00 GiB)" in text
    assert "compiled with least effort, not run" in text


def test_one_that_does_not_says_what_to_change():
    bad = report(compiled(20 * GIB), LargestBatch(16, True, 16, {}))
    text = to_text(bad)
    assert not bad.good
    assert "DOES NOT FIT" in text
    for remedy in ("batch.size=16 fits", "model.remat=True", "model.dtype=bfloat16", "parallel.fsdp=True"):
        assert remedy in text


def test_a_collective_across_arms_is_flagged():
    bad = report(compiled(8 * GIB, WITHIN, ACROSS))
    assert not bad.good
    assert "across arms: 1 <-- arms must not communicate\n    all-gather of 100 bytes" in to_text(bad)
    assert to_json(bad)["programs"][0]["compiled"]["collectives_across_arms"] == ["all-gather of 100 bytes"]


def test_what_was_refused_or_not_confirmed_is_called_so():
    refused = dataclasses.replace(compiled(0), total=30 * GIB, arguments=None, temporaries=None, collectives=None)
    text = to_text(report(refused, LargestBatch(64, False, 96, {64: GIB})))
    assert "refused by the compiler for want of memory" in text
    assert "up to 96 may, which was NOT compiled" in text


@pytest.mark.parametrize(
    ("message", "bytes_"),
    [
        ("RESOURCE_EXHAUSTED: Ran out of memory in memory space hbm. Used 20.50G of 15.75G hbm. Exceeded", 20.5 * GIB),
        ("the total memory required for HLO temporaries (20.72G) exceeds available HBM (15.75G).", 20.72 * GIB + 7),
        ("INTERNAL: something else", None),
    ],
)
def test_memory_of_refused_programs(message, bytes_):
    found = refused_bytes(message, arguments=7)
    assert found == (None if bytes_ is None else int(bytes_))


@pytest.mark.parametrize(
    ("topology", "message"),
    [
        ("v5:2x4", "there is no chip 'v5'; did you mean 'v5"),
        ("teapot:2", "there is no chip 'teapot'; the chips are v4, v5e"),
        ("v5e", "expected a shape after the chip, as in 'v5e:2x4'"),
        ("v5e:0x4", "expected a shape"),
        ("h100:2x4", "expected a shape after the chip, as in 'h100:8'"),
    ],
)
def test_unknown_topologies(topology, message, capsys):
    assert main(["preflight", "--config=configs/demo.py", f"--topology={topology}"]) == 2
    assert message in capsys.readouterr().err


def test_an_unknown_field_of_the_configuration(capsys):
    assert main(["preflight", "--config=configs/demo.py", "--topology=v5e:2x4", "--config.batch.sise=3"]) == 2
    assert "did you mean `batch.size`?" in capsys.readouterr().err


def test_libtpu_that_is_missing(monkeypatch, capsys):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert main(["preflight", as_flag(parallel__mesh=(0, 0)), "--topology=v5e:2x4"]) == 2
    assert "needs libtpu: pip install 'eeg2text_jax[preflight]'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("kind", "chip"),
    [
        ("TPU v5 lite", "v5e"),
        ("TPU v5", "v5p"),
        ("TPU v4", "v4"),
        ("TPU v6 lite", "v6e"),
        ("NVIDIA A100-SXM4-80GB", "a100-80gb"),
        ("NVIDIA H100 80GB HBM3", "h100"),
        ("NVIDIA L4", "l4"),
        ("cpu", None),
        ("NVIDIA GeForce RTX 3060", None),
    ],
)
def test_chips_by_their_kind(kind, chip):
    assert chip_of_device(kind) is (CHIPS[chip] if chip else None)


def test_programs_are_lowered_for_gpus_that_are_not_there(tmp_path, capsys):
    out = tmp_path / "report.json"
    flag = as_flag(parallel__mesh=(0, 0), parallel__arms="auto")
    assert main(["preflight", flag, "--topology=h100:4", f"--json={out}"]) == 0
    text = capsys.readouterr().out
    assert "lowered, neither compiled nor run" in text
    assert "Not shown" in text
    told = json.loads(out.read_text())
    assert told["mesh"] == {"arm": 2, "data": 2}
    assert told["largest_batch"] is told["effort"] is None
    assert [program["compiled"] for program in told["programs"]] == [None, None]
    assert all(program["argument_bytes"] > 0 for program in told["programs"])


def test_arguments_are_counted_per_device():
    """Arms divide the state; four devices along the batch and FSDP leave a quarter of what is large."""
    config = tiny_config(parallel__mesh=(0, 0), batch__size=32)
    one, eight = ((make_outline(config), Placement.from_config(config, 2, n)) for n in (1, 8))
    whole, part = (outline.training(placement, 32).argument_bytes() for outline, placement in (one, eight))
    assert 0.5 * whole > part > 0.4 * whole


def test_a_program_without_a_compiled_shape_is_a_user_error():
    with pytest.raises(UserError, match="does not divide"):
        Placement.from_config(tiny_config(parallel__mesh=(0, 0), batch__size=30), 2, 8)
    assert jax.devices()[0].platform == "cpu"
