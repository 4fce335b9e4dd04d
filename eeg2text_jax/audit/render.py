"""The audit on the console, and the text of its tables."""

from collections.abc import Sequence

from eeg2text_jax.audit.contrast import Contrast
from eeg2text_jax.audit.result import AuditResult, Comparison
from eeg2text_jax.audit.verdict import Verdict, interval_text, p_cell, p_text

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
        tests = (directed_p(c.verdict, found), f"{found.mde:.2f}", margin)
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
        *_columns(HEADINGS, condition_rows(result)),
        "",
        *_columns(EFFECT_HEADINGS, effect_rows(result.comparisons)),
        "",
        *_derived_lines(result),
        *evidence_lines(result),
        *(f"{flag.level}: {flag.message}." for flag in result.flags),
        *(f"note: {note}" for note in result.notes),
        "",
        *(f"{c.sentence}" for c in result.comparisons if c.sentence != result.sentence),
        result.sentence,
        f"VERDICT: {result.verdict.value}",
    ]
    return "\n".join(lines)


def _derived_lines(result: AuditResult) -> list[str]:
    rows = derived_rows(result.comparisons)
    return (
        ["The tasks are not known; again within other strata:", *_columns(DERIVED_HEADINGS, rows), ""] if rows else []
    )


def _columns(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(row[i]) for row in [headings, *rows]) for i in range(len(headings))]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in [headings, *rows]
    ]
