"""Strata: sentences that may be exchanged because they share the task and nearly the length; and disjoint windows."""

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import TypeVar

import numpy as np

from eeg2text_jax.predictions.file import Prediction

Row = TypeVar("Row", bound=Prediction)
STRATUM_SIZE = 6
MIN_SENTENCES = 5  # 5! = 120 permutations; with 4! = 24, even the smallest p is hardly below 0.05


def length_strata(
    tasks: Sequence[str] | np.ndarray, n_words: Sequence[float] | np.ndarray, size: int = STRATUM_SIZE
) -> np.ndarray:
    """Return the stratum of each sentence, int `[S]`: one task, similar numbers of words.

    The sentences of a task are sorted by their number of words (ties keep their order) and cut into `floor(n / size)`
    groups, at least one, whose sizes differ by at most one. With the default a stratum has 6 to 11 sentences: so few
    that knowing the length gains nothing, and so many that a random permutation moves 5 sentences of 6.
    """
    tasks, n_words = np.asarray(tasks), np.asarray(n_words, float)
    strata = np.empty(len(tasks), int)
    used = 0
    for task in np.unique(tasks):
        members = np.flatnonzero(tasks == task)
        members = members[np.argsort(n_words[members], kind="stable")]
        for group in np.array_split(members, max(1, len(members) // size)):
            strata[group] = used
            used += 1
    return strata


def reader_groups(sentence: np.ndarray, subject: np.ndarray, size: int = STRATUM_SIZE) -> np.ndarray:
    """Group sentences by the subjects who read them: int `[S]`, from the sentence and subject of each row, int `[R]`.

    A model that knows only the subject also knows the group, so sentences of different groups are not exchangeable. A
    sentence joins a group if at least half of its readers, or of the readers of the group's first sentence, are in both
    sets: a missing recording does not separate sentences. If a group would have fewer than `size` sentences, all
    sentences form one group.
    """
    readers: dict[int, set[int]] = {}
    for s, u in zip(sentence.tolist(), subject.tolist(), strict=True):
        readers.setdefault(s, set()).add(u)
    leaders: list[set[int]] = []
    groups = np.zeros(len(readers), int)
    known: dict[frozenset[int], int] = {}
    for s in sorted(readers):
        mine = frozenset(readers[s])
        if mine not in known:
            alike = (i for i, a in enumerate(leaders) if len(a & mine) >= 0.5 * min(len(a), len(mine)))
            known[mine] = next(alike, len(leaders))
            if known[mine] == len(leaders):
                leaders.append(set(mine))
        groups[s] = known[mine]
    return groups if np.bincount(groups).min() >= size else np.zeros(len(groups), int)


def readers_of(rows: Sequence[Prediction], place: np.ndarray, size: int) -> np.ndarray:
    """Return the group of readers of each sentence, int `[S]`, see `reader_groups`; one group if subjects are unknown.

    `place` is the sentence of each row, int `[R]`.
    """
    if not all(row.subject for row in rows):
        return np.zeros(place.max() + 1, int)
    return reader_groups(place, np.unique([row.subject for row in rows], return_inverse=True)[1], size)


def exchangeable(strata: np.ndarray) -> np.ndarray:
    """Return whether each sentence shares its stratum with another sentence, bool `[S]`; otherwise it has no null."""
    return np.bincount(strata)[strata] > 1


def disjoint(rows: Sequence[Row]) -> list[Row]:
    """Return rows whose windows do not overlap, from the start of each story on.

    Overlapping windows share text and frames, so they are not exchangeable: a permutation test would find content in
    any signal that is smooth in time.
    """
    end: dict[str, float] = {}  # story -> end of the last window that was kept
    kept = set()
    for story, start, stop in sorted(set(map(_window, rows))):
        if start >= end.get(story, -math.inf):
            end[story] = stop
            kept.add((story, start, stop))
    return [row for row in rows if _window(row) in kept]


def thin_windows(
    eeg: Sequence[Row], controls: Mapping[str, Sequence[Row]], recording: str
) -> tuple[Sequence[Row], Mapping[str, Sequence[Row]], list[str]]:
    """Return the rows of EEG and controls to judge (fMRI: only `disjoint` windows), and a note on dropped rows."""
    if recording != "fmri":
        return eeg, controls, []
    kept = disjoint(eeg)
    note = f"windows overlap: {len(kept)} of {len(eeg)} rows share no segment with each other and are judged"
    apart = {name: disjoint(rows) for name, rows in controls.items()}
    return kept, apart, [note] if len(kept) < len(eeg) else []


def _window(row: Prediction) -> tuple[str, float, float]:
    """Return the story of a window, its start and its end, in seconds, or in segments if the row has no time."""
    story, _, first = row.sentence_id.rpartition(":")  # not `row.task`, which may contain the fold, too
    start, stop = (int(first), int(first) + row.n_words) if row.story_time is None else row.story_time
    return story, start, stop


@dataclasses.dataclass(frozen=True)
class Blocks:
    """The cells (s, t) of a table: predictions for sentence s against the reference of sentence t of its stratum.

    All `C` cells lie on one axis, sorted by the size of the stratum, then stratum, then s, then t. A sentence alone in
    its stratum has no cell.
    """

    n_sentences: int
    groups: tuple[np.ndarray, ...]  # for each size m, the sentences of the Q strata of this size, int [Q, m]

    @property
    def n_cells(self) -> int:
        return sum(members.size * members.shape[1] for members in self.groups)

    @cached_property
    def _places(self) -> list[tuple[int, int, int]]:
        """For each group: index of its first cell, number of its strata, and sentences in a stratum."""
        firsts = np.cumsum([0, *(members.size * members.shape[1] for members in self.groups)]).tolist()
        return [(first, *members.shape) for first, members in zip(firsts, self.groups, strict=False)]

    @cached_property
    def sentences(self) -> np.ndarray:
        """Indices of the S' sentences that have cells, in the order of the cells, int `[S']`."""
        return np.concatenate([members.ravel() for members in self.groups])

    @cached_property
    def own(self) -> np.ndarray:
        """Index of the cell (s, s) of each sentence s in `sentences`, int `[S']`."""
        cells = [
            first + np.arange(count)[:, None] * size**2 + np.arange(size) * (size + 1)
            for first, count, size in self._places
        ]
        return np.concatenate([group.ravel() for group in cells])

    def views(self, cells: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield the sentences `[Q, m]` of each group, and a view `[..., Q, m, m, K]` of its part of `cells`."""
        for (first, count, size), members in zip(self._places, self.groups, strict=True):
            block = cells[..., first : first + count * size**2, :]
            yield members, block.reshape(*cells.shape[:-2], count, size, size, cells.shape[-1])

    def permuted(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """Return the cell indices of `n` random assignments of references to sentences within strata, int `[n, S']`."""
        drawn = []
        for first, count, size in self._places:
            order = np.argsort(rng.random((n, count, size)), axis=-1)
            rows = first + np.arange(count * size).reshape(count, size) * size
            drawn.append((rows + order).reshape(n, -1))
        return np.concatenate(drawn, axis=1)


def blocks_of(strata: np.ndarray) -> Blocks:
    """Return the blocks of the strata of all sentences, int `[S]`; sentences of a stratum keep their order."""
    order = np.argsort(strata, kind="stable")
    _, first, sizes = np.unique(strata[order], return_index=True, return_counts=True)
    groups = tuple(order[first[sizes == m][:, None] + np.arange(m)] for m in np.unique(sizes).tolist() if m > 1)
    return Blocks(len(strata), groups)
