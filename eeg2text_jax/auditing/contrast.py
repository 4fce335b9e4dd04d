"""Content differences between conditions: p, interval and minimum detectable effect, overall and in each subject."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from eeg2text_jax.auditing import statistics
from eeg2text_jax.auditing.align import Condition
from eeg2text_jax.auditing.content_cells import RowTable
from eeg2text_jax.auditing.statistics import Resampled, Score

NOTHING = 1e-9  # a smaller spread of scores, in their unit, is rounding error


@dataclasses.dataclass(frozen=True)
class SampledGroups:
    """Groups (classes, topics or stories) of which a study tests some; another study would test others."""

    column: str
    labels: np.ndarray  # group of each sentence, int [S]
    known: int  # number of groups of all texts, such as those of the training part

    @property
    def tested(self) -> int:
        return len(np.unique(self.labels))

    def __str__(self) -> str:
        return (
            f"{self.tested} of {self.known} groups by {self.column} are tested; if their effects differ by more than "
            "chance, the minimum detectable effect includes this spread, since another study would test other groups."
        )


@dataclasses.dataclass(frozen=True)
class Contrast:
    """The content of EEG (its score minus its null), minus the content of the control if there is one.

    Scores are in the metric's unit (percent), higher is better.
    """

    scores: tuple[float, ...]  # of each condition, EEG first
    nulls: tuple[float, ...]  # of each condition: score of the same predictions against other sentences
    observed: float  # score of EEG, minus the score of the control
    gap_interval: tuple[float, float]  # 95 % interval of `observed` over sentences
    effect: float  # content of EEG, minus the content of the control
    p: float  # one-sided permutation p of more content with EEG
    p_less: float  # the same p for less content
    p_seeds: float | None  # p of a one-sided t test over the training seeds; None: fewer than three seeds
    interval: tuple[float, float]  # two-sided 95 % interval of `effect`
    interval_90: tuple[float, float]  # decides equivalence: two one-sided tests at 5 %
    permutation_sd: float  # standard deviation of `null_draws` without the effect of references in their own place
    mde: float  # minimum detectable effect
    smallest_margin: float  # the margin from which on equivalence could be claimed
    seed_effects: tuple[float, ...]  # `effect` in each training seed
    null_draws: np.ndarray  # `observed` under permuted references, [B]
    boot_draws: np.ndarray  # bootstrapped `effect`, [B]

    @property
    def p_primary(self) -> float:
        """The p that decides on more content: of the permutation or, if larger, of the t test over 3 or more seeds."""
        return self.p if self.p_seeds is None else max(self.p, self.p_seeds)

    @property
    def p_less_primary(self) -> float:
        """The p that decides on less content with EEG; the t test over seeds is symmetric."""
        return self.p_less if self.p_seeds is None else max(self.p_less, 1 - self.p_seeds)

    @property
    def varies(self) -> bool:
        """Whether permuting the references changes the score (difference); if not, no effect can be found."""
        return self.permutation_sd > NOTHING


def contrast(conditions: Sequence[Resampled], score: Score, groups: Sequence[SampledGroups] = ()) -> Contrast:
    """Compare EEG with a control of the same sentences, or judge EEG alone.

    Args:
      conditions: EEG and the control, or EEG alone, from one call of `resample` or `content_tables`: draw b is the same
        permutation, or the same sentences, in each condition.
      score: summed statistics -> score, higher is better.
      groups: groups of which only some are tested. The detectable effect includes the spread of the effect over them.

    **Null hypothesis.** Within a stratum, predictions do not depend on which of its sentences was read. Then all
    assignments of predictions to references are equally likely, if the predictions of EEG and control for one sentence
    stay together and each reference keeps its number of rows. How predictions of EEG and control differ is left open:
    style, length or collapse shifts the permuted differences as much as the observed one. Rows of a sentence are never
    separated, so dependent rows do not count twice. Means over few rows vary more than means over many, and may be
    assigned to references with many rows. So permuted differences vary a little more than the observed one: the test is
    conservative, and the detectable effect includes this.

    The interval is a bootstrap over sentences. It is widened, where necessary, to the effect plus and minus the normal
    quantile times the standard deviation of the permutations, the wider of the two if a few sentences have most rows.
    If no permutation changes any score (all scores are 0, for example), `mde` and `smallest_margin` are infinite.
    """
    signs = np.array([1.0, -1.0])[: len(conditions)]
    scores = np.array([score(c.own.sum((0, 1))) for c in conditions])
    nulls = np.array([score(c.null.sum((0, 1))) for c in conditions])
    observed, effect = float(signs @ scores), float(signs @ (scores - nulls))
    permuted = np.stack([score(c.permuted) for c in conditions])
    null_draws = signs @ permuted
    scores_vary = permuted.std(1).max() > NOTHING
    gaps = signs @ np.stack([score(c.bootstrapped[:, 0]) for c in conditions])
    boot_draws = statistics.content_difference(_stack([c.bootstrapped for c in conditions]), score)
    by_seed = _stack([np.stack([c.own.sum(1), c.null.sum(1)], 1) for c in conditions])
    seed_effects = statistics.content_difference(by_seed, score)

    in_place = conditions[0].in_place
    permutation_sd = float((null_draws - effect * in_place).std())
    seeds_are_level = len(seed_effects) >= 3
    low, high = _interval(effect, boot_draws, permutation_sd, 0.90)
    growth = _growth(permuted[0])
    if low > 0:  # then the interval shows the spread of the observed statistic at this effect, which limits the growth
        seen = (effect - low) / statistics.normal_quantile(0.95)
        growth = min(growth, max(seen**2 - permutation_sd**2, 0.0) / effect)
    scatter = _scatter(conditions, score, groups)
    share = _observed_share(conditions, score, signs) * scatter
    mde = statistics.minimum_detectable_effect(permutation_sd, in_place, growth=growth, observed=share)
    if seeds_are_level:
        mde = max(mde, statistics.seed_detectable_effect(seed_effects))
    by_interval = statistics.interval_detectable_effect(effect - low, effect, growth=growth, observed=scatter)
    mde = max(mde, by_interval)
    return Contrast(
        scores=tuple(scores.tolist()),
        nulls=tuple(nulls.tolist()),
        observed=observed,
        gap_interval=tuple(np.quantile(gaps, [0.025, 0.975]).tolist()),
        effect=effect,
        p=statistics.p_value(observed, null_draws),
        p_less=statistics.p_value(-observed, -null_draws),
        p_seeds=statistics.seed_p_value(seed_effects) if seeds_are_level else None,
        interval=_interval(effect, boot_draws, permutation_sd, 0.95),
        interval_90=(low, high),
        permutation_sd=permutation_sd,
        mde=float(mde) if scores_vary else float("inf"),
        smallest_margin=max(-low, high) if scores_vary else float("inf"),
        seed_effects=tuple(seed_effects.tolist()),
        null_draws=null_draws,
        boot_draws=boot_draws,
    )


def _growth(permuted: np.ndarray) -> float:
    """Return how much the variance of a score grows with each point of content, from permuted scores `[B]`.

    The variance of a number of hits is proportional to this number: if 1 % of the words are right by chance and another
    2 % by content, the variance is three times as large; in long texts the growth is close to 0. The result is 0 for
    scores that can be negative (error rates, some similarities), as they do not count hits. It is too large if hits
    come in clusters that EEG shares with the control, such as words of a class that both know; `contrast` limits it.
    """
    return float(permuted.var() / permuted.mean()) if permuted.min() >= 0 and permuted.mean() > NOTHING else 0.0


def _observed_share(conditions: Sequence[Resampled], score: Score, signs: np.ndarray) -> float:
    """Return the ratio of the standard deviations of observed and permuted scores (or differences); 1 if not known."""
    spread = conditions[0].spread
    if spread is None:
        return 1.0
    gradient = np.zeros(len(spread.within))
    for sign, condition in zip(signs, conditions, strict=True):
        total = condition.own.sum((0, 1))
        first = condition.place * len(total)
        gradient[first : first + len(total)] = sign * statistics.gradient(score, total)
    return spread.observed_share(gradient)


def _scatter(conditions: Sequence[Resampled], score: Score, groups: Sequence[SampledGroups]) -> float:
    """Return the ratio of two standard deviations of the effect: over studies of other groups, and of the same groups.

    The largest ratio of all `groups` counts. It is 1 if the linearized effect differs between groups by no more than
    chance: a test at 5 %, which takes the sentences as independent. If K of N known groups are tested, the share
    1 - K / N of the variance between groups counts, as for any sample without replacement.
    """
    if not groups:
        return 1.0
    from scipy import stats  # slow to import, and scoring a file needs none of it

    totals = _stack([np.stack([c.own.sum(0), c.null.sum(0)], 1) for c in conditions])  # [S, 2 * conditions, K]
    size, *parts = totals.shape

    def effect(rows: np.ndarray) -> np.ndarray:
        return statistics.content_difference(rows.reshape(*rows.shape[:-1], *parts), score)

    largest = 1.0
    for sampled in groups:
        tested, free = sampled.tested, sampled.tested - 1
        ratio = np.nan_to_num(statistics.design_effect(effect, totals.reshape(size, -1), sampled.labels))
        squares = ratio * tested * (size - 1) / size
        if squares > stats.chi2.ppf(0.95, free):
            largest = max(largest, 1 + (squares / free - 1) * (1 - tested / sampled.known))
    return float(np.sqrt(largest))


def _stack(totals: Sequence[np.ndarray]) -> np.ndarray:
    """Join totals (own, null) `[..., 2, K]` of all conditions to `[..., 2 * conditions, K]`: all own, then all null."""
    return np.concatenate([t[..., :1, :] for t in totals] + [t[..., 1:, :] for t in totals], axis=-2)


def _interval(effect: float, draws: np.ndarray, sd: float, level: float) -> tuple[float, float]:
    tail = (1 - level) / 2
    low, high = np.quantile(draws, [tail, 1 - tail])
    reach = statistics.normal_quantile(1 - tail) * sd
    return float(min(low, effect - reach)), float(max(high, effect + reach))


@dataclasses.dataclass(frozen=True)
class SubjectEffect:
    """Content difference for one subject, with a 95 % interval by bootstrap over the sentences the subject read.

    Only the subject's rows count: its predictions for one sentence are compared with the references of the other
    sentences that it read, each with its number of rows.
    """

    subject: str
    sentences: int
    effect: float
    interval: tuple[float, float]


def subject_effects(
    conditions: Sequence[Condition],
    tables: Sequence[RowTable],
    score: Score,
    *,
    resamples: int,
    rng: np.random.Generator,
) -> list[SubjectEffect]:
    """Return the effect in each subject, sorted by name; empty if rows have no subject.

    `conditions` and `tables` are of EEG and the control, or of EEG alone. If a subject read only one sentence of a
    stratum, this sentence has no null and is left out. A subject with no sentence left is left out, too.
    """
    known = [np.array([row.subject for row in condition.rows]) for condition in conditions]
    orders = [np.argsort(subjects, kind="stable") for subjects in known]
    n_sentences = 1 + int(conditions[0].sentence.max())  # all conditions have the same sentences
    effects = []
    for name in sorted(set(known[0].tolist()) - {""}):
        own, null, read = [], [], np.zeros(n_sentences, bool)
        for condition, table, subjects, order in zip(conditions, tables, known, orders, strict=True):
            first, last = (np.searchsorted(subjects, name, side, sorter=order) for side in ("left", "right"))
            mine = order[first:last]
            mine = mine[~np.isnan(table.null[mine, 0])]
            place = condition.sentence[mine]
            read[place] = True
            own.append(_summed(table.own[mine], place, n_sentences))
            null.append(_summed(table.null[mine], place, n_sentences))
        if not read.any():
            continue
        stacked = np.stack([*own, *null], 1)[read]  # [sentences read, 2 * conditions, K]
        value = float(statistics.content_difference(stacked.sum(0), score))
        totals = statistics.bootstrap_totals(stacked[None], resamples, rng)
        draws = np.concatenate([statistics.content_difference(total, score) for total in totals])
        low, high = np.quantile(draws, [0.025, 0.975]).tolist()
        effects.append(SubjectEffect(name, int(read.sum()), value, (low, high)))
    return effects


def _summed(rows: np.ndarray, place: np.ndarray, size: int) -> np.ndarray:
    """Return sums `[size, K]`; sum p is over the rows `[N, K]` with `place` (int `[N]`) equal to p."""
    return np.stack([np.bincount(place, column, minlength=size) for column in rows.T], 1)


@dataclasses.dataclass(frozen=True)
class Secondary:
    """Result of an endpoint that does not decide. Higher is better, except for `scores`, which are as printed."""

    label: str
    signature: str
    scores: tuple[float, ...]
    gap_interval: tuple[float, float]
    effect: float
    interval: tuple[float, float]
    p: float
    p_holm: float


@dataclasses.dataclass(frozen=True)
class Evidence:
    """The comparison of EEG with one control, or with its own null if `control` is "".

    `primary` is within the strata of the alignment. `derived` repeats it within other strata; its keys say what these
    are made from. A claim must hold within all strata.
    """

    control: str
    primary: Contrast
    derived: dict[str, Contrast]
    secondary: list[Secondary]
    subjects: list[SubjectEffect]

    @property
    def contrasts(self) -> list[Contrast]:
        """The contrast within the strata of the alignment, then within each of the other strata."""
        return [self.primary, *self.derived.values()]
