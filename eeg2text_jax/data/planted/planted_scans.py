"""Synthetic fMRI of story listening as a BIDS folder, with an adjustable amount of information about the words.

Stories are random walks over an artificial vocabulary (as in `planted_words.py`), at about one word per TR. Maps that
the subjects partly share turn the latent vector of a word into a smooth voxel pattern. The pattern appears `lag_tr`
frames after the word, and weaker one frame later, on top of slow drift and noise. With `signal` below 1, a random
vector replaces a part of the word's vector at each occurrence, so null data differ from planted data in information
alone. `groups` divides a story into that many scenes with disjoint vocabularies, in random order; `drift` adds a slow
drift that is independent of the words.

The files are those of a scanner and an aligner: NIfTI, sidecars, events and align.csv. Music precedes each story, and
some words have no time, as with a real aligner.
"""

import csv
import dataclasses
import itertools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import numpy as np

from eeg2text_jax import kinds
from eeg2text_jax.data.planted.planted_words import LATENT_WIDTH, SUCCESSOR_PROBABILITIES, drift, make_vocabulary
from eeg2text_jax.errors import UserError
from eeg2text_jax.imports import library

Event = tuple[float, float, str, str]  # onset, duration, trial_type, stim_file
Aligned = tuple[str, str, float | None, float | None]  # word, token, start, end; None if not found in the audio


def write_description(root: Path, name: str) -> None:
    """Create a folder with `dataset_description.json`, which marks it as BIDS."""
    root.mkdir(parents=True, exist_ok=True)
    (root / "dataset_description.json").write_text(json.dumps({"Name": name, "BIDSVersion": "1.2.0"}))


def write_scan(
    root: Path, subject: str, task: str, volumes: np.ndarray, tr: float, events: Sequence[Event], *, run: str = "",
    packed: bool = True,
) -> Path:  # fmt: skip
    """Write image, sidecar and events of a scan; return the path of the image.

    `volumes` are `[X, Y, Z, frames]` in the dtype to store; `packed` writes `.nii.gz`.
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
    timing = [round(i * tr / volumes.shape[2], 4) for i in range(volumes.shape[2])]
    sidecar = {"RepetitionTime": tr, "TaskName": task, "SliceTiming": timing}
    (folder / f"{stem}_bold.json").write_text(json.dumps(sidecar))
    with (folder / f"{stem}_events.tsv").open("w", encoding="utf8", newline="") as file:
        writer = csv.writer(file, delimiter="\t", lineterminator="\n")
        writer.writerows([("onset", "duration", "trial_type", "stim_file"), *events])
    return path


def write_transcript(folder: Path, stimulus: str, words: Sequence[Aligned]) -> Path:
    """Write `STIMULUS/align.csv` below a folder."""
    path = folder / stimulus / "align.csv"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows(words)
    return path


TR = 1.5
MUSIC, ONSET, AFTER = 1.5, 6.0, 12.0  # seconds: onset of the music, onset of the story, rest of the scan after it
UNALIGNED = 0.03  # share of words that the aligner does not find
BLURRED = 0.3  # strength of a pattern one frame later
OWN_MAPS = 0.2  # share of a subject's maps that is individual
BASELINE, SIZE = 1000.0, 10.0  # mean of a brain voxel, and the amplitude of patterns
DRIFT, NOISE = 15.0, 10.0


@dataclasses.dataclass(frozen=True)
class PlantedSpec:
    """Settings of synthetic fMRI: the fields of `config.data.synthetic_fmri`."""

    signal: Annotated[float, kinds.number(0, 1)]
    subjects: Annotated[int, kinds.whole(1, 1000)]
    stories: Annotated[int, kinds.whole(1, 1000)]
    heard: Annotated[int, kinds.whole(1, 1000)]
    frames: Annotated[int, kinds.whole(10, 10_000)]
    grid: Annotated[tuple[int, int, int], kinds.grid()]
    vocabulary: Annotated[int, kinds.whole(20, 100_000)]
    groups: Annotated[int, kinds.whole(1, 1000)]
    drift: Annotated[float, kinds.number(0, 1e6)]
    lag_tr: Annotated[int, kinds.whole(0, 100)]
    seed: Annotated[int, kinds.whole(0)]
    folder: Annotated[str, kinds.place(local=True)] = ""

    def __post_init__(self) -> None:
        if self.heard > self.stories:
            raise UserError(
                f"data.synthetic_fmri.heard is {self.heard}; expected at most data.synthetic_fmri.stories "
                f"({self.stories})."
            )
        if self.vocabulary < 20 * self.groups:
            raise UserError(
                f"data.synthetic_fmri.vocabulary is {self.vocabulary} for {self.groups} groups; expected at least 20 "
                "words for each group."
            )


def write_planted(root: Path, spec: PlantedSpec) -> None:
    """Write synthetic fMRI to the BIDS folder `root`. The stories do not depend on `signal` or `drift`."""
    words, stories = _texts(spec)
    write_description(root, "planted stories")
    rng = np.random.default_rng([spec.seed, 1])
    latent = rng.standard_normal((spec.vocabulary, LATENT_WIDTH))
    shared = _maps(spec.grid, rng)
    brain = _brain(spec.grid)
    names = [f"story{number + 1:02d}" for number in range(spec.stories)]
    for name, story in zip(names, stories, strict=True):
        write_transcript(root / "stimuli" / "gentle", name, _aligned(story, words, rng))
    heard = _who_hears_what(spec, rng)
    for subject in range(spec.subjects):
        own = np.sqrt(1 - OWN_MAPS) * shared + np.sqrt(OWN_MAPS) * _maps(spec.grid, rng)
        for number in heard[subject]:
            fresh = rng.standard_normal((len(stories[number][0]), LATENT_WIDTH))
            source = spec.signal * latent[stories[number][0]] + np.sqrt(1 - spec.signal**2) * fresh
            volumes = _volumes(spec, source, stories[number][1], own, brain, rng, (subject, number))
            file = f"{names[number]}_audio.wav"
            seconds = spec.frames * TR
            events = [(MUSIC, ONSET - MUSIC - 0.5, "music", file), (ONSET, seconds, "story", file)]
            write_scan(root, f"sub-{subject + 1:02d}", names[number], volumes, TR, events)


Story = tuple[np.ndarray, np.ndarray]  # word numbers [n], word onsets in seconds from the story's onset [n]


def _texts(spec: PlantedSpec) -> tuple[list[str], list[Story]]:
    """Draw and return the vocabulary and the stories (numbers and onsets of their words)."""
    rng = np.random.default_rng([spec.seed, 0])
    words = make_vocabulary(spec.vocabulary, rng)
    width = spec.vocabulary // spec.groups  # number of words of a group
    successors = np.stack([rng.choice(width, 4, replace=False) for _ in range(width)])
    stories = []
    for _ in range(spec.stories):
        begins = (np.arange(spec.frames) + rng.uniform(0.05, 0.95, spec.frames)) * TR
        begins = begins[rng.random(spec.frames) > 0.05]  # about one TR in twenty has no word
        numbers = [int(rng.integers(width))]
        for choice in rng.choice(4, len(begins) - 1, p=SUCCESSOR_PROBABILITIES):
            numbers.append(int(successors[numbers[-1], choice]))
        scene = np.arange(len(begins)) * spec.groups // len(begins)
        group = rng.permutation(spec.groups)[scene] if spec.groups > 1 else 0
        stories.append((width * group + np.array(numbers), begins))
    return words, stories


def _aligned(story: Story, words: list[str], rng: np.random.Generator) -> list[Aligned]:
    """Return the rows of a story's align.csv; the audio begins with the music."""
    rows: list[Aligned] = []
    lost = rng.random(len(story[0])) < UNALIGNED
    lost[[0, -1]] = False
    for number, begin, unknown in zip(*story, lost, strict=True):
        start = round(float(begin) + ONSET - MUSIC, 3)
        rows.append((words[number], "", None, None) if unknown else (words[number], words[number], start, start + 0.3))
    return rows


