"""Read tables (`.tsv`, `.csv`) with numeric feature columns and one line per word, sentence or window of time.

A header identifies columns by name (`data.columns`), all optional: `word`, `sentence`, `sentence_index` (or
`sentence_id`), `subject`, `task`, and the columns of time if `recording` or `onset` is among them. A sentence continues
while subject, task and number (or, without numbers, the column `sentence`) stay the same. Without such columns a blank
line ends a sentence.
"""

import dataclasses
import itertools
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from eeg2text_jax.data.clock import CLOCK_COLUMNS, parse_time
from eeg2text_jax.data.rows import SUBJECT, Columns, SentenceNumbers
from eeg2text_jax.data.source import Sample, read_cells
from eeg2text_jax.data.tally import Tally
from eeg2text_jax.errors import UserError

TASK = "table"  # default task
LARGEST = float(np.finfo(np.float32).max)  # features are stored as float32
Row = tuple[int, list[str]]  # line number from 1, cells


@dataclasses.dataclass(frozen=True)
class Roles:
    """The column number (from 0) of each role in a table; None if no column has the role."""

    features: tuple[int, ...]
    word: int | None
    sentence: int | None = None
    subject: int | None = None
    task: int | None = None
    number: int | None = None
    clock: tuple[tuple[str, int], ...] = ()  # pairs (name in `CLOCK_COLUMNS`, column number)

    @property
    def group(self) -> tuple[int, ...]:
        """Numbers of the columns whose values stay the same within a sentence."""
        number = self.sentence if self.number is None else self.number
        return tuple(column for column in (self.subject, self.task, number) if column is not None)


def table_samples(
    path: str | os.PathLike[str],
    word_column: int,
    feature_columns: Sequence[int],
    columns: Columns | None = None,
    tally: Tally | None = None,
) -> Iterator[Sample]:
    """Yield the sentences of a TSV or CSV file (by its ending) as samples.

    A first line whose feature cells are all text is a header.

    Args:
      path: the table.
      word_column: number of the column of words; 0: the column `word` of the header, or the first column if there is
        neither `word` nor `sentence`.
      feature_columns: numbers of the feature columns; empty: all other columns that are numeric in the first row.
      columns: names of the other columns in a header.
      tally: collects notes.

    Raises:
      UserError: the file is missing, empty or not text; a line has another number of cells than the first; a feature is
        not a finite number; a word is empty or all words are numbers; a sentence begins again after it ended.
    """
    path, tally = Path(path), tally or Tally()
    rows = [(line, cells if any(map(str.strip, cells)) else []) for line, cells in read_cells(path)]
    first = next((cells for _, cells in rows if cells), None)
    if first is None:
        raise UserError(f"{path}: the table is empty; expected one word a line and a blank line between sentences.")
    roles, header = _roles(path, rows, word_column, tuple(feature_columns), columns or Columns())
    if header:
        rows = rows[next(i for i, (_, cells) in enumerate(rows) if cells) + 1 :]
    for line, cells in rows:
        if cells and len(cells) != len(first):
            raise UserError(f"{path}, line {line}: expected {len(first)} cells as in the first line, got {len(cells)}.")
    sentences = _sentences(path, rows, roles)
    if not sentences:
        raise UserError(f"{path}: the table has a header but no words.")
    _check_words(path, sentences, roles, tally)
    if header and not feature_columns:
        names = [first[column].strip() for column in roles.features]
        tally.notes.append(
            f"{path}: features are its {len(names)} numeric columns without another role: {', '.join(names)[:200]}."
        )
    if header:
        with_role = [*roles.features, roles.word, roles.sentence, roles.subject, roles.task, roles.number]
        used = [name.strip() for column, name in enumerate(first) if column in with_role]
        lacking = {role: role for role in ("subject", "task") if getattr(roles, role) is None}
        tally.not_used([name.strip() for name in first], used, str(path), lacking)
    numbers = SentenceNumbers()
    for position, sentence in enumerate(sentences):
        yield _sample(path, sentence, roles, position, numbers)


def _sample(path: Path, sentence: list[Row], roles: Roles, position: int, numbers: SentenceNumbers) -> Sample:
    features = [[_feature(path, line, column, cells[column]) for column in roles.features] for line, cells in sentence]
    line, cells = sentence[0]
    names = {}
    for role, default in (("subject", SUBJECT), ("task", TASK)):
        column = getattr(roles, role)
        names[role] = default if column is None else cells[column].strip()
        if not names[role]:
            raise UserError(f"{path}, line {line}: the {role} (column {column}) is empty.")
    text = _text(path, sentence, roles)
    if not roles.group:  # blank lines separate sentences, each has its own number
        index = position
    elif roles.number is not None and cells[roles.number].strip().isdecimal():
        index = int(cells[roles.number])
    else:
        index = numbers.of(names["task"], text)
    about = (np.array(features, np.float32), text, names["subject"], names["task"], index)
    time = parse_time({name: cells[column] for name, column in roles.clock}, f"{path}, line {line}",
                      default=f"{names['subject']}/{names['task']}")  # fmt: skip
    return Sample(*about, **time)


