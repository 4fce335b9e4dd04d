"""Annotations of EDF in another encoding than UTF-8; a marker of BrainVision for each channel."""

import re

import pytest

from eeg2text_jax.commands.cli import main
from eeg2text_jax.data.datafile import read_datafile

mne = pytest.importorskip("mne", reason="pip install 'eeg2text_jax[mne]'")
pytest.importorskip("edfio", reason="writes EDF; comes with the extra `test`")
pytest.importorskip("pybv", reason="writes BrainVision; comes with the extra `test`")

TEXTS = ["the cafX was near the lake", "a boat went over the lake"]


@pytest.fixture
def recording(tmp_path):
    """Write a recording with two sentences in a format; return its folder."""
    import numpy as np

    def write(suffix):
        (tmp_path / "files").mkdir()
        noise = np.random.default_rng(0).normal(size=(6, 40 * 128)) * 1e-5
        raw = mne.io.RawArray(noise, mne.create_info(6, 128.0, "eeg"), verbose="error")
        raw.set_annotations(mne.Annotations([4.0, 20.0], [5.0, 5.0], TEXTS))
        mne.export.export_raw(tmp_path / f"files/S1.{suffix}", raw, verbose="error")
        return tmp_path / "files"

    return write


@pytest.mark.filterwarnings("ignore")  # MNE's, while files are written
def test_annotations_of_edf_may_be_latin_1(recording, refusal, tmp_path):
    folder = recording("edf")
    path = folder / "S1.edf"
    path.write_bytes(path.read_bytes().replace(b"cafX", "café".encode("latin1")))
    assert "its annotations are no UTF-8 text; set data.raw.encoding to their encoding, such as latin1" in refusal(
        folder
    )
    assert "expected the name of an encoding" in refusal(folder, "--config.data.raw.encoding=nothing")
    command = ["prepare", str(folder), "--config.data.raw.encoding=latin1", f"--out={tmp_path / 'data.h5'}"]
    assert main(command) == 0
    assert read_datafile(tmp_path / "data.h5").sentence.tolist() == ["the café was near the lake", TEXTS[1]]


@pytest.mark.filterwarnings("ignore")
def test_a_marker_for_each_channel_is_one_sentence(recording, tmp_path):
    """The markers overlapped, and the second was called a word of the sentence."""
    folder = recording("vhdr")
    markers = folder / "S1.vmrk"
    text = markers.read_text("utf8")
    lines = re.findall(r"^Mk\d+=Comment,.*$", text, re.MULTILINE)
    assert len(lines) == 2
    more = [re.sub(r",\d+$", f",{channel}", line) for channel in range(1, 7) for line in lines]
    numbered = [f"Mk{i}={line.partition('=')[2]}" for i, line in enumerate(more, 10)]
    markers.write_text(text.rstrip("\n") + "\n" + "\n".join(numbered) + "\n", "utf8")
    assert main(["prepare", str(folder), f"--out={tmp_path / 'data.h5'}"]) == 0
    assert read_datafile(tmp_path / "data.h5").sentence.tolist() == TEXTS
