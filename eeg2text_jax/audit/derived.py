"""Strata where the task is not known: guessed from the order of the file and from the texts, to test again.

Sentences of one task are written alike, and how many people read them goes with the task. Where a file does not say
the task, sentences of equal length need not be exchangeable, and a difference may be the task's. Released files keep
the order of the tasks, and texts of one kind share their words: both give strata that are better than none. They are
guesses: a verdict must hold under each of them, and what one of them takes away is not claimed.
"""

import re
from collections import Counter
from collections.abc import Sequence

import numpy as np

from eeg2text_jax.audit.align import Aligned
from eeg2text_jax.audit.strata import length_strata

STRATA_PER_BLOCK = 3  # a block of neighbours holds three strata: short, middle and long sentences


def stand_ins(aligned: Aligned, size: int) -> dict[str, np.ndarray]:
    """Strata by what they are derived from, int `[S]` each; none where the task is known.

    Neighbours, in the file or by the words of the texts, take the place of a task: blocks of three strata, cut by
    number of words as tasks are.
    """
    if aligned.task_known:
        return {}
    places = {
        "the order of the file": np.arange(len(aligned.references)),
        "the words of the texts": _text_order(aligned.references),
    }
    blocks = {source: _blocks(place, STRATA_PER_BLOCK * size) for source, place in places.items()}
    return {source: length_strata(labels, aligned.n_words, size) for source, labels in blocks.items()}


def _blocks(place: np.ndarray, size: int) -> list[str]:
    """A label for each sentence: consecutive places in groups of about `size`."""
    labels = np.empty(len(place), int)
    for number, members in enumerate(np.array_split(np.argsort(place, kind="stable"), max(1, len(place) // size))):
        labels[members] = number
    return [f"{label:06d}" for label in labels]


def _text_order(references: Sequence[str]) -> np.ndarray:
    """Place of each text along the first principal component of its words, float `[S]`.

    Words that occur in two texts or more, weighted by their rarity, texts of unit length: what parts two kinds of
    text (reviews and biographies) is the direction of the largest variance.
    """
    words = [set(re.findall(r"\w+", text.lower())) for text in references]
    known = Counter(word for text in words for word in text)
    column = {word: index for index, word in enumerate(sorted(word for word, count in known.items() if count > 1))}
    if not column:
        return np.arange(len(references), dtype=float)
    table = np.zeros((len(references), len(column)))
    for row, text in enumerate(words):
        for word in text & column.keys():
            table[row, column[word]] = np.log(len(references) / known[word])
    table /= np.maximum(np.linalg.norm(table, axis=1, keepdims=True), 1e-12)
    table -= table.mean(0)
    _, vectors = np.linalg.eigh(table @ table.T)  # [S, S]: texts, fewer than words
    first = vectors[:, -1]
    return np.round(first * np.sign(first[np.argmax(np.abs(first))]), 9)  # one sign and rounding on every machine
