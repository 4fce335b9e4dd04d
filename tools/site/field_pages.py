"""The pages of `tools/field.py`: what the table adds up to, the table itself, what is said of each repository."""

import csv
import dataclasses
import html
import subprocess
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from eeg2text_jax.base.packages import __version__
from eeg2text_jax.instrument.auditing.verdict import Verdict, p_cell

HERE = Path(__file__).parent
CONTROLS = ("noise", "label")  # what a set was fed that is a control of another
CHANGED = "Verdicts of the page of version 0.2 that the audit over one table changed."
HEADINGS = (
    *("set", "verdict", "input", "mode, file says", "mode, repository says", "rows", "sentences", "BLEU-1"),
    *("score", "null", "content", "p", "control", "difference", "p of difference", "findings"),
)
GROUP_HEADINGS = ("set", "control", "verdict", "groups by", "content between groups", "content within groups")
FREE, FORCED = "free-running", "teacher-forced"


@dataclasses.dataclass(frozen=True)
class PublishedSet:
    set: str
    repository: str
    commit: str
    path: str
    model: str
    train_condition: str
    eval_condition: str
    mode: str  # how it was decoded as far as its repository tells; empty where it does not
    layout: str
    control: str  # the sets that are its controls, with commas, or empty
    groups: str  # columns that group its references, with commas, or empty
    note: str

    @property
    def controls(self) -> list[str]:
        return [name for name in self.control.split(",") if name]

    @property
    def group_columns(self) -> list[str]:
        return [name for name in self.groups.split(",") if name]


@dataclasses.dataclass
class Line:
    """One set in one mode, scored and audited; figures are None where there are none."""

    published: PublishedSet
    mode: str  # what the file says
    rows: int = 0
    sentences: int = 0
    bleu: float | None = None
    score: float | None = None  # in points of the endpoint, as all that follows
    null: float | None = None
    content: float | None = None
    p: float | None = None
    control: str = ""
    difference: float | None = None
    p_difference: float | None = None
    verdict: str = ""
    base: str = ""  # the verdict without qualifiers
    sentence: str = ""
    provenance: str = ""
    digest: str = ""  # of references and predictions
    copy_of: str = ""  # an earlier set with the same ones
    groups: list[tuple[str, ...]] = dataclasses.field(default_factory=list)  # cells of the table of groups
    findings: list[tuple[str, str, bool]] = dataclasses.field(default_factory=list)  # code, message, bars a verdict
    notes: list[str] = dataclasses.field(default_factory=list)

    @property
    def decoded(self) -> str:
        """How it was decoded, as far as the file or else its repository tells; empty where neither does."""
        made = self.published.mode
        return self.mode if self.mode in (FREE, FORCED) else made if made in (FREE, FORCED) else ""

    @property
    def codes(self) -> list[str]:
        """The codes of the findings, those that bar a verdict first."""
        ranked = sorted(self.findings, key=lambda finding: not finding[2])
        return list(dict.fromkeys(code for code, *_ in ranked))


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
        *("–" if value is None else figure(value) for value in (line.bleu, line.score, line.null)),
        "–" if line.content is None else signed(line.content),
        "–" if line.p is None else p_cell(line.p),
        line.control or "none",
        "–" if line.difference is None else signed(line.difference),
        "–" if line.p_difference is None else p_cell(line.p_difference),
        ", ".join(line.codes),
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
    uses = [line.published.set for line in fed if line.base == Verdict.USES_EEG]
    found = Counter(code for line in judged for code in line.codes)
    often = ", ".join(f"`{code}` {count}" for code, count in found.most_common(10))
    had = [line for line in lines if line.verdict == "not had"]
    named, files = len({line.published.set for line in lines}), len({line.published.set for line in judged})
    missing = f"; {len(had)} could not be obtained ({', '.join(line.published.set for line in had)})" if had else ""
    claimed = ("uses EEG", "content above its null", "detectable but below the margin")
    plain = sum(line.base in claimed for line in forced)
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


