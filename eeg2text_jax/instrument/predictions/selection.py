"""Predictions by condition, of files or Python; metadata; labels (class, topic) of references."""

import contextlib
import dataclasses
import os
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from etils import epath

from eeg2text_jax.base.errors import UserError, count_of
from eeg2text_jax.data.clock import clock_of_rows, parse_time
from eeg2text_jax.instrument.predictions._containers import FIRST_TWO, Table
from eeg2text_jax.instrument.predictions._names import SIDES, built_in, normalize_names
from eeg2text_jax.instrument.predictions.columns import read_metadata, roles
from eeg2text_jax.instrument.predictions.file import (
    FIELDS,
    OWN_NAMES,
    UNKNOWN,
    Prediction,
    PredictionSet,
    Shared,
    count_labels,
    own_row,
    sentence_key,
)
from eeg2text_jax.instrument.predictions.read import describe, in_one_form, set_of
from eeg2text_jax.instrument.predictions.read import read_any as read_file

CLOCK_ARM = "the arm trained on clock"
Row = TypeVar("Row", bound=Prediction)
# Usual columns with the class, topic or story of a reference.
LIKELY = tuple(
    f"{first}{second}"
    for second in ("class", "object", "category", "topic", "story", "label", "genre")
    for first in ("", "expected ", "true ", "target ", "gold ")
)
MOST_DIVIDED = 0.1  # share of references with several labels; above it, labels describe rows
Labels = dict[str, dict[str, str]]  # column -> `sentence_key` -> label


