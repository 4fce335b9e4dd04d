"""Who read what: the columns that leakage is judged by, whether or not there is a data file behind them."""

import collections
import dataclasses
from collections.abc import Sequence

import numpy as np

from eeg2text_jax.data.datafile import DataFile


@dataclasses.dataclass(frozen=True)
class Readings:
    """One entry a sample in every column, object arrays `[N]`.

    `sample_id` is unique. `text` is None where only ids are known: then sentences are compared by `sentence_id`.
    """

    sample_id: np.ndarray
    subject: np.ndarray
    task: np.ndarray
    sentence_id: np.ndarray
    text: np.ndarray | None

    def __len__(self) -> int:
        return len(self.sample_id)


def readings_of(data: DataFile) -> Readings:
    """The readings of a data file, in its order."""
    sentence_id = data.sentence_id
    return Readings(sample_ids(data.subject, sentence_id), data.subject, data.task, sentence_id, data.sentence)


def sample_ids(subjects: Sequence[str], sentence_ids: Sequence[str]) -> np.ndarray:
    """`subject/task:index` of every sample; a repeated reading gets `#2`, `#3`, ... Object array `[N]`."""
    seen: collections.Counter[str] = collections.Counter()
    ids = []
    for subject, sentence in zip(subjects, sentence_ids, strict=True):
        name = f"{subject}/{sentence}"
        seen[name] += 1
        ids.append(name if seen[name] == 1 else f"{name}#{seen[name]}")
    return np.array(ids, object)
