"""The package's public names are there, and reading them costs only what they need."""

import importlib
import subprocess
import sys
from pathlib import Path

import pytest

import eeg2text_jax
from eeg2text_jax.data.source import Sample


def test_public_names_are_callable_and_documented():
    code = "import eeg2text_jax as e\nfor n in e.__all__: assert callable(getattr(e, n)) and getattr(e, n).__doc__, n"
    subprocess.run([sys.executable, "-c", code], check=True)


def packages() -> list[str]:
    """The packages that have public names."""
    root = Path(eeg2text_jax.__file__).parent
    found = [path.parent for path in root.rglob("__init__.py") if "__all__" in path.read_text()]
    return [".".join(path.relative_to(root.parent).parts) for path in found]


def test_every_public_name_of_every_package_can_be_imported():
    assert {"eeg2text_jax", "eeg2text_jax.data"} <= set(packages())
    assert importlib.import_module("eeg2text_jax.data").Sample is Sample, "what a reader of one's own yields"
    for name in packages():
        package = importlib.import_module(name)
        assert [name for name in package.__all__ if not hasattr(package, name)] == [], name


def test_score_and_reproduce_import_nothing_slow():
    code = "import sys, eeg2text_jax.commands.score, eeg2text_jax as e; e.score, e.read_any; "
    code += "import eeg2text_jax.commands.paper_tables, eeg2text_jax.commands.reproduce; "
    code += "assert not {'jax', 'matplotlib', 'scipy.stats'} & sys.modules.keys()"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_other_names_are_not_there():
    with pytest.raises(AttributeError, match="nothing_here"):
        _ = eeg2text_jax.nothing_here
