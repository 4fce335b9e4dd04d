"""Prepares a folder of 12 subjects x 3 tasks of simulated ZuCo files: identical formats, memory, time.

    python tools/checks/check_recordings.py --sentences=FOLDER --folder=DIR [--subjects=12] [--distinct=1]

Writes faithful files with ZuCo's real sentences (FOLDER holds sentiment_labels_task1.csv, relations_labels_task2.csv
and relations_labels_task3.csv; without it, made-up ones) and simulated EEG: MAT v5, v7 and, for the last subject,
v7.3. `--distinct` subjects of each task are drawn, the others are copies of them: writing takes far longer than
reading. Then measures `eeg2text prepare` on 3, then on all subjects, in processes of their own, and
`scipy.io.loadmat` / a walk over all of h5py's objects on the same files.
"""

import argparse
import csv
import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from eeg2text_testing.zuco_files import Irregularities, Simulator, write_v5, write_v73

SUBJECTS = ("ZAB", "ZDM", "ZDN", "ZGW", "ZJM", "ZJN", "ZJS", "ZKB", "ZKH", "ZKW", "ZMG", "ZPH")
PEAK_GIB, TIME_FACTOR = 1.5, 1.5


def real_sentences(folder: Path) -> dict[str, list[str]]:
    """The sentences of the label files of ZuCo 1.0, by task."""
    sr = (folder / "sentiment_labels_task1.csv").read_text(encoding="utf8").splitlines()[2:]
    texts = {"SR": [line.split(";", 1)[1].rsplit(";", 2)[0].strip('"') for line in sr if line.strip()]}
    with (folder / "relations_labels_task2.csv").open(encoding="utf8", newline="") as file:
        texts["NR"] = [row[2] for row in list(csv.reader(file))[1:]]
    tsr = (folder / "relations_labels_task3.csv").read_text(encoding="utf8").splitlines()[1:]
    texts["TSR"] = [line.split(";", 2)[2].rsplit(";", 1)[0].strip('"') for line in tsr if line.strip()]
    return texts


def made_up_sentences() -> dict[str, list[str]]:
    rng = np.random.default_rng(0)
    sizes = {"SR": (400, 18), "NR": (300, 21), "TSR": (407, 20)}
    return {
        task: [" ".join(f"{task.lower()}{i}w{w}" for w in range(rng.poisson(words) + 1)) for i in range(n)]
        for task, (n, words) in sizes.items()
    }


def write(folder: Path, texts: dict[str, list[str]], subjects: list[str], distinct: int) -> None:
    """A file per subject and task; formats alternate, the last subject's are v7.3."""
    for task, sentences in texts.items():
        place = folder / f"task - {task}" / "Matlab files"
        place.mkdir(parents=True, exist_ok=True)
        written: list[Path] = []
        for number, subject in enumerate(subjects):
            path = place / f"results{subject}_{task}.mat"
            if path.exists():
                written.append(path)
                continue
            is_last = subject == subjects[-1]
            if number >= 2 * distinct and not is_last:
                shutil.copy(written[number % (2 * distinct)], path)
                continue
            seed = distinct if is_last else number // 2  # v5 and v7 of one content, one after the other
            content = Simulator(seed, np.float32, raw_samples=(50, 8)).subject(sentences, irregular(task, seed))
            partial = path.with_suffix(".partial")  # what was cut off is written anew next time
            if is_last:
                write_v73(partial, content, share_empty=True)
            else:
                write_v5(partial, content, compress=bool(number % 2))
            written.append(partial.replace(path))
            print(f"wrote {path.name}, {path.stat().st_size >> 20} MiB", flush=True)


def irregular(task: str, seed: int) -> Irregularities:
    rejected = {"SR": 0.004, "NR": 0.002, "TSR": 0.02}[task]  # gives about the drop rates of the real recordings
    return Irregularities(rejected=rejected, missing=(seed, 10 + seed), unread=(20 + seed,), no_single=(30 + seed,))


def measure(command: list[str]) -> tuple[float, float]:
    """Seconds and peak GiB of a command in a process of its own."""
    script = (
        "import resource, subprocess, sys, time; t = time.perf_counter(); "
        "subprocess.run(sys.argv[1:], check=True, stderr=subprocess.DEVNULL); "
        "print(time.perf_counter() - t, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 2**20)"
    )
    timed, root = [sys.executable, "-c", script, *command], Path(__file__).parents[2]
    done = subprocess.run(timed, check=True, capture_output=True, text=True, cwd=root)
    seconds, gib = done.stdout.splitlines()[-1].split()
    return float(seconds), float(gib)


RAW = """
import sys, h5py, scipy.io
def walk(file, item):
    if isinstance(item, h5py.Group):
        for name in item:
            if name != "#refs#":
                walk(file, item[name])
        return
    values = item[()]
    if values.dtype == h5py.ref_dtype:
        for reference in values.ravel():
            walk(file, file[reference])
for path in sys.argv[1:]:
    if h5py.is_hdf5(path):
        with h5py.File(path) as file:
            walk(file, file)
    else:
        scipy.io.loadmat(path, squeeze_me=True, struct_as_record=False)
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True, help="where the files are written, and kept")
    parser.add_argument("--sentences", type=Path, help="folder of ZuCo's label files")
    parser.add_argument("--subjects", type=int, default=12)
    parser.add_argument("--distinct", type=int, default=1)
    parser.add_argument("--limit", type=int, help="sentences of each task, for a quick look")
    arguments = parser.parse_args()
    texts = real_sentences(arguments.sentences) if arguments.sentences else made_up_sentences()
    texts = {task: sentences[: arguments.limit] for task, sentences in texts.items()}
    print({task: len(sentences) for task, sentences in texts.items()}, flush=True)
    files = arguments.folder / "files"
    write(files, texts, list(SUBJECTS[: arguments.subjects]), arguments.distinct)
    paths = [str(path) for path in sorted(files.rglob("*.mat"))]
    size = sum(Path(path).stat().st_size for path in paths) / 2**30
    print(f"{len(paths)} files, {size:.2f} GiB", flush=True)

    prepare = [sys.executable, "-m", "eeg2text_jax", "prepare"]
    out = f"--out={arguments.folder}/data.h5"
    few = [path for path in paths if any(subject in path for subject in SUBJECTS[:3])]
    ours = {len(chosen): measure([*prepare, *chosen, out]) for chosen in (few, paths)}
    for n, (seconds, gib) in ours.items():
        print(f"prepare, {n} files: {seconds:.1f} s, peak {gib:.2f} GiB", flush=True)
    raw_seconds, raw_gib = measure([sys.executable, "-c", RAW, *paths])
    seconds, gib = ours[len(paths)]
    print(f"loadmat / h5py alone, {len(paths)} files: {raw_seconds:.1f} s, peak {raw_gib:.2f} GiB")
    passed = gib <= PEAK_GIB and seconds <= TIME_FACTOR * raw_seconds
    print(json.dumps({"passed": passed, "time_factor": round(seconds / raw_seconds, 2), "peak_gib": round(gib, 2)}))
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
