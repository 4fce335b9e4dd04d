"""What an audit found; everything that the report prints; as text, and on the console."""

import dataclasses
import html
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from eeg2text_jax.auditing.beyond_time import FOUND, NOT_BEYOND, NOT_BEYOND_STATUS, SAID_BEHIND, BeyondTime
from eeg2text_jax.auditing.collapse import Collapse
from eeg2text_jax.auditing.contrast import Contrast, SubjectEffect
from eeg2text_jax.auditing.judged import Judged
from eeg2text_jax.auditing.levels import HEADINGS as LEVEL_HEADINGS
from eeg2text_jax.auditing.levels import Level, curve_text, level_rows
from eeg2text_jax.auditing.page import table
from eeg2text_jax.auditing.provenance import Provenance
from eeg2text_jax.auditing.recorded import said
from eeg2text_jax.auditing.red_flags import Flag
from eeg2text_jax.auditing.retrieval import EegBits, Retrieval
from eeg2text_jax.auditing.side_channel import SideChannel
from eeg2text_jax.auditing.verdict import EXIT_STATUS, Verdict, because, interval_text, p_cell, p_text, verdict_mde


@dataclasses.dataclass(frozen=True)
class Secondary:
    """A figure that does not decide. Scores are as the metric prints them; in all else, higher is better."""

    label: str
    signature: str
    scores: tuple[float, ...]
    gap_interval: tuple[float, float]
    effect: float
    interval: tuple[float, float]
    p: float
    p_holm: float


@dataclasses.dataclass(frozen=True)
class Evidence:
    """EEG against one control; `control` is empty where there is none.

    `primary` is within the strata that the file gives. `derived` are the same by what strata were derived from, where
    tasks are not known: a claim must hold under all of them.
    """

    control: str
    primary: Contrast
    derived: dict[str, Contrast]
    secondary: list[Secondary]
    subjects: list[SubjectEffect]


@dataclasses.dataclass(frozen=True)
class Comparison(Evidence):
    """What the evidence comes to. `question` is what a control asks that does not decide; empty where it decides."""

    verdict: Verdict
    sentence: str
    question: str = ""

    @property
    def mde(self) -> float:
        return verdict_mde(self.primary, self.derived.values())


@dataclasses.dataclass(frozen=True)
class ConditionSummary:
    """One condition on its own: its score, what of it is content, and how its text looks."""

    name: str
    content: Contrast
    derived: dict[str, Contrast]  # the content under strata derived in the stead of unknown tasks
    collapse: Collapse
    side_channel: SideChannel

    @property
    def p(self) -> float:
        """Of the content: the largest p, under whichever strata."""
        return max(c.p_primary for c in (self.content, *self.derived.values()))


@dataclasses.dataclass(frozen=True)
class Example:
    """Predictions of every condition for one row of EEG and the row of each control beside it."""

    reference: str
    subject: str
    predictions: tuple[str, ...]
    best: bool  # among the highest-scoring rows; the others were drawn at random


