"""Events of a recording, from a table beside it or from its annotations: time, duration, codes and text."""

import dataclasses
import functools
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from eeg2text_jax.data.raw.find import RawFile, stem_of
from eeg2text_jax.data.source import read_cells
from eeg2text_jax.errors import UserError

# Marker types of BrainVision; MNE joins type and description with a slash, which FIF, EDF and BIDS copies keep.
TYPES = ("Comment", "Stimulus", "Response", "New Segment", "SyncStatus", "Optic", "Toggle", "Time 0", "Bad Interval")
_TYPED = re.compile(f"((?:{'|'.join(TYPES)})/)(.*)", re.DOTALL)
_TRIGGER = re.compile(r"S *0*(\d+)")


def split_type(said: str) -> tuple[str, str]:
    """Split `Comment/a text` into the marker type with its slash (empty if there is none) and the rest."""
    match = _TYPED.fullmatch(said)
    return (match[1], match[2].strip()) if match else ("", said)


@functools.lru_cache(maxsize=4096)
def spellings(code: str) -> tuple[str, ...]:
    """Return the spellings of a code, without its marker type first: `S 101` -> `S 101`, `S101`, `101`."""
    marker, bare = split_type(code)
    found = [bare, *_trigger(bare)]
    return tuple(dict.fromkeys(found + [marker + form for form in found] + [code]))


@functools.lru_cache(maxsize=256)
def patterns(pattern: str, *, typed: bool) -> tuple["re.Pattern[str]", ...]:
    """Compile a user's pattern, in which `*` stands for anything; `typed`: the code has a marker type.

    A pattern with a marker type matches codes of this type and codes without one.
    """
    marker, bare = split_type(pattern)
    kept = marker if typed or bare.startswith("*") else ""
    forms = dict.fromkeys([pattern, kept + bare, *(kept + form for form in _trigger(bare))])
    return tuple(re.compile("(.*)".join(map(re.escape, form.split("*"))), re.DOTALL) for form in forms)


def _trigger(bare: str) -> list[str]:
    match = _TRIGGER.fullmatch(bare)
    return [f"S{match[1]}", match[1]] if match else []


CODES = ("trial_type", "value", "code", "description")  # columns of codes
MISSING = ("", "n/a", "nan")
NO_EVENTS = ("bad", "edge")  # prefixes of annotations that MNE makes or heeds


@dataclasses.dataclass(frozen=True)
class Event:
    """Times in seconds from the first sample of the recording; codes as text; the other columns of its table."""

    onset: float
    duration: float
    codes: tuple[str, ...]
    columns: dict[str, str]

    def match(self, pattern: str) -> "re.Match[str] | None":
        """Return the match of the first code with `pattern`, in which `*` stands for anything.

        Marker types and the spellings `S101`, `S 101` and `101` are equivalent, but a pattern with a marker type
        rejects codes of another type.
        """
        tries = (
            expression.fullmatch(form)
            for code in self.codes
            for form in spellings(code)
            for expression in patterns(pattern, typed=bool(split_type(code)[0]))
        )
        return next(filter(None, tries), None)


def events_table(file: RawFile) -> Path | None:
    """Return the table of events of a recording, `NAME_events.tsv` or `.csv` as in BIDS, or None."""
    stem = stem_of(file.path)
    places = (file.path.with_name(f"{stem}_events{suffix}") for suffix in (".tsv", ".csv"))
    return next((place for place in places if place.is_file()), None)


def read_table(path: Path) -> tuple[list[str], list[dict[str, str]]]:
    """Return the columns and rows of a TSV or CSV file with a header, without byte order mark and blank lines.

    Raises:
      UserError: it is missing, not UTF-8 text, or a line has another number of cells than the header.
    """
    lines = [(number, [cell.strip() for cell in cells]) for number, cells in read_cells(path)]
    header = lines[0][1] if lines else []
    if not any(header):
        raise UserError(f"{path}: the table is empty; expected a header and a line for each event.")
    if len(header) == 1 and ";" in header[0]:
        raise UserError(f"{path}: its cells are separated by semicolons; save it with commas (.csv) or tabs (.tsv).")
    rows = []
    for number, cells in lines[1:]:
        if not any(cells):
            continue
        if len(cells) != len(header):
            raise UserError(
                f"{path}, line {number}: expected {len(header)} cells as in the header, found {len(cells)}; repair or "
                "remove the line."
            )
        rows.append(dict(zip(header, cells, strict=True)))
    return header, rows


def read_events(path: Path) -> tuple[list[str], list[Event]]:
    """Return the columns and events of a table with `onset` and optionally `duration`, both in seconds.

    Raises:
      UserError: see `read_table`; or there is no onset, or a time is not a number.
    """
    columns, rows = read_table(path)
    if "onset" not in columns:
        raise UserError(f"{path}: there is no column 'onset', there are {', '.join(columns)}; expected seconds in it.")
    events = []
    for number, row in enumerate(rows, 1):
        onset, duration = _seconds(path, number, row, "onset"), 0.0
        if row.get("duration", "n/a").lower() not in MISSING:
            duration = _seconds(path, number, row, "duration")
        codes = tuple(row[name] for name in CODES if row.get(name, "").lower() not in MISSING)
        events.append(Event(onset, duration, codes, row))
    return columns, sorted(events, key=lambda event: event.onset)


def _seconds(path: Path, number: int, row: dict[str, str], name: str) -> float:
    try:
        value = float(row[name])
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise UserError(f"{path}, event {number}: {name} is {row[name]!r}; expected seconds.")
    return value


def annotations(raw: Any, text: str) -> Iterator[Event]:
    """Yield a recording's annotations as events; the description is the code, and the text in column `text`."""
    rate = float(raw.info["sfreq"])
    for mark in raw.annotations:
        said = str(mark["description"])
        # BrainVision gives every marker a duration, of one sample for a moment.
        duration = float(mark["duration"]) if mark["duration"] * rate > 1.5 else 0.0
        # MNE counts onsets from the first recorded sample, which a cropped file has lost.
        yield Event(float(mark["onset"]) - raw.first_time, duration, (said,), {text: said})


def is_marked_bad(event: Event) -> bool:
    """Return whether an event is an annotation by MNE's convention for data to exclude."""
    return any(said.lower().startswith(NO_EVENTS) for code in event.codes for said in (code, split_type(code)[1]))
