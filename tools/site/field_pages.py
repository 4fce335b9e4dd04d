"""The pages of `tools/field.py`: what the table adds up to, the table itself, what is said of each repository."""

import csv
import html
import subprocess
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from field_lines import FORCED, FREE, LEVELS, Line, PublishedSet, codes

from eeg2text_jax.auditing.verdict import Verdict, p_cell
from eeg2text_jax.versions import __version__

HERE = Path(__file__).parent
CONTROLS = ("noise", "label")  # what a set was fed that is a control of another
WITHDRAWN = (
    (
        "`keep-word-b256-e15-8-21-19-20`",
        "was *content above its null* (+3.05). All outputs for one target word have the same number of tokens, and "
        "1,736 of 2,315 matched tokens are full stops and commas: the model was given the length of the target, and "
        "only the length matched.",
    ),
    (
        "`keep-bart-words`",
        "was *content above its null* (+0.02, p 0.008). 97 % of its outputs are rows of commas, and a difference "
        "this small is below any margin.",
    ),
)
CHANGED = (
    (
        "`dewave-task2`",
        "was *not judgeable* (its punctuation looked teacher-forced). Its 34 sentences have too few punctuation marks "
        "for this rule, so it is now *content of unproven origin*.",
    ),
    (
        "`zechtro-logmel-10-1-indogpt-eeg`",
        "was *underpowered*. In every row its output equals the control's output, so the two are equivalent.",
    ),
)


HEADINGS = (
    *("set", "verdict", "input", "mode, file says", "mode, repository says", "rows", "sentences", "BLEU-1", "null"),
    *("content", "p", "control", "difference", "p of difference", "findings"),
)
LEVEL_HEADINGS = ("set", "control", "verdict", "content", "groups by", "between groups", "within groups")


def cells(line: Line) -> list[str]:
    one = line.published
    figure, signed = "{:.2f}".format, "{:+.2f}".format
    return [
        one.set,
        line.verdict,
        f"{one.train_condition} → {one.eval_condition}",
        line.mode,
        one.mode,
        *(str(n) if n else "–" for n in (line.rows, line.sentences)),
        *("–" if value is None else figure(value) for value in (line.bleu, line.null)),
        "–" if line.content is None else signed(line.content),
        "–" if line.p is None else p_cell(line.p),
        line.control or "none",
        "–" if line.difference is None else signed(line.difference),
        "–" if line.p_difference is None else p_cell(line.p_difference),
        ", ".join(codes(line, ("severe", "warning"))),
    ]


def made_by() -> str:
    command = ["git", f"--git-dir={HERE.parents[1] / '.git'}", "rev-parse", "--short", "HEAD"]
    described = subprocess.run(command, capture_output=True, check=False)
    commit = f", commit {described.stdout.decode().strip()}" if not described.returncode else ""
    return f"eeg2text {__version__}{commit}, margin 1.0 point"


def summary(lines: Sequence[Line]) -> list[str]:
    """What the table adds up to, counted from it; duplicates count once, and noise-fed and forced lines apart."""
    judged = [line for line in lines if line.bleu is not None]
    once = [line for line in judged if not line.copy_of]
    free, forced = ([line for line in once if line.decoded == mode] for mode in (FREE, FORCED))
    fed = [line for line in free if line.published.eval_condition not in CONTROLS]
    alone = [line for line in free if not line.control]
    noise, label = (sum(line.published.eval_condition == fed_with for line in alone) for fed_with in CONTROLS)
    and_label = f", {label} a class label in place of the recording" if label else ""
    verdicts = Counter(line.verdict for line in fed)
    listed = ", ".join(f"*{verdict}* {count}" for verdict, count in verdicts.most_common())
    uses = [line.published.set for line in fed if line.verdict == Verdict.USES_EEG]
    found = Counter(code for line in judged for code in codes(line, ("severe", "warning")))
    often = ", ".join(f"`{code}` {count}" for code, count in found.most_common(10))
    had = [line for line in lines if line.verdict == "not had"]
    named, files = len({line.published.set for line in lines}), len({line.published.set for line in judged})
    missing = f"; {len(had)} could not be obtained ({', '.join(line.published.set for line in had)})" if had else ""
    claimed = ("uses EEG", "content above its null", "detectable but below the margin")
    plain = sum(line.verdict in claimed for line in forced)
    return [
        f"{named} published sets are listed{missing}. The {files} files that were judged are of "
        f"{len({line.published.repository for line in judged})} repositories; {len(judged) - files} of them hold "
        f"free-running and teacher-forced predictions and have a line for each, so {len(judged)} lines were judged. "
        f"{len(judged) - len(once)} lines repeat the predictions of an earlier line; the next two items do not "
        "count them.",
        f"{len(free)} lines are free-running, according to the file or its repository. {len(alone)} of them have no "
        f"control; {noise + label} of these are controls of other lines ({noise} were fed noise{and_label}). "
        f"{len(forced)} lines are teacher-forced; the audit claims content for {plain} of them. For "
        f"{len(once) - len(free) - len(forced)} lines nothing says how they were decoded.",
        f"Verdicts on the {len(fed)} free-running lines that were fed a recording: {listed}. *Uses EEG*: "
        f"{', '.join(uses) or 'none'}.",
        f"The most frequent findings, over all lines: {often}.",
    ]


