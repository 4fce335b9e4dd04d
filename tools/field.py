"""The field, audited: gets published prediction sets, scores and audits them, writes one table and one page.

    python tools/field.py                        # clones the repositories (git, a network, about 1 GB of disk)
    python tools/field.py --clones DIR           # from clones that are there, or from those that an earlier call made

`tools/field_manifest.tsv` names the sets: repository, commit, path, what the model was trained on and fed, how it was
decoded, the layout, and which set is its control. Every set is read without options. Written are `docs/field.md` and
`docs/field.html`, a page that sorts and needs nothing beside it. The sets themselves are not ours and stay where they
are. Two minutes on one core, half a gigabyte of memory.
"""

import argparse
import csv
import dataclasses
import html
import json
import os
import resource
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from eeg2text_jax.auditing.audit import audit
from eeg2text_jax.auditing.contrast import Contrast
from eeg2text_jax.auditing.result import AuditResult
from eeg2text_jax.auditing.verdict import Verdict, p_cell
from eeg2text_jax.errors import UserError, first_line
from eeg2text_jax.files import write_text
from eeg2text_jax.metrics.bleu import word_bleu
from eeg2text_jax.predictions.file import Prediction
from eeg2text_jax.predictions.notes import empty_halves
from eeg2text_jax.predictions.read import read_any
from eeg2text_jax.versions import __version__

HERE = Path(__file__).parent
MODE_NAMES = {"free_running": "free-running", "teacher_forced": "teacher-forced", "unknown": "unknown"}
LEVELS = ("severe", "warning", "note")


@dataclasses.dataclass(frozen=True)
class PublishedSet:
    """One line of the manifest."""

    set: str
    repository: str
    commit: str
    path: str
    model: str
    train_condition: str
    eval_condition: str
    mode: str  # how it was decoded as far as its repository tells; empty where it does not
    layout: str
    control: str  # the set that is its control, or empty
    note: str


FIELDS = [field.name for field in dataclasses.fields(PublishedSet)]


@dataclasses.dataclass
class Line:
    """One set in one mode, scored and audited; figures are None where there are none."""

    published: PublishedSet
    mode: str  # what the file says
    rows: int = 0
    sentences: int = 0
    bleu: float | None = None
    null: float | None = None
    content: float | None = None
    p: float | None = None
    control: str = ""
    difference: float | None = None
    p_difference: float | None = None
    verdict: str = ""
    sentence: str = ""
    flags: list[tuple[str, str, str]] = dataclasses.field(default_factory=list)  # level, code, message
    notes: list[str] = dataclasses.field(default_factory=list)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--manifest", type=Path, default=HERE / "field_manifest.tsv", metavar="TSV")
    parser.add_argument("--clones", type=Path, metavar="DIR", help="clones: DIR/owner+name, DIR/owner/name or DIR/name")
    parser.add_argument(
        "--fetch-into", type=Path, default=Path("field-clones"), metavar="DIR", help="where to clone to"
    )
    parser.add_argument("--out", type=Path, default=HERE.parent / "docs", metavar="DIR")
    parser.add_argument("--json", type=Path, metavar="OUT", help="write every figure and message there, too")
    parser.add_argument("--only", default="", metavar="TEXT", help="sets with this in their name (no page is written)")
    parser.add_argument("--resamples", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    flags = parser.parse_args()
    start = time.monotonic()
    sets = read_manifest(flags.manifest)
    chosen = [one for one in sets if flags.only in one.set]
    wanted = {one.set for one in chosen} | {one.control for one in chosen}
    with tempfile.TemporaryDirectory() as folder:
        read = {one.set: read_set(one, Path(folder), flags) for one in sets if one.set in wanted}
        lines = []
        for one in chosen:
            for line in audit_set(one, read, flags.resamples, flags.seed):
                lines.append(line)
                print(f"{one.set:36} {line.mode:15} {line.verdict:30} {' '.join(codes(line))}", flush=True)
    seconds, memory = time.monotonic() - start, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"{len(lines)} lines of {len(chosen)} sets; {seconds:.0f} s, at most {memory:.2f} GiB of memory")
    if flags.json:
        write_text(flags.json, json.dumps([dataclasses.asdict(line) for line in lines], indent=1, ensure_ascii=False))
    if not flags.only:
        flags.out.mkdir(exist_ok=True)
        write_text(flags.out / "field.md", markdown_page(lines, sets, flags.resamples))
        write_text(flags.out / "field.html", html_page(lines, flags.resamples))
        print(f"wrote {flags.out / 'field.md'} and {flags.out / 'field.html'}")


