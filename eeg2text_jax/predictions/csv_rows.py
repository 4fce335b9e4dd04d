"""Layouts F (CSV with a header of column names) and H (CSV without one)."""

import csv
import dataclasses
import functools
import re
import sys
from collections.abc import Callable, Iterator, Sequence

from eeg2text_jax.errors import UserError
from eeg2text_jax.predictions.column_names import known, knows, normalised
from eeg2text_jax.predictions.columns import (
    Columns,
    describe_columns,
    enumerated,
    foreign_row,
    named_columns,
    stated_columns,
    with_groups,
)
from eeg2text_jax.predictions.foreign import UNKNOWN, ForeignRow
from eeg2text_jax.predictions.packed import Lines

DELIMITERS = (",", "\t", ";")
TEXTS_ALONE = "if the file is a text a line, give its references with --reference=FILE"

Record = tuple[int, list[str]]  # first line, fields


@dataclasses.dataclass(frozen=True)
class Survey:
    """A table under one delimiter: first record, number of records, and in how many each column is text."""

    delimiter: str
    first: list[str]
    records: int
    spaced: list[int]


def read_csv(
    lines: Lines, columns: Sequence[str] | None, header: bool | None, groups: Sequence[str] = ()
) -> tuple[Iterator[ForeignRow], Callable[..., str]]:
    """Return the rows, and a function that describes the layout once they are read, see `describe_columns`.

    `columns` names (or numbers from 1) the reference and one or more predictions; `header` says whether there is a
    header, None decides by its names. Raises UserError (partly while rows are read) if columns are not recognised, a
    row has another number of fields, or a quote is not closed.
    """
    delimiter, names, survey = parse(lines, columns or (), header)
    first = names or survey.first
    if header is None and names is None:
        refuse_header(survey.first, lines)
    if columns:
        chosen = stated_columns(columns, names, len(first), lines.path)
    else:
        titles = raw_names(lines, delimiter)
        chosen = named_columns(names, lines.path, titles) if names else text_columns(survey, lines)
    chosen = with_groups(chosen, names, groups)
    kind = f"F ({kind_of(lines, delimiter)}" if names else f"H ({kind_of(lines, delimiter)} without header"
    description = functools.partial(describe_columns, chosen, names, len(first), kind)
    return rows_of(lines, delimiter, chosen, bool(names)), description


def kind_of(lines: Lines, delimiter: str) -> str:
    return "TSV" if delimiter == "\t" else lines.kind


def rows_of(lines: Lines, delimiter: str, columns: Columns, header: bool) -> Iterator[ForeignRow]:
    wanted = [columns.reference, *columns.predictions.values()]
    first: list[str] = []
    for line, fields in records_of(lines, delimiter):
        if header and not first:
            first = [fields[column] for column in wanted]
            continue
        texts = [fields[column] for column in wanted]
        if texts == first or (not header and knows(normalised(texts))):
            raise UserError(
                f"{lines.path}, line {line}: {', '.join(texts)!r:.80} is a header among the samples, as of two files "
                "in one; give each file to the command separately, with its header first."
            )
        yield foreign_row(line, fields, columns, lines.path)


def parse(lines: Lines, columns: Sequence[str], header: bool | None) -> tuple[str, list[str] | None, Survey | None]:
    """Return the delimiter, and the names in the header, if there is one, else a survey of the table."""
    errors, surveys = [], []
    stated = stated_delimiter(lines)
    for delimiter in DELIMITERS if stated is None else (stated,):
        names = first_names(lines, delimiter)
        is_header = header is not False and (knows(names) or (bool(columns) and set(normalised(columns)) <= set(names)))
        if is_header:
            next(records_of(lines, delimiter))  # one column alone is no table
            return delimiter, names, None
        try:
            surveys.append((survey_table(lines, delimiter), names if header else None))
        except UserError as error:
            errors.append(error)
    if not surveys:
        if header is None and TEXTS_ALONE not in str(errors[0]):
            raise UserError(f"{str(errors[0]).removesuffix('.')}; {TEXTS_ALONE}.")
        raise errors[0]
    survey, names = surveys[0]
    return survey.delimiter, names, survey


