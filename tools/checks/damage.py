"""Damages valid files at random, and counts what is made of them: `python tools/checks/damage.py WHAT [--trials=300]`.

WHAT is `recordings` (ZuCo's in every format), `scans` (a BIDS tree of stories: an image, its sidecar or events, a
transcript, the list of scans to leave out) or `judge` (files of labelled pairs, judge folders).
Every trial changes one place of one file: a byte, a bit, up to 64 bytes overwritten, removed or doubled, or the end cut
off; of a judge also odd bytes put in, or lines exchanged. Exits with status 1 at the first traceback, or where a sample
was lost, doubled or shifted without a word: voxels say which frame of which scan they are.
"""

import argparse
import collections
import contextlib
import csv
import dataclasses
import io
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

sys.path.extend(map(str, Path(__file__).parents[1:3]))  # tools/, and the clone for configs/

from configs.default import get_config
from eeg2text_jax.base.errors import UserError
from eeg2text_jax.base.kinds import read_section
from eeg2text_jax.data.datafile import DataFile, read_datafile
from eeg2text_jax.data.prepare import prepare
from eeg2text_jax.data.source import Tally
from eeg2text_jax.data.source_settings import DataSettings
from eeg2text_jax.judge._edits import make_pairs
from eeg2text_jax.judge._judge_folder import Judge, read_judge, write_judge
from eeg2text_jax.judge.pairs import read_pairs, write_pairs
from eeg2text_jax.judge.toy import sentences
from eeg2text_jax.judge.wording import TEMPLATES, Labels, Wording
from eeg2text_testing.bids_stories import GRID, WINDOW, make_tree
from eeg2text_testing.corruption import TEXT_WAYS, Verdict, corrupt, in_every_format, judge
from eeg2text_testing.zuco_files import Irregularities, Simulator

# Number of the trial, generator -> what was damaged, in which way, what came of it.
Trial = Callable[[int, np.random.Generator], tuple[str, str, Verdict]]
WORDS = ("one", "two", "three", "four", "five", "six")
TEXTS = [f"Sentence {i} has -- {word} – words, café" for i, word in enumerate(WORDS)]
SCANS = ("*_bold.nii*", "*_bold.json", "*_events.tsv", "align.csv", "scan_exclude.json")


def recordings(folder: Path) -> Trial:
    what = Irregularities(rejected=0, missing=(1,), unread=(2,))
    files = in_every_format(folder, Simulator(0, np.float32, raw_samples=(2, 1)).subject(TEXTS, what))
    config, originals = get_config().data, {}
    for form, path in files.items():
        tally = prepare(read_section(DataSettings, config), folder / f"{form}.h5", [str(path)])
        originals[form] = (path.read_bytes(), read_datafile(folder / f"{form}.h5"), tally)
    forms = list(files)

    def trial(number: int, rng: np.random.Generator) -> tuple[str, str, Verdict]:
        form = forms[number % len(forms)]
        content, data, tally = originals[form]
        way, damaged = corrupt(content, rng)
        files[form].write_bytes(damaged)
        return form, way, judge(config, data, tally, files[form], folder / "damaged.h5")

    return trial


def scans(folder: Path) -> Trial:
    intact = {form: make_tree(folder / form, packed=form == "packed") for form in ("packed", "plain")}
    originals = {form: prepared(root, folder / f"{form}.h5") for form, root in intact.items()}

    def trial(number: int, rng: np.random.Generator) -> tuple[str, str, Verdict]:
        form, root = ("packed", "plain")[number % 2], folder / "damaged"
        shutil.rmtree(root, ignore_errors=True)
        shutil.copytree(intact[form], root)
        paths = sorted(path for path in root.rglob(str(rng.choice(SCANS))) if path.is_file())
        path = paths[rng.integers(len(paths))]
        way, content = corrupt(path.read_bytes(), rng)
        path.write_bytes(content)
        verdict = judge_scans(root, folder / "damaged.h5", *originals[form])
        return form, f"{way} in {path.relative_to(root)}", verdict

    return trial


def prepared(root: Path, out: Path) -> tuple[DataFile, Tally]:
    config = get_config().data
    config.fmri.update({"grid": GRID, "window": WINDOW, "dtype": "float32"})
    tally = prepare(read_section(DataSettings, config), out, [str(root)])
    return read_datafile(out), tally


def windows(data: DataFile) -> dict[tuple[str, str, int], tuple[bytes, str]]:
    """Subject, stimulus and first segment -> frames and text; frames rounded, as a changed voxel moves the mean."""
    found = {}
    for i in range(len(data)):
        key = str(data.subject[i]), str(data.task[i]), int(data.sentence_index[i])
        centre = np.median(data.words(i).reshape(WINDOW, -1), axis=1)
        found[key] = np.round(centre * 4).astype(int).tobytes(), str(data.sentence[i])
    return found


