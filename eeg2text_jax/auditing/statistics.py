"""Cluster statistics on tables of sufficient statistics, without access to texts or files.

Shapes: `S` sentences, `C` cells of `Blocks` (predictions for a sentence, reference of a sentence of its stratum), `K`
statistics of a metric, `G` training seeds, `B` resamples. A corpus score is a function of a sum of statistics, so no
function here needs the texts.

**Every reference keeps its weight, the number of its rows.** Cell (s, t) of a table is the mean of the statistics of
the predictions for s against reference t over the `n_s` rows of s, times the `n_t` rows of t: `sum * n_t / n_s`. The
diagonal (s = t) is the observed corpus. Off the diagonal, too, reference t has the weight `n_t`. The number of rows
correlates with the task, and the task with the kind of sentence. If the weight followed the predictions, references
of one kind would weigh more in the observed score than in permuted ones, and sentences would not be exchangeable.
"""

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from statistics import NormalDist

import numpy as np
from scipy import sparse

from eeg2text_jax.auditing.row_counts import OwnRows, RowSpread, row_spread
from eeg2text_jax.auditing.strata import Blocks

Score = Callable[[np.ndarray], np.ndarray]  # summed statistics [..., K] -> score [...], higher is better

ALPHA, POWER = 0.05, 0.9  # of a minimum detectable effect: one-sided level, and share of studies that find it
normal_quantile = NormalDist().inv_cdf
CHUNK_CELLS = 2_000_000  # resamples times sentences at once: bounds the memory


def keep_row_counts(sums: np.ndarray, counts: np.ndarray, blocks: Blocks) -> np.ndarray:
    """Return a table `[G, C, K]` whose references keep their number of rows, from sums over rows `[G, C, K]`.

    `counts [G, S]` are the rows of each sentence, which needs a row in some seed. If a seed has no row of a sentence,
    the mean over the other seeds' rows replaces it, because references of this seed are scored against all sentences.
    """
    kept = np.empty(sums.shape)
    for (members, block), (_, result) in zip(blocks.views(sums), blocks.views(kept), strict=True):
        n = counts[:, members].astype(float)  # [G, Q, m]
        mean = block / np.maximum(n, 1)[..., None, None]
        if not n.all():
            pooled = block.sum(0) / n.sum(0)[..., None, None]
            mean = np.where((n > 0)[..., None, None], mean, pooled)
        result[...] = mean * n[:, :, None, :, None]
    return kept


def own_totals(table: np.ndarray, blocks: Blocks) -> np.ndarray:
    """Return the statistics of each sentence against its own reference, `[..., S, K]`, from a table `[..., C, K]`."""
    own = np.zeros((*table.shape[:-2], blocks.n_sentences, table.shape[-1]))
    own[..., blocks.sentences, :] = table[..., blocks.own, :]
    return own


def null_shares(table: np.ndarray, blocks: Blocks) -> np.ndarray:
    """Return each sentence's share of the content null, `[..., S, K]` from a weighted table `[..., C, K]`."""
    shares = np.zeros((*table.shape[:-2], blocks.n_sentences, table.shape[-1]))
    for members, block in blocks.views(table):
        shares[..., members, :] = block_shares(block, np.ones(block.shape[:-2], bool))
    return shares


