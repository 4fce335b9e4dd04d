"""Open raw recordings with MNE: choose channels, convert units to volts, and read voltages on request."""

import contextlib
import dataclasses
import re
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from eeg2text_jax.data.raw.events import read_table
from eeg2text_jax.data.raw.find import VOLTS, RawFile, RawSpec
from eeg2text_jax.data.recordings.features import UnreadableRecording
from eeg2text_jax.errors import UserError, count_of, first_line, named, shortlist
from eeg2text_jax.imports import library

# Names of channels of eyes, heart, muscles and devices. EDF and BrainVision state no types, so MNE calls them EEG.
NOT_EEG = re.compile(r"(?i)[hvlr]?(eog|ecg|ekg|emg)|photo|trig|status|resp|gsr")
Types = dict[str, str]  # channel -> its type in a BIDS folder's `channels.tsv`
_KNOWN = {name.lower(): volts for name, volts in VOLTS.items()}


@dataclasses.dataclass(frozen=True)
class Recording:
    """An open recording: the selected channels and how to read them."""

    file: RawFile
    raw: Any  # MNE's object
    channels: tuple[str, ...]
    picks: np.ndarray  # indices of `channels` among the file's channels
    factor: np.ndarray  # `[channels, 1]`, volts per unit of the values that MNE returns
    notes: tuple[str, ...]  # on channels left out and units assumed, without the file's name
    warnings: tuple[str, ...]  # on unreadable sidecars and bad channels, with the file's name

    @property
    def rate(self) -> float:
        return float(self.raw.info["sfreq"])

    @property
    def seconds(self) -> float:
        return self.raw.n_times / self.rate

    def volts(self, begin: float, end: float) -> tuple[np.ndarray, float]:
        """Return the voltages `[channels, samples]` from `begin` to `end` (seconds), and the time of the first sample.

        Times outside the recording are clipped. Raises UnreadableRecording for a damaged file, UserError for NaN.
        """
        start = max(int(np.floor(begin * self.rate)), 0)
        stop = min(int(np.ceil(end * self.rate)), self.raw.n_times)
        with _mne_errors(self.file):
            found = self.raw.get_data(self.picks, start, stop)
        broken = np.flatnonzero(~np.isfinite(found).all(axis=1))
        if len(broken):
            first = start + np.flatnonzero(~np.isfinite(found).all(axis=0))[0]
            names = shortlist([self.channels[i] for i in broken])
            raise UserError(
                f"{self.file.path}: {len(broken)} of {len(self.channels)} channels have NaN or infinity at "
                f"{first / self.rate:.1f} s ({names}); repair the recording, or leave these channels out with "
                "data.raw.exclude."
            )
        return found.astype(np.float64, copy=False) * self.factor, start / self.rate


def open_recording(file: RawFile, spec: RawSpec) -> Recording:
    """Open a file with MNE, or with mne-bids in a BIDS folder.

    Raises UnreadableRecording if MNE cannot read the file, UserError if it lacks EEG, a channel or a channel's unit.
    """
    mne = library("mne", "mne")
    has_encoding = spec.encoding and file.path.suffix.lower() in (".edf", ".bdf")
    options = {"encoding": spec.encoding} if has_encoding else {}
    with _mne_errors(file):
        if file.bids:
            raw, types, warning = open_bids(file, spec.channels, options)
        else:
            raw, types, warning = mne.io.read_raw(file.path, preload=False, verbose="error", **options), {}, ""
    picks = [int(place) for place in mne.pick_types(raw.info, meg=False, eeg=True, exclude=[])]
    names = [raw.ch_names[place] for place in picks]
    if spec.channels:
        missing = [name for name in spec.channels if name not in raw.ch_names]
        if missing:
            raise UserError(
                f"{file.path}: has no channel {missing[0]!r} (data.raw.channels); it has {shortlist(names)}."
            )
        names = list(spec.channels)
    else:
        names = [name for name in names if not NOT_EEG.match(name)]
    names = [name for name in names if name not in spec.exclude]
    if not names:
        raise UserError(
            f"{file.path}: has no channel of EEG, it has {shortlist(raw.ch_names)} of the types "
            f"{', '.join(sorted(set(raw.get_channel_types())))}; set data.raw.channels to the channels to use."
        )
    if spec.reference == "average" and len(names) < 2:
        raise UserError(
            f"{file.path}: has only one channel, so nothing is left after the average reference; set "
            "data.raw.reference to ''."
        )
    warned = [warning] if warning else []
    if bad := [name for name in raw.info["bads"] if name in names]:
        warned.append(f"{file.path}: marks these channels as bad, but they are kept: {', '.join(bad)}.")
    places = np.array([raw.ch_names.index(name) for name in names])
    check_ranges(file, raw, names)
    factor, without = factors(file, raw, names, spec.units)
    notes = []
    if left := _left_out(raw, names, spec, types):
        notes.append(
            f"{count_of(len(left), 'channel was', 'channels were')} left out, as not EEG by type, unit or name: "
            f"{', '.join(left)}; to "
            "use some of them, set data.raw.channels to all channels to use."
        )
    if without:
        many = count_of(len(without), "channel without a unit was", "channels without a unit were")
        notes.append(f"{many} read in {spec.units}: {', '.join(without)}.")
    return Recording(file, raw, tuple(names), places, factor, tuple(notes), tuple(warned))


