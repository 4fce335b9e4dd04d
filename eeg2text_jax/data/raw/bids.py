"""Recordings in BIDS folders: MNE's object with the channel types and bad channels of `channels.tsv`."""

from pathlib import Path
from typing import Any

from eeg2text_jax.data.raw.events import read_table
from eeg2text_jax.data.raw.find import RawFile
from eeg2text_jax.data.source import library
from eeg2text_jax.errors import UserError, first_line

Types = dict[str, str]  # of channels, as the table has them
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
