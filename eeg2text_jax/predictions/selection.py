"""Group predictions by condition, from one file with several conditions or from several files; add metadata."""

import dataclasses
import os
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from eeg2text_jax.data.clock import parse_time
from eeg2text_jax.errors import UserError
from eeg2text_jax.predictions.columns import read_metadata
from eeg2text_jax.predictions.file import Prediction, sentence_key

CLOCK_ARM = "the arm trained on clock"
Row = TypeVar("Row", bound=Prediction)


def select_cells(rows: Iterable[Prediction], arm: str | None = None) -> dict[str, list[Prediction]]:
    """Return evaluation condition -> rows of one arm (training condition): EEG first, then each control.

    `arm` None takes the arm `eeg`, or the only arm. Other arms are left out, because their scores do not show whether
    this model uses its EEG. Beside the arm `eeg`, the arm trained and tested on `clock` is kept: its input is only the
    recording and the time of a sample, so it shows what time alone tells. Raises UserError if the arm is missing or was
    not evaluated with EEG.
    """
    rows = list(rows)
    arms = list(dict.fromkeys(row.train_condition for row in rows))
    if arm is None:
        arm = "eeg" if "eeg" in arms else arms[0] if len(arms) == 1 else None
    if arm not in arms:
        raise UserError(f"no arm trained on {arm or 'eeg'!r}; the file holds {', '.join(map(repr, arms))}; pass --arm.")
    cells: dict[str, list[Prediction]] = defaultdict(list)
    for row in rows:
        if row.train_condition == arm:
            cells[row.eval_condition].append(row)
        elif (arm, row.train_condition, row.eval_condition) == ("eeg", "clock", "clock"):
            cells[CLOCK_ARM].append(row)
    if "eeg" not in cells and len(cells) > 1:
        raise UserError(
            f"the arm {arm!r} was not evaluated with eeg, only with {', '.join(cells)}; use the name `eeg` for "
            "the condition with EEG (in the column's name, or as eval_condition), or give one file for each condition."
        )
    first = "eeg" if "eeg" in cells else next(iter(cells))
    return {first: cells.pop(first), **cells}


def select_arms(rows: Iterable[Row]) -> dict[str, list[Row]]:
    """Return condition -> rows of all arms (training conditions): EEG first, then two kinds of controls.

    The arm trained on EEG gives a control for each other evaluation condition. Every other arm gives the control `the
    arm trained on NAME`, evaluated with its training condition (`label_shuffle` with EEG). Raises UserError if no arm
    was trained and evaluated with EEG.
    """
    found: dict[str, list[Row]] = {"eeg": []}
    arms: dict[str, list[Row]] = {}
    for row in rows:
        train, evaluation = row.train_condition, row.eval_condition
        if train == "eeg":
            found.setdefault(evaluation, []).append(row)
        elif evaluation == ("eeg" if train == "label_shuffle" else train):
            arms.setdefault(f"the arm trained on {train}", []).append(row)
    if not found["eeg"]:
        raise UserError("no arm was trained and tested with eeg, so there is nothing to audit.")
    return found | arms


def read_conditions(
    eeg: Path, controls: Sequence[Path], read: Callable[[Path], Any], arm: str | None = None
) -> dict[str, list[Any]]:
    """Return condition -> rows, from several files, EEG first; `read` returns the rows of a file.

    A condition has the name of its file; if the file `eeg` has several evaluation conditions, their names are used. A
    control file with several pairs (training condition, evaluation condition) gives a control for each pair that was
    not evaluated with EEG. Raises UserError for a file given twice, or two conditions of one name.
    """
    paths = [eeg, *controls]
    places = [path.resolve() for path in paths]
    if twice := [path for path, place in zip(paths, places, strict=True) if places.count(place) > 1]:
        raise UserError(
            f"{twice[-1]}: the file is given twice, but a condition cannot be its own control; give another file."
        )
    cells = select_cells(read(eeg), arm)
    names = _names(paths)
    conditions = {names[0]: next(iter(cells.values()))} if len(cells) == 1 else dict(cells)
    for path, name in zip(controls, names[1:], strict=True):
        for condition, rows in _control_cells(read(path), name).items():
            if condition in conditions:
                raise UserError(
                    f"{path}: an earlier file holds the condition {condition!r} already; rename one of the two."
                )
            conditions[condition] = rows
    return conditions


