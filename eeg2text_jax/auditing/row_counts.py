"""The variance that unequal numbers of rows add to permuted scores, for the minimum detectable effect.

A mean over few rows varies more than a mean over many, and a permutation may give it to a reference with many rows. So
permuted scores vary more than the observed score, and an effect is found more often than their standard deviation
suggests. Shapes as in `statistics`; `D` = conditions times statistics.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np

from eeg2text_jax.auditing.strata import Blocks

ROUNDING = 1e-12  # a variance that is smaller than this share of its terms counts as 0


@dataclasses.dataclass(frozen=True)
class OwnRows:
    """Statistics of single rows against their own reference.

    If conditions have rows of the same sentences, subjects and seeds, these are in the same order.
    """

    values: np.ndarray  # K statistics of each row, [N, K]
    sentence: np.ndarray  # sentence of each row, int [N]
    seed: np.ndarray  # training seed of each row, int [N]


@dataclasses.dataclass(frozen=True)
class RowSpread:
    """Covariances of statistics against one reference, and their multiplicities in the variance of a total.

    The mean over permutations is subtracted from each total.
    """

    within: np.ndarray  # covariance over the rows of a sentence, [D, D]
    between: np.ndarray  # covariance over sentences of their means, [D, D]
    # Multiplicities: of `within` in the observed total, of `within` in a permuted total, of `between` in both.
    factors: tuple[float, float, float]

    def observed_share(self, gradient: np.ndarray) -> float:
        """Return the ratio of two standard deviations, of the observed score and of permuted scores; at most 1.

        `gradient [D]` is the derivative of the score (or score difference) by each statistic.
        """
        row = max(float(gradient @ self.within @ gradient), 0.0)
        sentence = max(float(gradient @ self.between @ gradient), 0.0)
        observed, permuted, both = self.factors
        total = permuted * row + both * sentence
        # Equal conditions cancel each other up to rounding, which differs between CPUs.
        sizes = np.abs(gradient)
        terms = sizes @ (permuted * np.abs(self.within) + both * np.abs(self.between)) @ sizes
        if total <= ROUNDING * terms:
            return 1.0
        return min(1.0, float(np.sqrt((observed * row + both * sentence) / total)))


def row_spread(tables: np.ndarray, rows: Sequence[OwnRows], counts: np.ndarray, blocks: Blocks) -> RowSpread:
    """Estimate the covariances of statistics within and between sentences, and their multiplicities.

    Args:
      tables: weighted tables of all conditions, `[G, C, D]`.
      rows: single rows of each condition.
      counts: rows of each sentence by seed, int `[G, S]`.
      blocks: the blocks of the tables.
    """
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
    """Return the covariance of the rows of a sentence, `[D, D]`, as the mean over sentences and seeds.

    Covariances between conditions are 0 unless all conditions have the same rows.
    """
    first, size = rows[0], rows[0].values.shape[1]
    found = np.zeros((len(rows) * size,) * 2)
    paired = all(np.array_equal(one.sentence, first.sentence) and np.array_equal(one.seed, first.seed) for one in rows)
    groups = [rows] if paired else [[one] for one in rows]
    for place, group in enumerate(groups):
        cells = group[0].seed * (1 + group[0].sentence.max()) + group[0].sentence  # number of (seed, sentence), [N]
        n = np.bincount(cells)
        values = np.concatenate([one.values for one in group], 1)
        means = np.stack([np.bincount(cells, column) for column in values.T], 1) / np.maximum(n, 1)[:, None]
        scaled = (values - means[cells]) / np.sqrt(np.maximum(n[cells] - 1, 1))[:, None]
        part = slice(place * size, place * size + values.shape[1])
        found[part, part] = scaled.T @ scaled / max(np.count_nonzero(n > 1), 1)
    return found


def _inverse(counts: np.ndarray) -> np.ndarray:
    """Return 1 / the number of rows of each sentence, `[G, S]`; a seed without rows uses those of the other seeds."""
    pooled = np.broadcast_to(counts.sum(0), counts.shape)
    return 1 / np.maximum(np.where(counts > 0, counts, pooled), 1)


def row_factors(counts: np.ndarray, blocks: Blocks) -> tuple[float, float, float]:
    """Return the multiplicities `RowSpread.factors` from rows of each sentence by seed, int `[G, S]`.

    A reference with n rows is scored against the mean over its own n rows, or over the rows of a random sentence of its
    stratum, with weight n. The first two factors are equal if all sentences of a stratum have equally many rows;
    otherwise the second is larger.
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
