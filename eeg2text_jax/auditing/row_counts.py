"""The variance that unequal numbers of rows add to permuted scores, for the minimum detectable effect.

A mean over few rows scatters more than a mean over many. A permutation gives the reference of many rows the predictions
of sentences with few. The permuted scores then scatter more than the observed one, and an effect is found more often
than their standard deviation suggests.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np

from eeg2text_jax.auditing.strata import Blocks


@dataclasses.dataclass(frozen=True)
class OwnRows:
    """Statistics of single rows against their own reference, `values [N, K]`; sentence and seed of each, int `[N]`.

    Conditions whose rows are of the same readings have them in the same order.
    """

    values: np.ndarray
    sentence: np.ndarray
    seed: np.ndarray

    def deviations(self, gradient: np.ndarray) -> np.ndarray:
        """Return how far each row moves the score from its sentence's mean in its seed, `[N]`, to first order."""
        moved = self.values @ gradient
        cell = self._cells
        return moved - (np.bincount(cell, moved) / np.maximum(np.bincount(cell), 1))[cell]

    @property
    def spare(self) -> int:
        """Return the degrees of freedom of the deviations: rows less sentences, in each seed."""
        return len(self.sentence) - len(np.unique(self._cells))

    @property
    def _cells(self) -> np.ndarray:
        return self.seed * (1 + self.sentence.max()) + self.sentence


def row_factors(counts: np.ndarray, blocks: Blocks) -> tuple[float, float]:
    """Return how often the variance of a row counts in the variance of the observed total and of a permuted one.

    Both are totals less the mean over all permutations. In a stratum of m sentences a reference with n rows is held
    against the mean over its own n rows, or over those of a random sentence, each with weight n. Equal where all
    sentences of a stratum have as many rows; otherwise the second is larger.

    Args:
      counts: rows of each sentence by seed, int `[G, S]`.
    """
    pooled = np.broadcast_to(counts.sum(0), counts.shape)
    inverse = 1 / np.maximum(np.where(counts > 0, counts, pooled), 1)  # variance of a mean over the rows
    observed = permuted = 0.0
    for members in blocks.groups:
        m = members.shape[1]
        weight, own = counts[:, members].astype(float) ** 2, inverse[:, members]
        others = (own.sum(-1, keepdims=True) - own) / (m - 1)
        observed += float((weight * ((m - 1) ** 2 * own + (m - 1) * others)).sum()) / m**2
        permuted += float((weight * (m - 1) * ((m - 1) * others + own)).sum()) / m**2
    return observed, permuted


def observed_share(
    rows: Sequence[OwnRows], gradients: Sequence[np.ndarray], factors: tuple[float, float], permuted_sd: float
) -> float:
    """Return the standard deviation of the observed score (difference) as a share of the permuted one's, at most 1.

    It is never below its value for rows that differ within sentences alone.

    Args:
      rows: of each condition, EEG first.
      gradients: derivatives `[K]` of the score (difference) by the statistics of each condition.
      factors: those of `row_factors`.
    """
    observed, permuted = factors
    if permuted_sd == 0 or permuted <= observed * (1 + 1e-9) or rows[0].spare < 1:
        return 1.0
    moved = [one.deviations(gradient) for one, gradient in zip(rows, gradients, strict=True)]
    paired = all(
        np.array_equal(one.sentence, rows[0].sentence) and np.array_equal(one.seed, rows[0].seed) for one in rows
    )
    squares = float((sum(moved) ** 2).sum()) if paired else sum(float(z @ z) for z in moved)
    added = squares / rows[0].spare * (permuted - observed)
    return float(np.sqrt(max(1 - added / permuted_sd**2, observed / permuted)))
