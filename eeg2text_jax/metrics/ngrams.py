"""Clipped n-gram overlap of texts, row by row or all against all, as sparse products.

The k-th occurrence of an n-gram in a text is made a feature of its own. Two texts then share
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


def overlaps(
    predictions: Sequence[Sequence[str]],
    references: Sequence[Sequence[str]],
    n: int,
    *,
    pairwise: bool,
    unique: bool = False,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Shared n-grams `[N]` or `[P, R]`, and the n-grams of each prediction `[P]` and each reference `[R]`."""
    features = NgramFeatures(n, unique=unique)
    predicted, reference = features.rows(predictions), features.rows(references)
    predicted.resize(len(predictions), len(features.ids))
    shared = (predicted @ reference.T).toarray() if pairwise else predicted.multiply(reference).sum(1)
    return np.asarray(shared, float), np.diff(predicted.indptr).astype(float), np.diff(reference.indptr).astype(float)
