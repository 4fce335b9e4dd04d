"""Scores as papers print them, from the raw texts, each beside its null; they test nothing."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from eeg2text_jax.auditing.align import Aligned, Condition
from eeg2text_jax.metrics.bleu import word_bleu
from eeg2text_jax.metrics.error_rates import word_error_rate
from eeg2text_jax.metrics.metric import Metric, MetricError
from eeg2text_jax.metrics.rouge import rouge

MOST_ROWS = 5000  # with more rows these scores take longer than the audit; `eeg2text score` computes them
SHIFTS = 3  # other sentences of its stratum against which each prediction is scored for the null


@dataclasses.dataclass(frozen=True)
class Reported:
    """One corpus score of every condition, EEG first, with its null: the same predictions against other sentences."""

    label: str
    signature: str
    scores: tuple[float, ...]
    nulls: tuple[float, ...]


def reported_scores(aligned: Aligned, members: Sequence[np.ndarray]) -> tuple[list[Reported], list[str]]:
    """Return BLEU-1, BLEU-4, WER, ROUGE-1 F and ROUGE-L F of all rows, and notes on scores that are not computed."""
    most = max(len(condition.rows) for condition in aligned.conditions)
    if most > MOST_ROWS:
        return [], [f"BLEU, WER and ROUGE are not computed for {most} rows; `eeg2text score` has them"]
    found, notes = [], []
    chosen: list[tuple[Metric, dict[str, int]]] = [
        (word_bleu(), {"BLEU-1": 0, "BLEU-4": 3}),
        (word_error_rate(), {"WER": 0}),
    ]
    summaries = rouge()
    chosen.append(
        (
            summaries,
            {"ROUGE-1 F": summaries.columns.index("rouge-1-f"), "ROUGE-L F": summaries.columns.index("rouge-l-f")},
        )
    )
    others = _others(len(aligned.references), members)
    for metric, columns in chosen:
        try:
            pairs = [_score(condition, aligned.references, others, metric) for condition in aligned.conditions]
        except MetricError as error:
            notes.append(f"{', '.join(columns)} not computed: {error}")
            continue
        for label, column in columns.items():
            scores, nulls = zip(*((float(own[column]), float(null[column])) for own, null in pairs), strict=True)
            found.append(Reported(label, metric.signature, scores, nulls))
    return found, notes


def _others(size: int, members: Sequence[np.ndarray]) -> np.ndarray:
    """Return the next `SHIFTS` other sentences of each sentence's stratum, int `[SHIFTS, S]`; they may repeat."""
    found = np.tile(np.arange(size), (SHIFTS, 1))
    for stratum in members:
        for shift in range(SHIFTS):
            found[shift, stratum] = np.roll(stratum, -1 - shift % (len(stratum) - 1))
    return found


def _score(
    condition: Condition, references: Sequence[str], others: np.ndarray, metric: Metric
) -> tuple[np.ndarray, np.ndarray]:
    """Return the figures `[C]` of a condition's rows against their references, and against other sentences."""
    texts, sentence = condition.texts, condition.sentence
    raw = [row.reference for row in condition.rows]
    null = [references[s] for shift in others for s in shift[sentence].tolist()]
    return metric.corpus(metric.total(texts, raw)), metric.corpus(metric.total(texts * len(others), null))
