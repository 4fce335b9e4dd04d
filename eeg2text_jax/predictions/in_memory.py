"""Predictions in Python: paths, `Prediction`s, pandas tables and lists of texts become rows of a predictions file."""

import contextlib
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from etils import epath

from eeg2text_jax.errors import UserError
from eeg2text_jax.predictions.columns import roles, samples
from eeg2text_jax.predictions.containers import Table
from eeg2text_jax.predictions.file import OWN_NAMES, UNKNOWN, Prediction, PredictionSet, Shared, own_row
from eeg2text_jax.predictions.foreign import Samples, complete
from eeg2text_jax.predictions.names import built_in, normalize_names
from eeg2text_jax.predictions.read import in_mode, in_one_form
from eeg2text_jax.predictions.read import read_any as read_file
from eeg2text_jax.predictions.selection import select_cells

Given = Any  # predictions as a path, `Prediction`s, a pandas DataFrame, or texts
ARGUMENTS = {"format": "layout"}  # option of the command -> argument, where the names differ
LISTS = ("columns", "id", "labels", "groups")


@contextlib.contextmanager
def arguments() -> Iterator[None]:
    """Let errors of the readers speak of arguments, `columns=["a", "b"]`, and not of `--columns=a,b`."""
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


def read_any(
    path: str | os.PathLike[str],
    *,
    layout: str | None = None,
    columns: Sequence[str] | None = None,
    mode: str | None = None,
    groups: Sequence[str] = (),
    reference: str | os.PathLike[str] | None = None,
    id: Sequence[str] | None = None,
    labels: Sequence[str] | None = None,
    names: str | os.PathLike[str] | None = None,
) -> PredictionSet:
    """Read a predictions file of any layout in `read.FORMATS`.

    Values that the file does not state are "unknown"; a missing sentence id is made from the reference.

    Args:
      path: the file, or its address in a bucket.
      layout: a name in `FORMATS`; None recognises the layout by content.
      columns: of a table or foreign JSON: the reference and one or more predictions, by name or by number from 1;
        `CONDITION=COLUMN` states what a prediction was made from.
      mode: the mode of rows that do not state one; rows of other modes are dropped.
      groups: columns of a table or foreign JSON whose labels to keep, see `predictions/selection.py`.
      reference: a file of references for a file that has only predictions, joined line by line or by id.
      id: the columns by which the two files are joined, or `rows`; None: a key that both have.
      labels: the labels of references and predictions in a printed text, if they are no known names.
      names: a file with further names of columns and labels, of the form of `predictions/names.toml`.

    Raises:
      UserError: the file or a line of it cannot be read as its layout, or no row is of `mode`.

    Examples:
      >>> from eeg2text_jax import read_any
      >>> rows = read_any("run/predictions.jsonl", mode="free_running").predictions
      >>> sorted({row.eval_condition for row in rows})
      ['eeg', 'noise', 'shuffled']
    """
    options: dict[str, Any] = {"columns": columns, "reference": reference, "id": id, "labels": labels, "names": names}
    with arguments():
        return read_file(path, layout=layout, mode=mode, groups=groups, **options)


def as_set(
    given: Given,
    references: Any = None,
    *,
    mode: str | None = None,
    name: str = "predictions",
    columns: Sequence[str] | None = None,
) -> PredictionSet:
    """Return a `PredictionSet` of predictions that were given as Python objects.

    Args:
      given: the path of a predictions file; `Prediction`s; a DataFrame with the columns of a predictions file or others
        that `read_any` recognises; or texts, one for each of `references`.
      references: the true texts, if `given` is a list of texts; or the path of their file, if `given` is a path.
      mode: the mode of rows that do not state one; None leaves it unknown.
      name: the name of the argument in messages.
      columns: the columns of the reference and of predictions in a file or DataFrame.

    Raises:
      UserError: columns are not recognised, texts and references differ in number, or there is no such file.
    """
    with arguments():
        return _as_set(given, references, mode, name, columns)


