"""Magnetometers, gradiometers, EEG, sEEG and ECoG: chosen, referenced and scaled by type; a planted bit is found."""

import shutil

import mne
import mne_bids as bids
import numpy as np
import pandas
import pytest
import scipy.signal
from prepared import prepare
from tiny_run import data_spec

from eeg2text_jax import prepare as prepare_held
from eeg2text_jax.base.errors import UserError
from eeg2text_jax.commands.cli import main
from eeg2text_jax.data.datafile import DataFile
from eeg2text_jax.data.raw.find import RawSpec
from eeg2text_jax.data.raw.sentences import bipolar_pairs

pytestmark = pytest.mark.filterwarnings("ignore")  # MNE's, while files are written

RATE, SECONDS, SENTENCES = 200.0, 2.0, 40
BITS = np.random.default_rng(5).integers(0, 2, SENTENCES)
WIDE = {"mag": 2e-13, "grad": 5e-12, "eeg": 1e-5, "eog": 5e-5, "stim": 1.0, "seeg": 5e-5, "ecog": 5e-5}
SMALL = {"mag": 1e15, "grad": 1e13, "eeg": 1e6, "seeg": 1e6, "ecog": 1e6}  # fT, fT/cm, uV in MNE's units
ONE_BAND = "--config.data.raw.bands=((8.5,10.0),)"
WHOLE = ("--config.data.raw.window=2.0", "--config.data.raw.step=2.0", ONE_BAND)


def recording(types: dict[str, str], planted: str, common: bool = True):
    """Noise as large as each type's; a wave of 9 Hz in `planted` channels is larger in sentences with the bit 1.

    Sensors far from the brain have noise in common, which MEG is full of and a reference would spread.
    """
    rng, n = np.random.default_rng(1), int(RATE * (SENTENCES * (SECONDS + 1) + 3))
    time = np.arange(n) / RATE
    bit = np.zeros(n)
    for i, value in enumerate(BITS):
        start = int(RATE * (2 + i * (SECONDS + 1)))
        bit[start : start + int(RATE * SECONDS)] = value
    values = np.array([WIDE[kind] * rng.normal(size=n) for kind in types.values()])
    for kind in dict.fromkeys(types.values()) if common else ():
        values[[own == kind for own in types.values()]] += WIDE[kind] * rng.normal(size=n)
    wave = np.sin(2 * np.pi * 9.2 * time) * (0.5 + bit)
    for i, (name, kind) in enumerate(types.items()):
        values[i] += (-1) ** i * WIDE[kind] * wave * (planted in (name, kind))
    info = mne.create_info(list(types), RATE, list(types.values()))
    raw = mne.io.RawArray(values, info, verbose="error")
    onsets = [2 + i * (SECONDS + 1) for i in range(SENTENCES)]
    texts = [f"text number {i} has bit {bit}" for i, bit in enumerate(BITS)]
    return raw.set_annotations(mne.Annotations(onsets, [SECONDS] * SENTENCES, texts))


MIXED = {f"MEG{i:02d}1": "mag" for i in range(8)} | {f"MEG{i:02d}{k}": "grad" for i in range(8) for k in (2, 3)}
MIXED |= {f"EEG{i:03d}": "eeg" for i in range(6)} | {"EOG061": "eog", "STI101": "stim"}
SHAFTS = ("LA1", "LA2", "LA3", "LA4", "LB1", "LB2", "LC7")


def found(data: DataFile) -> dict[str, float]:
    """Correlation of the bit with the log power of each type, averaged over its channels."""
    power = np.array([data.words(i).mean(0) for i in range(len(data))])
    types = np.array(data.types)
    return {kind: float(np.corrcoef(power[:, types == kind].mean(1), BITS)[0, 1]) for kind in dict.fromkeys(data.types)}


def own_power(values: np.ndarray) -> np.ndarray:
    """log10 of the mean power from 8.5 to 10 Hz of `[channels, samples]` in each sentence, `[sentences, channels]`."""
    sos = scipy.signal.butter(4, (8.5, 10.0), "bandpass", fs=RATE, output="sos")
    rows = []
    for i in range(SENTENCES):
        start = round(RATE * (2 + i * (SECONDS + 1)))
        margin, length = round(2 * RATE), round(SECONDS * RATE)
        begin = max(start - margin, 0)
        narrow = scipy.signal.sosfiltfilt(sos, values[:, begin : start + length + margin], axis=1)
        size = np.abs(scipy.signal.hilbert(narrow, axis=1))[:, start - begin :][:, :length]
        rows.append(np.log10((size**2).mean(1)))
    return np.array(rows)


