"""MNE's Raw and Epochs, as Python holds them: the same features as from files."""

import mne
import numpy as np
import pandas
import pytest
from held import RATE, SECONDS, TEXTS, epochs_of, recording

from eeg2text_jax import data, prepare
from eeg2text_jax.base.errors import UserError


@pytest.fixture(scope="module")
def raw():
    return recording()


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


def test_channels_in_another_order_are_the_same_channels(raw, file, tmp_path):
    turned = raw.copy().reorder_channels(["Oz", "Fz", "Pz", "Cz"])
    held = prepare([raw, turned], tmp_path / "a.h5")
    first, second = (np.concatenate([held.words(i) for i in np.flatnonzero(held.subject == s)]) for s in ("S1", "S2"))
    np.testing.assert_allclose(second, first, atol=1e-4)
    np.testing.assert_array_equal(first, file.features)


def test_epochs_give_the_power_of_their_windows_and_their_metadata(raw, file, tmp_path):
    about = {"who": ["A", "B", "B"], "task": ["NR", "SR", "NR"], "item": [5, 3, 9], "rating": [1, 2, 3],
             "recording": ["a", "b", "b"], "onset": [-1.0, 7.5, 2.0], "lasts": [4.0, 4.5, 3.5]}  # fmt: skip
    epochs, columns = epochs_of(raw, **about), {"subject": "who", "sentence_index": "item", "duration": "lasts"}
    held = prepare(epochs, tmp_path / "a.h5", **{f"data__columns__{field}": name for field, name in columns.items()})
    assert held.sentence.tolist() == TEXTS
    found = {"who": held.subject, "task": held.task, "item": held.sentence_index,
             "recording": held.clock.recording, "onset": held.clock.onset, "lasts": held.clock.duration}  # fmt: skip
    assert {name: values.tolist() for name, values in found.items()} == {name: about[name] for name in found}
    longer = prepare(epochs, tmp_path / "b.h5", data__raw__window=1.0, data__raw__step=0.75)
    assert longer.n_words.tolist() == [5, 5, 5], "from 0, 0.75, 1.5, 2.25 and 3 s on"
    assert held.features_are == file.features_are
    assert held.words(0).shape == file.words(0).shape == (8, 32)
    inner = slice(2, -2)  # the margin in which filters settle is cut off from epochs
    assert np.abs(held.words(0)[inner] - file.words(0)[inner]).max() < 0.3
    assert np.corrcoef(held.words(0)[inner].ravel(), file.words(0)[inner].ravel())[0, 1] > 0.97


@pytest.mark.parametrize("rate", [RATE, 64.0])
def test_epochs_give_the_waves_of_a_raw_at_the_rate_that_is_stated(raw, tmp_path, capsys, rate):
    options = {"data__raw__features": "waves", "data__raw__resample": rate, "data__raw__margin": 0.0}
    held, whole = prepare(epochs_of(raw), tmp_path / "a.h5", **options), prepare(raw, tmp_path / "b.h5", **options)
    for data_file in (held, whole):
        assert data_file.sfreq == rate
        assert data_file.channels == ("Fz", "Cz", "Pz", "Oz")
        assert set(data_file.n_words.tolist()) == {int(SECONDS * rate)}
    np.testing.assert_allclose(held.words(1), whole.words(1), atol=0.2)
    assert "before their event" not in capsys.readouterr().err, "they begin with it"


def test_what_is_missing_is_said(raw, tmp_path):
    epochs = mne.make_fixed_length_epochs(raw, duration=4.0, verbose="error")
    with pytest.raises(UserError, match=r"columns \(none\); expected 'sentence'"):
        prepare(epochs, tmp_path / "a.h5")
    with pytest.raises(UserError, match=r"data is a int; expected mne\.io\.Raw"):
        prepare(3, tmp_path / "a.h5")
    with pytest.raises(UserError, match="the samples are MNE's RawArray"):
        data.write(tmp_path / "a.h5", raw)
    assert not (tmp_path / "a.h5").exists()


def test_what_was_kept_and_dropped_is_said_in_python_too(raw, tmp_path, capsys):
    marked = raw.copy()
    marked.info["bads"] = ["Oz"]
    prepare(marked, tmp_path / "a.h5")
    said = capsys.readouterr().err
    assert "recording 1: marks these channels as bad, but they are kept: Oz." in said
    assert "first texts: the dog saw it |" in said
    broken = raw.copy()
    broken._data[1, int(8.5 * RATE)] = np.nan  # in the margin of a sentence
    message = r"recording 2: 1 of 4 channels have NaN or infinity at 8\.5 s \(Cz\).*data\.raw\.exclude"
    with pytest.raises(UserError, match=message) as error:
        prepare([raw, broken], tmp_path / "a.h5")
    assert "/tmp" not in str(error.value)
    assert prepare(broken, tmp_path / "a.h5", data__raw__exclude=("Cz",)).n_features == 24


def test_two_recordings_of_one_subject_keep_their_names(raw, tmp_path):
    named = raw.copy()
    named.info["subject_info"] = {"his_id": "A_1"}
    held = prepare([named, named], tmp_path / "a.h5")
    assert set(held.subject) == {"A_1"}
    assert len(held.clock.recordings()) == 2


def test_epochs_without_a_subject_or_with_a_baseline_are_noted(raw, tmp_path, capsys):
    epochs = epochs_of(raw, -0.5, SECONDS)
    prepare(epochs, tmp_path / "a.h5")
    said = capsys.readouterr().err
    assert "epochs begin 0.5 s before their event, and this part counts" in said
    assert "no column 'subject': all epochs are of one subject, 'all'." in said
    with pytest.raises(UserError, match=r"data is a list of Epochs; expected .*concatenated, with a column `subject`"):
        prepare([epochs, epochs], tmp_path / "a.h5")
    with pytest.raises(UserError, match="data is a dict of RawArray"):
        prepare({"A": raw}, tmp_path / "a.h5")


def test_raw_eeg_in_a_table_is_noted(tmp_path, capsys):
    rng = np.random.default_rng(0)
    for shapes, noted in (([(16, 875)] * 3, True), ([(4, 875), (4, 875), (5, 875)], False), ([(16, 64)] * 3, False),
                          ([(150, 200)] * 3, False)):  # fmt: skip
        frame = pandas.DataFrame({"features": [rng.normal(size=shape) for shape in shapes],
                                  "sentence": [*TEXTS[:2], "a dog"], "subj": list("AAB")})  # fmt: skip
        prepare(frame, tmp_path / "a.h5")
        said = capsys.readouterr().err
        assert ("every row is 16 positions of 875 features, though the texts have 2 to 4 words" in said) == noted
        assert ("every row is" in said) == noted
        assert "if 'subj' is the subject" in said
