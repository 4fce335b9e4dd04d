"""Score predictions of one cell and mode, or of every cell and mode of a run; every figure has its signature.

A cell is a training condition, an evaluation condition and a seed. A profile is a set of metrics.
`standard`: BLEU on words and on the model's tokens, ROUGE of rouge-score, WER and CER of jiwer.
`paper`: the figures of Tables 2-3 of *Are EEG-to-Text Models Working?*: BLEU on subword tokens as nltk's `corpus_bleu`
computes it, ROUGE with the formula of the PyPI package `rouge`, WER.
"""

import contextlib
import html
import json
import math
import os
import re
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from eeg2text_jax.errors import UserError, did_you_mean
from eeg2text_jax.files import content_digest, write_text
from eeg2text_jax.metrics.bleu import Bleu, word_bleu
from eeg2text_jax.metrics.error_rates import character_error_rate, word_error_rate
from eeg2text_jax.metrics.metric import Metric, MetricError
from eeg2text_jax.metrics.rouge import paper_rouge, rouge
from eeg2text_jax.predictions.file import Prediction
from eeg2text_jax.predictions.in_memory import as_set
from eeg2text_jax.progress import ProgressLine
from eeg2text_jax.study.metric_names import MEANING, WORDS

if TYPE_CHECKING:  # `eeg2text score` without --tokenizer does not wait for transformers
    from transformers import PreTrainedTokenizerBase


PROFILES = ("standard", "paper")
Meaning = Callable[[Sequence[str]], Sequence[Metric]]  # references -> metrics that need a text encoder or a judge
Row = TypeVar("Row", bound=Prediction)
Texts = tuple[Sequence[str], Sequence[str]]  # predictions and references

LATIN = re.compile("[a-z0-9]", re.IGNORECASE)
SHOW_PROGRESS = 200_000  # rows times metrics from which a progress line is shown: a few seconds of work


class NothingToScoreError(UserError):
    """The error for rows whose predictions, or references, are all empty."""


class Scores(dict[str, dict[str, Any]]):
    """Figure -> {"value" in percent, "signature", "lower_is_better"}; a notebook shows it as a table."""

    def _repr_html_(self) -> str:
        rows = ((name, f"{found['value']:.2f}", found["signature"]) for name, found in self.items())
        cells = ("".join(f"<td>{html.escape(cell)}</td>" for cell in row) for row in rows)
        head = "<tr><th>figure</th><th>percent</th><th>signature</th></tr>"
        return f"<table>{head}{''.join(f'<tr>{row}</tr>' for row in cells)}</table>"


def score_predictions(
    predictions: Any,
    references: Any = None,
    *,
    columns: Sequence[str] | None = None,
    profile: str = "standard",
    tokenizer: "PreTrainedTokenizerBase | None" = None,
    token_source: str = "unstated",
    metrics: Sequence[str] | None = None,
    meaning: Meaning | None = None,
) -> "Scores":
    r"""Return every figure of a profile (a set of metrics) over rows of one seed, mode and pair of conditions.

    Args:
      predictions: the path of a predictions file, rows, a DataFrame with columns as `read_any` knows them, or texts,
        each with one of `references`.
      references: the true texts; or the path of their file, if `predictions` is a path.
      columns: the columns of the reference and of the prediction in a file or a DataFrame.
      metrics: names of metrics, instead of the profile's.
      tokenizer: makes the tokens of token BLEU if rows have no token ids.
      token_source: name of the tokenizer that made the token ids, for the signature.
      meaning: returns the metrics that need a model, from the references; see `metrics.meaning`.

    Returns:
      Figures by their names; each is a dict with `value` (in percent), `signature` and `lower_is_better`.

    Raises:
      NothingToScoreError: all predictions or all references are empty.
      UserError: there are no rows, only some have token ids, or a metric fails; the message names the sample.

    Examples:
      >>> from pathlib import Path
      >>> from eeg2text_jax import read_any, score
      >>> lines = ["reference,prediction", "the film was good,the film is good", "it was long,it was short"]
      >>> _ = Path("others.csv").write_text("\n".join(lines))
      >>> figures = score(read_any("others.csv").predictions)
      >>> {name: round(figures[name]["value"], 1) for name in ("wer", "word_bleu-1", "rouge-1-f")}
      {'wer': 28.6, 'word_bleu-1': 71.4, 'rouge-1-f': 70.8}
      >>> score(["the film is good"], ["the film was good"])["wer"]["value"]
      25.0
    """
    predictions = as_set(predictions, references, columns=columns).predictions
    jobs = jobs_of(predictions, profile, tokenizer, token_source, metrics, meaning)
    figures, units = Scores(), len(jobs) * len(predictions)
    line = ProgressLine("scoring (rows of all metrics)", units) if units >= SHOW_PROGRESS else None
    with line or contextlib.nullcontext():
        for metric, texts in jobs:
            figures |= _figures(metric, texts, predictions, line.advance if line else None)
    return figures


