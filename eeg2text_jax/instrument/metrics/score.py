"""Scores of predictions or rankings, of every cell (training condition, evaluation condition, seed) and mode.

A profile is a set of metrics: `standard` has BLEU on words and on the model's tokens, ROUGE of rouge-score, WER and CER
of jiwer; `paper` has those of Tables 2-3 of *Are EEG-to-Text Models Working?*: BLEU on subword tokens as nltk's
`corpus_bleu`, ROUGE as the PyPI package `rouge`, WER.
"""

import contextlib
import dataclasses
import html
import json
import math
import operator
import os
import re
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from eeg2text_jax.base.errors import UserError, did_you_mean
from eeg2text_jax.base.files import content_digest, write_text
from eeg2text_jax.base.packages import library
from eeg2text_jax.base.progress import ProgressLine
from eeg2text_jax.instrument.metrics.metric import (
    Bleu,
    Metric,
    MetricError,
    Rouge,
    character_error_rate,
    word_bleu,
    word_error_rate,
)
from eeg2text_jax.instrument.metrics.metric_names import MEANING, WORDS
from eeg2text_jax.instrument.predictions.file import Prediction
from eeg2text_jax.instrument.predictions.rankings import Ranking
from eeg2text_jax.instrument.predictions.selection import as_set

if TYPE_CHECKING:  # `eeg2text score` without --tokenizer does not wait for transformers
    from transformers import PreTrainedTokenizerBase

PROFILES = {"standard": WORDS, "paper": ("rouge", "wer")}  # and BLEU on tokens
Meaning = Callable[[Sequence[str]], Sequence[Metric]]  # references -> metrics that need a text encoder or a judge
Row = TypeVar("Row", bound=Prediction)
Texts = tuple[Sequence[str], Sequence[str]]  # predictions and references

LATIN = re.compile("[a-z0-9]", re.IGNORECASE)  # what ROUGE, as published, knows
CELL = ("train_condition", "eval_condition", "seed", "mode")
CELL_OF = operator.attrgetter(*CELL)
SHOW_PROGRESS = 200_000  # rows times metrics: a few seconds


class NothingToScoreError(UserError):
    """All predictions, or all references, are empty."""


class Scores(dict[str, dict[str, Any]]):
    """Figure -> {"value" in percent, "signature", "lower_is_better"}; printed, the values; in a notebook, a table."""

    def __str__(self) -> str:
        return "\n".join(f"{name:22}{figure['value']:8.2f}" for name, figure in self.items())

    def to_frame(self) -> Any:
        """Return a pandas DataFrame with a row for each figure."""
        return library("pandas", "pandas").DataFrame.from_dict(self, orient="index")

    def _repr_html_(self) -> str:
        rows = ((name, f"{figure['value']:.2f}", figure["signature"]) for name, figure in self.items())
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
      predictions: the path of a predictions file, rows, a table (a DataFrame, a dict of columns, or dicts) with columns
        as `read_any` knows them, or texts, each with one of `references`.
      references: the true texts, or the path of their file, if `predictions` is one.
      columns: the columns of the reference and of the prediction.
      metrics: names of metrics, instead of the profile's.
      tokenizer: makes the tokens of token BLEU if rows have no token ids.
      token_source: name of the tokenizer that made the token ids, for the signature.
      meaning: returns the metrics that need a model, from the references, such as `MeaningMetrics` of the wing `judge`.

    Returns:
      Figures by their names; each is a dict with `value` (in percent), `signature` and `lower_is_better`.

    Raises:
      NothingToScoreError: all predictions or all references are empty.
      UserError: there are no rows, only some have token ids, or a metric fails on a sample, which is named.

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
    """Return every metric with its texts; arguments and errors are those of `score_predictions`."""
    check_scorable(predictions)
    if profile not in PROFILES:
        raise UserError(f"there is no profile {profile!r}; the profiles are {', '.join(PROFILES)}.")
    texts, paper = ([p.prediction for p in predictions], [p.reference for p in predictions]), profile == "paper"
    made = {"bleu": word_bleu, "rouge": lambda: Rouge(paper), "wer": word_error_rate, "cer": character_error_rate}
    names = PROFILES[profile] if metrics is None else metrics
    if metrics is None and not paper and any(not LATIN.search(t) and any(map(str.isalpha, t)) for t in texts[1]):
        names = [name for name in names if name != "rouge"]
    of_texts = [*(made[name]() for name in names if name in made), *(meaning(texts[1]) if meaning else ())]
    jobs: list[tuple[Metric, Texts]] = [(metric, texts) for metric in of_texts]
    if metrics is not None and "bleu" not in metrics:
        return jobs
    if has_ids(predictions):
        tokens = IdTexts(predictions, "prediction"), IdTexts(predictions, "reference")
        bleu = Bleu("token_bleu", str.split, f"model-ids[{token_source}]", short_counts_one=paper)
        return [(bleu, tokens), *jobs]
    if tokenizer is None:
        return jobs
    name = f"retokenized[{describe_tokenizer(tokenizer)}]"
    return [(Bleu("token_bleu", tokenizer.tokenize, name, short_counts_one=paper), texts), *jobs]


