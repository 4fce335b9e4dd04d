"""Channels: units of their own, types by BIDS, ranges in EDF; what is left out is named."""

import re

import numpy as np
import pytest
from prepared import prepare
from tiny_run import data_spec

from eeg2text_jax.base.errors import UserError
from eeg2text_jax.data.planted import write_recordings
from eeg2text_jax.data.raw.find import RawSpec
from eeg2text_jax.data.raw.raw_samples import rereference
from eeg2text_jax.data.raw.sentences import _samples, band_power
from eeg2text_jax.training.configuration import load_config

pytestmark = pytest.mark.filterwarnings("ignore")  # MNE's, while files are written
UNREFERENCED = "--config.data.raw.reference="  # a channel's mistake stays in its own features


def header(path, channel, field, value, n=6):
    """Overwrite a field of eight characters in the header of an EDF file."""
    before = {"unit": 16 + 80, "low": 16 + 80 + 8, "high": 16 + 80 + 16}[field]
    content = bytearray(path.read_bytes())
    n = int(content[252:256])
    start = 256 + n * before + 8 * channel
    content[start : start + 8] = value.ljust(8).encode()
    path.write_bytes(content)


@pytest.fixture
def edf(tmp_path):
    files = tmp_path / "files"
    fields = [*write_recordings(files, "edf", subjects=1, sentences=3), UNREFERENCED]
    return files, fields, prepare(tmp_path, files, *fields)


def test_a_sine_has_its_amplitude_and_its_square():
    """9 Hz of 7 and of 20 microvolts, in the band from 8.5 to 10 Hz."""
    rate, size = 250.0, np.array([7e-6, 20e-6])
    volts = size[:, None] * np.sin(2 * np.pi * 9 * np.arange(2000) / rate)
    fields = load_config("default").data.raw.to_dict() | {"bands": ((8.5, 10.0),)}
    logs = np.log10([7.0, 20.0])
    cases = ((True, False, size), (False, False, size**2), (True, True, logs), (False, True, 2 * logs))
    for amplitude, log, expected in cases:
        spec = RawSpec(**fields | {"amplitude": amplitude, "log": log})
        found = band_power(volts, rate, [(2.0, 6.0)], spec)
        np.testing.assert_allclose(found, expected[None], rtol=0.01)
        assert (" amplitude in " in spec.features_are(["a", "b"])) == amplitude


def test_filters_take_away_what_their_names_say():
    """Of a sine of 5 and one of 35 Hz, in a band each: less than a tenth of the power is left, or nearly all."""
    time = np.arange(2500) / 250.0
    volts = 1e-5 * (np.sin(2 * np.pi * 5 * time) + np.sin(2 * np.pi * 35 * time))[None]

    def power(**fields):
        spec = data_spec(RawSpec, "raw", bands=((4.0, 6.0), (30.0, 40.0)), log=True, amplitude=False, **fields)
        return band_power(volts, 250.0, [(3.0, 7.0)], spec)[0]

    plain = power(highpass=0.0, lowpass=0.0, notch=0.0)
    for name, value, taken in (("highpass", 15.0, 0), ("lowpass", 15.0, 1), ("notch", 35.0, 1)):
        lost = plain - power(**{"highpass": 0.0, "lowpass": 0.0, "notch": 0.0, name: value})
        assert lost[taken] > 1, name
        assert abs(lost[1 - taken]) < 0.05, name


def test_spans_are_at_their_place_after_resampling():
    """A burst from 40 to 41 s has the power that it has without resampling."""
    times = np.arange(50 * 250) / 250
    volts = (1e-5 * np.sin(2 * np.pi * 10 * times) * ((times >= 40) & (times < 41)))[None]

    def power(resample):
        fields = {"bands": ((8.0, 12.0),), "log": False, "highpass": 0.0, "lowpass": 0.0, "notch": 0.0}
        spec = data_spec(RawSpec, "raw", resample=resample, **fields)
        return band_power(volts, 250.0, [(39.5, 40.0), (40.0, 41.0), (41.0, 41.5)], spec)[:, 0]

    np.testing.assert_allclose(power(100.0), power(0.0), rtol=0.1)
    assert power(100.0)[1] > 3 * power(100.0)[[0, 2]].max()


