"""The result of an audit, as a value, JSON, lines for a console, and tables."""

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


@dataclasses.dataclass(frozen=True, slots=True)
class RowContent:
    """One row for the report, with scores in points; NaN for a sentence without a stratum."""

    condition: str
    subject: str
    reference: str
    prediction: str
    own: float  # against its own reference
    others: float  # mean against the other sentences of its stratum
    content: float  # `own` minus `others`


@dataclasses.dataclass(frozen=True)
class EegBits:
    """Bits per token that the EEG adds to the likelihood of its sentence, compared with one control.

    p is one-sided. The bits show content only against `shuffled`, the EEG of another sentence; of any other control
    (`off_distribution`) likelihoods may be lower because its input is unlike the training data.
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
    sentence: str  # the verdict for a lay reader
    limits: list[str]  # of the verdict, the most important first
    metric: str
    signature: str
    mode: str
    margin: float
    mde: float  # of the verdict: all deciding comparisons find it with power 90 %
    adjusted_p: float  # of the deciding comparison, over all that are printed (Holm)
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
    recordings: dict[str, tuple[float, float]]  # name -> first and last onset of EEG's rows
    time_unit: str  # of `recordings`: "s" or "samples"
    notices: list[Notice]
    notes: list[str]
    choices: list[str]  # what is not the default
    rows: list[RowContent]
    provenance: Provenance
    bits: list[EegBits] = dataclasses.field(default_factory=list)
    judged: Judged | None = None  # if the rows are of files
    recording: str = "eeg"
    candidates: tuple[int, int] | None = None  # of rankings: fewest and most candidates
    chance: float | None = None  # of rankings: score by chance, in percent
    chance_interval: tuple[float, float] | None = None
    by_length: Figures | None = None  # of rankings: a baseline that knows only the number of words

    @property
    def deciding(self) -> Comparison:
        return deciding_one(self.comparisons)

    @property
    def chosen(self) -> list[str]:
        return [f"Chosen, and not the default: {'; '.join(self.choices)}."] if self.choices else []

    @property
    def questions(self) -> list[str]:
        return [f"{c.control}: {c.question} {figures_text(c.contrast)}." for c in self.comparisons if c.question]

    @property
    def exit_status(self) -> int:
        """The exit status of `eeg2text audit`."""
        return self.verdict.exit_status

    def __repr__(self) -> str:
        return f"AuditResult({self.verdict.headline}. {self.sentence})"

    def to_frame(self) -> Any:
        """Return the comparisons as a pandas DataFrame, a row each."""
        headings, *rows = effect_table(self)
        return library("pandas", "pandas").DataFrame(rows, columns=headings)

    def to_json(self) -> dict[str, Any]:
        """Return all fields but the rows, without arrays, as JSON values; NaN and infinity become null."""
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


Table = list[tuple[str, ...]]  # of text; the headings first


def condition_table(result: AuditResult) -> Table:
    """Return a table of the conditions, for rankings with a baseline at the end."""
    rows: Table = [("condition", "rows", "top-1", "top-5", "rank", "others", "content", "p")]
    if result.chance is None:
        rows = [("condition", "rows", "score", "others", "content", "p", "distinct")]
    for c in result.conditions:
        of, digits = c.content, 2 if c.figures is None else 1
        scores = of.scores[:1] if c.figures is None else dataclasses.astuple(c.figures)
        shown = [f"{value:.{digits}f}" for value in (*scores, of.nulls[0])]
        rows.append((c.name, str(c.rows), *shown, f"{of.effect:+.{digits}f}", p_cell(of.p)))
        if c.figures is None:
            rows[-1] += (str(c.look.distinct) if c.look else "–",)
    if result.by_length is not None:
        lengths = (f"{value:.1f}" for value in dataclasses.astuple(result.by_length))
        rows.append(("number of words alone", "–", *lengths, "–", "–", "–"))
    return rows


def effect_table(result: AuditResult) -> Table:
    rows: Table = [("against", "content difference", "90 % CI", "p", "verdict")]
    for c in result.comparisons:
        p, of = c.p
        verdict = c.verdict.named(result.verdict.recording) + (" (does not decide)" if c.question else "")
        rows.append((*_effect_cells(c.contrast), p_cell(p) + (f" ({of})" if of else ""), verdict))
    return rows


def secondary_table(result: AuditResult) -> Table:
    return [
        ("endpoint", "against", "content difference", "90 % CI", "p", "p (Holm)"),
        *(
            (s.label, *_effect_cells(s.contrast), p_cell(s.contrast.decisive_p), p_cell(s.adjusted))
            for s in result.secondary
        ),
    ]


def _effect_cells(found: Contrast) -> tuple[str, str, str]:
    return found.control or "other sentences", f"{found.effect:+.2f}", interval_text(found.interval())


def reported_table(result: AuditResult, heading: str) -> Table:
    """Return scores as papers print them, each with its null."""
    rows = ((r.label, *map("{:.2f} ({:.2f})".format, r.scores, r.nulls)) for r in result.reported)
    return [(heading, *(c.name for c in result.conditions)), *rows]


def evidence_lines(result: AuditResult) -> list[str]:
    """Return sentences on `bits` and on the chance level of rankings."""
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
    """Return what limits a verdict, the most important first; `odd` are the codes of odd signs."""
    if ruling.base is Verdict.NOT_JUDGEABLE:
        barring = [notice for notice in notices if notice.bars]
        examples = [line for notice in barring for line in notice.examples]
        return [_capitalized(notice.message) for notice in barring] + examples[:2]
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
    """Return the audit for a console: some 12 lines, or all if `verbose`; `more` says where all figures are."""
    heads, *rows = condition_table(result)
    size = f"{result.n_rows} rows, {result.n_sentences} sentences, {result.n_strata} strata of {result.alike}"
    lines = [f"{result.metric} in points; {size}", columns_text(heads, *(rows if verbose else rows[:MOST_SHOWN]))]
    if verbose:
        lines += ["", *_verbose_lines(result)]
    elif (hidden := len(result.conditions) - MOST_SHOWN) > 0:
        lines.append(f"and {hidden} more")
    lines += ["", result.sentence]
    lines += result.limits if verbose else result.limits[:MOST_LIMITS]
    lines += result.chosen
    if not verbose:
        lines += [*result.provenance.lines, f"All figures: {more}"]
    return "\n".join([*lines, f"VERDICT: {result.verdict.headline}"])


def _verbose_lines(result: AuditResult) -> list[str]:
    mde = f"The verdict's minimum detectable effect: {result.mde:.2f}; margin {result.margin:g}."
    lines = [columns_text(*effect_table(result)), "", mde]
    if result.secondary:
        lines += ["", columns_text(*secondary_table(result)), ""]
    if result.reported:
        shown = columns_text(*reported_table(result, "as papers print it"))
        lines += ["", shown, "(in brackets: against other sentences)"]
    lines += [f"Groups {answer.text}." for answer in result.groups]
    lines += [*evidence_lines(result), *result.questions, result.time]
    lines += [result.provenance.sentence, *result.provenance.lines]
    for notice in result.notices:
        lines += [f"{notice.message}.", *notice.examples]
    return lines + list(map(_capitalized, result.notes))


def _capitalized(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."


def columns_text(*rows: Sequence[str]) -> str:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)
