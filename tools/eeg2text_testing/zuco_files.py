"""Structurally faithful ZuCo subject files with simulated EEG, in both of MATLAB's formats.

Arrays are in MATLAB's orientation; `None` stands for `[]`, a list of dictionaries for a struct array, `Cell` for a
cell array. All the irregularities of the real files are there: unfixated words, rejected fixations (NaN), missing
sentences, fields that a sentence lacks, a flat channel 104.
"""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import scipy.io
from h5py import h5a, h5d, h5g, h5r, h5s, h5t

from eeg2text_jax.data.recordings._features import BANDS, CHANNELS, MEASURES

PAIRS = 48  # of electrodes, for the left-right differences
NAN = np.array([[np.nan]])
Struct = dict[str, Any]


class Cell(list):
    """A MATLAB cell array, 1 x n."""


@dataclasses.dataclass(frozen=True)
class Irregularities:
    """How often what goes wrong (shares), and which sentences are special (indices)."""

    unfixated: float = 0.4  # of words
    rejected: float = 0.02  # of fixated words: the fixation exceeded 90 µV
    missing: tuple[int, ...] = ()  # sentences with a placeholder
    unread: tuple[int, ...] = ()  # sentences without any fixation: no rawEEG, rawET, SFD fields
    no_single: tuple[int, ...] = ()  # sentences without a word fixated once: no SFD fields
    answered: tuple[int, ...] = ()  # sentences followed by a control question


class Simulator:
    """Draws subjects; EEG comes in slices of one random pool, much faster than fresh noise.

    `raw_samples`: samples (2 ms each) of the raw EEG of a sentence and of a fixation.
    """

    def __init__(self, seed: int, dtype: type = np.float64, raw_samples: tuple[int, int] = (20, 6)):
        self._rng = np.random.default_rng(seed)
        self._dtype, self._raw = dtype, raw_samples
        self._pool = np.abs(self._rng.normal(3, 1.5, 1 << 20)).astype(dtype)

    def _draw(self, rows: int, columns: int) -> np.ndarray:
        start = self._rng.integers(len(self._pool) - rows * columns)
        return self._pool[start : start + rows * columns].reshape(rows, columns)

    def _bands(self, prefix: str, good: bool = True) -> Struct:
        fields: Struct = {}
        for suffix, width in (("", CHANNELS), ("_diff", PAIRS)):
            for band in BANDS:
                values = self._draw(1, width).copy() if good else np.full((1, width), np.nan, self._dtype)
                if good and not suffix:
                    values[0, -1] = 0  # Cz, the reference, is flat
                fields[f"{prefix}_{band}{suffix}"] = values
        return fields

    def subject(self, texts: Sequence[str], what: Irregularities) -> list[Struct]:
        """One subject reading `texts`: the elements of sentenceData."""
        return [self._sentence(i, text, what) for i, text in enumerate(texts)]

    def _sentence(self, i: int, text: str, what: Irregularities) -> Struct:
        good = i not in what.missing
        tokens = text.split(" ")
        sentence: Struct = {"content": text}
        sentence["rawData"] = self._draw(CHANNELS, self._raw[0]) if good else NAN
        sentence |= self._bands("mean", good)
        for band in BANDS:
            sentence[f"mean_{band}_sec"] = self._draw(1, CHANNELS) if good else NAN
            sentence[f"mean_{band}_diff_sec"] = self._draw(1, PAIRS) if good else NAN
        words = self._words(i, tokens, what) if good else None
        sentence["word"] = NAN if words is None else words
        unread = [word["nFixations"] is None for word in words or []]
        sentence["omissionRate"] = np.array([[np.mean(unread) if unread else np.nan]])
        sentence["allFixations"] = [{name: self._draw(1, 5) for name in ("x", "y", "duration", "pupilsize")}]
        sentence["wordbounds"] = np.arange(4.0 * len(tokens)).reshape(-1, 4)
        answered = self._bands("answer_mean", good)
        return sentence | (answered if i in what.answered else dict.fromkeys(answered))

    def _words(self, i: int, tokens: Sequence[str], what: Irregularities) -> list[Struct]:
        rng = self._rng
        unfixated = rng.random(len(tokens)) < what.unfixated
        counts = np.where(unfixated, 0, rng.choice([1, 2, 3], len(tokens), p=[0.7, 0.2, 0.1]))
        if i in what.unread:
            counts[:] = 0
        elif not counts.any():
            counts[-1] = 1
        if i in what.no_single:
            counts[counts == 1] = 2
        starts = np.cumsum(counts) - counts
        words = [self._word(token, int(n), int(s), what) for token, n, s in zip(tokens, counts, starts, strict=True)]
        if not counts.any():  # MATLAB adds a field to all elements when the first one gets it: here none did
            lacking: tuple[str, ...] = ("rawEEG", "rawET", "SFD")
        else:
            lacking = () if (counts == 1).any() else ("SFD",)
        return [{k: v for k, v in word.items() if not k.startswith(lacking or ("\0",))} for word in words]

    def _word(self, token: str, count: int, start: int, what: Irregularities) -> Struct:
        word: Struct = {"content": token}
        names = ("fixPositions", "nFixations", "meanPupilSize", "rawEEG", "rawET")
        measures = {name for m in MEASURES for name in (m, f"{m}_pupilsize")}
        if not count:
            return word | dict.fromkeys([*names, *sorted(measures), *self._band_names])
        rejected = self._rng.random() < what.rejected
        raw = [self._draw(CHANNELS, self._raw[1]) for _ in range(count)]
        if rejected:
            raw[0] = NAN
        word["fixPositions"] = np.arange(start + 1.0, start + count + 1).reshape(1, -1)
        word["nFixations"] = np.array([[float(count)]])
        word["meanPupilSize"] = self._draw(1, 1)
        word["rawEEG"] = Cell(raw)
        word["rawET"] = Cell([self._draw(4, self._raw[1]) for _ in range(count)])
        for measure in MEASURES:
            if measure == "SFD" and count != 1:
                word |= {"SFD": None, "SFD_pupilsize": None} | dict.fromkeys(self._bands("SFD"))
                continue
            lost = rejected and (count == 1 or measure == "FFD")
            word[measure] = np.array([[float(self._rng.integers(50, 400))]])
            word[f"{measure}_pupilsize"] = self._draw(1, 1)
            word |= self._bands(measure, good=not lost)
        return word

    @property
    def _band_names(self) -> list[str]:
        return [f"{m}_{band}{suffix}" for m in MEASURES for suffix in ("", "_diff") for band in BANDS]


