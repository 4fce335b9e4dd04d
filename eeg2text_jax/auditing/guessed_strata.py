"""Strata that replace unknown tasks: guessed from the order of the file, the words of the texts, and the rows.

If a file does not state the task, sentences of equal length need not be exchangeable, and a difference may be due to
the task. Files mostly keep the order of the tasks, and sentences of one task share words and numbers of readers. So the
test is repeated within strata guessed from each of these, and a claim must hold in all of them. A task that shows in
none of them stays hidden.
"""

import re
from collections import Counter
from collections.abc import Sequence

import numpy as np

from eeg2text_jax.auditing.align import Aligned
from eeg2text_jax.auditing.strata import MIN_SENTENCES, exchangeable, length_strata, readers_of

EQUAL_LENGTHS = "equal numbers of words"
STRATA_PER_BLOCK = 2  # a block of neighboring sentences has two strata, of shorter and of longer sentences
DIRECTIONS = 3  # principal components of the texts in which kinds of texts are searched for
# Critical value (5 %) of the largest chi-square statistic over all places where a file may be cut, with DIRECTIONS
# degrees of freedom.
CUT = 16.0


def equal_length_strata(aligned: Aligned, stratum_size: int) -> np.ndarray:
    """Return strata of one task, group of readers and exact number of words, int `[S]`; many have one sentence.

    They are used if the number of words leaks in one condition only, which does not cancel within wider strata.
    """
    readers = readers_of(aligned.eeg.rows, aligned.eeg.sentence, stratum_size)
    kinds = zip(aligned.tasks, readers.tolist(), aligned.n_words.tolist(), strict=True)
    names: dict[tuple, int] = {}
    return np.array([names.setdefault(kind, len(names)) for kind in kinds])


def stand_ins(aligned: Aligned, size: int, *, length_leaks: bool = False) -> dict[str, np.ndarray]:
    """Return other strata in which to repeat the test: source of the strata -> stratum of each sentence, int `[S]`.

    Unknown tasks are replaced by blocks of sentences that are neighbors in the file, in their words, or in their number
    of rows. No block of neighbors in the file spans a place where the words of the texts change. `length_leaks` adds
    strata of equal numbers of words. The result is empty if tasks are known and no length leaks.
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


def _labels(parts: Sequence[np.ndarray], size: int) -> np.ndarray:
    """Return the block of each sentence, int `[S]`: consecutive members of a part, about `size` in a block."""
    blocks = [block for part in parts for block in np.array_split(part, max(1, len(part) // size))]
    labels = np.empty(sum(map(len, blocks)), int)
    for number, members in enumerate(blocks):
        labels[members] = number
    return labels


def _cuts(axes: np.ndarray, smallest: int) -> list[int]:
    """Return the sentences before which the texts of a file change, by binary segmentation of `axes [S, P]`.

    Each part has at least `smallest` sentences.
    """
    n = len(axes)
    places = np.arange(smallest, n - smallest + 1)
    if not len(places):
        return []
    standard = (axes - axes.mean(0)) / np.maximum(axes.std(0), 1e-12)
    before = standard.cumsum(0)[places - 1]  # sums before each place; the sums after it are their negatives
    gain = (before**2).sum(1) * n / (places * (n - places))
    if gain.max() < CUT:
        return []
    cut = int(places[np.argmax(gain)])
    return [*_cuts(axes[:cut], smallest), cut, *(cut + place for place in _cuts(axes[cut:], smallest))]


def text_vectors(references: Sequence[str]) -> np.ndarray:
    """Return tf-idf vectors of the `W` words that occur in at least two texts, each of length 1, `[S, W]`."""
    words = [set(re.findall(r"\w+", text.lower())) for text in references]
    known = Counter(word for text in words for word in text)
    column = {word: index for index, word in enumerate(sorted(word for word, count in known.items() if count > 1))}
    table = np.zeros((len(references), len(column)))
    for row, text in enumerate(words):
        for word in text & column.keys():
            table[row, column[word]] = np.log(len(references) / known[word])
    return table / np.maximum(np.linalg.norm(table, axis=1, keepdims=True), 1e-12)


def _text_axes(references: Sequence[str]) -> np.ndarray:
    """Return principal components of the texts, `[S, P]`, in which kinds of texts (reviews, biographies) differ."""
    table = text_vectors(references)
    table -= table.mean(0)
    if not table.any():
        return np.zeros((len(references), DIRECTIONS))
    left, sizes, _ = np.linalg.svd(table, full_matrices=False)
    axes = left[:, :DIRECTIONS] * sizes[:DIRECTIONS]
    largest = axes[np.argmax(np.abs(axes), axis=0), np.arange(axes.shape[1])]
    return np.round(axes * np.sign(largest), 9)  # equal signs and digits on every machine
