"""The inputs of the controls on waves against scripts of NumPy and SciPy that follow docs/controls.md."""

import itertools

import h5py
import numpy as np
import pytest
import scipy.signal
from tiny_run import data_spec, study_in, tiny_settings

from eeg2text_jax.data.batches import Samples, feature_scale, make_batch
from eeg2text_jax.data.datafile import read_datafile
from eeg2text_jax.data.planted import SyntheticSpec, synthetic_waves
from eeg2text_jax.data.rows import write
from eeg2text_jax.training.conditions._donors import donor_table, neighbor_table, noise_kernel
from eeg2text_jax.training.conditions.condition import ConditionContext, apply_condition, condition_key

RATE = 64.0


@pytest.fixture(scope="module")
def waves(tmp_path_factory):
    """A data file of synthetic waves of 5 channels, one of which is a slow random walk, and its samples."""
    spec = data_spec(SyntheticSpec, "synthetic", sentences=60, features=5, vocabulary=60, order="blocks", groups=2)
    source, rng = synthetic_waves(spec, RATE, 0.25), np.random.default_rng(0)
    rows = []
    for sample in source.samples:
        sample.features[:, 3] = np.cumsum(rng.normal(size=len(sample.features)))
        rows.append(sample)
    path = write(tmp_path_factory.mktemp("waves") / "data.h5", rows, provenance=source.provenance)
    data = read_datafile(path)
    train = np.arange(0, len(data), 2)
    scale = feature_scale(data, train, True)
    return Samples(data, None, scale.mean, scale.scale, 10_000, 0), train


def test_channels_are_standardized_on_the_train_part(waves):
    samples, train = waves
    raw = np.concatenate([samples.data.words(i) for i in train]).astype(np.float64)
    np.testing.assert_allclose(samples.mean, raw.mean(0), atol=1e-5)
    np.testing.assert_allclose(samples.scale, raw.std(0), rtol=1e-5)
    assert samples.data.sfreq == RATE
    assert samples.data.channels == ("Fp1", "Fp2", "F7", "F3", "Fz")


def test_noise_has_the_spectrum_of_the_train_part_and_nothing_else_of_it(waves):
    """Of 200 draws of ten seconds, by Welch's method; white noise would be flat, a random walk is not."""
    samples, train = waves
    kernel = noise_kernel(samples, train)
    features, mask = np.zeros((200, 640, 5), np.float32), np.ones((200, 640), bool)
    context = ConditionContext(condition_key(0), np.arange(200, dtype=np.int32), np.int32(0), kernel=kernel)
    fed = np.asarray(apply_condition("noise_spectrum", features, mask, context), np.float64)
    np.testing.assert_allclose(fed.std((0, 1)), 1.0, atol=0.05)
    recorded = np.concatenate([samples.features(i) for i in train])
    spectra = [scipy.signal.welch(x, RATE, nperseg=64, axis=-2, detrend=False)[1] for x in (recorded, fed)]
    spectra[1] = spectra[1].mean(0)
    assert np.abs(np.log10(spectra[0][1:] / spectra[1][1:])).max() < 0.25
    assert spectra[1][1, 3] > 30 * spectra[1][16, 3]
    assert np.abs(np.corrcoef(fed[:, :, 0].ravel(), fed[:, :, 1].ravel())[0, 1]) < 0.02


def test_the_kernel_has_the_autocovariances_of_the_train_part_under_a_triangle(waves):
    """Summed over samples, divided by all positions, and one at lag 0 less a fraction for each further lag."""
    samples, train = waves
    kernel, recorded = noise_kernel(samples, train).astype(np.float64), [samples.features(int(i)) for i in train]
    lags = len(kernel) // 2
    assert lags == min(256, max(map(len, recorded)))
    count = sum(map(len, recorded))
    for lag in (0, 1, 7, lags - 1):
        expected = sum(
            (each[lag:] * each[: max(len(each) - lag, 0)]).sum(axis=0, dtype=np.float64) for each in recorded
        )
        found = (kernel * np.roll(kernel, lag, axis=0)).sum(axis=0)
        np.testing.assert_allclose(found, (1 - lag / lags) * expected / count, atol=2e-3)


@pytest.mark.parametrize("width", [500, 700])  # below and above the width from which FFTs are used
def test_phases_change_and_spectra_stay_by_numpys_fft(width):
    rng, lengths = np.random.default_rng(1), np.array([1, 2, 331, 499, 500])
    mask = np.arange(width) < lengths[:, None]
    features = np.where(mask[..., None], rng.normal(size=(5, width, 4)).cumsum(1), 9.0).astype(np.float32)
    context = ConditionContext(condition_key(2), np.arange(5, dtype=np.int32), np.int32(0))
    fed = np.asarray(apply_condition("phase_randomized", features, mask, context), np.float64)
    for i, length in enumerate(lengths):
        before, after = (np.fft.rfft(x[i, :length], axis=0) for x in (features, fed))
        size = np.abs(before).max()
        np.testing.assert_allclose(np.abs(after), np.abs(before), atol=1e-5 * size)
        cross = [x[:, :1] * x.conj() for x in (before, after)]
        np.testing.assert_allclose(cross[1], cross[0], atol=1e-4 * size**2)
        assert not fed[i, length:].any()
    turns = np.angle(np.fft.rfft(fed[4, :500], axis=0) / np.fft.rfft(features[4, :500].astype(float), axis=0))[1:250, 0]
    assert np.abs(np.exp(1j * turns).mean()) < 0.2
    assert np.abs(np.corrcoef(fed[4, :500, 0], features[4, :500, 0])[0, 1]) < 0.9


