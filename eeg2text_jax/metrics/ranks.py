"""Ranks of the true sentence among N candidates: top-k accuracy, its chance level, and the length-only baseline.

Tied candidates share the remaining places of the top k with equal probability: if all scores are equal, each candidate
is in the top k with probability k / N, the chance level.
"""

import dataclasses
import itertools
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from eeg2text_jax.metrics.metric import Metric
from eeg2text_jax.metrics.score import cells_of
from eeg2text_jax.predictions.rankings import Ranking

STATISTICS = ("top1", "top5", "percentile", "rows")
TOP = (1, 5)  # the k of top-k accuracy


def counts_above(scores: np.ndarray, chosen: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Count the candidates above, and equal to, each candidate in `chosen` `[m]`, in every row of `scores` `[R, N]`.

    `chosen` has indices of candidates. Both counts are int `[R, m]`; a candidate counts as equal to itself.
    """
    above, equal = np.empty((2, len(scores), len(chosen)), int)
    for row, values in enumerate(scores):
        ordered, own = np.sort(values), values[chosen]
        last = np.searchsorted(ordered, own, "right")
        above[row], equal[row] = len(values) - last, last - np.searchsorted(ordered, own, "left")
    return above, equal


def statistics(scores: np.ndarray, chosen: np.ndarray) -> np.ndarray:
    """Return the `STATISTICS` of the candidates with indices `chosen` `[m]` under scores `[R, N]`, float `[R, m, 4]`.

    The percentile rank is the share of other candidates with a lower score; tied ones count half.
    """
    above, equal = counts_above(scores, chosen)
    n = scores.shape[1]
    shares = [np.clip(k - above, 0, equal) / equal for k in TOP]
    rank = above + (equal + 1) / 2
    return np.stack([*shares, (n - rank) / (n - 1), np.ones(rank.shape)], axis=-1)


def chance(sizes: Sequence[int] | np.ndarray, k: int) -> float:
    """Return the probability that a random candidate is among the first `k`, on average over lists of these `sizes`."""
    return float(np.mean(np.minimum(k / np.asarray(sizes), 1.0)))


def chance_interval(probability: float, sentences: int, level: float = 0.95) -> tuple[float, float]:
    """Return the binomial interval of top-k accuracy under chance, as shares; `probability` is the chance level.

    The sample size is the number of sentences, because readers of one sentence may err together. If lists differ in
    size, the accuracy varies less than a binomial share, so the interval is not too narrow.
    """
    from scipy import stats  # slow to import, and not needed to score texts

    low, high = stats.binom.interval(level, sentences, probability)
    return float(low) / sentences, float(high) / sentences


def by_length(row: Ranking) -> np.ndarray:
    """Return the length-only baseline's scores `[N]`: higher for a word count closer to the true one."""
    return -np.abs(row.candidates.n_words - row.n_words)


@dataclasses.dataclass(frozen=True)
class Figures:
    """Top-1 accuracy, top-5 accuracy and mean percentile rank over rows, in percent."""

    top1: float
    top5: float
    percentile: float

    @classmethod
    def of(cls, summed: np.ndarray) -> "Figures":
        """Make figures from `STATISTICS` summed over rows."""
        return cls(*(100.0 * summed[:3] / summed[3]).tolist())


class RankMetric(Metric):
    """Ranks as a metric for the audit: predictions are rankings, references are candidate sentences."""

    name = "ranks"
    columns = ("top-1", "top-5", "rank")
    statistic_names = STATISTICS
    signature = "rank among all candidates|ties:shared|null:other sentences of equal task and length"

    def statistics(self, predictions: Sequence[Any], references: Sequence[str]) -> np.ndarray:
        pairs = zip(predictions, references, strict=True)
        return np.stack([statistics(row.scores[None], np.array([row.candidates.place(r)]))[0, 0] for row, r in pairs])

    def pairwise(self, predictions: Sequence[Any], references: Sequence[str]) -> np.ndarray:
        found = np.empty((len(predictions), len(references), len(STATISTICS)))
        lists: dict[int, list[int]] = {}
        for number, row in enumerate(predictions):
            lists.setdefault(id(row.candidates), []).append(number)
        for numbers in lists.values():
            candidates = predictions[numbers[0]].candidates
            chosen = np.array([candidates.place(text) for text in references])
            found[numbers] = statistics(np.stack([predictions[number].scores for number in numbers]), chosen)
        return found

    def corpus(self, summed: np.ndarray) -> np.ndarray:
        return 100.0 * summed[..., :3] / np.maximum(summed[..., 3:], 1e-12)


def right_statistics(rows: Sequence[Ranking], scores: Sequence[np.ndarray]) -> np.ndarray:
    """Return `STATISTICS` of every row's true sentence under that row's scores `[N]`, `[R, 4]`."""
    return np.stack([statistics(s[None], np.array([r.right]))[0, 0] for r, s in zip(rows, scores, strict=True)])


def score_rankings(rows: Sequence[Ranking]) -> list[dict[str, Any]]:
    """Return the figures of every cell (conditions, seed, mode), also by subject, in the layout of `score_cells`.

    Figures are percentages: `top-1`, `top-5`, `rank` (percentile; chance is 50), `top-1 in stratum` (among sentences of
    the same task and similar length), `top-5 by length` (the length-only baseline), and chance levels.
    """
    cells, by_subject = [], operator.attrgetter("subject")
    for cell, found in cells_of(rows):
        sizes = [len(row.candidates) for row in found]
        interval = [100.0 * share for share in chance_interval(chance(sizes, 5), cell["sentences"])]
        cell |= {"candidates": sorted(set(sizes)), "metrics": _figures(found), "chance_interval_top-5": interval}
        cell["by_subject"] = {}
        for subject, rows_of_subject in itertools.groupby(sorted(found, key=by_subject), by_subject):
            own = list(rows_of_subject)
            cell["by_subject"][subject] = {"rows": len(own)} | {k: v["value"] for k, v in _figures(own).items()}
        cells.append(cell)
    return cells


def _figures(rows: Sequence[Ranking]) -> dict[str, dict[str, Any]]:
    """Return figure -> {"value" in percent, "signature", "lower_is_better"} over some rows."""
    found = Figures.of(right_statistics(rows, [row.scores for row in rows]).sum(0))
    lengths = Figures.of(right_statistics(rows, [by_length(row) for row in rows]).sum(0))
    sizes = [len(row.candidates) for row in rows]
    n = "-".join(map(str, dict.fromkeys((min(sizes), max(sizes)))))
    inside = [_in_stratum(row) for row in rows]
    values = {
        "top-1": found.top1,
        "top-5": found.top5,
        "rank": found.percentile,
        "top-1 in stratum": 100.0 * float(np.mean([first for first, _ in inside])),
        "top-5 by length": lengths.top5,
        "chance top-1": 100.0 * chance(sizes, 1),
        "chance top-5": 100.0 * chance(sizes, 5),
        "chance top-1 in stratum": 100.0 * chance([size for _, size in inside], 1),
    }
    signature = f"of {n} distinct sentences|ties:shared|average:rows"
    return {name: {"value": value, "signature": signature, "lower_is_better": False} for name, value in values.items()}


def _in_stratum(row: Ranking) -> tuple[float, int]:
    """Return (top-1 statistic, 0 to 1; number of candidates) among candidates of the same task and similar length."""
    alike = np.flatnonzero(row.candidates.strata == row.candidates.strata[row.right])
    own = np.flatnonzero(alike == row.right)
    return float(statistics(row.scores[None, alike], own)[0, 0, 0]) if len(alike) > 1 else 1.0, len(alike)
