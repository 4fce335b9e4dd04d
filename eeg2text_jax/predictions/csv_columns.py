"""Layouts F (CSV with a header of column names) and H (CSV without one)."""

import csv
import dataclasses
import io
import re
from collections.abc import Sequence

from etils import epath

from eeg2text_jax.errors import UserError
from eeg2text_jax.predictions.foreign import UNKNOWN, ForeignRow

DELIMITERS = (",", "\t", ";")

# reference and prediction as published files name them; names are compared in lower case with `_` for space and `-`
PAIRS = (
    ("target_text", "predicted_text"),
    ("sentence", "prediction"),
    ("ground_truth", "prediction"),
    ("true_text", "llm_pred"),
    ("truth", "pred"),
    ("expected_caption", "generated_caption"),
    ("reference_caption", "generated_caption"),
    ("input_text", "generated_text"),
    ("reference", "prediction"),
    ("target", "prediction"),
    ("reference", "hypothesis"),
)
REFERENCE_NAMES = tuple(dict.fromkeys(reference for reference, _ in PAIRS))
# columns that hold the predictions under one condition each
CONDITION_NAMES = {
    "real_eeg": "eeg",
    "eeg": "eeg",
    "shuffled_eeg": "shuffled",
    "noise_eeg": "noise",
    "random_eeg": "noise",
    "noise": "noise",
    "zero_eeg": "zero",
}
ABOUT_NAMES = {
    "subject": "subject",
    "subject_id": "subject",
    "participant": "subject",
    "task": "task",
    "sentence_id": "sentence_id",
    "sample_id": "sample_id",
    "train_condition": "train_condition",
    "eval_condition": "eval_condition",
    "seed": "seed",
    "mode": "mode",
}


@dataclasses.dataclass(frozen=True)
class Columns:
    """Positions of the reference, of the predictions by evaluation condition, and of what else is known."""

    reference: int
    predictions: dict[str, int]
    about: dict[str, int]


Record = tuple[int, list[str]]  # first line, fields


def read_csv(
    text: str, path: epath.Path, columns: Sequence[str] | None, header: bool | None
) -> tuple[list[ForeignRow], str]:
    """Rows, and a description of the layout.

    `columns` names (or numbers from 1) the reference and one or more predictions; `header` says whether there is a
    header, None decides by its names.

    Raises UserError where columns are not recognised, a row has too many or few fields, or a quote is not closed.
    """
    records, names = parse(text, path, columns or (), header)
    if header is None and names is None:
        refuse_header(records[0][1], path)
    if columns:
        chosen = stated_columns(columns, names, len(records[0][1]), path)
    else:
        chosen = named_columns(names, path) if names else text_columns(records, path)
    rows = [foreign_row(record, chosen) for record in (records[1:] if names else records)]
    return rows, describe_columns(chosen, names, len(records[0][1]))


def describe_columns(columns: Columns, names: list[str] | None, width: int) -> str:
    """Which columns were used as what, and which were not."""
    titles = [repr(name) for name in names] if names else [f"column {i + 1}" for i in range(width)]
    used = {columns.reference, *columns.predictions.values(), *columns.about.values()}
    unused = ", ".join(title for i, title in enumerate(titles) if i not in used)
    predicted = ", ".join(titles[i] for i in columns.predictions.values())
    kind = "F (CSV" if names else "H (CSV without header"
    about = f"; reference {titles[columns.reference]}, prediction {predicted}"
    return f"{kind}{about}{f'; not used: {unused}' if unused else ''})"


def parse(
    text: str, path: epath.Path, columns: Sequence[str], header: bool | None
) -> tuple[list[Record], list[str] | None]:
    """All records under the delimiter that fits, and the header's names where there is a header."""
    errors, tables = [], []
    for delimiter in DELIMITERS:
        names = first_names(text, delimiter)
        is_header = header is not False and (knows(names) or (bool(columns) and set(normalised(columns)) <= set(names)))
        try:
            records = records_of(text, delimiter, path)
        except UserError as error:
            if is_header:
                raise
            errors.append(error)
            continue
        if is_header:
            return records, names
        tables.append((records, names if header else None))
    if not tables:
        raise errors[0]
    return tables[0]


def records_of(text: str, delimiter: str, path: epath.Path) -> list[Record]:
    """Records of equal width, two fields or more; blank lines are passed over."""
    records: list[Record] = []
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    while True:
        line = reader.line_num + 1
        try:
            fields = next(reader)
        except StopIteration:
            break
        except csv.Error as error:
            raise UserError(f"{path}, line {line}: not a CSV row ({error}); is a quote missing?") from error
        if not fields:
            continue
        if records and len(fields) != len(records[0][1]):
            raise UserError(
                f"{path}, line {line}: {len(fields)} fields where the first line has {len(records[0][1])}; fields with "
                "a delimiter or a line break need quotes."
            )
        records.append((line, fields))
    if not records or len(records[0][1]) < 2:
        raise UserError(
            f"{path}: neither a known layout nor a table with at least two columns; see `eeg2text score --help` for "
            "the layouts."
        )
    return records


