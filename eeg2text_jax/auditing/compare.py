"""Compare EEG with each control by the primary and the secondary endpoints."""

from collections.abc import Mapping, Sequence

import numpy as np

from eeg2text_jax.auditing import verdict
from eeg2text_jax.auditing.align import Aligned
from eeg2text_jax.auditing.cells import ContentTable, content_tables
from eeg2text_jax.auditing.contrast import Contrast, contrast, subject_effects
from eeg2text_jax.auditing.endpoints import Endpoint, primary_endpoint, secondary_metrics
from eeg2text_jax.auditing.red_flags import Flag
from eeg2text_jax.auditing.result import Evidence, Secondary
from eeg2text_jax.auditing.statistics import holm
from eeg2text_jax.metrics.metric import MetricError

STYLE_DECIDES = "style decides the scores, not content"
SUBJECT_RESAMPLES = 1000  # enough for the error bars of a figure


def compare(
    aligned: Aligned,
    tables: Sequence[ContentTable],
    derived: Mapping[str, Sequence[ContentTable]],
    alone: Contrast,
    endpoint: Endpoint,
    resamples: int,
    rng: np.random.Generator,
    others: Sequence[Endpoint] = (),
    words: Sequence[ContentTable] | None = None,
) -> tuple[list[Evidence], list[str]]:
    """Return the evidence against each control, or of EEG alone; and notes on metrics that could not be computed.

    `derived` are the tables within strata that replace unknown tasks. `alone` is the content of EEG against its own
    null. `others` are endpoints that do not decide; `words` are the tables of word BLEU-1 if another is primary.
    """
    pairs = [[0, i] for i in range(1, len(tables))] or [[0]]
    bleu = (endpoint, tables) if words is None else (primary_endpoint(), words)
    secondary, notes = _secondary(aligned, pairs, bleu, others, words is not None, resamples, rng)
    evidence = []
    for chosen, figures in zip(pairs, secondary, strict=True):
        conditions = [aligned.conditions[i] for i in chosen]
        primary = contrast([tables[i].sampled for i in chosen], endpoint.score) if len(chosen) == 2 else alone
        rows = [tables[i].rows for i in chosen]
        subjects = subject_effects(conditions, rows, endpoint.score, resamples=SUBJECT_RESAMPLES, rng=rng)
        again = {name: contrast([t[i].sampled for i in chosen], endpoint.score) for name, t in derived.items()}
        control = "".join(condition.name for condition in conditions[1:])
        evidence.append(Evidence(control, primary, again, figures, subjects))
    return evidence, notes


def _secondary(
    aligned: Aligned,
    pairs: Sequence[Sequence[int]],
    words: tuple[Endpoint, Sequence[ContentTable]],
    others: Sequence[Endpoint],
    with_bleu1: bool,
    resamples: int,
    rng: np.random.Generator,
) -> tuple[list[list[Secondary]], list[str]]:
    """Return the secondary figures of each comparison; p values are adjusted jointly by Holm's method."""
    notes: list[str] = []
    bleu, tables = words
    measured = [words] if with_bleu1 else []
    measured.append((Endpoint("BLEU-4", bleu.metric, 3), tables))
    for metric, columns in [*secondary_metrics(), *((e.metric, {e.label: e.column}) for e in others)]:
        try:
            tables = content_tables(aligned, aligned.strata, metric, resamples=resamples, rng=rng)
        except MetricError as error:
            notes.append(f"{', '.join(columns)} not computed: {error}")
            continue
        measured += [(Endpoint(label, metric, column), tables) for label, column in columns.items()]
    found = [[(e, contrast([t[i].sampled for i in chosen], e.score)) for e, t in measured] for chosen in pairs]
    adjusted = iter(holm(np.array([c.p for row in found for _, c in row])).tolist())
    return [[_secondary_figure(e, c, next(adjusted)) for e, c in row] for row in found], notes


def _secondary_figure(endpoint: Endpoint, found: Contrast, p_holm: float) -> Secondary:
    scores = tuple(endpoint.sign * score for score in found.scores)
    signature = endpoint.metric.signature
    figures = found.gap_interval, found.effect, found.interval, found.p, p_holm
    return Secondary(endpoint.label, signature, scores, *figures)


def gap_flags(eeg: str, comparison: Evidence) -> list[Flag]:
    """Return flags for a gap that is style, and for metrics that prefer different conditions."""
    return [*_style_flags(eeg, comparison), *_disagreement(eeg, comparison)] if comparison.control else []


def _style_flags(eeg: str, comparison: Evidence) -> list[Flag]:
    """Flag a significant raw gap that remains when predictions are compared with other sentences.

    If derived strata replace unknown tasks, the strata with the least content of the better side decide, as for claims.
    """
    gap = comparison.primary.observed
    if all(map(verdict.is_above, _strata(comparison))):
        return []  # content is found
    judged = [(c.p_primary if gap > 0 else c.p_less_primary, c) for c in _strata(comparison)]
    p, found = max(judged, key=lambda one: one[0])
    style = found.nulls[0] - found.nulls[1]
    if p <= verdict.ALPHA or not _sign(comparison.primary.gap_interval) or style * gap < 0.5 * gap**2:
        return []
    message = (
        f"{eeg} scores {gap:+.2f} against {comparison.control}, but {style:+.2f} of it is there as well when the "
        "predictions are held against other sentences: a gap in style; the difference in content is "
        f"{found.effect:+.2f} ({verdict.p_text(p)})"
    )
    return [Flag("gap_is_style", "warning", message)]


def _disagreement(eeg: str, comparison: Evidence) -> list[Flag]:
    """Flag BLEU-1 and WER that significantly prefer different conditions."""
    errors, words = (next((s for s in comparison.secondary if s.label == name), None) for name in ("WER", "BLEU-1"))
    if errors is None:
        return []
    in_words = words or comparison.primary
    bleu = in_words.scores[0] - in_words.scores[1]
    wer = errors.scores[0] - errors.scores[1]
    apart = _sign(in_words.gap_interval) * _sign(errors.gap_interval) < 0
    if min(abs(bleu), abs(wer)) < 0.25 or not apart:
        return []
    reading = "the content is judged apart" if any(map(verdict.is_above, _strata(comparison))) else STYLE_DECIDES
    message = (
        f"BLEU-1 and WER point opposite ways: {eeg} minus {comparison.control} is {bleu:+.2f} BLEU-1 "
        f"(higher is better) and {wer:+.2f} WER (lower is better); {reading}"
    )
    return [Flag("metrics_disagree", "warning", message)]


def _strata(comparison: Evidence) -> list[Contrast]:
    return [comparison.primary, *comparison.derived.values()]


def _sign(interval: tuple[float, float]) -> int:
    """Return the sign of an interval, 0 if it contains 0."""
    return int(interval[0] > 0) - int(interval[1] < 0)
