"""The HTML report of an audit, one self-contained file for screen, phone and paper.

Its head has the verdict, at most four figures and one picture; all else is folded below.
"""

import base64
import dataclasses
import html
import io
import math
import os
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import matplotlib
import numpy as np
from etils import epath
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from eeg2text_jax.base.files import write_text
from eeg2text_jax.base.packages import BIBTEX
from eeg2text_jax.instrument.auditing import result as results
from eeg2text_jax.instrument.auditing.notices import Judged
from eeg2text_jax.instrument.auditing.result import AuditResult
from eeg2text_jax.instrument.auditing.verdict import FOUND, Z_95, Verdict, figures_text, interval_text, p_cell, p_text

RULE = re.compile(r"\|(\s*:?-+:?\s*\|)+")  # the line below the headings of a Markdown table
ESCAPED = re.compile(r"\\([\\`*_\[\]|#~<>])")
STYLE_SHEET = Path(__file__).with_name("report.css")


def markdown_html(text: str) -> str:
    """Convert Markdown to HTML: pipe tables, paragraphs, bold and underlined text."""
    return "".join(_block(block.strip().split("\n")) for block in re.split(r"\n\s*\n", text) if block.strip())


def _block(lines: Sequence[str]) -> str:
    if lines[0].startswith("|"):
        cells = [line.strip().removeprefix("|").removesuffix("|") for line in lines if not RULE.fullmatch(line.strip())]
        return _html_table(*([_inline(cell.strip()) for cell in re.split(r"(?<!\\)\|", line)] for line in cells))
    return f"<p>{_inline(' '.join(lines))}</p>"


def _inline(text: str) -> str:
    """Convert bold, underline, escapes to HTML; entities are decoded first, so that text is escaped once."""
    text = re.sub(r"</?u>", lambda tag: "\x01" if tag[0] == "<u>" else "\x02", text)
    pieces = re.split(r"(?<!\\)\*\*", html.unescape(text))
    pieces = [html.escape(ESCAPED.sub(r"\1", piece)) for piece in pieces]
    marked = "".join(f"<b>{piece}</b>" if index % 2 else piece for index, piece in enumerate(pieces))
    return marked.replace("\x01", "<u>").replace("\x02", "</u>")


@dataclasses.dataclass(frozen=True)
class Section:
    title: str
    markdown: str = ""
    images: Sequence[str | os.PathLike[str]] = ()  # PNG or SVG files


def write_page(path: str | os.PathLike[str], title: str, parts: Iterable[str]) -> None:
    """Write an HTML page atomically; `parts` are HTML."""
    page = (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{html.escape(title)}</title><style>{STYLE_SHEET.read_text(encoding='utf8')}</style></head>"
        f"<body><main><h1>{html.escape(title)}</h1>{''.join(parts)}</main></body></html>\n"
    )
    write_text(path, page)


def folded(title: str, body: str, *, name: str = "") -> str:
    """Return a section that opens when its title is clicked; "" if its body is empty."""
    return f'<details class="part {name}"><summary>{html.escape(title)}</summary>{body}</details>' if body else ""


def section_part(section: Section) -> str:
    kinds = {".svg": "svg+xml", ".png": "png"}
    paths = map(epath.Path, section.images)
    images = "".join(f"<figure>{image(p.read_bytes(), p.stem, kinds[p.suffix])}</figure>" for p in paths)
    return folded(section.title, f'{markdown_html(section.markdown)}<div class="figures">{images}</div>')


def bullets(lines: Iterable[str]) -> str:
    """Return sentences as an HTML list, or ""; first words get a capital, names before a colon none."""
    said = (re.sub("^[a-z]+ ", lambda word: word[0].capitalize(), line) for line in lines)
    items = "".join(f"<li>{html.escape(line)}</li>" for line in said)
    return f"<ul>{items}</ul>" if items else ""


def table(*rows: Iterable[str]) -> str:
    """Return headings and rows of plain text as an HTML table."""
    return _html_table(*(list(map(html.escape, row)) for row in rows))


def _html_table(heads: Sequence[str], *rows: Sequence[str]) -> str:
    """Return a table of HTML cells, each with its heading, as a phone shows a row as a card."""
    labels = [re.sub(r"<[^>]*>", "", head) for head in heads]
    cells = ((f'<td data-label="{a}">{cell}</td>' for a, cell in zip(labels, row, strict=True)) for row in rows)
    body = "".join(f"<tr>{''.join(row)}</tr>" for row in cells)
    head = "".join(f"<th>{cell}</th>" for cell in heads)
    return f'<div class="table"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def image(data: bytes, alt: str, kind: str = "svg+xml") -> str:
    source = f"data:image/{kind};base64,{base64.b64encode(data).decode()}"
    return f'<img alt="{html.escape(alt)}" src="{source}">'


