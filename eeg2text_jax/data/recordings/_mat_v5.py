"""Read ZuCo subject files in MAT v5 / v7 (release 1.0), one sentence in memory at a time.

`scipy.io.loadmat` holds all 96 fields of every word in memory, and does not detect inconsistent sizes. This reader
decodes the requested fields alone, and checks that each size fills the enclosing one. Layout: "MAT-File Format"
(MathWorks), Level 5.
"""

import dataclasses
import math
import os
import struct
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

import numpy as np

from eeg2text_jax.data.recordings._features import Damaged, Fields, Sentence, Structs, make_sentence
from eeg2text_jax.data.source import UnreadableRecording

MATRIX, COMPRESSED = 14, 15  # types of data elements
_LARGEST_HEADER = 1 << 20
_STRUCT, _CHAR = 2, 4  # classes of arrays
_COMPLEX = 0x0800
_INT32, _UINT32 = 5, 6
_NAME_TYPES = (1, 2, 16)  # int8, uint8, UTF-8
_NUMERIC = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}
_TEXT = {1: "latin-1", 2: "latin-1", 4: "utf-16", 16: "utf-8", 17: "utf-16", 18: "utf-32"}
# Array class -> storage types: MATLAB writes whole numbers in the smallest type that fits.
_STORED = {6: (1, 2, 3, 4, 5, 6, 9), 7: (1, 2, 3, 4, 7)} | dict.fromkeys(range(8, 16), (1, 2, 3, 4, 5, 6, 12, 13))
HEADER = 128  # bytes
_CHUNK = 1 << 20  # bytes inflated at once


@dataclasses.dataclass(frozen=True, slots=True)
class Array:
    """A numeric array, a text, or a struct array as byte spans of its fields."""

    dims: tuple[int, ...]
    numbers: np.ndarray | None = None  # flat, column-major
    text: str | None = None
    fields: tuple[str, ...] = ()
    spans: tuple[tuple[int, int], ...] = ()  # of each field of each element, fields varying fastest


class _Plain:
    """The next `size` bytes of a file, read in order; beyond them, Damaged is raised."""

    def __init__(self, file: BinaryIO, size: int):
        self._file, self._left = file, size

    def _take(self, size: int) -> None:
        if size > self._left:
            raise Damaged("an array is larger than what holds it")
        self._left -= size

    def read(self, size: int) -> bytes:
        self._take(size)
        if len(data := self._file.read(size)) < size:
            raise Damaged("the file is cut short")
        return data

    def skip(self, size: int) -> None:
        self._take(size)
        self._file.seek(size, os.SEEK_CUR)

    def finish(self) -> None:
        """Raise Damaged unless all bytes were read."""
        if self._left:
            raise Damaged("an array is smaller than what holds it")


class _Inflated(_Plain):
    """The content of the next `size` zlib-compressed bytes; `finish` verifies the checksum."""

    def __init__(self, file: BinaryIO, size: int):
        super().__init__(file, size)
        self._chunks, self._ready = self._inflate(), memoryview(b"")

    def _inflate(self) -> Iterator[memoryview]:
        inflater, pending = zlib.decompressobj(), b""
        while not inflater.eof and (pending or self._left):
            # Small steps, as zlib copies the rest of its input at each.
            pending = pending or super().read(min(_CHUNK >> 4, self._left))
            try:
                inflated = inflater.decompress(pending, _CHUNK)
            except zlib.error as error:
                raise Damaged(f"its compressed data are damaged ({error})") from error
            pending = inflater.unconsumed_tail
            if inflated:
                yield memoryview(inflated)
        if not inflater.eof or inflater.unused_data or self._left:
            raise Damaged("its compressed data do not end where they should")

    def _parts(self, size: int) -> Iterator[memoryview]:
        while size:
            self._ready = self._ready or next(self._chunks, self._ready)
            if not self._ready:
                raise Damaged("its compressed data end too early")
            part, self._ready = self._ready[:size], self._ready[size:]
            size -= len(part)
            yield part

    def read(self, size: int) -> bytes:
        return b"".join(self._parts(size))

    def skip(self, size: int) -> None:
        for _ in self._parts(size):
            pass

    def finish(self) -> None:
        if self._ready or next(self._chunks, None):
            raise Damaged("its compressed data do not end where they should")


