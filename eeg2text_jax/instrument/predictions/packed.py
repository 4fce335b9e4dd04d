"""Read files as lines of text: `.gz` is unpacked, UTF-16 decoded, Parquet and Excel tables become CSV with a header."""

import contextlib
import csv
import gzip
import hashlib
import io
import itertools
import json
import os
import time
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from typing import Any

from etils import epath

from eeg2text_jax.base.errors import UserError, first_line
from eeg2text_jax.base.packages import library, parquet_errors

LARGEST = 2**31  # largest number of bytes of an unpacked file; a million predictions have a tenth of it
CELLS = 50_000_000  # most cells of an Excel, Parquet or HDF5 table, with the empty ones before a row's last cell
SECONDS = 300  # longest time in which such a table is read
TEXT = "CSV"  # kind of a file that is text already
HDF5 = "HDF5"  # kind of a file whose bytes are kept, see `_containers.hdf5_table`
# First bytes of unsupported files -> their kind, and the user's remedy.
OTHERS = {
    b"\xd0\xcf\x11\xe0": ("an Excel file of the format before 2007", "save it as .xlsx or as CSV"),
    **dict.fromkeys(
        (b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05"),
        ("a Python pickle, which can run code and is not opened", "write its texts as CSV or JSON"),
    ),
    b"\x93NUMPY": ("a NumPy array", "write its texts as CSV or JSON"),
    b"%PDF": ("a PDF", "write its texts as CSV or JSON"),
    **dict.fromkeys((b"BZh", b"\xfd7zXZ", b"\x28\xb5\x2f\xfd", b"7z\xbc\xaf", b"Rar!"), ("an archive", "unpack it")),
}
PICKLES = (".pkl", ".pickle", ".pt", ".pth", ".joblib")  # of any protocol; the first ones have no mark of their own
TITLES = 20  # rows of a sheet in which a header is searched; titles may stand above it


class Lines:
    """The lines of a UTF-8 file without their ends (`\\n`, `\\r\\n` or `\\r`) and byte order mark.

    Other kinds of files are converted first, see `as_text`; `kind` names the kind, `digest` is the SHA-256. The file is
    read once (it may be a pipe) and kept as bytes; each pass decodes one line at a time, so a large file is never in
    memory as text. Raises UserError if the file cannot be read, and at a line that is not UTF-8.
    """

    def __init__(self, path: str | os.PathLike[str]):
        self.path = epath.Path(path)
        try:
            data = self.path.read_bytes()
        except OSError as error:
            raise UserError(f"{path}: cannot be read ({error.strerror or error}); check the path.") from error
        self.digest = hashlib.sha256(data).hexdigest()
        data, self.kind = as_text(data, self.path)
        if self.kind != HDF5:
            data = data.removeprefix(b"\xef\xbb\xbf").replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        self.data = data

    def __iter__(self) -> Iterator[str]:
        start, number = 0, 1
        while start <= len(self.data):
            end = self.data.find(b"\n", start)
            end = len(self.data) if end < 0 else end
            try:
                yield self.data[start:end].decode()
            except UnicodeDecodeError as error:
                raise UserError(
                    f"{self.path}, line {number}: not UTF-8 text ({error.reason}); convert the file to UTF-8"
                    f"{conversion(self.data, self.path)}."
                ) from error
            start, number = end + 1, number + 1


def read_text(path: str | os.PathLike[str]) -> str:
    """Return the text of a file with `\\n` as line ends; see `Lines`."""
    return "\n".join(Lines(path))


def as_text(data: bytes, path: epath.Path) -> tuple[bytes, str]:
    """Return the content of a file as UTF-8 text, and its kind in words.

    Raises UserError for a damaged or too large archive, an unsupported kind of file, or if a library is missing.
    """
    if data.startswith(b"\x1f\x8b"):
        data = unpack(data, path)
    if path.suffix.lower() in PICKLES:
        raise UserError(
            f"{path}: a Python pickle, which can run code and is not opened; write its texts as CSV or JSON."
        )
    if data[257:262] == b"ustar":
        raise UserError(f"{path}: a tar archive; unpack it, and give one of its files.")
    for magic, (kind, cure) in OTHERS.items():
        if data.startswith(magic):
            raise UserError(f"{path}: {kind}; {cure}.")
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        with contextlib.suppress(UnicodeDecodeError):
            return data.decode("utf-16").encode(), TEXT
    if data.startswith(b"PAR1"):
        return as_csv(bounded(parquet_rows(data, path), path), path), "Parquet"
    if data.startswith(b"PK\x03\x04"):
        return zip_text(data, path)
    return data, HDF5 if data.startswith(b"\x89HDF") else TEXT


def conversion(data: bytes, path: epath.Path) -> str:
    """Return a hint to the command that converts Windows text to UTF-8, "" if the bytes are no Windows text."""
    try:
        text = data.decode("cp1252")
    except UnicodeDecodeError:
        return ""
    likely = "\0" not in text and 4 * sum(not character.isascii() for character in text) < len(text)
    return f", for example with `iconv -f WINDOWS-1252 -t UTF-8 {path.name} > new`" if likely else ""


def unpack(data: bytes, path: epath.Path) -> bytes:
    """Return the content of a gzip file. Raises UserError if it is damaged or larger than `LARGEST`."""
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(data)) as file:
            content = file.read(LARGEST + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise UserError(f"{path}: a gzip file that cannot be unpacked ({error}); copy it again.") from error
    if len(content) > LARGEST:
        raise UserError(f"{path}: unpacks to more than {LARGEST // 2**20} MiB; unpack it, and give a part of it.")
    return content


def parquet_rows(data: bytes, path: epath.Path) -> Iterator[Sequence[Any]]:
    """Yield the names of the columns, then every row. Raises UserError without pyarrow or for a damaged file."""
    parquet = library("pyarrow.parquet", "parquet")
    try:
        file = parquet.ParquetFile(io.BytesIO(data), page_checksum_verification=True)
        if file.metadata.num_rows * file.metadata.num_columns > CELLS:  # a file of one text, repeated, is small
            raise too_many_cells(path)
        yield file.schema_arrow.names
        for batch in file.iter_batches():
            yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)
    except parquet_errors() as error:
        raise UserError(f"{path}: cannot be read as Parquet ({first_line(error)}); write it again.") from error


