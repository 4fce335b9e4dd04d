"""Read the events of a recording, from a table beside it or from its annotations, and match their codes."""

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

# Marker types of BrainVision. MNE writes `TYPE/description`, also in copies as FIF, EDF or BIDS.
TYPES = ("Comment", "Stimulus", "Response", "New Segment", "SyncStatus", "Optic", "Toggle", "Time 0", "Bad Interval")
_TYPED = re.compile(f"((?:{'|'.join(TYPES)})/)(.*)", re.DOTALL)
_TRIGGER = re.compile(r"S *0*(\d+)")


def split_type(description: str) -> tuple[str, str]:
    """Split `Comment/a text` into the marker type with its slash (empty if there is none) and the rest."""
    match = _TYPED.fullmatch(description)
    return (match[1], match[2].strip()) if match else ("", description)


@functools.lru_cache(maxsize=4096)
def spellings(code: str) -> tuple[str, ...]:
    """Return equivalent spellings of a code: `S 101` -> `S 101`, `S101`, `101`.

    If the code has a marker type (`Stimulus/S 101`), spellings without the type come first.
    """
    marker, bare = split_type(code)
    found = [bare, *_trigger(bare)]
    return tuple(dict.fromkeys(found + [marker + form for form in found] + [code]))


@functools.lru_cache(maxsize=256)
def patterns(pattern: str, *, typed: bool) -> tuple["re.Pattern[str]", ...]:
    """Compile all spellings of a user's pattern, in which `*` stands for any text.

    If the code to match has a marker type (`typed`), a marker type in the pattern must be equal to it.
    """
    marker, bare = split_type(pattern)
    prefix = marker if typed or bare.startswith("*") else ""
    forms = dict.fromkeys([pattern, prefix + bare, *(prefix + form for form in _trigger(bare))])
    return tuple(re.compile("(.*)".join(map(re.escape, form.split("*"))), re.DOTALL) for form in forms)


def _trigger(bare: str) -> list[str]:
    match = _TRIGGER.fullmatch(bare)
    return [f"S{match[1]}", match[1]] if match else []


CODES = ("trial_type", "value", "code", "description")  # columns of a table of events that may hold codes
MISSING = ("", "n/a", "nan")  # cells without a value
NO_EVENTS = ("bad", "edge")  # prefixes of annotations that MNE uses for data to exclude


@dataclasses.dataclass(frozen=True)
class Event:
    """An event of a recording; times are seconds from the recording's first sample."""

    onset: float
    duration: float
    codes: tuple[str, ...]
    columns: dict[str, str]  # column -> cell of its row; of an annotation, only the column of its text

    def match(self, pattern: str) -> "re.Match[str] | None":
        """Return the match of the first code that fits `pattern`, in which `*` stands for any text.

        The spellings `S101`, `S 101` and `101` are equivalent. A pattern with a marker type matches codes of this type
        and codes without a type.
        """
        tries = (
            expression.fullmatch(form)
            for code in self.codes
            for form in spellings(code)
            for expression in patterns(pattern, typed=bool(split_type(code)[0]))
        )
        return next(filter(None, tries), None)


def events_table(file: RawFile) -> Path | None:
    """Return the path of a recording's table of events, `NAME_events.tsv` or `.csv`; None if there is none."""
    stem = stem_of(file.path)
    places = (file.path.with_name(f"{stem}_events{suffix}") for suffix in (".tsv", ".csv"))
    return next((place for place in places if place.is_file()), None)


def read_table(path: Path) -> tuple[list[str], list[dict[str, str]]]:
    """Return the column names and the rows of a TSV or CSV file with a header; blank lines are skipped.

    Raises UserError if the file is missing, is not UTF-8 text, or a line has another number of cells than the header.
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
    """Return column names and events (ordered by onset) of a table with `onset` and perhaps `duration` in seconds.

    Raises UserError as `read_table` does, or if there is no column `onset`, or if a time is not a number.
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
    """Yield the annotations of an MNE recording as events; the description is both the code and the column `text`.

    Equal annotations are one event: BrainVision may have a marker for each channel.
    """
    rate = float(raw.info["sfreq"])
    seen: set[tuple[float, float, str]] = set()
    for mark in raw.annotations:
        description = str(mark["description"])
        equal = (float(mark["onset"]), float(mark["duration"]), description)
        if equal in seen:
            continue
        seen.add(equal)
        # In BrainVision a marker without duration lasts one sample.
        duration = float(mark["duration"]) if mark["duration"] * rate > 1.5 else 0.0
        # MNE counts onsets from the start of the whole recording, also in a file cropped to a part of it.
        yield Event(float(mark["onset"]) - raw.first_time, duration, (description,), {text: description})


def is_marked_bad(event: Event) -> bool:
    """Return whether an event marks data to exclude, by MNE's convention."""
    return any(form.lower().startswith(NO_EVENTS) for code in event.codes for form in (code, split_type(code)[1]))