# The palette of Okabe and Ito; places and labels tell the same as the colors.
BLUE, ORANGE, GREY, DARK = "#0072B2", "#D55E00", "#8A8A8A", "#333333"
WIDTH = 4.6  # inches; text has 9 px or more on a phone
STYLE = {"font.size": 10, "axes.spines.top": False, "axes.spines.right": False, "svg.hashsalt": "eeg2text"}
MOST_VECTORS = 1500  # more dots are an image within the figure


def signal_name(result: AuditResult, condition: str) -> str:
    return result.verdict.recording if condition == "eeg" else condition


def shown_names(result: AuditResult) -> list[str]:
    return [result.conditions[0].name, *filter(None, [result.deciding.control])]


def sentence_points(result: AuditResult, condition: str) -> np.ndarray:
    """Return each sentence's mean scores against others and against its own reference, `[S, 2]`."""
    points: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for row in result.rows:
        if row.condition == condition and not np.isnan(row.content):
            points[row.reference].append((row.others, row.own))
    return np.array([np.mean(rows, 0) for rows in points.values()]).reshape(-1, 2)


def sentence_figure(result: AuditResult) -> str:
    """Return an SVG plot of the sentences, as dots, under EEG and the deciding control."""
    names = shown_names(result)
    points = [sentence_points(result, name) for name in names]
    low, high = (f([f(p, 0, initial=0.0) for p in points], 0) for f in (np.min, np.max))
    pad = 0.06 * np.maximum(high - low, 1e-6)
    top, low, high = high[1], low - pad, high + pad * (1, 4)  # room for a label

    def draw(figure: Figure) -> None:
        grid = figure.subplots(1, len(names), sharex=True, sharey=True, squeeze=False)[0]
        for axes, name, dots in zip(grid, names, points, strict=True):
            content = next(c.content.effect for c in result.conditions if c.name == name)
            title = f"with {_short(signal_name(result, name), 15)}\ncontent {content:+.2f}"
            axes.set_title(title, fontsize=11, fontweight="bold")
            _sentence_panel(axes, dots, low, high)
        label = "above the line: fits\nits own sentence better"
        grid[0].text(0.03, 0.98, label, va="top", fontsize=9, color=DARK, transform=grid[0].transAxes)
        grid[0].set_yticks([tick for tick in grid[0].get_yticks() if low[1] <= tick <= top])
        grid[0].set_ylabel("score against its own sentence")
        figure.supxlabel("score against other sentences", fontsize=10)

    return _svg(draw, 3.3)


def _sentence_panel(axes: Axes, dots: np.ndarray, low: np.ndarray, high: np.ndarray) -> None:
    ends = np.array([low[0], high[0]])
    axes.fill_between(ends, ends, max(high), color=BLUE, alpha=0.08, lw=0)
    axes.plot(ends, ends, color="black", lw=1)
    places, counts = np.unique(np.round(dots, 3), axis=0, return_counts=True)
    size = np.clip(600 / max(len(dots), 1), 6, 14) * counts
    x, y = places.T
    axes.scatter(x, y, size, color=BLUE, alpha=0.45, lw=0, rasterized=len(places) > MOST_VECTORS)
    axes.plot(*dots.mean(0), "D", color=ORANGE, markeredgecolor="white", ms=9, mew=1.2)
    axes.set_xlim(low[0], high[0])
    axes.set_ylim(low[1], high[1])


def effect_figure(result: AuditResult) -> str:
    """Return an SVG plot of the content difference to each control over the band of equivalence."""
    comparisons = result.comparisons
    names = [_short(c.control or "other sentences") for c in comparisons]

    def draw(figure: Figure) -> None:
        axes = figure.subplots()
        if comparisons[0].control:
            axes.axvspan(-result.margin, result.margin, color=GREY, alpha=0.2, lw=0)
        for place, comparison in enumerate(comparisons):
            difference, color = comparison.contrast, BLUE if not comparison.question else GREY
            axes.plot(difference.interval(Z_95), (place, place), color=color, lw=1.5)
            axes.plot(difference.interval(), (place, place), color=color, lw=4, solid_capstyle="butt")
            axes.plot(difference.effect, place, "o", color="white", markeredgecolor=color, ms=8, mew=2)
        axes.axvline(0, color="black", lw=0.8)
        axes.set_yticks(range(len(names)), names)
        axes.set_ylim(len(names) - 0.4, -0.6)
        # Short lines, as long names of controls leave little width.
        band = f"grey: within ±{result.margin:g};\n" if comparisons[0].control else ""
        axes.set_xlabel(f"content difference,\npoints of {result.metric}\n({band}thick: 90 %, thin: 95 %)")

    return _svg(draw, 1.9 + 0.42 * len(names))