def test_wide_and_narrow_batches_randomize_alike():
    """The program with FFTs and the one with matrices add the same phases."""
    rng = np.random.default_rng(3)
    features = rng.normal(size=(3, 600, 2)).astype(np.float32)
    mask = np.arange(600) < np.array([100, 257, 400])[:, None]
    context = ConditionContext(condition_key(2), np.arange(3, dtype=np.int32), np.int32(0))
    wide = apply_condition("phase_randomized", features, mask, context)
    narrow = apply_condition("phase_randomized", features[:, :400], mask[:, :400], context)
    np.testing.assert_allclose(wide[:, :400], narrow, atol=2e-5)


def test_donors_and_neighbors_last_about_as_long(waves):
    """By half seconds: no two sentences have equally many samples, so by samples nearly all would be odd lengths."""
    samples, train = waves
    data = samples.data
    parts = [train, np.arange(1, len(data), 4), np.arange(3, len(data), 4)]
    donors = donor_table(data, parts, 0)
    seconds = data.n_words / data.sfreq
    gap = np.abs(seconds[donors.donor] - seconds)
    assert np.median(gap) <= 0.5
    assert (data.sentence[donors.donor] != data.sentence).all()
    assert "half seconds" in donors.summary(parts[2]) or not gap.any()
    neighbors, begin = neighbor_table(data, parts, donors.donor).donor, data.clock.onset
    end, halves = begin + data.clock.duration, np.rint(2 * seconds)
    for i in parts[2]:  # nearest in time with another text, whose length differs by a second at most
        near = (data.clock.recording == data.clock.recording[i]) & (data.sentence != data.sentence[i])
        near &= np.abs(halves - halves[i]) <= 2
        apart = np.maximum(begin - end[i], begin[i] - end)
        assert near[neighbors[i]]
        assert apart[neighbors[i]] <= apart[near].min() + 1e-6


EVALUATED = ("eeg", "noise", "noise_redrawn", "noise_uniform", "noise_spectrum", "zero", "shuffled", "time_reversed",
             "phase_randomized", "subject_mean", "length_only", "clock", "neighbor", "nearest_in_time",
             "same_place")  # fmt: skip


class Recorded:
    """What a script reads of the data file and the split of a run, and what its batch of the test part is fed."""

    def __init__(self, folder):
        settings = tiny_settings(
            data__raw__features="waves", data__raw__window=0.25, data__synthetic__features=6, data__max_words=320,
            data__synthetic__subjects=2, data__synthetic__tasks=2, data__synthetic__order="blocks",
            data__synthetic__groups=2, data__synthetic__vocabulary=60, data__synthetic__drift=1.0,
            data__synthetic__sentences=200, split__ratio=(0.6, 0.1, 0.3),
            batch__buckets=((320, 56),), model__encoder="conv", model__encoder_width=16,
            shape={"max_position_embeddings": 128},
            grid__train_conditions=("eeg", "label_shuffle"), grid__eval_conditions=EVALUATED,
        )  # fmt: skip
        self.study = study_in(folder, settings)
        with h5py.File(folder / "data.h5") as file:
            samples, offsets = file["features"][:].astype(np.float64), file["offsets"][:]
            names = ("sentence", "subject", "task", "recording")
            self.sentence, self.subject, self.task, self.recording = (file[name].asstr()[:] for name in names)
            self.onset, self.duration = file["onset"][:], file["duration"][:]
        parts = self.study.split.parts
        self.train, self.test = parts["train"], parts["test"]
        raw = [samples[a:b] for a, b in itertools.pairwise(offsets)]
        every = np.concatenate([raw[i] for i in self.train])
        self.waves = [(each - every.mean(0)) / every.std(0) for each in raw]
        self.halves = np.array([round(len(each) / RATE * 2) for each in raw])
        self.batch = make_batch(self.study.samples, self.test, (320, 56), len(self.test))

    def fed(self, name):
        """The input of each sample of the batch, `[its length, channels]`; behind it are zeros."""
        context = ConditionContext.of(self.batch, self.study.arrays, np.int32(0))
        fed = np.asarray(apply_condition(name, self.batch["features"], self.batch["mask"], context), np.float64)
        assert not fed[~self.batch["mask"]].any()
        return [each[: len(self.waves[i])] for each, i in zip(fed, self.test, strict=True)]

    def apart(self, i, others):
        """Seconds between the end of one recording and the begin of the other."""
        end = self.onset + self.duration
        return np.maximum(self.onset[others] - end[i], self.onset[i] - end[others])

    def source(self, fed):
        """The recording that is fed, cut or repeated."""
        fits = [j for j, each in enumerate(self.waves)
                if np.allclose(each[np.arange(len(fed)) % len(each)], fed, atol=5e-3)]  # fmt: skip
        assert len(fits) == 1
        return fits[0]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    return Recorded(tmp_path_factory.mktemp("recorded"))