def test_a_reference_is_the_mean_of_the_channels_that_it_names():
    volts, names = np.array([[1.0, 2.0], [3.0, 5.0], [8.0, 8.0]]), ("Fz", "Cz", "Pz")

    def less(reference):
        spec = data_spec(RawSpec, "raw", reference=reference)
        return (volts - rereference(volts, names, ["eeg"] * 3, spec, "x")[0]).tolist()

    assert less("Cz, Pz") == [[5.5, 6.5]] * 3
    assert less("average") == [[4.0, 5.0]] * 3
    assert less("") == [[0.0, 0.0]] * 3
    with pytest.raises(UserError, match="x: has no channel 'T7'"):
        less("Cz,T7")


def test_times_become_the_nearest_samples_and_at_least_one():
    assert 0.29 * 100 < 29
    assert _samples((0.29, 0.58), 100.0, 100) == (29, 58)
    assert _samples((0.9, 3.0), 100.0, 100) == (90, 100)
    assert _samples((5.0, 6.0), 100.0, 100) == (99, 100)
    assert _samples((0.5, 0.501), 100.0, 100) == (50, 51)


@pytest.mark.parametrize("features", ["power", "waves"])
@pytest.mark.parametrize("name", ["highpass", "lowpass", "notch", "resample"])
def test_bands_and_filters_fit_the_rate_after_resampling(name, features):
    def fits(rate, **changes):
        fields = {"features": features, "bands": ((8.5, 10.0), (40.0, 49.5))} | changes
        data_spec(RawSpec, "raw", **fields).check_rate(rate, "x")

    if name != "resample":
        fits(100.0, **{name: 49.5})
        fits(101.0, **{name: 50.0})
        message = "x: has 100 samples a second, and a band or filter at 50 Hz needs more than 100"
        with pytest.raises(UserError, match=message):
            fits(100.0, **{name: 50.0})
    for resample, rate in ((60.0, 500.0), (500.0, 60.0), (0.0, 99.0)) if features == "power" else ():
        with pytest.raises(UserError, match=r"a band or filter at 49\.5 Hz needs more than 99"):
            fits(rate, resample=resample)


@pytest.mark.parametrize("unit", ["", "arb"])
def test_a_given_unit_is_that_of_channels_without_one(unit, edf, tmp_path, capsys, refusal):
    files, fields, plain = edf
    header(files / "S1.edf", 1, "unit", unit)
    assert "gives channel 'Cz' in 'n/a', no unit of voltage that MNE knows" in refusal(files, *fields)
    data = prepare(tmp_path, files, *fields, "--config.data.raw.units=uV")
    np.testing.assert_allclose(data.features, plain.features, atol=1e-4)
    assert "1 channel without a unit was read in uV: Cz." in capsys.readouterr().err


@pytest.mark.parametrize(("unit", "volts"), [("nV", 1e-9), ("uv", 1e-6), ("mV", 1e-3), ("V", 1.0)])
def test_a_unit_of_its_own_is_heeded(unit, volts, edf, tmp_path):
    files, fields, plain = edf
    header(files / "S1.edf", 1, "unit", unit)
    data = prepare(tmp_path, files, *fields, "--config.data.raw.units=uV")
    shift = np.zeros(6)
    shift[1] = 2 * np.log10(volts / 1e-6)
    np.testing.assert_allclose(data.features, plain.features + np.tile(shift, 8), atol=1e-4)


@pytest.mark.parametrize(("field", "value"), [("high", "low"), ("high", "inf"), ("low", "nan")])
def test_a_range_without_extent_is_one_sentence(field, value, edf, tmp_path, refusal):
    files, fields, _ = edf
    content = (files / "S1.edf").read_bytes()
    start = 256 + int(content[252:256]) * (16 + 80 + 8) + 8
    header(files / "S1.edf", 1, field, content[start : start + 8].decode() if value == "low" else value)
    assert re.search(r"S1\.edf: channel 'Cz' has the physical minimum .*; expected two different finite numbers",
                     refusal(files, *fields))  # fmt: skip
    assert prepare(tmp_path, files, *fields, "--config.data.raw.exclude=('Cz',)").n_features == 8 * 5


