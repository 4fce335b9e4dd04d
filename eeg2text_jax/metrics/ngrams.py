"""Clipped n-gram overlap of texts: all against all as a sparse product, row by row by sorting.

All against all: the k-th occurrence of an n-gram in a text is made a feature of its own. Two texts then share
min(count, count) features of an n-gram, so the clipped overlap is a dot product of 0/1 rows.
"""

from collections import Counter
from collections.abc import Sequence
from itertools import chain

import numpy as np
from scipy import sparse


class NgramFeatures:
    """0/1 feature rows of order-`n` n-grams over one shared vocabulary; `unique` ignores repetitions."""

    def __init__(self, n: int, *, unique: bool = False):
        self.n = n
        self.unique = unique
        self.ids: dict[tuple, int] = {}

    def rows(self, texts: Sequence[Sequence[str]]) -> sparse.csr_array:
        """Float64 CSR `[N, features so far]` of tokenized texts."""
        columns = [self.row(tokens) for tokens in texts]
        indptr = np.cumsum([0, *map(len, columns)])
        indices = np.fromiter(chain.from_iterable(columns), np.int64, indptr[-1])
        return sparse.csr_array((np.ones(len(indices)), indices, indptr), shape=(len(texts), len(self.ids)))

    def row(self, tokens: Sequence[str]) -> list[int]:
        features = []
        seen: Counter = Counter()
        for ngram in zip(*(tokens[i:] for i in range(self.n)), strict=False):
            seen[ngram] += 1
            if not (self.unique and seen[ngram] > 1):
                features.append(self.ids.setdefault((ngram, seen[ngram]), len(self.ids)))
        return features


Overlaps = tuple[np.ndarray, np.ndarray, np.ndarray]


def overlaps(
    predictions: Sequence[Sequence[str]],
    references: Sequence[Sequence[str]],
    orders: Sequence[int],
    *,
    pairwise: bool,
    unique: bool = False,
) -> list[Overlaps]:
    """Of each order the shared n-grams `[N]` or `[P, R]`, and the n-grams of each prediction `[P]` and reference `[R]`.

    `unique` ignores repetitions within a text.
    """
    if not pairwise:
        return row_overlaps(predictions, references, orders, unique=unique)
    found = []
    for n in orders:
        features = NgramFeatures(n, unique=unique)
        predicted, reference = features.rows(predictions), features.rows(references)
        predicted.resize(len(predictions), len(features.ids))
        shared = np.asarray((predicted @ reference.T).toarray(), float)
        found.append((shared, np.diff(predicted.indptr).astype(float), np.diff(reference.indptr).astype(float)))
    return found


def row_overlaps(
    predictions: Sequence[Sequence[str]], references: Sequence[Sequence[str]], orders: Sequence[int], *, unique: bool
) -> list[Overlaps]:
    """As `overlaps`, row by row: an n-gram is a number, made of that of its first n - 1 tokens and its last token."""
    numbers: dict[str, int] = {}
    texts = [*predictions, *references]
    tokens = np.array([numbers.setdefault(token, len(numbers)) for text in texts for token in text], np.int64)
    lengths = np.array([len(text) for text in texts])
    text_of = np.repeat(np.arange(len(texts)), lengths)
    left = np.repeat(np.cumsum(lengths), lengths) - np.arange(len(tokens))  # tokens from a place to the end of its text
    grams, found = tokens, []
    for n in range(1, max(orders) + 1):
        begins = np.flatnonzero(left >= n)
        if n > 1:
            keys = grams[begins] * max(len(numbers), 1) + tokens[begins + n - 1]
            grams = np.zeros_like(tokens)
            grams[begins] = np.unique(keys, return_inverse=True)[1]
        if n in orders:
            found.append(_clipped(text_of[begins], grams[begins], len(predictions), unique))
    return found


def _clipped(text_of: np.ndarray, grams: np.ndarray, rows: int, unique: bool) -> Overlaps:
    """Shared n-grams and n-grams of both sides, `[rows]` each; texts below `rows` are predictions."""
    width = grams.max(initial=0) + 1
    sides = []
    for side in (text_of < rows, text_of >= rows):
        keys, counts = np.unique(text_of[side] % rows * width + grams[side], return_counts=True)
        sides.append((keys, np.ones_like(counts) if unique else counts))
    (predicted, p_counts), (reference, r_counts) = sides
    _, p, r = np.intersect1d(predicted, reference, assume_unique=True, return_indices=True)
    both = np.minimum(p_counts[p], r_counts[r])
    return tuple(
        np.bincount(keys // width, counts, minlength=rows)
        for keys, counts in ((predicted[p], both), (predicted, p_counts), (reference, r_counts))
    )
