"""Predictions in Python: rows, pandas tables, or lists of texts with their references."""

from collections.abc import Mapping, Sequence
from typing import Any

from etils import epath

from eeg2text_jax.errors import UserError
from eeg2text_jax.predictions.column_names import normalised
from eeg2text_jax.predictions.columns import foreign_row, named_columns, stated_columns
from eeg2text_jax.predictions.file import OWN_NAMES, Prediction, PredictionSet, Shared, own_row
from eeg2text_jax.predictions.foreign import UNKNOWN, ForeignRow, complete
from eeg2text_jax.predictions.read import in_mode, in_one_form
from eeg2text_jax.predictions.selection import select_cells

Given = Any  # a sequence of `Prediction`s, a pandas DataFrame, or a sequence of texts


def as_set(
    given: Given, references: Sequence[str] | None = None, *, mode: str | None = None, name: str = "predictions"
) -> PredictionSet:
    """Return given predictions as rows.

    Args:
      given: `Prediction`s; a DataFrame with the columns of a predictions file, or others as `read_any` knows them; or
        texts, one for each of `references`.
      references: the true texts, for predictions that are texts only.
      mode: the mode of rows that do not state one; None leaves it unknown.
      name: of the argument, for messages.

    Raises:
      UserError: columns are not recognised, or texts and references differ in number.
    """
    path = epath.Path(name)
    if hasattr(given, "itertuples") and hasattr(given, "columns"):
        if set(OWN_NAMES) <= set(given.columns):
            return in_mode(in_one_form(PredictionSet(_own_rows(given, path), {}, "table", path)), mode)
        names = normalised(map(str, given.columns))
        if {"reference", "prediction"} <= set(names):  # then a column of rows, as `hypothesis`, names no other
            columns = stated_columns(["reference", "prediction"], names, len(names), path)
        else:
            columns = named_columns(names, path, [*map(str, given.columns)])
        filled = ([_text(value) for value in row] for row in given.itertuples(index=False, name=None))
        rows = [foreign_row(number, row, columns, "row") for number, row in enumerate(filled)]
        stated = "seed" in columns.about
    elif (given := list(given)) and isinstance(given[0], str):
        references = None if references is None else list(references)
        if references is None or len(references) != len(given):
            held = "no references" if references is None else f"{len(references)} references"
            raise UserError(f"{name}: {len(given)} texts and {held}; give as many references as texts.")
        pairs = enumerate(zip(references, given, strict=True))
        rows = [ForeignRow(i, reference, {(UNKNOWN, UNKNOWN): text}, unit="text") for i, (reference, text) in pairs]
        stated = False
    else:
        return PredictionSet(given, {}, "rows", path)
    read = PredictionSet(complete(rows, path), {}, "table", path, seeds_stated=stated)
    return in_mode(in_one_form(read), mode)


def as_conditions(
    eeg: Given, controls: Mapping[str, Given], references: Sequence[str] | None, mode: str | None, name: str
) -> tuple[list[Prediction], dict[str, list[Prediction]], bool]:
    """Return the EEG rows, the rows of each control, and whether training seeds are stated.

    Without `controls`, a table of several conditions gives its controls itself.
    """
    if not isinstance(controls, Mapping):
        raise UserError(
            f"controls is a {type(controls).__name__}; expected a mapping from the name of each control to its "
            "predictions."
        )
    held = {key: as_set(value, references, mode=mode, name=key) for key, value in {name: eeg, **controls}.items()}
    for key, found in held.items() if controls else ():
        fed = {row.eval_condition for row in found.predictions}
        if found.layout == "table" and len(fed) > 1:
            raise UserError(
                f"{key}: the table holds the conditions {', '.join(sorted(fed))}; give a table for each condition, or "
                "this table alone."
            )
    stated = all(found.seeds_stated for found in held.values())
    rows = {key: found.predictions for key, found in held.items()}
    if not controls and held[name].layout == "table" and len({row.eval_condition for row in rows[name]}) > 1:
        cells = select_cells(rows[name])
        rows = {name: cells.pop(next(iter(cells))), **cells}
    return rows.pop(name), rows, stated


def _own_rows(table: Any, path: epath.Path) -> list[Prediction]:
    """Return the rows of a table with our columns, without further hypotheses."""
    table = table.convert_dtypes().astype(object)  # whole numbers beside missing ones are no floats
    rows, shared = table.where(table.notna(), None).to_dict("records"), Shared()
    filled = ({key: value for key, value in row.items() if value is not None} for row in rows)
    found = [own_row(row, path, number, shared) for number, row in enumerate(filled, 1)]
    return [row for row in found if not row.hypothesis]


def _text(value: Any) -> str:
    """Return a cell as text; a missing one (None, NaN) is ""."""
    return "" if value is None or value != value else str(value)
