"""The package's public names are there, and reading them costs only what they need."""

import subprocess
import sys

import pytest

import eeg2text_jax


def test_public_names_are_callable_and_documented():
    code = "import eeg2text_jax as e\nfor n in e.__all__: assert callable(getattr(e, n)) and getattr(e, n).__doc__, n"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_score_imports_nothing_slow():
    code = "import sys, eeg2text_jax.commands.score, eeg2text_jax as e; e.score, e.read_any; "
    code += "assert not {'jax', 'matplotlib', 'scipy.stats'} & sys.modules.keys()"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_other_names_are_not_there():
    with pytest.raises(AttributeError, match="nothing_here"):
        _ = eeg2text_jax.nothing_here
