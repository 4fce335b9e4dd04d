"""mypy finds nothing in the package, as `[tool.mypy]` of pyproject.toml asks."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
READS = """from eeg2text_jax.training.sections import OptimSettings

def rate(optim: OptimSettings) -> float:
    return optim."""


def test_types_of_the_package(tmp_path):
    """One run: the package and a good reader of a section pass, a reader of a misspelt field does not."""
    pytest.importorskip("mypy", reason="the extra `test` has it")
    (tmp_path / "good.py").write_text(f"{READS}lr\n")
    (tmp_path / "misspelt.py").write_text(f"{READS}learning_rate\n")
    # Kept as the compiled programs are: a second run reads only what has changed.
    command = [sys.executable, "-m", "mypy", "--no-error-summary", f"--cache-dir={ROOT / '.pytest_cache/mypy'}"]
    files = ["eeg2text_jax", str(tmp_path / "good.py"), str(tmp_path / "misspelt.py")]
    found = subprocess.run([*command, *files], cwd=ROOT, capture_output=True, text=True, check=False)
    errors = [line for line in found.stdout.splitlines() if ": error:" in line]
    assert len(errors) == 1, found.stdout + found.stderr
    assert 'misspelt.py:4: error: "OptimSettings" has no attribute "learning_rate"' in errors[0]


def test_every_folder_is_checked():
    overrides = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf8"))["tool"]["mypy"]["overrides"]
    unchecked = [name for override in overrides if override.get("ignore_errors") for name in override["module"]]
    assert not unchecked