def jobs_of(
    predictions: Sequence[Prediction],
    profile: str = "standard",
    tokenizer: "PreTrainedTokenizerBase | None" = None,
    token_source: str = "unstated",
    metrics: Sequence[str] | None = None,
    meaning: Meaning | None = None,
) -> list[tuple[Metric, Texts]]:
    """Return every metric with the texts that it compares; arguments and errors are those of `score_predictions`."""
    check_scorable(predictions)
    texts = [p.prediction for p in predictions], [p.reference for p in predictions]
    chosen = metrics
    if metrics is None and not any(map(LATIN.search, texts[1])):  # ROUGE, as published, knows only a-z and 0-9
        chosen = tuple(name for name in default_metrics(profile) if name != "rouge")
    jobs: list[tuple[Metric, Texts]] = [(metric, texts) for metric in text_metrics(profile, chosen)]
    if meaning is not None:
        jobs += [(metric, texts) for metric in meaning(texts[1])]
    if metrics is not None and "bleu" not in metrics:
        return jobs
    short, tokens = profile == "paper", texts
    if has_ids(predictions):
        tokens = IdTexts(predictions, "prediction"), IdTexts(predictions, "reference")
        bleu = Bleu("token_bleu", str.split, f"model-ids[{token_source}]", short_counts_one=short)
    elif tokenizer is None:
        return jobs
    else:
        name = f"retokenized[{describe_tokenizer(tokenizer)}]"
        bleu = Bleu("token_bleu", tokenizer.tokenize, name, short_counts_one=short)
    return [(bleu, tokens), *jobs]


def check_scorable(predictions: Sequence[Prediction]) -> None:
    """Raise UserError if there is nothing to score."""
    if not predictions:
        raise UserError("there are no predictions to score.")
    for side in ("prediction", "reference"):
        if not any(getattr(p, side).strip() for p in predictions):
            raise NothingToScoreError(
                f"every {side} of the {len(predictions)} {predictions[0].mode} rows is empty, so there is nothing to "
                "score; check how the file was written, or choose rows of another mode with --mode."
            )


def has_ids(predictions: Sequence[Prediction]) -> bool:
    """Return whether rows have token ids of prediction and reference. Raises UserError if only some rows have them."""
    carried = [p.prediction_tokens is not None and p.reference_tokens is not None for p in predictions]
    if any(carried) and not all(carried):
        lacking = predictions[carried.index(False)]
        raise UserError(
            f"sample {lacking.sample_id!r} ({lacking.mode}) lacks token ids that other rows have; write them for all "
            "rows or for none."
        )
    return all(carried)


class IdTexts(Sequence[str]):
    """Token ids of one side ("prediction" or "reference") as space-separated texts, which are made on access."""

    def __init__(self, rows: Sequence[Prediction], side: str):
        self.rows, self.side = rows, side

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, part: Any) -> Any:
        return [" ".join(map(str, getattr(row, f"{self.side}_tokens"))) for row in self.rows[part]]