def repositories() -> dict[str, str]:
    """What is said of each repository, in the order of `field_repositories.tsv`."""
    with (HERE / "field_repositories.tsv").open(encoding="utf8", newline="") as file:
        return {line["repository"]: line["about"] for line in csv.DictReader(file, delimiter="\t")}


def before(line: Line) -> tuple[str, str, str] | None:
    """Return the verdict of a line on an earlier page, that of today and why they differ; None if none is listed."""
    with (HERE / "field_changed.tsv").open(encoding="utf8", newline="") as file:
        known = {(one["set"], one["mode"]): one for one in csv.DictReader(file, delimiter="\t")}
    one = known.get((line.published.set, line.mode))
    return (one["was"], line.verdict, one["why"]) if one else None


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
        for code, message, bars in line.findings:
            explained.setdefault(code, ("yes" if bars else "no", line.published.set, message))
    findings = [(f"`{code}`", bars, f"`{name}`: {text}") for code, (bars, name, text) in sorted(explained.items())]
    reasons = [(f"`{line.published.set}`", line.mode, line.sentence) for line in lines if line.base in SAID]
    groups = [(f"`{line.published.set}`", *row) for line in lines for row in line.groups]
    listed = {one.repository for one in sets}
    changed = [(f"`{line.published.set}`", line.mode, *why) for line in lines if (why := before(line))]
    about = {name: text for name, text in repositories().items() if name in listed}
    return "\n".join(
        [
            "# The field, audited",
            "",
            "After this page you know what published decoded text shows: one program read, scored and audited all "
            "of it with default options. Words are explained in the [glossary](glossary.md), verdicts in [Reading a "
            "verdict](verdict.md). [The same table, sortable](field.html), has every finding in words.",
            "",
            *(f"- {sentence}" for sentence in summary(lines)),
            "",
            f"Made by `tools/field.py` with {made_by()}.",
            "",
            "- *BLEU-1* is word BLEU-1 (sacrebleu 13a, one order, no smoothing), as papers print it.",
            "- *Score*, *null*, *content* and *difference* are in points of `words`, the default endpoint: shared "
            "words weighted by rarity, of 100. *Null* is the score of the same predictions against other sentences, "
            "*content* is score minus null, *difference* is content minus the content of the deciding control. *p of "
            "difference* is of more content than the control's, also where the verdict is *equivalent to control*.",
            "- *Input* is what the model was trained on → what it was given in testing.",
            "- *Mode, file says* and *mode, repository says*: how the text was decoded, according to the file and to "
            "its repository. If the file does not say it and the repository says free-running, the verdict rests on "
            "the repository's statement. Teacher-forced text is not judgeable and shows no p, because it follows its "
            "target even without a recording.",
            "",
            "A verdict is about a file, never about its authors. It is to their credit that these files can be read "
            "at all.",
            "",
            *table(HEADINGS, rows),
            "",
            *(["## Groups", "", GROUPS_TEXT, "", *table(GROUP_HEADINGS, groups), ""] if groups else []),
            *(
                ["## Changed", "", CHANGED, "", *table(("set", "mode", "was", "is", "why"), changed), ""]
                if changed
                else []
            ),
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
            *table(("finding", "bars a verdict", "for example"), findings),
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
GROUPS_TEXT = (
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
        found_in = (f"{message}." for _, message, _ in line.findings)
        said = [line.sentence, *found_in, *line.notes, same, one.note]
        listed = "".join(f"<li>{html.escape(text)}</li>" for text in said if text)
        source = html.escape(f"{one.model}; {one.repository} at {one.commit}, {one.path}")
        codes_found = f"<p>Findings: {html.escape(found)}.</p>" if found else ""
        body.append(
            f'<tr data-verdict="{html.escape(line.base)}">{shown}</tr>'
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