def block_shares(block: np.ndarray, present: np.ndarray) -> np.ndarray:
    """Return each sentence's share of the null, `[..., m, K]`, from a weighted block `[..., m, m, K]`.

    The axes m are the sentence of the predictions and the reference. `present [..., m]` says which sentences have
    predictions; references without predictions must have weight 0.

    **The content null** is the mean over all assignments of sentences to references of one stratum in which no sentence
    has its own reference: `sum_t mean_{s != t} table[s, t]`. A sentence contributes to it with its reference and with
    its predictions. So its share is the null of its reference, plus what its predictions change in the nulls of other
    references, compared with the other predictions there. The shares sum to the null. If predictions and references are
    merely easy or hard, `table[s, t] = a_s + b_t`, own minus share is 0 for every sentence of a stratum with equal
    rows. So a bootstrap of own and shares over sentences has the variance of the statistic, or slightly more in small
    strata.
    """
    size = block.shape[-2]
    valid = present[..., :, None] & ~np.eye(size, dtype=bool)  # [..., s, t]
    others = valid.sum(-2)[..., None]  # [..., t, 1]: predictions that t can be held against
    off = np.where(valid[..., None], block, 0)
    column = off.sum(-3) / np.maximum(others, 1)  # [..., t, K]
    # Against the mean without s as well: x - (sum - x) / (n - 1) = (x - mean) n / (n - 1); averaged over the n others.
    share = np.where(others > 1, 1 / np.maximum(others - 1, 1), 1.0)
    change = np.where(valid[..., None], off - column[..., None, :, :], 0) * share[..., None, :, :]
    return column + change.sum(-2)


def permuted_totals(tables: Sequence[np.ndarray], blocks: Blocks, n: int, rng: np.random.Generator) -> list[np.ndarray]:
    """Return totals `[n, K]` of each table `[C, K]` under `n` random assignments within strata, the same for all."""
    columns = np.concatenate(tables, axis=1)
    totals = []
    for size in _chunks(n, len(blocks.sentences)):
        cells = blocks.permuted(size, rng)
        chosen = sparse.csr_array(
            (np.ones(cells.size), cells.ravel(), np.arange(0, cells.size + 1, cells.shape[1])),
            shape=(size, blocks.n_cells),
        )
        totals.append(chosen @ columns)
    return np.split(np.concatenate(totals), np.cumsum([table.shape[1] for table in tables])[:-1], axis=1)


