"""The Level 5 decoder against scipy's, on the files that MATLAB itself wrote for scipy's own tests."""

import struct
from pathlib import Path

import numpy as np
import pytest
import scipy.io
import scipy.io.matlab

from eeg2text_jax.data.recordings._mat_v5 import Damaged, Decoder, StructArray

SAMPLES = Path(scipy.io.matlab.__file__).parent / "tests" / "data"


def pack(*parts, order="<"):
    """An array's data elements, each padded to 8 bytes."""
    return b"".join(struct.pack(f"{order}II", kind, len(data)) + data + bytes(-len(data) % 8) for kind, data in parts)


def numeric(kind, data, count, matlab_class=6):
    return pack((6, struct.pack("<II", matlab_class, 0)), (5, struct.pack("<ii", 1, count)), (1, b""), (kind, data))


@pytest.mark.parametrize("stored", ["i1", "u1", "i2", "u2", "i4", "u4", "f8"])
def test_doubles_stored_as_smaller_integers(stored):
    kind = {"i1": 1, "u1": 2, "i2": 3, "u2": 4, "i4": 5, "u4": 6, "f8": 9}[stored]
    values = np.array([1, 50, 127], stored)
    got = Decoder("<").array(numeric(kind, values.tobytes(), 3))
    assert got.numbers.tolist() == [1, 50, 127]


def test_small_elements():
    """Up to four bytes of data share their tag's eight."""
    data = pack((6, struct.pack("<II", 6, 0)), (5, struct.pack("<ii", 1, 2)), (1, b""))
    data += struct.pack("<HHHH", 4, 4, 7, 9)  # uint16, 4 bytes: 7, 9
    assert Decoder("<").array(data).numbers.tolist() == [7, 9]


@pytest.mark.parametrize(
    ("kind", "data", "count", "text"),
    [
        (4, "naïve –".encode("utf-16-le"), 7, "naïve –"),
        (17, "naïve –".encode("utf-16-le"), 7, "naïve –"),
        (16, "naïve –".encode(), 7, "naïve –"),
        (16, "a😀".encode(), 3, "a😀"),  # dimensions in UTF-16 units
        (2, b"plain", 5, "plain"),
    ],
)
def test_encodings_of_text(kind, data, count, text):
    assert Decoder("<").array(numeric(kind, data, count, matlab_class=4)).text == text


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (numeric(9, bytes(24), 2), "contradicts its dimensions"),
        (numeric(9, bytes(24), 4), "contradicts its dimensions"),
        (numeric(12, bytes(24), 3), "which its class does not allow"),
        (numeric(9, bytes(24), 3, matlab_class=7), "which its class does not allow"),
        (numeric(9, bytes(24), 3)[:-8], "larger than the array"),
        (numeric(9, bytes(24), 3) + bytes(8), "contradicts its dimensions"),
        (numeric(4, "ab".encode("utf-16-le"), 3, matlab_class=4), "length of a text"),
        (numeric(16, b"\xff\xfe", 2, matlab_class=4), "is not utf-8"),
        (b"\1\2\3", "ends in the middle"),
    ],
)
def test_contradictions_are_refused(data, problem):
    with pytest.raises(Damaged, match=problem):
        Decoder("<").array(data)


@pytest.mark.skipif(not SAMPLES.is_dir(), reason="scipy is installed without its tests' data")
@pytest.mark.parametrize("name", ["teststruct", "teststructarr", "teststructnest"])
def test_structs_that_matlab_wrote(name):
    """v6 (uncompressed), v7 (compressed) and big-endian files from MATLAB: fields, text and numbers as loadmat's."""
    compared = 0
    for path in sorted(SAMPLES.glob(f"{name}_[67]*.mat")):
        expected = scipy.io.loadmat(path, struct_as_record=False, squeeze_me=False)
        with path.open("rb") as file:
            for variable, value in expected.items():
                if not isinstance(value, np.ndarray) or value.dtype != object:
                    continue
                array = StructArray(file, variable, frozenset(value.ravel()[0]._fieldnames))
                for element, other in zip(array, value.ravel(order="F"), strict=True):
                    assert tuple(element) == tuple(other._fieldnames)
                    compared += compare(array.decoder, element, other)
    assert compared


def compare(decoder, element, other):
    compared = 0
    for field, data in element.items():
        value, decoded = getattr(other, field), decoder.array(data)
        if decoded.text is not None:
            assert decoded.text == "".join(value)
        elif decoded.numbers is not None:
            np.testing.assert_array_equal(decoded.numbers, value.ravel(order="F"))
            assert decoded.dims == value.shape
        compared += decoded.text is not None or decoded.numbers is not None
    return compared
