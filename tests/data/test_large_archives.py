"""`.npz` archives whose arrays are refused before they are read."""

import io
import zipfile

import numpy as np
import pytest

from eeg2text_jax.base.errors import UserError
from eeg2text_jax.data import rows
from eeg2text_jax.data.rows import Columns, npz_rows


def header(shape: tuple[int, ...]) -> bytes:
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(file, {"shape": shape, "fortran_order": False, "descr": "<f8"})
    return file.getvalue()


def archive(path, content: bytes):
    np.savez(path, sentence=np.array(["one", "two"]))
    with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as file:
        file.writestr("features.npy", content)
    return path


def test_object_texts_say_how_to_store_them(tmp_path):
    """NumPy would pickle them."""
    np.savez(tmp_path / "a.npz", features=np.zeros((2, 3)), sentence=np.array(["one text", "two"], object))
    with pytest.raises(UserError, match=r"a\.npz: sentence is an array of objects.* np.array\(texts, dtype=str\)"):
        list(npz_rows(tmp_path / "a.npz", Columns()))


def test_an_array_that_declares_more_than_there_is(tmp_path):
    path = archive(tmp_path / "a.npz", header((50_000_000_000_000,)) + b"\0" * 16)
    with pytest.raises(UserError, match=r"a\.npz: features\.npy declares 400,000,000,000,\d+ bytes .* and has \d+;"):
        list(npz_rows(path, Columns()))


def test_an_archive_that_unpacks_to_far_more_than_it_is(tmp_path, monkeypatch):
    monkeypatch.setattr(rows, "PLAUSIBLE", 1 << 16)
    monkeypatch.setattr(np, "load", lambda *_, **__: pytest.fail("an array was read"))
    path = archive(tmp_path / "a.npz", header((2, 1 << 17)) + bytes(2 << 20))
    with pytest.raises(UserError, match=r"a\.npz: .* MiB unpack to 0\.00 GiB, \d+ to 1; recordings do not"):
        list(npz_rows(path, Columns()))


def test_an_archive_larger_than_the_free_memory(tmp_path, monkeypatch):
    monkeypatch.setattr("os.sysconf", lambda name: 1 if name == "SC_PAGE_SIZE" else 100)
    path = archive(tmp_path / "a.npz", header((2, 3)) + bytes(48))
    with pytest.raises(UserError, match=r"a\.npz: unpacks to .* of memory are free; divide it"):
        list(npz_rows(path, Columns()))


def test_what_recordings_look_like_is_read(tmp_path):
    features = np.random.default_rng(0).normal(size=(2, 3))
    np.savez_compressed(tmp_path / "a.npz", sentence=np.array(["one", "two"]), features=features)
    read = list(npz_rows(tmp_path / "a.npz", Columns()))
    np.testing.assert_array_equal(np.concatenate([row["features"] for row in read]), features)
    assert [row["sentence"] for row in read] == ["one", "two"]


HEADERS = [
    "{'descr': print('<f4'), 'fortran_order': False, 'shape': (2, 3)}",
    *(character * n for character in "(-[" for n in (300, 5000, 9000)),
    "{'descr': '<f4', 'fortran_order': False, 'shape': " + "(" * 500 + ")" * 500 + "}",
    "{'descr': ',f4,', 'fortran_order': False, 'shape': (2, 3)}",
    "\udcff\udcfe{'descr'",
    "'",
    "\0",
]


@pytest.mark.parametrize("text", HEADERS, ids=range(15))
def test_a_header_of_any_text_is_one_sentence(tmp_path, refused, text):
    """Python's own reader of literals, which NumPy calls, raises a dozen kinds of errors."""
    content = text.encode("utf8", "surrogateescape") + b"\n"
    path = archive(tmp_path / "a.npz", b"\x93NUMPY\x01\x00" + len(content).to_bytes(2, "little") + content + bytes(24))
    said = refused(["prepare", str(path), f"--out={tmp_path / 'a.h5'}"], alone=False)
    assert f"{path}: cannot be read as a NumPy archive (" in said
    assert len(said) < 400
    assert "pickle" not in said
    if text == HEADERS[0]:  # `ast.literal_eval` itself would name a syntax tree and an address in memory
        assert said.endswith("(the header of an array is damaged); write it again with np.savez.")
