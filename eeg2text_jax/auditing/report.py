"""The HTML report of an audit: one self-contained file, readable on a screen, on a phone and on paper."""

import html
import os
from collections.abc import Iterable, Sequence

from eeg2text_jax.auditing.beyond_time import time_lines
from eeg2text_jax.auditing.figures import bootstrap_figure, curve_figure, effect_figure, null_figure, subject_figure
from eeg2text_jax.auditing.levels import curve_text, level_rows
from eeg2text_jax.auditing.page import NAMES, Section, image, said, section_part, table, write_page
from eeg2text_jax.auditing.provenance import Level, judged_part
from eeg2text_jax.auditing.result import (
    DERIVED_HEADINGS,
    EFFECT_HEADINGS,
    LEVEL_HEADINGS,
    AuditResult,
    chance_lines,
    condition_headings,
    condition_rows,
    derived_rows,
    directed_p,
    effect_rows,
    evidence_lines,
)
from eeg2text_jax.auditing.side_channel import GAP_CODES
from eeg2text_jax.auditing.table import ConditionSummary, Example
from eeg2text_jax.auditing.verdict import Verdict, because, exchanged, interval_text, p_cell, p_text
from eeg2text_jax.versions import BIBTEX

CITATION = f"<details><summary>BibTeX</summary><pre>{html.escape(BIBTEX)}</pre></details>"
TERMS = (
    "<details><summary>Terms</summary><dl>"
    "<dt>null</dt><dd>the score of the same predictions against other sentences: what style and length are worth</dd>"
    "<dt>content</dt><dd>score minus null: the part that is about this sentence</dd>"
    "<dt>margin</dt><dd>fixed before looking: a smaller difference in content does not matter</dd>"
    "<dt>MDE, minimum detectable effect</dt><dd>the smallest effect that 90 % of such studies would show</dd>"
    "<dt>smallest margin</dt><dd>the margin with which equivalence would have been claimed</dd>"
    "<dt>strata</dt><dd>groups of sentences of one task and length, within which references are exchanged</dd>"
    "</dl></details>"
)
CLASSES = dict.fromkeys(Verdict, "bad") | {Verdict.USES_EEG: "good", Verdict.CONTENT: "good"}  # verdict -> CSS class
CLASSES |= {Verdict.UNDERPOWERED: "open", Verdict.UNPROVEN: "open"}
TITLES = "Does the model use the EEG?", "Does the recording tell which sentence was read?"  # for texts, for rankings


def write_report(
    result: AuditResult, path: str | os.PathLike[str], *, title: str = "", sections: Iterable[Section] = ()
) -> None:
    """Write the report as one HTML file, atomically.

    Args:
      path: a local file or one in a bucket.
      title: heading of the page; "": the question that the audit answers.
      sections: further sections, before the method; their images are embedded.
    """
    title = title or TITLES[result.chance is not None]
    parts = [verdict_part(result), _effect_part(result), _condition_part(result)]
    if result.chance is None:
        parts += [flag_part(result), _collapse_part(result), _example_part(result)]
    else:
        parts += [_subject_part(result), flag_part(result)]
    parts += [*map(section_part, sections), _method_part(result)]
    parts = [*said([*parts, TERMS], result.recording), judged_part(result.judged), CITATION]
    write_page(path, said(title, result.recording), parts)


def verdict_part(result: AuditResult) -> str:
    """Return the HTML of the verdict, its explanation and provenance, and boxes with the main numbers."""
    main, origin = result.deciding, result.provenance
    numbers = {
        "independent sentences": str(result.n_sentences),
        "rows": str(result.n_rows),
        "design effect": "–" if result.design_effect != result.design_effect else f"{result.design_effect:.1f}",
        "subjects": str(result.n_subjects or "unknown"),
        "training seeds": str(len(result.seeds)) if result.seeds_stated else "unknown",
        "content difference": f"{main.primary.effect:+.2f}",
        "p of the difference": directed_p(result.verdict, main.primary),
        "minimum detectable effect": f"{main.mde:.2f}",
        "margin": f"±{result.margin:g}",
        "free running": origin.level.value,
    }
    repeated = origin.level is Level.CONTRADICTED and origin.statement in main.reading
    lines = [
        f"{main.reading[:1].upper()}{main.reading[1:]}.",
        f"Provenance: {origin.level.value if repeated else origin.text}.",
        *origin.lines,
        *time_lines(result.verdict, result.time),
    ]
    boxes = "".join(f"<div><b>{html.escape(value)}</b><span>{name}</span></div>" for name, value in numbers.items())
    return (
        f'<section class="verdict {CLASSES[result.verdict]}"><p class="label">Verdict</p>'
        f'<p class="big">{result.verdict_text}</p>{"".join(f"<p>{html.escape(line)}</p>" for line in lines)}</section>'
        f'<div class="numbers">{boxes}</div>'
    )


