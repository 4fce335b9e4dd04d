"""A small BIDS tree of stories with every trap of Narratives, whose voxels say which frame they are."""

from pathlib import Path
from typing import Any

import numpy as np

from eeg2text_jax.data.fmri._scans import FmriSpec
from eeg2text_jax.data.planted import Aligned, Event, write_description, write_scan, write_transcript
from eeg2text_jax.training.configuration import load_config

GRID = (4, 4, 3)
FRAMES = 40
WINDOW = 4


def fmri_spec(**changes: Any) -> FmriSpec:
    """The default section `data.fmri` with some changes."""
    return FmriSpec(**{**load_config("default").data.fmri, **changes})


def volumes(subject: int, task: int, frames: int = FRAMES) -> np.ndarray:
    """Every voxel of frame t is `subject * 1e4 + task * 1e3 + t`, int32 `[X, Y, Z, frames]`."""
    values = subject * 10_000 + task * 1_000 + np.arange(frames, dtype=np.int32)
    return np.broadcast_to(values, (*GRID, frames)).copy()


def frame_of(values: np.ndarray, frames: int = FRAMES) -> np.ndarray:
    """Which frame of its run each standardized volume is, `[n, X, Y, Z]` -> `[n]`; all voxels must agree."""
    flat = values.reshape(len(values), -1)
    assert (np.ptp(flat, axis=1) < 1e-3).all(), "voxels of one frame differ"
    found = flat.mean(axis=1) * np.arange(frames).std() + (frames - 1) / 2
    assert np.abs(found - np.round(found)).max() < 0.05, "no whole frame"
    return np.round(found).astype(int)


def story(onset: float, duration: float, stimulus: str, music: float | None = None) -> list[Event]:
    """Rows of events: music from `music` on, then the story, of one audio file."""
    file = f"{stimulus}_audio.wav"
    before = [] if music is None else [(music, onset - music - 1, "music", file)]
    return [*before, (onset, duration, "story", file)]


def aligned(words: str, first: float, every: float) -> list[Aligned]:
    """Words that begin at even distances; one in round brackets was not found, `<unk>` is its token in angle ones."""
    rows: list[Aligned] = []
    for i, word in enumerate(words.split("|")):
        start = round(first + i * every, 3)
        if word.startswith("("):
            rows.append((word[1:-1], "", None, None))
        elif word.startswith("<"):
            rows.append((word[1:-1], "<unk>", start, start + every / 2))
        else:
            rows.append((word, word.lower(), start, start + every / 2))
    return rows


def make_tree(root: Path, *, packed: bool = True) -> Path:
    """Two subjects and more, eight kinds of scan:

    - `tunnel`: audio and story at 3 s, no music; TR 1.5.
    - `pretty`: music at 0, story at 9 s; `sub-03` has its story row at 3 s (audio begun 6 s early).
    - `slow`: the same as tunnel with a TR of 1.52 for `sub-02`.
    - `twice`: two stories of one audio with a gap, music before each.
    - `pie`: two runs of `sub-01`.
    - `excluded`: in the list of scans to leave out.
    - `wide`: another number of slices.
    """
    write_description(root, "made up")
    gentle = root / "stimuli" / "gentle"
    words = {
        "tunnel": aligned("Once|there|was|(a)|<Zorblax>|named, quote|null|who|nan|ran|and|none|home", 0.3, 3.0),
        "pretty": aligned("so|it|was|all|very|pretty|indeed|yes", 9.2, 2.0),
        "slow": aligned("one|two|three|four|five|six|seven|eight|nine|ten", 2.0, 5.07),
        "twice": aligned("a|b|c|d|e|f", 3.0, 2.0) + aligned("u|v|w|x|y|z", 30.0, 2.0),
        "pie": aligned("I|ate|a|pie|and|was|glad", 6.0, 2.0),
        "excluded": aligned("not|this|one|please|do", 6.0, 2.0),
    }
    for name, rows in words.items():
        write_transcript(gentle, name, rows)
    write_transcript(gentle, "unheard", aligned("nobody|heard|this", 0.0, 1.0))
    for subject in (1, 2, 3):
        who = f"sub-0{subject}"
        scan = {"packed": packed}
        write_scan(root, who, "tunnel", volumes(subject, 1), 1.5, story(3.0, 45.0, "tunnel"), **scan)
        onset = 3.0 if subject == 3 else 9.0
        write_scan(root, who, "pretty", volumes(subject, 2), 1.5, story(onset, 18.0, "pretty", music=0.0), **scan)
        tr = 1.52 if subject == 2 else 1.5
        write_scan(root, who, "slow", volumes(subject, 3), tr, story(0.0, 54.0, "slow"), **scan)
        both = [*story(4.5, 15.0, "twice", music=1.5), *story(31.5, 12.0, "twice", music=28.5)]
        write_scan(root, who, "twice", volumes(subject, 4), 1.5, both, **scan)
    for run in ("1", "2"):
        write_scan(root, "sub-01", "pie", volumes(int(run), 5), 1.5, story(6.0, 15.0, "pie", music=0.0), run=run,
                   packed=packed)  # fmt: skip
    write_scan(root, "sub-02", "excluded", volumes(2, 6), 1.5, story(6.0, 12.0, "excluded", music=0.0), packed=packed)
    wide = np.zeros((4, 4, 5, 20), np.int16)
    write_scan(root, "sub-02", "wide", wide, 1.5, story(6.0, 12.0, "pie", music=0.0), packed=packed)
    (root / "code").mkdir(exist_ok=True)
    (root / "code" / "scan_exclude.json").write_text('{"excluded": {"sub-02": ["sub-02_task-excluded"]}, "pie": {}}')
    return root
