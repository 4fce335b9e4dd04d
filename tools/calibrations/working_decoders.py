"""Audits published outputs of decoders that work, in the order of their quality: each must be judged.

    python tools/calibrations/working_decoders.py --clones DIR

Intracortical speech, captions from fMRI, typing from MEG and language models behind EEG. Each file is judged three
times: as one that states that it ran free, against its own outputs over other sentences, and alone; and as one that
states nothing. `DIR/owner+name` are clones. About five minutes on one core.
"""

import argparse
import csv
import io
import json
import random
import re
import subprocess
import zipfile
from collections.abc import Iterator
from pathlib import Path

import jiwer

from eeg2text_jax.instrument.auditing.audit import audit
from eeg2text_jax.instrument.metrics.metric import word_bleu
from eeg2text_jax.instrument.predictions.file import Prediction

SPEECH = "examples/microelectrode/willett_2023"
WANTED = ("uses EEG", "content above its null", "content of unproven origin")
# Files that hold nothing, or less than the margin (+0.4 points) -> their verdicts.
QWEN = "results/results_Qwen2.5-7B-Instruct"
NONE, BELOW = "no content found above its null", "detectable but below the margin"
LITTLE = {
    f"{QWEN}_no_stage2_only_eeg.csv": ("equivalent to control", NONE, NONE),
    f"{QWEN}_only_eeg.csv": ("equivalent to control", BELOW, BELOW),
}
Pairs = list[tuple[str, str]]  # reference, prediction


class Clones:
    """A folder of clones, `owner+name` each."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def git(self, repository: str, *arguments: str) -> bytes:
        place = self.folder / repository
        place = next(p for p in (place / "repo", place / ".git", place) if (p / "HEAD").is_file())
        return subprocess.run(["git", f"--git-dir={place}", *arguments], capture_output=True, check=True).stdout

    def show(self, repository: str, path: str) -> str:
        return self.git(repository, "show", f"HEAD:{path}").decode()

    def named(self, repository: str, pattern: str) -> list[str]:
        names = self.git(repository, "ls-tree", "-r", "--name-only", "HEAD").decode().splitlines()
        return [name for name in names if re.search(pattern, name)]


def speech(clones: Clones) -> Iterator[tuple[str, Pairs]]:
    """Sentences decoded from microelectrodes, by the recipes of two groups."""
    repository = "innerspeech+innerspeech"
    truth = clones.show(repository, f"{SPEECH}/refs/true_dev_Transcriptions.txt").splitlines()
    for path in clones.named(repository, rf"{SPEECH}/results/.*txt$"):
        said = clones.show(repository, path).splitlines()
        if len(said) == len(truth):
            yield path, list(zip(truth, said, strict=True))
    repository = "CIBR-Okubo-Lab+speechBCI_2024"
    truth = clones.show(repository, "notebooks/samples/target_test.txt").splitlines()
    for path in clones.named(repository, r"notebooks/samples/model\d_test.txt"):
        yield path, list(zip(truth, clones.show(repository, path).splitlines(), strict=True))


def captions(clones: Clones) -> Iterator[tuple[str, Pairs]]:
    """Captions of images that were seen in the scanner; the first of five references."""
    repository = "weihaox+BrainHub"
    truth = json.loads(clones.show(repository, "caption/fmri_cococap.json"))
    for path in clones.named(repository, "caption/comparison/.*json$"):
        said = json.loads(clones.show(repository, path))
        text = {key: value if isinstance(value, str) else value[0] for key, value in said.items()}
        yield path, [(truth[key][0], text[key]) for key in truth if key in text]


def typing(clones: Clones) -> Iterator[tuple[str, Pairs]]:
    path = "docs/assets/best_complete_predictions.csv"
    rows = list(csv.DictReader(io.StringIO(clones.show("facebookresearch+brain2qwerty", path))))
    reference, prediction = (next(n for n in rows[0] if re.search(p, n, re.I)) for p in ("true|target|ref", "pred"))
    yield path, [(row[reference], row[prediction]) for row in rows]


def thoughts(clones: Clones) -> Iterator[tuple[str, Pairs]]:
    """Captions by language models behind EEG."""
    packed = clones.git("abhijitmishra+Thought2Text", "show", "HEAD:eval/predictions.zip")
    with zipfile.ZipFile(io.BytesIO(packed)) as archive:
        for name in archive.namelist():
            if re.search(r"(?<!chance\d)\.csv$", name) and "subject" not in name:
                rows = csv.DictReader(io.StringIO(archive.read(name).decode()))
                yield name, [(row["Expected Caption"].strip(), row["Generated Caption"]) for row in rows]


SOURCES = {"speech": speech, "captions": captions, "typing": typing, "thoughts": thoughts}


def rows_of(pairs: Pairs, mode: str = "free_running", condition: str = "eeg") -> list[Prediction]:
    return [
        Prediction(str(i), "", "", f"s{i}", len(r.split()), "eeg", condition, 0, mode, r, p)
        for i, (r, p) in enumerate(pairs)
        if r.strip()
    ]


def exchanged(pairs: Pairs) -> Pairs:
    """The control: the same outputs over other sentences."""
    said = [p for _, p in pairs]
    random.Random(0).shuffle(said)
    return [(r, p) for (r, _), p in zip(pairs, said, strict=True)]


def word_errors(pairs: Pairs) -> float:
    """Word error rate in percent, case and punctuation aside."""
    plain = [(" ".join(re.findall(r"\w+", r.lower())), " ".join(re.findall(r"\w+", p.lower()))) for r, p in pairs]
    kept = [(r, p) for r, p in plain if r]
    return 100 * jiwer.wer([r for r, _ in kept], [p for _, p in kept])


def wanted(path: str) -> tuple[str, ...]:
    return LITTLE.get(path, WANTED)


def judged(pairs: Pairs) -> tuple[list[str], list[str]]:
    """Verdicts with a control, alone, and of unknown mode; and why there is none."""
    control = {"shuffled": rows_of(exchanged(pairs), condition="shuffled")}
    rows, unknown = rows_of(pairs), rows_of(pairs, "unknown")
    found = [audit(rows, control, common=True), audit(rows, {}), audit(unknown, {})]
    barring = {notice.message for result in found for notice in result.notices if notice.bars}
    return [result.verdict.base.value for result in found], sorted(barring)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clones", type=Path, required=True, metavar="DIR")
    parser.add_argument("--only", nargs="+", choices=SOURCES, default=list(SOURCES), help="kinds of decoders")
    flags = parser.parse_args()
    refused = 0
    for kind in flags.only:
        files = [(word_errors(pairs), path, pairs) for path, pairs in SOURCES[kind](Clones(flags.clones))]
        for errors, path, pairs in sorted(files):
            bleu = word_bleu().score([p for _, p in pairs], [r for r, _ in pairs])["word_bleu-1"]
            verdicts, why = judged(pairs)
            refused += tuple(verdicts) != wanted(path)
            scores = f"{errors:6.1f} % WER {bleu:6.2f} BLEU-1"
            print(f"{kind:9} {scores}  {Path(path).name:70} {' | '.join(verdicts)}", flush=True)
            for message in why:
                print(f"          {message}")
    print(f"{refused} files with another verdict than {' | '.join(WANTED)}, or for those of LITTLE the verdicts there")


if __name__ == "__main__":
    main()