def _text(path: Path, sentence: list[Row], roles: Roles) -> str:
    """Return a sentence's text: the cell `sentence` if it has several words or no column has words; else all words."""
    line, cells = sentence[0]
    whole = "" if roles.sentence is None else " ".join(cells[roles.sentence].split())
    if roles.word is None:
        if not whole:
            raise UserError(f"{path}, line {line}: the sentence (column {roles.sentence}) is empty.")
        return whole
    for line, cells in sentence:
        if not cells[roles.word].strip():
            raise UserError(f"{path}, line {line}: the word (column {roles.word}) is empty.")
    words = " ".join(cells[roles.word].strip() for _, cells in sentence)
    return whole if " " in whole else words


def _roles(
    path: Path, rows: list[Row], word_column: int, feature_columns: tuple[int, ...], columns: Columns
) -> tuple[Roles, bool]:
    """Return which column has which role (word, subject, ...), and whether the first line is a header."""
    filled = [cells for _, cells in rows if cells][:2]
    known = {
        "word": (columns.word,),
        "sentence": (columns.sentence,),
        "subject": (columns.subject,),
        "task": (columns.task,),
        "number": (columns.sentence_index, "sentence_id"),
    }
    header = [cell.strip().lower() for cell in filled[0]]
    named = len(filled) > 1 and any(map(_is_number, filled[1])) and not any(map(_is_number, filled[0]))
    found: dict[str, int] = {}
    for role, names in known.items():
        places = [header.index(name.lower()) for name in names if name.lower() in header]
        found |= {role: places[0]} if named and places else {}
    if word_column:
        found["word"] = word_column
    elif "word" not in found and "sentence" not in found:
        found["word"] = 0
    times = {name: header.index(getattr(columns, name).lower()) for name in CLOCK_COLUMNS
             if getattr(columns, name).lower() in header}  # fmt: skip
    if not named or not {"recording", "onset"} & times.keys():
        times = {}  # a column `duration` alone may be a feature
    features = _feature_columns(path, filled, (*found.values(), *times.values()), feature_columns)
    is_header = not any(_is_number(filled[0][i]) for i in features)
    return Roles(features, found.pop("word", None), **found, clock=tuple(times.items())), is_header


def _feature_columns(
    path: Path, filled: list[list[str]], others: tuple[int, ...], columns: tuple[int, ...]
) -> tuple[int, ...]:
    width = len(filled[0])
    for column in (*others, *columns):
        if not 0 <= column < width:
            raise UserError(f"{path}: there is no column {column}; the first line has columns 0 to {width - 1}.")
    if columns:
        return columns
    for cells in filled:  # the first line may be a header
        found = tuple(i for i in range(width) if i not in others and i < len(cells) and _is_number(cells[i]))
        if found:
            return found
    raise UserError(f"{path}: the first line has no numeric column; expected a word and its features.")


def _sentences(path: Path, rows: list[Row], roles: Roles) -> list[list[Row]]:
    """Divide rows into sentences at blank lines and changes of the columns of `roles.group`."""
    sentences: list[list[Row]] = []
    last_line: dict[tuple[str, ...], int] = {}

    def key_of(row: Row) -> tuple[str, ...] | None:
        return tuple(row[1][column].strip() for column in roles.group) if row[1] else None

    for key, group in itertools.groupby(rows, key_of):
        if key is None:
            continue
        sentence = list(group)
        if roles.number is not None and key in last_line:
            raise UserError(
                f"{path}, line {sentence[0][0]}: sentence {key[-1]!r} begins again after it ended on line "
                f"{last_line[key]}; put the lines of a sentence together, or give repeated readings numbers of their "
                "own."
            )
        sentences.append(sentence)
        last_line[key] = sentence[-1][0]
    return sentences


def _check_words(path: Path, sentences: list[list[Row]], roles: Roles, tally: Tally) -> None:
    lines = sum(map(len, sentences))
    if roles.word is not None and all(_is_number(cells[roles.word]) for sentence in sentences for _, cells in sentence):
        cells = sentences[0][0][1]
        raise UserError(
            f"{path}: column {roles.word}, taken for the words, holds numbers ({cells[roles.word]!r}); name the column "
            "with data.table.word_column, or give the table a header with `word`, `sentence_id`, `subject` and `task`."
        )
    if len(sentences) == 1 and lines > 1:
        tally.notes.append(
            f"{path}: the whole table is one sentence of {lines} words; a blank line, or a column `sentence_id` in a "
            "header, tells sentences apart."
        )
    if roles.word is None and roles.number is None and lines > len(sentences):
        tally.notes.append(
            f"{path}: {lines} lines make {len(sentences)} recordings, because consecutive lines of one sentence count "
            "as its windows; a column `sentence_index` would tell repeated recordings apart."
        )


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _feature(path: Path, line: int, column: int, cell: str) -> float:
    """Return the value of a cell. Raises UserError unless it is a number that float32 holds."""
    value = float(cell) if _is_number(cell) else np.nan
    if not abs(value) <= LARGEST:
        expected = "a finite number" if _is_number(cell) else "a number"
        raise UserError(f"{path}, line {line}, column {column}: expected {expected}, got {cell!r}.")
    return value
