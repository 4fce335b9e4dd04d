"""The data file: what goes in comes out, and damage is said."""

import dataclasses
import hashlib
import io
import os
import shutil
import subprocess
import sys

import h5py
import numpy as np
import pytest

from eeg2text_jax.base.errors import UserError
from eeg2text_jax.data.data_writer import DataWriter
from eeg2text_jax.data.datafile import PatientFile, digests_of, read_datafile
from eeg2text_jax.data.source import Sample


def make(path, n=5, **changes):
    rng = np.random.default_rng(0)
    with DataWriter(path, 3, "three things") as writer:
        for i in range(n):
            fields = {"features": rng.normal(size=(i + 1, 3)), "sentence": f"sätze {i}", "subject": "A", "task": "NR"}
            writer.add(Sample(**{**fields, "sentence_index": i, **changes}))
        writer.provenance = {"source": "test"}
    return path


def test_round_trip(tmp_path):
    data = read_datafile(make(tmp_path / "data.h5"))
    assert len(data) == 5
    assert data.n_words.tolist() == [1, 2, 3, 4, 5]
    assert data.sentence[3] == "sätze 3"
    assert data.sentence_id[2] == "NR:2"
    assert data.provenance == {"source": "test"}
    np.testing.assert_array_equal(data.words(1), data.features[1:3])


def test_nothing_is_left_after_a_failure(tmp_path):
    good = Sample(np.ones((1, 3)), "a", "A", "NR", 0)
    writer = DataWriter(tmp_path / "data.h5", 3, "x")
    with pytest.raises(ValueError, match="not finite"), writer:
        writer.add_all([good, dataclasses.replace(good, features=np.full((1, 3), np.nan))])
    assert list(tmp_path.iterdir()) == []


FULL_AT = """
import resource, sys
import numpy as np
from eeg2text_jax.data.data_writer import DataWriter
from eeg2text_jax.data.source import Sample
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]),) * 2)
with DataWriter(sys.argv[1], 300, "x") as writer:
    writer.add_all(Sample(np.ones((9, 300)), "a", "A", "NR", i) for i in range(200))
"""


