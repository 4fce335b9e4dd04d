"""Write synthetic scans, events and transcripts in the layouts of BIDS and of the aligner gentle."""

import csv
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from eeg2text_jax.data.source import library

Event = tuple[float, float, str, str]  # onset, duration, trial_type, stim_file
Aligned = tuple[str, str, float | None, float | None]  # word, token, start, end


def write_description(root: Path, name: str) -> None:
    """Write `dataset_description.json`, which marks a folder as BIDS."""
    root.mkdir(parents=True, exist_ok=True)
    (root / "dataset_description.json").write_text(json.dumps({"Name": name, "BIDSVersion": "1.2.0"}))


def write_scan(
    root: Path,
    subject: str,
    task: str,
    volumes: np.ndarray,
    tr: float,
    events: Sequence[Event],
    *,
    run: str = "",
    packed: bool = True,
) -> Path:
    """Write image, sidecar and events of a scan.

    Args:
      volumes: `[X, Y, Z, frames]`, in the dtype to store.
      run: the run number in the file name, if any.
      packed: write `.nii.gz`.

    Returns:
      The path of the image.
    """
    nibabel = library("nibabel", "fmri")
    folder = root / subject / "func"
    folder.mkdir(parents=True, exist_ok=True)
    stem = f"{subject}_task-{task}{f'_run-{run}' if run else ''}"
    image = nibabel.Nifti1Image(volumes, np.diag([3.0, 3.0, 4.0, 1.0]))
    image.header.set_xyzt_units("mm", "sec")
    image.header["pixdim"][4] = tr
    path = folder / f"{stem}_bold.nii{'.gz' if packed else ''}"
    nibabel.save(image, path)
    slices = volumes.shape[2]
    sidecar = {
        "RepetitionTime": tr,
        "TaskName": task,
        "SliceTiming": [round(i * tr / slices, 4) for i in range(slices)],
    }
    (folder / f"{stem}_bold.json").write_text(json.dumps(sidecar))
    with (folder / f"{stem}_events.tsv").open("w", encoding="utf8", newline="") as file:
        writer = csv.writer(file, delimiter="\t", lineterminator="\n")
        writer.writerows([("onset", "duration", "trial_type", "stim_file"), *events])
    return path


def write_transcript(folder: Path, stimulus: str, words: Sequence[Aligned]) -> Path:
    """Write `STIMULUS/align.csv` below a folder; a word without times was not found in the audio."""
    path = folder / stimulus / "align.csv"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerows([["" if cell is None else cell for cell in row] for row in words])
    return path