def check_scorable(predictions: Sequence[Prediction]) -> None:
    if not predictions:
        raise UserError("there are no predictions to score.")
    for side in ("prediction", "reference"):
        if not any(getattr(p, side).strip() for p in predictions):
            raise NothingToScoreError(
                f"every {side} of the {len(predictions)} {predictions[0].mode} rows is empty, so there is nothing to "
                "score; check how the file was written, or choose rows of another mode with --mode."
            )


def has_ids(predictions: Sequence[Prediction]) -> bool:
    """Return whether rows have token ids of both sides. Raises UserError if only some have them."""
    carried = [p.prediction_tokens is not None and p.reference_tokens is not None for p in predictions]
    if any(carried) and not all(carried):
        lacking = predictions[carried.index(False)]
        what = "lacks token ids that other rows have; write them for all rows or for none"
        raise UserError(f"sample {lacking.sample_id!r} ({lacking.mode}) {what}.")
    return all(carried)


class IdTexts(Sequence[str]):
    """Token ids of one side ("prediction" or "reference") as texts, which are made on access."""

    def __init__(self, rows: Sequence[Prediction], side: str):
        self.rows, self.side = rows, side

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, part: Any) -> Any:
        return [" ".join(map(str, getattr(row, f"{self.side}_tokens"))) for row in self.rows[part]]


def _figures(
    metric: Metric, texts: Texts, rows: Sequence[Prediction], advance: Callable[[int], None] | None
) -> dict[str, dict[str, Any]]:
    """Return a metric's `Scores`. Raises UserError if it fails on a text or a figure is undefined."""
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
    """Yield each cell and mode as (entry in `results.json` without figures, rows)."""
    groups: dict[tuple, list[Row]] = {}
    for row in rows:
        groups.setdefault(CELL_OF(row), []).append(row)
    for key, members in groups.items():
        counts = {"rows": len(members), "sentences": len({row.sentence_id for row in members})}
        yield dict(zip(CELL, key, strict=True)) | counts, members


def score_cells(predictions: Sequence[Prediction], *, profile: str = "standard", **options: Any) -> dict[str, Any]:
    """Return the content of `results.json`, an entry for each cell and mode.

    `rows` counts predictions, `sentences` distinct sentences. An entry whose texts are all empty has no metrics, but
    `unscored`, the reason. Options and errors are those of `score_predictions`.
    """
    cells = []
    for cell, rows in cells_of(predictions):
        try:
            cell["metrics"] = score_predictions(rows, profile=profile, **options)
        except NothingToScoreError as error:
            cell |= {"metrics": {}, "unscored": str(error)}
        cells.append(cell)
    return {"format": 1, "profile": profile, "cells": cells}


def parse_metrics(text: str) -> tuple[str, ...]:
    """Parse comma-separated names of metrics. Raises UserError for an unknown name, or none."""
    names, known = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip())), (*WORDS, *MEANING)
    for name in names:
        if name not in known:
            raise UserError(f"--metrics={text}: there is no metric {name!r}; {did_you_mean(name, known)}")
    if not names:
        raise UserError(f"--metrics={text}: names no metric; there are {', '.join(known)}.")
    return names


def describe_tokenizer(tokenizer: "PreTrainedTokenizerBase") -> str:
    """Return class, vocabulary size and hash of a tokenizer without settings of truncation and padding."""
    definition = json.loads(tokenizer.backend_tokenizer.to_str()) | {"truncation": None, "padding": None}
    return f"{type(tokenizer).__name__},{len(tokenizer)},sha256:{content_digest(definition)[:12]}"


