"""The package's public names are there, and reading them costs only what they need."""

import subprocess
import sys

import pytest

import eeg2text_jax


@pytest.mark.parametrize("name", eeg2text_jax.__all__)
def test_public_names_are_callable_and_documented(name):
    code = f"import eeg2text_jax as e\nfor _ in range(2): assert callable(e.{name}) and e.{name}.__doc__"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_score_does_not_import_jax():
    code = "import sys, eeg2text_jax.commands.score, eeg2text_jax as e; e.score; assert 'jax' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_other_names_are_not_there():
    with pytest.raises(AttributeError, match="nothing_here"):
        _ = eeg2text_jax.nothing_here
