"""Look up the text of a sentence in a table, by its trial or code."""

import io
import itertools
import zipfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from eeg2text_jax.data.raw.events import MISSING, read_table, spellings, split_type
from eeg2text_jax.data.raw.find import RawFile
from eeg2text_jax.errors import UserError, first_line
from eeg2text_jax.imports import library

BIDS_PREFIX = {"subject": "sub-", "session": "ses-", "task": "task-", "run": "run-"}
SHIFTS, FEWEST, MOST_FIT = 3, 10, 0.8  # rows tried in a message, fewest trials checked, share that must fit
KEYS = ("subject", "session", "task", "run", "trial", "code")  # columns that may identify a text


class Texts:
    """A table of texts by trial (from 1 in each recording), code or both; optionally also by subject, task and so on.

    Raises UserError if the table is unreadable, has no column `column` or no trial or code, or two texts for one key.
    """

    def __init__(self, path: Path, column: str):
        self.path = path
        columns, rows = read_sheets(path, column) if path.suffix == ".xlsx" else read_table(path)
        if "participant_id" in columns and "subject" not in columns:  # BIDS calls the subject so
            columns, rows = [*columns, "subject"], [{**row, "subject": row["participant_id"]} for row in rows]
        self.keys = tuple(key for key in KEYS if key in columns)
        if column not in columns or not {"trial", "code"} & set(self.keys):
            raise UserError(
                f"{path}: has the columns {', '.join(columns)}; expected {column!r} (data.raw.text can "
                "name another column) and `trial` or `code`; if texts differ between subjects, sessions, tasks or "
                "runs, also `subject`, `session`, `task` or `run`."
            )
        self._texts: dict[tuple[str, ...], str] = {}
        self._used: set[tuple[str, ...]] = set()
        self._looked_up: set[str] = set()  # codes of events for which a text was looked up
        for row in rows:
            key = tuple(_key(name, row[name]) for name in self.keys)
            if self._texts.setdefault(key, row[column]) != row[column]:
                named = ", ".join(f"{name} {row[name]}" for name in self.keys)
                raise UserError(
                    f"{path}: has two texts for {named}; add a column that tells them apart (`subject`, `session`, "
                    "`task` or `run`)."
                )

    def find(self, file: RawFile, trial: int, codes: Sequence[str]) -> str:
        """Return the text of a trial, found by its number or `codes`; "" if the table has none."""
        known = {"subject": file.subject, "session": file.session, "task": file.task, "run": file.run, "trial": trial}
        if "code" in self.keys:
            self._looked_up.update(_key("code", code) for code in codes)
        for code in itertools.chain.from_iterable(map(spellings, codes)) if "code" in self.keys else [""]:
            key = tuple(_key(name, str({**known, "code": code}[name])) for name in self.keys)
            if self._texts.get(key, "").lower() not in MISSING:
                self._used.add(key)
                return self._texts[key]
        return ""

    def check_trials(self, file: RawFile, trials: int) -> None:
        """Raise UserError if a recording has another number of trials than the table has texts for it."""
        if "code" in self.keys or not trials:
            return
        ours = [_key(name, getattr(file, name)) for name in self.keys[:-1]]
        numbers = [key[-1] for key in self._texts if list(key[:-1]) == ours]
        if "0" in numbers:
            raise UserError(
                f"{self.path}: has a trial 0, but trials count from 1 in each recording; add 1 to them all."
            )
        if numbers and len(numbers) != trials:
            raise UserError(
                f"{self.path}: has {len(numbers)} texts for {file.path.name}, in which {trials} events begin a "
                "sentence, so that texts may be shifted; count trials from 1 in each recording (columns `subject` and "
                "`run` tell recordings apart); give trials without a text, such as practice, a row with n/a, or leave "
                "their codes out with data.raw.skip; remove rows of trials that were not recorded."
            )

    def check_durations(self, file: RawFile, durations: Sequence[float], texts: Sequence[str], unit: float) -> None:
        """Raise UserError if durations in seconds do not fit the numbers of characters, of `unit` seconds each.

        A constant number of further characters is allowed: a sentence may be shown for a moment longer.
        """
        shown, lengths = np.rint(np.array(durations) / unit).astype(int), np.array([len(text) for text in texts])

        def fits(shift: int) -> float:
            """Return the share of trials that fit if the text of row i is that of trial i + `shift`."""
            trials = np.arange(max(shift, 0), len(shown) + min(shift, 0))
            further = shown[trials] - lengths[trials - shift]
            return float(max(np.mean(further == constant) for constant in (0, 1, 2)))

        if len(shown) < FEWEST or (found := fits(0)) >= MOST_FIT:
            return
        best = max((s for s in range(-SHIFTS, SHIFTS + 1) if abs(s) < len(shown)), key=fits)
        why = "; no shift of up to 3 rows fits: is it the table of another run?"
        if fits(best) >= MOST_FIT:
            why = f"; shifted by {best:+d} rows, {fits(best):.0%} would: the table is shifted."
        raise UserError(
            f"{self.path}: the texts do not fit {file.path.name}: at {unit:g} s a character "
            f"(data.raw.seconds_per_character), {found:.0%} of its {len(shown)} trials last as long as their text, "
            f"expected {MOST_FIT:.0%} or more{why}"
        )

    def check_codes(self) -> None:
        """Raise UserError if the events' codes are the table's codes plus a constant, so that texts would be wrong."""
        theirs = {int(key[-1]) for key in self._texts if key[-1].isdecimal()}
        ours = {int(code) for code in self._looked_up if code.isdecimal()}
        if theirs and ours and (shift := min(ours) - min(theirs)) and ours == {code + shift for code in theirs}:
            raise UserError(
                f"{self.path}: has the codes {min(theirs)} to {max(theirs)}, and the events have {min(ours)} to "
                f"{max(ours)}: texts would be shifted by {abs(shift)}; write the codes as the events have them."
            )

    def mismatch(self, files: Sequence[RawFile]) -> str:
        """Return a sentence that explains why no trial of the recordings has a text."""
        for place, name in enumerate(self.keys):
            if name in ("trial", "code"):
                continue
            theirs, ours = {key[place] for key in self._texts}, {_key(name, getattr(file, name)) for file in files}
            if not theirs & ours:
                return (
                    f"{self.path}: its column {name} has {', '.join(sorted(theirs)[:3])}; the recordings' {name} is "
                    f"{', '.join(sorted(ours)[:3])}; write them alike, or give data.raw.names."
                )
        return f"{self.path}: no row has the {' and '.join(self.keys)} of a sentence here."

    def notes(self) -> list[str]:
        """Return a note if rows of the table were not used."""
        unused = [key for key in self._texts if key not in self._used]
        if not unused:
            return []
        first = ", ".join(f"{name} {value}" for name, value in zip(self.keys, unused[0], strict=True))
        return [f"{self.path}: {len(unused)} of {len(self._texts)} texts belong to no trial here (first: {first})."]