@pytest.mark.parametrize("room", [1000, 100_000, 2_161_000])
def test_a_disk_without_room_is_an_error_and_not_a_crash(tmp_path, room):
    """At the first write, among the features, at the end: the process ends by itself and leaves nothing."""
    command = [sys.executable, "-c", FULL_AT, str(tmp_path / "data.h5"), str(room)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 1
    assert "OSError: [Errno 27] File too large: '" in done.stderr
    assert list(tmp_path.iterdir()) == []


SMALL_DISK = """
mount -t tmpfs -o size=4k tmpfs "$2" || exit 77
"$1" -m eeg2text_jax prepare synthetic --config.data.synthetic.sentences=240 --out="$2/x.h5"
status=$?
ls -A "$2"
exit $status
"""


@pytest.mark.skipif(shutil.which("unshare") is None, reason="needs Linux's unshare")
def test_a_disk_of_4_kib_is_one_sentence(tmp_path):
    """Unlike a limit on a file's size it lets a file be made longer, and HDF5 reads back zeros then."""
    command = ["unshare", "--user", "--map-root-user", "--mount", "bash", "-c", SMALL_DISK, "", sys.executable]
    done = subprocess.run([*command, str(tmp_path)], capture_output=True, text=True)
    if done.returncode in (1, 77) and "eeg2text" not in done.stderr:
        pytest.skip(f"no disk can be mounted here: {done.stderr.strip()[:80]}")
    assert done.returncode == 2
    said = "No space left on device; free some space and run the same command again, what is finished is kept.\n"
    assert done.stderr.endswith(said)
    assert done.stderr.count("\n") == 1
    assert done.stdout == "", "nothing is left there"


def test_what_a_full_disk_did_not_take_is_read_back(tmp_path):
    """As from a file in memory, wherever HDF5 writes and reads."""
    rng = np.random.default_rng(0)
    expected = io.BytesIO()
    with PatientFile(str(tmp_path / "file"), "w+") as file:
        for number in range(300):
            if number == 20:
                file._error = OSError(28, "No space left on device")
            place, data = int(rng.integers(2000)), rng.bytes(int(rng.integers(1, 300)))
            for each in (file, expected):
                each.seek(place)
                assert each.write(data) == len(data)
            assert file.seek(0, 2) == expected.seek(0, 2)
            for each in (file, expected):
                each.seek(place // 2)
            ours, theirs = bytearray(500), bytearray(500)
            assert file.readinto(ours) == expected.readinto(theirs)
            assert ours == theirs
            assert file.tell() == expected.tell()


def test_one_process_writes_a_data_file_and_takes_over_from_killed_ones(tmp_path):
    path = tmp_path / "data.h5"
    for name in (".data.h5.partial", ".data.h5.lock"):
        (tmp_path / name).write_text("left by a killed process")
    with DataWriter(path, 2, "x") as writer:
        writer.add(Sample(np.ones((1, 2)), "a", "A", "NR", 0))
        with pytest.raises(UserError, match=rf"data\.h5: is in use by process {os.getpid()} on .* since"):
            DataWriter(path, 2, "x")
    assert [path.name for path in tmp_path.iterdir()] == ["data.h5"]
    assert len(read_datafile(path)) == 1


@pytest.mark.parametrize("keep", [0, 10, 600, 3000, None])
def test_cut_short_or_something_else(tmp_path, keep):
    path = make(tmp_path / "data.h5")
    path.write_bytes(b"hello" if keep is None else path.read_bytes()[:keep])
    with pytest.raises(UserError, match=r"data\.h5: cannot be read as an eeg2text data file"):
        read_datafile(path)
    with pytest.raises(UserError, match="there is no such file"):
        read_datafile(tmp_path / "other.h5")


def test_a_sentence_without_words(tmp_path):
    with pytest.raises(UserError, match=r"sample 0 .* is empty"):
        read_datafile(make(tmp_path / "data.h5", sentence=" "))


def test_a_changed_byte_is_said_or_changes_nothing(tmp_path):
    """At 400 places spread over the file: features, texts, attributes, and HDF5's own structures."""
    path = make(tmp_path / "data.h5", n=40)
    whole, good = path.read_bytes(), read_datafile(path)
    rng, refused = np.random.default_rng(0), 0
    for place in np.linspace(0, len(whole) - 1, 400).astype(int):
        damaged = bytearray(whole)
        damaged[place] ^= int(rng.integers(1, 256))
        path.write_bytes(damaged)
        try:
            found = read_datafile(path)
        except UserError:
            refused += 1
        else:
            for field in ("digests", "provenance", "features_are"):
                assert getattr(found, field) == getattr(good, field)
    assert refused > 50


def test_what_is_changed_is_named(tmp_path):
    """In the last of forty samples."""
    for name, change in {
        "features": lambda file: file["features"].__setitem__(-1, 0.0),
        "samples": lambda file: file["subject"].__setitem__(-1, "B"),
        "sentences": lambda file: file["sentence"].__setitem__(-1, "other"),
        "description": lambda file: file.attrs.__setitem__("provenance", "{}"),
    }.items():
        path = make(tmp_path / f"{name}.h5", n=40)
        with h5py.File(path, "r+") as file:
            change(file)
        with pytest.raises(UserError, match=f"the checksum of its {name} is not the one that the file states"):
            read_datafile(path)


def make_old(path):
    """A file of the first version."""
    with h5py.File(make(path), "r+") as file:
        file.attrs["format"] = "eeg2text-data-1"
        del file.attrs["checksums"]
    return path


def test_files_of_earlier_versions_are_read(tmp_path):
    assert read_datafile(make_old(tmp_path / "a.h5")).digest() == read_datafile(make(tmp_path / "b.h5")).digest()


@pytest.mark.parametrize("sample", range(5))
@pytest.mark.parametrize("end", [0, -1])
def test_a_sample_with_nan_is_named(sample, end, tmp_path):
    path = make_old(tmp_path / "data.h5")
    with h5py.File(path, "r+") as file:
        file["features"][range(sample * (sample + 1) // 2, (sample + 1) * (sample + 2) // 2)[end], 1] = np.nan
    with pytest.raises(UserError, match=rf"sample {sample} \(A, NR:{sample}\) has NaN or infinity"):
        read_datafile(path)


ELSEWHERE = "features keeps its values in another file"
VIRTUAL = h5py.VirtualLayout((15, 3), "f4")
VIRTUAL[:] = h5py.VirtualSource("other.h5", "features", (15, 3))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"link": h5py.ExternalLink("other.h5", "/features")}, "features is a link to another place"),
        ({"link": h5py.SoftLink("/offsets")}, "features is a link to another place"),
        ({"shape": (15, 3), "dtype": "f4", "external": [("secret.bin", 0, 180)]}, ELSEWHERE),
        ({"layout": VIRTUAL}, ELSEWHERE),
        ({"shape": (2_000_000_000, 3), "dtype": "f4", "chunks": (256, 3)}, "features claims"),
        ({"shape": (2_000_000_000, 3), "dtype": "f4", "chunks": (256, 3), "compression": 9}, "features claims"),
    ],
)
def test_what_leads_elsewhere_or_claims_too_much_is_refused(tmp_path, monkeypatch, options, message):
    monkeypatch.chdir(tmp_path)
    make(tmp_path / "other.h5")
    (tmp_path / "secret.bin").write_bytes(np.ones(45, "f4").tobytes())
    path = make(tmp_path / "data.h5")
    with h5py.File(path, "r+") as file:
        del file["features"]
        if "link" in options:
            file["features"] = options["link"]
        else:
            (file.create_virtual_dataset if "layout" in options else file.create_dataset)("features", **options)
    with pytest.raises(UserError, match=message):
        read_datafile(path)


def test_every_column_counts_in_its_digest():
    whole, real = np.array([0, 1, 3]), np.array([0.5, 2.0])
    columns = {"offsets": whole, "starts": whole[:2], "sentence_index": [0, 1], "order": whole[:2], "onset": real,
               "duration": real}  # fmt: skip
    columns |= {name: ["A", "B"] for name in ("subject", "task", "text_group", "sentence", "recording")}
    digest_of = {"offsets": "features", "starts": "features", "sentence": "sentences"}
    digest_of |= dict.fromkeys(("subject", "task", "sentence_index", "text_group"), "samples")
    digest_of |= dict.fromkeys(("recording", "onset", "duration", "order"), "clock")
    assert digest_of.keys() == columns.keys()
    before = digests_of(hashlib.sha256(b"frames"), columns)
    for name, digest in digest_of.items():
        after = digests_of(hashlib.sha256(b"frames"), {**columns, name: columns[name][::-1]})
        assert {other for other in before if before[other] != after[other]} == {digest}, name
    assert digests_of(hashlib.sha256(b"other"), columns)["features"] != before["features"]
