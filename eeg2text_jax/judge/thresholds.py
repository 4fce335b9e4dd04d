"""Evaluation of scores of a yes/no question: AUC, curves, thresholds, and the agreement of raters.

Scores are float `[N]`, labels bool `[N]`: whether the meaning was kept.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy import stats

DRAWS = 1000  # resamples of a bootstrap interval


def auc(scores: np.ndarray, labels: np.ndarray) -> float | None:
    """Return the area under the ROC curve, or None if there is only one class.

    The AUC is the probability that a preserved pair scores above a lost one; ties count half.
    """
    scores, labels = np.asarray(scores, float), np.asarray(labels, bool)
    n_yes, n_no = int(labels.sum()), int((~labels).sum())
    if not n_yes or not n_no:
        return None
    ranks = stats.rankdata(scores)
    return float((ranks[labels].sum() - n_yes * (n_yes + 1) / 2) / (n_yes * n_no))


def auc_interval(scores: np.ndarray, labels: np.ndarray, groups: Sequence[str]) -> tuple[float, float] | None:
    """Return the 95 % bootstrap interval of the AUC over `groups` (ground truths); None if there is only one class."""
    if auc(scores, labels) is None:
        return None
    rng, members = np.random.default_rng(0), list(members_of(groups).values())
    found = []
    for _ in range(DRAWS):
        rows = np.concatenate([members[i] for i in rng.integers(len(members), size=len(members))])
        found.append(auc(scores[rows], labels[rows]))
    low, high = np.quantile([value for value in found if value is not None], [0.025, 0.975])
    return float(low), float(high)


def members_of(groups: Sequence[str]) -> dict[str, np.ndarray]:
    """Return group -> its row numbers, in order of first appearance; `groups` names the group of every row."""
    found: dict[str, list[int]] = {}
    for row, group in enumerate(groups):
        found.setdefault(group, []).append(row)
    return {group: np.array(rows) for group, rows in found.items()}


class Curve(NamedTuple):
    """Precision, recall and false-positive rate at every distinct score as the threshold, the highest first."""

    thresholds: np.ndarray
    precision: np.ndarray
    recall: np.ndarray
    false_positive_rate: np.ndarray


def curve(scores: np.ndarray, labels: np.ndarray) -> Curve:
    """Return precision, recall and false-positive rate of the rule `score >= threshold` at every distinct score."""
    scores, labels = np.asarray(scores, float), np.asarray(labels, bool)
    order = np.argsort(-scores, kind="stable")
    scores, hits = scores[order], np.cumsum(labels[order])
    last = np.flatnonzero(np.append(scores[1:] != scores[:-1], True))  # equal scores share a threshold
    hits, taken = hits[last], last + 1
    with np.errstate(invalid="ignore"):
        return Curve(scores[last], hits / taken, hits / labels.sum(), (taken - hits) / (~labels).sum())


class Threshold(NamedTuple):
    """A decision threshold, its precision and recall, and a phrase that says how it was chosen."""

    value: float
    precision: float
    recall: float
    how: str


def choose_threshold(scores: np.ndarray, labels: np.ndarray, precision: float) -> Threshold:
    """Return the lowest threshold with at least this precision; 0.5 if no threshold reaches it."""
    found = curve(scores, labels)
    good = np.flatnonzero(found.precision >= precision)
    if len(good):
        value, precise, recall, _ = (float(column[good[-1]]) for column in found)
        return Threshold(value, precise, recall, f"lowest with a precision of {precision:g} on dev")
    taken, labels = np.asarray(scores) >= 0.5, np.asarray(labels, bool)
    hits = float((taken & labels).sum())
    how = f"0.5, as no score reaches a precision of {precision:g} on dev"
    return Threshold(0.5, hits / max(float(taken.sum()), 1.0), hits / max(float(labels.sum()), 1.0), how)


def accuracy(scores: np.ndarray, labels: np.ndarray) -> float:
    """Return the share of pairs that the threshold 0.5 classifies correctly."""
    return float(((np.asarray(scores) >= 0.5) == np.asarray(labels, bool)).mean())


def kappa(first: Sequence[str], second: Sequence[str]) -> float | None:
    """Return Cohen's kappa of two raters; None if the expected agreement is 1."""
    classes = sorted({*first, *second})
    table = stats.contingency.crosstab(first, second, levels=(classes, classes)).count / len(first)
    chance = float(table.sum(0) @ table.sum(1))
    return None if chance == 1.0 else float((np.trace(table) - chance) / (1 - chance))
