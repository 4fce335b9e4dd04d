"""One raw recording, opened but not read: channels, rate, units, and the voltages of a stretch when asked for."""

import contextlib
import dataclasses
import re
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from eeg2text_jax.data.raw.choices import RawSpec
from eeg2text_jax.data.raw.events import read_table
from eeg2text_jax.data.raw.find import RawFile
from eeg2text_jax.data.raw.units import check_ranges, factors, unit_of
from eeg2text_jax.data.recordings.features import UnreadableRecording
from eeg2text_jax.data.source import library
from eeg2text_jax.errors import UserError, first_line

# Channels of the eyes, the heart, muscles and devices: EDF and BrainVision have no types, so that MNE calls them EEG.
NOT_EEG = re.compile(r"(?i)[hvlr]?(eog|ecg|ekg|emg)|photo|trig|status|resp|gsr")
Types = dict[str, str]  # of channels, as `channels.tsv` of a BIDS folder has them


@dataclasses.dataclass(frozen=True)
class Recording:
    """What is needed of MNE's object."""

    file: RawFile
    raw: Any
    channels: tuple[str, ...]
    picks: np.ndarray  # places of the channels in the file
    factor: np.ndarray  # to volts `[channels, 1]`
    bad: tuple[str, ...]  # channels among them that the file calls bad
    notes: tuple[str, ...]  # sentences without the file's name: what was left out, and which units were given
    warning: str  # about sidecars that could not be read

    @property
    def rate(self) -> float:
        return float(self.raw.info["sfreq"])

    @property
    def seconds(self) -> float:
        return self.raw.n_times / self.rate

    def volts(self, begin: float, end: float) -> tuple[np.ndarray, float]:
        """Voltages `[channels, samples]` of a stretch, as far as the recording goes, and when it really begins.

        Raises:
          UnreadableRecording: the file ends before it should, or is damaged.
          UserError: a channel has NaN or infinity there.
        """
        start = max(int(np.floor(begin * self.rate)), 0)
        stop = min(int(np.ceil(end * self.rate)), self.raw.n_times)
        with quiet(), _reading(self.file):
            found = self.raw.get_data(self.picks, start, stop)
        broken = np.flatnonzero(~np.isfinite(found).all(axis=1))
        if len(broken):
            first = start + np.flatnonzero(~np.isfinite(found).all(axis=0))[0]
            names = _some([self.channels[i] for i in broken])
            raise UserError(
                f"{self.file.path}: {len(broken)} of {len(self.channels)} channels have NaN or infinity at "
                f"{first / self.rate:.1f} s ({names}); mend the recording, or leave them out with data.raw.exclude."
            )
        return found.astype(np.float64, copy=False) * self.factor, start / self.rate


def open_recording(file: RawFile, spec: RawSpec) -> Recording:
    """Opens a file with MNE, or with mne-bids where it is in a BIDS folder.

    Raises:
      UnreadableRecording: MNE cannot read it.
      UserError: it has no EEG, lacks a channel that was asked for, or does not say its units; or mne is not installed.
    """
    mne = library("mne", "mne")
    with quiet(), _reading(file):
        if file.bids:
            raw, types, warning = open_bids(file, spec.channels)
        else:
            raw, types, warning = mne.io.read_raw(file.path, preload=False, verbose="error"), {}, ""
    picks = [int(place) for place in mne.pick_types(raw.info, meg=False, eeg=True, exclude=[])]
    names = [raw.ch_names[place] for place in picks]
    if spec.channels:
        missing = [name for name in spec.channels if name not in raw.ch_names]
        if missing:
            raise UserError(f"{file.path}: has no channel {missing[0]!r} (data.raw.channels); it has {_some(names)}.")
        names = list(spec.channels)
    else:
        names = [name for name in names if not NOT_EEG.match(name)]
    names = [name for name in names if name not in spec.exclude]
    if not names:
        raise UserError(
            f"{file.path}: has no channel of EEG, it has {_some(raw.ch_names)} of the types "
            f"{', '.join(sorted(set(raw.get_channel_types())))}; name those to take with data.raw.channels."
        )
    if spec.reference == "average" and len(names) < 2:
        raise UserError(f"{file.path}: has one channel, which is its own average; set data.raw.reference to ''.")
    bad = tuple(name for name in raw.info["bads"] if name in names)
    places = np.array([raw.ch_names.index(name) for name in names])
    check_ranges(file, raw, names)
    factor, without = factors(file, raw, names, spec.units)
    left = _left_out(raw, names, spec, types)
    notes = []
    if left:
        notes.append(
            f"{len(left)} channels were left out, as they are not EEG by type, unit or name: {', '.join(left)}; name "
            "those to take with data.raw.channels."
        )
    if without:
        notes.append(f"{len(without)} channels without a unit were read in {spec.units}: {', '.join(without)}.")
    return Recording(file, raw, tuple(names), places, factor, bad, tuple(notes), warning)