def _as_set(given: Given, references: Any, mode: str | None, name: str, columns: Sequence[str] | None) -> PredictionSet:
    path = epath.Path(name)
    if isinstance(given, str | os.PathLike):
        _check_file(given, name)
        if references is not None:
            _check_file(references, "references")
        return read_file(given, mode=mode, columns=columns, reference=references)
    if isinstance(references, str | os.PathLike):
        raise UserError(f"references is a path, and {name} is none; give paths for both, or a list of texts for both.")
    if hasattr(given, "itertuples") and hasattr(given, "columns"):
        if columns is None and set(OWN_NAMES) <= set(given.columns):
            return in_mode(in_one_form(PredictionSet(_own_rows(given, path), {}, "table", path)), mode)
        cells = given.astype(object).where(given.notna(), "").itertuples(index=False, name=None)
        rows = [[value if isinstance(value, str | list) else str(value) for value in row] for row in cells]
        table = Table(path, "F", "table", [*map(str, given.columns)], rows, range(len(rows)), "row")
        usual = ["reference", "prediction"]  # preferred to other names, such as hypothesis
        found = roles(table, built_in(), columns or (usual if {*usual} <= {*normalize_names(given.columns)} else None))
        read = samples(table, found, {})
    elif (given := list(given)) and isinstance(given[0], str):
        count = "no" if references is None else len(references := list(references))
        if count != len(given):
            raise UserError(f"{name}: {len(given)} texts and {count} references; give as many references as texts.")
        read = Samples(path, references, {(UNKNOWN, UNKNOWN): given}, unit="text")
    else:
        if given and not isinstance(given[0], Prediction):
            kind = type(given[0]).__name__
            raise UserError(
                f"{name} is a list of {kind}; expected predictions, texts, a DataFrame or the path of a file."
            )
        return PredictionSet(given, {}, "rows", path)
    made = PredictionSet(complete(read), {}, "table", path, seeds_stated="seed" in read.about)
    return in_mode(in_one_form(made), mode)


def _check_file(given: Any, name: str) -> None:
    """Raise UserError for a text that is no path of a file; addresses of buckets pass."""
    if not isinstance(given, str | os.PathLike) or not ("://" in str(given) or os.path.exists(given)):
        raise UserError(
            f"{name} is {str(given)!r:.80}, and there is no such file; give the path of a file, a DataFrame, or a list "
            "of texts."
        )


def as_conditions(
    eeg: Given,
    controls: Any,
    references: Any,
    mode: str | None,
    name: str,
    columns: Sequence[str] | None = None,
) -> tuple[list[Prediction], dict[str, list[Prediction]], bool]:
    """Return the rows under EEG, control -> its rows, and whether all training seeds are stated.

    `controls` is a mapping from names to predictions, or the predictions of one control. If it is empty, the other
    conditions of a table or file `eeg` are the controls. Raises UserError for a table of several conditions beside
    controls.
    """
    if not isinstance(controls, Mapping):
        controls = {"control": controls}
    given = {name: eeg, **controls}
    sets = {key: as_set(value, references, mode=mode, name=key, columns=columns) for key, value in given.items()}
    tables = {key for key, found in sets.items() if found.layout != "rows"}
    for key in tables if controls else ():
        fed = {row.eval_condition for row in sets[key].predictions}
        if len(fed) > 1:
            raise UserError(
                f"{key}: the table holds the conditions {', '.join(sorted(fed))}; give a table for each condition, or "
                "this table alone."
            )
    stated = all(found.seeds_stated for found in sets.values())
    rows = {key: found.predictions for key, found in sets.items()}
    if not controls and name in tables and len({row.eval_condition for row in rows[name]}) > 1:
        with arguments():
            cells = select_cells(rows[name])
        rows = {name: cells.pop(next(iter(cells))), **cells}
    return rows.pop(name), rows, stated


def _own_rows(table: Any, path: epath.Path) -> list[Prediction]:
    """Return the rows of a DataFrame with the columns of a predictions file; of a sample, its first hypothesis only."""
    table = table.convert_dtypes().astype(object)  # keeps whole numbers in columns with missing values
    rows, shared = table.where(table.notna(), None).to_dict("records"), Shared()
    filled = ({key: value for key, value in row.items() if value is not None} for row in rows)
    found = [own_row(row, path, number, shared) for number, row in enumerate(filled, 1)]
    return [row for row in found if not row.hypothesis]
