"""Data files of waves: what `prepare` writes, what a batch reads of them, and what damage does."""

import collections
import random
import re

import h5py
import mne
import numpy as np
import pytest
import scipy.signal
from prepared import prepare

from eeg2text_jax import data as data_package
from eeg2text_jax.base.errors import UserError
from eeg2text_jax.commands.cli import main
from eeg2text_jax.data.batches import Samples, feature_scale, make_batch
from eeg2text_jax.data.check import check_datafile, names_of
from eeg2text_jax.data.data_writer import WaveWriter
from eeg2text_jax.data.datafile import Frames, read_datafile
from eeg2text_jax.data.planted import Plan, write_recordings
from eeg2text_jax.data.source import Sample

RNG = np.random.default_rng(3)
NAMES = ("Fz", "Cz", "Pz", "Oz", "C3", "C4")


@pytest.fixture(scope="module")
def waves(tmp_path_factory):
    """Thirty sentences of 100 to 400 moments of six channels, of which one is 1000 times as large."""
    rows = [
        {"features": RNG.normal(size=(int(n), 6)) * [1, 1, 1, 1, 1, 1000], "sentence": f"text {i}", "order": i}
        for i, n in enumerate(RNG.integers(100, 400, 30))
    ]
    path = tmp_path_factory.mktemp("waves") / "waves.h5"
    data_package.write(path, rows, provenance={"sfreq": 100.0, "channels": list(NAMES)})
    return path, [np.asarray(row["features"]) for row in rows]


def test_recordings_become_waves_as_a_script_makes_them(tmp_path):
    """Resampled, filtered, referenced, cut and scaled by SciPy alone."""
    fields = write_recordings(tmp_path / "files", "edf", subjects=1, sentences=5)
    fields = [field for field in fields if "word=" not in field]
    filters = ["features=waves", "resample=64", "highpass=0.5", "lowpass=20", "notch=25"]
    data = prepare(tmp_path, tmp_path / "files", *fields, *(f"--config.data.raw.{field}" for field in filters))
    assert (data.sfreq, data.channels, data.types, data.is_waves) == (64.0, NAMES, ("eeg",) * 6, True)
    assert "waves in uV of 6 channels, 64 samples a second, highpass 0.5 Hz, lowpass 20 Hz" in data.features_are
    assert names_of(data.features_are) == ([], list(NAMES))
    raw = mne.io.read_raw(tmp_path / "files" / "S1.edf", preload=True, verbose="error")
    plan = Plan.draw(5, 0)
    for i in range(5):
        begin, end = plan.begins[i], plan.end(i)
        first, last = max(0, int(np.floor((begin - 2) * 128))), int(np.ceil((end + 2) * 128))
        volts = raw.get_data()[:, first:last]
        values = scipy.signal.resample_poly(volts - volts.mean(0), 1, 2, axis=1)
        for edge, kind in ((0.5, "highpass"), (20, "lowpass")):
            values = scipy.signal.sosfiltfilt(scipy.signal.butter(4, edge, kind, fs=64, output="sos"), values, axis=1)
        values = scipy.signal.filtfilt(*scipy.signal.iirnotch(25, 30.0, fs=64), values, axis=1)
        start = round((begin - first / 128) * 64)
        own = 1e6 * values[:, start : round((end - first / 128) * 64)].T
        own -= own.mean(0)
        row = list(data.sentence).index(plan.text(i))
        assert data.words(row).shape == own.shape
        np.testing.assert_allclose(data.words(row), own, rtol=2**-11, atol=1e-4)  # float16


def test_recordings_of_two_rates_need_one(tmp_path, refused):
    fields = write_recordings(tmp_path / "files", "fif", subjects=2, sentences=3)
    path = tmp_path / "files" / "S2_raw.fif"
    raw = mne.io.read_raw(path, preload=True, verbose="error").resample(100.0)
    raw.save(path, overwrite=True, verbose="error")
    arguments = ["prepare", str(tmp_path / "files"), *fields, "--config.data.raw.features=waves"]
    said = refused([*arguments, f"--out={tmp_path / 'out.h5'}"], alone=False)
    assert "has 100 samples a second, the first recording has 128; waves need one rate: set data.raw.resample" in said
    changes = [*arguments[2:], "--config.data.raw.resample=50", "--config.data.raw.lowpass=20"]
    data = prepare(tmp_path, tmp_path / "files", *changes)
    assert (data.sfreq, data.subject.tolist()) == (50.0, ["S1"] * 3 + ["S2"] * 3)
    plan = Plan.draw(3, 0)
    assert data.n_words.tolist() == [round(50 * (plan.end(i) - plan.begins[i])) for i in range(3)] * 2
    write_recordings(tmp_path / "whole", "fif", subjects=2, sentences=3)
    whole = prepare(tmp_path, tmp_path / "whole", *changes)
    assert all(np.corrcoef(data.words(i).ravel(), whole.words(i).ravel())[0, 1] > 0.98 for i in range(6))


