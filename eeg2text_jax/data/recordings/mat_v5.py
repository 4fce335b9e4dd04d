"""Read ZuCo subject files in MAT v5 / v7 (release 1.0), one sentence in memory at a time.

`scipy.io.loadmat` holds a whole variable in memory as Python objects, all 96 fields of every word, and does not detect
inconsistent sizes in a damaged file. This reader decodes only the requested fields, and checks that every size nests
exactly in the enclosing one. Layout: "MAT-File Format" (MathWorks), Level 5.
"""

import math
import os
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import numpy as np

from eeg2text_jax.data.recordings.features import (
    Damaged,
    Fields,
    Sentence,
    UnreadableRecording,
    Word,
    check_placeholder,
    make_word,
)
from eeg2text_jax.data.recordings.matlab5_arrays import COMPRESSED, MATRIX, Array, Decoder, Source

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
        found = []
        for source in self._variables():
            total, array, label = self.decoder.open_matrix(source)
            if label == name and array.fields:
                self._source, self._left, self.fields = source, total, array.fields
                self.count = math.prod(array.dims)
                break
            found.append(label)
            source.skip(total)
            source.finish()
        else:
            raise LookupError(*found)
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