def _svg(draw: Callable[[Figure], None], height: float) -> str:
    """Return the SVG of a figure, `height` inches high, that `draw` fills."""
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(WIDTH, height), layout="constrained")
        draw(figure)
        file = io.StringIO()
        figure.savefig(file, format="svg", dpi=200, metadata={"Date": None})
    return file.getvalue()


def _short(name: str, limit: int = 22) -> str:
    return name if len(name) <= limit else f"{name[: limit - 1]}…"


MOST_ROWS = 5000  # rows of the searchable table
LIMITS = "What limits the verdict, and notes"  # title of a section
SEARCH = """<p class="search" hidden><input type="search" placeholder="words of a sentence, an output, a reader"
aria-label="Search all rows"> <button type="button">highest content first</button> <span role="status"></span></p>"""
SCRIPT = """<script>{
const part = document.querySelector('details.rows'), rows = [...part.querySelectorAll('tbody tr')];
const [bar, box, button, status] = ['.search', 'input', 'button', 'span'].map(name => part.querySelector(name));
const texts = rows.map(row => row.textContent.toLowerCase());
const content = row => parseFloat(row.lastChild.textContent) || 0;
bar.hidden = false;
box.oninput = () => {
  const words = box.value.toLowerCase().split(/\\s+/);
  rows.forEach((row, i) => row.hidden = !words.every(word => texts[i].includes(word)));
  status.textContent = rows.filter(row => !row.hidden).length + ' of ' + rows.length + ' rows';
};
button.onclick = () => rows[0].parentNode.append(...[...rows].sort((a, b) => content(b) - content(a)));
}</script>"""


def write_report(result: AuditResult, path: str | os.PathLike[str], *, sections: Iterable[Section] = ()) -> None:
    """Write the report as one HTML file, atomically, to a local path or a bucket; `sections` come before the method."""
    title = f"Does the model use the {result.verdict.recording}?"
    if result.chance is not None:
        title = "Does the recording tell which sentence was read?"
    further = table(*results.secondary_table(result)) if result.secondary else ""
    parts = [
        verdict_part(result),
        folded("Against each control", _comparison_part(result)),
        folded("Each condition: scores, and what the outputs look like", _condition_part(result)),
        folded("What the content is about, and who carries it", _question_part(result)),
        folded("Further endpoints, which do not decide", further),
        folded("Scores as papers print them", _reported_part(result)),
        folded(LIMITS, _notice_part(result)),
        folded("Every row", _row_part(result), name="rows"),
        *map(section_part, sections),
        folded("What was judged", _judged_part(result.judged)),
        folded("Method and terms", _method_part(result)),
        folded("Citation", f"<pre>{html.escape(BIBTEX)}</pre>"),
        SCRIPT,
    ]
    write_page(path, title, parts)


def verdict_part(result: AuditResult) -> str:
    """Return the head: the verdict with what limits it, at most four figures, and a picture."""
    lines = result.limits[: results.MOST_LIMITS]
    lines += [f"More below, under “{LIMITS}”."] if result.limits[results.MOST_LIMITS :] else []
    lines += result.chosen
    box = (
        f'<section class="verdict {result.verdict.color}"><p class="label">Verdict</p><p class="big">'
        f"{html.escape(result.verdict.headline)}</p><p>{html.escape(result.sentence)}</p>{bullets(lines)}</section>"
    ).replace("0 %", "0&nbsp;%")
    if result.verdict.base is Verdict.NOT_JUDGEABLE:  # the figures mean nothing, so the evidence against them is shown
        return box + "".join(table(("reference", "output"), *n.rows) for n in result.notices if n.bars and n.rows)
    main, (p, of) = result.deciding.contrast, result.deciding.p
    readers = f", {result.n_subjects} readers" if result.n_subjects > 1 else ""
    what, size = "content difference" if main.control else "content", "at most" if of == "less" else "at least"
    chance = f"p: share of random pairings of outputs and sentences that give {size} this"
    if of == "equivalence":
        chance = f"p of equivalence: how often figures are this close to 0 if the true ones are {result.margin:g} apart"
    each = " in each condition" if len(result.conditions) > 1 else ""
    numbers = [
        (f"{main.effect:+.2f}", f"{what} in points of 100, 90&nbsp;% interval {interval_text(main.interval())}"),
        (p_cell(p), chance),
        (f"{result.mde:.2f}", "smallest detectable effect: 90&nbsp;% of such studies would find it"),
        (str(result.n_sentences), f"sentences ({result.n_rows} rows{each}{readers})"),
    ]
    boxes = "".join(f"<div><b>{html.escape(number)}</b><span>{said}</span></div>" for number, said in numbers)
    return f'{box}<div class="numbers">{boxes}</div>{_picture_part(result)}'


