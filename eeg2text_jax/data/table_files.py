"""Read tables (`.tsv`, `.csv`), Parquet files and Hugging Face data sets; write data files as Parquet.

A table has numeric feature columns and a line per word, sentence or window of time. A header may name columns
(`data.columns`): `word`, `sentence`, `sentence_index` (or `sentence_id`), `subject`, `task`, and the columns of time if
`recording` or `onset` is among them. A sentence continues while subject, task and number (else `sentence`) stay the
same; without such columns, until a blank line.

In Parquet files and data sets, a feature cell is a list of numbers (`[F]`) or a list of lists (`[W, F]`). A file that
`eeg2text export-data` wrote is restored exactly.
"""

import dataclasses
import itertools
import json
import mmap
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from eeg2text_jax.base.errors import UserError, first_line
from eeg2text_jax.base.files import parse_json, replacing
from eeg2text_jax.base.packages import library, parquet_errors
from eeg2text_jax.data.clock import CLOCK_COLUMNS, known_time, parse_time
from eeg2text_jax.data.datafile import STRINGS, DataFile, electrodes_of
from eeg2text_jax.data.rows import SUBJECT, Columns, SentenceNumbers, check_named, note_unused, source_of_rows
from eeg2text_jax.data.source import Sample, Source, Tally, files_of, read_cells

TASK = "table"  # default task
LARGEST = float(np.finfo(np.float32).max)  # features are stored as float32
Row = tuple[int, list[str]]  # line number from 1, cells


@dataclasses.dataclass(frozen=True)
class Roles:
    """The column number (from 0) of each role; None if no column has it."""

    features: tuple[int, ...]
    word: int | None
    sentence: int | None = None
    subject: int | None = None
    task: int | None = None
    number: int | None = None
    clock: dict[str, int] = dataclasses.field(default_factory=dict)  # name in `CLOCK_COLUMNS` -> column number

    @property
    def group(self) -> tuple[int, ...]:
        """Columns whose values stay the same within a sentence."""
        number = self.sentence if self.number is None else self.number
        return tuple(column for column in (self.subject, self.task, number) if column is not None)


def table_samples(
    path: str | os.PathLike[str],
    word_column: int,
    feature_columns: Sequence[int],
    columns: Columns | None = None,
    tally: Tally | None = None,
) -> Iterator[Sample]:
    """Yield the sentences of a `.csv`, else TSV, file as samples.

    A first line whose feature cells are all text is a header. Words are in the column number `word_column`; 0: the
    column `word` of the header, or the first if there is neither `word` nor `sentence`. Features are in the
    `feature_columns`; empty: all other columns that are numeric in the first row. `tally` collects notes.

    Raises UserError for a damaged or uneven table, a feature that is no finite number, an empty word, numbers in place
    of words, or a sentence that begins again after it ended.
    """
    path, tally = Path(path), tally or Tally()
    rows = [(line, cells if any(map(str.strip, cells)) else []) for line, cells in read_cells(path)]
    if (first := next((cells for _, cells in rows if cells), None)) is None:
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
    if header:
        names = [name.strip() for name in first]
        shown = [names[column] for column in roles.features]
        if not feature_columns:
            tally.notes.append(
                f"{path}: features are its {len(shown)} numeric columns without another role: {', '.join(shown)[:200]}."
            )
        places = (roles.word, roles.sentence, roles.subject, roles.task, roles.number, *roles.clock.values())
        used = [*shown, *(names[column] for column in places if column is not None)]
        lacking = {role: role for role in ("subject", "task") if getattr(roles, role) is None}
        tally.not_used(names, used, str(path), lacking)
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
    times = {name: cells[column] for name, column in roles.clock.items()}
    return Sample(*about, **parse_time(times, f"{path}, line {line}", default=f"{names['subject']}/{names['task']}"))


def _text(path: Path, sentence: list[Row], roles: Roles) -> str:
    """Return the cell `sentence` if it has several words or there is no column of words; else the words."""
    line, cells = sentence[0]
    whole = "" if roles.sentence is None else " ".join(cells[roles.sentence].split())
    if roles.word is None:
        if not whole:
            raise UserError(f"{path}, line {line}: the sentence (column {roles.sentence}) is empty.")
        return whole
    for line, cells in sentence:
        if not cells[roles.word].strip():
            raise UserError(f"{path}, line {line}: the word (column {roles.word}) is empty.")
    words = " ".join(part for _, cells in sentence for part in cells[roles.word].split())
    return whole if " " in whole else words


