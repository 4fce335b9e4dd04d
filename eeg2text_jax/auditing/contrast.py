"""How much content one condition has beyond another: p, interval and detectable effect; also in each subject."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from eeg2text_jax.auditing import statistics
from eeg2text_jax.auditing.align import Condition
from eeg2text_jax.auditing.content_cells import RowTable
from eeg2text_jax.auditing.statistics import Resampled, Score

NOTHING = 1e-9  # of the score's unit: a spread below is rounding


@dataclasses.dataclass(frozen=True)
class Contrast:
    """Content of an EEG condition above its null, minus the same of a control (or the former alone).

    Scores are in the metric's unit (percent), higher is better. `interval` is the two-sided 95 % interval of `effect`;
    `interval_90` is the one that decides equivalence (two one-sided tests at 5 %). `null_draws` are the score
    differences under permuted references, `observed` the score difference, `boot_draws` the bootstrapped effects; all
    three feed figures.
    """

    scores: tuple[float, ...]  # per condition, EEG first
    nulls: tuple[float, ...]
    observed: float
    gap_interval: tuple[float, float]  # 95 % interval of `observed`, whatever it comes from, over sentences
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
        """The p of the verdict: of the permutation, and of the test over seeds if seeds are a level."""
        return self.p if self.p_seeds is None else max(self.p, self.p_seeds)

    @property
    def p_less_primary(self) -> float:
        """The p of less content than the control; the t test over seeds is symmetric."""
        return self.p_less if self.p_seeds is None else max(self.p_less, 1 - self.p_seeds)

    @property
    def varies(self) -> bool:
        """Whether other references would have changed the score (difference); if not, nothing could be found."""
        return self.permutation_sd > NOTHING


def contrast(conditions: Sequence[Resampled], score: Score) -> Contrast:
    """Compare EEG with a control of the same sentences, or judge EEG alone.

    Args:
      conditions: from one call of `resample` or `content_tables`, so that draw b is the same permutation, or the same
        sentences, in each of them.
      score: summed statistics -> score, higher is better.

    **What is exchangeable.** The hypothesis is that within a stratum the predictions do not depend on which of its
    sentences was read. Then all assignments of the sentences' predictions, EEG's and the control's of a sentence
    together, to the references, each with its number of rows, are equally likely, and the observed one is one of them.
    How the predictions under EEG differ from those of the control is left open: any difference in style, length or
    collapse moves the permuted differences as it moves the observed one. Rows of a sentence are never separated, so
    what they share for other reasons than content does not count twice. Means over few rows scatter more than those
    over many, and here may be given to a reference with many: the permuted differences scatter a little more than the
    observed one, and the test errs on the side of saying nothing; the detectable effect counts that.

    The interval comes from a bootstrap over sentences; it is never narrower than the effect plus and minus the normal
    quantile times the permutation's standard deviation, which is the wider one where a few sentences hold most rows.
    Where no score depends on which references the predictions are held against (all are 0, say), no margin passes and
    no effect is detectable: both are infinite.
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
    if low > 0:  # then the interval shows how far an effect of this size may fall short
        seen = (effect - low) / statistics.normal_quantile(0.95)
        growth = min(growth, max(seen**2 - permutation_sd**2, 0.0) / effect)
    share = _observed_share(conditions, score, signs)
    mde = statistics.minimum_detectable_effect(permutation_sd, in_place, growth=growth, observed=share)
    if seeds_are_level:
        mde = max(mde, statistics.seed_detectable_effect(seed_effects))
    mde = max(mde, statistics.interval_detectable_effect(effect - low, effect, growth=growth))
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
    """How much the variance of a score grows with each point of content: that of hits is proportional to their number.

    With long texts it is next to nothing; where 1 % is right by chance and 2 % more by content it is three times as
    large. Scores that can be negative (error rates, some similarities) count no hits. It is too much where hits come in
    clusters that EEG shares with the control, such as words of a class that both know: the caller caps it there.

    Args:
      permuted: scores `[draws]` under permuted references.
    """
    return float(permuted.var() / permuted.mean()) if permuted.min() >= 0 and permuted.mean() > NOTHING else 0.0


def _observed_share(conditions: Sequence[Resampled], score: Score, signs: np.ndarray) -> float:
    """Return the spread of the observed score (difference) as a share of the permuted one's; 1 if it is not known."""
    spread = conditions[0].spread
    if spread is None:
        return 1.0
    gradient = np.zeros(len(spread.within))
    for sign, condition in zip(signs, conditions, strict=True):
        total = condition.own.sum((0, 1))
        first = condition.place * len(total)
        gradient[first : first + len(total)] = sign * statistics.gradient(score, total)
    return spread.observed_share(gradient)


def _stack(totals: Sequence[np.ndarray]) -> np.ndarray:
    """`[..., 2, K]` (own, null) per condition -> `[..., 2 * conditions, K]`: the own ones, then the null ones."""
    return np.concatenate([t[..., :1, :] for t in totals] + [t[..., 1:, :] for t in totals], axis=-2)


def _interval(effect: float, draws: np.ndarray, sd: float, level: float) -> tuple[float, float]:
    tail = (1 - level) / 2
    low, high = np.quantile(draws, [tail, 1 - tail])
    reach = statistics.normal_quantile(1 - tail) * sd
    return float(min(low, effect - reach)), float(max(high, effect + reach))


@dataclasses.dataclass(frozen=True)
class SubjectEffect:
    """Content difference within one subject, with its 95 % interval by bootstrap over the sentences it read.

    The subject's rows are a file of their own: its predictions for one sentence are held against the references of the
    others that it read, each with its number of rows, so that nothing depends on what other subjects read.
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

    `conditions` and `tables` are EEG's and the control's, or EEG's alone. Sentences that are the only one which the
    subject read in their stratum have no null and are left out; so is a subject without any other.
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
    """Return sums `[size, K]` of rows `[N, K]` by place, int `[N]`."""
    return np.stack([np.bincount(place, column, minlength=size) for column in rows.T], 1)


@dataclasses.dataclass(frozen=True)
class Secondary:
    """A figure that does not decide. Scores are as the metric prints them; in all else, higher is better."""

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
    """EEG against one control; `control` is empty if there is none.

    `primary` is within the strata of the alignment. `derived` repeats it within other strata, by the name of their
    source; a claim must hold under all of them.
    """

    control: str
    primary: Contrast
    derived: dict[str, Contrast]
    secondary: list[Secondary]
    subjects: list[SubjectEffect]

    @property
    def contrasts(self) -> list[Contrast]:
        """The contrasts under all strata."""
        return [self.primary, *self.derived.values()]
