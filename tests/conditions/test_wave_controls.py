"""The inputs of the controls on waves against scripts of NumPy and SciPy that follow docs/controls.md."""

import numpy as np
import pytest
import scipy.signal
from tiny_run import data_spec

from eeg2text_jax.data.batches import Samples, feature_scale
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