def first_names(text: str, delimiter: str) -> list[str]:
    """Fields of the first filled line, as names of columns."""
    line = text.lstrip("\n").partition("\n")[0]
    try:
        return normalised(next(csv.reader([line], delimiter=delimiter), []))
    except csv.Error:  # a field too long for the csv module is no name
        return []


def normalised(names: Sequence[str]) -> list[str]:
    return [re.sub(r"[\s\-]+", "_", name.strip().lower()) for name in names]


def known(names: Sequence[str]) -> set[str]:
    return {*REFERENCE_NAMES, *CONDITION_NAMES, *ABOUT_NAMES, *(prediction for _, prediction in PAIRS)} & set(names)


def knows(names: Sequence[str]) -> bool:
    """Whether the names are a header: two of them at least are known."""
    return len(known(names)) >= 2


def refuse_header(first: list[str], path: epath.Path) -> None:
    """Raises UserError where the first line looks like a header, so that it is not taken for a sample."""
    if known(normalised(first)) or all(re.fullmatch(r"\w*", field) for field in first):
        raise UserError(
            f"{path}, line 1: {', '.join(first)!r:.120} looks like a header without known column names; name the "
            "columns with --columns=REFERENCE,PREDICTION and say whether this line is a header (--format=F) or a "
            "sample (--format=H)."
        )


def named_columns(names: list[str], path: epath.Path) -> Columns:
    """Columns by the usual names. Raises UserError where none or several pairs fit."""
    pairs = [pair for pair in PAIRS if set(pair) <= set(names)]
    references = [name for name in REFERENCE_NAMES if name in names]
    conditions = {condition: name for name, condition in CONDITION_NAMES.items() if name in names}
    if len(pairs) == 1:
        reference, predictions = pairs[0][0], {UNKNOWN: pairs[0][1]}
    elif not pairs and len(references) == 1 and conditions:
        reference, predictions = references[0], conditions
    else:
        found = "several columns may be" if pairs else "no column is known as"
        raise UserError(
            f"{path}: {found} reference and prediction among {', '.join(names)}; name them with "
            "--columns=REFERENCE,PREDICTION."
        )
    if repeated := [name for name in (reference, *predictions.values()) if names.count(name) > 1]:
        raise UserError(f"{path}, line 1: the column {repeated[0]!r} is there twice; name columns by number.")
    return Columns(names.index(reference), {c: names.index(name) for c, name in predictions.items()}, about(names))


def about(names: list[str]) -> dict[str, int]:
    """Positions of the columns that fill fields of a prediction, the first of each."""
    found: dict[str, int] = {}
    for index, name in enumerate(names):
        if name in ABOUT_NAMES:
            found.setdefault(ABOUT_NAMES[name], index)
    return found


def stated_columns(columns: Sequence[str], names: list[str] | None, width: int, path: epath.Path) -> Columns:
    """Columns that the user named, by name or by number from 1."""
    if len(columns) < 2:
        raise UserError(f"--columns={','.join(columns)}: expected the reference and at least one prediction.")
    positions = []
    for column in columns:
        name = normalised([column])[0]
        if names and name in names:
            positions.append(names.index(name))
        elif column.isascii() and column.isdigit() and 1 <= int(column) <= width:
            positions.append(int(column) - 1)
        else:
            offered = ", ".join(names) if names else f"1 to {width}"
            raise UserError(f"{path}: there is no column {column!r}; the columns are {offered}.")
    reference, *predictions = positions
    titles = [CONDITION_NAMES.get(name, name) for name in normalised(columns[1:])]
    conditions = titles if len(predictions) > 1 else [UNKNOWN]
    if len(set(positions)) < len(positions) or len(set(conditions)) < len(conditions):
        raise UserError(f"--columns={','.join(columns)}: a column or condition is named twice.")
    return Columns(reference, dict(zip(conditions, predictions, strict=True)), about(names) if names else {})


def text_columns(records: list[Record], path: epath.Path) -> Columns:
    """The two columns of running text in a table without header, the first of them taken as the reference."""

    def is_text(column: int) -> bool:
        spaced = sum(" " in fields[column].strip() for _, fields in records)
        return 2 * spaced >= len(records)

    columns = [column for column in range(len(records[0][1])) if is_text(column)]
    if len(columns) != 2:
        raise UserError(
            f"{path}: no known layout and no known column names; of the {len(records[0][1])} columns {len(columns)} "
            "hold text, expected 2; give their numbers with --columns=REFERENCE,PREDICTION."
        )
    return Columns(columns[0], {UNKNOWN: columns[1]}, {})


def foreign_row(record: Record, columns: Columns) -> ForeignRow:
    line, fields = record
    outputs = {(condition, UNKNOWN): fields[index] for condition, index in columns.predictions.items()}
    return ForeignRow(line, fields[columns.reference], outputs, {name: fields[i] for name, i in columns.about.items()})