def _roles(
    path: Path, rows: list[Row], word_column: int, feature_columns: tuple[int, ...], columns: Columns
) -> tuple[Roles, bool]:
    """Return the columns' roles, and whether the first line is a header."""
    filled = [cells for _, cells in rows if cells][:2]
    header = [cell.strip().lower() for cell in filled[0]]
    named = len(filled) > 1 and any(map(_is_number, filled[1])) and not any(map(_is_number, filled[0]))
    place = {name: header.index(name) for name in header if named}

    def found(names: Iterable[tuple[str, str]]) -> dict[str, int]:
        return {role: place[name.lower()] for role, name in names if name.lower() in place}

    # The later of two names of a role counts.
    column_of = found([("number", "sentence_id"), ("number", columns.sentence_index)])
    column_of |= found((role, getattr(columns, role)) for role in ("word", "sentence", "subject", "task"))
    if word_column or not {"word", "sentence"} & column_of.keys():
        column_of["word"] = word_column
    times = found((name, getattr(columns, name)) for name in CLOCK_COLUMNS)
    if not {"recording", "onset"} & times.keys():
        times = {}  # `duration` alone may be a feature
    features = _feature_columns(path, filled, (*column_of.values(), *times.values()), feature_columns)
    is_header = not any(_is_number(filled[0][i]) for i in features)
    return Roles(features, column_of.pop("word", None), **column_of, clock=times), is_header


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
        numeric = tuple(i for i in range(width) if i not in others and i < len(cells) and _is_number(cells[i]))
        if numeric:
            return numeric
    raise UserError(f"{path}: the first line has no numeric column; expected a word and its features.")


def _sentences(path: Path, rows: list[Row], roles: Roles) -> list[list[Row]]:
    """Divide rows into sentences at blank lines and changes of `roles.group`."""
    sentences: list[list[Row]] = []
    last_line: dict[tuple[str, ...] | None, int] = {}

    def key_of(row: Row) -> tuple[str, ...] | None:
        return tuple(row[1][column].strip() for column in roles.group) if row[1] else None

    for key, group in itertools.groupby(rows, key_of):
        if key is None:
            continue
        sentence = list(group)
        if roles.number is not None and key in last_line:
            raise UserError(
                f"{path}, line {sentence[0][0]}: sentence {key[-1]!r} begins again after it ended on line "
                f"{last_line[key]}; put the lines of a sentence together, or give repeated readings other numbers."
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
            f"{path}: {lines} lines make {len(sentences)} recordings, as consecutive lines of one sentence count as "
            "its windows; a column `sentence_index` would tell repeated recordings apart."
        )


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _feature(path: Path, line: int, column: int, cell: str) -> float:
    if (is_number := _is_number(cell)) and abs(value := float(cell)) <= LARGEST:
        return value
    expected = "a finite number" if is_number else "a number"
    raise UserError(f"{path}, line {line}, column {column}: expected {expected}, got {cell!r}.")


ROWS = 64  # samples a block; 64 x 56 x 840 numbers are 12 MB
ABOUT = b"eeg2text"  # key in a Parquet file's metadata: JSON of features_are and provenance


def is_dataset(path: Path) -> bool:
    """Return whether a folder is a `Dataset` or `DatasetDict` that `datasets` saved."""
    return path.is_dir() and any((path / name).is_file() for name in ("state.json", "dataset_dict.json"))


def open_parquet(paths: list[Path], columns: Columns, tally: Tally) -> Source:
    """Open Parquet files as one source. Raises UserError for a missing file, and reading for a damaged one."""
    schema = _parquet(paths[0]).schema_arrow
    try:
        about = dict(parse_json((schema.metadata or {}).get(ABOUT, b"{}")))  # what `write_parquet` stored
    except ValueError:
        about = {}
    described = about.pop("features_are", "")
    provenance = {"source": "parquet", "files": files_of(paths), **about}
    note_unused(schema.names, columns, paths[0].name, tally)
    columns = dataclasses.replace(columns, features_are=columns.features_are or described)
    rows = (row for path in paths for row in parquet_rows(path, columns))
    return source_of_rows(rows, columns, ", ".join(path.name for path in paths), paths[0].name, provenance, tally)


def open_dataset(folder: Path, columns: Columns, tally: Tally) -> Source:
    """Open a folder that `datasets` saved. Raises UserError if it is damaged or datasets missing."""
    datasets = library("datasets", "datasets")
    try:
        dataset = datasets.load_from_disk(str(folder))
    except Exception as error:
        raise UserError(f"{folder}: cannot be read as a data set ({first_line(error)}).") from error
    parts = dict(dataset) if isinstance(dataset, datasets.DatasetDict) else {"": dataset}
    names = dict.fromkeys(name for part in parts.values() for name in part.column_names)
    note_unused(names, columns, folder.name, tally)
    rows = (
        row
        for name, part in parts.items()
        for table in part.with_format("arrow").iter(ROWS)
        for row in table_rows(table, columns, f"{folder} ({name})" if name else str(folder))
    )
    provenance = {"source": "datasets", "name": folder.name, "parts": {name: len(part) for name, part in parts.items()}}
    return source_of_rows(rows, columns, str(folder), folder.name, provenance, tally)


def parquet_rows(path: Path, columns: Columns) -> Iterator[dict[str, Any]]:
    """Yield each row as column name -> value. Raises UserError if the file is damaged or lacks a column."""
    file = _parquet(path)
    check_named(file.schema_arrow.names, columns, str(path))
    names = [name for name in (columns.features, *columns.of_samples) if name in file.schema_arrow.names]
    try:
        for batch in file.iter_batches(ROWS, columns=names):
            yield from table_rows(batch, columns, str(path))
    except parquet_errors() as error:
        raise UserError(f"{path}: is damaged or cut short ({first_line(error)}); copy it again.") from error