def read_manifest(path: Path) -> list[PublishedSet]:
    """The sets of a manifest. Raises UserError where a control is not among them."""
    with path.open(encoding="utf8", newline="") as file:
        sets = [PublishedSet(**line) for line in csv.DictReader(file, delimiter="\t")]
    names = {one.set for one in sets}
    for one in sets:
        if one.control and one.control not in names:
            raise UserError(f"{path}: the control {one.control!r} of {one.set!r} is not in the manifest.")
    return sets


# Getting the files -------------------------------------------------------------


def get_bytes(one: PublishedSet, flags: argparse.Namespace) -> bytes:
    """The file at its commit. Raises UserError where it cannot be had."""
    clone = find_clone(one.repository, flags.clones) if flags.clones else fetch(one, flags.fetch_into)
    found = git(clone, "show", f"{one.commit}:{one.path}", lazily=not flags.clones)
    if found.returncode:
        reason = found.stderr.decode(errors="replace").strip().splitlines()[-1:] or ["no reason given"]
        raise UserError(f"{one.repository} at {one.commit[:10]}: {one.path} cannot be had ({reason[0]})")
    return found.stdout


def find_clone(repository: str, clones: Path) -> Path:
    owner, name = repository.split("/")
    for place in (clones / f"{owner}+{name}", clones / owner / name, clones / name):
        for folder in (place, place / "repo", place / ".git"):
            if (folder / "HEAD").is_file() and (folder / "objects").is_dir():
                return folder
    raise UserError(f"{clones}: there is no clone of {repository}; expected {owner}+{name}, {owner}/{name} or {name}")


def fetch(one: PublishedSet, into: Path) -> Path:
    """A bare clone without files, into which `git show` brings those that are asked for."""
    clone = into / one.repository.replace("/", "+")
    if not (clone / "HEAD").is_file():
        into.mkdir(parents=True, exist_ok=True)
        url = f"https://github.com/{one.repository}.git"
        print(f"cloning {url}", flush=True)
        made = git(None, "clone", "--quiet", "--bare", "--filter=blob:none", url, str(clone))
        if made.returncode:
            raise UserError(f"{url}: {made.stderr.decode(errors='replace').strip()}")
    if git(clone, "cat-file", "-e", f"{one.commit}^{{commit}}").returncode:
        git(clone, "fetch", "--quiet", "--filter=blob:none", "origin", one.commit)
    return clone


def git(folder: Path | None, *arguments: str, lazily: bool = True) -> subprocess.CompletedProcess:
    """Runs git, without prompts; `lazily` allows it to fetch what a partial clone lacks."""
    where = [f"--git-dir={folder}"] if folder else []
    environment = {**os.environ, "GIT_TERMINAL_PROMPT": "0"} | ({} if lazily else {"GIT_NO_LAZY_FETCH": "1"})
    return subprocess.run(["git", *where, *arguments], capture_output=True, env=environment, check=False)


# Reading and judging -----------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class ReadSet:
    """What was read of a set: rows by mode, or why there are none."""

    modes: dict[str, list[Prediction]]
    notes: list[str]
    refused: str = ""


def read_set(one: PublishedSet, folder: Path, flags: argparse.Namespace) -> ReadSet:
    """Reads a set without options."""
    try:
        path = folder / f"{one.set}{Path(one.path).suffix}"
        path.write_bytes(get_bytes(one, flags))
        read = read_any(path)
    except UserError as error:
        return ReadSet({}, [], str(error).replace(f"{folder}/", ""))
    notes = [*read.notes, *empty_halves(read)]
    if read.layout.split()[0] != one.layout:
        notes.append(f"read as layout {read.layout.split()[0]}, the manifest says {one.layout}")
    modes: dict[str, list[Prediction]] = {}
    for row in read.predictions:
        modes.setdefault(row.mode, []).append(row)
    return ReadSet(modes, notes)


