"""Read the pickles of Wang & Ji's scripts (and of NeuSpeech's copy): one task, all subjects.

They have only fixated words, of the measures GD, FFD and TRT, and contain the errors of the scripts (see `features`).

Loading a pickle can execute any function that it names. Here the few names under which numpy writes arrays resolve to
the classes below and every other name is refused, so that not even numpy's own functions see the file's bytes.
"""

import collections
import pickle
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from eeg2text_jax.data.recordings.features import Fields, Sentence, UnreadableRecording, Word
from eeg2text_jax.errors import UserError, first_line


class Forbidden(Exception):
    """The pickle names a class or function that recordings do not need; the message is the name."""


class _Dtype:
    """Stand-in for `numpy.dtype`, for numbers alone; `__setstate__` sets the byte order."""

    def __init__(self, name: str, *_: Any):
        self.dtype: np.dtype = np.dtype(str(name)) if not isinstance(name, _Dtype) else name.dtype
        if self.dtype.kind not in "biuf":
            raise ValueError(f"an array of {name!r}, not of plain numbers")

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        order = state[1]
        if order in ("<", ">"):
            self.dtype = self.dtype.newbyteorder(order)


class _Array:
    """Stand-in for `numpy.ndarray`; `__setstate__` sets `value`, the array."""

    def __init__(self, *_: Any):
        self.value: np.ndarray | None = None

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _, shape, dtype, is_fortran, content = state
        self.value = _rebuild(content, dtype, shape, "F" if is_fortran else "C")


def _from_buffer(content: bytes, dtype: _Dtype, shape: tuple[int, ...], order: str = "C") -> _Array:
    array = _Array()
    array.value = _rebuild(content, dtype, shape, order)
    return array


def _rebuild(content: Any, dtype: Any, shape: Any, order: str) -> np.ndarray:
    if not isinstance(dtype, _Dtype) or not isinstance(content, bytes | bytearray):
        raise ValueError("an array whose elements are no numbers")
    flat = np.frombuffer(content, dtype.dtype)
    if flat.size != np.prod(shape, dtype=object):
        raise ValueError(f"an array of shape {shape} with {flat.size} numbers")
    return flat.reshape(shape, order="F" if order == "F" else "C")


def _scalar(dtype: _Dtype, content: bytes) -> float:
    return _rebuild(content, dtype, (), "C").item()


_ALLOWED = {("numpy", "ndarray"): _Array, ("numpy", "dtype"): _Dtype} | {
    (f"numpy.{core}.{module}", name): stand_in
    for core in ("core", "_core")  # numpy 1 and numpy 2
    for module, name, stand_in in (
        ("multiarray", "_reconstruct", _Array),
        ("multiarray", "scalar", _scalar),
        ("numeric", "_frombuffer", _from_buffer),
    )
}


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        try:
            return _ALLOWED[module, name]
        except KeyError:
            raise Forbidden(f"{module}.{name}") from None

    def persistent_load(self, pid: Any) -> Any:
        raise Forbidden("a persistent id")


def load_plain(file: BinaryIO) -> Any:
    """Load a pickle of numbers, text, containers and numeric arrays, which `array` converts.

    Raises Forbidden if it names another class or function (nothing was executed), and any Exception if it is damaged.
    """
    content = _Unpickler(file).load()
    if file.read(1):
        raise ValueError("data after its end")
    return content


def array(value: Any) -> np.ndarray:
    """Convert a loaded array, number or empty list to a flat array. Raises TypeError for other values."""
    if isinstance(value, _Array) and value.value is not None:
        return value.value.ravel()
    if isinstance(value, int | float) or (isinstance(value, list) and not value):
        return np.atleast_1d(np.asarray(value, np.float64))
    raise TypeError(f"{type(value).__name__} where numbers were expected")


MEASURES = ("GD", "FFD", "TRT")


def read_pickle(path: Path, fields: Fields) -> collections.OrderedDict[str, list[Sentence | None]]:
    """Return subject -> sentences, sorted by subject; None is a sentence that Wang & Ji's scripts found missing.

    Raises:
      UnreadableRecording: the file is no such pickle, is damaged, or names a class or function that is refused.
      UserError: the measure is not in these pickles.
    """
    if fields.measure not in MEASURES:
        raise UserError(
            f"{path}: Wang & Ji's pickles hold {', '.join(MEASURES)}, not {fields.measure}; "
            "choose another data.recordings.measure or read the MATLAB files."
        )
    try:
        with path.open("rb") as file:
            content = load_plain(file)
        if not isinstance(content, dict) or not content:
            raise TypeError("it holds no dictionary of subjects")
        subjects = collections.OrderedDict()
        for subject in sorted(content):
            subjects[subject] = [_sentence(item, fields) for item in content.pop(subject)]
    except Forbidden as error:
        raise UnreadableRecording(
            path, f"refused, nothing was executed: it names {error}, and recordings hold only arrays, text and numbers."
        ) from error
    except Exception as error:  # a damaged pickle makes the C unpickler raise nearly anything
        reason = f"missing {first_line(error)}" if isinstance(error, KeyError) else first_line(error)
        raise UnreadableRecording(
            path, f"is damaged or not a pickle by Wang & Ji's scripts ({type(error).__name__}: {reason})."
        ) from error
    return subjects


def _sentence(item: Any, fields: Fields) -> Sentence | None:
    if item is None:
        return None
    words = tuple(_word(word, fields) for word in item["word"])
    _check_tokens(item, words)
    means = tuple(array(item["sentence_level_EEG"][name]) for name in fields.sentence)
    return Sentence(_text(item["content"]), words, tuple(map(_text, item["word_tokens_all"])), frozenset(), means)


def _word(item: Any, fields: Fields) -> Word:
    measured = item["word_level_EEG"][fields.measure]
    count = array(item["nFixations"])
    return Word(_text(item["content"]), float(count.item()), tuple(array(measured[name]) for name in fields.word))


def _check_tokens(item: Any, words: tuple[Word, ...]) -> None:
    """Raise ValueError if the three lists of fixated words of a sentence differ: the file is damaged then."""
    contents = [word.content for word in words]
    masked, every = item["word_tokens_with_mask"], item["word_tokens_all"]
    fixated = [token for token, mask in zip(every, masked, strict=True) if mask != "[MASK]"]
    if contents != item["word_tokens_has_fixation"] or contents != fixated:
        raise ValueError("the words of a sentence contradict its list of tokens")


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{type(value).__name__} where text was expected")
    return value