def read_sheets(path: Path, column: str) -> tuple[list[str], list[dict[str, str]]]:
    """Return columns and rows of Excel files with a text a row, in the order of the trials, as `read_table` does.

    `{run}` in the name stands for digits: then the rows have a column `run`. The texts are in the column that is named
    `column`, else in the first column that is not of numbers. Raises UserError if there is no file, or no text.
    """
    openpyxl = library("openpyxl", "xlsx")
    before, there, after = path.name.partition("{run}")
    files = sorted(path.parent.glob(f"{before}*{after}")) if there else [path]
    rows: list[dict[str, str]] = []
    for file in files:
        try:
            cells = [
                list(row)
                for row in openpyxl.load_workbook(io.BytesIO(file.read_bytes()), read_only=True).worksheets[0].values
            ]
        except (OSError, KeyError, ValueError, IndexError, SyntaxError, zipfile.BadZipFile) as error:
            raise UserError(
                f"{file}: cannot be read as an Excel file ({first_line(error)}); save it as CSV."
            ) from error
        cells = [row for row in cells if any(cell not in (None, "") for cell in row)]
        head = [str(cell).strip() for cell in cells[0]] if cells else []
        if column in head:
            place, cells = head.index(column), cells[1:]
        else:
            place = next((k for k in range(len(head)) if all(isinstance(row[k], str) for row in cells)), -1)
        if not cells or place < 0:
            raise UserError(f"{file}: expected a text in each row, in a column without numbers or named {column!r}.")
        run = {"run": file.name.removeprefix(before).removesuffix(after)} if there else {}
        rows += [{**run, "trial": str(n), column: str(row[place]).strip()} for n, row in enumerate(cells, 1)]
    if not rows:
        raise UserError(f"{path}: there is no such file; expected tables of texts.")
    return list(rows[0]), rows


def _key(name: str, value: str) -> str:
    """Normalize a cell of a key column: `Stimulus/S101`, `S 101`, `101` are one code, `01`, `1`, `1.0` one number."""
    if name == "code":
        marker, bare = split_type(value)
        value = spellings(bare)[-1] if marker in ("", "Stimulus/", "Comment/") else marker + bare
    value = value.strip().removeprefix(BIDS_PREFIX.get(name, "")).strip().removesuffix(".0")
    return value.lstrip("0") or "0" if value.isdecimal() else value