def write_v5(path: Path, sentences: list[Struct], compress: bool = False) -> None:
    """Writes sentenceData as MAT v5, with `compress` as v7."""
    scipy.io.savemat(path, {"sentenceData": _v5_struct(sentences)}, do_compression=compress, appendmat=False)


def _v5_struct(elements: list[Struct]) -> np.ndarray:
    array = np.empty((1, len(elements)), [(name, object) for name in elements[0]])
    for i, element in enumerate(elements):
        for name, value in element.items():
            array[0, i][name] = _v5_value(value)
    return array


def _v5_value(value: Any) -> Any:
    if value is None:
        return np.zeros((0, 0))
    if isinstance(value, Cell):
        cell = np.empty((1, len(value)), object)
        for i, item in enumerate(value):
            cell[0, i] = _v5_value(item)
        return cell
    return _v5_struct(value) if isinstance(value, list) else value


def write_v73(path: Path, sentences: list[Struct], share_empty: bool = False) -> None:
    """Writes sentenceData as MAT v7.3; with `share_empty`, all `[]` are one array, which saves half of the objects."""
    with h5py.File(path, "w", userblock_size=512) as file:
        _V73(file, share_empty).struct(file.id, b"sentenceData", sentences)
    with path.open("r+b") as stream:
        stream.write(b"MATLAB 7.3 MAT-file, simulated".ljust(116) + bytes(8) + b"\x00\x02IM")


class _V73:
    """Adds values to a file, those behind references under `#refs#`; low-level calls, as files have 10^5 objects."""

    def __init__(self, file: h5py.File, share_empty: bool):
        self._refs, self._count = file.create_group("#refs#").id, 0
        self._one = h5s.create_simple((1,))
        self._share_empty = share_empty
        self.value(self._refs, b"empty", None)

    def _references(self, group: h5g.GroupID, name: bytes, values: Sequence[Any]) -> h5d.DatasetID:
        references = np.empty((len(values), 1), h5py.ref_dtype)
        for i, value in enumerate(values):
            target = b"empty"
            if value is not None or not self._share_empty:
                target, self._count = b"%x" % self._count, self._count + 1
                self.value(self._refs, target, value)
            references[i, 0] = h5r.create(self._refs, target, h5r.OBJECT)
        return self._array(group, name, references)

    def struct(self, parent: h5g.GroupID, name: bytes, elements: list[Struct]) -> None:
        group = h5g.create(parent, name)
        for field in elements[0]:
            if len(elements) == 1:  # the fields of a 1x1 struct are not behind references
                self.value(group, field.encode(), elements[0][field])
            else:
                self._references(group, field.encode(), [element[field] for element in elements])

    def value(self, group: h5g.GroupID, name: bytes, value: Any) -> None:
        if isinstance(value, Cell):
            self._label(self._references(group, name, value), b"MATLAB_class", b"cell")
        elif isinstance(value, list):
            self.struct(group, name, value)
        elif value is None:
            self._label(self._array(group, name, np.zeros(2, "u8")), b"MATLAB_empty", b"\1")
        elif isinstance(value, str):
            units = np.frombuffer(value.encode("utf-16-le"), "<u2").reshape(-1, 1)
            self._label(self._array(group, name, units), b"MATLAB_class", b"char")
        else:
            self._array(group, name, np.ascontiguousarray(value.T))

    def _array(self, group: h5g.GroupID, name: bytes, values: np.ndarray) -> h5d.DatasetID:
        kind = h5t.py_create(values.dtype, logical=True)
        dataset = h5d.create(group, name, kind, h5s.create_simple(values.shape))
        dataset.write(h5s.ALL, h5s.ALL, values)
        return dataset

    def _label(self, dataset: h5d.DatasetID, name: bytes, value: bytes) -> None:
        content = np.frombuffer(value, f"S{len(value)}") if name == b"MATLAB_class" else np.ones(1, "u1")
        h5a.create(dataset, name, h5t.py_create(content.dtype, logical=True), self._one).write(content)
