"""Read ZuCo subject files in MAT v5 / v7 (release 1.0), one sentence in memory at a time.

`scipy.io.loadmat` holds a whole variable in memory as Python objects, all 96 fields of every word, and does not detect
inconsistent sizes in a damaged file. This reader decodes only the requested fields, and checks that every size nests
exactly in the enclosing one. Layout: "MAT-File Format" (MathWorks), Level 5.
"""

import dataclasses
import math
import os
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Protocol

import numpy as np

from eeg2text_jax.data.recordings._features import (
    Damaged,
    Fields,
    Sentence,
    UnreadableRecording,
    Word,
    check_placeholder,
    make_word,
)

# Decode arrays of MAT v5 / v7 files: numbers, text, or the byte spans of a struct array's fields.
#
# Layout: "MAT-File Format" (MathWorks), Level 5. Every size is checked against the enclosing one.

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


HEADER = 128  # bytes at the start of a file
_CHUNK = 1 << 20  # bytes inflated at once


class _Plain:
    """The next `size` bytes of a file, as a `Source`: read once and in order."""

    def __init__(self, file: BinaryIO, size: int):
        self._file, self._left = file, size

    def _take(self, size: int) -> None:
        if size > self._left:
            raise Damaged("an array is larger than what holds it")
        self._left -= size

    def read(self, size: int) -> bytes:
        self._take(size)
        data = self._file.read(size)
        if len(data) < size:
            raise Damaged("the file is cut short")
        return data

    def skip(self, size: int) -> None:
        self._take(size)
        self._file.seek(size, os.SEEK_CUR)

    def finish(self) -> None:
        if self._left:
            raise Damaged("an array is smaller than what holds it")


class _Inflated:
    """The content of the next `size` zlib-compressed bytes of a file, as a `Source`; `finish` verifies the checksum."""

    def __init__(self, file: BinaryIO, size: int):
        self._compressed, self._size = _Plain(file, size), size
        self._zlib, self._pending = zlib.decompressobj(), b""
        self._ready, self._at = b"", 0  # inflated bytes, and how many of them are read

    def _inflate(self) -> bool:
        """Inflate at most `_CHUNK` more bytes; return False at the end."""
        self._ready, self._at = b"", 0
        while not self._ready and not self._zlib.eof:
            if not self._pending:
                # Small steps, because zlib copies the input that is left at every step.
                step = min(_CHUNK >> 4, self._size)
                if not step:
                    break
                self._size -= step
                self._pending = self._compressed.read(step)
            try:
                self._ready = self._zlib.decompress(self._pending, _CHUNK)
            except zlib.error as error:
                raise Damaged(f"its compressed data are damaged ({error})") from error
            self._pending = self._zlib.unconsumed_tail
        return bool(self._ready)

    def _take(self, size: int) -> tuple[int, int]:
        """Consume up to `size` bytes; return their start and end in `_ready`."""
        if self._at == len(self._ready) and not self._inflate():
            raise Damaged("its compressed data end too early")
        begin = self._at
        self._at = min(begin + size, len(self._ready))
        return begin, self._at

    def read(self, size: int) -> bytes:
        parts = []
        while size:
            begin, end = self._take(size)
            parts.append(self._ready[begin:end])
            size -= end - begin
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def skip(self, size: int) -> None:
        while size:
            begin, end = self._take(size)
            size -= end - begin

    def finish(self) -> None:
        left = self._at < len(self._ready) or self._inflate()
        if left or not self._zlib.eof or self._zlib.unused_data or self._size:
            raise Damaged("its compressed data do not end where they should")


def byte_order(header: bytes) -> str | None:
    """Return the byte order, `"<"` or `">"`, in the 128-byte header of a Level 5 file; None for another header."""
    order = {b"IM": "<", b"MI": ">"}.get(header[126:128])
    if order is None or len(header) < HEADER:
        return None
    return order if struct.unpack(f"{order}H", header[124:126])[0] >> 8 == 1 else None


