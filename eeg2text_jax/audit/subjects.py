"""The effect in each subject: does the evidence rest on one of them?"""

import dataclasses
from collections.abc import Sequence

import numpy as np

from eeg2text_jax.audit import statistics
from eeg2text_jax.audit.align import Condition
from eeg2text_jax.audit.statistics import Score
from eeg2text_jax.audit.table import ContentTable


@dataclasses.dataclass(frozen=True)
class SubjectEffect:
    """Content difference within one subject, with its 95 % interval by bootstrap over the sentences it read."""

    subject: str
    sentences: int
    effect: float
    interval: tuple[float, float]


def subject_effects(
    conditions: Sequence[Condition],
    tables: Sequence[ContentTable],
    score: Score,
    *,
    resamples: int,
    rng: np.random.Generator,
) -> list[SubjectEffect]:
    """Per subject, in the order of their names; empty where rows carry no subject.

    `conditions` and `tables` are EEG's and the control's, or EEG's alone.
    """
    names = sorted({row.subject for row in conditions[0].rows} - {""})
    known = [np.array([row.subject for row in condition.rows]) for condition in conditions]
    n_sentences = 1 + max(int(condition.sentence.max()) for condition in conditions)
    effects = []
    for name in names:
        sums = []  # own statistics of every condition, then null ones: [S, K] each
        for rows in ("own", "null"):
            for condition, table, subjects in zip(conditions, tables, known, strict=True):
                total = np.zeros((n_sentences, table.own.shape[1]))
                mine = subjects == name
                np.add.at(total, condition.sentence[mine], getattr(table, rows)[mine])
                sums.append(total)
        read = np.unique(np.concatenate([c.sentence[s == name] for c, s in zip(conditions, known, strict=True)]))
        stacked = np.stack(sums, 1)[read]  # [sentences read, 2 * conditions, K]
        value = float(statistics.content_difference(stacked.sum(0), score))
        totals = statistics.bootstrap_totals(stacked[None], resamples, rng)
        draws = np.concatenate([statistics.content_difference(total, score) for total in totals])
        low, high = np.quantile(draws, [0.025, 0.975]).tolist()
        effects.append(SubjectEffect(name, len(read), value, (low, high)))
    return effects
