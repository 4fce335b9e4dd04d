"""A split of samples into parts, readings, and the comparison of texts."""

import collections
import dataclasses
import hashlib
import json
import os
import unicodedata
from collections.abc import Callable, Iterable, Mapping

import numpy as np

from eeg2text_jax.data.clock import Clock, Stretches, stretches
from eeg2text_jax.data.datafile import DataFile
from eeg2text_jax.errors import UserError
from eeg2text_jax.kinds import shares


def normalize(text: str) -> str:
    """Return the letters and decimal digits of a text, case-folded and without accents.

    Quotes, dashes and spacing of the same sentence differ between ZuCo's tasks. A superscript is no decimal digit (one
    ZuCo sentence has `km²` in NR and a mangled `km˝` in TSR).
    """
    letters = "".join(c for c in unicodedata.normalize("NFD", text) if c.isalpha() or c.isdecimal())
    return unicodedata.normalize("NFKC", letters).casefold()


def fold_case_and_space(text: str) -> str:
    """Lower the case and merge white space: the usual comparison, which misses ZuCo's variants."""
    return " ".join(text.lower().split())


def tokens(text: str) -> list[str]:
    """Return the normalized words of a text; words without letters and digits vanish."""
    return [word for word in map(normalize, text.split()) if word]


NORMALIZATIONS: dict[str, Callable[[str], str]] = {
    "letters-digits": normalize,
    "case-space": fold_case_and_space,
}


@dataclasses.dataclass(frozen=True)
class Readings:
    """One entry per sample in every column, object arrays `[N]`.

    `sample_id` is unique. `text` is None if only ids are known; then sentences are compared by `sentence_id`. For
    windows, `segments` are the stretches of their stimulus, and `text_group` names its story. `clock` has the recording
    times.
    """

    sample_id: np.ndarray
    subject: np.ndarray
    task: np.ndarray
    sentence_id: np.ndarray
    text: np.ndarray | None
    segments: Stretches | None = None
    text_group: np.ndarray | None = None
    clock: Clock | None = None

    def __len__(self) -> int:
        return len(self.sample_id)


def readings_of(data: DataFile) -> Readings:
    """Return the readings of a data file, in its order."""
    sentence_id, segments = data.sentence_id, None
    if data.is_windows:
        segments = stretches(data)
    names = sample_ids(data.subject, sentence_id)
    return Readings(names, data.subject, data.task, sentence_id, data.sentence, segments, data.text_group, data.clock)


def text_units(data: DataFile) -> np.ndarray:
    """Return the units of a split by text, `[N]`: normalized texts, or text groups of windows, whose texts overlap."""
    if data.is_windows:
        return data.text_group.astype(str)
    return np.array([normalize(text) for text in data.sentence])


def sample_ids(subjects: Iterable[str], sentence_ids: Iterable[str]) -> np.ndarray:
    """Return `subject/task:index` of every sample, with `#2`, `#3`, ... for repeated readings. Object array `[N]`."""
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
    """The samples of each part: `parts` has sorted int64 arrays of rows; a sample is in at most one part.

    `names` are the ids of all samples of the data file, see `sample_ids`; object array `[N]`.
    """

    method: str
    seed: int
    parts: Mapping[str, np.ndarray]
    names: np.ndarray

    @classmethod
    def of(cls, data: DataFile, method: str, seed: int, parts: Mapping[str, np.ndarray]) -> "Split":
        """Make a split of a data file."""
        return cls(method, seed, parts, sample_ids(data.subject, data.sentence_id))

    def __post_init__(self) -> None:
        for name in PARTS:
            if not len(self.parts[name]):
                raise UserError(
                    f"split {self.method!r} (seed {self.seed}) leaves its {name} part empty; "
                    "give it more sentences or subjects, another ratio or another seed."
                )

    def digest(self) -> str:
        """Return a hash of the parts' sample ids in any order; checkpoints and predictions carry it."""
        return parts_digest({name: self.names[self.parts[name]] for name in PARTS})

    @property
    def kept(self) -> int:
        """Number of samples in any part."""
        return sum(len(self.parts[name]) for name in PARTS)


def parts_digest(samples: Mapping[str, Iterable[str]]) -> str:
    """Return a hash of the sample ids of all parts, in any order."""
    content = json.dumps({name: sorted(samples[name]) for name in PARTS})
    return hashlib.sha256(content.encode()).hexdigest()[:16]


def part_sizes(n: int, ratio: tuple[float, float, float]) -> tuple[int, int, int]:
    """Return the units of each part: `int(n * train)`, `int(n * dev)`, the rest for test (the authors' rounding)."""
    train, dev = int(n * ratio[0] + 1e-9), int(n * ratio[1] + 1e-9)
    return train, dev, n - train - dev


def check_ratio(ratio: tuple[float, ...]) -> tuple[float, float, float]:
    """Return the shares of train, dev and test. Raises UserError unless they are positive and add up to 1."""
    if not shares().holds(ratio):
        raise UserError(
            f"split.ratio: expected three positive shares (train, dev, test) that add up to 1, got {tuple(ratio)}; "
            "write for example 0.8,0.1,0.1."
        )
    train, dev, test = map(float, ratio)
    return train, dev, test


def check_same_split(expected_digest: str, header_digest: str | None, path: str | os.PathLike[str]) -> None:
    """Refuse a checkpoint or predictions file made with another split: its train part may hold our test part.

    Raises UserError if the digest in its header differs from that of the split in use, or is None.
    """
    advice = (
        "its training may have seen our test part, so use the configuration (split method, ratio and seed) that it was "
        "made with"
    )
    _check_same("split", expected_digest, header_digest, "no split hash", advice, path)


def check_same_data(expected_digest: str, stated_digest: str | None, path: str | os.PathLike[str]) -> None:
    """Refuse a checkpoint or predictions file made from other data, as `check_same_split` by a hash of the data."""
    advice = "it was made from another data file, so use that one, or another --workdir"
    _check_same("data", expected_digest, stated_digest, "no hash of its data", advice, path)


def _check_same(
    kind: str, expected: str, stated: str | None, none: str, advice: str, path: str | os.PathLike[str]
) -> None:
    if stated != expected:
        found = f"{kind} {stated[:16]}" if stated else none
        raise UserError(f"{path}: carries {found}, expected {kind} {expected[:16]}; {advice}.")
