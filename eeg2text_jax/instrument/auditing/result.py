"""The result of an audit: as a value, as JSON, as lines for a console, and as rows of tables."""

import dataclasses
import enum
import math
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from eeg2text_jax.base.packages import library
from eeg2text_jax.instrument.auditing.notices import GroupAnswer, Judged, Look, Notice, Provenance
from eeg2text_jax.instrument.auditing.table import Reported
from eeg2text_jax.instrument.auditing.verdict import (
    FOUND,
    Z_95,
    Comparison,
    Contrast,
    Level,
    Ruling,
    Time,
    Verdict,
    deciding_one,
    figures_text,
    interval_text,
    p_cell,
    p_text,
)
from eeg2text_jax.instrument.metrics.score import Figures

MOST_SHOWN = 4  # conditions in the console's table
MOST_LIMITS = 3  # lines on what limits the verdict


@dataclasses.dataclass(frozen=True)
class ConditionSummary:
    """One condition: its content above its own null, and what its outputs look like."""

    name: str
    rows: int
    content: Contrast
    look: Look | None = None  # of texts
    figures: Figures | None = None  # of rankings


@dataclasses.dataclass(frozen=True)
class Secondary:
    """A further endpoint against a control, with p adjusted over all p that the audit prints (Holm)."""

    label: str
    signature: str
    contrast: Contrast
    adjusted: float


@dataclasses.dataclass(frozen=True)
class RowContent:
    """One row for the report: its texts and scores in points; scores are NaN for a sentence without a stratum."""

    condition: str
    subject: str
    reference: str
    prediction: str
    own: float  # score against its own reference
    others: float  # mean score against the other sentences of its stratum
    content: float  # `own` minus `others`


@dataclasses.dataclass(frozen=True)
class EegBits:
    """Bits per token that the EEG adds to the likelihood of its sentence, compared with one control.

    p is one-sided, over sentences. The bits show content only against `shuffled`, the EEG of another sentence. Any
    other control is `off_distribution`: its likelihoods may be lower because its input is unlike the training data.
    """

    control: str
    bits_per_token: float
    interval: tuple[float, float]
    p: float
    samples: int
    sentences: int
    off_distribution: bool


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class AuditResult:
    """The verdict of an audit, and everything that the report prints."""

    verdict: Ruling
    sentence: str  # the verdict for a lay reader, with effect, interval and p
    limits: list[str]  # what limits the verdict, the most important first
    metric: str
    signature: str
    mode: str
    margin: float
    mde: float  # of the verdict: the effect that all deciding comparisons find with power 90 %
    adjusted_p: float  # p of the deciding comparison, adjusted over all that are printed (Holm)
    n_rows: int
    n_sentences: int
    n_subjects: int
    n_strata: int
    alike: str  # what sentences of a stratum have in common
    seeds: tuple[int, ...]
    seeds_stated: bool = True  # whether the rows state their training seed
    conditions: list[ConditionSummary]
    comparisons: list[Comparison]
    secondary: list[Secondary]
    reported: list[Reported]
    groups: list[GroupAnswer]
    time: str  # whether content goes beyond the time of the recording, in a sentence
    recordings: dict[str, tuple[float, float]]  # name -> first and last onset of EEG's rows, as the rows state them
    time_unit: str  # of `recordings`: "s" or "samples"
    notices: list[Notice]
    notes: list[str]
    choices: list[str]  # what is not the default
    rows: list[RowContent]
    provenance: Provenance
    bits: list[EegBits] = dataclasses.field(default_factory=list)
    judged: Judged | None = None  # the files that the rows come from, if any
    recording: str = "eeg"
    candidates: tuple[int, int] | None = None  # of rankings: fewest and most candidates
    chance: float | None = None  # of rankings: score by chance, in percent
    chance_interval: tuple[float, float] | None = None
    by_length: Figures | None = None  # of rankings: a baseline that knows only the number of words

    @property
    def deciding(self) -> Comparison:
        """The comparison that gives the overall verdict."""
        return deciding_one(self.comparisons)

    @property
    def exit_status(self) -> int:
        """The exit status of `eeg2text audit`."""
        return self.verdict.exit_status

    def __repr__(self) -> str:
        return f"AuditResult({self.verdict.headline}. {self.sentence})"

    def to_frame(self) -> Any:
        """Return the comparisons as a pandas DataFrame: a row for each control, or for the null without a control."""
        pandas = library("pandas", "pandas")
        return pandas.DataFrame(effect_rows(self.comparisons, self.verdict.recording), columns=EFFECT_HEADINGS)

    def to_json(self) -> dict[str, Any]:
        """Return all fields but the rows as JSON values, without arrays; NaN and infinity become null."""
        shown = {"verdict": self.verdict.value, "headline": self.verdict.headline, "exit_status": self.exit_status}
        shown["deciding"] = self.deciding.control  # "" for EEG alone
        qualifiers = {name: _plain(value) for name, value in vars(self.verdict).items() if name != "base"}
        fields = {k: _plain(v) for k, v in vars(self).items() if k not in ("verdict", "rows")}
        for comparison, values in zip(self.comparisons, fields["comparisons"], strict=True):
            values["verdict"] = comparison.verdict.named(self.verdict.recording)
        return shown | {"qualifiers": qualifiers} | fields


