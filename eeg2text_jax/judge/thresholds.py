"""Evaluation of binary scores: AUC, curves, thresholds and rater agreement."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy import stats

DRAWS = 1000  # of a bootstrap interval


def auc(scores: np.ndarray, labels: np.ndarray) -> float | None:
    """Return the area under the ROC curve: how often a preserved pair scores above a lost one, ties counting half.

    None if there is only one class.
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
    rng, members = np.random.default_rng(0), members_of(groups)
    found = []
    for _ in range(DRAWS):
        rows = np.concatenate([members[i] for i in rng.integers(len(members), size=len(members))])
        found.append(auc(scores[rows], labels[rows]))
    low, high = np.quantile([value for value in found if value is not None], [0.025, 0.975])
    return float(low), float(high)


def members_of(groups: Sequence[str]) -> list[np.ndarray]:
    """Return the rows of each group."""
    found: dict[str, list[int]] = {}
    for row, group in enumerate(groups):
        found.setdefault(group, []).append(row)
    return [np.array(rows) for rows in found.values()]


class Curve(NamedTuple):
    """One point for every threshold that changes a decision, from the highest to the lowest; all `[N]`."""

    thresholds: np.ndarray
    precision: np.ndarray
    recall: np.ndarray
    false_positive_rate: np.ndarray


def curve(scores: np.ndarray, labels: np.ndarray) -> Curve:
    """Return precision, recall (true-positive rate) and false-positive rate of the rule `score >= threshold`."""
    scores, labels = np.asarray(scores, float), np.asarray(labels, bool)
    order = np.argsort(-scores, kind="stable")
    scores, hits = scores[order], np.cumsum(labels[order])
    last = np.flatnonzero(np.append(scores[1:] != scores[:-1], True))  # equal scores share a threshold
    hits, taken = hits[last], last + 1
    with np.errstate(invalid="ignore"):
        return Curve(scores[last], hits / taken, hits / labels.sum(), (taken - hits) / (~labels).sum())


class Threshold(NamedTuple):
    """A decision threshold, its precision and recall, and how it was chosen."""

    value: float
    precision: float
    recall: float
    how: str


def choose_threshold(scores: np.ndarray, labels: np.ndarray, precision: float) -> Threshold:
    """Return the lowest threshold with at least this precision; 0.5 if there is none."""
    found = curve(scores, labels)
    good = np.flatnonzero(found.precision >= precision)
    if len(good):
        at = good[-1]
        how = f"lowest with a precision of {precision:g} on dev"
        return Threshold(float(found.thresholds[at]), float(found.precision[at]), float(found.recall[at]), how)
    taken, labels = np.asarray(scores) >= 0.5, np.asarray(labels, bool)
    hits = float((taken & labels).sum())
    how = f"0.5, as no score reaches a precision of {precision:g} on dev"
    return Threshold(0.5, hits / max(float(taken.sum()), 1.0), hits / max(float(labels.sum()), 1.0), how)


def accuracy(scores: np.ndarray, labels: np.ndarray) -> float:
    """Return the share of pairs classified correctly with the threshold 0.5."""
    return float(((np.asarray(scores) >= 0.5) == np.asarray(labels, bool)).mean())


def kappa(first: Sequence[str], second: Sequence[str]) -> float | None:
    """Return Cohen's kappa of two raters; None if the expected agreement is 1."""
    classes = sorted({*first, *second})
    table = np.zeros((len(classes), len(classes)))
    for a, b in zip(first, second, strict=True):
        table[classes.index(a), classes.index(b)] += 1
    if not table.sum():
        return None
    table /= table.sum()
    chance = float(table.sum(0) @ table.sum(1))
    return None if chance == 1.0 else float((np.trace(table) - chance) / (1 - chance))
