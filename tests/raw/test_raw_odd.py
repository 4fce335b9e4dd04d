"""Voltages and recordings that are odd are noted, and kept."""

import hashlib

import mne
import numpy as np
import pandas
import pytest
from held import RATE, TEXTS, recording

from eeg2text_jax import prepare
from eeg2text_jax.base.errors import UserError
from eeg2text_jax.commands.cli import main
from eeg2text_jax.data.datafile import read_datafile
from eeg2text_jax.runs.pipeline import data_section


def notes(raw, path, capsys, **fields):
    prepare(raw, path, **fields)
    assert main(["check", str(path)]) == 0
    said = capsys.readouterr()
    for line in said.err.splitlines():  # `check` repeats what `prepare` noted
        if line.startswith("recording"):
            assert line.partition(": ")[2] in said.out
    return said.err


def test_good_recordings_are_not_noted(tmp_path, capsys):
    """Nor is a channel that is dead, or loose, in one of three sentences."""
    odd = recording()
    odd._data[3, : int(9 * RATE)] = 0.0
    odd._data[1, int(18 * RATE) :] *= 500
    for number, raw in enumerate((recording(), odd)):
        assert notes(raw, tmp_path / f"{number}.h5", capsys).startswith("subject ")


def test_recordings_keep_their_names_numbers_and_times(tmp_path):
    """Two subjects in two sessions, tasks and runs; texts in another order in each, one of them in both tasks."""
    texts = {"NR": TEXTS, "SR": [TEXTS[1], "an owl sat up", "the elk is old"]}
    of_file = [("B", "2", "SR", "1"), ("A", "1", "NR", "1"), ("A", "1", "NR", "2"), ("A", "2", "SR", "1"),
               ("B", "1", "NR", "1")]  # fmt: skip
    expected = {}
    for k, (subject, session, task, run) in enumerate(of_file):
        shown = np.random.default_rng(k).permutation(texts[task]).tolist()
        onsets, seconds = [3 + k / 8, 11 + k / 4, 25.5], [2.0 + k, 3.25, 4.5]  # to the end
        name = f"sub-{subject}_ses-{session}_task-{task}_run-{run}_raw.fif"
        recording(k).set_annotations(mne.Annotations(onsets, seconds, shown)).save(tmp_path / name, verbose="error")
        expected[task, subject, session, run] = name, list(zip(shown, onsets, seconds, strict=True))
    found = prepare(tmp_path, tmp_path / "a.h5", data__raw__task="not stated in a name")
    numbers, rows = {"NR": {}, "SR": {}}, []
    for (task, subject, session, run), (name, sentences) in sorted(expected.items()):
        for text, onset, seconds in sentences:
            index = numbers[task].setdefault(text, len(numbers[task]))
            rows.append((subject, task, text, index, f"{subject}/{session}/{run}/{name}", onset, seconds))
    clock = found.clock
    assert rows == list(zip(found.subject, found.task, found.sentence, found.sentence_index.tolist(), clock.recording,
                            clock.onset.tolist(), clock.duration.tolist(), strict=True))  # fmt: skip
    files = [name for _, (name, _) in sorted(expected.items())]
    sums = [hashlib.sha256((tmp_path / name).read_bytes()).hexdigest() for name in files]
    assert found.provenance["files"] == [{"name": n, "sha256": s} for n, s in zip(files, sums, strict=True)]
    assert found.n_words.tolist() == [int(2 * row[6]) for row in rows], "windows of half a second"


def test_a_dead_channel_is_named(tmp_path, capsys):
    dead = recording()
    dead._data[3] = 0.0
    said = notes(dead, tmp_path / "a.h5", capsys)
    assert "constant, or nearly so, as recorded: Oz; leave them out with data.raw.exclude" in said
    with pytest.raises(UserError, match=r"all were dropped \(flat channel Oz 3\)"):
        prepare(dead, tmp_path / "a.h5", data__raw__reference="")
    epochs = mne.EpochsArray(dead.get_data()[None, :, :512], dead.info, verbose="error",
                             metadata=pandas.DataFrame({"text": TEXTS[:1], "subject": ["A"]}))  # fmt: skip
    prepare(epochs, tmp_path / "a.h5")
    assert "constant, or nearly so, as recorded: Oz" in capsys.readouterr().err
    with pytest.raises(UserError, match="an epoch has a constant channel, Oz"):
        prepare(epochs, tmp_path / "a.h5", data__raw__reference="")


def test_a_loose_channel_and_a_wrong_unit_are_noted(tmp_path, capsys):
    loose = recording()
    loose._data[1] *= 500
    assert "more than 20 times as much as the others: Cz;" in notes(loose, tmp_path / "a.h5", capsys)
    section = data_section(read_datafile(tmp_path / "a.h5")).markdown  # of a run's report
    assert section.startswith("3 samples of 1 subjects and 3 different texts; dropped: none.")
    assert "8 bands x 4 channels" in section
    assert "times as much as the others: Cz;" in section
    said = notes(recording(scale=10.0), tmp_path / "a.h5", capsys)
    assert "standard deviation of about 1e+01 V; EEG has about" in said


def test_one_recording_twice_is_noted(tmp_path, capsys):
    for name, raw in (("S1", recording()), ("S1_filt", recording().filter(1.0, 30.0, verbose="error"))):
        raw.save(tmp_path / f"{name}_raw.fif", verbose="error")
    prepare(tmp_path, tmp_path / "a.h5")
    said = capsys.readouterr().err
    assert "1 recording has the same sentences at the same times as another one, such as" in said
    assert "S1_filt_raw.fif (S1_filt)" in said


def test_a_concatenated_recording_is_noted(tmp_path, capsys):
    both = mne.concatenate_raws([recording(), recording(1)], verbose="error")
    assert "was concatenated of 2 parts, which count as one subject, S1." in notes(both, tmp_path / "a.h5", capsys)


@pytest.mark.parametrize("features", ["power", "waves"])
def test_sentences_too_short_for_the_filters_are_dropped_and_named(features, tmp_path):
    """Of 13, 512 and 39 samples, where SciPy's filters need 28 or 16."""
    short = recording().set_annotations(mne.Annotations([3.0, 11.0, 20.0], [0.1, 4.0, 0.3], TEXTS))
    options = {"data__raw__margin": 0.0, "data__raw__highpass": 1.0, "data__raw__features": features}
    found = prepare(short, tmp_path / "a.h5", **options)
    assert found.sentence.tolist() == TEXTS[1:]
    assert found.provenance["dropped"] == {"too short for the filters (data.raw.margin helps)": 1}
    kept = prepare(short, tmp_path / "b.h5", **{**options, "data__raw__margin": 2.0})
    assert kept.sentence.tolist() == TEXTS
    metadata = pandas.DataFrame({"text": TEXTS[:1], "subject": ["A"]})
    epochs = mne.EpochsArray(short.get_data()[None, :, :12], short.info, verbose="error", metadata=metadata)
    with pytest.raises(UserError, match="the epochs have 12 samples at 128 a second, too few for the filters"):
        prepare(epochs, tmp_path / "c.h5", **options)


def test_a_rate_that_resampling_cannot_reach_is_refused(tmp_path):
    message = r"recording 1: has 128 samples a second, too many for data\.raw\.resample=0\.05; expected 1\.28 or more"
    with pytest.raises(UserError, match=message):
        prepare(recording(), tmp_path / "a.h5", data__raw__features="waves", data__raw__resample=0.05)
    found = prepare(recording(), tmp_path / "a.h5", data__raw__features="waves", data__raw__resample=2.0)
    assert set(found.n_words.tolist()) == {8}
