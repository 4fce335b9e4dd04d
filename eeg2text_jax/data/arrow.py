"""Read Parquet files and Hugging Face data sets as rows; write data files as Parquet, block by block.

A column of features holds lists of numbers (`[F]`) or lists of lists (`[W, F]`) of any float or integer type, such as
an `Array2D` of datasets. A file written by `eeg2text export-data` is restored exactly.
"""

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from eeg2text_jax.data.clock import CLOCK_COLUMNS, known_time
from eeg2text_jax.data.datafile import STRINGS, DataFile
from eeg2text_jax.data.raw.electrodes import electrodes_of
from eeg2text_jax.data.rows import Columns, check_named, note_unused, source_of_rows
from eeg2text_jax.data.source import Source, files_of
from eeg2text_jax.data.tally import Tally
from eeg2text_jax.errors import UserError, first_line
from eeg2text_jax.files import parse_json, replacing
from eeg2text_jax.imports import library, parquet_errors

ROWS = 64  # samples per block; 64 x 56 x 840 numbers are 12 MB
ABOUT = b"eeg2text"  # key in a Parquet file's metadata: JSON of features_are and provenance


def is_dataset(path: Path) -> bool:
    """Return whether a folder is a `Dataset` or `DatasetDict` that `datasets` saved."""
    return path.is_dir() and any((path / name).is_file() for name in ("state.json", "dataset_dict.json"))


def open_parquet(paths: list[Path], columns: Columns, tally: Tally) -> Source:
    """Open Parquet files as one source. Raises UserError for a missing file; reading raises it for a damaged one."""
    about = _about(paths[0])
    described = about.pop("features_are", "")
    provenance = {"source": "parquet", "files": files_of(paths), **about}
    note_unused(_parquet(paths[0]).schema_arrow.names, columns, paths[0].name, tally)
    columns = dataclasses.replace(columns, features_are=columns.features_are or described)
    rows = (row for path in paths for row in parquet_rows(path, columns))
    return source_of_rows(rows, columns, ", ".join(path.name for path in paths), paths[0].name, provenance, tally)


def open_dataset(folder: Path, columns: Columns, tally: Tally) -> Source:
    """Open a folder saved by `datasets` as a source. Raises UserError if datasets is missing or the folder damaged."""
    datasets = library("datasets", "datasets")
    try:
        found = datasets.load_from_disk(str(folder))
    except Exception as error:
        raise UserError(f"{folder}: cannot be read as a data set ({first_line(error)}).") from error
    parts = dict(found) if isinstance(found, datasets.DatasetDict) else {"": found}
    names = dict.fromkeys(name for part in parts.values() for name in part.column_names)
    note_unused(names, columns, folder.name, tally)
    rows = (
        row
        for name, part in parts.items()
        for table in part.with_format("arrow").iter(ROWS)
        for row in table_rows(table, columns, f"{folder}{f' ({name})' if name else ''}")
    )
    provenance = {"source": "datasets", "name": folder.name, "parts": {name: len(part) for name, part in parts.items()}}
    return source_of_rows(rows, columns, str(folder), folder.name, provenance, tally)


def parquet_rows(path: Path, columns: Columns) -> Iterator[dict[str, Any]]:
    """Yield each row as column name -> value. Raises UserError if the file cannot be read or lacks a column."""
    file = _parquet(path)
    check_named(file.schema_arrow.names, columns, str(path))
    names = [name for name in (columns.features, *columns.of_samples) if name in file.schema_arrow.names]
    try:
        for batch in file.iter_batches(ROWS, columns=names):
            yield from table_rows(batch, columns, str(path))
    except parquet_errors() as error:
        raise UserError(f"{path}: is damaged or cut short ({first_line(error)}); copy it again.") from error


def table_rows(table: Any, columns: Columns, where: str) -> Iterator[dict[str, Any]]:
    """Yield each row of a pyarrow table or record batch as column name -> value, with the features as an array."""
    pa = library("pyarrow", "parquet")
    table = pa.Table.from_batches([table]) if isinstance(table, pa.RecordBatch) else table
    check_named(table.column_names, columns, where)
    others = {name: table.column(name).to_pylist() for name in columns.of_samples if name in table.column_names}
    arrays = _arrays(pa, table.column(columns.features), columns.features, where)
    for i, features in enumerate(arrays):
        yield {columns.features: features, **{name: values[i] for name, values in others.items()}}


