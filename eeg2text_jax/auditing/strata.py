"""Which sentences may stand in for each other: those of one task and nearly one length; and how they are laid out.

Where the task is not known, it is guessed from the file's order, the texts and the readers, to test again.
Sentences of one task are written alike, and how many people read them goes with the task. Where a file does not say
the task, sentences of equal length need not be exchangeable, and a difference may be the task's. Released files keep
the order of the tasks, and texts of one kind share words and readers: each gives strata better than none. They are
guesses: a verdict must hold under each of them, and what one of them takes away is not claimed. They are no proof
either: a task that neither the order nor the words betray stays hidden, so give the tasks where they are known.
"""

import dataclasses
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from eeg2text_jax.predictions.file import Prediction

if TYPE_CHECKING:
    from eeg2text_jax.auditing.align import Aligned

STRATUM_SIZE = 6
MIN_SENTENCES = 5  # 5! = 120 permutations: the fewest with which p can fall below 0.05
EQUAL_LENGTHS = "equal numbers of words"
STRATA_PER_BLOCK = 2  # a block of neighbours holds two strata, of shorter and of longer sentences
DIRECTIONS = 3  # principal components of the texts in which the kinds of a file are looked for
# The largest of the chi-square values (DIRECTIONS degrees of freedom) at all places where a file may be cut; in texts
# of one kind it exceeds this in one file of twenty.
CUT = 16.0


def length_strata(tasks: Sequence[str], n_words: Sequence[float], size: int = STRATUM_SIZE) -> np.ndarray:
    """Stratum of each sentence, int `[S]`: same task, neighbouring number of words.

    Binning rule: the sentences of a task are sorted by their number of words (ties keep the order given) and cut
    into `floor(n / size)` consecutive groups, at least one, whose sizes differ by at most one. With the default a
    stratum holds 6 to 11 sentences: small enough that a model which knows only the length of a sentence gains
    nothing, large enough that a random permutation moves 5 sentences of 6.
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
    """Sentences by who read them, int `[S]`, from the sentence and subject of each row, int `[R]`.

    Two sentences go together if the smaller set of readers shares at least half of its members with the larger; a
    missing recording parts nobody. Predictions that know nothing but the subject know what group the sentence is of,
    so sentences of different groups are not exchangeable. One group for all where a group would have fewer than `size`
    sentences: then the readers say too little about the sentences to part them.
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
    """Which group of subjects read each sentence, int `[S]`; one group where a row does not say its subject."""
    if not all(row.subject for row in rows):
        return np.zeros(place.max() + 1, int)
    return reader_groups(place, np.unique([row.subject for row in rows], return_inverse=True)[1], size)


def equal_length_strata(aligned: "Aligned", stratum_size: int) -> np.ndarray:
    """Strata of one task, the same readers and exactly one number of words, int `[S]`.

    For files in which the number of words leaks in one condition only: within wider strata that does not cancel. Many
    sentences have no partner here.
    """
    readers = readers_of(aligned.eeg.rows, aligned.eeg.sentence, stratum_size)
    kinds = zip(aligned.tasks, readers.tolist(), aligned.n_words.tolist(), strict=True)
    names: dict[tuple, int] = {}
    return np.array([names.setdefault(kind, len(names)) for kind in kinds])


def exchangeable(strata: np.ndarray) -> np.ndarray:
    """Bool `[S]`: sentences that share their stratum with another one; the rest have no content null."""
    return np.bincount(strata)[strata] > 1


def stand_ins(aligned: "Aligned", size: int, *, length_leaks: bool = False) -> dict[str, np.ndarray]:
    """Strata by what they are derived from, int `[S]` each; none where the task is known and no length leaks.

    Neighbours, in the file, by the words of the texts or by the number of rows, take the place of a task: blocks of a
    few strata, cut by number of words as tasks are. No block spans a place of the file where the words of the texts
    change. Where the number of words leaks in one condition only, strata of exactly one number of words are added.
    """
    exact = equal_length_strata(aligned, size)
    found = {EQUAL_LENGTHS: exact} if length_leaks and exchangeable(exact).sum() >= MIN_SENTENCES else {}
    if aligned.task_known:
        return found
    axes, block = _text_axes(aligned.references), STRATA_PER_BLOCK * size
    parts = {
        "the order of the file": np.split(np.arange(len(axes)), _cuts(axes, block)),
        "the words of the texts": [np.argsort(axes[:, 0], kind="stable")],
    }
    readers = np.bincount(aligned.eeg.sentence)
    if len(set(readers.tolist())) > 1:
        parts["the number of rows"] = [np.argsort(readers, kind="stable")]
    labels = {source: _labels(members, block) for source, members in parts.items()}
    return {source: length_strata(label, aligned.n_words, size) for source, label in labels.items()} | found


