"""The variance that unequal numbers of rows add to permuted scores, for the minimum detectable effect.

A mean over few rows scatters more than a mean over many. A permutation gives the reference of many rows the predictions
of sentences with few. The permuted scores then scatter more than the observed one, and an effect is found more often
than their standard deviation suggests. Shapes as in `statistics`; `D` = conditions times statistics.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np

from eeg2text_jax.auditing.strata import Blocks


@dataclasses.dataclass(frozen=True)
class OwnRows:
    """Statistics of single rows against their own reference, `values [N, K]`; sentence and seed of each, int `[N]`.

    Conditions that cover the same readings have their rows in the same order.
    """

    values: np.ndarray
    sentence: np.ndarray
    seed: np.ndarray

    @property
    def cells(self) -> np.ndarray:
        """Index of the pair (seed, sentence) of each row, int `[N]`."""
        return self.seed * (1 + self.sentence.max()) + self.sentence


@dataclasses.dataclass(frozen=True)
class RowSpread:
    """Covariances `[D, D]` of the rows within a sentence, and between sentence means, against one reference.

    `factors` are three multiplicities: of the variance of a row in the observed total, of the same variance in a
    permuted total, and of the variance between sentences in both. The mean over permutations is subtracted from each
    total.
    """

    within: np.ndarray
    between: np.ndarray
    factors: tuple[float, float, float]

    def observed_share(self, gradient: np.ndarray) -> float:
        """Return the standard deviation of the observed score as a share of the permuted one's, at most 1.

        `gradient [D]` holds the derivatives of the score (difference) by all statistics.
        """
        row = max(float(gradient @ self.within @ gradient), 0.0)
        sentence = max(float(gradient @ self.between @ gradient), 0.0)
        observed, permuted, both = self.factors
        total = permuted * row + both * sentence
        return min(1.0, float(np.sqrt((observed * row + both * sentence) / total))) if total > 0 else 1.0


def row_spread(tables: np.ndarray, rows: Sequence[OwnRows], counts: np.ndarray, blocks: Blocks) -> RowSpread:
    """Estimate the spread from weighted tables `[G, C, D]`, each condition's rows and rows per sentence `[G, S]`."""
    within = _within(rows)
    inverse = _inverse(counts)
    between, references = np.zeros_like(within), 0
    for members, block in blocks.views(tables):
        m = members.shape[1]
        weight = counts[:, members].astype(float)
        known = (weight > 0) & (m > 2)
        means = block / np.maximum(weight, 1)[:, :, None, :, None]  # [G, Q, s, t, D]
        others = (~np.eye(m, dtype=bool))[..., None]
        centered = np.where(others, means - (means * others).sum(2, keepdims=True) / (m - 1), 0)
        centered = centered[np.broadcast_to(known[:, :, None, :], centered.shape[:-1])]
        own = inverse[:, members]
        noise = ((own.sum(-1, keepdims=True) - own) / (m - 1))[known].sum()
        between += centered.T @ centered / max(m - 2, 1) - noise * within
        references += int(known.sum())
    return RowSpread(within, between / max(references, 1), row_factors(counts, blocks))


def _within(rows: Sequence[OwnRows]) -> np.ndarray:
    """Return the mean over sentences of the covariance between their rows, `[D, D]`."""
    first, size = rows[0], rows[0].values.shape[1]
    found = np.zeros((len(rows) * size,) * 2)
    paired = all(np.array_equal(one.sentence, first.sentence) and np.array_equal(one.seed, first.seed) for one in rows)
    groups = [rows] if paired else [[one] for one in rows]
    for place, group in enumerate(groups):
        cells = group[0].cells
        n = np.bincount(cells)
        values = np.concatenate([one.values for one in group], 1)
        means = np.stack([np.bincount(cells, column) for column in values.T], 1) / np.maximum(n, 1)[:, None]
        scaled = (values - means[cells]) / np.sqrt(np.maximum(n[cells] - 1, 1))[:, None]
        part = slice(place * size, place * size + values.shape[1])
        found[part, part] = scaled.T @ scaled / max(np.count_nonzero(n > 1), 1)
    return found


def _inverse(counts: np.ndarray) -> np.ndarray:
    """Return the variance of a mean over the rows of each sentence, `[G, S]`; other seeds' rows stand in for none."""
    pooled = np.broadcast_to(counts.sum(0), counts.shape)
    return 1 / np.maximum(np.where(counts > 0, counts, pooled), 1)


def row_factors(counts: np.ndarray, blocks: Blocks) -> tuple[float, float, float]:
    """Return the factors of `RowSpread`.

    In a stratum of m sentences a reference with n rows is held against the mean over its own n rows, or over those of a
    random sentence, each with weight n. The first two are equal where all sentences of a stratum have as many rows;
    otherwise the second is larger.

    Args:
      counts: rows of each sentence by seed, int `[G, S]`.
    """
    inverse = _inverse(counts)
    observed = permuted = both = 0.0
    for members in blocks.groups:
        m = members.shape[1]
        weight, own = counts[:, members].astype(float) ** 2, inverse[:, members]
        others = (own.sum(-1, keepdims=True) - own) / (m - 1)
        observed += float((weight * ((m - 1) ** 2 * own + (m - 1) * others)).sum()) / m**2
        permuted += float((weight * (m - 1) * ((m - 1) * others + own)).sum()) / m**2
        both += float(weight.sum()) * (m - 1) / m
    return observed, permuted, both
