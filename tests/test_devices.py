"""Devices that are not there, and errors without a word: one sentence."""

import pytest

from eeg2text_jax.base.devices import hosts
from eeg2text_jax.commands.preflight import compiling


@pytest.mark.parametrize(
    "error",
    [
        AssertionError(),  # what JAX raises for JAX_PLATFORMS=cuda without its plugin
        RuntimeError("Unable to initialize backend 'tpu': INTERNAL: Failed to open libtpu.so\nmore"),
    ],
)
@pytest.mark.parametrize("command", ["run", "train", "decode", "export", "bench"])
def test_devices_that_are_not_there(command, error, monkeypatch, tmp_path, refused):
    def devices():
        raise error

    monkeypatch.setattr(hosts.jax, "devices", devices)
    monkeypatch.setenv("JAX_PLATFORMS", "cuda")
    arguments = {
        "export": [f"--workdir={tmp_path / 'run'}", f"--out={tmp_path / 'out'}"],
        "bench": ["--config=configs/demo.py"],
    }.get(command, ["--config=configs/demo.py", f"--workdir={tmp_path / 'run'}"])
    sentence = refused([command, *arguments])
    assert "JAX_PLATFORMS='cuda': JAX finds no such device" in sentence
    assert "pip install 'eeg2text_jax[cuda]'" in sentence
    assert not list(tmp_path.iterdir())


class Silent(NotImplementedError):
    """As some libraries raise: without a message."""


def test_a_lowering_that_is_refused_without_a_word_has_a_reason():
    class Refusing:
        def trace(self, *arguments):
            raise Silent

    program = compiling.Program.__new__(compiling.Program)
    object.__setattr__(program, "function", Refusing())
    object.__setattr__(program, "arguments", ())
    assert compiling.lowers_for(program, "cuda") == "Silent"


def test_a_configuration_that_raises_without_a_word_is_said(tmp_path, refused):
    (tmp_path / "broken.py").write_text("def get_config():\n    raise ValueError\n")
    said = refused(["run", f"--config={tmp_path / 'broken.py'}", f"--workdir={tmp_path / 'run'}"])
    assert "broken.py: cannot be loaded (ValueError)." in said