def write_results(path: str | os.PathLike[str], results: dict[str, Any]) -> None:
    """Write results as JSON, atomically. Raises UserError if that fails."""
    try:
        write_text(path, json.dumps(results, indent=2, ensure_ascii=False) + "\n")
    except OSError as error:
        raise UserError(f"{path}: cannot be written ({error.strerror or error}); check the folder.") from error


def by_subject(predictions: Sequence[Prediction], **options: Any) -> dict[str, dict[str, float]]:
    """Return subject -> {"rows": number, figure: value}. Raises UserError for a row without a subject.

    Options are those of `jobs_of`. Document frequencies are of the references of all subjects.
    """
    subjects = [row.subject for row in predictions]
    if not all(subjects):
        what = "has no subject, which --by=subject needs; leave --by out, or add the subject"
        raise UserError(f"sample {predictions[subjects.index('')].sample_id!r} {what}.")
    names = list(dict.fromkeys(subjects))
    place = np.array([names.index(subject) for subject in subjects])
    figures: dict[str, dict[str, float]] = {name: {"rows": int((place == i).sum())} for i, name in enumerate(names)}
    for metric, statistics in _statistics(predictions, options):
        sums = np.zeros((len(names), statistics.shape[1]))
        np.add.at(sums, place, statistics)
        for name, summed in zip(names, sums, strict=True):
            figures[name] |= {column: value for column, value in metric.figures(summed).items() if value == value}
    return figures


def row_figures(predictions: Sequence[Prediction], **options: Any) -> Iterator[dict[str, Any]]:
    """Yield every row's ids, conditions, and `figures`: name -> value (None: undefined); options: `jobs_of`."""
    columns: dict[str, list[float | None]] = {}
    for metric, statistics in _statistics(predictions, options):
        for column, values in zip(metric.columns, metric.corpus(statistics).T.tolist(), strict=True):
            columns[column] = [value if value == value else None for value in values]
    fields = ("sample_id", "subject", "task", "sentence_id", "mode", "train_condition", "eval_condition", "seed")
    for i, row in enumerate(predictions):
        figures = {name: values[i] for name, values in columns.items()}
        yield {**{name: getattr(row, name) for name in fields}, "figures": figures}


def _statistics(predictions: Sequence[Prediction], options: dict[str, Any]) -> Iterator[tuple[Metric, np.ndarray]]:
    """Yield every metric with the statistics of all rows, `[N, S]`."""
    for metric, texts in jobs_of(predictions, **options):
        yield metric, np.concatenate(list(metric.in_chunks(*texts)))


# Ranks of the true sentence among N candidates. Tied ones share the remaining places of the top k: if all scores are
# equal, each is in the top k with probability k / N, the chance level.

STATISTICS = ("top1", "top5", "percentile", "rows")
TOP = (1, 5)  # the k of top-k accuracy


def statistics(scores: np.ndarray, indices: np.ndarray) -> np.ndarray:
    """Return the `STATISTICS` of candidates `indices` `[m]` under scores `[R, N]`, float `[R, m, 4]`.

    The percentile rank is the share of other candidates with a lower score; tied ones count half.
    """
    above, equal = np.empty((2, len(scores), len(indices)), int)  # candidates with a higher and with an equal score
    for row, values in enumerate(scores):
        ordered, wanted = np.sort(values), values[indices]
        last = np.searchsorted(ordered, wanted, "right")
        above[row], equal[row] = len(values) - last, last - np.searchsorted(ordered, wanted, "left")
    n = scores.shape[1]
    shares = [np.clip(k - above, 0, equal) / equal for k in TOP]
    rank = above + (equal + 1) / 2
    return np.stack([*shares, (n - rank) / (n - 1), np.ones(rank.shape)], axis=-1)


def chance(sizes: Sequence[int] | np.ndarray, k: int) -> float:
    """Return the mean probability, over lists of these sizes, that a random candidate is among the first `k`."""
    return float(np.mean(np.minimum(k / np.asarray(sizes), 1.0)))


