"""Read files as lines of text: archives are unpacked, UTF-16 decoded; tables of Parquet, Excel and HDF5 become CSV."""

import contextlib
import csv
import gzip
import hashlib
import io
import itertools
import json
import os
import re
import time
import unicodedata
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from typing import Any

from etils import epath

from eeg2text_jax.base.errors import UserError, first_line
from eeg2text_jax.base.packages import library, parquet_errors

LARGEST = 2**31  # bytes of an unpacked file; a million predictions have a tenth of it
CELLS = 50_000_000  # of a table, with the empty ones before a row's last cell
SECONDS = 300  # longest time in which such a table is read
TEXT = "CSV"  # kind of a file of text
PICKLE = "a Python pickle, which can run code and is not opened"
AS_TEXT = "write its texts as CSV or JSON"
# First bytes of unsupported files -> kind, and remedy.
OTHERS = {
    b"\xd0\xcf\x11\xe0": ("an Excel file of the format before 2007", "save it as .xlsx or as CSV"),
    **dict.fromkeys((b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05"), (PICKLE, AS_TEXT)),
    b"\x93NUMPY": ("a NumPy array", AS_TEXT),
    b'File type = "ooTextFile"': ("a TextGrid of Praat", AS_TEXT),
    b"%PDF": ("a PDF", AS_TEXT),
    **dict.fromkeys((b"BZh", b"\xfd7zXZ", b"\x28\xb5\x2f\xfd", b"7z\xbc\xaf", b"Rar!"), ("an archive", "unpack it")),
}
PICKLES = (".pkl", ".pickle", ".pt", ".pth", ".joblib")  # the first protocols have no mark
# Errors of libraries for damaged files; the ParseError of XML is a SyntaxError.
DAMAGE = (OSError, EOFError, LookupError, ValueError, TypeError, AttributeError, RuntimeError, SyntaxError)
DAMAGE += (zipfile.BadZipFile, zlib.error)
UTF_7 = re.compile(rb"\+[A-Za-z0-9/][A-Za-z0-9+/]+")
TITLES = 20  # rows of a sheet in which a header is searched; titles may stand above it
Rows = Iterator[Sequence[Any]]


class Lines:
    """The lines of a UTF-8 file without their ends (`\n`, `\r\n` or `\r`) and byte order mark.

    Other files are converted by `as_text`; `kind` names the kind, `digest` is the SHA-256. The file is read once (it
    may be a pipe) and kept as bytes; each pass decodes line by line, so a large file is never in memory as text.
    """

    def __init__(self, path: str | os.PathLike[str]):
        self.path = epath.Path(path)
        try:
            data = self.path.read_bytes()
        except OSError as error:
            raise UserError(f"{path}: cannot be read ({error.strerror or error}); check the path.") from error
        self.digest = hashlib.sha256(data).hexdigest()
        data, self.kind = as_text(data, self.path)
        self.data = data.removeprefix(b"\xef\xbb\xbf").replace(b"\r\n", b"\n").replace(b"\r", b"\n")

    def __iter__(self) -> Iterator[str]:
        start, number = 0, 1
        while start <= len(self.data):
            end = self.data.find(b"\n", start)
            end = len(self.data) if end < 0 else end
            try:
                yield self.data[start:end].decode()
            except UnicodeDecodeError as error:
                said = f"{self.path}, line {number}: not UTF-8 text ({error.reason})"
                how = f"with `iconv -f ENCODING -t UTF-8 {self.path.name} > new`; ENCODING may be WINDOWS-1252 for a"
                how += " Western language, GB18030 or BIG5 for Chinese, SHIFT_JIS for Japanese, EUC-KR for Korean"
                raise UserError(f"{said}; convert a text {how}.") from error
            start, number = end + 1, number + 1


def read_text(path: str | os.PathLike[str]) -> str:
    """Return the text of a file with `\n` as line ends."""
    return "\n".join(Lines(path))


def as_text(data: bytes, path: epath.Path) -> tuple[bytes, str]:
    """Return a file as UTF-8 text, and its kind."""
    if data.startswith(b"\x1f\x8b"):
        with damaged(path, "a gzip file that cannot be unpacked", "copy it again"):
            data = unpacked(gzip.GzipFile(fileobj=io.BytesIO(data)), path)
    kinds = [kind for magic, kind in OTHERS.items() if data.startswith(magic)]
    kinds += [(PICKLE, AS_TEXT)] if path.suffix.lower() in PICKLES else []
    kinds += [("a tar archive", "unpack it, and give one of its files")] if data[257:262] == b"ustar" else []
    for kind, cure in kinds:
        raise UserError(f"{path}: {kind}; {cure}.")
    if data.startswith((b"\xff\xfe", b"\xfe\xff")) or (data.isascii() and len(UTF_7.findall(data[:2000])) > 3):
        with contextlib.suppress(UnicodeDecodeError):
            text = data.decode("utf-7" if data.isascii() else "utf-16")
            if not data.isascii() or all(char.isascii() or unicodedata.category(char)[0] in "LMPZ" for char in text):
                return text.encode(), TEXT
    if data.startswith(b"PAR1"):
        return as_csv(parquet_rows(data, path), path), "Parquet"
    if data.startswith(b"\x89HDF"):
        return as_csv(hdf5_rows(data, path), path), "HDF5"
    if data.startswith(b"PK\x03\x04"):
        return zip_text(data, path)
    if 4 * max(data[::2].count(0), data[1::2].count(0)) > len(data) > 8:
        how = "convert it with `iconv -f UTF-16LE -t UTF-8`, or UTF-16BE"
        raise UserError(f"{path}: UTF-16 text without a mark; {how}.")
    return data, TEXT


@contextlib.contextmanager
def damaged(path: epath.Path, what: str, cure: str, *more: type[Exception]) -> Iterator[None]:
    """Turn errors of libraries for damaged files, and `more`, into one sentence."""
    try:
        yield
    except (*DAMAGE, *more) as error:
        raise UserError(f"{path}: {what} ({first_line(error):.80}); {cure}.") from error


def unpacked(file: Any, path: epath.Path) -> bytes:
    """Return the content of a file in an archive, of up to `LARGEST` bytes."""
    with file:
        content = file.read(LARGEST + 1)
    refuse_large(path, len(content))
    return content


def refuse_large(path: epath.Path, size: int = 0, cells: int = 0) -> None:
    """Raise UserError for more than `LARGEST` bytes or `CELLS` cells; packed, these may be small."""
    if cells > CELLS:
        raise UserError(f"{path}: the table has more than {CELLS:,} cells; save its columns of texts as CSV.")
    if size > LARGEST:
        raise UserError(f"{path}: unpacks to more than {LARGEST // 2**20} MiB; save a part of its texts as CSV.")


def parquet_rows(data: bytes, path: epath.Path) -> Rows:
    """Yield the names of the columns, then every row."""
    parquet = library("pyarrow.parquet", "parquet")
    with damaged(path, "cannot be read as Parquet", "write it again", *parquet_errors()):
        file = parquet.ParquetFile(io.BytesIO(data), page_checksum_verification=True)
        refuse_large(path, cells=file.metadata.num_rows * file.metadata.num_columns)
        yield file.schema_arrow.names
        for batch in file.iter_batches():
            yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)


def hdf5_rows(data: bytes, path: epath.Path) -> Rows:
    """Yield names and rows of texts: attributes of groups (a trial each), or data sets."""
    h5py = library("h5py", "h5py")
    with damaged(path, "cannot be read as HDF5", "copy it again"), h5py.File(io.BytesIO(data), "r") as file:
        trials = [item.attrs for item in file.values() if isinstance(item, h5py.Group)]
        if trials and any(isinstance(value, str | bytes) for value in trials[0].values()):
            yield [*trials[0]]
            yield from ([attributes.get(name) for name in trials[0]] for attributes in trials)
            return
        flat = {name: item for name, item in file.items() if isinstance(item, h5py.Dataset) and item.ndim == 1}
        texts = {name: item for name, item in flat.items() if h5py.check_string_dtype(item.dtype)}
        texts = {name: item for name, item in texts.items() if len(item) == max(map(len, texts.values()))}
        if not texts:
            raise UserError(f"{path}: an HDF5 file without texts of trials; {AS_TEXT}.")
        # Before anything is read: a small file may declare a huge table.
        refuse_large(path, sum(item.nbytes for item in texts.values()), sum(map(len, texts.values())))
        yield [*texts]
        yield from zip(*(item[()] for item in texts.values()), strict=True)


def zip_text(data: bytes, path: epath.Path) -> tuple[bytes, str]:
    """Return the text of a workbook, or of the only file in a zip archive, and its kind."""
    with (
        damaged(path, "a zip archive that cannot be read", "copy it again"),
        zipfile.ZipFile(io.BytesIO(data)) as archive,
    ):
        entries = [e for e in archive.infolist() if not e.is_dir() and not e.filename.startswith("__MACOSX/")]
        names = [entry.filename for entry in entries]
        refuse_large(path, sum(entry.file_size for entry in archive.infolist()))
        if "xl/workbook.xml" in names:
            return excel_text(data, path)
        if names and all(name.endswith(".npy") for name in names):
            raise UserError(f"{path}: a NumPy archive ({', '.join(names[:4])}); {AS_TEXT}.")
        if any(name.endswith(PICKLES) for name in names):
            raise UserError(f"{path}: holds {PICKLE}.")
        if len(entries) != 1:
            listed = ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
            raise UserError(f"{path}: a zip archive of {len(names)} files ({listed}); unpack it, and give one.")
        inner = unpacked(archive.open(entries[0]), path)
    if inner.startswith(b"PK\x03\x04") and b"xl/workbook.xml" not in inner:
        raise UserError(f"{path}: a zip archive in a zip archive; unpack it, and give one of its files.")
    return as_text(inner, path)


def excel_text(data: bytes, path: epath.Path) -> tuple[bytes, str]:
    """Return the first sheet with a table as CSV, and which one it is."""
    openpyxl = library("openpyxl", "xlsx")
    with damaged(path, "cannot be read as an Excel file", "save it as CSV"):
        sheets = openpyxl.load_workbook(io.BytesIO(data), read_only=True, data_only=True).worksheets
        for sheet in sheets:
            sheet.reset_dimensions()  # a file may state any size
        heads = {sheet.title: head for sheet in sheets if (head := _header(sheet))}
        sheet = next((sheet for sheet in sheets if sheet.title in heads), sheets[0])
        alike = [repr(title) for title, (_, names) in heads.items() if names == heads[sheet.title][1]]
        if len(alike) > 1:
            said = f"the sheets {', '.join(alike)} hold tables of the same columns, but only one sheet can be read"
            raise UserError(f"{path}: {said}; save each sheet as a file.")
        others = ", ".join(repr(other.title) for other in sheets if other is not sheet)
        kind = f"Excel, sheet {sheet.title!r}, not read: {others}" if others else "Excel, first sheet"
        rows = _filled(sheet.iter_rows(values_only=True), heads.get(sheet.title, (0, ()))[0])
        return as_csv(rows, path), kind


def _header(sheet: Any) -> tuple[int, tuple[Any, ...]] | None:
    """Return the number of rows above the header of a sheet, and the header; None without one.

    It is the first row with two filled cells, or with one beside the empty name of an index.
    """
    for number, row in enumerate(sheet.iter_rows(values_only=True, max_row=TITLES)):
        if (names := tuple(cell for cell in row if cell is not None)) and (len(names) > 1 or row[0] is None):
            return number, names
    return None


def _filled(rows: Rows, above: int) -> Rows:
    """Yield the rows below the first `above` ones, as wide as the first filled one; others are empty."""
    width = 0
    for row in itertools.islice(rows, above, None):
        width = width or max((i for i, cell in enumerate(row, 1) if cell is not None), default=0)
        if width:
            empty = all(cell is None for cell in row[:width])
            yield () if empty else (*row[:width], *[None] * (width - len(row)))


def as_csv(rows: Rows, path: epath.Path) -> bytes:
    """Return rows as CSV; None becomes "", a list JSON. An empty row counts as one cell."""
    out = io.StringIO(newline="")
    writer = csv.writer(out, lineterminator="\n")
    cells, end = 0, time.monotonic() + SECONDS
    for row in rows:
        cells += max(len(row), 1)
        writer.writerow(map(_cell, row))
        refuse_large(path, out.tell(), cells)
        if time.monotonic() > end:
            raise UserError(f"{path}: the table takes more than {SECONDS} s to read; save its columns of texts as CSV.")
    return out.getvalue().encode("utf8", "surrogatepass")


def _cell(value: Any) -> str:
    if isinstance(value, (list, tuple, dict)):
        return json.dumps(value, ensure_ascii=False, default=str)
    value = value.item() if getattr(value, "size", 0) == 1 else value  # of NumPy
    value = "" if value is None else value
    return value.decode("utf8", "replace") if isinstance(value, bytes) else str(value)