def _picture_part(result: AuditResult) -> str:
    contents, names = {c.name: c.content.effect for c in result.conditions}, shown_names(result)
    means = " and ".join(f"{contents[name]:+.2f} with {signal_name(result, name)}" for name in names)
    text = (
        f"Each dot is a sentence: how well its outputs fit it (upwards), and other sentences of {result.alike} (to the "
        "right). On the line they fit both equally: no content. The diamond is the mean; its height above "
        f"the line is the content: {means}."
    )
    if result.deciding.control:
        text += f" The verdict asks for content with {signal_name(result, names[0])}, and for more than with the other."
    alt = f"Score of each sentence against itself and against others. Mean height above the line: {means}."
    drawn = image(sentence_figure(result).encode(), alt)
    return f'<figure class="picture">{drawn}<figcaption>{html.escape(text)}</figcaption></figure>'


def _comparison_part(result: AuditResult) -> str:
    main, first = result.deciding.contrast, result.conditions[0]
    lines = result.questions
    if main.control:
        lines += [f"Every control has to be beaten; {main.control} decides."] if result.comparisons[1:] else []
        lines.append(f"Without a control, {first.name} against other sentences: {figures_text(first.content)}.")
    if main.p_seeds is not None:
        seeds = ", ".join(f"{effect:+.2f}" for effect in main.seed_effects)
        lines.append(f"Training seeds: {seeds}; t test over seeds {p_text(main.p_seeds)}; the larger p decides.")
    if result.adjusted_p != main.decisive_p == result.deciding.p[0]:
        lines.append(f"Deciding comparison, {p_text(result.adjusted_p)} by Holm's method over all that decide.")
    drawn = image(effect_figure(result).encode(), "Content difference to each control with 90 % and 95 % intervals")
    lines += results.evidence_lines(result)
    return f"{table(*results.effect_table(result))}<figure>{drawn}</figure>{bullets(lines)}"


def _condition_part(result: AuditResult) -> str:
    heads = ("condition", "distinct outputs", "most frequent output", "words", "empty")
    rows = [
        (
            c.name,
            f"{look.distinct} of {look.rows}",
            f"{look.top} times: {look.top_text:.70}" if look.top > 1 else "each once",
            f"{look.mean_words:.1f}",
            str(look.empty),
        )
        for c in result.conditions
        if (look := c.look) is not None
    ]
    note = f"<p>others: the same outputs against other sentences of {html.escape(result.alike)}.</p>"
    return f"{table(*results.condition_table(result))}{note}{table(heads, *rows) if rows else ''}"


def _question_part(result: AuditResult) -> str:
    heads = ("groups", "against", "between groups (the kind)", "within groups (the sentence)", "content is")
    groups = [
        (f"{a.column} ({a.groups})", a.control or "other sentences", *a.figures, str(a.level)) for a in result.groups
    ]
    lines = [result.time, *(f"{carrier}." for carrier in result.verdict.carriers)]
    if result.verdict.base in FOUND and not result.verdict.carriers:
        each = [*["any one reader"][: result.n_subjects > 1], *["any one group"][: bool(result.groups)]]
        lines.append(f"Without {' or '.join([*each, 'the strongest 2 % of the sentences'])}, half is left or more.")
    names = shown_names(result)
    contents: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row in result.rows:
        if row.subject and not math.isnan(row.content):
            contents[row.subject][row.condition].append(row.content)
    readers = [
        (reader, str(len(of[names[0]])), *(f"{np.mean(of[name]):+.2f}" if of[name] else "–" for name in names))
        for reader, of in sorted(contents.items())
    ]
    by_reader = ("reader", "rows", *(f"content with {signal_name(result, name)}" for name in names))
    shown = table(heads, *groups) if groups else ""
    times = [(name, f"{first:.10g}", f"{last:.10g}") for name, (first, last) in result.recordings.items()]
    ranges = table(("recording", *(f"{end} sample ({result.time_unit})" for end in ("first", "last"))), *times)
    return shown + bullets(lines) + (table(by_reader, *readers) if len(readers) > 1 else "") + (ranges if times else "")