def _effect_part(result: AuditResult) -> str:
    """Return the HTML on comparisons: tables, figures, other strata, levels of content, secondary endpoints."""
    alike = exchanged(result.task_known)
    explained = (
        "<p>A gap between two conditions can be style: outputs that are longer, or fuller of frequent words, score "
        f"higher against any sentence. So both are also scored against other sentences of {alike}; what a score loses "
        "by that is <b>content</b>, and the verdict is about the difference in content.</p>"
    )
    if result.chance is not None:
        explained = (
            "<p>A score above chance need not be content: whoever knows how long a sentence is finds it among "
            "sentences of other lengths. So the verdict is about <b>content</b>, with EEG and with every control: how "
            f"much more often the sentence that was read is found than others of {alike}.</p>"
        )
    evidence = "".join(f"<li>{html.escape(line)}</li>" for line in evidence_lines(result))
    more = f"<h3>More sensitive evidence</h3><ul>{evidence}</ul>" if evidence else ""
    rows = table(EFFECT_HEADINGS, effect_rows(result.comparisons))
    return (
        f"<h2>The effect</h2>{explained}<p>In one sentence: {html.escape(result.sentence)}</p>"
        f'{rows}{derived_part(result)}{level_part(result)}<div class="figures">{effect_figures(result)}</div>{more}'
        f"{secondary_part(result)}"
    )


def effect_figures(result: AuditResult) -> str:
    """Return figures of the content difference as HTML: intervals, null distributions, subjects and seeds."""
    main, eeg = result.deciding, result.conditions[0].name
    if eeg == "eeg" != result.recording:
        eeg = NAMES.get(result.recording, eeg)
    against = f", against {main.control}" if main.control else ""
    figures = [("Content difference against the equivalence band", effect_figure(result))] if against else []
    for c in result.comparisons:
        name = f"Score gap under permuted references: {c.control}" if c.control else "Score under permuted references"
        figures.append((name, null_figure(c, eeg)))
    if main.subjects:
        figures.append((f"Each subject{against}", subject_figure(main, result.metric)))
    if len(main.primary.seed_effects) >= 3:
        figures.append(("Training seeds", bootstrap_figure(main.primary, result.metric)))
    return "".join(
        f"<figure><figcaption>{html.escape(name)}</figcaption>{image(svg.encode(), name)}</figure>"
        for name, svg in figures
    )


def derived_part(result: AuditResult) -> str:
    """Return the HTML table of comparisons within other strata; "" if there are none."""
    rows = derived_rows(result.comparisons)
    if not rows:
        return ""
    note = (
        f"<p>The test was run again, since {because(result.comparisons[0].derived)}: sentences of one task are written "
        "alike, and within strata of nearly one length, the exact length still tells something about the sentence. A "
        "claim must hold within all of these strata.</p>"
    )
    return f"<h3>Again, within other strata</h3>{note}{table(DERIVED_HEADINGS, rows)}"


def level_part(result: AuditResult) -> str:
    """Return HTML on what content tells, the group of a sentence or the sentence within it; "" if not measured."""
    if result.curve:
        drawn = image(curve_figure(result.curve, result.metric).encode(), "content left within ever finer clusters")
        drawn = f'<div class="figures"><figure>{drawn}</figure></div>'
        return f"<h3>How fine the content is</h3><p>{html.escape(curve_text(result.curve))}.</p>{drawn}"
    if not result.levels:
        return ""
    note = (
        "<p>Between groups, whole groups are exchanged: content that tells the group. Within groups, sentences of one "
        "group are exchanged: content that tells the sentence.</p>"
    )
    return f"<h3>Between and within groups</h3>{note}{table(LEVEL_HEADINGS, level_rows(result.levels))}"


def secondary_part(result: AuditResult) -> str:
    """Return the HTML table of secondary endpoints, which do not decide."""
    rows = [
        (
            c.control or "its null",
            s.label,
            " / ".join(f"{score:.2f}" for score in s.scores),
            f"{s.effect:+.2f}",
            interval_text(s.interval),
            p_cell(s.p),
            p_cell(s.p_holm),
        )
        for c in result.comparisons
        for s in c.secondary
    ]
    headings = ("against", "figure", "scores", "content difference", "95 % CI", "p", "p (Holm)")
    note = "<p>These figures do not decide. Content differences: higher is better. Holm adjusts over all p.</p>"
    return f"<h3>Secondary figures</h3>{note}{table(headings, rows)}"


