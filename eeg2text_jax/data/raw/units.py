"""Units of a recording's channels, and the ranges that EDF and BDF declare."""

from typing import Any

import numpy as np

from eeg2text_jax.data.raw.choices import VOLTS
from eeg2text_jax.data.raw.find import RawFile
from eeg2text_jax.data.recordings.features import UnreadableRecording
from eeg2text_jax.errors import UserError

_MICRO = ("µ", "μ")  # two characters that look alike
_KNOWN = {name.lower(): volts for name, volts in VOLTS.items()}


def factors(file: RawFile, raw: Any, names: list[str], given: str) -> tuple[np.ndarray, list[str]]:
    """Return what each channel's values are multiplied by to be volts `[channels, 1]`, and the channels without a unit.

    Args:
      file: the recording.
      raw: MNE's, which gives volts where it knows the unit.
      names: channels.
      given: the unit of channels that have none of their own.

    Raises:
      UserError: a channel has no unit of voltage, and `given` is empty.
    """
    said = getattr(raw, "_orig_units", None) or {}
    applied = _applied(raw)
    found, without = np.ones((len(names), 1)), []
    for i, name in enumerate(names):
        if name not in said:
            continue
        volts = _KNOWN.get(_symbol(said[name]))
        if volts is None:
            without.append(name)
            volts = VOLTS.get(given, 1.0)
        found[i] = volts / applied.get(name, 1.0 if name in without else volts)
    if without and not given:
        raise UserError(
            f"{file.path}: does not give channel {without[0]!r} in a unit of voltage that MNE knows (but in "
            f"{str(said[without[0]])!r}; {len(without)} channels); say what it is with data.raw.units, one of "
            f"{', '.join(VOLTS)}, which is used for these channels alone, or leave them out with data.raw.exclude."
        )
    return found, without


def unit_of(raw: Any, name: str) -> str:
    """Return a channel's unit if it is none of voltage, as the file has it; else an empty string."""
    unit = (getattr(raw, "_orig_units", None) or {}).get(name)
    return "" if unit is None or _symbol(unit) in _KNOWN else str(unit)


def _symbol(unit: Any) -> str:
    unit = str(unit).strip().lower()
    return "u" + unit[1:] if unit.startswith(_MICRO) else unit


def _applied(raw: Any) -> dict[str, float]:
    """What MNE multiplied each channel by: it leaves nV in EDF, and `uv`, as they are, though it names them."""
    extras = _extras(raw)
    if "physical_min" in extras and len(extras["ch_names"]) == len(extras["units"]):
        return dict(zip(extras["ch_names"], map(float, extras["units"]), strict=True))
    if type(raw).__name__ == "RawBrainVision":
        return {channel["ch_name"]: float(channel["range"]) for channel in raw.info["chs"]}
    return {}


def check_ranges(file: RawFile, raw: Any, names: list[str]) -> None:
    """
    Raises:
      UnreadableRecording: a channel of EDF or BDF declares a range from which no voltage follows.
    """
    extras = _extras(raw)
    if "physical_max" not in extras:
        return
    ranges = zip(extras["ch_names"], extras["physical_min"], extras["physical_max"], strict=False)
    for name, low, high in ranges:
        if name in names and not (np.isfinite([low, high]).all() and low != high):
            raise UnreadableRecording(
                file.path,
                f"channel {name!r} has the physical minimum {low:g} and maximum {high:g}; expected two different "
                "finite numbers. Mend the header, or leave the channel out with data.raw.exclude.",
            )


def _extras(raw: Any) -> dict[str, Any]:
    extras = getattr(raw, "_raw_extras", None) or [{}]
    return extras[0] if isinstance(extras[0], dict) else {}
