"""Recordings that MNE writes, in four formats, and what is wrong with them."""

import datetime
import re
import shutil

import mne
import numpy as np
import pytest
import scipy.signal
from prepared import prepare

from eeg2text_jax.data.planted import VOCABULARY, Plan, write_recordings

pytestmark = pytest.mark.filterwarnings("ignore")  # MNE's, while files are written

SUBJECTS, SENTENCES = 2, 6
FORMATS = ("fif", "edf", "brainvision", "bids")


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """Folder, overrides and data file of each format."""
    found = {}
    for how in FORMATS:
        root = tmp_path_factory.mktemp(how)
        fields = write_recordings(root / "files", how, subjects=SUBJECTS, sentences=SENTENCES)
        found[how] = root / "files", fields, prepare(root, root / "files", *fields)
    return found


def test_four_formats_give_the_same_samples(written):
    plan = Plan.draw(SENTENCES, 0)
    expected = written["fif"][2]
    assert expected.sentence[:SENTENCES].tolist() == [plan.text(i) for i in range(SENTENCES)]
    assert expected.n_words[:SENTENCES].tolist() == [len(words) for words in plan.sentences]
    assert expected.features.shape[1] == 8 * 6
    for how, (_, _, data) in written.items():
        assert data.digests["sentences"] == expected.digests["sentences"], how
        assert data.digests["samples"] == expected.digests["samples"], how
        # EDF has 16 bits a sample; the others differ by the rounding of float32.
        np.testing.assert_allclose(data.features, expected.features, atol=5e-3 if how == "edf" else 1e-5)


@pytest.mark.parametrize("date", [None, datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)])
def test_a_cropped_recording_keeps_its_times(date, written, tmp_path):
    """Its first sample is not the first that was recorded, from which MNE counts onsets."""
    folder, fields, expected = written["fif"]
    raw = mne.io.read_raw_fif(folder / "S1_raw.fif", preload=True, verbose="error")
    raw.set_meas_date(date)
    raw.crop(tmin=1.0).save(tmp_path / "S1_raw.fif", fmt="double", verbose="error")
    data = prepare(tmp_path, tmp_path / "S1_raw.fif", *fields)
    assert data.sentence.tolist() == expected.sentence[:SENTENCES].tolist()
    last = data.n_words[-1]  # the first sentence's margin is cut
    ours, theirs = data.features[-last:], expected.features[len(data.features) - last : len(data.features)]
    np.testing.assert_allclose(ours, theirs, atol=1e-5)


@pytest.mark.parametrize("suffix", ["bdf", "set"])
def test_bdf_and_eeglab_give_what_edf_gives(suffix, written, tmp_path):
    folder, fields, expected = written["edf"]
    raw = mne.io.read_raw(folder / "S1.edf", preload=True, verbose="error")
    mne.export.export_raw(tmp_path / f"S1.{suffix}", raw, verbose="error")
    shutil.copy(folder / "S1_events.tsv", tmp_path)
    data = prepare(tmp_path, tmp_path, *fields)
    np.testing.assert_allclose(data.features, expected.features[: len(data.features)], atol=1e-5)


def test_features_are_scipys(written):
    """20 words by SciPy alone: band-pass, Hilbert transform, mean of the squared magnitude over the word."""
    folder, _, data = written["fif"]
    volts = mne.io.read_raw_fif(folder / "S1_raw.fif", preload=True, verbose="error").get_data()
    volts = volts - volts.mean(axis=0)
    plan, rate, checked = Plan.draw(SENTENCES, 0), 128, 0
    bands = [(4, 6), (6.5, 8), (8.5, 10), (10.5, 13), (13.5, 18), (18.5, 30), (30.5, 40), (40, 49.5)]
    for i in range(SENTENCES):
        start, stop = round((plan.begins[i] - 2) * rate), round((plan.end(i) + 2) * rate)
        piece, first = volts[:, max(start, 0) : stop], max(start, 0)
        for w, time in enumerate(plan.word_times(i)):
            expected = []
            for low, high in bands:
                sos = scipy.signal.butter(4, [low / (rate / 2), high / (rate / 2)], btype="band", output="sos")
                size = np.abs(scipy.signal.hilbert(scipy.signal.sosfiltfilt(sos, piece)))
                word = size[:, round(time * rate) - first : round((time + 0.5) * rate) - first]
                expected.append((word**2).mean(axis=1))
            power = np.log10(np.concatenate(expected) * 1e12)
            np.testing.assert_allclose(data.words(i)[w], power, rtol=1e-6, atol=1e-6)
            checked += 1
    assert checked >= 20


