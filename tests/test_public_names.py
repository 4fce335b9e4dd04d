"""The package's public names are there, and reading them costs only what they need."""

import subprocess
import sys

import pytest

import eeg2text_jax

EACH_NAME_FIRST = """
import sys
import flax.nnx, jax, optax, orbax.checkpoint, transformers  # once; the package itself anew for every name

for name in sys.argv[1:]:
    for module in [module for module in sys.modules if module.split(".")[0] == "eeg2text_jax"]:
        del sys.modules[module]
    import eeg2text_jax
    for _ in range(2):
        assert callable(getattr(eeg2text_jax, name)) and getattr(eeg2text_jax, name).__doc__, name
    print(name)
"""


def test_public_names_are_callable_and_documented():
    """Whichever is read first."""
    done = subprocess.run(
        [sys.executable, "-c", EACH_NAME_FIRST, *eeg2text_jax.__all__], check=True, stdout=subprocess.PIPE, text=True
    )
    assert done.stdout.split() == list(eeg2text_jax.__all__)


def test_score_does_not_import_jax():
    code = "import sys, eeg2text_jax.commands.score, eeg2text_jax as e; e.score; assert 'jax' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_other_names_are_not_there():
    with pytest.raises(AttributeError, match="nothing_here"):
        _ = eeg2text_jax.nothing_here
