"""The table of predicted texts: its scores, findings, figures in words, and examples."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from eeg2text_jax.auditing import fitness, red_flags
from eeg2text_jax.auditing.align import Aligned, Condition
from eeg2text_jax.auditing.collapse import measure_collapse, sorted_rows
from eeg2text_jax.auditing.content_cells import ContentTable, RowTable
from eeg2text_jax.auditing.contrast import Evidence
from eeg2text_jax.auditing.endpoints import Endpoint, primary_endpoint, secondary_endpoints
from eeg2text_jax.auditing.levels import NOT_KNOWN, Level
from eeg2text_jax.auditing.red_flags import Flag
from eeg2text_jax.auditing.structure import chosen_from, signs
from eeg2text_jax.auditing.table import ConditionSummary, Example, Table
from eeg2text_jax.auditing.verdict import (
    ALPHA,
    Verdict,
    both_p,
    derived_text,
    exchanged,
    interval_text,
    is_above,
    p_text,
)


def text_table(aligned: Aligned, endpoint: Endpoint | None = None, secondary: Sequence[Endpoint] = ()) -> "TextTable":
    """Return the texts, and the endpoints that score them, for an audit; `endpoint` None: word BLEU-1.

    The secondary endpoints are added to those that are always computed.
    """
    words = primary_endpoint()
    endpoint = words if endpoint is None or endpoint.is_words else endpoint
    others = [*([] if endpoint is words else [words]), *secondary_endpoints(words), *secondary]
    return TextTable(aligned, endpoint, words, tuple(others))


@dataclasses.dataclass(frozen=True)
class TextTable(Table):
    """Predicted texts, scored against references."""

    def describe(self, condition: Condition, cells: ContentTable, rng: np.random.Generator) -> dict[str, Any]:
        return {"collapse": measure_collapse(condition, self.aligned.references, rng)}

    def signs(
        self, conditions: Sequence[ConditionSummary], *, averaged: bool, choices: Sequence[str] = ()
    ) -> list[Flag]:
        flags = chosen_from(self.aligned.eeg, self.aligned.references, choices) if choices else []
        for condition, summary in zip(self.aligned.conditions, conditions, strict=True):
            flags += fitness.silent(condition, summary.collapse)
        # A target in the control's outputs makes the comparison harder for EEG and no claim easier.
        return flags + signs(self.aligned.eeg, self.aligned.references, averaged=averaged, choices=choices)

    def warnings(
        self, conditions: Sequence[ConditionSummary], cells: Sequence[ContentTable], evidence: Sequence[Evidence]
    ) -> list[Flag]:
        aligned = self.aligned
        flags = fitness.normalizing_flags(aligned.eeg, aligned.references)
        for condition, summary, found in zip(aligned.conditions, conditions, cells, strict=True):
            bleu1 = float(self.plain.score(found.sampled.own.sum((0, 1))))
            flags += red_flags.condition_flags(condition, summary.collapse, aligned.eeg.mode, bleu1)
            flags += red_flags.row_flags(condition, found.rows.own, self.plain.score)
        looks = {summary.name: summary.collapse for summary in conditions}
        for control in aligned.conditions[1:]:
            flags += red_flags.pair_flags(aligned, control, looks)
        return flags + [flag for found in evidence for flag in gap_flags(aligned.eeg.name, found)]

    def in_figures(self, found: Evidence, outcome: Verdict) -> str:
        aligned, eeg = self.aligned, self.aligned.eeg
        primary, less = found.primary, outcome is Verdict.CONTROL_BETTER
        counts = (
            f"on {len(aligned.references)} sentences ({len(eeg.rows)} rows), {self.endpoint.label} was "
            f"{primary.scores[0]:.2f}"
        )
        interval, others = interval_text(primary.interval_90), f"other sentences of {exchanged(aligned.task_known)}"
        if not found.control:
            return (
                f"{counts} against {primary.nulls[0]:.2f} when the same predictions are held against {others}, a "
                f"difference of {primary.effect:+.2f} (90 % CI {interval}; one-sided sentence permutation "
                f"{p_text(primary.p_primary)}){derived_text(found.derived)}"
            )
        return (
            f"{counts} with {eeg.name} and {primary.scores[1]:.2f} with {found.control}; the content difference "
            f"(content: the score minus the score of the same predictions against {others}) was {primary.effect:+.2f} "
            f"(90 % CI {interval}; sentence permutation, one-sided for {'less' if less else 'more'} content with "
            f"{eeg.name}: {both_p(primary, less)}){derived_text(found.derived, less)}"
        )

    def same_predictions(self, control: str) -> bool:
        other = next(c for c in self.aligned.conditions if c.name == control)
        return sorted_rows(self.aligned.eeg) == sorted_rows(other)

    def content_is_about(self, levels: Sequence[Level], control: str) -> str:
        return "; ".join(level.reading for level in levels if level.control == control) or NOT_KNOWN

    def examples(self, rows: RowTable, rng: np.random.Generator, count: int = 4) -> list[Example]:
        """Return `count` rows drawn at random, and the best row of the `count` sentences with the highest scores."""
        scores = np.nan_to_num(self.endpoint.score(rows.own))
        order = np.argsort(-scores, kind="stable")
        firsts = np.unique(self.aligned.eeg.sentence[order], return_index=True)[1]
        best = order[np.sort(firsts)][:count].tolist()
        drawn = rng.choice(len(scores), size=min(count, len(scores)), replace=False).tolist()
        return [self._example(row, False) for row in drawn] + [self._example(row, True) for row in best]

    def _example(self, row: int, best: bool) -> Example:
        """Return a row of EEG beside a row of each control: the same sentence and, if known, subject and seed."""
        eeg = self.aligned.eeg
        mine, sentence = eeg.rows[row], eeg.sentence[row]
        place = np.flatnonzero(eeg.sentence == sentence).tolist().index(row)
        texts = [mine.prediction]
        for control in self.aligned.conditions[1:]:
            rows = [control.rows[i] for i in np.flatnonzero(control.sentence == sentence)]
            same = [r for r in rows if mine.subject and (r.subject, r.seed) == (mine.subject, mine.seed)]
            texts.append((same or rows[place : place + 1] or rows)[0].prediction)
        return Example(self.aligned.references[sentence], mine.subject, tuple(texts), best)


def gap_flags(eeg: str, comparison: Evidence) -> list[Flag]:
    """Return warnings about a score gap that is due to style, and about metrics that favor different conditions."""
    return [*_style_flags(eeg, comparison), *_disagreement(eeg, comparison)] if comparison.control else []


def _style_flags(eeg: str, comparison: Evidence) -> list[Flag]:
    """Return a warning if at least half of the score gap of EEG and control remains against other sentences.

    If the test was repeated within other strata, the strata with the largest p decide.
    """
    gap = comparison.primary.observed
    if all(map(is_above, comparison.contrasts)):
        return []
    by_source = {"length": comparison.primary, **comparison.derived}
    p_values = {name: c.p_primary if gap > 0 else c.p_less_primary for name, c in by_source.items()}
    source = max(p_values, key=p_values.__getitem__)
    p, found = p_values[source], by_source[source]
    style = found.nulls[0] - found.nulls[1]
    if p <= ALPHA or not _sign(comparison.primary.gap_interval) or style * gap < 0.5 * gap**2:
        return []
    message = (
        f"{eeg} scores {gap:+.2f} against {comparison.control}, but {style:+.2f} of it remains when the "
        "predictions are scored against other sentences: a gap in style; the difference in content is "
        f"{found.effect:+.2f} (within strata by {source}; {p_text(p)} of {'more' if gap > 0 else 'less'} content)"
    )
    return [Flag("gap_is_style", "warning", message)]


def _disagreement(eeg: str, comparison: Evidence) -> list[Flag]:
    """Return a warning if BLEU-1 and WER significantly favor different conditions."""
    errors, words = (next((s for s in comparison.secondary if s.label == name), None) for name in ("WER", "BLEU-1"))
    if errors is None:
        return []
    in_words = words or comparison.primary
    bleu = in_words.scores[0] - in_words.scores[1]
    wer = errors.scores[0] - errors.scores[1]
    apart = _sign(in_words.gap_interval) * _sign(errors.gap_interval) < 0
    if min(abs(bleu), abs(wer)) < 0.25 or not apart:
        return []
    found = any(map(is_above, comparison.contrasts))
    reading = "content alone decides the verdict" if found else "style decides the scores, not content"
    message = (
        f"BLEU-1 and WER point opposite ways: {eeg} minus {comparison.control} is {bleu:+.2f} BLEU-1 "
        f"(higher is better) and {wer:+.2f} WER (lower is better); {reading}"
    )
    return [Flag("metrics_disagree", "warning", message)]


def _sign(interval: tuple[float, float]) -> int:
    """Return 1 if an interval is above 0, -1 if it is below 0, and 0 if it contains 0."""
    return int(interval[0] > 0) - int(interval[1] < 0)