def _reported_part(result: AuditResult) -> str:
    if not result.reported:
        return ""
    note = (
        "<p>In brackets: the same outputs against other sentences; of error rates (WER), less is better. These scores "
        "test nothing.</p>"
    )
    signatures = bullets(dict.fromkeys(r.signature for r in result.reported))
    return table(*results.reported_table(result, "score")) + note + signatures


def _notice_part(result: AuditResult) -> str:
    lines = [*result.limits, result.provenance.sentence, *result.provenance.lines]
    shown = "".join(
        f"<p>{html.escape(n.message)}:</p>{table(('reference', 'output'), *n.rows)}" for n in result.notices if n.rows
    )
    lines += [f"{n.message}." for n in result.notices if not any(n.message in line for line in lines)]
    return bullets(dict.fromkeys(lines)) + shown + bullets(f"{note}." for note in result.notes)


def _row_part(result: AuditResult) -> str:
    order = {condition.name: place for place, condition in enumerate(result.conditions)}
    rows = sorted(result.rows, key=lambda row: (row.reference, order[row.condition], row.subject))
    cut = ""
    if rows[MOST_ROWS:]:
        cut = f"The first {MOST_ROWS} of {len(rows)} rows. All are in the files that were judged; "
        cut += "<code>eeg2text score FILE --rows=OUT</code> scores each. "
    heads = ("reference", "output", "condition", "reader", "own", "others", "content")
    note = (
        f"<p>{cut}Some of many outputs match their sentence by chance: single rows prove nothing. In all means, each "
        "sentence counts once, however many rows it has.</p>"
    )
    cells = []
    for r in rows[:MOST_ROWS]:
        shown = ("–", "–", "–")
        if not math.isnan(r.content):  # adding 0 makes -0.0 positive
            shown = (f"{r.own:.1f}", f"{r.others:.1f}", f"{round(r.content, 1) + 0.0:+.1f}")
        cells.append((r.reference, r.prediction or "(empty)", r.condition, r.subject or "–", *shown))
    return f"{note}{SEARCH}{table(heads, *cells)}"


def _judged_part(judged: Judged | None) -> str:
    if judged is None:
        return ""
    judged = judged if judged.date else judged.dated()
    rows = [(file.name, str(file.rows), file.sha256) for file in judged.files]
    how = bullets(line for file in judged.files for line in file.read)
    by = f"<code>{html.escape(judged.command)}</code>, eeg2text_jax {judged.version}"
    return f"{table(('file', 'rows', 'SHA-256'), *rows)}<p>Judged {judged.date} by {by}.</p>{how}"


def _method_part(result: AuditResult) -> str:
    seeds = " and training seeds" if len(result.seeds) >= 3 else ""
    terms = {
        "score": f"{result.metric} ({result.signature}); mode: {result.mode.replace('_', ' ')}. Every sentence weighs "
        "the same.",
        "stratum": f"Sentences of {result.alike}; {result.n_strata} strata.",
        "content": "The score of outputs against their own sentence, minus their score against the other sentences of "
        "its stratum. Longer outputs and frequent words fit all of these better, so on average they add no content.",
        "control": "Outputs named as those of the same decoder, fed something that holds no recording of the sentence, "
        "such as noise. EEG must beat every control that decides.",
        "p": "How often outputs and sentences, paired at random within strata and for all conditions alike, give at "
        "least this content (one-sided).",
        "90 % interval": f"Over sentences{seeds}, for these readers, without what makes an output or a reference easy "
        "as such. More content needs a p of at most 5 % and an interval above 0, against every deciding control and "
        "against other sentences.",
        "margin": f"A difference of less than {result.margin:g} counts as none; fix it before looking. "
        "Equivalent: the 90 % interval lies inside the margin (two one-sided tests at 5 %).",
        "smallest detectable effect (MDE)": "90 % of such studies find it, against all deciding controls and against "
        "other sentences together, if right words are spread over all sentences; from random pairings.",
    }
    if result.verdict.unseen is not None:
        terms["unseen"] = (
            f"If {result.verdict.unseen:.1%} of all sentences were decoded whole, a test of {result.n_sentences} would "
            "hold none of them in 5 % of the cases."
        )
    shown = "".join(f"<dt>{term}</dt><dd>{html.escape(meaning)}</dd>" for term, meaning in terms.items())
    return f"<dl>{shown}</dl><p>The formulas are in docs/method.md.</p>"