def _chunks(n: int, width: int) -> Iterator[int]:
    step = max(1, CHUNK_CELLS // max(width, 1))
    for start in range(0, n, step):
        yield min(step, n - start)


def bootstrap_counts(size: int, draws: int, n: int, rng: np.random.Generator) -> np.ndarray:
    """Return how often each of `size` units occurs in `draws` draws with replacement, float `[n, size]`."""
    drawn = rng.integers(size, size=(n, draws)) + size * np.arange(n)[:, None]
    return np.bincount(drawn.ravel(), minlength=n * size).reshape(n, size).astype(float)


def bootstrap_totals(rows: np.ndarray, n: int, rng: np.random.Generator) -> Iterator[np.ndarray]:
    """Yield `n` bootstrap totals, in chunks `[<=n, J, K]`, from `rows [G, S, J, K]`.

    Sentences are drawn with replacement, the same ones for all J tables. If there are at least three seeds, G - 1 of G
    seeds are drawn, too, which makes the variance of a mean over few seeds unbiased.
    """
    n_seeds, n_sentences = rows.shape[:2]
    for size in _chunks(n, n_sentences):
        sentences = bootstrap_counts(n_sentences, n_sentences, size, rng)
        if n_seeds < 3:
            yield np.tensordot(sentences, rows.sum(0), 1)
            continue
        seeds = bootstrap_counts(n_seeds, n_seeds - 1, size, rng) * n_seeds / (n_seeds - 1)
        yield sum((np.tensordot(seeds[:, [g]] * sentences, rows[g], 1) for g in range(n_seeds)), np.zeros(()))


@dataclasses.dataclass(frozen=True)
class Resampled:
    """Observed, permuted and bootstrapped statistics of one condition under one metric, for a `Contrast`."""

    own: np.ndarray  # statistics of each sentence against its own reference, [G, S, K]
    null: np.ndarray  # share of each sentence in the content null, [G, S, K]
    permuted: np.ndarray  # totals under random assignments of sentences to references of their stratum, [B, K]
    in_place: np.ndarray  # share of the rows whose reference keeps its own sentence in an assignment, [B]
    bootstrapped: np.ndarray  # totals of own and null over sentences drawn with replacement, [B, 2, K]
    spread: RowSpread | None = None  # over all conditions; None if single rows are not known
    place: int = 0  # index of this condition in `spread`


def resample(
    sums: Sequence[np.ndarray],
    counts: Sequence[np.ndarray],
    blocks: Blocks,
    *,
    resamples: int,
    rng: np.random.Generator,
    rows: Sequence[OwnRows] | None = None,
) -> list[Resampled]:
    """Permute and bootstrap conditions of the same sentences, with the same draws for all.

    Args:
      sums: per condition the statistics of each cell, summed over rows, `[G, C, K]`.
      counts: per condition the rows of each sentence, int `[G, S]`.
      blocks: the strata; sentences are exchanged within them.
      rows: per condition the single rows, for the detectable effect where sentences have unequal numbers of rows.
    """
    tables = [keep_row_counts(s, n, blocks) for s, n in zip(sums, counts, strict=True)]
    unequal = rows and np.ptp(counts[0]) > 0
    spread = row_spread(np.concatenate(tables, -1), rows, counts[0], blocks) if unequal else None
    totals = [n.sum(0) for n in counts]
    return resample_tables(tables, totals, blocks, resamples=resamples, rng=rng, spread=spread)


def resample_tables(
    tables: Sequence[np.ndarray],
    counts: Sequence[np.ndarray],
    blocks: Blocks,
    *,
    resamples: int,
    rng: np.random.Generator,
    spread: RowSpread | None = None,
) -> list[Resampled]:
    """Permute and bootstrap tables of scores, and return the results of each condition.

    For each condition `tables` has sums of weighted rows `[G, C, K]` (seed, cell of `blocks`, statistic), and `counts`
    the number of rows of each sentence, int `[S]`.
    """
    weights = []  # share of the rows in the cells of a sentence with its own reference, `[C, 1]`
    for rows in counts:
        weights.append(np.zeros((blocks.n_cells, 1)))
        weights[-1][blocks.own, 0] = rows[blocks.sentences] / rows[blocks.sentences].sum()
    permuted = permuted_totals([*(table.sum(0) for table in tables), *weights], blocks, resamples, rng)
    own = [own_totals(table, blocks) for table in tables]
    null = [null_shares(table, blocks) for table in tables]
    shares = np.stack([*own, *null], 2)[:, blocks.sentences]  # [G, S', 2 * conditions, K]
    drawn = np.concatenate(list(bootstrap_totals(shares, resamples, rng)))
    n = len(tables)
    return [
        Resampled(own[i], null[i], permuted[i], permuted[n + i][:, 0], drawn[:, [i, n + i]], spread, i)
        for i in range(n)
    ]


def content_difference(totals: np.ndarray, score: Score) -> np.ndarray:
    """Return effects `[...]` from totals `[..., J, K]`: own totals of each condition, then their nulls.

    J = 4 (EEG and a control) gives the difference of two contents, J = 2 (EEG alone) the content.
    """
    scores = score(totals)
    half = scores.shape[-1] // 2
    content = scores[..., :half] - scores[..., half:]
    return content[..., 0] - content[..., 1] if half == 2 else content[..., 0]


def p_value(observed: float, null: np.ndarray) -> float:
    """Return the one-sided permutation p, (1 + b) / (1 + B), of `B` draws; b of them are not smaller than observed."""
    tolerance = 1e-9 * max(1.0, abs(observed))
    return float((1 + np.count_nonzero(null >= observed - tolerance)) / (1 + len(null)))


def minimum_detectable_effect(sd: float, in_place: np.ndarray, *, growth: float = 0.0, observed: float = 1.0) -> float:
    """Return the smallest content effect that the permutation test finds with power `POWER` at one-sided `ALPHA`.

    Args:
      sd: standard deviation of the permuted statistic without an effect.
      in_place: share of the rows that each permutation leaves with their own reference, `[B]`.
      growth: growth of the variance of the observed statistic with each point of the effect.
      observed: standard deviation of the observed statistic without an effect, as a share of `sd`.

    At an effect d the standard deviation of the observed statistic is `sqrt((observed * sd) ** 2 + growth * d)`. A
    permutation keeps a share `in_place` of d, and exceeds an observed statistic of d + e with probability
    `Phi((d * in_place - d - e) / sd)`. The result is the smallest d for which this probability is `ALPHA` on
    average over the permutations, where the deviation e is at its quantile 1 - `POWER`. It is infinite if too many
    permutations leave everything in place.
    """
    from scipy import optimize, special  # slow to import, and scoring a file needs none of it

    if sd == 0:
        return 0.0
    moved, quantile, growth = 1 - in_place, normal_quantile(POWER), growth / sd

    def shortfall(x: float) -> float:
        return float(special.ndtr(quantile * np.sqrt(observed**2 + growth * x) - x * moved).mean()) - ALPHA

    if shortfall(1e3) > 0:
        return float("inf")
    return float(optimize.brentq(shortfall, 0.0, 1e3) * sd)


def interval_detectable_effect(reach: float, effect: float, *, growth: float = 0.0, observed: float = 1.0) -> float:
    """Return the smallest effect whose one-sided 95 % interval excludes 0 with power `POWER`.

    `reach` is the distance from the observed `effect` down to the end of its interval. The variance grows by `growth`
    with each point by which an effect exceeds the observed one. The standard deviation of the effect over studies is
    `observed` times the one that the interval shows.
    """
    ratio = 1 + observed * normal_quantile(POWER) / normal_quantile(0.95)
    spread = growth * normal_quantile(0.95) ** 2  # d = ratio * sqrt(reach ** 2 + spread * (d - effect)), solved for d
    half = ratio**2 * spread / 2
    return float(half + np.sqrt(max(half**2 + ratio**2 * (reach**2 - spread * max(effect, 0.0)), 0.0)))


def seed_p_value(effects: np.ndarray) -> float:
    """Return the one-sided p of a t test that the mean effect of training seeds, at least three, is above 0."""
    from scipy import stats  # slow to import, and scoring a file needs none of it

    spread = np.std(effects, ddof=1)
    if spread == 0:
        return 0.0 if np.mean(effects) > 0 else 1.0
    return float(stats.t.sf(np.mean(effects) / (spread / np.sqrt(len(effects))), len(effects) - 1))


def seed_detectable_effect(effects: np.ndarray) -> float:
    """Return the smallest mean effect of seeds with this spread that `seed_p_value` finds with power `POWER`."""
    from scipy import optimize, stats  # slow to import, and scoring a file needs none of it

    n = len(effects)
    critical = stats.t.ppf(1 - ALPHA, n - 1)
    shift = optimize.brentq(lambda nc: stats.nct.sf(critical, n - 1, nc) - POWER, 0, 100)
    return float(shift * np.std(effects, ddof=1) / np.sqrt(n))


def holm(p_values: np.ndarray) -> np.ndarray:
    """Return p values adjusted by Holm's step-down method, `[N]`."""
    order = np.argsort(p_values)
    adjusted = np.maximum.accumulate(np.asarray(p_values)[order] * np.arange(len(order), 0, -1))
    result = np.empty(len(order))
    result[order] = np.minimum(adjusted, 1)
    return result


def gradient(score: Score, total: np.ndarray) -> np.ndarray:
    """Return the derivative of a score by each summed statistic, `[K]`: central differences with steps of 1e-4."""
    steps = np.diag(np.maximum(np.abs(total), 1) * 1e-4)
    return (score(total + steps) - score(total - steps)) / (2 * np.diag(steps))


def design_effect(score: Score, rows: np.ndarray, clusters: np.ndarray) -> float:
    """Return the ratio of two variances of a corpus score: with independent clusters, and with independent rows.

    The score is linearized. `rows [N, K]` are statistics of single rows, `clusters` int `[N]`. 1: rows are as good as
    independent; NaN: the score does not vary.
    """
    influence = (rows - rows.mean(0)) @ gradient(score, rows.sum(0))
    clustered = np.bincount(clusters, influence)
    rowwise = float(influence @ influence)
    return float(clustered @ clustered) / rowwise if rowwise > 0 else float("nan")
