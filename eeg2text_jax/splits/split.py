"""Splits of samples into train, dev and test; columns of samples (`Readings`); normalization of texts."""

import collections
import dataclasses
import hashlib
import json
import os
import unicodedata
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from eeg2text_jax.data.clock import Clock, Stretches, stretches
from eeg2text_jax.errors import UserError

if TYPE_CHECKING:  # who reads a split file need not open a data file
    from eeg2text_jax.data.datafile import DataFile


def normalize(text: str) -> str:
    """Return the letters and decimal digits of a text, case-folded and without accents.

    Quotes, dashes, spacing and superscripts of one sentence differ between ZuCo's tasks (`km²` in NR, `km˝` in TSR).
    """
    letters = "".join(c for c in unicodedata.normalize("NFD", text) if c.isalpha() or c.isdecimal())
    return unicodedata.normalize("NFKC", letters).casefold()


def fold_case_and_space(text: str) -> str:
    """Return a text in lower case with single spaces; this usual normalization misses the variants of ZuCo's texts."""
    return " ".join(text.lower().split())


def tokens(text: str) -> list[str]:
    """Return the normalized words of a text that have letters or digits."""
    return [word for word in map(normalize, text.split()) if word]


NORMALIZATIONS: dict[str, Callable[[str], str]] = {"letters-digits": normalize, "case-space": fold_case_and_space}


@dataclasses.dataclass(frozen=True)
class Readings:
    """Who read which sentence: one entry per sample in every column, object arrays `[N]`."""

    sample_id: np.ndarray  # unique, see `sample_ids`
    subject: np.ndarray
    task: np.ndarray
    sentence_id: np.ndarray
    text: np.ndarray | None  # None if only ids are known
    segments: Stretches | None = None  # for windows: which segments of the stimulus each covers
    text_group: np.ndarray | None = None  # for windows: the story of each
    clock: Clock | None = None  # recording and time of each sample

    def __len__(self) -> int:
        return len(self.sample_id)


def readings_of(data: "DataFile") -> Readings:
    """Return ids, subjects, tasks, texts and times of a data file's samples, in the order of the file."""
    sentence_id, segments = data.sentence_id, stretches(data) if data.is_windows else None
    names = sample_ids(data.subject, sentence_id)
    return Readings(names, data.subject, data.task, sentence_id, data.sentence, segments, data.text_group, data.clock)


def text_units(data: "DataFile") -> np.ndarray:
    """Return the text of each sample as splits compare it, `[N]`: normalized; for overlapping windows, text group."""
    if data.is_windows:
        return data.text_group.astype(str)
    return np.array([normalize(text) for text in data.sentence])


def sample_ids(subjects: Iterable[str], sentence_ids: Iterable[str]) -> np.ndarray:
    """Return ids `subject/task:index` of all samples, object `[N]`; repeated readings end in `#2`, `#3`, ..."""
    seen: collections.Counter[str] = collections.Counter()
    ids = []
    for subject, sentence in zip(subjects, sentence_ids, strict=True):
        name = f"{subject}/{sentence}"
        seen[name] += 1
        ids.append(name if seen[name] == 1 else f"{name}#{seen[name]}")
    return np.array(ids, object)


PARTS = ("train", "dev", "test")


@dataclasses.dataclass(frozen=True)
class Split:
    """A division of the samples of a data file into train, dev and test; a sample is in at most one part."""

    method: str
    seed: int
    parts: Mapping[str, np.ndarray]  # sorted rows of the samples in each part, int64
    names: np.ndarray  # ids of all samples of the data file, object `[N]`, see `sample_ids`

    @classmethod
    def of(cls, data: "DataFile", method: str, seed: int, part: np.ndarray) -> "Split":
        """Return the split of a data file with sample i in part `PARTS[part[i]]`, or in none if `part[i]` is -1.

        Raises UserError if a part is empty.
        """
        parts = {name: np.flatnonzero(part == k) for k, name in enumerate(PARTS)}
        return cls(method, seed, parts, sample_ids(data.subject, data.sentence_id))

    def __post_init__(self) -> None:
        for name in PARTS:
            if not len(self.parts[name]):
                raise UserError(
                    f"split {self.method!r} (seed {self.seed}) leaves its {name} part empty; "
                    "give it more sentences or subjects, another ratio or another seed."
                )

    def digest(self) -> str:
        """Return the hash of this split that checkpoints and predictions files carry, see `parts_digest`."""
        return parts_digest({name: self.names[self.parts[name]] for name in PARTS})

    @property
    def kept(self) -> int:
        """Number of samples in all parts together."""
        return sum(len(self.parts[name]) for name in PARTS)


def parts_digest(samples: Mapping[str, Iterable[str]]) -> str:
    """Return a hash of the sample ids of each part; the order of the ids does not matter."""
    content = json.dumps({name: sorted(samples[name]) for name in PARTS})
    return hashlib.sha256(content.encode()).hexdigest()[:16]


def part_sizes(n: int, ratio: tuple[float, float, float]) -> tuple[int, int, int]:
    """Return the sizes of train, dev and test for `n` units; train and dev are rounded down, as by Wang & Ji."""
    train, dev = int(n * ratio[0] + 1e-9), int(n * ratio[1] + 1e-9)
    return train, dev, n - train - dev


def check_same_split(expected: str, stated: str | None, path: str | os.PathLike[str]) -> None:
    """Raise UserError if the checkpoint or predictions file at `path` states another split than the expected one.

    Splits are compared by their hashes; `stated` is None if the file states no hash.
    """
    if stated != expected:
        found = f"split {stated[:16]}" if stated else "no split hash"
        raise UserError(
            f"{path}: carries {found}, expected split {expected[:16]}; its training may have seen our test part, so "
            "use the configuration (split method, ratio and seed) that it was made with."
        )


def check_same_data(expected: str, stated: str | None, path: str | os.PathLike[str]) -> None:
    """Raise UserError if the checkpoint or predictions file at `path` states another hash of its data, or no hash."""
    if stated != expected:
        found = f"data {stated[:16]}" if stated else "no hash of its data"
        raise UserError(
            f"{path}: carries {found}, expected data {expected[:16]}; it was made from another data file, so use that "
            "one, or another --workdir."
        )
