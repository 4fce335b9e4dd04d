"""The result of an audit, as JSON, as plain text, and as rows of tables."""

import dataclasses
import html
import importlib
import math
import os
from collections.abc import Sequence
from typing import Any

import numpy as np
from etils import epath

from eeg2text_jax.auditing.beyond_time import NOT_BEYOND, NOT_BEYOND_STATUS, NOT_EXCLUDED, SAID_BEHIND, BeyondTime
from eeg2text_jax.auditing.contrast import Contrast
from eeg2text_jax.auditing.levels import HEADINGS as LEVEL_HEADINGS
from eeg2text_jax.auditing.levels import Level, curve_text, level_rows
from eeg2text_jax.auditing.page import said, table
from eeg2text_jax.auditing.provenance import Judged, Provenance
from eeg2text_jax.auditing.red_flags import Flag
from eeg2text_jax.auditing.retrieval import EegBits, Retrieval
from eeg2text_jax.auditing.table import ConditionSummary, Example
from eeg2text_jax.auditing.verdict import (
    EXIT_STATUS,
    Comparison,
    Verdict,
    because,
    deciding_one,
    interval_text,
    p_cell,
    p_text,
)
from eeg2text_jax.imports import library
from eeg2text_jax.metrics.ranks import Figures


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class AuditResult:
    """The verdict of an audit, and everything that the report prints."""

    verdict: Verdict
    sentence: str  # on the deciding comparison; then on the recording time, if it may explain the verdict
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
    flags: list[Flag]
    notes: list[str]
    examples: list[Example]
    bits: list[EegBits] = dataclasses.field(default_factory=list)
    retrieval: list[Retrieval] = dataclasses.field(default_factory=list)
    recording: str = "eeg"  # eeg or fmri; its name replaces EEG in sentences, see `page.said`
    provenance: Provenance
    judged: Judged | None = None  # the files that the rows come from, if any
    seeds_stated: bool = True  # whether the rows state their training seed
    time: BeyondTime
    levels: list[Level] = dataclasses.field(default_factory=list)  # content between and within given groups
    # (number of clusters, content within them), if no groups are given
    curve: list[tuple[int, Contrast]] = dataclasses.field(default_factory=list)
    # this and the next three fields: for rankings only, see `rank_table.RankTable`
    candidates: tuple[int, int] | None = None
    chance: float | None = None
    chance_interval: tuple[float, float] | None = None
    by_length: Figures | None = None

    @property
    def deciding(self) -> Comparison:
        """The comparison that gives the overall verdict."""
        return deciding_one(self.comparisons)

    @property
    def exit_status(self) -> int:
        """The exit status of `eeg2text audit`."""
        status = EXIT_STATUS[self.verdict]
        return NOT_BEYOND_STATUS if status == 0 and self.time.status == NOT_BEYOND else status

    @property
    def verdict_text(self) -> str:
        """The verdict and, if the controls of time tell, whether the content goes beyond the recording time."""
        decided = self.time.status != NOT_EXCLUDED and self.verdict in SAID_BEHIND
        return f"{self.verdict.value}: {self.time.status}" if decided else self.verdict.value

    def __repr__(self) -> str:
        return f"AuditResult({self.verdict_text}: {self.sentence})"

    def _repr_html_(self) -> str:
        """Return the verdict, its sentence and the comparisons as HTML for notebooks."""
        shown = table(EFFECT_HEADINGS, effect_rows(self.comparisons))
        page = f"<p><b>{self.verdict_text}</b></p><p>{html.escape(self.sentence)}</p>{shown}"
        return said(page, self.recording)

    def to_html(self, path: str | os.PathLike[str]) -> None:
        """Write the report, one self-contained HTML file."""
        importlib.import_module("eeg2text_jax.auditing.report").write_report(
            self, epath.Path(path)
        )  # imports this module

    def to_frame(self) -> Any:
        """Return the comparisons as a pandas DataFrame: a row for each control, or for the null without a control."""
        pandas = library("pandas", "pandas")
        return pandas.DataFrame(effect_rows(self.comparisons), columns=EFFECT_HEADINGS)

    def to_json(self) -> dict[str, Any]:
        """Return all fields as JSON values, without arrays; NaN and infinity become null."""
        return said({**_plain(self), "exit_status": self.exit_status}, self.recording)


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value):
        value = {name: item for name, item in vars(value).items() if not isinstance(item, np.ndarray)}
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, Verdict):
        return value.value
    return None if isinstance(value, float) and not math.isfinite(value) else value


HEADINGS = ("condition", "rows", "score", "null", "content", "distinct")
RANK_HEADINGS = ("condition", "rows", "top-1", "top-5", "rank", "null", "content")
EFFECT_HEADINGS = ("against", "gap", "content difference", "90 % CI", "p", "MDE", "smallest margin", "verdict")
DERIVED_HEADINGS = ("against", "strata by length and", "content difference", "90 % CI", "p", "smallest margin")


def condition_headings(result: AuditResult) -> tuple[str, ...]:
    return HEADINGS if result.chance is None else RANK_HEADINGS


def condition_rows(result: AuditResult) -> list[tuple[str, ...]]:
    """Return the rows of a text table of conditions, see `condition_headings`; for rankings, the last is a baseline."""
    rows = [_condition_row(condition) for condition in result.conditions]
    if result.by_length is not None:
        lengths = (f"{value:.1f}" for value in dataclasses.astuple(result.by_length))
        rows.append(("number of words alone", "–", *lengths, "–", "–"))
    return rows


