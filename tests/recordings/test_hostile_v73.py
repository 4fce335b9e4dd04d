"""MAT v7.3 files that claim what they do not hold, or lead to other files."""

import shutil
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest

from eeg2text_jax.data.recordings._features import BANDS, Fields
from eeg2text_jax.data.recordings._mat_v73 import read_mat_v73
from eeg2text_jax.data.source import UnreadableRecording

FILE = "resultsZAB_SR.mat"
READ = """
import resource, sys
from pathlib import Path
from eeg2text_jax.data.recordings._mat_v73 import read_mat_v73
from eeg2text_jax.data.recordings._features import BANDS, Fields
from eeg2text_jax.data.source import UnreadableRecording
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    list(read_mat_v73(Path(sys.argv[1]), Fields("GD", BANDS)))
except UnreadableRecording as error:
    print(error)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.fixture
def path(study, tmp_path):
    return Path(shutil.copy(study.v73 / FILE, tmp_path / FILE))


def words_of(file):
    """The struct array of the words of a sentence with more than one."""
    for reference in file["sentenceData/word"][:].ravel():
        group = file[reference]
        if isinstance(group, h5py.Group) and group["content"].size > 1:
            return group
    raise AssertionError


@pytest.mark.parametrize("options", [{}, {"compression": 9}], ids=["plain", "compressed"])
def test_what_is_claimed_must_be_stored(path, options):
    """Sixty thousand references might be real, and two billion are refused in little memory."""
    for claimed in (60_000, 2_000_000_000):
        with h5py.File(path, "r+") as file:
            group = words_of(file)
            for name in list(group):
                del group[name]
                group.create_dataset(name, (claimed, 1), h5py.ref_dtype, chunks=(1 << 14, 1), **options)
        if claimed == 60_000:
            message = r"claims \(60000, 1\) entries, and the file holds 0 bytes of it"
            with pytest.raises(UnreadableRecording, match=message):
                list(read_mat_v73(path, Fields("GD", BANDS)))
    done = subprocess.run([sys.executable, "-c", READ, str(path)], capture_output=True, text=True, timeout=60)
    assert "claims 2000000000 entries" in done.stdout
    assert int(done.stdout.splitlines()[-1]) < 100_000, "KiB"


@pytest.mark.parametrize("kind", ["external storage", "virtual", "external link", "soft link", "link of all"])
def test_bytes_of_other_files_do_not_become_features(path, tmp_path, kind):
    secret = tmp_path / "secret.bin"
    secret.write_bytes(np.full(105, 7.0).tobytes())
    with h5py.File(tmp_path / "other.h5", "w") as other:
        other["secret"] = np.full((105, 1), 7.0)
    with h5py.File(path, "r+") as file:
        file["mine"] = np.full((105, 1), 7.0)
        group = file["sentenceData"]
        if kind == "link of all":
            del file["sentenceData"]
            file["sentenceData"] = h5py.ExternalLink(str(shutil.copy(path, tmp_path / "copy.mat")), "/sentenceData")
        elif kind.endswith("link"):
            del group["content"]
            link = {"external link": h5py.ExternalLink(str(tmp_path / "other.h5"), "/secret")}
            group["content"] = link.get(kind, h5py.SoftLink("/mine"))
        else:
            made = make(file, kind, secret, tmp_path / "other.h5")
            references = group["mean_t1"]
            references[0, 0] = made.ref
    with pytest.raises(UnreadableRecording, match=r"in another file|is a link to another place"):
        list(read_mat_v73(path, Fields("GD", BANDS)))


def make(file, kind, secret, other):
    if kind == "external storage":
        return file.create_dataset("led", (105, 1), "f8", external=[(str(secret), 0, 840)])
    layout = h5py.VirtualLayout((105, 1), "f8")
    layout[:] = h5py.VirtualSource(other, "secret", (105, 1))
    return file.create_virtual_dataset("led", layout)