@pytest.fixture(scope="module", params=["mag", "grad", "eeg"])
def mixed(request, tmp_path_factory):
    root, raw = tmp_path_factory.mktemp(request.param), recording(MIXED, request.param)
    (root / "raw").mkdir()
    raw.save(root / "raw" / "S1_raw.fif", verbose="error", fmt="double")
    return raw, request.param, root


def events(separator="\t"):
    """A table of events with the texts."""
    rows = [(2 + i * (SECONDS + 1), SECONDS, f"text number {i} has bit {bit}") for i, bit in enumerate(BITS)]
    return "".join(separator.join(map(str, row)) + "\n" for row in (("onset", "duration", "text"), *rows))


def test_what_is_planted_in_one_type_is_found_in_it_alone(mixed):
    """Without any option MEG is taken, and read as MEG; EEG beside it where it is asked for."""
    raw, planted, root = mixed
    choice = [] if planted != "eeg" else ["--config.data.raw.channels=('meg','eeg')"]
    data = prepare(root, root / "raw", *WHOLE, *choice)
    correlation = found(data)
    assert set(correlation) == ({"mag", "grad"} if planted != "eeg" else {"mag", "grad", "eeg"})
    assert correlation.pop(planted) > 0.75
    assert all(abs(other) < 0.4 for other in correlation.values())
    power = np.concatenate([data.words(i) for i in range(len(data))])
    for kind in dict.fromkeys(data.types):
        values = raw.get_data(kind) * SMALL[kind]
        values = values - values.mean(0) if kind == "eeg" else values
        ours = [i for i, other in enumerate(data.types) if other == kind]
        np.testing.assert_allclose(power[:, ours], own_power(values), atol=1e-4)
        assert [data.channels[i] for i in ours] == [name for name in MIXED if MIXED[name] == kind]
    units = ["fT^2 (mag)", "(fT/cm)^2 (grad)", *(["uV^2 (eeg)"] if planted == "eeg" else [])]
    assert f"log10 of mean band power in {', '.join(units)} of windows" in data.features_are
    assert "MEG002/grad" in data.features_are


CHOICES = {"MEG*": 24, "mag": 8, "eeg": 6, "('eeg','grad')": 22, "MEG*1": 8, "('MEG001','EEG00*')": 7, "meg": 24}


@pytest.mark.parametrize("mixed", ["mag"], indirect=True)
def test_channels_are_chosen_by_types_patterns_and_names(mixed):
    _, _, root = mixed
    for wanted, number in CHOICES.items():
        data = prepare(root, root / "raw", *WHOLE, f"--config.data.raw.channels={wanted}")
        assert len(data.channels) == data.n_features == number, wanted


@pytest.mark.parametrize("mixed", ["mag"], indirect=True)
def test_what_is_not_there_is_said_with_what_is(mixed, refused, capsys):
    _, _, root = mixed

    def refusal(field):
        arguments = ["prepare", str(root / "raw"), f"--config.data.raw.{field}", f"--out={root / 'x.h5'}"]
        return refused(arguments, alone=False)

    for wanted in ("seeg", "EEX*", "Cz"):
        said = refusal(f"channels={wanted}")
        assert f"has no channel {wanted!r} (data.raw.channels); it has 32 channels: 8 mag (MEG001, MEG011, " in said
        assert "16 grad" in said
    assert "MEG has none" in refusal("reference=mag:average")
    assert "average or bipolar" in refusal("reference=seeg:Cz")
    assert "seeg:bipolar" in refusal("reference=bipolar")
    data = prepare(root, root / "raw", *WHOLE)
    assert "6 eeg (EEG000, EEG001, EEG002, ...)" in capsys.readouterr().err
    assert main(["check", str(data.path)]) == 0
    said = capsys.readouterr().out
    assert "24 features a window: log10 of mean band power in fT^2 (mag), (fT/cm)^2 (grad)" in said
    assert "8 mag, 16 grad" in said


