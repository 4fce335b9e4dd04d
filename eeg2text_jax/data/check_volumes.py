"""What a look through a data file finds; and the frames of a file of volumes, a few at a time."""

import dataclasses
import hashlib
from pathlib import Path

import h5py
import numpy as np

from eeg2text_jax.data.datafile import DataFile
from eeg2text_jax.data.frames import Frames
from eeg2text_jax.errors import first_line

FRAMES = 64  # read at once


@dataclasses.dataclass
class Findings:
    """`problems` keep a file from being used, `notes` are worth a look; `mean` and `spread` are of every feature."""

    path: Path
    problems: list[str] = dataclasses.field(default_factory=list)
    notes: list[str] = dataclasses.field(default_factory=list)
    table: list[str] = dataclasses.field(default_factory=list)
    mean: np.ndarray | None = None  # [F]
    spread: np.ndarray | None = None  # [F]
    bands: int = 1  # rows of the picture of scales; F / bands are its columns
    names: tuple[list[str], list[str]] = ([], [])  # of bands and of channels, where the file has them

    def text(self) -> str:
        """All of it, a line each."""
        lines = [*self.table, *(f"note: {note}" for note in self.notes)]
        lines += [f"PROBLEM: {problem}" for problem in self.problems]
        end = f"{len(self.problems)} problems" if self.problems else "no problem"
        return "\n".join([*lines, f"{self.path}: {end}, {len(self.notes)} notes"])


def look_at_frames(data: DataFile, findings: Findings) -> None:
    """Size of the windows and of each subject's values; frames that are damaged, not finite or in no window."""
    stop = data.starts + data.n_words
    if data.starts.min() < 0 or stop.max() > len(data.features):
        findings.problems.append(f"a window goes to frame {stop.max()} of {len(data.features)}.")
        return
    used = np.zeros(len(data.features), bool)
    for start, end in zip(data.starts, stop, strict=True):
        used[start:end] = True
    grid = " x ".join(map(str, data.feature_shape))
    findings.table.append(
        f"{len(used)} frames of {grid} voxels, windows of {data.n_words.min()} to {data.n_words.max()}, "
        f"{len(set(data.text_group))} text groups: {data.features_are}"
    )
    if not used.all():
        findings.notes.append(f"{(~used).sum()} frames are in no window.")
    try:
        size = _sizes(data, findings)
    except (OSError, RuntimeError) as error:
        findings.problems.append(f"its frames cannot be read to the end ({first_line(error)}).")
        return
    for name in np.unique(data.subject.astype(str)):
        rows = np.flatnonzero(data.subject == name)
        findings.table.append(
            f"{name:<12} {len(rows):>8} windows, mean size of a voxel {size[data.starts[rows]].mean():.3g}"
        )


def _sizes(data: DataFile, findings: Findings) -> np.ndarray:
    """Mean magnitude of every frame `[frames]`; compares the hash of all frames with the one that the file states."""
    found, digest, constant, bad = np.zeros(len(data.features)), hashlib.sha256(), True, 0
    first = None
    with h5py.File(data.path, "r") as file:
        for start in range(0, len(found), FRAMES):
            block = file["features"][start : start + FRAMES]
            digest.update(np.ascontiguousarray(block).data)
            block = block.astype(np.float32)
            first = block[0] if first is None else first
            constant = constant & (block == first).all(axis=0)
            bad += int((~np.isfinite(block)).any(axis=(1, 2, 3)).sum())
            found[start : start + FRAMES] = np.abs(block).mean(axis=(1, 2, 3))
    if bad:
        findings.problems.append(f"{bad} frames have NaN or infinity.")
    if isinstance(data.features, Frames) and digest.hexdigest() != data.features.digest:
        findings.problems.append("its frames do not have the checksum that the file states: it was edited.")
    if np.any(constant):
        findings.notes.append(f"{np.sum(constant)} of {data.n_features} voxels do not vary, as outside of a mask.")
    return found