def _arrays(pa: Any, column: Any, name: str, where: str) -> Iterator[np.ndarray]:
    """Yield each cell of a column of lists as an array `[F]` or `[W, F]`."""
    for chunk in column.chunks:
        storage = chunk.storage if isinstance(chunk, pa.ExtensionArray) else chunk
        inner = _items(pa, storage.type)
        nested = inner is not None and _items(pa, inner) is not None
        numbers = _items(pa, inner) if nested else inner
        if numbers is None or not (pa.types.is_floating(numbers) or pa.types.is_integer(numbers)):
            raise UserError(
                f"{where}: column {name!r} is of type {storage.type}; expected lists of numbers [features], or lists "
                "of such lists [words, features]."
            )
        for cell in storage:
            if cell.values is None:
                raise UserError(
                    f"{where}: column {name!r} has an empty cell; expected features in every row; remove the row."
                )
            flat = (cell.values.flatten() if nested else cell.values).to_numpy(zero_copy_only=False)
            yield flat.reshape(len(cell.values), _width(cell.values, name, where)) if nested else flat


def _items(pa: Any, kind: Any) -> Any:
    """Return the type of the items of a list type; None for other types."""
    lists = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
    return kind.value_type if any(is_list(kind) for is_list in lists) else None


def _width(words: Any, name: str, where: str) -> int:
    """Return the number of features of the words of a cell. Raises UserError if it differs between words."""
    widths = set(words.value_lengths().to_pylist()) if len(words) else {0}
    if len(widths) > 1 or None in widths:
        raise UserError(
            f"{where}: a cell of {name!r} has words with different numbers of features; expected the same number for "
            "every word."
        )
    return widths.pop()


def _parquet(path: Path) -> Any:
    pq = library("pyarrow.parquet", "parquet")
    try:
        return pq.ParquetFile(path, page_checksum_verification=True)  # `write_parquet` stores checksums
    except parquet_errors() as error:
        raise UserError(f"{path}: cannot be read as a Parquet file ({first_line(error)}).") from error


def _about(path: Path) -> dict[str, Any]:
    """Return the description and provenance that `write_parquet` stored; empty for other files."""
    metadata = _parquet(path).schema_arrow.metadata or {}
    try:
        return dict(parse_json(metadata.get(ABOUT, b"{}")))
    except ValueError:
        return {}


def write_parquet(data: DataFile, out: Path) -> None:
    """Write a data file as Parquet, one sample per row, with `features` as lists of lists of float32.

    pandas and datasets open the file; `eeg2text prepare` restores the same samples.
    """
    pa, pq = library("pyarrow", "parquet"), library("pyarrow.parquet", "parquet")
    about: dict[str, Any] = {"features_are": data.features_are, "exported": data.provenance}
    about |= {"electrodes": places} if (places := electrodes_of(data)) else {}
    clock = {} if data.clock is None else CLOCK_COLUMNS
    kinds = {str: pa.string(), float: pa.float64(), int: pa.int64()}
    schema = pa.schema(
        [("features", pa.list_(pa.list_(pa.float32()))), *((name, pa.string()) for name in STRINGS),
         ("sentence_index", pa.int64()), *((name, kinds[kind]) for name, kind in clock.items())],
        metadata={ABOUT: json.dumps(about).encode()},
    )  # fmt: skip
    out.parent.mkdir(parents=True, exist_ok=True)
    with replacing(out) as partial, pq.ParquetWriter(str(partial), schema, write_page_checksum=True) as writer:
        for start in range(0, len(data), ROWS):
            rows = range(start, min(start + ROWS, len(data)))
            offsets = data.offsets[rows.start : rows.stop + 1]
            words = data.features[offsets[0] : offsets[-1]]
            inner = pa.ListArray.from_arrays(
                pa.array(np.arange(len(words) + 1) * data.n_features, pa.int32()), pa.array(words.reshape(-1))
            )
            features = pa.ListArray.from_arrays(pa.array(offsets - offsets[0], pa.int32()), inner)
            texts = [pa.array(list(map(str, getattr(data, name)[rows.start : rows.stop])), pa.string())
                     for name in STRINGS]  # fmt: skip
            index = pa.array(data.sentence_index[rows.start : rows.stop], pa.int64())
            known = [known_time(data.clock, i) for i in rows] if clock else []
            times = [pa.array([row.get(name) for row in known], kinds[kind]) for name, kind in clock.items()]
            writer.write_batch(pa.record_batch([features, *texts, index, *times], schema=schema))