@pytest.mark.parametrize("scale", [1e-6, 1e9])
def test_units_shift_every_feature_alike(written, scale, tmp_path):
    """The shift is gone once features are standardized."""
    fields = write_recordings(tmp_path / "files", "fif", subjects=1, sentences=SENTENCES, scale=scale)
    data = prepare(tmp_path, tmp_path / "files", *fields)
    expected = written["fif"][2].features[: len(data.features)]
    np.testing.assert_allclose(data.features - 2 * np.log10(scale), expected, atol=1e-5)


def test_band_power_tells_planted_words_and_nothing_when_they_are_gone(tmp_path):
    """Nearest mean of the words' features, for the other half of the recording."""
    right = {}
    for planted in (True, False):
        root = tmp_path / str(planted)
        fields = write_recordings(root / "files", "edf", subjects=1, sentences=40, planted=planted)
        data = prepare(root, root / "files", *fields)
        words = np.array([VOCABULARY.index(word) for text in data.sentence for word in text.split()])
        half = len(words) // 2
        means = np.array([data.features[:half][words[:half] == word].mean(0) for word in range(len(VOCABULARY))])
        distance = ((data.features[half:, None] - means) ** 2).sum(-1)
        right[planted] = np.mean(distance.argmin(1) == words[half:])
    assert right[True] > 0.6
    assert right[False] < 0.2


def test_bad_recordings_are_said_in_one_sentence(tmp_path, refusal):
    def refused(message, *arguments):
        assert re.search(message, refusal(files, *arguments))

    fields = write_recordings(tmp_path / "files", "edf", subjects=2, sentences=3)
    events = tmp_path / "files/S2_events.tsv"
    kept = events.read_text()
    files = tmp_path / "files"
    refused(r"none is 'sentence'; name the column of texts", "--config.data.raw.text=sentence")
    events.write_text(re.sub(r"\t[\d.]+\tsentence", "\t30.0\tsentence", kept))
    refused(r"S2\.edf: the sentences '.*' \(1\.5 to 31\.5 s\) and '.*' \(.* s\) overlap; mend the events", *fields)
    events.write_text(kept.replace("onset", "start"))
    refused(r"S2_events\.tsv: there is no column 'onset'", *fields)
    events.write_text(kept.replace("\n1.5\t", "\nsoon\t"))
    refused(r"S2_events\.tsv, event 1: onset is 'soon'", *fields)
    events.write_text(kept)
    refused("has no channel 'T7'", *fields, "--config.data.raw.channels=('Cz','T7')")
    refused("band or filter at 70 Hz needs more than 140", *fields, "--config.data.raw.bands=((30.0,70.0),)")
    refused("finds no subject in this name", *fields, r"--config.data.raw.names=(?P<subject>X\d)")
    refused("which is no regular expression", *fields, "--config.data.raw.names=(")
    no_begin = r"no event begins a sentence \(data.raw.begin is '7'\); the codes of its events are sentence, word"
    refused(no_begin, "--config.data.raw.begin=7")
    texts = tmp_path / "texts.tsv"
    texts.write_text("trial\tsentence\n1\ta b\n")
    by_trial = ["--config.data.raw.begin=sentence", f"--config.data.raw.texts={texts}"]
    refused(r"texts\.tsv: has the columns trial, sentence; expected 'text'", *by_trial)