def bounded(rows: Iterator[Sequence[Any]], path: epath.Path) -> Iterator[Sequence[Any]]:
    """Yield rows of cells. Raises UserError beyond `CELLS` cells (an empty row counts as one) or `SECONDS`."""
    cells, end = 0, time.monotonic() + SECONDS
    for row in rows:
        cells += max(len(row), 1)
        if cells > CELLS:
            raise too_many_cells(path)
        if time.monotonic() > end:
            raise UserError(f"{path}: the table takes more than {SECONDS} s to read; save its columns of texts as CSV.")
        yield row


def check_size(path: epath.Path, cells: int, size: int) -> None:
    """Raise UserError for a table of more than `CELLS` cells or `LARGEST` bytes, as a small file may declare."""
    if cells > CELLS:
        raise too_many_cells(path)
    if size > LARGEST:
        raise UserError(f"{path}: unpacks to more than {LARGEST // 2**20} MiB; save a part of it as CSV.")


def too_many_cells(path: epath.Path) -> UserError:
    return UserError(f"{path}: the table has more than {CELLS:,} cells; save its columns of texts as CSV.")


def zip_text(data: bytes, path: epath.Path) -> tuple[bytes, str]:
    """Return the text of an Excel workbook, or of the only file in a zip archive, and its kind in words.

    Raises UserError for an archive of several files, a damaged or too large one, and one that holds a pickle or arrays.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            entries = [e for e in archive.infolist() if not e.is_dir() and not e.filename.startswith("__MACOSX/")]
            names = [entry.filename for entry in entries]
            if sum(entry.file_size for entry in archive.infolist()) > LARGEST:
                raise UserError(f"{path}: unpacks to more than {LARGEST // 2**20} MiB; give a part of it as CSV.")
            if "xl/workbook.xml" in names:
                return excel_text(data, path)
            if names and all(name.endswith(".npy") for name in names):
                raise UserError(f"{path}: a NumPy archive ({', '.join(names[:4])}); write its texts as CSV or JSON.")
            if any(name.endswith(PICKLES) for name in names):
                raise UserError(f"{path}: holds a Python pickle, which can run code and is not opened.")
            if len(entries) != 1:
                listed = ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
                raise UserError(f"{path}: a zip archive of {len(names)} files ({listed}); unpack it, and give one.")
            with archive.open(entries[0]) as file:
                inner = file.read(LARGEST + 1)
    except (zipfile.BadZipFile, zlib.error, RuntimeError, NotImplementedError, EOFError, ValueError) as error:
        raise UserError(f"{path}: a zip archive that cannot be read ({error!s:.80}); copy it again.") from error
    if len(inner) > LARGEST:
        raise UserError(f"{path}: unpacks to more than {LARGEST // 2**20} MiB; unpack it, and give a part of it.")
    if inner.startswith(b"PK\x03\x04") and b"xl/workbook.xml" not in inner:
        raise UserError(f"{path}: a zip archive in a zip archive; unpack it, and give one of its files.")
    return as_text(inner, path)


def excel_text(data: bytes, path: epath.Path) -> tuple[bytes, str]:
    """Return the first sheet with a table as CSV, and a phrase that says which sheet was read.

    Raises UserError for a damaged workbook, or if two sheets have the same columns, as for two conditions.
    """
    openpyxl = library("openpyxl", "xlsx")
    try:
        sheets = openpyxl.load_workbook(io.BytesIO(data), read_only=True, data_only=True).worksheets
        for sheet in sheets:
            sheet.reset_dimensions()  # rows end at their last cell; the size that a file states may be anything
        heads = {sheet.title: head for sheet in sheets if (head := _header(sheet))}
        sheet = next((sheet for sheet in sheets if sheet.title in heads), sheets[0])
        alike = [title for title, (_, names) in heads.items() if names == heads[sheet.title][1]]
        if len(alike) > 1:
            raise UserError(
                f"{path}: the sheets {', '.join(map(repr, alike))} hold tables of the same columns, but only one sheet "
                "can be read; save each sheet as a file."
            )
        others = ", ".join(repr(other.title) for other in sheets if other is not sheet)
        kind = f"Excel, sheet {sheet.title!r}, not read: {others}" if others else "Excel, first sheet"
        rows = bounded(sheet.iter_rows(values_only=True), path)
        return as_csv(_cells(rows, heads.get(sheet.title, (0, ()))[0]), path), kind
    except (LookupError, ValueError, TypeError, AttributeError, SyntaxError, zipfile.BadZipFile, zlib.error) as error:
        # The ParseError of xml.etree, for a damaged sheet, is a SyntaxError.
        raise UserError(f"{path}: cannot be read as an Excel file ({error!r:.80}); save it as CSV.") from error


def _header(sheet: Any) -> tuple[int, tuple[Any, ...]] | None:
    """Return (rows above the header, header) of a sheet, or None.

    The header is the first row with two filled cells, or with one that is not in the first column, as pandas writes the
    name of a column beside its index.
    """
    for number, row in enumerate(sheet.iter_rows(values_only=True, max_row=TITLES)):
        if (names := tuple(cell for cell in row if cell is not None)) and (len(names) > 1 or row[0] is None):
            return number, names
    return None


def _cells(rows: Iterator[Sequence[Any]], above: int) -> Iterator[Sequence[Any]]:
    """Yield the rows below the first `above` ones, as wide as the first row with a filled cell.

    Empty rows are (), and none is above the first filled row or below the last one.
    """
    width = empty = 0
    for row in itertools.islice(rows, above, None):
        width = width or max((i for i, cell in enumerate(row, 1) if cell is not None), default=0)
        row = row[:width]
        if all(cell is None for cell in row):
            empty += width > 0
            continue
        yield from itertools.repeat((), empty)
        yield (*row, *[None] * (width - len(row)))
        empty = 0


def as_csv(rows: Iterator[Sequence[Any]], path: epath.Path) -> bytes:
    """Return rows of cells as CSV; None becomes "", a list becomes JSON. Raises UserError beyond `LARGEST`."""
    out = io.StringIO(newline="")
    writer = csv.writer(out, lineterminator="\n")
    for row in rows:
        writer.writerow([_cell(value) for value in row])
        if out.tell() > LARGEST:
            raise UserError(f"{path}: unpacks to more than {LARGEST // 2**20} MiB; save a part of it as CSV.")
    return out.getvalue().encode("utf8", "surrogatepass")


def _cell(value: Any) -> str:
    if isinstance(value, (list, tuple, dict)):
        return json.dumps(value, ensure_ascii=False, default=str)
    value = "" if value is None else value
    return value.decode("utf8", "replace") if isinstance(value, bytes) else str(value)
