"""Word-feature tables: one word a line, numeric feature columns, a blank line between sentences."""

import csv
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from eeg2text_jax.data.datafile import Sample
from eeg2text_jax.errors import UserError

LARGEST = float(np.finfo(np.float32).max)  # finite as features are stored
Row = tuple[int, list[str]]  # line number from 1, cells


def table_samples(path: str | os.PathLike[str], word_column: int, feature_columns: Sequence[int]) -> Iterator[Sample]:
    """Reads a TSV or CSV file (by its ending) as sentences of one subject and one task.

    Columns are numbered from 0, as in Python. A first line whose feature cells are all text is a header and passed
    over. Without `feature_columns`, every column that is a number in the first row is a feature.

    Raises:
      UserError: the file is missing, empty or not text; a line has another number of cells than the first; a
        feature cell is not a finite number; a word is empty. The message names line and column.
    """
    path = Path(path)
    rows = _read_rows(path)
    first = next((cells for _, cells in rows if cells), None)
    if first is None:
        raise UserError(f"{path}: the table is empty; expected one word a line and a blank line between sentences.")
    columns = _choose_columns(path, rows, word_column, tuple(feature_columns))
    if all(not _is_number(first[column]) for column in columns):
        rows = rows[next(i for i, (_, cells) in enumerate(rows) if cells) + 1 :]
    sentences = _sentences(rows)
    if not sentences:
        raise UserError(f"{path}: the table has a header but no words.")
    for index, sentence in enumerate(sentences):
        words, features = [], []
        for line, cells in sentence:
            if len(cells) != len(first):
                raise UserError(
                    f"{path}, line {line}: expected {len(first)} cells as in the first line, got {len(cells)}."
                )
            if not cells[word_column].strip():
                raise UserError(f"{path}, line {line}: the word (column {word_column}) is empty.")
            words.append(cells[word_column].strip())
            features.append([_number(path, line, column, cells[column]) for column in columns])
        yield Sample(np.array(features, np.float32), " ".join(words), "all", "table", index)


def _read_rows(path: Path) -> list[Row]:
    if not path.exists():
        raise UserError(f"{path}: there is no such file; expected a word-feature table (.tsv or .csv).")
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (UnicodeDecodeError, OSError) as error:
        raise UserError(f"{path}: cannot be read as UTF-8 text ({error}); expected a word-feature table.") from error
    if path.suffix == ".tsv":  # words may be quotation marks, so quotes mean nothing here
        lines = text.splitlines()
        return [(i, line.split("\t") if line.strip() else []) for i, line in enumerate(lines, 1)]
    reader = csv.reader(text.splitlines(keepends=True))
    return [(reader.line_num, cells if any(cell.strip() for cell in cells) else []) for cells in reader]


def _choose_columns(path: Path, rows: list[Row], word_column: int, columns: tuple[int, ...]) -> tuple[int, ...]:
    filled = [cells for _, cells in rows if cells]
    width = len(filled[0])
    for column in (word_column, *columns):
        if not 0 <= column < width:
            raise UserError(f"{path}: there is no column {column}; the first line has columns 0 to {width - 1}.")
    if columns:
        return columns
    for cells in filled[:2]:  # the first may be a header
        found = tuple(i for i in range(width) if i != word_column and i < len(cells) and _is_number(cells[i]))
        if found:
            return found
    raise UserError(f"{path}: the first line has no numeric column; expected a word and its features.")


def _sentences(rows: list[Row]) -> list[list[Row]]:
    sentences: list[list[Row]] = [[]]
    for line, cells in rows:
        if cells:
            sentences[-1].append((line, cells))
        elif sentences[-1]:
            sentences.append([])
    return [sentence for sentence in sentences if sentence]


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _number(path: Path, line: int, column: int, cell: str) -> float:
    if not _is_number(cell):
        raise UserError(f"{path}, line {line}, column {column}: expected a number, got {cell!r}.")
    value = float(cell)
    if not abs(value) <= LARGEST:
        raise UserError(f"{path}, line {line}, column {column}: expected a finite number, got {cell!r}.")
    return value