def _left_out(raw: Any, names: list[str], spec: RawSpec, types: Types) -> tuple[str, ...]:
    """Return the channels that are not in `names`, though the user did not exclude them, each with type and unit."""
    if spec.channels:
        return ()
    found = []
    for name, kind in zip(raw.ch_names, raw.get_channel_types(), strict=True):
        if name not in names and name not in spec.exclude and kind != "stim":
            unit = unit_of(raw, name)
            if kind == "eeg" and NOT_EEG.match(name):
                kind = "by its name"
            found.append(f"{name} ({types.get(name, kind)}{f', unit {unit!r}' if unit else ''})")
    return tuple(found)


@contextlib.contextmanager
def _mne_errors(file: RawFile) -> Iterator[None]:
    """Turn MNE's exceptions into UnreadableRecording, and suppress its warnings about names and headers."""
    try:
        with warnings.catch_warnings(action="ignore"):
            yield
    except UserError:
        raise
    except Exception as error:
        reason = first_line(error)
        if isinstance(error, UnicodeDecodeError) or "encoding=" in str(error):
            reason = "its annotations are no UTF-8 text; set data.raw.encoding to their encoding, such as latin1"
        elif not isinstance(error, OSError | ValueError | RuntimeError):  # others: MNE did not expect these bytes
            reason = f"damaged, or no recording; {named(error)}"
        raise UnreadableRecording(file.path, f"cannot be read by MNE ({reason}).") from error


def open_bids(file: RawFile, wanted: tuple[str, ...], options: dict[str, str]) -> tuple[Any, Types, str]:
    """Open a recording and apply its `channels.tsv`, even if mne-bids cannot read the other sidecars.

    Return MNE's object, the type of each channel in the table, and a sentence on unreadable sidecars, or "".
    Raises UserError if `channels.tsv` is damaged, or, without `wanted` channels, if it has no row for a channel of EEG.
    """
    bids = library("mne_bids", "mne")
    path, note = bids.get_bids_path_from_fname(file.path), ""
    table = path.find_matching_sidecar(suffix="channels", extension=".tsv", on_error="ignore")
    rows = _rows(Path(table)) if table else {}
    try:
        raw = bids.read_raw_bids(path, verbose="error", extra_params=dict(options))
    except Exception as error:  # often a faulty sidecar; a damaged recording raises again in the next line
        raw = library("mne", "mne").io.read_raw(file.path, preload=False, verbose="error", **options)
        note = f"{file.path}: was read without sidecars that mne-bids cannot read ({first_line(error)})."
    if not table:
        return raw, {}, note
    _check_names(Path(table), file, raw, rows, wanted)
    types = {name: row["type"] for name, row in rows.items() if name in raw.ch_names}
    for name, kind in types.items():
        if (kind.upper() == "EEG") != (raw.get_channel_types([name])[0] == "eeg"):
            raw.set_channel_types({name: "eeg" if kind.upper() == "EEG" else "misc"}, verbose="error")
    if any("status" in row for row in rows.values()):
        raw.info["bads"] = [name for name in types if rows[name]["status"].lower() == "bad"]
    return raw, types, note


