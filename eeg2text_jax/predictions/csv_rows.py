"""Readers of tables: layout F (CSV with a header of column names) and layout H (CSV without header)."""

import csv
import functools
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from eeg2text_jax.errors import UserError
from eeg2text_jax.predictions.column_names import is_header, known_names, normalize_names
from eeg2text_jax.predictions.columns import (
    Columns,
    describe_columns,
    foreign_row,
    join_names,
    named_columns,
    stated_columns,
    with_groups,
)
from eeg2text_jax.predictions.foreign import UNKNOWN, ForeignRow
from eeg2text_jax.predictions.packed import Lines

DELIMITERS = (",", "\t", ";")
TEXTS_ALONE = "if each line of the file is one text, give its references with --reference=FILE"


def read_csv(
    lines: Lines, columns: Sequence[str] | None, header: bool | None, groups: Sequence[str] = ()
) -> tuple[Iterator[ForeignRow], Callable[..., str]]:
    """Return the samples, and a function that describes the layout after they were read, see `describe_columns`.

    `columns`: the reference and one or more predictions, by name or by number from 1. `header`: whether there is a
    header; None: there is one if the first line has known names. Raises UserError if columns are not recognised, a row
    has another number of fields than the first, or a quote is not closed; a damaged row is noticed when it is read.
    """
    delimiter, names, first, textual = parse(lines, columns or (), header)
    if header is None and names is None:
        refuse_header(first, lines)
    if columns:
        chosen = stated_columns(columns, names, len(first), lines.path)
    elif names:
        chosen = named_columns(names, lines.path, raw_names(lines, delimiter))
    else:
        chosen = text_columns(first, textual, lines)
    chosen = with_groups(chosen, names, groups)
    kind = f"F ({kind_of(lines, delimiter)}" if names else f"H ({kind_of(lines, delimiter)} without header"
    description = functools.partial(describe_columns, chosen, names, len(first), kind)
    return rows_of(lines, delimiter, chosen, bool(names)), description


def kind_of(lines: Lines, delimiter: str) -> str:
    return "TSV" if delimiter == "\t" else lines.kind


def rows_of(lines: Lines, delimiter: str, columns: Columns, header: bool) -> Iterator[ForeignRow]:
    """Yield the samples of a table. Raises UserError at a row that looks like a header."""
    first: list[str] = []
    for line, fields in records_of(lines, delimiter):
        texts = [fields[column] for column in (columns.reference, *columns.predictions.values())]
        if header and not first:
            first = texts
            continue
        if texts == first or (not header and is_header(normalize_names(texts))):
            raise UserError(
                f"{lines.path}, line {line}: {', '.join(texts)!r:.80} is a header among the samples, as if two "
                "files were joined; give each file to the command separately, with its header first."
            )
        yield foreign_row(line, fields, columns, lines.path)


def parse(
    lines: Lines, columns: Sequence[str], header: bool | None
) -> tuple[str, list[str] | None, list[str], list[int]]:
    """Return the delimiter, the normalized names of the header (None without one), the first record and text columns.

    Text columns are positions from 0, none if the header has known names. Raises UserError if the lines are no table.
    """
    stated = stated_delimiter(lines)
    delimiters = DELIMITERS if stated is None else (stated,)
    for delimiter in delimiters:
        names = first_names(lines, delimiter)
        has_stated = bool(columns) and set(normalize_names(columns)) <= set(names)
        if header is not False and (is_header(names) or has_stated):
            next(records_of(lines, delimiter))  # raises if there is one column only
            return delimiter, names, names, []
    errors = []
    for delimiter in delimiters:
        try:
            first, textual = survey_table(lines, delimiter)
        except UserError as error:
            errors.append(error)
        else:
            return delimiter, first_names(lines, delimiter) if header else None, first, textual
    if header is None and TEXTS_ALONE not in str(errors[0]):
        raise UserError(f"{str(errors[0]).removesuffix('.')}; {TEXTS_ALONE}.")
    raise errors[0]


def survey_table(lines: Lines, delimiter: str) -> tuple[list[str], list[int]]:
    """Return the first record, and the positions of columns in which at least half of the fields contain a space."""
    records = 0
    first: list[str] = []
    spaced: Counter[int] = Counter()
    for _, fields in records_of(lines, delimiter):
        records, first = records + 1, first or fields
        spaced.update(column for column, field in enumerate(fields) if " " in field.strip())
    return first, [column for column in range(len(first)) if 2 * spaced[column] >= records]


def records_of(lines: Lines, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """Yield (number of the first line, fields) of each record; blank lines are skipped.

    Raises UserError for a record with fewer than two fields, more or fewer than the first record, or an unclosed quote.
    """
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
    """Return the delimiter that a first line such as `sep=;` states, as spreadsheets write it, or None."""
    first = next(iter(lines), "")
    return first[4] if re.fullmatch(r"sep=[,;\t|]", first) else None


def first_names(lines: Lines, delimiter: str) -> list[str]:
    """Return the fields of the first line with content as normalized names of columns."""
    return normalize_names(raw_names(lines, delimiter))


def raw_names(lines: Lines, delimiter: str) -> list[str]:
    """Return the fields of the first line with content, as written."""
    line = next((line for line in lines if line and not line.startswith("sep=")), "")
    try:
        return next(csv.reader([line], delimiter=delimiter), [])
    except csv.Error:  # a field too long for the csv module is no name
        return []


def refuse_header(first: list[str], lines: Lines) -> None:
    """Raise UserError if the first record looks like a header, which must not be read as a sample."""
    if known_names(normalize_names(first)) or all(re.fullmatch(r"\w*", field) for field in first):
        raise UserError(
            f"{lines.path}, line 1: {', '.join(first)!r:.120} looks like a header without known column names; name the "
            "columns with --columns=REFERENCE,PREDICTION and say whether this line is a header (--format=F) or a "
            "sample (--format=H)."
        )


def text_columns(first: list[str], textual: list[int], lines: Lines) -> Columns:
    """Return the two text columns of a table without header, reference first. Raises UserError unless there are two."""
    if len(textual) != 2:
        titles = join_names([f"{column + 1}: {first[column].strip()!r:.30}" for column in textual])
        raise UserError(
            f"{lines.path}: no known layout and no known column names; of the {len(first)} columns, "
            f"{len(textual)} hold text{f' ({titles})' if titles else ''}, expected 2; give two numbers, or two names "
            "if line 1 is a header, with --columns=REFERENCE,PREDICTION."
        )
    return Columns(textual[0], {(UNKNOWN, UNKNOWN): textual[1]}, {})