def test_a_brainvision_channel_in_an_odd_unit_is_named(tmp_path, capsys, refusal):
    files = tmp_path / "files"
    fields = [*write_recordings(files, "brainvision", subjects=1, sentences=3), UNREFERENCED]
    plain = prepare(tmp_path, files, *fields)
    head = files / "S1.vhdr"
    head.write_text(re.sub(r"(Ch2=Cz,.*,).V", r"\1arb", head.read_text()))
    assert prepare(tmp_path, files, *fields).n_features == 8 * 5
    assert re.search(r"S1\.vhdr: 1 channel was left out, .*: Cz \(misc, unit 'n/a'\)", capsys.readouterr().err)
    named = "--config.data.raw.channels=('Fz','Cz','Pz','Oz','C3','C4')"
    assert "channel 'Cz'" in refusal(files, *fields, named)
    data = prepare(tmp_path, files, *fields, named, "--config.data.raw.units=uV")
    np.testing.assert_allclose(data.features, plain.features, atol=1e-4)
    assert "left out" not in capsys.readouterr().err


@pytest.fixture
def tree(tmp_path):
    """A BIDS folder of which one channel is VEOG."""
    files = tmp_path / "files"
    fields = write_recordings(files, "bids", subjects=1, sentences=3)
    (table,) = files.rglob("*_channels.tsv")
    table.write_text(re.sub(r"(?m)^(Oz\t)EEG", r"\1VEOG", table.read_text(encoding="utf-8-sig")))
    return files, fields, table


def test_types_of_channels_tsv_are_heeded_and_named(tree, tmp_path, capsys):
    files, fields, table = tree
    assert prepare(tmp_path, files, *fields).n_features == 8 * 5
    assert "1 channel was left out, as not EEG by type, unit or name: Oz (VEOG)" in capsys.readouterr().err
    table.write_text(table.read_text().replace("Pz\tEEG", "Pz\tFOO").replace("Fz\tEEG", "Fz\teeg"))
    assert prepare(tmp_path, files, *fields).n_features == 8 * 4
    said = capsys.readouterr().err
    assert "2 channels were left out, as not EEG by type, unit or name: Pz (FOO), Oz (VEOG)" in said
    lines = [line.split("\t") for line in table.read_text(encoding="utf-8-sig").splitlines()]
    place = lines[0].index("status")
    for line, status in zip(lines[1:], ("n/a", "bad", "bad", "bad", "good", "BAD"), strict=True):
        line[place] = status
    table.write_text("\n".join(map("\t".join, lines)))
    prepare(tmp_path, files, *fields)
    assert "marks these channels as bad, but they are kept: Cz, C4." in capsys.readouterr().err


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda text: re.sub(r"(?m)^Oz\t.*\n", "", text).encode(), r"has no row for channel 'Oz' of sub-S1.*vhdr"),
        (lambda text: text.replace("Oz\t", "VEOG\t").encode(),
         r"has no row for channel 'Oz' of .*; it has rows for VEOG, which the recording lacks"),
        (lambda text: b"\xff\xfe\x00\x01" * 100, "cannot be read as a table in UTF-8"),
        (lambda text: bytes(range(128)) * 3, "channels.tsv"),
        (lambda text: b"", "the table is empty"),
        (lambda text: text.splitlines()[0].encode(), "has no row for channel 'Fz'"),
        (lambda text: text.replace("type", "kind").encode(), "there is no column 'type'"),
        (lambda text: text.replace("Oz\t", "Pz\t").encode(), "has two rows for channel 'Pz'"),
    ],
)  # fmt: skip
def test_a_damaged_channels_tsv_is_one_sentence(change, message, tree, refusal):
    files, fields, table = tree
    table.write_bytes(change(table.read_text()))
    error = refusal(files, *fields)
    assert re.search(message, error), error
    assert "channels.tsv" in error


def test_other_sidecars_that_are_damaged_leave_types_as_they_are(tree, tmp_path, capsys):
    files, fields, table = tree
    table.with_name(table.name.replace("_channels.tsv", "_eeg.json")).write_text("{")
    assert prepare(tmp_path, files, *fields).n_features == 8 * 5
    assert "was read without sidecars that mne-bids cannot read" in capsys.readouterr().err
    table.unlink()
    assert prepare(tmp_path, files, *fields).n_features == 8 * 6