def test_channels_that_differ_are_said_and_can_be_chosen(tmp_path, refusal):
    files = tmp_path / "files"
    fields = write_recordings(files, "fif", subjects=2, sentences=3)
    raw = mne.io.read_raw_fif(files / "S2_raw.fif", preload=True, verbose="error")
    raw.drop_channels(["C4"]).save(files / "S2_raw.fif", overwrite=True, verbose="error")
    assert "S2_raw.fif: lacks C4, compared with the 6 channels of the first" in refusal(files, *fields)
    data = prepare(tmp_path, files, *fields, "--config.data.raw.exclude=('C4',)")
    assert data.n_features == 8 * 5


def test_one_damaged_file_is_left_out_by_name(tmp_path, capsys, refusal):
    files = tmp_path / "files"
    fields = write_recordings(files, "edf", subjects=2, sentences=3)
    (files / "S1.edf").write_bytes(b"0       " + b"\xff" * 3000)
    assert set(prepare(tmp_path, files, *fields).subject) == {"S2"}
    assert re.search(r"LEFT OUT: .*S1\.edf: cannot be read by MNE", capsys.readouterr().err)
    (tmp_path / "data.h5").unlink()
    assert "S1.edf: cannot be read by MNE" in refusal(files, *fields, "--config.data.raw.strict=True")


@pytest.mark.parametrize("absent", ["S1", "S2"])
def test_recordings_that_are_downloaded_are_read_where_others_are_not(absent, written, tmp_path, capsys):
    folder, fields, expected = written["edf"]
    files = shutil.copytree(folder, tmp_path / "files")
    (files / f"{absent}.edf").write_text(f"/annex/objects/SHA256E-s1--{absent}.edf\n")
    data = prepare(tmp_path, files, *fields)
    rows = np.flatnonzero(expected.subject != absent)
    assert len(rows) == SENTENCES
    assert data.subject.tolist() == expected.subject[rows].tolist()
    assert data.sentence.tolist() == expected.sentence[rows].tolist()
    for ours, theirs in enumerate(rows):
        np.testing.assert_array_equal(data.words(ours), expected.words(int(theirs)))
    assert "1 of 2 recordings are not downloaded and were left out." in capsys.readouterr().err


def test_a_slip_of_mne_on_a_damaged_file_is_explained(tmp_path, refusal):
    (tmp_path / "S1_raw.fif").write_bytes(b"")
    said = refusal(tmp_path / "S1_raw.fif")
    assert "S1_raw.fif: cannot be read by MNE (damaged, or no recording; " in said


def test_what_does_not_match_is_counted(tmp_path, capsys):
    files = tmp_path / "files"
    fields = write_recordings(files, "brainvision", subjects=1, sentences=6)
    plan, events = Plan.draw(6, 0), files / "S1_events.tsv"
    lines = events.read_text().splitlines()
    ends = [i for i, line in enumerate(lines) if line.endswith("end")]
    lines[ends[1]] = lines[ends[1]].replace("end", "other")  # a sentence without an end
    lines.append(f"{plan.seconds - 1}\t0.0\tbegin")
    lines.append(f"{plan.begins[3] + 0.2}\t0.1\tBAD_blink")
    lines += [f"{plan.seconds + 60}\t0.0\tbegin", f"{plan.seconds + 60.1}\t0\tword", f"{plan.seconds + 61}\t0\tend"]
    events.write_text("\n".join(lines) + "\n")
    rows = [f"0{i + 1}\t{plan.text(i) if i != 4 else 'n/a'}" for i in range(6)]
    (files / "texts.tsv").write_text("\n".join(["trial\ttext", *rows, "8\tfar away", "99\tnobody"]) + "\n")
    data = prepare(tmp_path, files, *fields)
    assert data.sentence.tolist() == [plan.text(i) for i in (0, 2, 5)]
    assert data.provenance["dropped"] == {"no end": 2, "beyond the recording": 1, "marked bad": 1, "no text": 1}
    assert "2 of 8 texts belong to no trial here (first: trial 5)" in capsys.readouterr().err
