"""A tiny configuration through the real TPU compiler, where libtpu is installed."""

import subprocess
import sys

import pytest
from real_compiler import ROOT, needs_libtpu, preflight
from tiny_run import as_flag


def tiny(**changes: object) -> str:
    return as_flag(shape={"dropout": 0.0}, model__dropout=0.0, batch__size=8, parallel__mesh=(0, 0), **changes)


def test_a_tiny_grid_for_eight_chips(tmp_path):
    told, _ = preflight(tmp_path / "report.json", tiny(), "--topology=v5e:2x4")
    assert told["mesh"] == {"arm": 2, "data": 4}
    train, search = told["programs"]
    assert train["fits"]
    assert search["fits"]
    assert train["compiled"]["collective_bytes_by_axis"].keys() == {"data"}
    assert search["compiled"]["collective_bytes_by_axis"] == {}
    # What the compiler calls arguments is what the shapes say, plus padding to its tiles.
    assert train["argument_bytes"] <= train["compiled"]["arguments"] < 40 * train["argument_bytes"]
    assert train["compiled"]["total"] < told["usable_bytes"]
    assert train["estimated"] is search["estimated"] is None  # times want full effort


def test_the_compilers_clock_on_one_chip(tmp_path):
    """Two arms on one chip, both ways, every bucket, and the search: all have times, the loops' lengths are known."""
    options = ("--topology=v5e:1x1", "--effort=full", "--largest=no")
    changes = {"model__encoder_layers": 0, "batch__buckets": ((10, 12), (20, 56))}
    told, text = preflight(tmp_path / "report.json", tiny(**changes), *options)
    assert told["mesh"] == {"arm": 1, "data": 1}
    programs = {(p["name"], p["words"], p["arms_of_a_device"]): p["estimated"] for p in told["programs"]}
    assert programs.keys() == {
        ("training step", 20, "vmap"), ("training step", 20, "map"), ("training step", 10, "vmap"),
        ("beam search", 20, None),
    }  # fmt: skip
    for spent in programs.values():
        assert 0 < spent["milliseconds"] < 100
        assert sum(spent["milliseconds_by_part"].values()) == pytest.approx(spent["milliseconds"])
        assert 0 < spent["share_of_peak"] < 0.1
        assert 0 < spent["without_estimate"]["share_of_executions"] < 1
    assert programs["training step", 10, "vmap"]["milliseconds"] < programs["training step", 20, "vmap"]["milliseconds"]
    search = programs["beam search", 20, None]
    assert search["step"]["steps"] == 11
    # The rest are the encoders, of both arms, each with a search of its own.
    assert 0 < search["milliseconds"] - 2 * 11 * search["step"]["milliseconds"] < 0.5 * search["milliseconds"]
    assert text.count("estimated by the compiler, not measured: ") == 4
    assert told["largest_batch"] is None
    assert "largest batch" not in text
    assert "the arms of a device, training step as estimated by the compiler" in text


TOPOLOGY = """
import os, sys
from eeg2text_jax.commands.run import ENVIRONMENT
os.environ.update(ENVIRONMENT)
from eeg2text_jax.commands.preflight.compiling import parse_topology, tpu_devices
print(len(tpu_devices(parse_topology("v5e:2x2"))), flush=True)
sys.stdin.readline()
"""


def test_two_at_once():
    """libtpu has a lock file, which keeps others off a chip; here is none."""
    needs_libtpu()
    command = [sys.executable, "-c", TOPOLOGY]
    with (
        subprocess.Popen(command, cwd=ROOT, stdin=-1, stdout=-1, text=True) as one,
        subprocess.Popen(command, cwd=ROOT, stdin=-1, stdout=-1, text=True) as two,
    ):
        assert [ran.stdout.readline() for ran in (one, two)] == ["4\n", "4\n"]  # both are still there
