"""Scores by subject and of single rows."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from eeg2text_jax.errors import UserError
from eeg2text_jax.metrics.metric import Metric
from eeg2text_jax.metrics.score import jobs_of
from eeg2text_jax.predictions.file import Prediction


def by_subject(predictions: Sequence[Prediction], **options: Any) -> dict[str, dict[str, float]]:
    """Return every figure of each subject's rows, with `rows`; options of `jobs_of`. Raises UserError without subjects.

    Inverse document frequencies are counted over the references of all subjects.
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
        for name, row in zip(names, metric.corpus(sums).tolist(), strict=True):
            found[name] |= {column: value for column, value in zip(metric.columns, row, strict=True) if value == value}
    return found


def row_figures(predictions: Sequence[Prediction], **options: Any) -> Iterator[dict[str, Any]]:
    """Yield every row with its own figures; an undefined figure is null."""
    columns: dict[str, list[float | None]] = {}
    for metric, statistics in _statistics(predictions, options):
        for column, values in zip(metric.columns, metric.corpus(statistics).T.tolist(), strict=True):
            columns[column] = [value if value == value else None for value in values]
    for i, row in enumerate(predictions):
        about = {name: getattr(row, name) for name in ("sample_id", "subject", "task", "sentence_id", "mode")}
        cell = {"train_condition": row.train_condition, "eval_condition": row.eval_condition, "seed": row.seed}
        yield {**about, **cell, "figures": {name: values[i] for name, values in columns.items()}}


def _statistics(predictions: Sequence[Prediction], options: dict[str, Any]) -> Iterator[tuple[Metric, np.ndarray]]:
    for metric, texts in jobs_of(predictions, **options):
        yield metric, np.concatenate(list(metric.in_chunks(*texts)))
