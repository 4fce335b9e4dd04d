"""Cluster statistics on tables of sufficient statistics; knows nothing of text or files.

Shapes: `S` sentences, `K` statistics of a metric, `G` training seeds, `B` resamples. `pairs[s, t]` is the sum, over
the rows of sentence s, of the statistics of their predictions against the reference of sentence t. A corpus score is
a function of a sum of such rows, so nothing here ever looks at text again.
"""

from collections.abc import Callable, Iterator

import numpy as np
from scipy import optimize, stats

Score = Callable[[np.ndarray], np.ndarray]  # summed statistics [..., K] -> score [...], higher is better

CHUNK = 1000  # resamples at once: bounds the memory of [CHUNK, S, K]


def content_null(pairs: np.ndarray, strata: np.ndarray) -> np.ndarray:
    """Each sentence's share of the content null, `[S, K]`: its predictions against others' references.

    Within a stratum of m sentences the null is `sum_s sum_{t != s} pairs[s, t] / (m - 1)`. It is dealt out to the
    sentences as row mean + column mean - grand mean: the sum is the same, and the shares are those of the linear
    part of the statistic, since a sentence matters both by its predictions and by being a reference for others.
    A bootstrap over sentences of these shares therefore has the right variance.
    """
    shares = np.zeros((len(strata), pairs.shape[-1]))
    for stratum in np.unique(strata):
        members = np.flatnonzero(strata == stratum)
        m = len(members)
        if m < 2:
            raise ValueError("a stratum needs at least two sentences")
        block = pairs[np.ix_(members, members)].copy()
        block[np.arange(m), np.arange(m)] = 0
        rows, columns = block.sum(1) / (m - 1), block.sum(0) / (m - 1)
        shares[members] = rows + columns - rows.mean(0)
    return shares


def row_null(pairs: np.ndarray, strata: np.ndarray) -> np.ndarray:
    """The plain null of each sentence, `[S, K]`: mean over the other references of its stratum."""
    same = (strata[:, None] == strata) & ~np.eye(len(strata), dtype=bool)
    return np.einsum("stk,st->sk", pairs, same / np.maximum(same.sum(1, keepdims=True), 1))


def permutations(strata: np.ndarray, n: int, rng: np.random.Generator) -> np.ndarray:
    """`n` uniform permutations of the sentences within their strata, int `[n, S]`."""
    home = np.argsort(strata, kind="stable")
    order = np.argsort(strata + rng.random((n, len(strata))), axis=1)
    drawn = np.empty_like(order)
    drawn[:, home] = order
    return drawn


def permuted_totals(pairs: np.ndarray, permuted: np.ndarray) -> np.ndarray:
    """Statistics summed over sentences when sentence s is held against reference `permuted[:, s]`, `[B, K]`."""
    n_sentences, n_statistics = pairs.shape[1:]
    cells = permuted + n_sentences * np.arange(n_sentences)  # [B, S], into [S * S]
    columns = np.ascontiguousarray(pairs.reshape(-1, n_statistics).T)  # one gather a statistic: 20 times faster
    return np.stack([column[cells].sum(1) for column in columns], axis=-1)


def bootstrap_counts(size: int, draws: int, n: int, rng: np.random.Generator) -> np.ndarray:
    """How often each of `size` units occurs among `draws` drawn with replacement, float `[n, size]`."""
    drawn = rng.integers(size, size=(n, draws)) + size * np.arange(n)[:, None]
    return np.bincount(drawn.ravel(), minlength=n * size).reshape(n, size).astype(float)


def bootstrap_totals(rows: np.ndarray, n: int, rng: np.random.Generator) -> Iterator[np.ndarray]:
    """Totals of resampled clusters, chunks of `[<=CHUNK, J, K]` from `rows [G, S, J, K]`.

    Sentences are drawn with replacement; seeds too where there are at least three of them (G - 1 of G, which makes
    the variance of a mean over few seeds unbiased). The J tables of one draw are resampled together.
    """
    n_seeds, n_sentences = rows.shape[:2]
    for start in range(0, n, CHUNK):
        size = min(CHUNK, n - start)
        sentences = bootstrap_counts(n_sentences, n_sentences, size, rng)
        if n_seeds < 3:
            yield np.tensordot(sentences, rows.sum(0), 1)
            continue
        seeds = bootstrap_counts(n_seeds, n_seeds - 1, size, rng) * n_seeds / (n_seeds - 1)
        yield sum(np.tensordot(seeds[:, [g]] * sentences, rows[g], 1) for g in range(n_seeds))