class StructArray:
    """The struct array called `name` in a Level 5 file; iterating yields the `wanted` fields of each struct.

    Fields are bytes that `Decoder.array` decodes. The file is consistent only if the iteration ends without an error.
    Raises Damaged if the bytes violate the format, LookupError (names of all variables) if none is called `name`.
    """

    def __init__(self, file: BinaryIO, name: str, wanted: frozenset[str]):
        file.seek(0)
        order = byte_order(file.read(HEADER))
        if order is None:
            raise Damaged("its header is not that of a MATLAB v5 file")
        self.decoder = Decoder(order)
        self._file, self._wanted = file, wanted
        self._end = Path(file.name).stat().st_size
        labels = []
        for source in self._variables():
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

    def _variables(self) -> Iterator[Source]:
        """Yield a source for each variable of the file; the source begins with the variable's `miMATRIX` tag."""
        position = HEADER
        while position < self._end:
            self._file.seek(position)
            tag = self._file.read(8)
            if len(tag) < 8:
                raise Damaged("the file is cut short")
            kind, size = self.decoder.tag(tag)
            if position + 8 + size > self._end:
                raise Damaged("the file is cut short")
            if kind == COMPRESSED:
                yield _Inflated(self._file, size)
            elif kind == MATRIX:
                self._file.seek(position)
                yield _Plain(self._file, size + 8)
            else:
                raise Damaged(f"type {kind} where a variable was expected")
            position += 8 + size

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


_NOTHING = np.empty(0)


def read_mat_v5(path: Path, fields: Fields) -> Iterator[Sentence]:
    """Yield the sentences of one subject in the order of the file.

    Raises UnreadableRecording for a damaged file; the caller must then discard the sentences yielded before.
    """
    with path.open("rb") as file:
        try:
            array = StructArray(file, "sentenceData", frozenset({"content", "word", *fields.sentence}))
            if missing := {"content", "word"} - set(array.fields):
                raise UnreadableRecording(path, f"its sentenceData has no field {', '.join(sorted(missing))}.")
            for number, element in enumerate(array, 1):
                try:
                    yield _sentence(array.decoder, element, fields)
                except Damaged as error:
                    raise Damaged(f"sentence {number}: {error}") from error
        except LookupError as error:
            raise UnreadableRecording(
                path,
                "is a MATLAB file but no ZuCo recording: expected a struct array sentenceData, "
                f"found {', '.join(map(str, error.args)) or 'nothing'}.",
            ) from error
        except Damaged as error:
            raise UnreadableRecording(path, f"is damaged or cut short ({error}); fetch it again.") from error


def _sentence(decoder: Decoder, element: dict[str, bytes], fields: Fields) -> Sentence:
    content = decoder.array(element["content"]).text or ""
    means = tuple(
        _numbers(decoder.array(element[name]), name) if name in element else _NOTHING for name in fields.sentence
    )
    words = decoder.array(element["word"])
    if not words.fields:
        check_placeholder(words.numbers)
        return Sentence(content, None, (), frozenset(), means)
    read = _words(decoder, element["word"], words, fields)
    return Sentence(content, read, tuple(word.content for word in read), frozenset(words.fields), means)


def _words(decoder: Decoder, data: bytes, words: Array, fields: Fields) -> tuple[Word, ...]:
    width = len(words.fields)
    place = {name: i for i, name in enumerate(words.fields)}
    if "content" not in place:
        raise Damaged("its words have no content")

    def field(word: int, name: str) -> Array:
        if name not in place:
            return Array((0, 0), _NOTHING)
        return decoder.array(data, *words.spans[word * width + place[name]])

    read = []
    for i in range(len(words.spans) // width):
        count = _numbers(field(i, "nFixations"), "nFixations")
        eeg = tuple(_numbers(field(i, name), name) for name in fields.word)
        read.append(make_word(i + 1, field(i, "content").text or "", count, eeg))
    return tuple(read)


def _numbers(array: Array, name: str) -> np.ndarray:
    if array.numbers is None:
        raise Damaged(f"{name} is not numeric")
    return array.numbers
