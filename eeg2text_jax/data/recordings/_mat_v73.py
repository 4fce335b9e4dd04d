"""Read ZuCo subject files in MAT v7.3, which is HDF5 (release 2.0, and re-exports of 1.0).

A struct array is a group with a dataset of object references per field; a 1x1 struct, a group of the fields. Axes are
reversed.
"""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import TypeAlias

import h5py
import numpy as np
from h5py import h5a, h5d, h5g, h5o, h5r, h5s, h5t

from eeg2text_jax.base.errors import first_line
from eeg2text_jax.data.datafile import HDF5_ERRORS, check_size, open_own
from eeg2text_jax.data.recordings._features import Damaged, Fields, Sentence, Structs, make_sentence
from eeg2text_jax.data.source import UnreadableRecording

Target: TypeAlias = h5g.GroupID | h5d.DatasetID
_LARGEST = 1 << 16  # numbers or characters of a field; the largest real one is a sentence's text
_MOST_ENTRIES = 1 << 16  # of a struct array; real ones have a few hundred


def read_mat_v73(path: Path, fields: Fields) -> Iterator[Sentence]:
    """Yield sentences as `read_mat_v5` does."""
    try:
        with h5py.File(path, "r") as file:
            yield from _sentences(path, file, fields)
    except Damaged as error:
        raise UnreadableRecording(path, f"is damaged ({error}); fetch it again.") from error
    except HDF5_ERRORS as error:
        raise UnreadableRecording(path, f"is damaged or cut short ({first_line(error)}); fetch it again.") from error


def _sentences(path: Path, file: h5py.File, fields: Fields) -> Iterator[Sentence]:
    group = open_own(file["/"].id, b"sentenceData") if "sentenceData" in file else None
    if not isinstance(group, h5g.GroupID):
        contents = ", ".join(sorted(set(file) - {"#refs#", "#subsystem#"})) or "nothing"
        raise UnreadableRecording(
            path, f"is an HDF5 file but no ZuCo recording: expected a group sentenceData, found {contents}."
        )
    references = _References(file)
    sentences = _Structs(references, group)
    if missing := {"content", "word"} - set(sentences.fields):
        raise UnreadableRecording(path, f"its sentenceData has no {', '.join(sorted(missing))}.")
    for i in range(sentences.count):
        yield make_sentence(sentences, i, fields, i)
    references.check()


class _References:
    """All object references of a file, to check that no two lead to the same array.

    A changed byte can redirect one to another word's array. MATLAB stores the empty array once, so that may be shared.
    """

    def __init__(self, file: h5py.File):
        self.file = file
        self._added: list[tuple[np.ndarray, h5g.GroupID, bytes]] = []  # addresses; where they stand

    def add(self, group: h5g.GroupID, name: bytes, dataset: h5d.DatasetID) -> None:
        """Add the references in a field of `group`; raise Damaged if their number is absurd."""
        count = math.prod(dataset.shape)
        if count > _MOST_ENTRIES:
            raise Damaged(f"{name.decode()} claims {count} entries")
        check_size(dataset, name.decode())
        addresses = np.empty(dataset.shape, "u8")
        dataset.read(h5s.ALL, h5s.ALL, addresses, h5t.STD_REF_OBJ)
        self._added.append((addresses.ravel(), group, name))

    def check(self) -> None:
        """Raise Damaged if two references lead to the same array that is not empty."""
        addresses, counts = np.unique(np.concatenate([targets for targets, *_ in self._added]), return_counts=True)
        shared = set(addresses[counts > 1].tolist())
        for targets, group, name in self._added:
            if not shared:
                return
            for place in np.flatnonzero(np.isin(targets, list(shared))):
                if targets[place] in shared:
                    if not _is_empty(_targets(self.file, h5o.open(group, name))[place]):
                        raise Damaged("two of its references lead to the same array")
                    shared.discard(int(targets[place]))


class _Structs(Structs):
    def __init__(self, references: _References, group: h5g.GroupID):
        self._references = references
        self._members = {name.decode(): open_own(group, name) for name in group}
        self._targets: dict[str, list[Target]] = {}
        self.fields, self.count = frozenset(self._members), 1
        content = self._members.get("content")
        # `content` tells: text in a 1x1 struct, references in an array. Other fields may be references in both.
        self._is_single = content is None or not _holds_references(content)
        if self._is_single:
            return
        self.count = math.prod(content.shape)
        for name, member in self._members.items():
            if not _holds_references(member):
                raise Damaged(f"{name} holds no references")
            if math.prod(member.shape) != self.count:
                raise Damaged(f"{name} has {math.prod(member.shape)} entries, content has {self.count}")
            references.add(group, name.encode(), member)

    def _field(self, name: str, i: int) -> Target | None:
        if self._is_single or name not in self._members:
            return self._members.get(name)
        if name not in self._targets:
            self._targets[name] = _targets(self._references.file, self._members[name])
        return self._targets[name][i]

    def text(self, i: int) -> str:
        target = self._field("content", i)
        if isinstance(target, h5d.DatasetID) and target.dtype.kind == "f":
            return ""  # the NaN of a placeholder
        try:
            return _read(target, "content", "u").astype("<u2").tobytes().decode("utf-16-le")
        except UnicodeDecodeError as error:
            raise Damaged("a text is not UTF-16") from error

    def numbers(self, name: str, i: int) -> np.ndarray:
        return _read(self._field(name, i), name, "fiu")

    def words(self, i: int) -> "_Structs | np.ndarray":
        word = self._field("word", i)
        return _Structs(self._references, word) if isinstance(word, h5g.GroupID) else self.numbers("word", i)


def _holds_references(member: Target) -> bool:
    return isinstance(member, h5d.DatasetID) and h5py.check_ref_dtype(member.dtype) is h5py.Reference


def _targets(file: h5py.File, dataset: h5d.DatasetID) -> list[Target]:
    references = np.empty(dataset.shape, h5py.ref_dtype)
    dataset.read(h5s.ALL, h5s.ALL, references)
    return [h5r.dereference(reference, file.id) for reference in references.ravel()]


def _is_empty(target: Target) -> bool:
    """Return whether an object is MATLAB's `[]`, stored as its dimensions."""
    return isinstance(target, h5d.DatasetID) and (h5a.exists(target, b"MATLAB_empty") or target.shape == (2,))


def _read(target: Target | None, name: str, kinds: str) -> np.ndarray:
    """Return a dataset's values, flat, in MATLAB's order; empty if absent. `kinds`: allowed kinds of dtype."""
    if target is None or _is_empty(target):
        return np.empty(0)
    if not isinstance(target, h5d.DatasetID) or target.dtype.kind not in kinds or len(target.shape) != 2:
        raise Damaged(f"{name} is no array of the kind that a recording holds")
    if math.prod(target.shape) > _LARGEST:
        raise Damaged(f"{name} claims {target.shape} entries")
    check_size(target, name)
    values = np.empty(target.shape, target.dtype)
    target.read(h5s.ALL, h5s.ALL, values)
    return values.ravel()