@pytest.mark.parametrize("mixed", ["mag"], indirect=True)
@pytest.mark.parametrize(("kind", "noted", "other"), [
    ("mag", "the median of the magnetometers has a standard deviation of about 3e-04 T", "gradiometers has"),
    ("grad", "the median of the gradiometers has a standard deviation of about 7e-03 T/m", "magnetometers has"),
])  # fmt: skip
def test_an_implausible_unit_is_said_by_type(mixed, kind, noted, other, tmp_path, capsys):
    raw = mixed[0].copy().apply_function(lambda x: 1e9 * x, picks=kind)
    raw.save(tmp_path / "S1_raw.fif", verbose="error", fmt="double")
    prepare(tmp_path, tmp_path / "S1_raw.fif", *WHOLE)
    said = capsys.readouterr().err
    assert noted in said
    assert other not in said


@pytest.mark.parametrize("kind", ["seeg", "ecog"])
def test_depth_and_grid_electrodes_in_bids(kind, tmp_path):
    raw = recording(dict.fromkeys(SHAFTS, kind) | {"EOG": "eog"}, "LA3")
    raw.info["line_freq"] = 50
    path = bids.BIDSPath(subject="01", task="reading", datatype="ieeg", root=tmp_path / "study")
    bids.write_raw_bids(raw, path, format="BrainVision", allow_preload=True, verbose="error")
    path.copy().update(suffix="events", extension=".tsv").fpath.write_text(events())
    values = raw.get_data(kind) * 1e6
    expected = {
        "": (SHAFTS, values),
        "average": (SHAFTS, values),  # of EEG, and there is none
        f"{kind}:average": (SHAFTS, values - values.mean(0)),
        f"{kind}:bipolar": (("LA1-LA2", "LA2-LA3", "LA3-LA4", "LB1-LB2"), (values[:-1] - values[1:])[[0, 1, 2, 4]]),
    }
    for reference, (names, own) in expected.items():
        data = prepare(tmp_path, tmp_path / "study", *WHOLE, f"--config.data.raw.reference={reference}")
        assert (data.channels, set(data.types)) == (names, {kind})
        power = np.concatenate([data.words(i) for i in range(len(data))])
        np.testing.assert_allclose(power, own_power(own), atol=1e-3)  # BrainVision stores 0.1 uV steps
    carried = [abs(np.corrcoef(power[:, i], BITS)[0, 1]) > 0.75 for i in range(len(names))]
    assert carried == [False, True, True, False]


def test_differences_of_contacts_keep_their_sign_and_lie_in_the_middle(tmp_path):
    """Beside contacts of a grid, which have a mean of their own."""
    types = {"LA1": "seeg", "U1": "ecog", "LA2": "seeg", "U2": "ecog", "U3": "ecog", "LA3": "seeg", "LB9": "seeg"}
    raw, own = recording(types, "LA3"), np.random.default_rng(0).uniform(-0.05, 0.05, (7, 3))
    places = dict(zip(types, own, strict=True))
    raw.set_montage(mne.channels.make_dig_montage(places, coord_frame="head"))
    options = {"data__raw__features": "waves", "data__raw__reference": "seeg:bipolar,ecog:average"}
    data = prepare_held(raw, tmp_path / "a.h5", **options)
    volts = dict(zip(types, raw.get_data() * 1e6, strict=True))
    grid = np.mean([volts[name] for name in ("U1", "U2", "U3")], axis=0)
    expected = {name: (volts[name] - grid, places[name]) for name in ("U1", "U2", "U3")}
    for one, other in (("LA1", "LA2"), ("LA2", "LA3")):
        middle = (places[one] + places[other]) / 2
        expected[f"{one}-{other}"] = volts[one] - volts[other], middle
    assert data.channels == tuple(expected)
    assert data.types == ("ecog",) * 3 + ("seeg",) * 2
    np.testing.assert_allclose(data.positions, [place for _, place in expected.values()], atol=2e-5)
    for i in (0, 3, 39):
        start = round(RATE * (2 + i * (SECONDS + 1)))
        waves = np.stack([values[start : start + round(RATE * SECONDS)] for values, _ in expected.values()], axis=1)
        np.testing.assert_allclose(data.words(i), waves - waves.mean(0), rtol=1e-3, atol=1e-2)


