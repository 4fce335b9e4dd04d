"""Nothing in a pickle is executed, and what it may hold is rebuilt exactly."""

import io
import os
import pickle
import subprocess

import numpy as np
import pytest

from eeg2text_jax.data.recordings._features import BANDS, Fields
from eeg2text_jax.data.recordings._zuco import Forbidden, array, load_plain, read_pickle
from eeg2text_jax.data.source import UnreadableRecording


class Bomb:
    """Calls something when unpickled."""

    def __init__(self, function, *arguments):
        self._call = (function, arguments)

    def __reduce__(self):
        return self._call


@pytest.mark.parametrize("protocol", range(3, pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize(
    "value", [np.arange(6.0).reshape(2, 3), np.arange(6, dtype=">i2").reshape(2, 3).T, np.empty(0, "f4")]
)
def test_arrays_are_rebuilt(value, protocol):
    got = load_plain(io.BytesIO(pickle.dumps({"a": [value, value]}, protocol)))
    for loaded in got["a"]:
        np.testing.assert_array_equal(array(loaded), value.ravel())


def test_numpy_1_names_and_scalars():
    data = pickle.dumps([np.float64(2.5), np.ones(2)], 3)  # names of protocol 3 end with the line
    scalar, ones = load_plain(io.BytesIO(data.replace(b"numpy._core", b"numpy.core")))
    assert (scalar, array(ones).tolist()) == (2.5, [1, 1])


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize(
    "make",
    [
        lambda place: Bomb(os.system, f"touch {place}"),
        lambda place: Bomb(eval, f"open({str(place)!r}, 'w')"),
        lambda place: Bomb(subprocess.run, ["touch", str(place)]),
        lambda place: Bomb(np.save, str(place), 1),
        lambda place: {"ZAB": [Bomb(os.mkdir, str(place))]},
        lambda place: Bomb(getattr, "text", "upper"),
    ],
)
def test_forbidden_names_are_refused_before_anything_runs(tmp_path, make, protocol):
    target, path = tmp_path / "executed", tmp_path / "task1-SR-dataset.pickle"
    path.write_bytes(pickle.dumps(make(target), protocol))
    with pytest.raises(UnreadableRecording, match="nothing was executed: it names "):
        read_pickle(path, Fields("GD", BANDS))
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


def test_arrays_of_objects_are_refused():
    """numpy's own reconstruction would unpickle whatever is in them."""
    with pytest.raises(ValueError, match="not of plain numbers"):
        load_plain(io.BytesIO(pickle.dumps(np.array([{}], object), 4)))
    with pytest.raises(Forbidden, match=r"builtins\.set"):
        load_plain(io.BytesIO(pickle.dumps({1}, 3)))


def test_data_after_the_end_are_noticed():
    with pytest.raises(ValueError, match="after its end"):
        load_plain(io.BytesIO(pickle.dumps({}) + b"x"))
