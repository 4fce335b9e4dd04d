"""A tiny configuration through the real TPU compiler, where libtpu is installed."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tiny_run import as_flag

ROOT = Path(__file__).parents[2]


def importable(name: str) -> bool:
    """In a process of its own: importing libtpu would make this one look for a TPU."""
    found = f"import importlib.util, sys; sys.exit(importlib.util.find_spec({name!r}) is None)"
    return subprocess.run([sys.executable, "-c", found], check=False).returncode == 0


def test_a_tiny_grid_for_eight_chips(tmp_path):
    if not importable("libtpu"):
        pytest.skip("libtpu is not installed: pip install '.[preflight]'")
    out = tmp_path / "report.json"
    flag = as_flag(shape={"dropout": 0.0}, model__dropout=0.0, batch__size=8, parallel__mesh=(0, 0))
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("XLA_", "JAX_"))}
    command = [sys.executable, "-m", "eeg2text_jax", "preflight", flag, "--topology=v5e:2x4", f"--json={out}"]
    ran = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=500, check=False)
    assert ran.returncode == 0, ran.stderr[-2000:]
    told = json.loads(out.read_text())
    assert told["mesh"] == {"arm": 2, "data": 4}
    train, search = told["programs"]
    assert train["fits"]
    assert search["fits"]
    assert train["compiled"]["collective_bytes_by_axis"].keys() == {"data"}
    assert search["compiled"]["collective_bytes_by_axis"] == {}
    # What the compiler calls arguments is what the shapes say, plus padding to its tiles.
    assert train["argument_bytes"] <= train["compiled"]["arguments"] < 40 * train["argument_bytes"]
    assert train["compiled"]["total"] < told["usable_bytes"]
