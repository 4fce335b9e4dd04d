"""ZuCo subject files in MAT v5 / v7 (release 1.0 as published)."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from eeg2text_jax.data.recordings.matlab5 import StructArray
from eeg2text_jax.data.recordings.matlab5_arrays import Array, Damaged, Decoder
from eeg2text_jax.data.recordings.sentence import Fields, Sentence, UnreadableRecording, Word

_NOTHING = np.empty(0)


def read_mat_v5(path: Path, fields: Fields) -> Iterator[Sentence]:
    """Yields the sentences of one subject in the order of the file.

    Raises:
      UnreadableRecording: the file is damaged or holds something else; sentences yielded before are void then.
    """
    with path.open("rb") as file:
        try:
            array = StructArray(file, "sentenceData", frozenset({"content", "word", *fields.sentence}))
            missing = {"content", "word"} - set(array.fields)
            if missing:
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
        # A placeholder: NaN, or nothing at all. Anything else is not what a recording holds.
        if words.numbers is None or words.numbers.size > 1 or np.isfinite(words.numbers).any():
            raise Damaged("its words are no struct array")
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
        if count.size > 1:
            raise Damaged(f"word {i + 1} has {count.size} fixation counts")
        eeg = tuple(_numbers(field(i, name), name) for name in fields.word)
        read.append(Word(field(i, "content").text or "", float(count[0]) if count.size else None, eeg))
    return tuple(read)


def _numbers(array: Array, name: str) -> np.ndarray:
    if array.numbers is None:
        raise Damaged(f"{name} is not numeric")
    return array.numbers