def audit_set(one: PublishedSet, read: dict[str, ReadSet], resamples: int, seed: int) -> list[Line]:
    """A line a mode of the file."""
    found = read[one.set]
    if found.refused:
        return [Line(one, "", verdict="not had", sentence=found.refused)]
    return [audit_mode(one, mode, rows, read, resamples, seed) for mode, rows in found.modes.items()]


def audit_mode(
    one: PublishedSet, mode: str, rows: list[Prediction], read: dict[str, ReadSet], resamples: int, seed: int
) -> Line:
    line = Line(one, MODE_NAMES[mode], len(rows), len({row.sentence_id for row in rows}), notes=[*read[one.set].notes])
    line.bleu = word_bleu().score([row.prediction for row in rows], [row.reference for row in rows])["word_bleu-1"]
    controls = {}
    if one.control:
        controls = {one.control: read[one.control].modes[mode]} if mode in read[one.control].modes else {}
        if not controls:
            line.notes.append(f"the control {one.control} could not be had: judged without one")
    try:
        result = audit(rows, controls, name=one.set, resamples=resamples, seed=seed)
    except UserError as error:
        try:
            result = audit(rows, controls, name=one.set, resamples=resamples, seed=seed, common=True)
            line.notes.append(f"judged on what both files share: {first_line(error)}")
        except UserError:
            line.verdict, line.sentence = "refused", first_line(error)
            return line
    fill(line, result)
    return line


def fill(line: Line, result: AuditResult) -> None:
    own = weakest(result.conditions[0].content, result.conditions[0].derived)
    line.null, line.content, line.p = own.nulls[0], own.effect, own.p_primary
    if result.comparisons and result.comparisons[0].control:
        against = result.comparisons[0]
        found = weakest(against.primary, against.derived)
        line.control, line.difference, line.p_difference = against.control, found.effect, found.p_primary
    line.verdict, line.sentence = str(result.verdict), result.sentence
    line.flags = [(flag.level, flag.code, flag.message) for flag in result.flags]
    line.notes += result.notes


def weakest(primary: Contrast, derived: dict[str, Contrast]) -> Contrast:
    """The figures on which a claim would rest: those of the largest p, where strata stand in for unknown tasks."""
    return max((primary, *derived.values()), key=lambda contrast: contrast.p_primary)


# Writing -----------------------------------------------------------------------

HEADINGS = (
    *("set", "verdict", "input", "mode, file says", "made", "rows", "sentences", "BLEU-1", "null", "content", "p"),
    *("control", "difference", "p of it", "findings"),
)


def codes(line: Line, levels: Sequence[str] = LEVELS) -> list[str]:
    """Each finding once, the severe ones first."""
    ranked = sorted(line.flags, key=lambda flag: LEVELS.index(flag[0]))
    return list(dict.fromkeys(code for level, code, _ in ranked if level in levels))


def cells(line: Line) -> list[str]:
    one = line.published
    figure, signed = "{:.2f}".format, "{:+.2f}".format
    return [
        one.set,
        line.verdict,
        f"{one.train_condition} → {one.eval_condition}",
        line.mode,
        "both" if one.mode == "both" else one.mode,
        *(str(n) if n else "–" for n in (line.rows, line.sentences)),
        *("–" if value is None else figure(value) for value in (line.bleu, line.null)),
        "–" if line.content is None else signed(line.content),
        "–" if line.p is None else p_cell(line.p),
        line.control or "none",
        "–" if line.difference is None else signed(line.difference),
        "–" if line.p_difference is None else p_cell(line.p_difference),
        ", ".join(codes(line, ("severe", "warning"))),
    ]


def provenance(resamples: int) -> str:
    described = git(HERE.parent / ".git", "rev-parse", "--short", "HEAD")
    commit = f", commit {described.stdout.decode().strip()}" if not described.returncode else ""
    return f"eeg2text {__version__}{commit}; {resamples} permutations and bootstrap draws, seed 0, margin 1.0 BLEU-1"


