"""Scores by subject, and scores of single rows."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from eeg2text_jax.errors import UserError
from eeg2text_jax.metrics.metric import Metric
from eeg2text_jax.metrics.score import jobs_of
from eeg2text_jax.predictions.file import Prediction


def by_subject(predictions: Sequence[Prediction], **options: Any) -> dict[str, dict[str, float]]:
    """Return subject -> {"rows": number, figure: value}; a row without a subject raises UserError.

    Options are those of `jobs_of`. Inverse document frequencies are counted over the references of all subjects.
    """
    subjects = [row.subject for row in predictions]
    if not all(subjects):
        raise UserError(
            f"sample {predictions[subjects.index('')].sample_id!r} has no subject, which --by=subject needs; leave "
            "--by out, or add the subject."
        )
    names = list(dict.fromkeys(subjects))
    place = np.array([names.index(subject) for subject in subjects])
    found: dict[str, dict[str, float]] = {name: {"rows": int((place == i).sum())} for i, name in enumerate(names)}
    for metric, statistics in _statistics(predictions, options):
        sums = np.zeros((len(names), statistics.shape[1]))
        np.add.at(sums, place, statistics)
        for name, summed in zip(names, sums, strict=True):
            found[name] |= {column: value for column, value in metric.figures(summed).items() if value == value}
    return found


def row_figures(predictions: Sequence[Prediction], **options: Any) -> Iterator[dict[str, Any]]:
    """Yield for every row its ids, conditions, and `figures`: name -> value (None: undefined); options: `jobs_of`."""
    columns: dict[str, list[float | None]] = {}
    for metric, statistics in _statistics(predictions, options):
        for column, values in zip(metric.columns, metric.corpus(statistics).T.tolist(), strict=True):
            columns[column] = [value if value == value else None for value in values]
    fields = ("sample_id", "subject", "task", "sentence_id", "mode", "train_condition", "eval_condition", "seed")
    for i, row in enumerate(predictions):
        about = {name: getattr(row, name) for name in fields}
        yield {**about, "figures": {name: values[i] for name, values in columns.items()}}


def _statistics(predictions: Sequence[Prediction], options: dict[str, Any]) -> Iterator[tuple[Metric, np.ndarray]]:
    """Yield every metric with its statistics of all rows, `[N, S]`."""
    for metric, texts in jobs_of(predictions, **options):
        yield metric, np.concatenate(list(metric.in_chunks(*texts)))
