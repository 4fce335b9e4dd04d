"""Measure every condition of a table, and compare EEG with each control by the primary and the secondary endpoints."""

import dataclasses
import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from eeg2text_jax.auditing import verdict
from eeg2text_jax.auditing.content_cells import ContentTable, content_tables
from eeg2text_jax.auditing.contrast import Contrast, Evidence, Secondary, contrast, subject_effects
from eeg2text_jax.auditing.endpoints import Endpoint
from eeg2text_jax.auditing.guessed_strata import stand_ins
from eeg2text_jax.auditing.red_flags import Flag
from eeg2text_jax.auditing.side_channel import GAP_CODES, measure_side_channel
from eeg2text_jax.auditing.statistics import holm
from eeg2text_jax.auditing.table import ConditionSummary, Table
from eeg2text_jax.metrics.metric import MetricError

STYLE_DECIDES = "style decides the scores, not content"
SUBJECT_RESAMPLES = 1000  # enough for the error bars of a figure


@dataclasses.dataclass(frozen=True)
class Measured:
    """The conditions of a table, EEG first.

    `cells` are by the endpoint within the strata of the alignment, `derived` within other strata by the name of their
    source, `plain` by the endpoint of warnings.
    """

    cells: list[ContentTable]
    derived: dict[str, list[ContentTable]]
    plain: list[ContentTable]
    conditions: list[ConditionSummary]
    flags: list[Flag]  # on the length side channel


def measure(table: Table, *, stratum_size: int, resamples: int, rng: np.random.Generator) -> Measured:
    """Score all conditions of a table under the same permutations and bootstrap draws."""
    aligned, plain = table.aligned, table.plain
    metric, score = table.endpoint.metric, table.endpoint.score
    draws: dict[str, Any] = {"resamples": resamples, "rng": rng}
    channels, flags = measure_side_channel(aligned, plain.metric, plain.score, **draws)
    leaks = any(flag.code in GAP_CODES for flag in flags)
    cells = content_tables(aligned, aligned.strata, metric, with_rows=True, **draws)
    derived = {
        source: content_tables(aligned, strata, metric, **draws)
        for source, strata in stand_ins(aligned, stratum_size, length_leaks=leaks).items()
    }
    conditions = [
        ConditionSummary(
            condition.name,
            len(condition.rows),
            contrast([cells[i].sampled], score),
            {source: contrast([again[i].sampled], score) for source, again in derived.items()},
            channels[i],
            **table.describe(condition, cells[i], rng),
        )
        for i, condition in enumerate(aligned.conditions)
    ]
    in_plain = cells
    if plain.metric is not metric:
        in_plain = content_tables(aligned, aligned.strata, plain.metric, with_rows=True, **draws)
    return Measured(cells, derived, in_plain, conditions, flags)


def compare(
    table: Table, measured: Measured, *, resamples: int, rng: np.random.Generator
) -> tuple[list[Evidence], list[str]]:
    """Return the evidence against each control, or of EEG alone; and notes on metrics that could not be computed."""
    aligned, cells, score = table.aligned, measured.cells, table.endpoint.score
    pairs = [[0, i] for i in range(1, len(cells))] or [[0]]
    secondary, notes = _secondary(table, measured, pairs, resamples, rng)
    evidence = []
    for chosen, figures in zip(pairs, secondary, strict=True):
        conditions = [aligned.conditions[i] for i in chosen]
        rows = [cells[i].rows for i in chosen]
        evidence.append(
            Evidence(
                control="".join(condition.name for condition in conditions[1:]),
                primary=contrast([cells[i].sampled for i in chosen], score),
                derived={
                    name: contrast([again[i].sampled for i in chosen], score)
                    for name, again in measured.derived.items()
                },
                secondary=figures,
                subjects=subject_effects(conditions, rows, score, resamples=SUBJECT_RESAMPLES, rng=rng),
            )
        )
    return evidence, notes


def _secondary(
    table: Table, measured: Measured, pairs: Sequence[Sequence[int]], resamples: int, rng: np.random.Generator
) -> tuple[list[list[Secondary]], list[str]]:
    """Return the secondary figures of each comparison; p values are adjusted jointly by Holm's method."""
    aligned, notes = table.aligned, []
    known: dict[int, Sequence[ContentTable]] = {
        id(table.plain.metric): measured.plain,
        id(table.endpoint.metric): measured.cells,
    }
    scored: list[tuple[Endpoint, Sequence[ContentTable]]] = []
    for _, group in itertools.groupby(table.secondary, lambda endpoint: id(endpoint.metric)):
        endpoints = list(group)
        metric = endpoints[0].metric
        try:
            if id(metric) not in known:
                known[id(metric)] = content_tables(aligned, aligned.strata, metric, resamples=resamples, rng=rng)
        except MetricError as error:
            notes.append(f"{', '.join(endpoint.label for endpoint in endpoints)} not computed: {error}")
            continue
        scored += [(endpoint, known[id(metric)]) for endpoint in endpoints]
    found = [[(e, contrast([t[i].sampled for i in chosen], e.score)) for e, t in scored] for chosen in pairs]
    adjusted = iter(holm(np.array([c.p for row in found for _, c in row])).tolist())
    return [[_secondary_figure(e, c, next(adjusted)) for e, c in row] for row in found], notes


def _secondary_figure(e: Endpoint, c: Contrast, p_holm: float) -> Secondary:
    scores = tuple(e.sign * score for score in c.scores)
    return Secondary(e.label, e.metric.signature, scores, c.gap_interval, c.effect, c.interval, c.p, p_holm)


def gap_flags(eeg: str, comparison: Evidence) -> list[Flag]:
    """Return flags for a gap that is style, and for metrics that prefer different conditions."""
    return [*_style_flags(eeg, comparison), *_disagreement(eeg, comparison)] if comparison.control else []


def _style_flags(eeg: str, comparison: Evidence) -> list[Flag]:
    """Flag a significant raw gap that remains when predictions are compared with other sentences.

    If derived strata replace unknown tasks, the strata with the least content of the better side decide, as for claims.
    """
    gap = comparison.primary.observed
    if all(map(verdict.is_above, comparison.contrasts)):
        return []  # content is found
    sources = ["length", *comparison.derived]
    judged = [
        (c.p_primary if gap > 0 else c.p_less_primary, c, source)
        for c, source in zip(comparison.contrasts, sources, strict=True)
    ]
    p, found, source = max(judged, key=lambda one: one[0])
    style = found.nulls[0] - found.nulls[1]
    if p <= verdict.ALPHA or not _sign(comparison.primary.gap_interval) or style * gap < 0.5 * gap**2:
        return []
    more_or_less = "more" if gap > 0 else "less"
    message = (
        f"{eeg} scores {gap:+.2f} against {comparison.control}, but {style:+.2f} of it is there as well when the "
        "predictions are held against other sentences: a gap in style; the difference in content is "
        f"{found.effect:+.2f} (within strata by {source}; {verdict.p_text(p)} of {more_or_less} content)"
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
    reading = "the content is judged apart" if any(map(verdict.is_above, comparison.contrasts)) else STYLE_DECIDES
    message = (
        f"BLEU-1 and WER point opposite ways: {eeg} minus {comparison.control} is {bleu:+.2f} BLEU-1 "
        f"(higher is better) and {wer:+.2f} WER (lower is better); {reading}"
    )
    return [Flag("metrics_disagree", "warning", message)]


def _sign(interval: tuple[float, float]) -> int:
    """Return the sign of an interval, 0 if it contains 0."""
    return int(interval[0] > 0) - int(interval[1] < 0)
