"""MNE's Raw and Epochs, as Python holds them: the same features as from files."""

import numpy as np
import pytest

from eeg2text_jax import data, prepare
from eeg2text_jax.errors import UserError

mne = pytest.importorskip("mne")
RATE, SECONDS, TEXTS = 128.0, 4.0, ["the dog saw it", "a cat ran off", "no hen was there"]


@pytest.fixture(scope="module")
def raw():
    signal = np.random.default_rng(0).normal(size=(4, int(RATE * 30))) * 1e-5
    raw = mne.io.RawArray(signal, mne.create_info(["Fz", "Cz", "Pz", "Oz"], RATE, "eeg"), verbose="error")
    return raw.set_annotations(mne.Annotations([3.0, 11.0, 20.0], [SECONDS] * 3, TEXTS))


@pytest.fixture(scope="module")
def file(raw, tmp_path_factory):
    """The data file of the recording's FIF file."""
    folder = tmp_path_factory.mktemp("file")
    raw.save(folder / "S1_raw.fif", verbose="error")
    return prepare(folder / "S1_raw.fif", folder / "a.h5")


def test_a_raw_gives_what_its_file_gives(raw, file, tmp_path):
    held = prepare(raw, tmp_path / "b.h5")
    assert held.digest() == file.digest()
    assert held.sentence.tolist() == TEXTS
    assert set(held.subject) == {"S1"}
    two = prepare([raw, raw], tmp_path / "c.h5", data__raw__channels=("Fz", "Cz"))
    assert sorted(set(two.subject)) == ["S1", "S2"]
    assert two.n_features == 16


def test_a_channel_without_numbers_is_named(raw, tmp_path):
    broken = raw.copy()
    broken._data[1, int(12 * RATE)] = np.nan
    with pytest.raises(UserError, match=r"1 of 4 channels have NaN or infinity at .* \(Cz\).*data\.raw\.exclude"):
        prepare(broken, tmp_path / "a.h5")
    assert prepare(broken, tmp_path / "a.h5", data__raw__exclude=("Cz",)).n_features == 24


def test_epochs_give_the_power_of_their_windows_and_their_metadata(raw, file, tmp_path):
    pandas = pytest.importorskip("pandas")
    metadata = pandas.DataFrame({"text": TEXTS, "subject": ["A", "B", "B"], "rating": [1, 2, 3]})
    events = np.array([[int(t * RATE), 0, 1] for t in (3.0, 11.0, 20.0)])
    epochs = mne.Epochs(raw, events, tmin=0, tmax=SECONDS - 1 / RATE, baseline=None, metadata=metadata, verbose="error")
    held = prepare(epochs, tmp_path / "a.h5")
    assert held.sentence.tolist() == TEXTS
    assert held.subject.tolist() == ["A", "B", "B"]
    assert held.features_are == file.features_are
    assert held.words(0).shape == file.words(0).shape == (8, 32)
    inner = slice(2, -2)  # the margin in which filters settle is cut off from epochs
    assert np.abs(held.words(0)[inner] - file.words(0)[inner]).max() < 0.3
    assert np.corrcoef(held.words(0)[inner].ravel(), file.words(0)[inner].ravel())[0, 1] > 0.97


def test_what_is_missing_is_said(raw, tmp_path):
    epochs = mne.make_fixed_length_epochs(raw, duration=4.0, verbose="error")
    with pytest.raises(UserError, match=r"columns \(none\); expected 'sentence'"):
        prepare(epochs, tmp_path / "a.h5")
    with pytest.raises(UserError, match=r"data is a int; expected mne\.io\.Raw"):
        prepare(3, tmp_path / "a.h5")
    with pytest.raises(UserError, match="RawArray of MNE is prepared first"):
        data.write(tmp_path / "a.h5", raw)
    assert not (tmp_path / "a.h5").exists()