def summary(lines: Sequence[Line]) -> list[str]:
    """What the table adds up to, counted from it."""
    judged = [line for line in lines if line.bleu is not None]
    free = [line for line in judged if "teacher-forced" not in (line.mode, line.published.mode)]
    verdicts = Counter(line.verdict for line in judged)
    listed = ", ".join(f"*{verdict}* {count}" for verdict, count in verdicts.most_common())
    uses = [line.published.set for line in judged if line.verdict == Verdict.USES_EEG]
    found = Counter(code for line in judged for code in codes(line, ("severe", "warning")))
    often = ", ".join(f"`{code}` {count}" for code, count in found.most_common(10))
    had = [line for line in lines if line.verdict == "not had"]
    named, files = len({line.published.set for line in lines}), len({line.published.set for line in judged})
    missing = f"; {len(had)} could not be had ({', '.join(line.published.set for line in had)})" if had else ""
    return [
        f"{named} published sets are listed{missing}. The {files} files that were judged are of "
        f"{len({line.published.repository for line in judged})} repositories; {len(judged) - files} of them hold both "
        f"modes and have a line for each, so {len(judged)} lines were judged.",
        f"Verdicts: {listed}. *Uses EEG*: {', '.join(uses) or 'none'}.",
        f"{len(free)} lines ran free, as far as file and repository tell; "
        f"{sum(not line.control for line in free)} of them have no control, so that nobody can tell where content "
        "would come from.",
        f"What was found most often: {often}.",
    ]


def markdown_page(lines: Sequence[Line], sets: Sequence[PublishedSet], resamples: int) -> str:
    """The page for the site: table, sources, how to make it again."""
    rows = [[f"`{row[0]}`", *row[1:]] for row in map(cells, lines)]
    sources = [
        (f"`{one.set}`", f"[{one.repository}](https://github.com/{one.repository})", f"`{one.commit[:10]}`",
         f"`{one.path}`", one.model, one.layout, one.note)
        for one in sets
    ]  # fmt: skip
    explained = {}
    for line in lines:
        for level, code, message in sorted(line.flags, key=lambda flag: LEVELS.index(flag[0])):
            explained.setdefault(code, (level, line.published.set, message))
    findings = [(f"`{code}`", level, f"`{name}`: {text}") for code, (level, name, text) in sorted(explained.items())]
    reasons = [(f"`{line.published.set}`", line.mode, line.sentence) for line in lines if line.verdict in SAID]
    return "\n".join(
        [
            "# The field, audited",
            "",
            "Decoded text that groups have published, read without options, scored and audited by one program. "
            "[The same table, sortable](field.html), with every finding in words.",
            "",
            *(f"- {sentence}" for sentence in summary(lines)),
            "",
            f"Made by `python tools/field.py` with {provenance(resamples)}. BLEU-1 is word BLEU-1 (sacrebleu 13a, one "
            "order, no smoothing), *null* the score of the same predictions against other sentences, *content* the "
            "difference, *difference* the content beyond that of the control; where the tasks are not known, "
            "the figures of those strata under which p is largest. *Mode* is what the file says, *made* what its "
            "repository says; nothing but the file was given to the program. A verdict is about a file, never about "
            "its authors.",
            "",
            *table(HEADINGS, rows),
            "",
            "## Verdicts that need a word",
            "",
            *table(("set", "mode", "why"), reasons),
            "",
            "## Findings",
            "",
            "The first set of each kind, in the words of the audit.",
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


def table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    clean = [[cell.replace("|", "\\|").replace("\n", " ") for cell in row] for row in rows]
    return [f"| {' | '.join(row)} |" for row in (headings, ["---"] * len(headings), *clean)]


def html_page(lines: Sequence[Line], resamples: int) -> str:
    """The table as one page without anything beside it; a click on a heading sorts, a click on a line explains it."""
    body = []
    for line in lines:
        one = line.published
        *row, found = cells(line)
        labelled = zip(map(html.escape, HEADINGS), map(html.escape, row), strict=False)
        shown = "".join(f'<td data-label="{label}">{cell}</td>' for label, cell in labelled)
        said = [line.sentence, *(f"{level}: {message}." for level, _, message in line.flags), *line.notes, one.note]
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
    filled = {
        "SUMMARY": sentences,
        "PROVENANCE": html.escape(provenance(resamples)),
        "HEAD": heads,
        "BODY": "".join(body),
    }
    for name, text in filled.items():
        page = page.replace(f"<!--{name}-->", text)
    return page


if __name__ == "__main__":
    main()