def content_difference(totals: np.ndarray, score: Score) -> np.ndarray:
    """Effects `[...]` from totals `[..., J, K]`: the own totals of each condition, then the null ones.

    With J = 4 (EEG and a control) the difference in differences, with J = 2 (EEG alone) score minus null.
    """
    scores = score(totals)
    half = scores.shape[-1] // 2
    content = scores[..., :half] - scores[..., half:]
    return content[..., 0] - content[..., 1] if half == 2 else content[..., 0]


def p_value(observed: float, null: np.ndarray) -> float:
    """One-sided permutation p, (1 + b) / (1 + B); b counts draws at least as large (ties within rounding count)."""
    tolerance = 1e-9 * max(1.0, abs(observed))
    return float((1 + np.count_nonzero(null >= observed - tolerance)) / (1 + len(null)))


def minimum_detectable_effect(
    permutation_sd: float, strata: np.ndarray, alpha: float = 0.05, power: float = 0.9
) -> float:
    """The smallest content effect that the permutation test finds with `power` at one-sided `alpha`.

    A random permutation leaves one sentence of every stratum in place on average, and with it that share of the
    effect: the distance between the observed statistic and the permutation mean is the effect times the rest.
    """
    moved = 1 - len(np.unique(strata)) / len(strata)
    return float((stats.norm.ppf(1 - alpha) + stats.norm.ppf(power)) * permutation_sd / moved)


def seed_p_value(effects: np.ndarray) -> float:
    """One-sided t test that the mean effect of independently trained seeds is above 0; needs at least 3."""
    spread = np.std(effects, ddof=1)
    if spread == 0:
        return 0.0 if np.mean(effects) > 0 else 1.0
    return float(stats.t.sf(np.mean(effects) / (spread / np.sqrt(len(effects))), len(effects) - 1))


def seed_detectable_effect(effects: np.ndarray, alpha: float = 0.05, power: float = 0.9) -> float:
    """The smallest mean effect that `seed_p_value` finds with `power`, from the spread of the seeds at hand."""
    n = len(effects)
    critical = stats.t.ppf(1 - alpha, n - 1)
    shift = optimize.brentq(lambda nc: stats.nct.sf(critical, n - 1, nc) - power, 0, 100)
    return float(shift * np.std(effects, ddof=1) / np.sqrt(n))


def holm(p_values: np.ndarray) -> np.ndarray:
    """Holm's step-down adjustment, `[N]`."""
    order = np.argsort(p_values)
    adjusted = np.maximum.accumulate(np.asarray(p_values)[order] * np.arange(len(order), 0, -1))
    result = np.empty(len(order))
    result[order] = np.minimum(adjusted, 1)
    return result


def gradient(score: Score, total: np.ndarray) -> np.ndarray:
    """Derivative of a score by each summed statistic, `[K]`, by central differences of 1e-4 of the statistic."""
    steps = np.diag(np.maximum(np.abs(total), 1) * 1e-4)
    return (score(total + steps) - score(total - steps)) / (2 * np.diag(steps))


def design_effect(score: Score, rows: np.ndarray, clusters: np.ndarray) -> float:
    """Variance of a corpus score when clusters are independent over the variance when rows were, both linearized.

    `rows [N, K]` are per-row statistics, `clusters` int `[N]`. 1 means that rows carry as much as independent ones.
    """
    influence = (rows - rows.mean(0)) @ gradient(score, rows.sum(0))
    clustered = np.bincount(clusters, influence)
    rowwise = float(influence @ influence)
    return float(clustered @ clustered) / rowwise if rowwise > 0 else float("nan")
