"""mypy finds nothing in the package, as `[tool.mypy]` of pyproject.toml asks."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def check(*arguments: str, cache: Path) -> subprocess.CompletedProcess:
    """Run mypy on the package, or on the code that follows `-c`."""
    command = [sys.executable, "-m", "mypy", "--no-error-summary", f"--cache-dir={cache}", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_types_of_the_package(tmp_path):
    pytest.importorskip("mypy", reason="the extra `test` has it")
    cache = tmp_path / "cache"
    found = check(cache=cache)
    assert found.returncode == 0, found.stdout + found.stderr
    settings = "from eeg2text_jax.study.sections import OptimSettings"
    read = f"{settings}\ndef rate(optim: OptimSettings) -> float:\n    return optim."
    assert check("-c", f"{read}lr", cache=cache).returncode == 0
    misspelt = check("-c", f"{read}learning_rate", cache=cache)
    assert misspelt.returncode == 1
    assert 'has no attribute "learning_rate"' in misspelt.stdout


def test_folders_without_a_check_are_these():
    overrides = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf8"))["tool"]["mypy"]["overrides"]
    unchecked = [name for override in overrides if override.get("ignore_errors") for name in override["module"]]
    assert set(unchecked) <= {"eeg2text_jax.auditing.*", "eeg2text_jax.judge.*"}