def test_samples_stay_in_the_file_and_a_batch_reads_its_own(waves, monkeypatch):
    path, rows = waves
    data = read_datafile(path)
    assert isinstance(data.features, Frames)
    with h5py.File(path) as file:
        assert file["features"].dtype == np.float16
        assert file["features"].fletcher32
        assert file["features"].chunks == ((1 << 16) // 12, 6)
    for i, row in enumerate(rows):
        np.testing.assert_allclose(data.words(i), row, rtol=2**-11, atol=1e-7)
    train = np.arange(0, 30, 2)
    scale = feature_scale(data, train, True)
    read, original = [], Frames.__getitem__
    monkeypatch.setattr(Frames, "__getitem__", lambda self, part: read.append(part) or original(self, part))
    batch = make_batch(Samples(data, None, scale.mean, scale.scale, 300, 0), [3, 7], (320, 8), 3)
    assert sum(part.stop - part.start for part in read) == 2 * len(rows[3]) + len(rows[7]) - len(rows[3])
    assert batch["features"].shape == (3, 320, 6)
    assert batch["mask"].sum(1).tolist() == [min(len(rows[i]), 300) for i in (3, 7, 3)]
    every = np.concatenate([rows[i] for i in train])
    own = ((rows[7] - every.mean(0)) / every.std(0))[:300]
    np.testing.assert_allclose(batch["features"][1, : len(own)], own, rtol=2e-3, atol=2e-3)


def test_a_channel_that_is_flat_in_training_is_fed_as_zero(tmp_path):
    """Elsewhere, too; sentences have unequal lengths and means."""
    rng = np.random.default_rng(0)
    own = [rng.normal([i, 5, -3], [1, 1, 20], (40 + 30 * i, 3)).astype(np.float16).astype(np.float64) for i in range(4)]
    own[0][:, 1] = own[2][:, 1] = 2.5
    rows = [{"features": values, "sentence": f"text {i}"} for i, values in enumerate(own)]
    data = read_datafile(data_package.write(tmp_path / "a.h5", rows, provenance={"sfreq": 62.5}))
    assert (data.sfreq, data.is_waves, data.n_words.tolist()) == (62.5, True, [40, 70, 100, 130])
    found = feature_scale(data, np.array([2, 0]), True)
    assert found.note() == "of 3 features, 1 constant (number 1) over the train part: they are fed as 0."
    samples, train = Samples(data, None, found.mean, found.scale, 300, 0), np.concatenate([own[0], own[2]])
    for i in range(4):
        expected = (own[i] - train.mean(0)) / np.where(np.arange(3) == 1, np.inf, train.std(0))
        np.testing.assert_allclose(samples.features(i), expected, atol=1e-4)


def test_parquet_keeps_the_rate_and_the_channels(waves, tmp_path):
    assert main(["export-data", str(waves[0]), f"--out={tmp_path / 'a.parquet'}"]) == 0
    back, data = prepare(tmp_path, tmp_path / "a.parquet"), read_datafile(waves[0])
    assert (back.sfreq, back.channels, back.types) == (100.0, NAMES, ("eeg",) * 6)
    assert back.digests["features"] == data.digests["features"]


def judged(path, original) -> str:
    """Read all of a damaged file, and check it. Return "refused", or "same" if all that was read is as it was."""
    findings = None
    try:
        data = read_datafile(path)
        same = all(np.array_equal(data.words(i), original.words(i)) for i in range(len(original)))
        columns = ("sentence", "subject", "task", "sentence_index", "offsets")
        same &= all(np.array_equal(getattr(data, name), getattr(original, name)) for name in columns)
        same &= (data.provenance, data.features_are) == (original.provenance, original.features_are)
        findings = check_datafile(path)
    except UserError as error:
        said = str(error)
        return "refused" if str(path) in said and "\n" not in said else said
    assert same, "read without an error, and not what was written"
    return "refused" if findings.problems else "same"


def flip_a_sample(path, rng):
    """A bit of the samples."""
    with h5py.File(path) as file:
        chunks = [file["features"].id.get_chunk_info(n) for n in range(file["features"].id.get_num_chunks())]
    chunk = rng.choice(chunks)
    _flip(path, rng, chunk.byte_offset + rng.randrange(chunk.size))


def flip_another_bit(path, rng):
    """A bit of headers and columns, or one that HDF5 does not use: all that lies before the samples."""
    with h5py.File(path) as file:
        _flip(path, rng, rng.randrange(file["features"].id.get_chunk_info(0).byte_offset))


def _flip(path, rng, place):
    content = bytearray(path.read_bytes())
    content[place] ^= 1 << rng.randrange(8)
    path.write_bytes(content)


def cut_off(path, rng):
    path.write_bytes(path.read_bytes()[: rng.randrange(path.stat().st_size)])


def change_an_attribute(path, rng):
    with h5py.File(path, "r+") as file:
        name = rng.choice(sorted(file.attrs))
        text, place = str(file.attrs[name]), rng.randrange(len(file.attrs[name]))
        others = (text[:place], text[:place] + chr(33 + ord(text[place]) % 90) + text[place + 1 :], 3)
        file.attrs[name] = rng.choice(others)
        if rng.random() < 0.25:
            del file.attrs[name]


def change_a_dataset(path, rng):
    with h5py.File(path, "r+") as file:
        name = rng.choice(sorted(file))
        values = file[name][:]
        other = np.arange(len(values)) if values.dtype == object else values.astype(rng.choice("ihbdf"))
        if other.dtype == values.dtype:
            other = values.astype("S9")
        shapes = [values[:-1], values[None], values[:, None], values.T[None], np.concatenate([values, values])]
        del file[name]
        changed = rng.choice([None, *[other] * 5, *shapes])
        if changed is None:
            file.create_group(name)
        elif rng.random() < 0.9:
            file[name] = changed


DAMAGE = (flip_a_sample, flip_another_bit, cut_off, change_an_attribute, change_a_dataset)


@pytest.mark.filterwarnings("ignore:invalid value encountered in cast")
def test_damage_of_five_kinds_at_a_hundred_random_places_is_refused_by_name(waves, tmp_path):
    """Or changes nothing: HDF5 does not use every byte of its headers, and NaN of another type is the same time."""
    path, original, rng = tmp_path / "damaged.h5", read_datafile(waves[0]), random.Random(0)
    assert judged(waves[0], original) == "same"
    verdicts = collections.Counter()
    for number in range(100):
        path.write_bytes(waves[0].read_bytes())
        damage = DAMAGE[number % len(DAMAGE)]
        damage(path, rng)
        verdicts[damage.__name__, judged(path, original)] += 1
    assert {verdict for _, verdict in verdicts} == {"refused", "same"}
    assert all(verdicts[damage.__name__, "refused"] == 20 for damage in (flip_a_sample, cut_off, change_an_attribute))
    assert verdicts["change_a_dataset", "refused"] >= 15


def test_values_beyond_float16_are_refused_or_dropped(tmp_path, capsys):
    for large in (1e5, -1e5):
        rows = [{"features": np.full((9, 2), large), "sentence": "a"}, {"features": np.ones((9, 2)), "sentence": "b"}]
        for order in (rows, rows[::-1]):
            with pytest.raises(UserError, match=re.escape("65504")):
                data_package.write(tmp_path / "a.h5", order, provenance={"sfreq": 10.0})
        with WaveWriter(tmp_path / "a.h5", 2, "") as writer:
            with pytest.raises(UserError, match=re.escape("65504")):
                writer.add(Sample(np.full((9, 2), large), "a", "S1", "T1", 0))
            writer.add(Sample(np.ones((9, 2)), "b", "S1", "T1", 1))
            writer.provenance = {"sfreq": 10.0, "channels": ["Fz", "Cz"]}
        assert read_datafile(tmp_path / "a.h5").sentence.tolist() == ["b"]  # a refused sample leaves nothing behind
    steps = np.where(np.arange(1200) < 300, 0.0, 0.2) + np.zeros((3, 1)) * 1.0
    steps[:] *= np.array([[1.0], [-1.0], [0.5]])
    raw = mne.io.RawArray(steps, mne.create_info(["Fz", "Cz", "Pz"], 100.0, "eeg"), verbose="error")
    raw.set_annotations(mne.Annotations([2.0, 7.0], [2.0, 2.0], ["the dog saw it", "a cat ran off"]))
    raw.save(tmp_path / "S1_raw.fif", verbose="error")
    data = prepare(tmp_path, tmp_path / "S1_raw.fif", "--config.data.raw.features=waves")
    assert list(data.sentence) == ["a cat ran off"]
    assert "beyond 65504 uV or fT" in capsys.readouterr().out