def _names(paths: Sequence[Path]) -> list[str]:
    """Return short distinct names of files: without suffix, and without the common beginning up to a `_`."""
    stems = [path.stem for path in paths]
    if len(set(stems)) < len(stems):
        return [str(path) for path in paths]
    parts = [stem.split("_") for stem in stems]
    alike = len({len(p) for p in parts}) == 1  # names with different numbers of `_` are kept whole
    while alike and len(paths) > 1 and all(len(p) > 1 and p[0] == parts[0][0] for p in parts):
        parts = [p[1:] for p in parts]
    return ["_".join(p) for p in parts]


def _control_cells(rows: list[Prediction], name: str) -> dict[str, list[Prediction]]:
    cells: dict[tuple[str, str], list[Prediction]] = defaultdict(list)
    for row in rows:
        cells[row.train_condition, row.eval_condition].append(row)
    if len(cells) == 1:
        return {name: rows}
    return {f"{name}: {train}→{test}": found for (train, test), found in cells.items() if test != "eeg"}


def join_metadata(
    rows: Sequence[Prediction], path: str | os.PathLike[str], groups: Sequence[str] = ()
) -> list[Prediction]:
    """Return rows with `subject`, `task`, `n_words` and time (`CLOCK_COLUMNS`) from a CSV with a column `reference`.

    A reference has one line in the CSV, or one line for each of its rows within one mode, pair of conditions and seed
    (line k belongs to row k). Raises UserError if a number is invalid, a reference has another number of lines, the CSV
    has no column `reference`, or it has neither a column to add nor one of `groups`.
    """
    path = Path(path)
    lines = _metadata_lines(path, groups)
    counts = Counter(map(_cell, rows))
    seen: Counter = Counter()
    joined = []
    for row in rows:
        cell = _cell(row)
        found = lines.get(cell[0], [])
        if len(found) not in (1, counts[cell]):
            expected = "1" if counts[cell] == 1 else f"1 or {counts[cell]}"
            raise UserError(
                f"{path}: has {len(found)} lines for the reference {cell[0]!r:.60}; expected {expected}; add or remove "
                "lines."
            )
        values = found[seen[cell]] if len(found) > 1 else found[0]
        seen[cell] += 1
        joined.append(dataclasses.replace(row, **values))
    return joined


def _cell(row: Prediction) -> tuple[str, str, str, str, int]:
    return sentence_key(row.reference), row.mode, row.train_condition, row.eval_condition, row.seed


def _metadata_lines(path: Path, groups: Sequence[str]) -> dict[str, list[dict[str, Any]]]:
    reader = read_metadata(path)
    names = set(reader.fieldnames)
    columns = names & {"subject", "task", "n_words"}
    if "reference" not in names or not columns | names & {*groups, "onset", "order"}:
        raise UserError(
            f"{path}, line 1: columns are {', '.join(reader.fieldnames or ['none'])}; expected reference and at least "
            "one of subject, task, n_words, onset, order."
        )
    lines: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for line in reader:
        values: dict[str, Any] = {name: line[name] or "" for name in columns}
        if "n_words" in columns:
            if not (str(values["n_words"]).isdecimal() and len(values["n_words"]) < 19):
                raise UserError(f"{path}, line {reader.line_num}: n_words is {values['n_words']!r}; expected a number.")
            values["n_words"] = int(values["n_words"])
        default = f"{line.get('subject') or 'all'}/{line.get('task') or 'all'}"
        values |= parse_time(line, f"{path}, line {reader.line_num}", default=default)
        lines[sentence_key(line["reference"] or "")].append(values)
    return lines