class Decoder:
    """Decodes arrays, without their `miMATRIX` tag, in the byte order `"<"` or `">"`."""

    def __init__(self, order: str):
        self._order = order
        self.tag = struct.Struct(f"{order}II").unpack_from  # type and size of a data element

    def _part(self, data: bytes, at: int, stop: int) -> tuple[int, bytes, int]:
        """Return type and content of the element at `at`, and the start of the next."""
        if at + 8 > stop:
            raise Damaged("an array ends in the middle")
        kind, size = self.tag(data, at)
        begin, following = at + 8, at + 8 + size + -size % 8
        if kind >> 16:  # a small element: type and size in four bytes, data in the other four
            kind, size, begin, following = kind & 0xFFFF, kind >> 16, at + 4, at + 8
            if size > 4:
                raise Damaged("a small element is too large")
        if begin + size > stop or following > stop + 7:
            raise Damaged("part of an array is larger than the array")
        return kind, data[begin : begin + size], following

    def _header(self, data: bytes, at: int, stop: int) -> tuple[int, tuple[int, ...], str, int]:
        """Return flags (low byte: class), dimensions, name and start of content."""
        kind, flags, at = self._part(data, at, stop)
        if kind != _UINT32 or len(flags) != 8:
            raise Damaged("an array has no flags")
        kind, sizes, at = self._part(data, at, stop)
        if kind not in (_INT32, _UINT32) or len(sizes) < 8 or len(sizes) % 4:
            raise Damaged("an array has no dimensions")
        dims = struct.unpack(f"{self._order}{len(sizes) // 4}i", sizes)
        if min(dims) < 0:
            raise Damaged("an array has a negative dimension")
        kind, name, at = self._part(data, at, stop)
        if kind not in _NAME_TYPES:
            raise Damaged("an array has no name")
        return self.tag(flags)[0], dims, name.decode("latin-1"), at

    def _field_names(self, data: bytes, at: int, stop: int) -> tuple[tuple[str, ...], int]:
        kind, length, at = self._part(data, at, stop)
        if kind != _INT32 or len(length) != 4:
            raise Damaged("a struct has no length of field names")
        (width,) = struct.unpack(f"{self._order}i", length)
        kind, packed, at = self._part(data, at, stop)
        if kind not in _NAME_TYPES or width < 1 or len(packed) % width:
            raise Damaged("a struct has no field names")
        names = [packed[i : i + width].split(b"\0")[0].decode("latin-1") for i in range(0, len(packed), width)]
        if len(set(names)) < len(names):
            raise Damaged("a struct has two fields of one name")
        return tuple(names), at

    def open_matrix(self, source: _Plain) -> tuple[int, Array, str]:
        """Read a variable's tag and header; return the bytes left, an Array without values, its name."""
        kind, total = self.tag(source.read(8))
        if kind != MATRIX:
            raise Damaged("a variable does not begin where it should")
        if not total:
            return 0, Array((0, 0)), ""
        data = b"".join(self._read_part(source) for _ in range(3))
        flags, dims, name, end = self._header(data, 0, len(data))
        fields: tuple[str, ...] = ()
        if flags & 0xFF == _STRUCT:
            data += self._read_part(source) + self._read_part(source)
            fields, _ = self._field_names(data, end, len(data))
        if len(data) > total:
            raise Damaged("a variable is smaller than its header")
        return total - len(data), Array(dims, fields=fields), name

    def _read_part(self, source: _Plain) -> bytes:
        head = source.read(8)
        kind, size = self.tag(head)
        if kind >> 16:
            return head
        if size > _LARGEST_HEADER:
            raise Damaged("a variable's header is absurdly large")
        return head + source.read(size + -size % 8)

    def array(self, data: bytes, begin: int = 0, stop: int | None = None) -> Array:
        """Decode `data[begin:stop]`; of classes other than numbers, text and structs only the dimensions."""
        stop = len(data) if stop is None else stop
        if begin == stop:  # MATLAB may write [] without a header
            return Array((0, 0), np.empty(0))
        flags, dims, _, at = self._header(data, begin, stop)
        kind, count = flags & 0xFF, math.prod(dims)
        if kind == _STRUCT:
            fields, at = self._field_names(data, at, stop)
            return Array(dims, fields=fields, spans=self._spans(data, at, stop, count * len(fields)))
        if kind == _CHAR:
            return Array(dims, text=self._text(data, at, stop, count))
        if kind in _STORED and not flags & _COMPLEX:
            return Array(dims, self._numbers(data, at, stop, count, _STORED[kind]))
        return Array(dims)

    def _spans(self, data: bytes, at: int, stop: int, count: int) -> tuple[tuple[int, int], ...]:
        if count * 8 > stop - at:
            raise Damaged("a struct array claims more entries than it has bytes for")
        spans, tag = [], self.tag
        for _ in range(count):
            if at + 8 > stop:
                raise Damaged("a struct array ends in the middle")
            kind, size = tag(data, at)
            if kind != MATRIX:
                raise Damaged("a field does not begin where it should")
            begin, at = at + 8, at + 8 + size
            spans.append((begin, at))
        if at != stop:
            raise Damaged("the fields of a struct array do not fill its bytes")
        return tuple(spans)

    def _numbers(self, data: bytes, at: int, stop: int, count: int, stored: tuple[int, ...]) -> np.ndarray:
        if not count and at == stop:
            return np.empty(0)
        kind, content, following = self._part(data, at, stop)
        if kind not in stored:
            raise Damaged(f"an array stores its numbers as type {kind}, which its class does not allow")
        dtype = np.dtype(f"{self._order}{_NUMERIC[kind]}")
        if len(content) != count * dtype.itemsize or following < stop:
            raise Damaged("the size of an array contradicts its dimensions")
        return np.frombuffer(content, dtype)

    def _text(self, data: bytes, at: int, stop: int, count: int) -> str:
        if not count and at == stop:
            return ""
        kind, content, following = self._part(data, at, stop)
        if kind not in _TEXT or following < stop:
            raise Damaged(f"text is stored as type {kind}")
        codec = _TEXT[kind]
        if codec in ("utf-16", "utf-32"):
            codec += "-le" if self._order == "<" else "-be"
        try:
            text = content.decode(codec)
        except UnicodeDecodeError as error:
            raise Damaged(f"text is not {codec}") from error
        # UTF-16 units; some writers count characters.
        if count not in (len(text), len(text.encode("utf-16-le", "surrogatepass")) // 2, len(content)):
            raise Damaged("the length of a text contradicts its dimensions")
        return text


def byte_order(header: bytes) -> str | None:
    """Return the byte order, `"<"` or `">"`, of a header of Level 5; None for another."""
    order = {b"IM": "<", b"MI": ">"}.get(header[126:128])
    return order if order and struct.unpack(f"{order}H", header[124:126])[0] >> 8 == 1 else None


class StructArray:
    """The struct array `name` of a Level 5 file; iterating yields the `wanted` fields of each struct.

    Fields are bytes for `Decoder.array`, right only if the iteration ends without an error. Raises Damaged, or
    LookupError (names of all variables) if none is called `name`.
    """

    def __init__(self, file: BinaryIO, name: str, wanted: frozenset[str]):
        file.seek(0)
        order = byte_order(file.read(HEADER))
        if order is None:
            raise Damaged("its header is not that of a MATLAB v5 file")
        self.decoder, self._wanted = Decoder(order), wanted
        labels = []
        for source in self._variables(file):
            total, array, label = self.decoder.open_matrix(source)
            if label == name and array.fields:
                self._source, self._left, self.fields = source, total, array.fields
                self.count = math.prod(array.dims)
                break
            labels.append(label)
            source.skip(total)
            source.finish()
        else:
            raise LookupError(*labels)
        if self.count * len(self.fields) * 8 > self._left:
            raise Damaged(f"{name} claims {self.count} entries, more than it has bytes for")

    def _variables(self, file: BinaryIO) -> Iterator[_Plain]:
        """Yield the bytes of each variable, from its `miMATRIX` tag on."""
        position, end = HEADER, Path(file.name).stat().st_size
        while position < end:
            file.seek(position)
            tag = file.read(8)
            kind, size = self.decoder.tag(tag) if len(tag) == 8 else (0, end)
            position += 8 + size
            if position > end:
                raise Damaged("the file is cut short")
            if kind == COMPRESSED:
                yield _Inflated(file, size)
            elif kind == MATRIX:
                file.seek(-8, os.SEEK_CUR)
                yield _Plain(file, size + 8)
            else:
                raise Damaged(f"type {kind} where a variable was expected")

    def __iter__(self) -> Iterator[dict[str, bytes]]:
        for _ in range(self.count):
            element = {}
            for field in self.fields:
                kind, size = self.decoder.tag(self._source.read(8))
                self._left -= 8 + size
                if kind != MATRIX or self._left < 0:
                    raise Damaged(f"{field} does not begin where it should")
                if field in self._wanted:
                    element[field] = self._source.read(size)
                else:
                    self._source.skip(size)
            yield element
        if self._left:
            raise Damaged("the sizes of its entries do not add up")
        self._source.finish()


def read_mat_v5(path: Path, fields: Fields) -> Iterator[Sentence]:
    """Yield the sentences of a subject in the order of the file.

    Raises UnreadableRecording for a damaged file; the sentences before are then to be discarded.
    """
    with path.open("rb") as file:
        try:
            array = StructArray(file, "sentenceData", frozenset({"content", "word", *fields.sentence}))
            if missing := {"content", "word"} - set(array.fields):
                raise UnreadableRecording(path, f"its sentenceData has no field {', '.join(sorted(missing))}.")
            for number, element in enumerate(array):
                place = {name: (data,) for name, data in element.items()}
                structs = _Structs(array.decoder, place, 1, lambda name, _: place[name])  # noqa: B023 - used at once
                yield make_sentence(structs, 0, fields, number)
        except LookupError as error:
            what = "is a MATLAB file but no ZuCo recording: expected a struct array sentenceData, found"
            raise UnreadableRecording(path, f"{what} {', '.join(map(str, error.args)) or 'nothing'}.") from error
        except Damaged as error:
            raise UnreadableRecording(path, f"is damaged or cut short ({error}); fetch it again.") from error


class _Structs(Structs):
    def __init__(self, decoder: Decoder, names: Iterable[str], count: int, place: Callable[[str, int], tuple]):
        """`place(name, i)`: arguments of `decoder.array` for a field of struct `i`."""
        self._decoder, self._place, self.fields, self.count = decoder, place, frozenset(names), count

    def _array(self, name: str, i: int) -> Array:
        return self._decoder.array(*self._place(name, i)) if name in self.fields else Array((0, 0), np.empty(0))

    def text(self, i: int) -> str:
        return self._array("content", i).text or ""

    def numbers(self, name: str, i: int) -> np.ndarray:
        if (numbers := self._array(name, i).numbers) is None:
            raise Damaged(f"{name} is not numeric")
        return numbers

    def words(self, i: int) -> "_Structs | np.ndarray | None":
        data, array = self._place("word", i)[0], self._array("word", i)
        if not (width := len(array.fields)):
            return array.numbers
        column = {name: k for k, name in enumerate(array.fields)}
        count = len(array.spans) // width
        return _Structs(self._decoder, column, count, lambda name, w: (data, *array.spans[w * width + column[name]]))