def _plain(value: Any) -> Any:
    if isinstance(value, Contrast):
        left_out = ("content", "centred")
        intervals = {"interval_90": value.interval(), "interval": value.interval(Z_95)}
        return {k: _plain(v) for k, v in (vars(value) | intervals).items() if k not in left_out}
    if isinstance(value, Comparison):
        return {"control": value.control} | {name: _plain(item) for name, item in vars(value).items()}
    if dataclasses.is_dataclass(value):
        return {name: _plain(item) for name, item in vars(value).items()}
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value


CONDITION_HEADINGS = ("condition", "rows", "score", "others", "content", "p", "distinct")
RANK_HEADINGS = ("condition", "rows", "top-1", "top-5", "rank", "others", "content", "p")
SECONDARY_HEADINGS = ("endpoint", "against", "content difference", "90 % CI", "p", "p (Holm)")
EFFECT_HEADINGS = ("against", "content difference", "90 % CI", "p", "verdict")


def condition_headings(result: AuditResult) -> tuple[str, ...]:
    return CONDITION_HEADINGS if result.chance is None else RANK_HEADINGS


def condition_rows(result: AuditResult) -> list[tuple[str, ...]]:
    """Return the rows of a text table of conditions, see `condition_headings`; for rankings, the last is a baseline."""
    rows = [_condition_row(condition) for condition in result.conditions]
    if result.by_length is not None:
        lengths = (f"{value:.1f}" for value in dataclasses.astuple(result.by_length))
        rows.append(("number of words alone", "–", *lengths, "–", "–", "–"))
    return rows


def _condition_row(c: ConditionSummary) -> tuple[str, ...]:
    content = c.content
    if c.figures is not None:
        figures = (f"{value:.1f}" for value in dataclasses.astuple(c.figures))
        return c.name, str(c.rows), *figures, f"{content.nulls[0]:.1f}", f"{content.effect:+.1f}", p_cell(content.p)
    scores = f"{content.scores[0]:.2f}", f"{content.nulls[0]:.2f}", f"{content.effect:+.2f}", p_cell(content.p)
    return c.name, str(c.rows), *scores, str(c.look.distinct) if c.look else "–"


def effect_rows(comparisons: Sequence[Comparison], recording: str = "EEG") -> list[tuple[str, ...]]:
    """Return the rows of a text table of comparisons; its columns are `EFFECT_HEADINGS`."""
    return [
        (
            c.control or "other sentences",
            f"{c.contrast.effect:+.2f}",
            interval_text(c.contrast.interval()),
            p_cell(c.p[0]) + (f" ({c.p[1]})" if c.p[1] else ""),
            f"{c.verdict.named(recording)}{' (does not decide)' if c.question else ''}",
        )
        for c in comparisons
    ]


def secondary_rows(result: AuditResult) -> list[tuple[str, ...]]:
    """Return the rows of a text table of further endpoints; its columns are `SECONDARY_HEADINGS`."""
    return [
        (
            s.label,
            s.contrast.control or "other sentences",
            f"{s.contrast.effect:+.2f}",
            interval_text(s.contrast.interval()),
            p_cell(s.contrast.decisive_p),
            p_cell(s.adjusted),
        )
        for s in result.secondary
    ]


def reported_rows(result: AuditResult) -> list[tuple[str, ...]]:
    """Return the rows of a table of scores as papers print them: name, then each condition's score and its null."""
    return [
        (r.label, *(f"{score:.2f} ({null:.2f})" for score, null in zip(r.scores, r.nulls, strict=True)))
        for r in result.reported
    ]


