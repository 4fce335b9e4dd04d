"""Runs the commands of README.md and docs, and holds what they print against the output that the pages show.

    python tools/site/run_commands.py [--long] [PAGE ...]     # README.md grid.md; all pages by default
    python tools/site/run_commands.py --list                  # each command, and what it needs

Commands are the lines of `bash` blocks, and `eeg2text` with an option within a sentence. Each page has a folder of its
own with made-up files of the names that the pages use. A command that trains gets `--dry-run`; with `--long` it runs as
it is written, which takes minutes. A command that needs something else (`NEEDS`) is named and not run.
"""

import argparse
import csv
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "eeg2text_jax/commands/example_files"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
ELSEWHERE = ("papers.md",)  # tests/test_papers.py walks it
NEEDS = (  # of a command that this script does not run, the first that fits
    (r"^(git|pip|datalad|cd) ", "a network"),
    (r"tools/test\.sh", "the suite itself"),
    (r"gs://|s3://", "a bucket"),
    (r"checkpoint=google|llama3|minilm|lattescore", "published weights"),
    (r"^eeg2text app", "a browser; tools/checks/check_app.py"),
    (r"^eeg2text (preflight|bench)|parallel\.hosts|paper:backbone", "an accelerator or its compiler"),
    (
        r"\b(ZUCO|NARRATIVES|BIDS_FOLDER|RECORDINGS|TABLE\.tsv|PAIRS\.tsv|narratives|waves\.h5|recordings/)|t5_",
        "published data",
    ),
    (r"\b(DIR|FOLDER|NAME|OUT|RUN|FILE)\b", "a name of the reader's"),
    (r"^eeg2text reproduce (?!.*--(demo|list))", "published data"),
    (r"^(bash|python) tools/", "minutes to hours; docs/testing.md has what each shows"),
)
LONG = r"^eeg2text (reproduce .*--demo|table|records|export |audit --eeg runs/)"  # wants finished runs, or makes them
VERDICTS = ("audit", "example")  # their exit status is the verdict
FAILED = (1, 2)


class Command(NamedTuple):
    """A command of a page, and the output that the page shows for it."""

    page: str
    line: str
    output: str = ""

    @property
    def need(self) -> str:
        return next((need for pattern, need in NEEDS if re.search(pattern, self.line)), "")


def commands(page: Path) -> Iterator[Command]:
    """The commands of a page, in its order."""
    text = page.read_text(encoding="utf8").replace("\\\n", " ")
    blocks = re.compile(r"^```(\w*)\n(.*?)^```\n(?:\n```text\n(.*?)^```\n)?", re.DOTALL | re.MULTILINE)
    end = 0
    for block in blocks.finditer(text):
        yield from in_sentences(page.name, text[end : block.start()])
        end = block.end()
        if block[1] == "bash":
            lines = [shlex.join(words) for line in block[2].splitlines() if (words := shlex.split(line, comments=True))]
            yield from (Command(page.name, line) for line in lines[:-1])
            yield Command(page.name, lines[-1], block[3] or "")
    yield from in_sentences(page.name, text[end:])


def in_sentences(page: str, text: str) -> Iterator[Command]:
    for found in re.findall(r"`(eeg2text [a-z-]+ [^`]*--[a-z]+[= ][^`]+)`", text.replace("\n", " ")):
        if page not in ELSEWHERE and "..." not in found:
            yield Command(page, " ".join(found.split()))