def select_cells(rows: Iterable[Prediction], arm: str | None = None) -> dict[str, list[Prediction]]:
    """Return evaluation condition -> rows of one arm (training condition): EEG first, then each control.

    `arm` None takes the arm `eeg`, or the only arm. Scores of other arms do not show whether this model uses its EEG;
    beside `eeg`, only the arm trained and tested on `clock` is kept, which shows what time alone tells.
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
        one, two, *_ = cells
        raise UserError(
            f"the arm {arm!r} was not evaluated with eeg, only with {', '.join(cells)}; which one is the control? Say "
            f"--columns=REFERENCE,eeg={one},control={two} or the other way round, or write eeg in a column "
            "eval_condition, or give one file for each condition."
        )
    first = "eeg" if "eeg" in cells else next(iter(cells))
    return {first: cells.pop(first), **cells}


def select_arms(rows: Iterable[Row]) -> dict[str, list[Row]]:
    """Return condition -> rows of all arms (training conditions): EEG first, then two kinds of controls.

    Those are the other evaluation conditions of the arm trained on EEG, and `the arm trained on NAME`, evaluated with
    its training condition (`label_shuffle` with EEG).
    """
    conditions: dict[str, list[Row]] = {"eeg": []}
    arms: dict[str, list[Row]] = {}
    for row in rows:
        train, evaluation = row.train_condition, row.eval_condition
        if train == "eeg":
            conditions.setdefault(evaluation, []).append(row)
        elif evaluation == ("eeg" if train == "label_shuffle" else train):
            arms.setdefault(f"the arm trained on {train}", []).append(row)
    if not conditions["eeg"]:
        raise UserError("no arm was trained and tested with eeg, so there is nothing to audit.")
    return conditions | arms


def read_conditions(
    eeg: Path, controls: Sequence[Path], read: Callable[[Path], Any], arm: str | None = None
) -> dict[str, list[Any]]:
    """Return condition -> rows of several files, EEG first; `read` returns the rows of a file.

    A condition has the name of its file, or its own if the file `eeg` has several. A control file with several pairs
    (training condition, evaluation condition) gives a control for each that was not evaluated with EEG.
    """
    paths = [eeg, *controls]
    if twice := [path for path, n in Counter(path.resolve() for path in paths).items() if n > 1]:
        said = "the file is given twice, but a condition cannot be its own control"
        raise UserError(f"{twice[-1]}: {said}; give another file.")
    cells = select_cells(read(eeg), arm)
    names = names_of(paths)
    conditions = {names[0]: next(iter(cells.values()))} if len(cells) == 1 else dict(cells)
    for path, name in zip(controls, names[1:], strict=True):
        of_file: dict[tuple[str, str], list[Any]] = defaultdict(list)
        for row in read(path):
            of_file[row.train_condition, row.eval_condition].append(row)
        for (train, test), rows in of_file.items():
            condition = name if len(of_file) == 1 else f"{name}: {train}→{test}"
            if condition in conditions:
                said = f"an earlier file holds the condition {condition!r} already"
                raise UserError(f"{path}: {said}; rename one of the two.")
            if len(of_file) == 1 or test != "eeg":
                conditions[condition] = rows
    return conditions


def names_of(paths: Sequence[Path]) -> list[str]:
    """Return short distinct names of files, without suffix and common beginning up to a `_`."""
    stems = [path.stem for path in paths]
    if len(set(stems)) < len(stems):
        return [str(path) for path in paths]
    parts = [stem.split("_") for stem in stems]
    alike = len({len(p) for p in parts}) == 1  # names with different numbers of `_` are kept whole
    while alike and len(paths) > 1 and all(len(p) > 1 and p[0] == parts[0][0] for p in parts):
        parts = [p[1:] for p in parts]
    return ["_".join(p) for p in parts]


def account(read: PredictionSet) -> list[str]:
    """Return what of a file is used and how, a line each; then notes."""
    first, *notes = describe(read).split("\n")
    rows = read.predictions
    modes = Counter(row.mode for row in rows)
    fed = Counter((row.train_condition, row.eval_condition) for row in rows)
    clock = clock_of_rows(rows)
    when = f"known of {clock.timed.sum()} rows; {clock.said_ranges()}"
    unstated = "; say it with --mode" if UNKNOWN in modes else ""
    named = "; none is named: all rows count as one condition" if {*fed} == {(UNKNOWN, UNKNOWN)} else ""
    groups = likely_groups(read)
    return [
        first,
        "texts: as the file has them, in the Unicode form NFC; of a list or of several references, the first",
        f"mode: {', '.join(f'{mode} ({n})' for mode, n in modes.items())}{unstated}",
        f"conditions, training → evaluation: {', '.join(f'{a} → {b} ({n})' for (a, b), n in fed.items())}{named}",
        f"time: {when if clock.timed.any() else 'not known; columns recording, onset, duration, order would say it'}",
        f"groups: {', '.join(groups) if groups else 'none that is known; --groups of audit names columns'}",
        *clock.notes(repeated=True),
        *notes,
    ]


def ten_rows(read: PredictionSet) -> list[tuple[str, str, str, str]]:
    """Return subject, condition, reference and prediction of the first five, the last two and three other rows.

    The texts of these three differ most in length: one may be cut, or have more than its words.
    """
    rows, sides = read.predictions, [[len(getattr(p, side)) + 10 for side in SIDES] for p in read.predictions]
    unlike = sorted(range(len(rows)), key=lambda i: min(sides[i]) / max(sides[i]))
    chosen = [*dict.fromkeys([*range(len(rows))[:5], *range(len(rows))[-2:], *unlike])][:10]
    return [(p.subject, p.eval_condition, p.reference, p.prediction) for p in (rows[i] for i in sorted(chosen))]


def join_metadata(
    rows: Sequence[Prediction], path: str | os.PathLike[str], groups: Sequence[str] = ()
) -> list[Prediction]:
    """Return rows with `subject`, `task`, `n_words` and time (`CLOCK_COLUMNS`) from a CSV with a column `reference`.

    A reference has one line in the CSV, or one for each of its rows, in order, of one mode, pair of conditions and
    seed. The CSV has a column to add, or one of `groups`.
    """
    path = Path(path)
    lines = _metadata_lines(path, groups)
    cells = [(sentence_key(p.reference), p.mode, p.train_condition, p.eval_condition, p.seed) for p in rows]
    counts, seen = Counter(cells), Counter[tuple]()
    joined = []
    for row, cell in zip(rows, cells, strict=True):
        entries = lines.get(cell[0], [])
        if len(entries) not in (1, counts[cell]):
            expected = "1" if counts[cell] == 1 else f"1 or {counts[cell]}"
            said = f"has {len(entries)} lines for the reference {cell[0]!r:.60}; expected {expected}"
            raise UserError(f"{path}: {said}; add or remove lines.")
        values = entries[seen[cell]] if len(entries) > 1 else entries[0]
        seen[cell] += 1
        joined.append(dataclasses.replace(row, **values))
    return joined


def _metadata_lines(path: Path, groups: Sequence[str]) -> dict[str, list[dict[str, Any]]]:
    reader = read_metadata(path)
    names = set(reader.fieldnames)
    columns = names & {"subject", "task", "n_words"}
    if "reference" not in names or not columns | names & {*groups, "onset", "order"}:
        wanted = "expected reference and at least one of subject, task, n_words, onset, order"
        raise UserError(f"{path}, line 1: columns are {', '.join(reader.fieldnames or ['none'])}; {wanted}.")
    lines: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for line in reader:
        where = f"{path}, line {reader.line_num}"
        values: dict[str, Any] = {name: line[name] or "" for name in columns}
        if "n_words" in columns:
            if not (str(values["n_words"]).isdecimal() and len(values["n_words"]) < 19):
                raise UserError(f"{where}: n_words is {values['n_words']!r}; expected a number.")
            values["n_words"] = int(values["n_words"])
        default = f"{line.get('subject') or 'all'}/{line.get('task') or 'all'}"
        lines[sentence_key(line["reference"] or "")].append(values | parse_time(line, where, default=default))
    return lines


def groups_of(
    read: PredictionSet, columns: Sequence[str], meta: str | os.PathLike[str] | None = None
) -> tuple[Labels, list[str]]:
    """Return column (of `meta`, or else of the file) -> reference -> label, and notes on several labels."""
    lines = list(read_metadata(meta)) if meta else []
    by_column: Labels = {}
    notes = []
    for column in columns:
        if lines and column in lines[0]:
            counts = count_labels((line["reference"] or "", line[column] or "") for line in lines)
        elif column in read.groups:
            counts = read.groups[column]
        elif column in FIELDS:
            counts = count_labels((row.reference, str(getattr(row, column))) for row in read.predictions)
        else:
            where = f"{read.path} or {meta}" if meta else f"{read.path}"
            raise UserError(f"--groups={column}: there is no such column in {where}; name one that the file has.")
        divided = sum(len(labels) > 1 for labels in counts.values())
        if divided > MOST_DIVIDED * len(counts):
            wanted = "expected one label for each reference, such as its class, topic or story"
            raise UserError(f"--groups={column}: {divided} of {len(counts)} references have several labels; {wanted}.")
        if divided:
            many = count_of(divided, "reference has", "references have")
            notes.append(f"--groups={column}: {many} several labels; the most frequent one counts")
        by_column[column] = {reference: labels.most_common(1)[0][0] for reference, labels in counts.items()}
    return by_column, notes


def likely_groups(read: PredictionSet) -> list[str]:
    """Return the `LIKELY` columns with one label per reference, and 2 to (references / 2) distinct ones."""
    columns = []
    for column, counts in read.groups.items():
        labels = {label for counter in counts.values() for label in counter}
        unique = all(len(counter) == 1 for counter in counts.values())
        if column in LIKELY and 1 < len(labels) <= len(counts) / 2 and unique and "" not in labels:
            columns.append(column)
    return columns


# Predictions in Python.

Given = Any  # predictions as a path, `Prediction`s, a pandas DataFrame, or texts
ARGUMENTS = {"format": "layout"}  # option -> argument of another name
LISTS = ("columns", "id", "labels", "groups")


@contextlib.contextmanager
def arguments() -> Iterator[None]:
    """Let errors speak of arguments, `columns=["a", "b"]`, and not of `--columns=a,b`."""
    try:
        yield
    except UserError as error:
        spoken = re.sub(r"--([a-z]+)(?:=('[^']*'|[\w.,:=\"/-]*[\w\"]))?", _argument, str(error))
        raise type(error)(spoken) from None


def _argument(option: re.Match) -> str:
    name, value = ARGUMENTS.get(option[1], option[1]), (option[2] or "").strip("'")
    if not value:
        return name
    values = [one.strip('"') for one in value.split(",")]
    shown = ", ".join(one if one.isupper() and len(one) > 1 else f'"{one}"' for one in values)
    return f"{name}=[{shown}]" if name in LISTS else f"{name}={shown}"


read_any = arguments()(read_file)


@arguments()
def as_set(
    predictions: Given,
    references: Any = None,
    *,
    mode: str | None = None,
    name: str = "predictions",
    columns: Sequence[str] | None = None,
    groups: Sequence[str] = (),
) -> PredictionSet:
    """Return the `PredictionSet` of predictions given in Python; messages call them `name`.

    They are a path, what `read_any` returned, `Prediction`s, a table (a DataFrame, a dict of columns, or a list of
    dicts) with columns as of a file, or texts. `references` are the true texts, or beside a path the path of their
    file. Other arguments are those of `read_any`.
    """
    path, kinds = epath.Path(name), "expected predictions, texts, a DataFrame or the path of a file"
    if isinstance(predictions, str | os.PathLike):
        for file, what in ((predictions, name), (references, "references")):
            exists = isinstance(file, str | os.PathLike) and ("://" in str(file) or os.path.exists(file))
            if file is not None and not exists:
                said = f"{what} is {str(file)!r:.80}, and there is no such file"
                raise UserError(f"{said}; give the path of a file, a DataFrame, or a list of texts.")
        try:
            return read_file(predictions, mode=mode, columns=columns, reference=references, groups=groups)
        except UserError as error:
            if not re.search(r"--(block|labels|id|format)", said := str(error)):
                raise
            raise UserError(f"{said.rstrip('.')}; read_any takes these arguments, give what it returns here.") from None
    if isinstance(predictions, PredictionSet):
        return in_one_form(predictions, mode)
    if isinstance(references, str | os.PathLike):
        raise UserError(f"references is a path, and {name} is none; give paths for both, or a list of texts for both.")
    if (records := _records(predictions, references, name)) is not None:
        header = [*dict.fromkeys(key for row in records for key in row)]
        if columns is None and {*OWN_NAMES} <= {*header}:
            return in_one_form(PredictionSet(_own_rows(records, path), {}, "table", path), mode)
        rows = [[_as_written(row.get(key)) for key in header] for row in records]
        table = Table(path, "F", "table", [*map(str, header)], rows, range(len(rows)), "row")
        both = {*SIDES} <= {*normalize_names(header)}  # preferred to other names, such as hypothesis
        used = roles(table, built_in(), columns or (SIDES if both else None), groups)
        return set_of(table, used, mode)
    predictions = list(predictions) if isinstance(predictions, Iterable) else predictions
    if not isinstance(predictions, list) or not predictions:
        said = "holds no predictions" if predictions == [] else f"is {predictions!r:.60}"
        raise UserError(f"{name} {said}; {kinds}.")
    if isinstance(predictions[0], str):
        references = [] if references is None else list(references)
        if len(references) != len(predictions):
            counts = f"{count_of(len(predictions), 'text')} and {count_of(len(references), 'reference')}"
            raise UserError(f"{name}: {counts}; give as many references as texts.")
        table = Table(path, "P", "texts", None, [*zip(references, predictions, strict=True)], unit="text")
        return set_of(table, FIRST_TWO, mode)
    if not isinstance(predictions[0], Prediction):
        raise UserError(f"{name} is a list of {type(predictions[0]).__name__}; {kinds}.")
    return PredictionSet(predictions, {}, "rows", path)


def as_conditions(
    eeg: Given, controls: Any, references: Any, mode: str | None, name: str, columns: Sequence[str] | None = None
) -> tuple[list[Prediction], dict[str, list[Prediction]], bool, Labels, list[str]]:
    """Return the rows under EEG, control -> rows, whether all training seeds are stated, labels, and notes.

    `controls`: name -> predictions, or those of one control; if empty, the other conditions of `eeg` are the controls.
    """
    if not isinstance(controls, Mapping) or is_columns(controls, references):
        controls = {"control": controls}
    conditions = {name: eeg, **controls}
    shared: dict[str, Any] = {"mode": mode, "columns": columns, "groups": LIKELY}
    sets = {key: as_set(value, references, name=key, **shared) for key, value in conditions.items()}
    labels, _ = groups_of(sets[name], likely_groups(sets[name]))
    tables = {key for key, prediction_set in sets.items() if prediction_set.layout != "rows"}
    for key in tables if controls else ():
        fed = {row.eval_condition for row in sets[key].predictions}
        if len(fed) > 1:
            said = f"the table holds the conditions {', '.join(sorted(fed))}"
            raise UserError(f"{key}: {said}; give a table for each condition, or this table alone.")
    stated = all(prediction_set.seeds_stated for prediction_set in sets.values())
    rows = {key: prediction_set.predictions for key, prediction_set in sets.items()}
    if not controls and name in tables and len({row.eval_condition for row in rows[name]}) > 1:
        with arguments():
            cells = select_cells(rows[name])
        rows = {name: cells.pop(next(iter(cells))), **cells}
    notes = [line.rstrip(".") for key in sets if key in tables for line in describe(sets[key]).split("\n")]
    return rows.pop(name), rows, stated, labels, notes


def _records(data: Any, references: Any, name: str) -> list[dict[str, Any]] | None:
    """Return the rows of a DataFrame, a dict of columns, or dicts; None for rows and texts."""
    if hasattr(data, "convert_dtypes") and hasattr(data, "columns"):
        if not data.columns.is_unique:
            twice = data.columns[data.columns.duplicated()][0]
            raise UserError(f"{name}: two columns have the name {twice!r}; rename one of them.")
        table = data.convert_dtypes().astype(object)  # keeps whole numbers in columns with missing values
        return table.where(table.notna(), None).to_dict("records")
    if is_columns(data, references):
        columns = [[*column] for column in data.values()]
        if len({*map(len, columns)}) > 1:
            counts = ", ".join(f"{key!r} has {len(column)}" for key, column in zip(data, columns, strict=True))
            raise UserError(f"{name}: columns differ in their number of rows: {counts}; give as many to each.")
        return [dict(zip(data, row, strict=True)) for row in zip(*columns, strict=True)]
    if isinstance(data, Sequence) and data and all(isinstance(row, Mapping) for row in data):
        return [*data]
    return None


def is_columns(data: Any, references: Any = None) -> bool:
    """Return whether a mapping holds columns of texts, not conditions."""
    if not isinstance(data, Mapping) or references is not None or len(data) < 2:
        return False
    lists = all(isinstance(column, list | tuple) or hasattr(column, "tolist") for column in data.values())
    return lists and all(isinstance(next(iter(column), None), str | float | int | None) for column in data.values())


def _as_written(value: Any) -> str | list:
    missing = value is None or (isinstance(value, float) and value != value)
    return "" if missing else value if isinstance(value, str | list) else str(value)


def _own_rows(records: Iterable[Mapping[str, Any]], path: epath.Path) -> list[Prediction]:
    """Return the rows of a table with the columns of a predictions file, without further hypotheses."""
    shared = Shared()
    filled = ({key: value for key, value in row.items() if value is not None} for row in records)
    predictions = [own_row(row, f"{path}, line {number}", shared) for number, row in enumerate(filled, 1)]
    return [row for row in predictions if not row.hypothesis]
