"""Cluster statistics on tables of sufficient statistics, without access to texts or files.

Shapes: `S` sentences, `C` cells of `Blocks` (predictions of one sentence, reference of one in the same stratum), `K`
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

import numpy as np
from scipy import sparse

from eeg2text_jax.auditing.row_counts import OwnRows, RowSpread, row_spread
from eeg2text_jax.auditing.strata import Blocks

Score = Callable[[np.ndarray], np.ndarray]  # summed statistics [..., K] -> score [...], higher is better

CHUNK_CELLS = 2_000_000  # resamples times sentences at once: bounds the memory


def keep_row_counts(sums: np.ndarray, counts: np.ndarray, blocks: Blocks) -> np.ndarray:
    """Weight the table: `[G, C, K]` from statistics summed over rows, `[G, C, K]`, and rows per sentence `[G, S]`.

    Where a seed has no row of a sentence, the mean over the other seeds' rows of that sentence stands in, so that
    references keep their rows in every seed. Every sentence needs a row in some seed.
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
    """Return each sentence's predictions against its own reference, `[..., S, K]` from `[..., C, K]`."""
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
    """Shares `[..., m, K]` of the null of a weighted block `[..., m, m, K]` (sentence of the predictions, reference).

    `present [..., m]` says which sentences have predictions; references without them must have weight 0.

    **The content null** is the mean over all assignments of sentences to references of one stratum in which no sentence
    keeps its own reference: each reference t, with its own number of rows, is held against every other sentence's
    predictions with equal chance, `sum_t mean_{s != t} table[s, t]`. A sentence matters to it twice, by its reference
    and by its predictions, and its share is the sum of both: the null of its reference, plus what its predictions
    change in the nulls of the others (against the mean of the predictions that are neither's own). The shares sum to
    the null. Where predictions and references are merely easy or hard, `table[s, t] = a_s + b_t`, own minus share is
    0 for every sentence of a stratum with equal rows; so a bootstrap over sentences of own and shares has the variance
    of the statistic, a little more in small strata, and never less.
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
    """Totals `[n, K]` of each table `[C, K]` under random assignments within strata, the same one for all tables."""
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
    """Totals of resampled clusters, chunks of `[<=n, J, K]` from `rows [G, S, J, K]`.

    Sentences are drawn with replacement, each with all of its rows and its share of the null; seeds too where there
    are at least three of them (G - 1 of G, which makes the variance of a mean over few seeds unbiased). The J tables of
    one draw are resampled together.
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
    """The resampled totals of one condition under one metric, for a contrast.

    `own`, `null [G, S, K]`: each sentence against its own reference, and its share of the content null. `permuted
    [B, K]`: totals when the sentences are given to references of their stratum at random. `in_place [B]`: the share of
    rows whose reference kept its own sentence there. `bootstrapped [B, 2, K]`: totals of own and null over sentences
    drawn with replacement. `spread` is that of all conditions, of which this is number `place`; None if single rows are
    not known.
    """

    own: np.ndarray
    null: np.ndarray
    permuted: np.ndarray
    in_place: np.ndarray
    bootstrapped: np.ndarray
    spread: RowSpread | None = None
    place: int = 0


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
    weights = [_own_weight(n.sum(0), blocks) for n in counts]
    permuted = permuted_totals([*(table.sum(0) for table in tables), *weights], blocks, resamples, rng)
    own = [own_totals(table, blocks) for table in tables]
    null = [null_shares(table, blocks) for table in tables]
    shares = np.stack([*own, *null], 2)[:, blocks.sentences]  # [G, S', 2 * conditions, K]
    drawn = np.concatenate(list(bootstrap_totals(shares, resamples, rng)))
    n = len(tables)
    unequal = rows and np.ptp(counts[0]) > 0
    spread = row_spread(np.concatenate(tables, -1), rows, counts[0], blocks) if unequal else None
    return [
        Resampled(own[i], null[i], permuted[i], permuted[n + i][:, 0], drawn[:, [i, n + i]], spread, i)
        for i in range(n)
    ]


def _own_weight(counts: np.ndarray, blocks: Blocks) -> np.ndarray:
    """`[C, 1]`: share of the rows in each cell of a sentence with its own reference, 0 in the others."""
    weight = np.zeros((blocks.n_cells, 1))
    rows = counts[blocks.sentences].astype(float)
    weight[blocks.own, 0] = rows / rows.sum()
    return weight


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
    sd: float,
    in_place: np.ndarray,
    alpha: float = 0.05,
    power: float = 0.9,
    *,
    growth: float = 0.0,
    observed: float = 1.0,
) -> float:
    """Return the smallest content effect that the permutation test finds with `power` at one-sided `alpha`.

    `sd` is that of the permuted statistic where nothing is to be found; at an effect d that of the observed one is
    `sqrt((observed * sd) ** 2 + growth * d)`. With an effect d in every row, a permutation that leaves a share
    `in_place` of the rows where they are keeps that share of d, and exceeds an observed statistic of d + e with
    probability `Phi((d * in_place - d - e) / sd)`. The smallest d is the one for which that is `alpha` on average over
    the permutations at hand when e is as low as it is in 1 - `power` of the sets. It is infinite where too many
    permutations leave everything in place.
    """
    from scipy import optimize, special  # slow to import, and scoring a file needs none of it

    if sd == 0:
        return 0.0
    moved, quantile, growth = 1 - in_place, normal_quantile(power), growth / sd

    def shortfall(x: float) -> float:
        return float(special.ndtr(quantile * np.sqrt(observed**2 + growth * x) - x * moved).mean()) - alpha

    if shortfall(1e3) > 0:
        return float("inf")
    return float(optimize.brentq(shortfall, 0.0, 1e3) * sd)


def interval_detectable_effect(reach: float, effect: float, power: float = 0.9, *, growth: float = 0.0) -> float:
    """The smallest effect whose one-sided 95 % interval excludes 0 with `power`.

    `reach` is how far that interval reaches below the `effect` that was seen. The variance grows by `growth` times what
    the effect exceeds the one seen.
    """
    ratio = 1 + normal_quantile(power) / normal_quantile(0.95)
    spread = growth * normal_quantile(0.95) ** 2  # d = ratio * sqrt(reach ** 2 + spread * (d - effect)), solved for d
    half = ratio**2 * spread / 2
    return float(half + np.sqrt(max(half**2 + ratio**2 * (reach**2 - spread * max(effect, 0.0)), 0.0)))


def normal_quantile(probability: float) -> float:
    from scipy import special  # slow to import, and scoring a file needs none of it

    return float(special.ndtri(probability))


def seed_p_value(effects: np.ndarray) -> float:
    """One-sided t test that the mean effect of independently trained seeds is above 0; needs at least 3."""
    from scipy import stats  # slow to import, and scoring a file needs none of it

    spread = np.std(effects, ddof=1)
    if spread == 0:
        return 0.0 if np.mean(effects) > 0 else 1.0
    return float(stats.t.sf(np.mean(effects) / (spread / np.sqrt(len(effects))), len(effects) - 1))


def seed_detectable_effect(effects: np.ndarray, alpha: float = 0.05, power: float = 0.9) -> float:
    """Return the smallest mean effect that `seed_p_value` finds with `power`, from the spread of the seeds."""
    from scipy import optimize, stats  # slow to import, and scoring a file needs none of it

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