def level_rows(lines: Sequence[Line]) -> list[tuple[str, ...]]:
    """Content between and within groups, of the sets whose file has a column of groups."""
    rows = []
    for line in lines:
        for control, effect, p, verdict in line.against:
            sides = {name: (c, q, mde) for _, of, name, c, q, mde in line.levels if of == control}
            if not sides:
                continue
            shown = (
                f"{sides[name][0]:+.2f} (p {p_cell(sides[name][1])}, MDE {sides[name][2]:.2f})"
                if name in sides
                else "–"
                for name in ("between", "within")
            )
            name = f"`{line.published.set}`"
            found = f"{effect:+.2f} (p {p_cell(p)})"
            rows.append((name, control or "none", verdict, found, line.published.groups, *shown))
    return rows


def repositories() -> dict[str, str]:
    """What is said of each repository, in the order of `field_repositories.tsv`."""
    with (HERE / "field_repositories.tsv").open(encoding="utf8", newline="") as file:
        return {line["repository"]: line["about"] for line in csv.DictReader(file, delimiter="\t")}


def markdown_page(lines: Sequence[Line], sets: Sequence[PublishedSet]) -> str:
    """The page for the site: table, levels, repositories, sources, how to object, how to make it again."""
    rows = [[f"`{row[0]}`", *row[1:]] for row in map(cells, lines)]
    sources = [
        (f"`{one.set}`", f"[{one.repository}](https://github.com/{one.repository})", f"`{one.commit[:10]}`",
         f"`{one.path}`", one.model, one.layout, one.note)
        for one in sets
    ]  # fmt: skip
    explained: dict[str, tuple[str, str, str]] = {}
    for line in lines:
        for level, code, message in sorted(line.flags, key=lambda flag: LEVELS.index(flag[0])):
            explained.setdefault(code, (level, line.published.set, message))
    findings = [(f"`{code}`", level, f"`{name}`: {text}") for code, (level, name, text) in sorted(explained.items())]
    reasons = [(f"`{line.published.set}`", line.mode, line.sentence) for line in lines if line.verdict in SAID]
    levels = level_rows(lines)
    listed = {one.repository for one in sets}
    about = {name: text for name, text in repositories().items() if name in listed}
    return "\n".join(
        [
            "# The field, audited",
            "",
            "This page judges decoded text that groups have published. One program read, scored and audited all of it "
            "with default options. Words are explained in the [glossary](glossary.md), verdicts in [Reading a "
            "verdict](verdict.md). [The same table, sortable](field.html), has every finding in words.",
            "",
            *(f"- {sentence}" for sentence in summary(lines)),
            "",
            f"Made by `python tools/field.py` with {made_by()}.",
            "",
            "- *BLEU-1* is word BLEU-1 (sacrebleu 13a, one order, no smoothing). *Null* is the score of the same "
            "predictions against other sentences. *Content* is BLEU-1 minus null.",
            "- *Difference* is content minus the content of the deciding control, so a line can be *equivalent to "
            "control* although the two BLEU-1 differ. If a file does not name the tasks, the test is repeated with "
            "other strata (by the order of the file, by the words of the texts, by the number of rows), and the "
            "figures of the repetition with the largest p are shown.",
            "- *Input* is what the model was trained on → what it was given in testing.",
            "- *Mode, file says* and *mode, repository says*: how the text was decoded, according to the file and to "
            "its repository. If the file does not say it and the repository says free-running, the verdict rests on "
            "the repository's statement. Teacher-forced text is not judgeable and shows no p, because it follows its "
            "target even without a recording.",
            "",
            "A verdict is about a file, never about its authors. It is to their credit that these files can be read "
            "at all. The finding `too_good` is no accusation: it marks scores that no free-running decoder of reading "
            "reaches.",
            "",
            *table(HEADINGS, rows),
            "",
            *(["## Levels of content", "", LEVELS_TEXT, "", *table(LEVEL_HEADINGS, levels), ""] if levels else []),
            "## Withdrawn",
            "",
            "In earlier versions of this page, two lines had a verdict of content that was an artefact:",
            "",
            *(f"- {name} {text}" for name, text in WITHDRAWN),
            "",
            "Two more verdicts changed because the audit's rules changed. All other verdicts are as before.",
            "",
            *(f"- {name} {text}" for name, text in CHANGED),
            "",
            "## Repository by repository",
            "",
            *(
                text
                for name, said in about.items()
                for text in (f"**[{name}](https://github.com/{name})**. {said}", "")
            ),
            "## To object",
            "",
            "If a line is wrong or unfair, open an issue in this project's repository (template *The field: a line "
            "that is wrong*) with the set's name and what it should say, or with a file that should be judged with it "
            "(a control, a free-running version). If the objection is right, the next version of this page corrects "
            "or withdraws the line, and says so.",
            "",
            "## Verdicts with their reasons",
            "",
            *table(("set", "mode", "why"), reasons),
            "",
            "## Findings",
            "",
            "The first example of each finding, in the words of the audit.",
            "",
            *table(("finding", "level", "for example"), findings),
            "",
            "## Sources",
            "",
            "None of these files is part of this project; each belongs to its authors.",
            "",
            *table(("set", "repository", "commit", "path", "model", "layout", "note"), sources),
            "",
        ]
    )