def test_held_recordings_and_epochs_have_types_too(tmp_path):
    raw = recording(MIXED, "mag")
    short = {"data__raw__window": 2.0, "data__raw__step": 2.0, "data__raw__bands": ((8.5, 10.0),)}
    one = prepare_held(raw, tmp_path / "a.h5", **short)
    marks = mne.events_from_annotations(raw, verbose="error")
    epochs = mne.Epochs(raw, *marks, 0, SECONDS - 1 / RATE, baseline=None, preload=True)
    epochs.metadata = pandas.DataFrame({"text": [f"text {i}" for i in range(len(epochs))]})
    two = prepare_held(epochs, tmp_path / "b.h5", **short)
    assert one.types == two.types == ("mag",) * 8 + ("grad",) * 16
    assert found(one)["mag"] > 0.75
    assert np.corrcoef(one.words(3)[0], two.words(3)[0])[0, 1] > 0.9
    waves = prepare_held(epochs, tmp_path / "c.h5", data__raw__features="waves")
    assert waves.sfreq == RATE
    own = epochs.get_data(["MEG001", "MEG002"])[2].T * [1e15, 1e13]
    near = [waves.channels.index(name) for name in ("MEG001", "MEG002")]
    np.testing.assert_allclose(waves.words(2)[:, near], own - own.mean(0), rtol=1e-3, atol=1e-2)
    with pytest.raises(UserError, match="has no channel 'T9'"):
        prepare_held(epochs, tmp_path / "d.h5", data__raw__channels=("T9",))


def test_a_bids_folder_has_the_datatype_that_is_asked_for(tmp_path, capsys):
    """A recording in `meg`, with EEG beside it, and one in `eeg`: EEG without a choice, as ever."""
    root = tmp_path / "study"
    for datatype, types in (("meg", MIXED), ("eeg", {name: kind for name, kind in MIXED.items() if kind == "eeg"})):
        raw = recording(types, "mag")
        raw.info["line_freq"] = 50
        path = bids.BIDSPath(subject="01", task="reading", datatype=datatype, root=root)
        if datatype == "meg":
            raw.save(tmp_path / "a_raw.fif", verbose="error")
            raw = mne.io.read_raw(tmp_path / "a_raw.fif", verbose="error")
        how = {"format": "BrainVision", "allow_preload": True} if datatype == "eeg" else {}
        bids.write_raw_bids(raw, path, verbose="error", **how)
        path.copy().update(suffix="events", extension=".tsv").fpath.write_text(events())
    for choice, kinds, others in (
        ([], {"eeg"}, "1 recording of the datatype meg"),
        (["--config.data.raw.channels=meg"], {"mag", "grad"}, "1 recording of the datatype eeg"),
        (["--config.data.raw.channels=('mag','eeg')"], {"mag", "eeg"}, "1 recording of the datatype eeg"),
    ):
        data = prepare(tmp_path, root, *WHOLE, *choice)
        assert set(data.types) == kinds
        assert f"also has {others}, which data.raw.channels=" in capsys.readouterr().err
        if "mag" in kinds:
            assert found(data)["mag"] > 0.75


@pytest.mark.parametrize("name", ["S1.con", "S1.sqd", "S1_meg.ds"])
def test_files_of_kit_and_folders_of_ctf(name, tmp_path, monkeypatch):
    """MNE writes neither, so the reader is replaced: found in a folder and by name, with the table beside it."""
    path = tmp_path / "study" / name
    (path / "S1_meg.meg4").parent.mkdir(parents=True)
    (path / "S1_meg.meg4").write_bytes(b"MEG41CP")
    if path.suffix != ".ds":
        shutil.rmtree(path)
        path.write_bytes(bytes(2048))
    path.with_name("S1_events.csv").write_text(events(","))
    raw, opened = recording({f"M{i}": "mag" for i in range(8)}, "mag").set_annotations(None), []
    monkeypatch.setattr(mne.io, "read_raw", lambda place, **_: opened.append(place) or raw)
    for source in (path.parent, path):
        assert found(prepare(tmp_path, source, *WHOLE))["mag"] > 0.75
    assert set(opened) == {path}


def test_neighbors_of_a_shaft_are_of_one_type_and_may_be_written_with_zeros():
    channels, types = ["LA08", "LA09", "LA10", "LA11", "LB1", "LB2", "G"], ["seeg"] * 3 + ["ecog"] * 2 + ["seeg"] * 2
    pairs = bipolar_pairs(channels, types, data_spec(RawSpec, "raw", reference="seeg:bipolar"))
    assert pairs == [("LA08-LA09", ("LA08", "LA09")), ("LA09-LA10", ("LA09", "LA10"))]