def judge_scans(root: Path, out: Path, original: DataFile, expected: Tally) -> Verdict:
    try:
        made, tally = prepared(root, out)
    except UserError as error:
        return Verdict("refused", str(error)) if "\n" not in str(error) else Verdict("WRONG", f"two lines: {error}")
    said = tally.notes != expected.notes or tally.dropped != expected.dropped
    before, after = windows(original), windows(made)
    if len(after) < len(made):
        return Verdict("WRONG", "a window is there twice")
    if not said and before.keys() != after.keys():
        return Verdict("WRONG", f"windows {sorted(before.keys() ^ after.keys())[:3]} were lost or appeared")
    same = before.keys() & after.keys()
    moved = [key for key in same if before[key][0] != after[key][0]]
    if moved and not said:
        return Verdict("WRONG", f"{len(moved)} windows have other frames, the first is {sorted(moved)[0]}")
    other = [key for key in same if before[key][1] != after[key][1]]
    return Verdict("noted" if said else "text changed" if other else "unseen")


def judges(folder: Path) -> Trial:
    """Pairs and a judge of no model in particular, by turns: each is read whole, or refused in one sentence."""
    prompt = np.random.default_rng(0).normal(size=(5, 16)).astype(np.float32)
    labels, wording = Labels(("yes", "no"), ((7,), (9,))), Wording("plain", TEMPLATES["plain"])
    model, of_humans = ("../toy", "a" * 64, "tok", "float32", "float32"), ("found", "preserved", "human labels")
    made = Judge(*model, wording, labels, prompt, 0.5, *of_humans, "b" * 64, {"auc_test": 0.9})
    write_judge(made, folder / "judge")
    whole = read_judge(folder / "judge")

    def of_pairs(path: Path) -> str:
        found = read_pairs(path, "severity")
        text = path.read_bytes().decode("utf-8-sig")
        records = [record for record in csv.reader(io.StringIO(text, newline=""), delimiter="\t") if record]
        return "" if len(found) == len(records) - 1 else f"{len(found)} pairs of {len(records) - 1} records"

    def of_judge(path: Path) -> str:
        found = read_judge(path.parent)
        kinds = [[type(getattr(one, field.name)) for field in dataclasses.fields(Judge)] for one in (found, whole)]
        same = np.array_equal(found.prompt, made.prompt)
        return "" if same and kinds[0] == kinds[1] else "another prompt, or a field of another kind, without a word"

    def trial(number: int, rng: np.random.Generator) -> tuple[str, str, Verdict]:
        path, check = folder / "pairs.tsv", of_pairs
        if number % 2:
            write_judge(made, folder / "judge")
            path, check = folder / "judge" / str(rng.choice(("judge.json", "prompt.safetensors"))), of_judge
        else:
            seed = int(rng.integers(99))
            pairs = make_pairs(list(sentences(15, seed)), per_sentence=1, preserved=0.4, seed=seed)
            path.write_text(write_pairs(pairs), encoding="utf8")
        way, content = corrupt(path.read_bytes(), rng, TEXT_WAYS)
        path.write_bytes(content)
        form = ("pairs", "judge")[number % 2]
        try:
            wrong = check(path)
        except UserError as error:
            place, said = (path.parent if number % 2 else path), str(error)
            is_sentence = "\n" not in said and str(place) in said and len(said) <= 600
            return form, way, Verdict("refused" if is_sentence else "WRONG", f"not a sentence about {place}: {said!r}")
        return form, way, Verdict("WRONG", wrong) if wrong else Verdict("read")

    return trial


def series(trial: Trial, trials: int, seed: int = 0) -> collections.Counter[tuple[str, str]]:
    """Count (what was damaged, verdict); end with a message at the first wrong one."""
    counts, rng = collections.Counter(), np.random.default_rng(seed)
    for number in range(trials):
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            try:
                form, way, verdict = trial(number, rng)
            except Exception as error:
                error.add_note(f"trial {number}, seed {seed}")
                raise
        counts[form, verdict.kind] += 1
        if verdict.kind == "WRONG":
            raise SystemExit(f"trial {number}, seed {seed}, {form}, {way}: {verdict.detail}")
    return counts


WHAT = {"recordings": recordings, "scans": scans, "judge": judges}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=WHAT)
    parser.add_argument("--trials", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    flags = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        with contextlib.redirect_stderr(io.StringIO()):
            trial = WHAT[flags.what](Path(folder))
        counts = series(trial, flags.trials, flags.seed)
    for (form, kind), n in sorted(counts.items()):
        print(f"{form:<8} {kind:<14} {n:>5}")


if __name__ == "__main__":
    main()
