"""Decode arrays of MAT v5 / v7 files: numbers, text, or the byte spans of a struct array's fields.

Layout: "MAT-File Format" (MathWorks), Level 5. Every size is checked against the enclosing one.
"""

import dataclasses
import math
import struct
from typing import Protocol

import numpy as np

from eeg2text_jax.data.recordings.features import Damaged

MATRIX, COMPRESSED = 14, 15  # type numbers of data elements
_LARGEST_HEADER = 1 << 20
_STRUCT, _CHAR = 2, 4  # class numbers of arrays
_COMPLEX = 0x0800
_INT32, _UINT32 = 5, 6
_NAME_TYPES = (1, 2, 16)  # int8, uint8, UTF-8
_NUMERIC = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}
_TEXT = {1: "latin-1", 2: "latin-1", 4: "utf-16", 16: "utf-8", 17: "utf-16", 18: "utf-32"}
# Array class -> allowed storage types: MATLAB writes whole numbers in the smallest integer type that fits.
_STORED = {6: (1, 2, 3, 4, 5, 6, 9), 7: (1, 2, 3, 4, 7)} | dict.fromkeys(range(8, 16), (1, 2, 3, 4, 5, 6, 12, 13))


@dataclasses.dataclass(frozen=True, slots=True)
class Array:
    """A numeric array, a char array as text, or a struct array as byte spans of its fields."""

    dims: tuple[int, ...]
    numbers: np.ndarray | None = None  # flat, in column-major order
    text: str | None = None
    fields: tuple[str, ...] = ()
    spans: tuple[tuple[int, int], ...] = ()  # start and end of each field of each element, fields varying fastest


class Source(Protocol):
    """Bytes to read once and in order; `read` and `skip` raise Damaged if fewer than `size` are left."""

    def read(self, size: int) -> bytes: ...
    def skip(self, size: int) -> None: ...
    def finish(self) -> None:
        """Raise Damaged unless all bytes were read."""


class Decoder:
    """Decodes the bytes of arrays, without their `miMATRIX` tag, in the byte order `"<"` or `">"`."""

    def __init__(self, order: str):
        self._order = order
        self._pair = struct.Struct(f"{order}II")

    def tag(self, data: bytes) -> tuple[int, int]:
        return self._pair.unpack(data)

    def _part(self, data: bytes, at: int, stop: int) -> tuple[int, int, int, int]:
        """Return type, start and end of the data element at `at`, and the start of the next one."""
        if at + 8 > stop:
            raise Damaged("an array ends in the middle")
        kind, size = self._pair.unpack_from(data, at)
        if kind >> 16:  # small element: type and size share four bytes, the data have the other four
            kind, size, begin = kind & 0xFFFF, kind >> 16, at + 4
            following = at + 8
            if size > 4:
                raise Damaged("a small element is too large")
        else:
            begin = at + 8
            following = begin + size + -size % 8
        if begin + size > stop or following > stop + 7:
            raise Damaged("part of an array is larger than the array")
        return kind, begin, begin + size, following

    def _header(self, data: bytes, at: int, stop: int) -> tuple[int, tuple[int, ...], str, int]:
        """Return flags (low byte: class), dimensions and name of an array, and the start of its content."""
        kind, begin, end, at = self._part(data, at, stop)
        if kind != _UINT32 or end - begin != 8:
            raise Damaged("an array has no flags")
        flags = self._pair.unpack_from(data, begin)[0]
        kind, begin, end, at = self._part(data, at, stop)
        if kind not in (_INT32, _UINT32) or end - begin < 8 or (end - begin) % 4:
            raise Damaged("an array has no dimensions")
        dims = struct.unpack_from(f"{self._order}{(end - begin) // 4}i", data, begin)
        if min(dims) < 0:
            raise Damaged("an array has a negative dimension")
        kind, begin, end, at = self._part(data, at, stop)
        if kind not in _NAME_TYPES:
            raise Damaged("an array has no name")
        return flags, dims, data[begin:end].decode("latin-1"), at

    def _field_names(self, data: bytes, at: int, stop: int) -> tuple[tuple[str, ...], int]:
        kind, begin, end, at = self._part(data, at, stop)
        if kind != _INT32 or end - begin != 4:
            raise Damaged("a struct has no length of field names")
        width = struct.unpack_from(f"{self._order}i", data, begin)[0]
        kind, begin, end, at = self._part(data, at, stop)
        if kind not in _NAME_TYPES or width < 1 or (end - begin) % width:
            raise Damaged("a struct has no field names")
        names = [data[i : i + width].split(b"\0")[0].decode("latin-1") for i in range(begin, end, width)]
        if len(set(names)) < len(names):
            raise Damaged("a struct has two fields of one name")
        return tuple(names), at

    def open_matrix(self, source: Source) -> tuple[int, Array, str]:
        """Read a variable's tag and header; return the number of bytes left, an Array without values, its name."""
        kind, total = self.tag(source.read(8))
        if kind != MATRIX:
            raise Damaged("a variable does not begin where it should")
        if not total:
            return 0, Array((0, 0)), ""
        data = b""
        for _ in range(3):
            data += self._read_part(source)
        flags, dims, name, _ = self._header(data, 0, len(data))
        fields: tuple[str, ...] = ()
        if flags & 0xFF == _STRUCT:
            names = self._read_part(source) + self._read_part(source)
            fields, _ = self._field_names(names, 0, len(names))
            data += names
        if len(data) > total:
            raise Damaged("a variable is smaller than its header")
        return total - len(data), Array(dims, fields=fields), name

    def _read_part(self, source: Source) -> bytes:
        head = source.read(8)
        kind, size = self.tag(head)
        if kind >> 16:
            return head
        if size > _LARGEST_HEADER:
            raise Damaged("a variable's header is absurdly large")
        return head + source.read(size + -size % 8)

    def array(self, data: bytes, begin: int = 0, stop: int | None = None) -> Array:
        """Decode `data[begin:stop]` as numbers, text or a struct array; of other classes only the dimensions."""
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
        spans, pair = [], self._pair.unpack_from
        for _ in range(count):
            if at + 8 > stop:
                raise Damaged("a struct array ends in the middle")
            kind, size = pair(data, at)
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
        kind, begin, end, following = self._part(data, at, stop)
        if kind not in stored:
            raise Damaged(f"an array stores its numbers as type {kind}, which its class does not allow")
        dtype = np.dtype(f"{self._order}{_NUMERIC[kind]}")
        if end - begin != count * dtype.itemsize or following < stop:
            raise Damaged("the size of an array contradicts its dimensions")
        return np.frombuffer(data, dtype, count, begin)

    def _text(self, data: bytes, at: int, stop: int, count: int) -> str:
        if not count and at == stop:
            return ""
        kind, begin, end, following = self._part(data, at, stop)
        if kind not in _TEXT or following < stop:
            raise Damaged(f"text is stored as type {kind}")
        codec = _TEXT[kind]
        if codec in ("utf-16", "utf-32"):
            codec += "-le" if self._order == "<" else "-be"
        try:
            text = data[begin:end].decode(codec)
        except UnicodeDecodeError as error:
            raise Damaged(f"text is not {codec}") from error
        # Dimensions count UTF-16 units; some writers count characters.
        if count not in (len(text), len(text.encode("utf-16-le", "surrogatepass")) // 2, end - begin):
            raise Damaged("the length of a text contradicts its dimensions")
        return text
