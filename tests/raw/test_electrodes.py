"""Positions of electrodes travel with the data; nothing is said of them where they are not known."""

import mne
import numpy as np
import pytest
from held import NAMES, epochs_of, recording

from eeg2text_jax import prepare, read_datafile
from eeg2text_jax.base.errors import UserError
from eeg2text_jax.data import write
from eeg2text_jax.data.datafile import electrodes_of
from eeg2text_jax.data.table_files import write_parquet

FEW = {"data__raw__bands": ((8.5, 10.0), (18.5, 30.0))}


@pytest.fixture(scope="module")
def raw():
    """A recording without positions."""
    return recording()


@pytest.fixture(scope="module")
def placed(raw):
    return raw.copy().set_montage("easycap-M1")


def test_positions_travel_through_files_tables_and_epochs(placed, tmp_path):
    own = placed.info.get_montage().get_positions()["ch_pos"]
    placed.save(tmp_path / "S1_raw.fif", verbose="error")
    for number, source in enumerate((placed, tmp_path / "S1_raw.fif")):
        found = electrodes_of(prepare(source, tmp_path / f"{number}.h5", **FEW))
        assert [name for name, *_ in found] == NAMES
        assert all(np.allclose(place, own[name], atol=1e-5) for name, *place in found)
    write_parquet(read_datafile(tmp_path / "0.h5"), tmp_path / "a.parquet")
    back = prepare(tmp_path / "a.parquet", tmp_path / "back.h5")
    assert electrodes_of(back) == found
    write_parquet(back, tmp_path / "b.parquet")
    assert electrodes_of(prepare(tmp_path / "b.parquet", tmp_path / "again.h5")) == found
    chosen = electrodes_of(prepare(epochs_of(placed), tmp_path / "c.h5", data__raw__exclude=("Cz",), **FEW))
    assert chosen == [place for place in found if place[0] != "Cz"]


def test_positions_of_other_channels_than_those_of_the_features_are_none(tmp_path):
    places = [["Fz", 0.0, 0.1, 0.1], ["Cz", 0.0, 0.0, 0.12], ["Pz", 0.0, -0.1, 0.1]]
    for width, known in ((6, True), (3, True), (8, False), (2, False)):
        rows = [{"features": np.ones((2, width)), "sentence": "a"}]
        data = read_datafile(write(tmp_path / f"{width}.h5", rows, provenance={"electrodes": places}))
        assert electrodes_of(data) == ([tuple(place) for place in places] if known else [])


def test_a_standard_montage_places_channels_that_have_no_positions(raw, placed, tmp_path):
    assert electrodes_of(prepare(raw, tmp_path / "a.h5", **FEW)) == []
    given = prepare(raw, tmp_path / "b.h5", data__raw__montage="easycap-M1", **FEW)
    assert electrodes_of(given) == electrodes_of(prepare(placed, tmp_path / "c.h5", **FEW))
    with pytest.raises(UserError, match="no montage 'easycap-M2'; did you mean 'easycap-M1'"):
        prepare(raw, tmp_path / "d.h5", data__raw__montage="easycap-M2", **FEW)
    with pytest.raises(UserError, match=r"'GSN-HydroCel-32' has no channel 'Fz'"):
        prepare(raw, tmp_path / "d.h5", data__raw__montage="GSN-HydroCel-32", **FEW)


def test_channels_of_eyes_and_devices_are_left_out_by_name_and_said(raw, tmp_path, capsys):
    names = ["Fz", "VEOG", "EOG-L", "Photo"]  # EDF and BrainVision call them EEG
    other = raw.copy().rename_channels(dict(zip(NAMES, names, strict=True))).rename_channels({"Fz": "Fp1"})
    other = other.copy().add_channels([raw.copy().pick(["Cz"])], force_update_info=True)
    other.save(tmp_path / "S1_reading_raw.fif", verbose="error")
    held = prepare(tmp_path / "S1_reading_raw.fif", tmp_path / "a.h5", **FEW)
    assert held.provenance["channels"] == ["Fp1", "Cz"]
    said = " ".join(held.provenance["notes"])
    assert "VEOG (by its name), EOG-L (by its name), Photo (by its name)" in said
    assert "subjects are named after their files, such as 'S1_reading'" in said
    taken = prepare(tmp_path / "S1_reading_raw.fif", tmp_path / "b.h5", data__raw__channels=("Cz", "Photo"), **FEW)
    assert taken.n_features == 4
    named = prepare(tmp_path / "S1_reading_raw.fif", tmp_path / "c.h5", **FEW,
                    data__raw__names="(?P<subject>[^_]+)_(?P<task>[^_]+)")  # fmt: skip
    assert (set(named.subject), set(named.task)) == ({"S1"}, {"reading"})


def test_events_without_texts_say_what_is_missing(raw, tmp_path):
    coded = raw.copy().set_annotations(mne.Annotations([2.0, 4.0], [0.0, 0.0], ["101", "102"]))
    fields = {"data__raw__begin": "101", "data__raw__end": "102", **FEW}
    with pytest.raises(UserError, match=r"dropped \(no text 1\); if events are codes, give a table of texts"):
        prepare(coded, tmp_path / "a.h5", **fields)