def evidence_lines(result: AuditResult) -> list[str]:
    """Return a sentence about each result in `bits`, and about the chance level of rankings."""
    lines = []
    if result.chance is not None:
        (low, high), sizes = result.chance_interval, " to ".join(map(str, dict.fromkeys(result.candidates)))
        lines.append(
            f"{result.metric} by chance: {result.chance:.1f} % (95 % of scores by chance: {low:.1f} to {high:.1f} %; "
            f"each of {result.n_sentences} independent sentences was ranked among {sizes})."
        )
    for b in result.bits:
        caution = "; off-distribution input alone can do that" if b.off_distribution else ""
        lines.append(
            f"EEG bits against {b.control}: {b.bits_per_token:+.4f} bits a token (95 % CI {b.interval[0]:+.4f} to "
            f"{b.interval[1]:+.4f}; {p_text(b.p)}; {b.sentences} sentences){caution}."
        )
    return lines


def limits_of(
    ruling: Ruling, notices: Sequence[Notice], provenance: Provenance, time: str, odd: Collection[str]
) -> list[str]:
    """Return sentences on what limits a verdict, the most important first; `odd` are the codes of odd signs."""
    if ruling.base is Verdict.NOT_JUDGEABLE:
        shown = [pair for notice in notices if notice.bars for pair in notice.rows][:2]
        return [
            *(f"{notice.message[:1].upper()}{notice.message[1:]}." for notice in notices if notice.bars),
            *(f"  {reference!r:.100} -> {prediction!r:.100}" for reference, prediction in shown),
        ]
    lines = [f"Carried by {c.name}: without it {c.left:+.2f}." for c in ruling.carriers]
    unusual = [f"Unusual, as a decoder or a target may make it: {n.message}." for n in notices if n.code in odd]
    if ruling.base in FOUND:
        lines.append(provenance.sentence)
        lines += [f"{notice.message}." for notice in notices if notice.code == "chosen"][:1] + unusual
        lines += [time] if ruling.time is not Time.BEYOND else []
        if ruling.level is Level.UNKNOWN:
            lines.append("Not tested: whether content is about the sentence or about its kind; --groups=COLUMN tells.")
    rest = (f"{notice.message}." for notice in notices if not notice.bars and notice.code not in odd)
    return list(dict.fromkeys([*lines, *unusual, *rest]))


def result_text(result: AuditResult, *, verbose: bool = False, more: str = "-v or --html=report.html") -> str:
    """Return the audit for a console: at most 12 lines, or all of it if `verbose`; `more` is where all figures are."""
    hidden = len(result.conditions) - MOST_SHOWN
    rows = condition_rows(result)
    rows = rows if verbose else rows[:MOST_SHOWN]
    size = f"{result.n_rows} rows, {result.n_sentences} sentences, {result.n_strata} strata of {result.alike}"
    lines = [f"{result.metric} in points; {size}", columns_text(condition_headings(result), *rows)]
    if hidden > 0 and not verbose:
        lines.append(f"and {hidden} more")
    if verbose:
        lines += ["", *_verbose_lines(result)]
    lines += ["", result.sentence]
    lines += result.limits if verbose else result.limits[:MOST_LIMITS]
    if result.choices:
        lines.append(f"Chosen, and not the default: {'; '.join(result.choices)}.")
    if not verbose:
        lines += result.provenance.lines
        lines.append(f"All figures: {more}")
    return "\n".join([*lines, f"VERDICT: {result.verdict.headline}"])


def _verbose_lines(result: AuditResult) -> list[str]:
    """Return tables of comparisons, further endpoints and reported scores, and all notes."""
    lines = [columns_text(EFFECT_HEADINGS, *effect_rows(result.comparisons, result.verdict.recording)), ""]
    lines += [f"The verdict's minimum detectable effect: {result.mde:.2f}; margin {result.margin:g}."]
    if result.secondary:
        lines += ["", columns_text(SECONDARY_HEADINGS, *secondary_rows(result)), ""]
    if result.reported:
        heads = ("as papers print it", *(c.name for c in result.conditions))
        lines += ["", columns_text(heads, *reported_rows(result)), "(in brackets: against other sentences)"]
    lines += [f"Groups {answer.text}." for answer in result.groups]
    lines += evidence_lines(result)
    lines += [f"{c.control}: {c.question} {figures_text(c.contrast)}." for c in result.comparisons if c.question]
    lines += [result.time, result.provenance.sentence, *result.provenance.lines]
    for notice in result.notices:
        lines.append(f"{notice.message}.")
        lines += [f"  {reference!r:.100} -> {prediction!r:.100}" for reference, prediction in notice.rows]
    return lines + [f"{note[:1].upper()}{note[1:]}." for note in result.notes]


def columns_text(*rows: Sequence[str]) -> str:
    """Return rows of cells as lines of text, with the columns aligned."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)
