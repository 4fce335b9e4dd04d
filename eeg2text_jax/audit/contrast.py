"""The endpoint: how much content one condition has beyond another, with its p, interval and detectable effect."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from eeg2text_jax.audit import statistics
from eeg2text_jax.audit.statistics import Score


@dataclasses.dataclass(frozen=True)
class Contrast:
    """Content of an EEG condition above its null, minus the same of a control (or the former alone).

    Scores are in the metric's unit (percent), higher is better. `interval` is the two-sided 95 % bootstrap interval
    of `effect`; `interval_90` is the one that decides equivalence (two one-sided tests at 5 %). `null_draws` are the
    score differences under permuted references, `observed` the score difference, `boot_draws` the bootstrapped
    effects; all three feed figures.
    """

    scores: tuple[float, ...]  # per condition, EEG first
    nulls: tuple[float, ...]
    observed: float
    effect: float
    p: float
    p_less: float
    p_seeds: float | None
    interval: tuple[float, float]
    interval_90: tuple[float, float]
    permutation_sd: float
    mde: float
    smallest_margin: float
    seed_effects: tuple[float, ...]
    null_draws: np.ndarray
    boot_draws: np.ndarray

    @property
    def p_primary(self) -> float:
        """What the verdict rests on: the permutation p, and the seeds' p too where seeds are a level."""
        return self.p if self.p_seeds is None else max(self.p, self.p_seeds)

    @property
    def p_less_primary(self) -> float:
        """The same for EEG below the control; the t test over seeds is symmetric."""
        return self.p_less if self.p_seeds is None else max(self.p_less, 1 - self.p_seeds)


def contrast(
    tables: Sequence[np.ndarray], strata: np.ndarray, score: Score, *, resamples: int, rng: np.random.Generator
) -> Contrast:
    """Compares conditions that read the same sentences.

    Args:
      tables: `[G, S, S, K]` per condition (EEG, then the control; or EEG alone): per training seed, sentence and
        reference the summed statistics. Only entries within strata are used.
      strata: int `[S]`, every stratum with at least two sentences.
      score: summed statistics -> score, higher is better.
      resamples: number of permutations and of bootstrap draws.

    The p-values permute sentence -> reference within strata, the same permutation for every condition, with the
    score difference as statistic: a difference in style leaves the permuted differences where the observed one is.
    """
    signs = np.array([1.0, -1.0])[: len(tables)]
    pooled = [table.sum(0) for table in tables]
    own = [np.einsum("gssk->gsk", table) for table in tables]
    null = [np.stack([statistics.content_null(pairs, strata) for pairs in table]) for table in tables]
    scores = np.array([score(rows.sum((0, 1))) for rows in own])
    nulls = np.array([score(rows.sum((0, 1))) for rows in null])
    observed, effect = float(signs @ scores), float(signs @ (scores - nulls))

    permuted = statistics.permutations(strata, resamples, rng)
    null_draws = signs @ np.stack([score(statistics.permuted_totals(pairs, permuted)) for pairs in pooled])
    stacked = np.stack([*own, *null], 2)  # [G, S, 2 * conditions, K]
    boot_draws = np.concatenate(
        [statistics.content_difference(t, score) for t in statistics.bootstrap_totals(stacked, resamples, rng)]
    )
    low, high = np.quantile(boot_draws, [0.05, 0.95])
    seed_effects = statistics.content_difference(stacked.sum(1), score)
    permutation_sd = float(null_draws.std())
    seeds_are_level = len(seed_effects) >= 3
    mde = statistics.minimum_detectable_effect(permutation_sd, strata)
    if seeds_are_level:
        mde = max(mde, statistics.seed_detectable_effect(seed_effects))
    return Contrast(
        scores=tuple(scores.tolist()),
        nulls=tuple(nulls.tolist()),
        observed=observed,
        effect=effect,
        p=statistics.p_value(observed, null_draws),
        p_less=statistics.p_value(-observed, -null_draws),
        p_seeds=statistics.seed_p_value(seed_effects) if seeds_are_level else None,
        interval=tuple(np.quantile(boot_draws, [0.025, 0.975]).tolist()),
        interval_90=(float(low), float(high)),
        permutation_sd=permutation_sd,
        mde=mde,
        smallest_margin=float(max(-low, high)),
        seed_effects=tuple(seed_effects.tolist()),
        null_draws=null_draws,
        boot_draws=boot_draws,
    )