def table_rows(table: Any, columns: Columns, where: str) -> Iterator[dict[str, Any]]:
    """Yield each row of a pyarrow table or batch as column name -> value, with features as an array."""
    pa = library("pyarrow", "parquet")
    table = pa.Table.from_batches([table]) if isinstance(table, pa.RecordBatch) else table
    check_named(table.column_names, columns, where)
    others = {name: table.column(name).to_pylist() for name in columns.of_samples if name in table.column_names}
    arrays = _arrays(pa, table.column(columns.features), columns.features, where)
    for i, features in enumerate(arrays):
        yield {columns.features: features, **{name: values[i] for name, values in others.items()}}


def _arrays(pa: Any, column: Any, name: str, where: str) -> Iterator[np.ndarray]:
    """Yield each cell of a column of lists as an array `[F]` or `[W, F]`."""
    lists = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
    for chunk in column.chunks:
        storage = chunk.storage if isinstance(chunk, pa.ExtensionArray) else chunk
        numbers, depth = storage.type, 0
        while any(is_list(numbers) for is_list in lists):
            numbers, depth = numbers.value_type, depth + 1
        if depth not in (1, 2) or not (pa.types.is_floating(numbers) or pa.types.is_integer(numbers)):
            raise UserError(
                f"{where}: column {name!r} is of type {storage.type}; expected lists of numbers [features], or lists "
                "of such lists [words, features]."
            )
        for cell in storage:
            if (words := cell.values) is None:
                raise UserError(f"{where}: column {name!r} has an empty cell; expected features in every row.")
            if depth == 1:
                yield words.to_numpy(zero_copy_only=False)
                continue
            widths = set(words.value_lengths().to_pylist()) or {0}
            if len(widths) > 1 or None in widths:
                raise UserError(
                    f"{where}: a cell of {name!r} has words with different numbers of features; expected the same "
                    "number for every word."
                )
            yield words.flatten().to_numpy(zero_copy_only=False).reshape(len(words), *widths)


def _parquet(path: Path) -> Any:
    pa, pq = library("pyarrow", "parquet"), library("pyarrow.parquet", "parquet")
    try:
        with path.open("rb") as file:  # mapped, as pyarrow takes no name that is not UTF-8
            source = pa.BufferReader(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        return pq.ParquetFile(source, page_checksum_verification=True)  # `write_parquet` stores checksums
    except parquet_errors() as error:
        raise UserError(f"{path}: cannot be read as a Parquet file ({first_line(error)}).") from error


def write_parquet(data: DataFile, out: Path) -> None:
    """Write a data file as Parquet, a sample a row; `prepare` restores it."""
    pa, pq = library("pyarrow", "parquet"), library("pyarrow.parquet", "parquet")
    about: dict[str, Any] = {"features_are": data.features_are, "exported": data.provenance}
    about |= {"electrodes": places} if (places := electrodes_of(data)) else {}
    about |= {"sfreq": data.sfreq, "channels": data.channels, "types": data.types} if data.is_waves else {}
    clock = {} if data.clock is None else CLOCK_COLUMNS
    kinds = {str: pa.string(), float: pa.float64(), int: pa.int64()}
    columns = {"features": pa.list_(pa.list_(pa.float32())), **dict.fromkeys(STRINGS, pa.string())}
    columns |= {"sentence_index": pa.int64(), **{name: kinds[kind] for name, kind in clock.items()}}
    schema = pa.schema(columns, metadata={ABOUT: json.dumps(about).encode()})
    out.parent.mkdir(parents=True, exist_ok=True)
    # An open file, as pyarrow takes no name that is not UTF-8.
    with (
        replacing(out) as partial,
        partial.open("wb") as file,
        pq.ParquetWriter(file, schema, write_page_checksum=True) as writer,
    ):
        for start in range(0, len(data), ROWS):
            rows = range(start, min(start + ROWS, len(data)))
            offsets = data.offsets[rows.start : rows.stop + 1]
            words = data.features[offsets[0] : offsets[-1]]
            inner = pa.ListArray.from_arrays(
                pa.array(np.arange(len(words) + 1) * data.n_features, pa.int32()), pa.array(words.reshape(-1))
            )
            features = pa.ListArray.from_arrays(pa.array(offsets - offsets[0], pa.int32()), inner)
            part = slice(rows.start, rows.stop)
            texts = [pa.array(list(map(str, getattr(data, name)[part])), pa.string()) for name in STRINGS]
            index = pa.array(data.sentence_index[part], pa.int64())
            stated = [known_time(data.clock, i) for i in rows] if clock else []
            times = [pa.array([row.get(name) for row in stated], kinds[kind]) for name, kind in clock.items()]
            writer.write_batch(pa.record_batch([features, *texts, index, *times], schema=schema))
