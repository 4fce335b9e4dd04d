"""Scores of predictions, each with its signature: of one cell and mode, and of every cell and mode of a run."""

import json
import math
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from eeg2text_jax.errors import UserError
from eeg2text_jax.files import write_text
from eeg2text_jax.metrics.profiles import id_bleu, subword_bleu, text_metrics
from eeg2text_jax.metrics.statistics import Metric, MetricError
from eeg2text_jax.predictions.file import Prediction

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


class NothingToScoreError(UserError):
    """Every prediction, or every reference, of a cell and mode is empty."""


def score_predictions(
    predictions: Sequence[Prediction],
    *,
    profile: str = "standard",
    tokenizer: "PreTrainedTokenizerBase | None" = None,
    token_source: str = "unstated",
) -> dict[str, dict[str, Any]]:
    """Every figure of a profile over the rows of one cell and mode.

    Token BLEU is computed on the ids in the rows (`token_source` says whose they are), else on the tokens that
    `tokenizer` makes of the strings, else left out.

    Returns:
      Figure name -> `{"value": percent, "signature": ..., "lower_is_better": ...}`.

    Raises:
      NothingToScoreError: all predictions or all references are empty.
      UserError: no rows, ids in some rows only, or a metric that fails; the sample is named.
    """
    check_scorable(predictions)
    texts = [p.prediction for p in predictions], [p.reference for p in predictions]
    figures: dict[str, dict[str, Any]] = {}
    if ids := _id_texts(predictions):
        figures |= _figures(id_bleu(profile, token_source), *ids, predictions)
    elif tokenizer is not None:
        figures |= _figures(subword_bleu(profile, tokenizer), *texts, predictions)
    for metric in text_metrics(profile):
        figures |= _figures(metric, *texts, predictions)
    return figures


def check_scorable(predictions: Sequence[Prediction]) -> None:
    """Raises UserError where there is nothing that a score could be of."""
    if not predictions:
        raise UserError("there are no predictions to score.")
    for side in ("prediction", "reference"):
        if not any(getattr(p, side).strip() for p in predictions):
            raise NothingToScoreError(
                f"every {side} of the {len(predictions)} {predictions[0].mode} rows is empty, so there is nothing to "
                "score; check how the file was written, or choose the other rows with --mode."
            )


def _id_texts(predictions: Sequence[Prediction]) -> tuple[list[str], list[str]] | None:
    """Token ids of predictions and references as text, or None where the rows carry none."""
    has_ids = [p.prediction_tokens is not None and p.reference_tokens is not None for p in predictions]
    if not any(has_ids):
        return None
    if not all(has_ids):
        lacking = predictions[has_ids.index(False)]
        raise UserError(
            f"sample {lacking.sample_id!r} ({lacking.mode}) lacks token ids that other rows have; write them for all "
            "rows or for none."
        )
    sides = ([p.prediction_tokens for p in predictions], [p.reference_tokens for p in predictions])
    predicted, reference = ([" ".join(map(str, ids)) for ids in side] for side in sides)
    return predicted, reference


def _figures(
    metric: Metric, texts: Sequence[str], references: Sequence[str], rows: Sequence[Prediction]
) -> dict[str, dict[str, Any]]:
    try:
        values = metric.score(texts, references)
    except MetricError as error:
        row = rows[error.index]
        raise UserError(
            f"{error.metric} failed on the {error.side} of sample {row.sample_id!r} ({row.mode}): {error.reason}; "
            "mend the text or leave the metric out."
        ) from error
    if undefined := [name for name, value in values.items() if not math.isfinite(value)]:
        raise UserError(f"{undefined[0]} is undefined: no reference of the {len(rows)} rows has a unit to compare.")
    about = {"signature": metric.signature, "lower_is_better": metric.lower_is_better}
    return {name: {"value": value, **about} for name, value in values.items()}


def score_cells(
    predictions: Sequence[Prediction],
    *,
    profile: str = "standard",
    tokenizer: "PreTrainedTokenizerBase | None" = None,
    token_source: str = "unstated",
) -> dict[str, Any]:
    """The content of `results.json`: one entry a cell and mode, in order of first appearance.

    `rows` counts predictions, `sentences` the independent sentences among them. A cell and mode in which everything
    is empty has no metrics, and `unscored` says why.

    Raises:
      UserError: as `score_predictions`, but for that.
    """
    groups: dict[tuple, list[Prediction]] = {}
    for p in predictions:
        groups.setdefault((p.train_condition, p.eval_condition, p.seed, p.mode), []).append(p)
    cells = []
    for (train, evaluation, seed, mode), rows in groups.items():
        cell = {"train_condition": train, "eval_condition": evaluation, "seed": seed, "mode": mode}
        cell |= {"rows": len(rows), "sentences": len({p.sentence_id for p in rows})}
        try:
            scores = score_predictions(rows, profile=profile, tokenizer=tokenizer, token_source=token_source)
            cells.append({**cell, "metrics": scores})
        except NothingToScoreError as error:
            cells.append({**cell, "metrics": {}, "unscored": str(error)})
    return {"format": 1, "profile": profile, "cells": cells}


def write_results(path: str | os.PathLike[str], results: dict[str, Any]) -> None:
    """Writes results as JSON, whole or not at all. Raises UserError where that fails."""
    try:
        write_text(path, json.dumps(results, indent=2, ensure_ascii=False) + "\n")
    except OSError as error:
        raise UserError(f"{path}: cannot be written ({error.strerror}); check the folder.") from error