def _who_hears_what(spec: PlantedSpec, rng: np.random.Generator) -> list[np.ndarray]:
    """Return, for each subject, the numbers of the stories heard; all stories are about equally frequent."""
    order = itertools.chain.from_iterable(rng.permutation(spec.stories) for _ in itertools.count())
    found = []
    for _ in range(spec.subjects):
        own: list[int] = []
        while len(own) < spec.heard:
            number = int(next(order))
            own += [] if number in own else [number]
        found.append(np.sort(own))
    return found


def _maps(grid: tuple[int, int, int], rng: np.random.Generator) -> np.ndarray:
    """Draw smooth patterns of unit variance, `[LATENT_WIDTH, voxels]`: each the sum of six blobs at random places."""
    axes = np.stack(np.meshgrid(*map(np.arange, grid), indexing="ij"), -1).reshape(-1, 3)
    found = np.zeros((LATENT_WIDTH, len(axes)))
    for row in found:
        for _ in range(6):
            centre, width = rng.uniform(0, grid), rng.uniform(0.8, 1.8)
            row += rng.standard_normal() * np.exp(-((axes - centre) ** 2).sum(1) / (2 * width**2))
        row /= row.std() + 1e-9
    return found


def _brain(grid: tuple[int, int, int]) -> np.ndarray:
    """Return the brain mask, an ellipsoid; bool `[voxels]`."""
    axes = np.stack(np.meshgrid(*(np.linspace(-1, 1, n) for n in grid), indexing="ij"), -1)
    return ((axes**2).sum(-1) <= 1.6).reshape(-1)


def _volumes(
    spec: PlantedSpec, source: np.ndarray, begins: np.ndarray, maps: np.ndarray, brain: np.ndarray,
    rng: np.random.Generator, scan: tuple[int, int],
) -> np.ndarray:  # fmt: skip
    """Return one scan, int16 `[X, Y, Z, frames]`, of the latent vectors `source` `[words, LATENT_WIDTH]`.

    `begins` are the onsets of the words, `scan` the numbers of subject and story.
    """
    first = round(ONSET / TR)
    length = first + spec.frames + round(AFTER / TR) + spec.lag_tr
    drive = np.zeros((length + 1, LATENT_WIDTH))
    frame = np.floor((ONSET + begins) / TR + 1e-9).astype(int) + spec.lag_tr
    np.add.at(drive, frame, source)
    np.add.at(drive, frame + 1, BLURRED * source)
    time = np.linspace(-1, 1, length)[:, None]
    slow = rng.standard_normal((2, maps.shape[1]))
    values = SIZE * drive[:length] @ maps / np.sqrt(LATENT_WIDTH)
    values += DRIFT * (time * slow[0] + time**2 * slow[1])
    if spec.drift:  # from its own random stream, so that all else stays equal
        own = np.random.default_rng([spec.seed, 2, *scan])
        values += spec.drift * SIZE * drift(TR * np.arange(length), maps.shape[1], own)
    values += NOISE * rng.standard_normal(values.shape)
    values = np.where(brain, BASELINE + values, 20 + 0.1 * values)
    return np.ascontiguousarray(np.rint(values).astype(np.int16).T.reshape(*spec.grid, length))
