"""A command through the real TPU compiler, where libtpu is installed."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# A batch of thousands, which a tiny model has room for, takes longer to compile than all else.
COMMAND = """
import sys
from eeg2text_jax.commands.cli import main
from eeg2text_jax.commands.preflight import estimate as fitting
fitting.LARGEST = 16
sys.exit(main(sys.argv[1:]))
"""


def needs_libtpu() -> None:
    """Skip without it. In a process of its own: importing libtpu would make this one look for a TPU."""
    found = "import importlib.util, sys; sys.exit(importlib.util.find_spec('libtpu') is None)"
    if subprocess.run([sys.executable, "-c", found], check=False).returncode:
        pytest.skip("libtpu is not installed: pip install '.[preflight]'")


def preflight(out: Path, *options: str) -> tuple[dict, str]:
    """What the command tells, as JSON and as text."""
    needs_libtpu()
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("XLA_", "JAX_"))}
    command = [sys.executable, "-c", COMMAND, "preflight", *options, f"--json={out}"]
    ran = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=500, check=False)
    assert ran.returncode == 0, ran.stderr[-2000:]
    return json.loads(out.read_text()), ran.stdout
