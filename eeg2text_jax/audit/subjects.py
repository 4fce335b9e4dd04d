"""The effect in each subject: does the evidence rest on one of them?"""

import dataclasses
from collections.abc import Sequence

import numpy as np

from eeg2text_jax.audit import statistics
from eeg2text_jax.audit.align import Condition
from eeg2text_jax.audit.statistics import Score
from eeg2text_jax.audit.table import RowTable


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
    """Per subject, in the order of their names; empty where rows carry no subject.

    `conditions` and `tables` are EEG's and the control's, or EEG's alone. Sentences that are the only one which the
    subject read in their stratum have no null and are left out; so is a subject without any other.
    """
    known = [np.array([row.subject for row in condition.rows]) for condition in conditions]
    orders = [np.argsort(subjects, kind="stable") for subjects in known]
    n_sentences = 1 + max(int(condition.sentence.max()) for condition in conditions)
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
    """Sums `[size, K]` of rows `[N, K]` by place, int `[N]`."""
    return np.stack([np.bincount(place, column, minlength=size) for column in rows.T], 1)
