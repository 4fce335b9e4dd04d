"""Time and memory of `prepare` on NIfTI images of the usual grid, beside nibabel alone, and how fast batches arrive.

python tools/benchmarks/fmri_speed.py FOLDER [--gib=4] [--plain]

Writes that many GiB of int16 volumes (64 x 64 x 27, packed unless --plain) into FOLDER, reads them once with nibabel
alone in a process of its own, then with `prepare` in another, and takes windows of the result at random. Nothing is
removed: delete FOLDER afterwards.
"""

import argparse
import json
import resource
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

GRID, FRAMES, TR = (64, 64, 27), 300, 1.5
BATCH, BATCHES = 30, 20  # windows, and how many batches

NIBABEL = """
import sys, time, nibabel, numpy as np
begun = time.perf_counter()
for path in sys.argv[1:]:
    np.asarray(nibabel.load(path).dataobj)
print(time.perf_counter() - begun)
"""
PREPARE = """
import sys, time
from eeg2text_jax.__main__ import start
begun = time.perf_counter()
sys.argv = ["eeg2text", "prepare", sys.argv[1], "--out=" + sys.argv[2]]
try:
    start()
except SystemExit as end:
    assert not end.code, end.code
print(time.perf_counter() - begun)
"""


def write(root: Path, gib: float, packed: bool) -> list[Path]:
    """A tree of as many scans as it takes; all but the first are copies of its image."""
    from eeg2text_jax.data.planted import write_description, write_scan, write_transcript

    rng = np.random.default_rng(0)
    n = max(1, round(gib * 2**30 / (2 * np.prod(GRID) * FRAMES)))
    write_description(root, "speed")
    words = [(f"word{i % 50}", "word", i * 0.5, i * 0.5 + 0.3) for i in range(round(FRAMES * TR * 2) - 60)]
    write_transcript(root / "stimuli" / "gentle", "tale", words)
    brain = (np.stack(np.meshgrid(*(np.linspace(-1, 1, k) for k in GRID), indexing="ij")) ** 2).sum(0) < 1
    mean = np.where(brain, rng.uniform(400, 1500, GRID), 15).astype(np.float32)
    volumes = np.empty((*GRID, FRAMES), np.int16)
    for t in range(FRAMES):
        volumes[..., t] = mean + rng.standard_normal(GRID, np.float32) * np.where(brain, 12, 4)
    events = [(0.0, FRAMES * TR - 15, "story", "tale_audio.wav")]
    small = np.zeros((*GRID, 2), np.int16)
    paths = [write_scan(root, "sub-001", "tale", volumes, TR, events, packed=packed)]
    for k in range(1, n):
        path = write_scan(root, f"sub-{k + 1:03d}", "tale", small, TR, events, packed=packed)
        shutil.copyfile(paths[0], path)
        paths.append(path)
    return paths


def timed(code: str, *arguments: object) -> tuple[float, float]:
    """Seconds that a program says it took, and the most memory in GiB that any child has had so far."""
    command = [sys.executable, "-c", code, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return float(done.stdout.splitlines()[-1]), resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 2**20


def batches(path: Path) -> float:
    """Windows a second, in batches at random."""
    from eeg2text_jax.data.batches import Samples, make_batch
    from eeg2text_jax.data.datafile import read_datafile

    data = read_datafile(path)
    samples = Samples(data, None, np.zeros((), np.float32), np.ones((), np.float32), 56, 0)
    rng = np.random.default_rng(0)
    begun = time.perf_counter()
    for _ in range(BATCHES):
        make_batch(samples, rng.integers(len(data), size=BATCH), (10, 40), BATCH)
    return BATCH * BATCHES / (time.perf_counter() - begun)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--gib", type=float, default=4.0)
    parser.add_argument("--plain", action="store_true", help="images that are not packed")
    flags = parser.parse_args()
    root, out = flags.folder / "bids", flags.folder / "data.h5"
    paths = sorted(root.glob("sub-*/func/*_bold.nii*")) or write(root, flags.gib, not flags.plain)
    stored = sum(path.stat().st_size for path in paths) / 2**30
    gib = len(paths) * 2 * np.prod(GRID) * FRAMES / 2**30
    prepare_seconds, memory = timed(PREPARE, root, out)  # first: the most memory of all children is kept
    nibabel_seconds, _ = timed(NIBABEL, *paths)
    found = {
        "scans": len(paths), "GiB of voxels": round(gib, 2), "GiB stored": round(stored, 2),
        "nibabel alone, s": round(nibabel_seconds, 1), "prepare, s": round(prepare_seconds, 1),
        "prepare / nibabel": round(prepare_seconds / nibabel_seconds, 2), "prepare, GiB of memory": round(memory, 2),
        "windows of 10 frames a second": round(batches(out), 1),
    }  # fmt: skip
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