SAID = ("not judgeable", "refused", "not had", "control better", "uses EEG")
LEVELS_TEXT = (
    "If a file gives the class of each reference, the table shows two results, each minus the control's: content "
    "between classes (the test exchanges whole classes) and within classes (the test exchanges the sentences of one "
    "class)."
)


def table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    clean = [[cell.replace("|", "\\|").replace("\n", " ") for cell in row] for row in rows]
    return [f"| {' | '.join(row)} |" for row in (headings, ["---"] * len(headings), *clean)]


def html_page(lines: Sequence[Line]) -> str:
    """The table as one page without anything beside it; a click on a heading sorts, a click on a line explains it."""
    body = []
    for line in lines:
        one = line.published
        *row, found = cells(line)
        labelled = zip(map(html.escape, HEADINGS), map(html.escape, row), strict=False)
        shown = "".join(f'<td data-label="{label}">{cell}</td>' for label, cell in labelled)
        same = f"the same predictions as {line.copy_of}" if line.copy_of else ""
        flags = (f"{level}: {message}." for level, _, message in line.flags)
        said = [line.sentence, *flags, *line.notes, same, one.note]
        listed = "".join(f"<li>{html.escape(text)}</li>" for text in said if text)
        source = html.escape(f"{one.model}; {one.repository} at {one.commit}, {one.path}")
        codes_found = f"<p>Findings: {html.escape(found)}.</p>" if found else ""
        body.append(
            f'<tr data-verdict="{html.escape(line.verdict)}">{shown}</tr>'
            f'<tr class="more" hidden><td colspan="{len(HEADINGS) - 1}"><p>{source}</p>{codes_found}'
            f"<ul>{listed}</ul></td></tr>"
        )
    sentences = "".join(f"<li>{html.escape(text.replace('*', '').replace('`', ''))}</li>" for text in summary(lines))
    page = (HERE / "field_page.html").read_text(encoding="utf8")
    heads = "".join(f'<th tabindex="0">{html.escape(heading)}</th>' for heading in HEADINGS[:-1])
    filled = {"SUMMARY": sentences, "PROVENANCE": html.escape(made_by()), "HEAD": heads}
    for name, text in (filled | {"BODY": "".join(body)}).items():
        page = page.replace(f"<!--{name}-->", text)
    return page