def _figures(
    metric: Metric, texts: Texts, rows: Sequence[Prediction], advance: Callable[[int], None] | None
) -> dict[str, dict[str, Any]]:
    """Return one metric's figures as in `Scores`. Raises UserError if it fails on a text or a figure is undefined."""
    try:
        values = metric.figures(metric.total(*texts, advance))
    except MetricError as error:
        row = rows[error.index]
        raise UserError(
            f"{error.metric} failed on the {error.side} of sample {row.sample_id!r} ({row.mode}): {error.reason}; "
            f"correct the text, or leave the metric out (--metrics={','.join(n for n in WORDS if n != error.metric)})."
        ) from error
    if undefined := [name for name, value in values.items() if not math.isfinite(value)]:
        raise UserError(
            f"{undefined[0]} cannot be computed: the references of all {len(rows)} rows are empty for it, as they hold "
            "nothing that it counts (words, characters or tokens); check the column of references, or leave the "
            "metric out with --metrics."
        )
    about = {"signature": metric.signature, "lower_is_better": metric.lower_is_better}
    return {name: {"value": value, **about} for name, value in values.items()}


def cells_of(rows: Sequence[Row]) -> Iterator[tuple[dict[str, Any], list[Row]]]:
    """Yield (entry in `results.json` without figures, rows) per conditions, seed and mode, by first appearance."""
    groups: dict[tuple, list[Row]] = {}
    for row in rows:
        groups.setdefault((row.train_condition, row.eval_condition, row.seed, row.mode), []).append(row)
    for (train, evaluation, seed, mode), found in groups.items():
        cell = {"train_condition": train, "eval_condition": evaluation, "seed": seed, "mode": mode}
        yield cell | {"rows": len(found), "sentences": len({row.sentence_id for row in found})}, found


def score_cells(predictions: Sequence[Prediction], *, profile: str = "standard", **options: Any) -> dict[str, Any]:
    """Return the content of `results.json`: an entry for each pair of conditions, seed and mode.

    `rows` counts predictions, `sentences` distinct sentences. An entry whose texts are all empty has no metrics, and
    `unscored` gives the reason. Options and other errors are those of `score_predictions`.
    """
    cells = []
    for cell, rows in cells_of(predictions):
        try:
            cell["metrics"] = score_predictions(rows, profile=profile, **options)
        except NothingToScoreError as error:
            cell |= {"metrics": {}, "unscored": str(error)}
        cells.append(cell)
    return {"format": 1, "profile": profile, "cells": cells}


def text_metrics(profile: str, chosen: Sequence[str] | None = None) -> list[Metric]:
    """Return the metrics on words and characters: those of a profile, or instead those named in `chosen`.

    Raises UserError for an unknown profile.
    """
    if profile not in PROFILES:
        raise UserError(f"there is no profile {profile!r}; the profiles are {', '.join(PROFILES)}.")
    made = {"wer": word_error_rate, "cer": character_error_rate, "bleu": word_bleu}
    made["rouge"] = paper_rouge if profile == "paper" else rouge
    chosen = default_metrics(profile) if chosen is None else chosen
    return [made[name]() for name in chosen if name in made]


def default_metrics(profile: str) -> tuple[str, ...]:
    """Return the names of a profile's metrics on words and characters."""
    return tuple(WORDS) if profile == "standard" else ("rouge", "wer")


def parse_metrics(text: str) -> tuple[str, ...]:
    """Parse comma-separated names of metrics. Raises UserError for an unknown name or an empty list."""
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    for name in names:
        if name not in (*WORDS, *MEANING):
            raise UserError(f"--metrics={text}: there is no metric {name!r}; {did_you_mean(name, (*WORDS, *MEANING))}")
    if not names:
        raise UserError(f"--metrics={text}: names no metric; there are {', '.join((*WORDS, *MEANING))}.")
    return names


def describe_tokenizer(tokenizer: "PreTrainedTokenizerBase") -> str:
    """Return class, vocabulary size and hash of a tokenizer; its settings of truncation and padding do not count."""
    definition = json.loads(tokenizer.backend_tokenizer.to_str()) | {"truncation": None, "padding": None}
    digest = content_digest(definition)[:12]
    return f"{type(tokenizer).__name__},{len(tokenizer)},sha256:{digest}"


def write_results(path: str | os.PathLike[str], results: dict[str, Any]) -> None:
    """Write results as JSON, atomically. Raises UserError if that fails."""
    try:
        write_text(path, json.dumps(results, indent=2, ensure_ascii=False) + "\n")
    except OSError as error:
        raise UserError(f"{path}: cannot be written ({error.strerror or error}); check the folder.") from error
