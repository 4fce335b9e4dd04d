"""One raw recording, opened but not read: channels, rate, units, and the voltages of a stretch when asked for."""

import contextlib
import dataclasses
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np

from eeg2text_jax.data.raw.choices import VOLTS, RawSpec
from eeg2text_jax.data.raw.find import RawFile
from eeg2text_jax.data.recordings.features import UnreadableRecording
from eeg2text_jax.data.source import library
from eeg2text_jax.errors import UserError, first_line


@dataclasses.dataclass(frozen=True)
class Recording:
    """What is needed of MNE's object."""

    file: RawFile
    raw: Any
    channels: tuple[str, ...]
    picks: np.ndarray  # places of the channels in the file
    factor: float  # to volts, of files that do not say their units
    bad: tuple[str, ...]  # channels among them that the file calls bad

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
        """
        start = max(int(np.floor(begin * self.rate)), 0)
        stop = min(int(np.ceil(end * self.rate)), self.raw.n_times)
        with quiet(), _reading(self.file):
            found = self.raw.get_data(self.picks, start, stop)
        return found.astype(np.float64, copy=False) * self.factor, start / self.rate


def open_recording(file: RawFile, spec: RawSpec) -> Recording:
    """Opens a file with MNE, or with mne-bids where it is in a BIDS folder.

    Raises:
      UnreadableRecording: MNE cannot read it.
      UserError: it has no EEG, lacks a channel that was asked for, or does not say its units; or mne is not installed.
    """
    mne = library("mne", "mne")
    with quiet(), _reading(file):
        raw = _open_bids(file) if file.bids else mne.io.read_raw(file.path, preload=False, verbose="error")
    picks = [int(place) for place in mne.pick_types(raw.info, meg=False, eeg=True, exclude=[])]
    names = [raw.ch_names[place] for place in picks]
    if spec.channels:
        missing = [name for name in spec.channels if name not in raw.ch_names]
        if missing:
            raise UserError(f"{file.path}: has no channel {missing[0]!r} (data.raw.channels); it has {_some(names)}.")
        names = list(spec.channels)
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
    return Recording(file, raw, tuple(names), places, _factor(file, raw, names, spec.units), bad)


def _open_bids(file: RawFile) -> Any:
    bids = library("mne_bids", "mne")
    path = bids.get_bids_path_from_fname(file.path)
    try:
        return bids.read_raw_bids(path, verbose="error")
    except Exception:  # of its sidecars, of which only those of the channels matter here
        return library("mne", "mne").io.read_raw(file.path, preload=False, verbose="error")


def _factor(file: RawFile, raw: Any, names: list[str], given: str) -> float:
    """What the values are to be multiplied by; MNE gives volts where the file says its units.

    Raises:
      UserError: it does not say them, and neither does `given`; or they are no voltages.
    """
    said = getattr(raw, "_orig_units", None) or {}
    known = {"v", "mv", "uv", "µv", "μv", "nv"}
    unknown = [name for name in names if name in said and str(said[name]).strip().lower() not in known]
    if not unknown:
        return 1.0
    if given:
        return VOLTS[given]
    raise UserError(
        f"{file.path}: does not give channel {unknown[0]!r} in a unit of voltage that MNE knows (but in "
        f"{str(said[unknown[0]])!r}; {len(unknown)} channels); say what it is with data.raw.units, one of "
        f"{', '.join(VOLTS)}."
    )


@contextlib.contextmanager
def _reading(file: RawFile) -> Iterator[None]:
    """Gives whatever MNE raises on a damaged file the file's name."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        raise UnreadableRecording(file.path, f"cannot be read by MNE ({first_line(error)}).") from error


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """MNE warns of conventions of names and of headers that have no place here."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _some(names: list[str]) -> str:
    return ", ".join(names[:8]) + (", ..." if len(names) > 8 else "")
