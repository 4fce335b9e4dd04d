"""The writer, read back by the safetensors package."""

import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import load_file
from safetensors.torch import load_file as load_torch

from eeg2text_jax.models.pretrained.folder import write_safetensors


def test_safetensors_package_reads_what_is_written(tmp_path):
    arrays = {
        "a.weight": np.random.default_rng(0).normal(size=(3, 5)).astype(np.float32),
        "turned": np.arange(12, dtype=np.int32).reshape(3, 4).T,
        "half": np.ones((2, 2), np.float16),
        "scalar": np.float32(3.5).reshape(()),
        "empty": np.zeros((0, 4), np.float32),
    }
    write_safetensors(tmp_path / "x.safetensors", arrays, {"format": "pt"})
    found = load_file(tmp_path / "x.safetensors")
    assert set(found) == set(arrays)
    for name, array in arrays.items():
        np.testing.assert_array_equal(found[name], array)
        assert found[name].dtype == array.dtype
    assert [path.name for path in tmp_path.iterdir()] == ["x.safetensors"]


def test_bfloat16_as_pytorch_reads_it(tmp_path):
    array = np.asarray(jnp.array([1.5, -2.0], jnp.bfloat16))
    write_safetensors(tmp_path / "x.safetensors", {"x": array}, {})
    assert load_torch(tmp_path / "x.safetensors")["x"].tolist() == [1.5, -2.0]


def test_a_failure_leaves_no_file(tmp_path, monkeypatch):
    monkeypatch.setattr(np, "ascontiguousarray", lambda _: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        write_safetensors(tmp_path / "x.safetensors", {"x": np.zeros(3, np.float32)}, {})
    assert not list(tmp_path.iterdir())