def copy_texts(folder: Path) -> None:
    """Write files of decoded text under the names that the pages use."""
    lines = {name: (EXAMPLES / f"{name}.csv").read_text(encoding="utf8").splitlines() for name in ("eeg", "noise")}
    rows = {name: list(csv.DictReader(found)) for name, found in lines.items()}
    copies = {"eeg": ("EEG.csv", "A.csv", "B.csv"), "noise": ("NOISE.csv", "C.csv")}
    for name, names in copies.items():
        for copy in names:
            shutil.copy(EXAMPLES / f"{name}.csv", folder / copy)
    texts = {
        "decoded.txt": ("eeg", "prediction"),
        "shuffled.txt": ("noise", "prediction"),
        "true.txt": ("eeg", "reference"),
    }
    for name, (condition, column) in texts.items():
        (folder / name).write_text("".join(f"{row[column]}\n" for row in rows[condition]), encoding="utf8")
    first = {row["reference"]: row for row in rows["eeg"]}.values()
    captions = [{"image_id": n, "caption": row["prediction"]} for n, row in enumerate(first)]
    true = {"annotations": [{"image_id": n, "caption": row["reference"]} for n, row in enumerate(first)]}
    (folder / "captions.json").write_text(json.dumps(captions), encoding="utf8")
    (folder / "cococap.json").write_text(json.dumps(true), encoding="utf8")


def make_data(folder: Path, runs: bool) -> None:
    """Write data files of the names that the pages use, and runs if asked."""
    run(
        "eeg2text prepare --config=own --config.data.source=synthetic --config.data.synthetic.subjects=6 --out=own.h5",
        folder,
    )
    run("eeg2text export-data own.h5 --out=own.parquet", folder)
    for name in ("DATA.h5", "zuco.h5"):
        shutil.copy(folder / "own.h5", folder / name)
    if runs:
        run("eeg2text run --config=demo --config.train.steps=50 --workdir=runs/first", folder)
        for name in ("a", "b"):
            shutil.copytree(folder / "runs/first", folder / "runs" / name)


def run(line: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a command in a folder with this clone's package; `configs/x.py` and `tools/` are those of the clone."""
    words = shlex.split(line)
    words = [sys.executable, *(["-m", "eeg2text_jax"] if words[0] == "eeg2text" else []), *words[1:]]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1", "JAX_PLATFORMS": "cpu"}
    return subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True)


def check(command: Command, folder: Path, long: bool) -> str:
    """Run a command; return what is wrong, or ""."""
    name, line = command.line.split()[1], command.line
    if name in ("run", "train") and not long and "--dry-run" not in line:
        line = f"{line} --dry-run"
    done = run(line, folder)
    if done.returncode in FAILED or (done.returncode and name not in VERDICTS) or "Traceback" in done.stderr:
        return f"status {done.returncode}: {(done.stderr or done.stdout).strip().splitlines()[-1:]}"
    shown = command.output.splitlines()
    if [printed for printed in done.stdout.splitlines() if printed in shown] != shown:
        return f"prints\n{done.stdout}\nwhere the page shows\n{command.output}"
    return ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pages", nargs="*", metavar="PAGE", help="names of pages, such as README.md; default: all")
    parser.add_argument("--long", action="store_true", help="train where a command trains")
    parser.add_argument("--list", action="store_true", help="run nothing")
    flags = parser.parse_args()
    wrong = ran = 0
    for page in PAGES:
        found = [] if flags.pages and page.name not in flags.pages else list(commands(page))
        with tempfile.TemporaryDirectory() as scratch:
            if not flags.list and not all(command.need for command in found):
                copy_texts(Path(scratch))
                make_data(Path(scratch), flags.long and bool(re.search("runs/(first|a) ", str(found))))
            for command in found:
                need = command.need or ("--long" if re.search(LONG, command.line) and not flags.long else "")
                if need or flags.list:
                    print(f"{page.name}: {command.line}\n    {f'not run: needs {need}' if need else 'is run'}")
                    continue
                begun = time.monotonic()
                said = check(command, Path(scratch), flags.long)
                ran, wrong = ran + 1, wrong + bool(said)
                print(f"{page.name}: {command.line}\n    {said or 'as it should be'}, {time.monotonic() - begun:.0f} s")
                sys.stdout.flush()
    print(f"{ran} commands ran, {wrong} are not as their page says.")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
