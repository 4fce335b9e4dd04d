"""Messages made of other libraries' exceptions, some of which say nothing."""

from types import SimpleNamespace

import huggingface_hub
import pytest
from tiny_run import tiny_config

from eeg2text_jax.base.devices import hosts
from eeg2text_jax.base.errors import UserError, first_line, named
from eeg2text_jax.data.datafile import read_datafile
from eeg2text_jax.models.pretrained import folder
from eeg2text_jax.models.pretrained.folder import checkpoint_folder


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (ValueError(), "ValueError"),
        (OSError(" \n\t"), "OSError"),
        (RuntimeError("\n  first \nsecond"), "first"),
        (AssertionError(), "AssertionError"),
    ],
)
def test_the_first_line_of_an_error_has_something_in_it(error, line):
    assert first_line(error) == line


def test_a_type_is_named_once():
    assert named(ValueError("no\nmore")) == "ValueError: no"
    assert named(MemoryError()) == "MemoryError"


def raising(error):
    def function(*args, **options):
        raise error

    return function


def test_an_error_without_a_message_still_gives_a_sentence(monkeypatch, tmp_path):
    import h5py
    import torch

    (tmp_path / "pytorch_model.bin").write_bytes(b"PK" + b"x" * 100)
    monkeypatch.setattr(torch, "load", raising(EOFError()))
    with pytest.raises(UserError, match=r"it cannot be read \(EOFError\)"):
        folder.open_torch(tmp_path / "pytorch_model.bin")

    monkeypatch.setattr(hosts.jax.distributed, "initialize", raising(RuntimeError()))
    with pytest.raises(UserError, match=r"could not be joined \(RuntimeError\)"):
        hosts.initialize(tiny_config(parallel__hosts="auto").parallel)

    (tmp_path / "data.h5").write_bytes(b"x")
    monkeypatch.setattr(h5py, "File", raising(OSError()))
    with pytest.raises(UserError, match=r"\(OSError\)"):
        read_datafile(tmp_path / "data.h5")

    model = SimpleNamespace(siblings=[SimpleNamespace(rfilename="model.safetensors")])
    monkeypatch.setattr(huggingface_hub.HfApi, "model_info", lambda self, name, timeout: model)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", raising(OSError()))
    with pytest.raises(UserError, match=r"failed \(OSError\)"):
        checkpoint_folder("some/model")
