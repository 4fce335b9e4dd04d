"""The field, audited: gets published prediction sets, scores and audits them, writes one table and one page.

    python tools/field.py                        # clones the repositories (git, a network, about 1 GB of disk)
    python tools/field.py --clones DIR           # from clones that are there, or from those that an earlier call made

`site/field_manifest.tsv` names the sets: repository, commit, path (`ARCHIVE.zip!MEMBER` in an archive), what the model
was trained on and fed, how it was decoded, the layout, which sets are its controls, and which column groups its
references. Every set is read without options; where a file does not say its mode and its repository says that it ran
free, that counts as the statement. `site/field_repositories.tsv` says what each repository is. Written are
`docs/field.md` and `docs/field.html`, a page that sorts and needs nothing beside it (`site/field_pages.py`). The sets
themselves are not ours and stay where they are. Three minutes on one core, half a gigabyte of memory.
"""

import argparse
import csv
import dataclasses
import hashlib
import io
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "site"))

from field_pages import HERE, Line, PublishedSet, html_page, markdown_page

from eeg2text_jax.base.errors import UserError, first_line
from eeg2text_jax.base.files import write_text
from eeg2text_jax.instrument.auditing.audit import audit
from eeg2text_jax.instrument.auditing.result import AuditResult
from eeg2text_jax.instrument.auditing.verdict import Verdict, p_cell
from eeg2text_jax.instrument.metrics.metric import word_bleu
from eeg2text_jax.instrument.predictions.file import Prediction, sentence_key
from eeg2text_jax.instrument.predictions.read import empty_halves, read_any
from eeg2text_jax.instrument.predictions.selection import groups_of

MODE_NAMES = {"free_running": "free-running", "teacher_forced": "teacher-forced", "unknown": "unknown"}

FIELDS = [field.name for field in dataclasses.fields(PublishedSet)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--manifest", type=Path, default=HERE / "field_manifest.tsv", metavar="TSV")
    parser.add_argument("--clones", type=Path, metavar="DIR", help="clones: DIR/owner+name, DIR/owner/name or DIR/name")
    parser.add_argument("--fetch-into", type=Path, default="field-clones", metavar="DIR", help="where to clone to")
    parser.add_argument("--out", type=Path, default=HERE.parents[1] / "docs", metavar="DIR")
    parser.add_argument("--json", type=Path, metavar="OUT", help="write every figure and message there, too")
    parser.add_argument("--only", default="", metavar="TEXT", help="sets with this in their name (no page is written)")
    flags = parser.parse_args()
    start = time.monotonic()
    sets = read_manifest(flags.manifest)
    chosen = [one for one in sets if flags.only in one.set]
    wanted = {one.set for one in chosen} | {name for one in chosen for name in one.controls}
    with tempfile.TemporaryDirectory() as folder:
        read = {one.set: read_set(one, Path(folder), flags) for one in sets if one.set in wanted}
        lines = []
        for one in chosen:
            for line in audit_set(one, read):
                same = next((other.published.set for other in lines if other.digest == line.digest != ""), "")
                line.copy_of = same
                lines.append(line)
                print(f"{one.set:36} {line.mode:15} {line.verdict:40} {' '.join(line.codes)}", flush=True)
    seconds, memory = time.monotonic() - start, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"{len(lines)} lines of {len(chosen)} sets; {seconds:.0f} s, at most {memory:.2f} GiB of memory")
    if flags.json:
        write_text(flags.json, json.dumps([dataclasses.asdict(line) for line in lines], indent=1, ensure_ascii=False))
    if not flags.only:
        flags.out.mkdir(exist_ok=True)
        write_text(flags.out / "field.md", markdown_page(lines, sets))
        write_text(flags.out / "field.html", html_page(lines))
        print(f"wrote {flags.out / 'field.md'} and {flags.out / 'field.html'}")


def read_manifest(path: Path) -> list[PublishedSet]:
    """The sets of a manifest. Raises UserError where a control is not among them."""
    with path.open(encoding="utf8", newline="") as file:
        lines = list(csv.DictReader(file, delimiter="\t"))
    sets = [PublishedSet(**{name: line[name] or "" for name in FIELDS}) for line in lines]
    names = {one.set for one in sets}
    for one in sets:
        for control in one.controls:
            if control not in names:
                raise UserError(f"{path}: the control {control!r} of {one.set!r} is not in the manifest.")
    return sets


def get_bytes(one: PublishedSet, flags: argparse.Namespace) -> bytes:
    """The file at its commit. Raises UserError where it cannot be had."""
    clone = find_clone(one.repository, flags.clones) if flags.clones else fetch(one, flags.fetch_into)
    path, _, member = one.path.partition("!")
    found = git(clone, "show", f"{one.commit}:{path}", lazily=not flags.clones)
    if found.returncode:
        reason = found.stderr.decode(errors="replace").strip().splitlines()[-1:] or ["no reason given"]
        raise UserError(f"{one.repository} at {one.commit[:10]}: {one.path} cannot be had ({reason[0]})")
    return zipfile.ZipFile(io.BytesIO(found.stdout)).read(member) if member else found.stdout


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