@dataclasses.dataclass(frozen=True)
class AuditResult:
    """Everything the report prints. `to_json` is the same without the arrays."""

    verdict: Verdict
    sentence: str
    metric: str
    signature: str
    mode: str
    margin: float
    resamples: int
    seed: int
    n_rows: int
    n_sentences: int
    n_subjects: int
    n_strata: int
    task_known: bool
    seeds: tuple[int, ...]
    design_effect: float
    conditions: list[ConditionSummary]
    comparisons: list[Comparison]
    bits: list[EegBits]
    retrieval: list[Retrieval]
    flags: list[Flag]
    notes: list[str]
    examples: list[Example]
    # what was recorded, whose name stands for EEG in words: see `recorded.py`
    recording: str = dataclasses.field(default="eeg", kw_only=True)
    provenance: Provenance | None = dataclasses.field(default=None, kw_only=True)  # None: not asked
    judged: Judged | None = dataclasses.field(default=None, kw_only=True)  # the files, where rows are of files
    seeds_stated: bool = dataclasses.field(default=True, kw_only=True)
    time: BeyondTime | None = dataclasses.field(default=None, kw_only=True)
    levels: list[Level] = dataclasses.field(default_factory=list, kw_only=True)  # between and within stated groups
    # number of clusters of the references -> content within them, where no groups are stated
    curve: list[tuple[int, Contrast]] = dataclasses.field(default_factory=list, kw_only=True)

    @property
    def deciding(self) -> Comparison:
        """The comparison that the overall verdict rests on; of several with this verdict the strictest."""
        return strictest([c for c in self.comparisons if c.verdict is self.verdict and not c.question])

    @property
    def exit_status(self) -> int:
        explained = self.time is not None and self.time.status == NOT_BEYOND and self.verdict in FOUND
        return NOT_BEYOND_STATUS if explained else EXIT_STATUS[self.verdict]

    @property
    def verdict_text(self) -> str:
        """The verdict, and where content was found and controls of time were given, whether it goes beyond time."""
        decided = self.time is not None and self.time.decided and self.verdict in SAID_BEHIND
        return f"{self.verdict.value}: {self.time.status}" if decided else self.verdict.value

    def _repr_html_(self) -> str:
        """What a notebook shows: the verdict, its sentence and the comparisons."""
        shown = table(EFFECT_HEADINGS, effect_rows(self.comparisons))
        page = f"<p><b>{self.verdict_text}</b></p><p>{html.escape(self.sentence)}</p>{shown}"
        return said(page, self.recording)

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values; draws are left out and NaN becomes null."""
        return said({**_plain(self), "exit_status": self.exit_status}, self.recording)


def strictest(comparisons: Sequence[Comparison]) -> Comparison:
    """Return the comparison that leaves EEG the least: the smallest difference, or the widest margin of equivalents."""

    def left_to_eeg(comparison: Comparison) -> float:
        found = comparison.primary
        return -found.smallest_margin if comparison.verdict is Verdict.EQUIVALENT else found.effect

    return min(comparisons, key=left_to_eeg)


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value):
        fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        return {name: _plain(item) for name, item in fields.items() if not isinstance(item, np.ndarray)}
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, Verdict):
        return value.value
    return None if isinstance(value, float) and not math.isfinite(value) else value


HEADINGS = ("condition", "rows", "score", "null", "content", "distinct")
EFFECT_HEADINGS = ("against", "gap", "content difference", "90 % CI", "p", "MDE", "smallest margin", "verdict")
DERIVED_HEADINGS = ("against", "strata by length and", "content difference", "90 % CI", "p", "smallest margin")


def condition_rows(result: AuditResult) -> list[tuple[str, ...]]:
    """Text of the table of conditions, under `HEADINGS`."""
    return [
        (
            c.name,
            str(c.collapse.rows),
            f"{c.content.scores[0]:.2f}",
            f"{c.content.nulls[0]:.2f}",
            f"{c.content.effect:+.2f} ({p_text(c.p)})",
            str(c.collapse.distinct),
        )
        for c in result.conditions
    ]


def effect_rows(comparisons: Sequence[Comparison]) -> list[tuple[str, ...]]:
    """Text of the table of comparisons, under `EFFECT_HEADINGS`."""
    rows = []
    for c in comparisons:
        found = c.primary
        gap, margin = (f"{found.observed:+.2f}", f"{abs(found.smallest_margin):.2f}") if c.control else ("–", "–")
        figures = (gap, f"{found.effect:+.2f}", interval_text(found.interval_90))
        tests = (directed_p(c.verdict, found), f"{c.mde:.2f}", margin)
        rows.append((c.control or "its null", *figures, *tests, c.verdict.value))
    return rows


def directed_p(verdict: Verdict, found: Contrast) -> str:
    """The p of more content, or of less where that is the verdict, which is then said."""
    return f"{p_cell(found.p_less_primary)} (less)" if verdict is Verdict.CONTROL_BETTER else p_cell(found.p_primary)


def derived_rows(comparisons: Sequence[Comparison]) -> list[tuple[str, ...]]:
    """Text of the table of what became of each comparison under derived strata, under `DERIVED_HEADINGS`."""
    return [
        (
            c.control or "its null",
            source,
            f"{found.effect:+.2f}",
            interval_text(found.interval_90),
            directed_p(c.verdict, found),
            f"{abs(found.smallest_margin):.2f}" if c.control else "–",
        )
        for c in comparisons
        for source, found in ({"nothing else": c.primary} | c.derived if c.derived else {}).items()
    ]


def evidence_lines(result: AuditResult) -> list[str]:
    """EEG bits and retrieval in sentences."""
    lines = []
    for b in result.bits:
        caution = "; off-distribution input alone can do that" if b.off_distribution else ""
        lines.append(
            f"EEG bits against {b.control}: {b.bits_per_token:+.4f} bits a token (95 % CI {b.interval[0]:+.4f} to "
            f"{b.interval[1]:+.4f}; {p_text(b.p)}; {b.sentences} sentences){caution}"
        )
    for r in result.retrieval:
        lines.append(
            f"Retrieval against {r.control}: first in {r.top1:.1%} of {r.samples} samples (chance {r.chance_top1:.1%}; "
            f"{p_text(r.p)}), among five in {r.top5:.1%} (chance {r.chance_top5:.1%}), mean rank {r.mean_rank:.2f} "
            f"(chance {r.chance_rank:.2f})"
        )
    return lines


def result_text(result: AuditResult) -> str:
    """The whole audit in plain text."""
    size = f"{result.n_rows} rows of {result.n_sentences} independent sentences in {result.n_strata} strata"
    lines = [
        f"{size}; {result.metric}, mode {result.mode}, margin {result.margin:g}, {result.resamples} resamples",
        *columns(HEADINGS, condition_rows(result)),
        "",
        *columns(EFFECT_HEADINGS, effect_rows(result.comparisons)),
        "",
        *derived_lines(result),
        *level_lines(result),
        *evidence_lines(result),
        *(f"{flag.level}: {flag.message}." for flag in result.flags),
        *(f"note: {note}" for note in result.notes),
        "",
        *([f"Provenance: {result.provenance.text}."] if result.provenance else []),
        *(f"{c.sentence}" for c in result.comparisons if c.sentence != result.sentence),
        *time_lines(result),
        result.sentence,
        f"VERDICT: {result.verdict_text}",
    ]
    return said("\n".join(lines), result.recording)


def time_lines(result: AuditResult) -> list[str]:
    """What is said of time, where content was found that time may explain."""
    shown = result.time is not None and result.verdict in SAID_BEHIND
    return [result.time.sentence] if shown else []


def derived_lines(result: AuditResult) -> list[str]:
    rows = derived_rows(result.comparisons)
    why = because(result.comparisons[0].derived)
    return [f"Since {why}, again within other strata:", *columns(DERIVED_HEADINGS, rows), ""] if rows else []


def level_lines(result: AuditResult) -> list[str]:
    if result.curve:
        return [f"{curve_text(result.curve)}.", ""]
    if not result.levels:
        return []
    return ["Content between and within groups:", *columns(LEVEL_HEADINGS, level_rows(result.levels)), ""]


def columns(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(row[i]) for row in [headings, *rows]) for i in range(len(headings))]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in [headings, *rows]
    ]