def _condition_part(result: AuditResult) -> str:
    """Return the HTML table of conditions with scores, nulls, content and length side channels."""
    channels = [f"{c.side_channel.worth:+.2f} ({p_text(c.side_channel.p)})" for c in result.conditions]
    rows = [(*row, channel) for row, channel in zip(condition_rows(result), [*channels, "–"], strict=False)]
    note = "Content null: the same predictions against other sentences."
    headings = ("condition", "rows", result.metric, "content null", "content", "distinct outputs")
    if result.chance is not None:
        headings = condition_headings(result)
        (line,) = chance_lines(result)
        note = f"{html.escape(line)}. Null: how often another sentence of equal task and length is found."
    cancels = "it cancels in the verdict"
    if any(flag.code in GAP_CODES for flag in result.flags):
        cancels = "in one condition it is more than in the other, see the warnings"
    note = f"<p>{note} Length channel: what knowing task and length alone is worth; {cancels}.</p>"
    return f"<h2>Conditions</h2>{table((*headings, 'length channel'), rows)}{note}"


def _subject_part(result: AuditResult) -> str:
    """Return the HTML table of content differences in each subject; "" if subjects are unknown."""
    rows = [
        (c.control or "its null", s.subject, str(s.sentences), f"{s.effect:+.1f}", interval_text(s.interval))
        for c in result.comparisons
        for s in c.subjects
    ]
    headings = ("against", "subject", "sentences", "content difference", "95 % CI")
    return f"<h2>Each subject</h2>{table(headings, rows)}" if rows else ""


def flag_part(result: AuditResult) -> str:
    items = "".join(f'<li class="{f.level}"><b>{f.level}</b> {html.escape(f.message)}.</li>' for f in result.flags)
    notes = "".join(f"<li><b>note</b> {html.escape(note)}</li>" for note in result.notes)
    return f'<h2>Warnings</h2><ul class="flags">{items or "<li>none</li>"}{notes}</ul>'


def _collapse_part(result: AuditResult) -> str:
    """Return the HTML table of descriptive figures of the predictions, a column for each condition."""
    columns = [_collapse_column(c) for c in result.conditions]
    rows = [(name, *(column[name] for column in columns)) for name in columns[0]]
    return f"<h2>What the outputs look like</h2>{table(['', *(c.name for c in result.conditions)], rows)}"


def _collapse_column(condition: ConditionSummary) -> dict[str, str]:
    c = condition.collapse
    correlation = "–" if c.length_correlation != c.length_correlation else f"{c.length_correlation:.2f}"
    return {
        "distinct outputs": f"{c.distinct} of {c.rows}",
        "most frequent output": f"{c.top_share:.0%}: {c.top_text:.70}{'…' if len(c.top_text) > 70 else ''}",
        "most frequent beginning": f"{c.top_start_share:.0%}: {c.top_start}",
        "same for all readers": f"{c.input_independent} of {c.several_readers} sentences",
        "words repeated within an output": f"{c.repetition:.0%}",
        "words two outputs share": f"{c.overlap:.0%} (references {c.reference_overlap:.0%})",
        "vocabulary": f"{c.vocabulary} (references {c.reference_vocabulary})",
        "words per output": f"{c.mean_words:.1f}",
        "length follows reference, r": correlation,
        "empty outputs": str(c.empty),
    }


def _example_part(result: AuditResult) -> str:
    """Return HTML with examples of predictions: drawn at random, and the best ones."""
    names = [c.name for c in result.conditions]
    drawn, best = ("".join(_example(e, names) for e in result.examples if e.best is best) for best in (False, True))
    note = "<p>Among many outputs some match by chance; the best ones prove nothing.</p>"
    return f"<h2>Examples</h2><h3>At random</h3>{drawn}<h3>The highest scores</h3>{note}{best}"


def _example(example: Example, names: Sequence[str]) -> str:
    lines = [("reference", example.reference), *zip(names, example.predictions, strict=True)]
    items = "".join(
        f"<dt>{html.escape(name)}</dt><dd>{html.escape(text) or '<i>empty</i>'}</dd>" for name, text in lines
    )
    return f'<dl class="example">{items}</dl>'


def _method_part(result: AuditResult) -> str:
    """Return the statistical method in words, as HTML."""
    mode = html.escape(result.mode.replace("_", " "))
    seeds = " and seeds" if len(result.seeds) >= 3 else ""
    words = "word " if result.chance is None else ""
    return (
        f"<h2>Method</h2><p>Endpoint: {words}{html.escape(result.metric)} "
        f"(<code>{html.escape(result.signature)}</code>), {mode}. p: {result.resamples} permutations of sentence to "
        f"reference within {result.n_strata} strata of {exchanged(result.task_known)}, the same for every condition, "
        "one-sided; every reference keeps its number of rows. A difference also needs a 90 % interval that excludes 0. "
        f"Intervals: as many bootstrap draws over sentences{seeds}. Equivalence: 90 % interval inside "
        f"±{result.margin:g}. Minimum detectable effect: 90 % power at one-sided 5 %. With several controls all must "
        f"be beaten; the weakest answer decides. Random seed {result.seed}.</p>"
    )