@dataclasses.dataclass(frozen=True)
class ReadSet:
    """What was read of a set: rows by mode, or why there are none."""

    modes: dict[str, list[Prediction]]
    notes: list[str]
    refused: str = ""
    groups: dict[str, dict[str, str]] = dataclasses.field(default_factory=dict)


def read_set(one: PublishedSet, folder: Path, flags: argparse.Namespace) -> ReadSet:
    try:
        path = folder / f"{one.set}{Path(one.path).suffix}"
        path.write_bytes(get_bytes(one, flags))
        read = read_any(path, groups=one.group_columns)
        groups, more = groups_of(read, one.group_columns)
    except UserError as error:
        return ReadSet({}, [], str(error).replace(f"{folder}/", ""))
    notes = [*read.notes, *empty_halves(read), *more]
    if read.layout.split()[0] != one.layout:
        notes.append(f"read as layout {read.layout.split()[0]}, the manifest says {one.layout}")
    modes: dict[str, list[Prediction]] = {}
    for row in read.predictions:
        modes.setdefault(row.mode, []).append(row)
    return ReadSet(modes, notes, groups=groups)


def audit_set(one: PublishedSet, read: dict[str, ReadSet]) -> list[Line]:
    found = read[one.set]
    if found.refused:
        return [Line(one, "", verdict="not had", base="not had", sentence=found.refused)]
    return [audit_mode(one, mode, rows, read) for mode, rows in found.modes.items()]


def audit_mode(one: PublishedSet, mode: str, rows: list[Prediction], read: dict[str, ReadSet]) -> Line:
    line = Line(one, MODE_NAMES[mode], len(rows), len({row.sentence_id for row in rows}), notes=[*read[one.set].notes])
    line.bleu = word_bleu().score([row.prediction for row in rows], [row.reference for row in rows])["word_bleu-1"]
    line.digest = digest_of(rows)
    controls = {name: read[name].modes[mode] for name in one.controls if mode in read[name].modes}
    if missing := [name for name in one.controls if name not in controls]:
        line.notes.append(f"the control {', '.join(missing)} could not be obtained: judged without it")
    options = {"name": one.set, "groups": read[one.set].groups}
    if mode == "unknown" and one.mode == "free-running":
        options["stated_by"] = "the repository states"
        rows, controls = stated(rows), {name: stated(given) for name, given in controls.items()}
    try:
        result = audit(rows, controls, **options)
    except UserError as error:
        try:
            result = audit(rows, controls, **options, common=True)
            line.notes.append(f"judged on what both files share: {first_line(error)}")
        except UserError:
            line.verdict = line.base = "refused"
            line.sentence = first_line(error)
            return line
    fill(line, result)
    return line


def stated(rows: list[Prediction]) -> list[Prediction]:
    """Rows of a file that does not say its mode, with the mode that its repository states."""
    return [dataclasses.replace(row, mode="free_running") for row in rows]


def digest_of(rows: list[Prediction]) -> str:
    """A hash of what was predicted for which reference, whatever the order: duplicates have the same."""
    pairs = sorted(f"{sentence_key(row.reference)}\t{sentence_key(row.prediction)}" for row in rows)
    return hashlib.sha256("\n".join(pairs).encode()).hexdigest()


def fill(line: Line, result: AuditResult) -> None:
    """Figures of the deciding comparison; no p where the predictions cannot be judged."""
    own, judged = result.conditions[0].content, result.deciding
    line.score, line.null, line.content, line.p = own.scores[0], own.nulls[0], own.effect, own.decisive_p
    if judged.control:
        found = judged.contrast
        line.control, line.difference, line.p_difference = judged.control, found.effect, found.decisive_p
    if result.verdict.base is Verdict.NOT_JUDGEABLE:
        line.p = line.p_difference = None
    verdicts = {c.control: c.verdict.value for c in result.comparisons}
    line.groups = [
        (
            answer.control or "none",
            verdicts[answer.control],
            answer.column,
            *(
                f"{found.effect:+.2f} (p {p_cell(found.decisive_p)}, MDE {found.mde:.2f})" if found else "–"
                for found in (answer.between, answer.within)
            ),
        )
        for answer in result.groups
    ]
    line.verdict, line.base = result.verdict.value, result.verdict.base.value
    line.sentence = f"{result.verdict.headline}. {result.sentence}"
    line.provenance = result.provenance.text
    line.findings = [(n.code, n.message, bool(n.bars)) for n in result.notices]
    line.notes += result.notes


if __name__ == "__main__":
    main()
