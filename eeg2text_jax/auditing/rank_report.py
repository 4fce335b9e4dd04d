"""The audit of rankings in words, on the console and as a page."""

import dataclasses
import html
import os
from collections.abc import Iterable

from eeg2text_jax.auditing.judged import judged_part
from eeg2text_jax.auditing.page import Section, section_part, table, write_page
from eeg2text_jax.auditing.recorded import said
from eeg2text_jax.auditing.report import derived_part, effect_figures, flag_part, secondary_part, verdict_part
from eeg2text_jax.auditing.result import EFFECT_HEADINGS, columns, derived_lines, effect_rows, time_lines
from eeg2text_jax.auditing.verdict import exchanged, interval_text, p_text
from eeg2text_jax.auditing.which_sentence import RankingAudit

HEADINGS = ("condition", "rows", "top-1", "top-5", "rank", "null", "content")
TITLE = "Does the recording tell which sentence was read?"


def ranked_rows(result: RankingAudit) -> list[tuple[str, ...]]:
    """Text of the table of conditions, under `HEADINGS`; null and content are of the endpoint."""
    rows = [
        (
            c.name,
            str(c.rows),
            *(f"{value:.1f}" for value in dataclasses.astuple(c.figures)),
            f"{c.content.nulls[0]:.1f}",
            f"{c.content.effect:+.1f} ({p_text(c.p)})",
        )
        for c in result.conditions
    ]
    lengths = (f"{value:.1f}" for value in dataclasses.astuple(result.by_length))
    return [*rows, ("number of words alone", "–", *lengths, "–", "–")]


def chance_line(result: RankingAudit) -> str:
    """What chance gives, and between which figures it lies."""
    low, high = result.chance_interval
    fewest, most = result.candidates
    sizes = f"{fewest}" if fewest == most else f"{fewest} to {most}"
    return (
        f"{result.metric} by chance: {result.chance:.1f} % (95 % of chance: {low:.1f} to {high:.1f} %, "
        f"{result.n_sentences} independent sentences of which each was held against {sizes})"
    )


def ranking_text(result: RankingAudit) -> str:
    """The whole audit in plain text."""
    size = f"{result.n_rows} rows of {result.n_sentences} independent sentences in {result.n_strata} strata"
    lines = [
        f"{size}; {result.metric}, {result.mode}, margin {result.margin:g}, {result.resamples} resamples",
        chance_line(result),
        *columns(HEADINGS, ranked_rows(result)),
        "",
        *columns(EFFECT_HEADINGS, effect_rows(result.comparisons)),
        "",
        *derived_lines(result),
        *(f"{flag.level}: {flag.message}." for flag in result.flags),
        *(f"note: {note}" for note in result.notes),
        "",
        *([f"Provenance: {result.provenance.text}."] if result.provenance else []),
        *(c.sentence for c in result.comparisons if c.sentence != result.sentence),
        *time_lines(result),
        result.sentence,
        f"VERDICT: {result.verdict_text}",
    ]
    return said("\n".join(lines), result.recording)


def write_ranking_report(
    result: RankingAudit, path: str | os.PathLike[str], *, sections: Iterable[Section] = ()
) -> None:
    """Writes the page, whole or not at all. Images are embedded."""
    parts = [verdict_part(result), _effect_part(result), _condition_part(result), _subject_part(result)]
    parts += [flag_part(result), *map(section_part, sections), _method_part(result)]
    write_page(path, TITLE, [*said(parts, result.recording), judged_part(result.judged)])


def _effect_part(result: RankingAudit) -> str:
    explained = (
        "<p>A score above chance need not be content: whoever knows how long a sentence is finds it among sentences of "
        "other lengths. So what is judged is how much oftener the sentence that was read is found than others of "
        f"{exchanged(result.task_known)}, <b>content</b>, with EEG and with every control.</p>"
    )
    shown = table(EFFECT_HEADINGS, effect_rows(result.comparisons))
    drawn = f'<div class="figures">{effect_figures(result)}</div>'
    return f"<h2>The effect</h2>{explained}{shown}{derived_part(result)}{drawn}{secondary_part(result)}"


def _condition_part(result: RankingAudit) -> str:
    channels = [f"{c.side_channel.worth:+.1f} ({p_text(c.side_channel.p)})" for c in result.conditions] + ["–"]
    rows = [(*row, channel) for row, channel in zip(ranked_rows(result), channels, strict=True)]
    note = (
        f"<p>{html.escape(chance_line(result))}. Null: how often another sentence of equal task and length is found. "
        "Length channel: what knowing task and length alone is worth; it cancels in the verdict.</p>"
    )
    return f"<h2>Conditions</h2>{table((*HEADINGS, 'length channel'), rows)}{note}"


def _subject_part(result: RankingAudit) -> str:
    rows = [
        (c.control or "its null", s.subject, str(s.sentences), f"{s.effect:+.1f}", interval_text(s.interval))
        for c in result.comparisons
        for s in c.subjects
    ]
    if not rows:
        return ""
    headings = ("against", "subject", "sentences", "content difference", "95 % CI")
    return f"<h2>Each subject</h2>{table(headings, rows)}"


def _method_part(result: RankingAudit) -> str:
    return (
        f"<h2>Method</h2><p>Endpoint: {html.escape(result.metric)} (<code>{html.escape(result.signature)}</code>). "
        f"p: {result.resamples} permutations of sentences within {result.n_strata} strata of "
        f"{exchanged(result.task_known)}, the same for every condition, one-sided; every sentence keeps its number of "
        "rows. A difference also needs a 90 % interval that excludes 0. Intervals: as many bootstrap draws over "
        f"sentences. Equivalence: 90 % interval inside ±{result.margin:g}. With several controls all must be beaten. "
        f"Random seed {result.seed}.</p>"
    )