def _labels(parts: Sequence[np.ndarray], size: int) -> list[str]:
    """A label for each sentence: consecutive members of a part in blocks of about `size`."""
    blocks = [block for part in parts for block in np.array_split(part, max(1, len(part) // size))]
    labels = np.empty(sum(map(len, blocks)), int)
    for number, members in enumerate(blocks):
        labels[members] = number
    return [f"{label:06d}" for label in labels]


def _cuts(axes: np.ndarray, smallest: int) -> list[int]:
    """Places where the texts of a file change, by binary segmentation of `axes [S, P]`; parts of `smallest` or more."""
    n = len(axes)
    places = np.arange(smallest, n - smallest + 1)
    if not len(places):
        return []
    standard = (axes - axes.mean(0)) / np.maximum(axes.std(0), 1e-12)
    before = standard.cumsum(0)[places - 1]  # sums up to each place; those after it are minus these
    gain = (before**2).sum(1) * n / (places * (n - places))
    if gain.max() < CUT:
        return []
    cut = int(places[np.argmax(gain)])
    return [*_cuts(axes[:cut], smallest), cut, *(cut + place for place in _cuts(axes[cut:], smallest))]


def text_vectors(references: Sequence[str]) -> np.ndarray:
    """Texts as unit vectors of the words that occur in two of them or more, weighted by rarity, float `[S, W]`."""
    words = [set(re.findall(r"\w+", text.lower())) for text in references]
    known = Counter(word for text in words for word in text)
    column = {word: index for index, word in enumerate(sorted(word for word, count in known.items() if count > 1))}
    table = np.zeros((len(references), len(column)))
    for row, text in enumerate(words):
        for word in text & column.keys():
            table[row, column[word]] = np.log(len(references) / known[word])
    return table / np.maximum(np.linalg.norm(table, axis=1, keepdims=True), 1e-12)


def _text_axes(references: Sequence[str]) -> np.ndarray:
    """Each text along the first principal components of its words, float `[S, P]`.

    What parts two kinds of text (reviews and biographies) is a direction of large variance.
    """
    table = text_vectors(references)
    table -= table.mean(0)
    if not table.any():
        return np.zeros((len(references), DIRECTIONS))
    left, sizes, _ = np.linalg.svd(table, full_matrices=False)
    axes = left[:, :DIRECTIONS] * sizes[:DIRECTIONS]
    largest = axes[np.argmax(np.abs(axes), axis=0), np.arange(axes.shape[1])]
    return np.round(axes * np.sign(largest), 9)  # one sign and rounding on every machine


@dataclasses.dataclass(frozen=True)
class Blocks:
    """The strata as blocks of cells (predictions of one sentence, reference of another); nothing between strata.

    `groups` holds, for each size of a stratum, the sentences of the strata of that size, int `[Q, m]`. The cells of
    all blocks lie one after the other on one axis of length `C`: group by group, stratum by stratum, the predictions'
    sentence before the reference's. Sentences alone in their stratum have no cells and take no part.
    """

    n_sentences: int
    groups: tuple[np.ndarray, ...]

    @property
    def n_cells(self) -> int:
        return sum(members.size * members.shape[1] for members in self.groups)

    @cached_property
    def offsets(self) -> tuple[int, ...]:
        """First cell of each group."""
        return tuple(np.cumsum([0, *(g.size * g.shape[1] for g in self.groups)])[:-1].tolist())

    @cached_property
    def sentences(self) -> np.ndarray:
        """The sentences that take part, in the order of the cells, int `[S']`."""
        return np.concatenate([members.ravel() for members in self.groups])

    @cached_property
    def own(self) -> np.ndarray:
        """Cells of `sentences` against their own references, int `[S']`."""
        cells = []
        for first, (count, size) in zip(self.offsets, (members.shape for members in self.groups), strict=True):
            cells.append((first + np.arange(count)[:, None] * size**2 + np.arange(size) * (size + 1)).ravel())
        return np.concatenate(cells)

    def gather(self, table: np.ndarray) -> np.ndarray:
        """Cells `[..., C, K]` of a table that has all sentences against all references, `[..., S, S, K]`."""
        rows = [np.repeat(members, members.shape[1]) for members in self.groups]
        columns = [np.repeat(members, members.shape[1], axis=0).ravel() for members in self.groups]
        return table[..., np.concatenate(rows), np.concatenate(columns), :]

    def views(self, cells: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """The sentences `[Q, m]` of each group and its cells `[..., Q, m, m, K]`, a view into `[..., C, K]`."""
        for first, members in zip(self.offsets, self.groups, strict=True):
            size = members.size * members.shape[1]
            block = cells[..., first : first + size, :]
            yield members, block.reshape(*cells.shape[:-2], *members.shape, members.shape[1], cells.shape[-1])

    def permuted(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """`n` uniform permutations of references within strata, as the cells that they choose, int `[n, S']`."""
        drawn = []
        for first, (count, size) in zip(self.offsets, (members.shape for members in self.groups), strict=True):
            order = np.argsort(rng.random((n, count, size)), axis=-1)
            rows = first + np.arange(count * size).reshape(count, size) * size
            drawn.append((rows + order).reshape(n, -1))
        return np.concatenate(drawn, axis=1)


def blocks_of(strata: np.ndarray) -> Blocks:
    """Lays out the strata, int `[S]`; sentences of a stratum keep their order."""
    order = np.argsort(strata, kind="stable")
    _, first, sizes = np.unique(strata[order], return_index=True, return_counts=True)
    groups = tuple(order[first[sizes == m][:, None] + np.arange(m)] for m in np.unique(sizes).tolist() if m > 1)
    return Blocks(len(strata), groups)