def survey_table(lines: Lines, delimiter: str) -> Survey:
    first: list[str] = []
    records = 0
    spaced: list[int] = []
    for _, fields in records_of(lines, delimiter):
        records += 1
        if not first:
            first, spaced = fields, [0] * len(fields)
        for column, field in enumerate(fields):
            spaced[column] += " " in field.strip()
    return Survey(delimiter, first, records, spaced)


def records_of(lines: Lines, delimiter: str) -> Iterator[Record]:
    """Yield records of equal width, at least two fields of any length; blank lines are skipped."""
    path, width = lines.path, 0
    skipped = stated_delimiter(lines) is not None
    limit = csv.field_size_limit(sys.maxsize)
    try:
        text = (f"{line}\n" for number, line in enumerate(lines) if number or not skipped)
        reader = csv.reader(text, delimiter=delimiter, strict=True)
        while True:
            line = reader.line_num + 1 + skipped
            try:
                fields = next(reader)
            except StopIteration:
                break
            except csv.Error as error:
                raise UserError(f"{path}, line {line}: not a CSV row ({error}); is a quote missing?") from error
            if not fields:
                continue
            width = width or len(fields)
            if len(fields) != width:
                raise UserError(
                    f"{path}, line {line}: {len(fields)} fields where the first line has {width}; put quotes around "
                    "fields that hold a delimiter or a line break."
                )
            if width < 2:
                break
            yield line, fields
    finally:
        csv.field_size_limit(limit)
    if width < 2:
        raise UserError(
            f"{path}: neither a known layout nor a table with at least two columns; {TEXTS_ALONE}; see `eeg2text score "
            "--help` for the layouts."
        )


def stated_delimiter(lines: Lines) -> str | None:
    """Return the delimiter in a first line `sep=;`, as spreadsheets write it, or None."""
    first = next(iter(lines), "")
    return first[4] if re.fullmatch(r"sep=[,;\t|]", first) else None


def first_names(lines: Lines, delimiter: str) -> list[str]:
    """Return the fields of the first non-empty line as normalised names of columns."""
    return normalised(raw_names(lines, delimiter))


def raw_names(lines: Lines, delimiter: str) -> list[str]:
    """Return the fields of the first non-empty line."""
    filled = (line for line in lines if line and not line.startswith("sep="))
    line = next(filled, "")
    try:
        return next(csv.reader([line], delimiter=delimiter), [])
    except csv.Error:  # a field too long for the csv module is no name
        return []


def refuse_header(first: list[str], lines: Lines) -> None:
    """Raise UserError if the first line looks like a header, so that it is not read as a sample."""
    if known(normalised(first)) or all(re.fullmatch(r"\w*", field) for field in first):
        raise UserError(
            f"{lines.path}, line 1: {', '.join(first)!r:.120} looks like a header without known column names; name the "
            "columns with --columns=REFERENCE,PREDICTION and say whether this line is a header (--format=F) or a "
            "sample (--format=H)."
        )


def text_columns(survey: Survey, lines: Lines) -> Columns:
    """Return the two columns of running text in a table without header; the first is the reference."""
    columns = [column for column, spaced in enumerate(survey.spaced) if 2 * spaced >= survey.records]
    if len(columns) != 2:
        titles = enumerated([f"{column + 1}: {survey.first[column].strip()!r:.30}" for column in columns])
        raise UserError(
            f"{lines.path}: no known layout and no known column names; of the {len(survey.first)} columns "
            f"{len(columns)} hold text{f' ({titles})' if titles else ''}, expected 2; give two numbers, or two names "
            "if line 1 is a header, with --columns=REFERENCE,PREDICTION."
        )
    return Columns(columns[0], {(UNKNOWN, UNKNOWN): columns[1]}, {})