def _left_out(raw: Any, names: list[str], spec: RawSpec, types: Types) -> tuple[str, ...]:
    """Channels that nobody chose to leave out, each with its type, and its unit if it is none of voltage."""
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
def _reading(file: RawFile) -> Iterator[None]:
    """Gives whatever MNE raises on a damaged file the file's name."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        said = first_line(error)
        if not isinstance(error, OSError | ValueError | RuntimeError):  # MNE did not expect these bytes
            said = f"damaged, or no recording; {type(error).__name__}: {said}"
        raise UnreadableRecording(file.path, f"cannot be read by MNE ({said}).") from error


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """MNE warns of conventions of names and of headers that have no place here."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _some(names: list[str]) -> str:
    return ", ".join(names[:8]) + (", ..." if len(names) > 8 else "")


_EEG = "EEG"


def open_bids(file: RawFile, wanted: tuple[str, ...]) -> tuple[Any, Types, str]:
    """Open a recording, and apply its `channels.tsv` whether or not mne-bids can read the other sidecars.

    Args:
      file: the recording.
      wanted: channels that the user named, which need no type; empty: those of EEG.

    Returns:
      MNE's object, the types in the table, and a sentence on sidecars that could not be read (or an empty string).

    Raises:
      UserError: `channels.tsv` is damaged, or has no row for a channel that may be EEG.
    """
    bids = library("mne_bids", "mne")
    path, note = bids.get_bids_path_from_fname(file.path), ""
    table = path.find_matching_sidecar(suffix="channels", extension=".tsv", on_error="ignore")
    rows = _rows(Path(table)) if table else {}
    try:
        raw = bids.read_raw_bids(path, verbose="error")
    except Exception as error:  # of a sidecar; a damaged recording raises in the next line again
        raw = library("mne", "mne").io.read_raw(file.path, preload=False, verbose="error")
        note = f"{file.path}: was read without sidecars that mne-bids cannot read ({first_line(error)})."
    if not table:
        return raw, {}, note
    _check_names(Path(table), file, raw, rows, wanted)
    types = {name: row["type"] for name, row in rows.items() if name in raw.ch_names}
    for name, kind in types.items():
        if (kind.upper() == _EEG) != (raw.get_channel_types([name])[0] == "eeg"):
            raw.set_channel_types({name: "eeg" if kind.upper() == _EEG else "misc"}, verbose="error")
    if any("status" in row for row in rows.values()):
        raw.info["bads"] = [name for name in types if rows[name]["status"].lower() == "bad"]
    return raw, types, note


def _rows(table: Path) -> dict[str, dict[str, str]]:
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
        raise UserError(
            f"{table}: has no row for channel {absent[0]!r} of {file.path.name} ({len(absent)} such channels){what}. "
            "Mend the table, or name the channels to take with data.raw.channels."
        )
