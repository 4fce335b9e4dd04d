"""Convert predictions in Python (`Prediction`s, pandas tables or lists of texts) to the rows of a predictions file."""

from collections.abc import Mapping, Sequence
from typing import Any

from etils import epath

from eeg2text_jax.errors import UserError
from eeg2text_jax.predictions.columns import roles, samples
from eeg2text_jax.predictions.containers import Table
from eeg2text_jax.predictions.file import OWN_NAMES, UNKNOWN, Prediction, PredictionSet, Shared, own_row
from eeg2text_jax.predictions.foreign import ForeignRow, complete
from eeg2text_jax.predictions.names import built_in, normalize_names
from eeg2text_jax.predictions.read import in_mode, in_one_form
from eeg2text_jax.predictions.selection import select_cells

Given = Any  # predictions as `Prediction`s, a pandas DataFrame, or texts


def as_set(
    given: Given, references: Sequence[str] | None = None, *, mode: str | None = None, name: str = "predictions"
) -> PredictionSet:
    """Return a `PredictionSet` of predictions that were given as Python objects.

    Args:
      given: `Prediction`s; a DataFrame with the columns of a predictions file or others that `read_any` recognises; or
        texts, one for each of `references`.
      references: the true texts; only if `given` is a list of texts.
      mode: the mode of rows that do not state one; None leaves it unknown.
      name: the name of the argument in messages.

    Raises:
      UserError: columns are not recognised, or texts and references differ in number.
    """
    path = epath.Path(name)
    if hasattr(given, "itertuples") and hasattr(given, "columns"):
        if set(OWN_NAMES) <= set(given.columns):
            return in_mode(in_one_form(PredictionSet(_own_rows(given, path), {}, "table", path)), mode)
        cells = given.astype(object).where(given.notna(), "").itertuples(index=False, name=None)
        table = Table(path, "F", "table", [*map(str, given.columns)], [list(map(cell_of, r)) for r in cells], [], "row")
        table.numbers = range(len(table.rows))
        both = ["reference", "prediction"]  # preferred to other names, such as hypothesis
        columns = roles(table, built_in(), both if {*both} <= {*normalize_names(given.columns)} else None)
        rows = samples(table, columns)
        stated = "seed" in columns.about
    elif (given := list(given)) and isinstance(given[0], str):
        count = "no" if references is None else len(references := list(references))
        if count != len(given):
            raise UserError(f"{name}: {len(given)} texts and {count} references; give as many references as texts.")
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
    """Return the rows under EEG, control -> its rows, and whether all training seeds are stated.

    If `controls` is empty, the other conditions of a table `eeg` are the controls. Raises UserError for controls that
    are no mapping, or a table of several conditions beside controls.
    """
    if not isinstance(controls, Mapping):
        raise UserError(
            f"controls is a {type(controls).__name__}; expected a mapping from the name of each control to its "
            "predictions."
        )
    sets = {key: as_set(value, references, mode=mode, name=key) for key, value in {name: eeg, **controls}.items()}
    for key, found in sets.items() if controls else ():
        fed = {row.eval_condition for row in found.predictions}
        if found.layout == "table" and len(fed) > 1:
            raise UserError(
                f"{key}: the table holds the conditions {', '.join(sorted(fed))}; give a table for each condition, or "
                "this table alone."
            )
    stated = all(found.seeds_stated for found in sets.values())
    rows = {key: found.predictions for key, found in sets.items()}
    if not controls and sets[name].layout == "table" and len({row.eval_condition for row in rows[name]}) > 1:
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


def cell_of(value: Any) -> Any:
    return value if isinstance(value, str | list) else str(value)
