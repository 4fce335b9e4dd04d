"""Electrode positions, for topographic maps."""

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from eeg2text_jax.data.datafile import DataFile
from eeg2text_jax.errors import UserError, did_you_mean
from eeg2text_jax.imports import library

Place = tuple[str, float, float, float]  # channel, and its position in metres to the right, to the front and upwards


def electrodes_of(data: DataFile) -> list[Place]:
    """Return the electrode positions in a file's provenance; empty if unknown or F is no multiple of their number."""
    found = [(str(name), float(x), float(y), float(z)) for name, x, y, z in data.provenance.get("electrodes", [])]
    return found if found and data.n_features % len(found) == 0 else []


def electrodes(info: Any, names: Sequence[str], montage: str = "") -> list[Place]:
    """Return the positions of the channels `names` in MNE's head coordinates; empty if one is unknown.

    If the recording (`info`) has no positions, the standard montage `montage` gives them; "" uses none.
    Raises UserError if the montage does not exist or lacks a channel.
    """
    found = _places(info, names)
    return found if found or not montage else _places(_standard(names, montage), names)


def _places(info: Any, names: Sequence[str]) -> list[Place]:
    where = np.array([info["chs"][info["ch_names"].index(name)]["loc"][:3] for name in names], float)
    if not (np.isfinite(where).all() and where.any(axis=1).all()):
        return []
    return [(name, float(x), float(y), float(z)) for name, (x, y, z) in zip(names, where.round(5), strict=True)]


def _standard(names: Sequence[str], montage: str) -> Any:
    """Return an MNE info of the channels, placed by a standard montage."""
    mne = library("mne", "mne")
    known = mne.channels.get_builtin_montages()
    if montage not in known:
        raise UserError(f"data.raw.montage: MNE has no montage {montage!r}; {did_you_mean(montage, known)}")
    with warnings.catch_warnings(action="ignore"):  # MNE warns of deprecated channel names
        template = mne.channels.make_standard_montage(montage)
        missing = {name.casefold() for name in names} - {name.casefold() for name in template.ch_names}
        if missing:
            lost = next(name for name in names if name.casefold() in missing)
            raise UserError(
                f"data.raw.montage: {montage!r} has no channel {lost!r}; name another montage, or leave the channel "
                "out with data.raw.exclude."
            )
        info = mne.create_info(list(names), 1.0, "eeg")
        return info.set_montage(template, match_case=False)