def test_real_recordings_are_fed_as_described(recorded):
    """EEG, reversed EEG, donors and neighbors: which ones follows from the data file's columns alone."""
    pairs = zip(recorded.test, recorded.fed("eeg"), recorded.fed("time_reversed"), strict=True)
    for i, eeg, backwards in pairs:
        np.testing.assert_allclose(eeg, recorded.waves[i], atol=5e-3)
        np.testing.assert_array_equal(backwards, eeg[::-1])
    for i, shuffled, neighbor in zip(recorded.test, recorded.fed("shuffled"), recorded.fed("neighbor"), strict=True):
        j, other = recorded.source(shuffled), recorded.sentence != recorded.sentence[i]
        like = np.isin(np.arange(len(other)), recorded.test) & other
        like &= (recorded.subject == recorded.subject[i]) & (recorded.task == recorded.task[i])
        gap = np.abs(recorded.halves - recorded.halves[i])
        assert like[j]
        assert gap[j] == gap[like].min()
        near = other & (recorded.recording == recorded.recording[i])
        near &= (gap <= 2) if (near & (gap <= 2)).any() else near
        k = recorded.source(neighbor)
        assert near[k]
        assert recorded.apart(i, k) == pytest.approx(recorded.apart(i, np.flatnonzero(near)).min())


@pytest.mark.parametrize("name", ["noise", "noise_spectrum"])
def test_noises_are_fed_as_described(recorded, name):
    every, recordings = np.concatenate(recorded.fed(name)), np.concatenate([recorded.waves[i] for i in recorded.test])
    trained = np.concatenate([recorded.waves[i] for i in recorded.train])
    spectra = [scipy.signal.welch(x, RATE, nperseg=32, axis=0)[1][1:-1] for x in (trained, every)]
    off = np.abs(np.log10(spectra[1] / (spectra[0] if name == "noise_spectrum" else spectra[1].mean(0))))
    assert off.mean() < 0.1
    assert np.abs(np.corrcoef(every.T, recordings.T)[:6, 6:]).max() < 0.05


def test_constants_and_the_clock_are_fed_as_described(recorded):
    names = ("zero", "length_only", "subject_mean", "clock")
    fed = {name: recorded.fed(name) for name in names}
    for name in names:
        assert all((each == each[0]).all() for each in fed[name])
    whole = np.concatenate([recorded.waves[i] for i in recorded.train]).mean(0)
    for at, i in enumerate(recorded.test):
        own = [recorded.waves[j] for j in recorded.train if recorded.subject[j] == recorded.subject[i]]
        np.testing.assert_array_equal(fed["zero"][at], 0)
        np.testing.assert_allclose(fed["length_only"][at][0], whole, atol=1e-4)
        np.testing.assert_allclose(fed["subject_mean"][at][0], np.concatenate(own).mean(0), atol=1e-4)
    clock, since = np.stack([each[0] for each in fed["clock"]]), np.empty(len(recorded.test))
    for at, i in enumerate(recorded.test):
        since[at] = recorded.onset[i] - recorded.onset[recorded.recording == recorded.recording[i]].min()
    predictors = np.concatenate([clock, np.ones((len(clock), 1))], axis=1)
    told = predictors @ np.linalg.lstsq(predictors, since, rcond=None)[0]
    assert np.median(np.abs(told - since)) < 0.1 * since.max()


def test_texts_are_exchanged_and_copied_as_described(recorded):
    samples = recorded.study.samples
    for i in recorded.test:
        there = recorded.train[recorded.recording[recorded.train] == recorded.recording[i]]
        copied = samples.copies["nearest_in_time"][i]
        assert recorded.apart(i, copied) == pytest.approx(recorded.apart(i, there).min())
        elsewhere = samples.copies["same_place"][i]
        assert recorded.recording[elsewhere] != recorded.recording[i]
        assert elsewhere in recorded.train
    new = {}
    for i in recorded.train:
        assert recorded.sentence[samples.label_rows[i]] != recorded.sentence[i]
        new.setdefault(recorded.sentence[i], set()).add(recorded.sentence[samples.label_rows[i]])
    assert all(len(texts) == 1 for texts in new.values())
    assert set.union(*new.values()) == {*new} == {*recorded.sentence[recorded.train]}