def _rows(table: Path) -> dict[str, dict[str, str]]:
    """Return the rows of `channels.tsv`: channel -> its cells by column. Raises UserError if it is malformed."""
    columns, lines = read_table(table)
    for column in ("name", "type"):
        if column not in columns:
            raise UserError(f"{table}: there is no column {column!r}, there are {', '.join(columns)[:200]}.")
    rows: dict[str, dict[str, str]] = {}
    for line in lines:
        if rows.setdefault(line["name"], line) is not line:
            raise UserError(f"{table}: has two rows for channel {line['name']!r}; expected one.")
    return rows


def _check_names(table: Path, file: RawFile, raw: Any, rows: dict[str, Any], wanted: tuple[str, ...]) -> None:
    types = dict(zip(raw.ch_names, raw.get_channel_types(), strict=True))
    absent = [name for name, kind in types.items() if name not in rows and kind == "eeg" and not wanted]
    if absent:
        others = [name for name in rows if name not in types]
        what = f"; it has rows for {', '.join(others[:5])}, which the recording lacks" if others else ""
        many = count_of(len(absent), "such channel")
        raise UserError(
            f"{table}: has no row for channel {absent[0]!r} of {file.path.name} ({many}){what}. "
            "Mend the table, or name the channels to take with data.raw.channels."
        )


def factors(file: RawFile, raw: Any, names: list[str], given: str) -> tuple[np.ndarray, list[str]]:
    """Return factors `[channels, 1]` that convert MNE's values to volts, and the channels without a unit of voltage.

    MNE converts units that it knows. `given` is the unit of the other channels; if it is "", they raise UserError.
    """
    units = getattr(raw, "_orig_units", None) or {}
    applied = _applied_factors(raw)
    found, without = np.ones((len(names), 1)), []
    for i, name in enumerate(names):
        if name not in units:
            continue
        volts = _KNOWN.get(_symbol(units[name]))
        if volts is None:
            without.append(name)
            volts = VOLTS.get(given, 1.0)
        found[i] = volts / applied.get(name, 1.0 if name in without else volts)
    if without and not given:
        raise UserError(
            f"{file.path}: gives channel {without[0]!r} in {str(units[without[0]])!r}, no unit of voltage that MNE "
            f"knows ({count_of(len(without), 'such channel')}); set data.raw.units to their unit, one of "
            f"{', '.join(VOLTS)}, which applies to these channels alone, or leave them out with data.raw.exclude."
        )
    return found, without


def unit_of(raw: Any, name: str) -> str:
    """Return a channel's unit as the file states it; "" for volts, their multiples, and if the file states none."""
    unit = (getattr(raw, "_orig_units", None) or {}).get(name)
    return "" if unit is None or _symbol(unit) in _KNOWN else str(unit)


def _symbol(unit: Any) -> str:
    return re.sub("^[µμ]", "u", str(unit).strip().lower())  # the micro sign and the Greek letter


def _applied_factors(raw: Any) -> dict[str, float]:
    """Return channel -> factor that MNE applied to get volts; it leaves nV in EDF, and `uv`, unconverted."""
    extras = _extras(raw)
    if "physical_min" in extras and len(extras["ch_names"]) == len(extras["units"]):
        return dict(zip(extras["ch_names"], map(float, extras["units"]), strict=True))
    if type(raw).__name__ == "RawBrainVision":
        return {channel["ch_name"]: float(channel["range"]) for channel in raw.info["chs"]}
    return {}


def check_ranges(file: RawFile, raw: Any, names: list[str]) -> None:
    """Raise UnreadableRecording if a channel in `names` of EDF or BDF declares an empty or infinite physical range."""
    extras = _extras(raw)
    if "physical_max" not in extras:
        return
    for name, low, high in zip(extras["ch_names"], extras["physical_min"], extras["physical_max"], strict=False):
        if name in names and not (np.isfinite([low, high]).all() and low != high):
            raise UnreadableRecording(
                file.path,
                f"channel {name!r} has the physical minimum {low:g} and maximum {high:g}; expected two different "
                "finite numbers. Mend the header, or leave the channel out with data.raw.exclude.",
            )


def _extras(raw: Any) -> dict[str, Any]:
    """Return the header fields that MNE's reader keeps; empty for formats whose reader keeps none."""
    extras = getattr(raw, "_raw_extras", None) or [{}]
    return extras[0] if isinstance(extras[0], dict) else {}