def _condition_row(c: ConditionSummary) -> tuple[str, ...]:
    content = c.content
    if c.figures is not None:
        figures = (f"{value:.1f}" for value in dataclasses.astuple(c.figures))
        return c.name, str(c.rows), *figures, f"{content.nulls[0]:.1f}", f"{content.effect:+.1f} ({p_text(c.p)})"
    scores = f"{content.scores[0]:.2f}", f"{content.nulls[0]:.2f}", f"{content.effect:+.2f} ({p_text(c.p)})"
    return c.name, str(c.rows), *scores, str(c.collapse.distinct)


def chance_lines(result: AuditResult) -> list[str]:
    """Return a list with a sentence about the chance level of rankings; [] for texts."""
    if result.chance is None:
        return []
    low, high = result.chance_interval
    sizes = " to ".join(map(str, dict.fromkeys(result.candidates)))
    return [
        f"{result.metric} by chance: {result.chance:.1f} % (95 % of scores by chance: {low:.1f} to {high:.1f} %; each "
        f"of {result.n_sentences} independent sentences was ranked among {sizes})"
    ]


def effect_rows(comparisons: Sequence[Comparison]) -> list[tuple[str, ...]]:
    """Return the rows of a text table of comparisons; its columns are `EFFECT_HEADINGS`."""
    differences = (Verdict.USES_EEG, Verdict.CONTROL_BETTER)  # verdicts to which no margin of equivalence applies
    return [
        (
            c.control or "its null",
            f"{c.primary.observed:+.2f}" if c.control else "–",
            f"{c.primary.effect:+.2f}",
            interval_text(c.primary.interval_90),
            directed_p(c.verdict, c.primary),
            f"{c.mde:.2f}",
            f"{abs(c.primary.smallest_margin):.2f}" if c.control and c.verdict not in differences else "–",
            c.verdict.value,
        )
        for c in comparisons
    ]


def directed_p(verdict: Verdict, found: Contrast) -> str:
    """Return the p for more content as text; for the verdict *control better* the p for less content and "(less)"."""
    return f"{p_cell(found.p_less_primary)} (less)" if verdict is Verdict.CONTROL_BETTER else p_cell(found.p_primary)


def derived_rows(comparisons: Sequence[Comparison]) -> list[tuple[str, ...]]:
    """Return the rows of a text table of comparisons within other strata, under `DERIVED_HEADINGS`; [] if none."""
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
        if c.derived
        for source, found in ({"nothing else": c.primary} | c.derived).items()
    ]


def evidence_lines(result: AuditResult) -> list[str]:
    """Return a sentence about each result in `bits` and `retrieval`."""
    lines = []
    for b in result.bits:
        caution = "; off-distribution input alone can do that" if b.off_distribution else ""
        lines.append(
            f"EEG bits against {b.control}: {b.bits_per_token:+.4f} bits a token (95 % CI {b.interval[0]:+.4f} to "
            f"{b.interval[1]:+.4f}; {p_text(b.p)}; {b.sentences} sentences){caution}"
        )
    for r in result.retrieval:
        lines.append(
            f"Retrieval against {r.control}: right sentence first in {r.top1:.1%} of {r.samples} samples (chance "
            f"{r.chance_top1:.1%}; {p_text(r.p)}), among the first five in {r.top5:.1%} (chance {r.chance_top5:.1%}), "
            f"mean rank {r.mean_rank:.2f} (chance {r.chance_rank:.2f})"
        )
    return lines


def result_text(result: AuditResult) -> str:
    """Return the whole audit as plain text."""
    size = f"{result.n_rows} rows of {result.n_sentences} independent sentences in {result.n_strata} strata"
    lines = [
        f"{size}; {result.metric}, mode {result.mode}, margin {result.margin:g}, {result.resamples} resamples",
        *chance_lines(result),
        *_columns(condition_headings(result), *condition_rows(result)),
        "",
        *_columns(EFFECT_HEADINGS, *effect_rows(result.comparisons)),
        "",
        *_derived_lines(result),
        *_level_lines(result),
        *evidence_lines(result),
        *(f"{flag.level}: {flag.message}." for flag in result.flags),
        *(f"note: {note}" for note in result.notes),
        "",
        f"Provenance: {result.provenance.text}.",
        *(c.sentence for c in result.comparisons if c is not result.deciding),
        result.sentence,
        f"VERDICT: {result.verdict_text}",
    ]
    return said("\n".join(lines), result.recording)


def _derived_lines(result: AuditResult) -> list[str]:
    rows = derived_rows(result.comparisons)
    why = because(result.comparisons[0].derived)
    return [f"Since {why}, again within other strata:", *_columns(DERIVED_HEADINGS, *rows), ""] if rows else []


def _level_lines(result: AuditResult) -> list[str]:
    if result.curve:
        return [f"{curve_text(result.curve)}.", ""]
    if not result.levels:
        return []
    return ["Content between and within groups:", *_columns(LEVEL_HEADINGS, *level_rows(result.levels)), ""]


def _columns(*rows: Sequence[str]) -> list[str]:
    """Return rows of cells as lines of text, with the columns aligned."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
