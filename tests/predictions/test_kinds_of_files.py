"""Files that are not what they seem: labelled pairs, logs, other encodings, files without text."""

import gzip
import io
import pickle
import tarfile

import numpy as np
import pytest
from reading import pairs, refusal

from eeg2text_jax.instrument.predictions.read import describe, read_any
from eeg2text_testing.uploads import zipped

PAIRS = [(f"true words {i}: one", f"other words {i}, two") for i in range(8)]


@pytest.mark.parametrize(
    "pair",
    [
        "REF: {}\nHYP: {}\n\n",
        "Ground truth: {}\nPrediction: {}\n-----------------\n",
        "id: 4\ntarget: {}\nmodel output: {}\n",
        "REF: {}\n\nHYP: {}\n\n \n\n",
        "id: 4\n\ntarget: {}\noutput: {}\n\nwer: 0.5\n\n\n",  # each label begins a fourth of the filled lines
    ],
)
def test_labelled_pairs_are_read(write, pair):
    read = read_any(write("".join(pair.format(*sides) for sides in PAIRS)))
    assert pairs(read) == PAIRS
    assert "layout C2 (" in describe(read)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("REF: a\nREF: b\nHYP: c\nHYP: d\n", "line 1: 'REF: a' has no partner; repair"),
        ("HYP: a\nREF: b\nHYP: c\nREF: d\nHYP: e\n", "line 5: 'HYP: e' has no partner"),
        ("REF: a\nHYP: b\nand more of it\nREF: c\nHYP: d\n", "line 3: expected a line 'ref' or 'hyp'"),
    ],
)
def test_pairs_that_are_not_whole_are_refused(write, text, message):
    refusal(write(text), message)


def archive():
    out = io.BytesIO()
    np.savez(out, refs=np.zeros(2), hyps=np.zeros(2))
    return out.getvalue()


KINDS = {
    "pickle": (b"\x80\x04\x95" + b"\0" * 9, "a Python pickle, which can run code and is not opened"),
    "NumPy": (archive(), "a NumPy archive .refs.npy, hyps.npy.; write its texts as CSV"),
    "array": (b"\x93NUMPY\x01", "a NumPy array"),
    "Latin-1": (
        "reference,prediction\nune café,un thé\n".encode("latin-1"),
        "iconv -f ENCODING -t UTF-8 file.txt > new`; ENCODING may be WINDOWS-1252 for a Western language, GB18030",
    ),
}


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_file_is_and_what_to_do_are_said(write, kind):
    data, message = KINDS[kind]
    refusal(write(data), message)


def test_files_that_look_exchanged_are_to_be_exchanged(tmp_path, printed_by):
    words = [f"w{i} x{i} y{i}" for i in range(12)]
    (tmp_path / "ref.txt").write_text("".join(f"read by {i} once {n}\n" for n in range(4) for i in range(12)))
    (tmp_path / "out.txt").write_text("".join(f"{text}\n" for _ in range(4) for text in words))
    said = printed_by(["score", str(tmp_path / "out.txt"), f"--reference={tmp_path / 'ref.txt'}"])
    for part in ("are reference and prediction exchanged?", "if so, exchange the two files"):
        assert part in " ".join(said.split())


def tarred():
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        archive.addfile(tarfile.TarInfo("a.csv"))
    return out.getvalue()


TABLE = "reference,prediction\n" + "".join(f'{r},"{p}"\n' for r, p in PAIRS)
NAMED = {  # name of a file -> its bytes, and the words that say what it is
    "a.tar": (tarred, "a tar archive; unpack it, and give one of its files"),
    "a.tar.gz": (lambda: gzip.compress(tarred()), "a tar archive; unpack it"),
    "a.pkl": (lambda: pickle.dumps(PAIRS, protocol=0), "a Python pickle, which can run code and is not opened"),
    "a.pickle": (lambda: pickle.dumps(PAIRS, protocol=4), "a Python pickle, which can run code"),
    "a.pt": (lambda: zipped(b"\x80\x02", "archive/data.pkl", "archive/version"), "a Python pickle, which can run code"),
    "a.zip": (lambda: zipped(TABLE.encode(), "a.csv", "b.csv"), r"a zip archive of 2 files .a.csv, b.csv.; unpack it"),
    "cut.zip": (lambda: zipped(b"truth,pred\na,b\n", "a.csv")[:40], "a zip archive that cannot be read"),
    "cut.gz": (lambda: gzip.compress(TABLE.encode())[:60], "a gzip file that cannot be unpacked"),
    "old.xls": (lambda: b"\xd0\xcf\x11\xe0" + b"\0" * 600, "an Excel file of the format before 2007"),
    "b.zip": (lambda: zipped(zipped(b"a", "a.csv"), "inner.zip"), "a zip archive in a zip archive"),
    "a.7z": (lambda: b"7z\xbc\xaf\x27\x1c" + b"\0" * 30, "an archive; unpack it"),
}


@pytest.mark.parametrize("name", NAMED)
def test_archives_and_pickles_are_called_by_their_names(write, name):
    data, message = NAMED[name]
    refusal(write(data(), name), f"{name}: (holds )?{message}")


@pytest.mark.parametrize("inner", [TABLE.encode(), TABLE.encode("utf-16"), gzip.compress(TABLE.encode())])
def test_the_only_file_of_a_zip_archive_is_read(write, inner):
    """Folders, and what macOS puts beside each file of an archive, are no files of their own."""
    for names in (["folder/a.csv"], ["folder/", "folder/a.csv", "__MACOSX/folder/._a.csv"]):
        found = read_any(write(zipped(inner, *names), "a.zip"))
        assert pairs(found) == PAIRS


def test_what_is_no_csv_is_not_told_to_have_quotes(write):
    texts = "The first line, of a text.\nAnother one\nAnd, one, more\n"
    for text, name in ((texts, "file.txt"), ("loss: 1, acc: 2\nloss: 3\n", "log.txt")):
        refused = refusal(write(text, name), "neither a known layout")
        assert "quotes" not in refused
    refusal(write(texts, "file.csv"), r"line 2: 1 fields where the first line has 2; put quotes around")