def chance_interval(probability: float, sentences: int, level: float = 0.95) -> tuple[float, float]:
    """Return the binomial interval of top-k accuracy under chance, as shares; `probability` is the chance level.

    The sample size is the number of sentences, as readers of one may err together. If lists differ in size, the
    accuracy varies less, so the interval is not too narrow.
    """
    from scipy import stats  # slow to import, and not needed to score texts

    low, high = stats.binom.interval(level, sentences, probability)
    return float(low) / sentences, float(high) / sentences


def by_length(row: Ranking) -> np.ndarray:
    """Return scores `[N]` of the length-only baseline: higher for a word count closer to the true one."""
    return -np.abs(row.candidates.n_words - row.n_words)


@dataclasses.dataclass(frozen=True)
class Figures:
    """Top-1 and top-5 accuracy and mean percentile rank, in percent."""

    top1: float
    top5: float
    percentile: float

    @classmethod
    def of(cls, summed: np.ndarray) -> "Figures":
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
        values = np.empty((len(predictions), len(references), len(STATISTICS)))
        lists: dict[int, list[int]] = {}
        for number, row in enumerate(predictions):
            lists.setdefault(id(row.candidates), []).append(number)
        for numbers in lists.values():
            places = np.array([predictions[numbers[0]].candidates.place(text) for text in references])
            values[numbers] = statistics(np.stack([predictions[number].scores for number in numbers]), places)
        return values

    def corpus(self, summed: np.ndarray) -> np.ndarray:
        return 100.0 * summed[..., :3] / np.maximum(summed[..., 3:], 1e-12)


def right_statistics(rows: Sequence[Ranking], scores: Sequence[np.ndarray]) -> np.ndarray:
    """Return `STATISTICS` `[R, 4]` of every row's true sentence under that row's scores `[N]`."""
    return np.stack([statistics(s[None], np.array([r.right]))[0, 0] for r, s in zip(rows, scores, strict=True)])


def score_rankings(rows: Sequence[Ranking]) -> list[dict[str, Any]]:
    """Return the figures of every cell in percent, also by subject, in the layout of `score_cells`.

    `rank` is a percentile (chance is 50), `in stratum` among sentences of the same task and similar length.
    """
    cells = []
    for cell, members in cells_of(rows):
        sizes = [len(row.candidates) for row in members]
        interval = [100.0 * share for share in chance_interval(chance(sizes, 5), cell["sentences"])]
        cell |= {"candidates": sorted(set(sizes)), "metrics": _rank_figures(members), "chance_interval_top-5": interval}
        cell["by_subject"] = {}
        for subject in sorted({row.subject for row in members}):
            of_reader = [row for row in members if row.subject == subject]
            values = {name: figure["value"] for name, figure in _rank_figures(of_reader).items()}
            cell["by_subject"][subject] = {"rows": len(of_reader), **values}
        cells.append(cell)
    return cells


def _rank_figures(rows: Sequence[Ranking]) -> dict[str, dict[str, Any]]:
    overall = RankMetric().figures(right_statistics(rows, [row.scores for row in rows]).sum(0))
    lengths = Figures.of(right_statistics(rows, [by_length(row) for row in rows]).sum(0))
    sizes, inside = [len(row.candidates) for row in rows], [_in_stratum(row) for row in rows]
    n = "-".join(map(str, dict.fromkeys((min(sizes), max(sizes)))))
    values = {**overall, "top-1 in stratum": 100.0 * float(np.mean([first for first, _ in inside]))}
    values |= {"top-5 by length": lengths.top5, "chance top-1": 100.0 * chance(sizes, 1)}
    values |= {"chance top-5": 100.0 * chance(sizes, 5)}
    values |= {"chance top-1 in stratum": 100.0 * chance([size for _, size in inside], 1)}
    signature = f"of {n} distinct sentences|ties:shared|average:rows"
    return {name: {"value": value, "signature": signature, "lower_is_better": False} for name, value in values.items()}


def _in_stratum(row: Ranking) -> tuple[float, int]:
    """Return (top-1 share, number of candidates) among those of the same task and similar length."""
    alike = np.flatnonzero(row.candidates.strata == row.candidates.strata[row.right])
    right = np.flatnonzero(alike == row.right)
    return float(statistics(row.scores[None, alike], right)[0, 0, 0]) if len(alike) > 1 else 1.0, len(alike)
