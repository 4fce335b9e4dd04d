"""Synthetic EEG features, waves, fMRI of stories and raw recordings, with adjustable information about the words.

Sentences are random walks over artificial words with four likely successors each, so that a language model predicts
about half of them, and teacher-forced scores exceed free-running ones as with real text. A word's features are its
latent vector times a matrix of the subject. With `signal` below 1 a part of the vector is drawn anew each time; means
and covariances stay equal, so null data (`signal=0`) differ in information alone.
"""

import csv
import dataclasses
import itertools
import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from eeg2text_jax.base import kinds
from eeg2text_jax.base.errors import UserError
from eeg2text_jax.base.packages import library
from eeg2text_jax.data.raw.find import RawSpec
from eeg2text_jax.data.source import Sample, Source

ORDERS = ("random", "blocks", "same_for_all")  # values of data.synthetic.order
WORD_SECONDS, PAUSE = 0.4, 1.6  # seconds of a word, and between sentences
SLOWEST = 0.05  # Hz, highest frequency of the drift
SOURCES = 6  # slow components whose mixture is a feature's drift
POPS_PER_MINUTE, POP_SIZE, POP_SECONDS = 0.5, 3.0, 60.0  # electrode pops: rate, size, time constant of the decay
REFERENCE = 0.5  # standard deviation of a recording's constant shifts


def drift(times: np.ndarray, n_features: int, rng: np.random.Generator) -> np.ndarray:
    """Draw a recording's drift at `times` (seconds), float64 `[T, F]`, of variance about 1 without pops.

    The sum of mixed sources with 1/f power below `SLOWEST`, electrode pops (decaying jumps of one feature in ten), and
    a constant shift, as by a new reference.
    """
    seconds = float(times.max()) + 1
    frequency = np.arange(1, max(2, int(SLOWEST * 2 * seconds))) / (2 * seconds)
    size = 1 / np.sqrt(frequency)
    phase = rng.uniform(0, 2 * np.pi, (SOURCES, len(frequency)))
    angle = 2 * np.pi * frequency * times[:, None, None] + phase
    sources = (np.cos(angle) * size).sum(2) * np.sqrt(2 / np.sum(size**2))  # --> [T, SOURCES]
    slow = sources @ rng.standard_normal((SOURCES, n_features)) / np.sqrt(SOURCES)
    for begin in rng.uniform(0, seconds, rng.poisson(POPS_PER_MINUTE * seconds / 60)):
        after = np.where(times >= begin, np.exp(-np.maximum(times - begin, 0) / POP_SECONDS), 0)
        slow += POP_SIZE * after[:, None] * (rng.random(n_features) < 0.1) * rng.standard_normal(n_features)
    return slow + REFERENCE * rng.standard_normal(n_features)


SUCCESSOR_PROBABILITIES = (0.55, 0.25, 0.15, 0.05)  # of a word's four successors
SENTENCE_WORDS = (4, 20)  # fewest and most
LATENT_WIDTH = 32
TRIES = 20  # sentences are drawn for each that is wanted, as they must be distinct
SUBJECT_MIXING = 0.3  # individual share of a subject's mixing matrix
SENSOR_NOISE = 0.3  # standard deviation; features have one of about 1


@dataclasses.dataclass(frozen=True)
class SyntheticSpec:
    """The fields of `config.data.synthetic`."""

    signal: Annotated[float, kinds.number(0, 1)]
    sentences: Annotated[int, kinds.whole(1, 10_000_000)]
    subjects: Annotated[int, kinds.whole(1, 100_000)]
    tasks: Annotated[int, kinds.whole(1, 100_000)]
    features: Annotated[int, kinds.whole(1, 1_000_000)]
    vocabulary: Annotated[int, kinds.whole(20, 100_000)]
    groups: Annotated[int, kinds.whole(1, 1000)]
    order: Annotated[str, kinds.one_of(*ORDERS)]
    drift: Annotated[float, kinds.number(0, 1e6)]
    seed: Annotated[int, kinds.whole(0)]

    def __post_init__(self) -> None:
        _check_groups("synthetic", self)


def _check_groups(section: str, spec: "SyntheticSpec | PlantedSpec") -> None:
    if spec.vocabulary < 20 * spec.groups:
        what = f"data.{section}.vocabulary is {spec.vocabulary} for {spec.groups} groups"
        raise UserError(f"{what}; expected at least 20 words for each group.")


def make_vocabulary(size: int, rng: np.random.Generator) -> list[str]:
    """Return distinct pronounceable words of two or three syllables."""
    consonants, vowels = list("bdfgklmnprstvz"), list("aeiou")
    words: dict[str, None] = {}
    while len(words) < size:
        syllables = rng.integers(2, 4)
        words["".join(rng.choice(consonants) + rng.choice(vowels) for _ in range(syllables))] = None
    return list(words)


def make_sentences(spec: SyntheticSpec, rng: np.random.Generator) -> list[np.ndarray]:
    """Draw distinct sentences, each as word numbers `[W]`."""
    successors = np.stack([rng.choice(spec.vocabulary, 4, replace=False) for _ in range(spec.vocabulary)])
    tries, longest = TRIES * spec.sentences, SENTENCE_WORDS[1]
    lengths = rng.integers(SENTENCE_WORDS[0], longest + 1, tries)
    words = np.empty((tries, longest), int)
    words[:, 0] = rng.integers(spec.vocabulary, size=tries)
    choices = np.searchsorted(np.cumsum(SUCCESSOR_PROBABILITIES)[:-1], rng.random((tries, longest)))
    for place in range(1, longest):
        words[:, place] = successors[words[:, place - 1], choices[:, place]]
    distinct = dict.fromkeys(tuple(row[:length]) for row, length in zip(words.tolist(), lengths, strict=True))
    if len(distinct) >= spec.sentences:
        return [np.array(sentence) for sentence in itertools.islice(distinct, spec.sentences)]
    raise UserError(
        f"data.synthetic.vocabulary={spec.vocabulary} is too small for {spec.sentences} distinct sentences; "
        "raise it or ask for fewer sentences."
    )


def grouped_sentences(spec: SyntheticSpec, rng: np.random.Generator) -> list[np.ndarray]:
    """Draw sentences as `make_sentences` does; groups take turns and share no words."""
    if spec.groups == 1:
        return make_sentences(spec, rng)
    words, many = spec.vocabulary // spec.groups, -(-spec.sentences // spec.groups)
    part = dataclasses.replace(spec, groups=1, vocabulary=words, sentences=many)
    by_group = [[words * g + sentence for sentence in make_sentences(part, rng)] for g in range(spec.groups)]
    return [by_group[i % spec.groups][i // spec.groups] for i in range(spec.sentences)]


def synthetic_samples(spec: SyntheticSpec) -> Iterator[Sample]:
    """Yield the samples: each subject reads all sentences, in one recording per task; tasks take them in turn.

    The sentences do not depend on `signal` or `drift`.
    """
    text_rng = np.random.default_rng([spec.seed, 0])
    vocabulary = make_vocabulary(spec.vocabulary, text_rng)
    sentences = grouped_sentences(spec, text_rng)
    n_words, read = np.array([len(sentence) for sentence in sentences]), np.concatenate(sentences)
    rng = np.random.default_rng([spec.seed, 1])
    latent = rng.standard_normal((spec.vocabulary, LATENT_WIDTH))
    shared = rng.standard_normal((LATENT_WIDTH, spec.features))
    for subject in range(spec.subjects):
        of_subject = rng.standard_normal((LATENT_WIDTH, spec.features))
        mixing = np.sqrt(1 - SUBJECT_MIXING) * shared + np.sqrt(SUBJECT_MIXING) * of_subject
        offset = 0.5 * rng.standard_normal(spec.features)
        fresh = rng.standard_normal((len(read), LATENT_WIDTH))
        source = spec.signal * latent[read] + np.sqrt(1 - spec.signal**2) * fresh
        noise = SENSOR_NOISE * rng.standard_normal((len(read), spec.features))
        features = source @ mixing / np.sqrt(LATENT_WIDTH) + offset + noise
        onset, duration, slow = _times(spec, subject, n_words)
        features = features + spec.drift * slow
        who = f"S{subject + 1:02d}"
        for index, (sentence, end) in enumerate(zip(sentences, np.cumsum(n_words), strict=True)):
            text, task = " ".join(vocabulary[word] for word in sentence), f"T{index % spec.tasks + 1}"
            about = (text, who, task, index // spec.tasks, f"{who}/{task}", float(onset[index]), float(duration[index]))
            yield Sample(features[end - len(sentence) : end], *about)


CARRIERS, WHITE = (4, 16), 0.3  # fewest and most waves of a word in a channel; standard deviation of noise
TEN_TWENTY = {  # electrode -> place on a head of radius 1: right, front
    "Fp1": (-0.31, 0.95), "Fp2": (0.31, 0.95), "F7": (-0.81, 0.59), "F3": (-0.55, 0.67), "Fz": (0.0, 0.71),
    "F4": (0.55, 0.67), "F8": (0.81, 0.59), "T7": (-1.0, 0.0), "C3": (-0.71, 0.0), "Cz": (0.0, 0.0), "C4": (0.71, 0.0),
    "T8": (1.0, 0.0), "P7": (-0.81, -0.59), "P3": (-0.55, -0.67), "Pz": (0.0, -0.71), "P4": (0.55, -0.67),
    "P8": (0.81, -0.59), "O1": (-0.31, -0.95), "O2": (0.31, -0.95),
}  # fmt: skip
HEAD = 0.09  # metres, radius


def synthetic_waves(spec: SyntheticSpec, rate: float, seconds: float) -> Source:
    """Return synthetic waves of `spec.features` channels, `rate` a second; a word lasts `seconds`.

    It has waves of 1, 2, 3, ... periods, at most 16, whose amplitudes in a channel are features of `synthetic_samples`.
    """
    length, width = round(seconds * rate), spec.features
    carriers = min(CARRIERS[1], (length - 1) // 2)
    if carriers < CARRIERS[0]:
        raise UserError(
            f"data.raw.window is {seconds:g} s, the time of a synthetic word, and data.raw.resample {rate:g} Hz, which "
            f"makes {length} samples a word; expected at least {2 * CARRIERS[0] + 1}."
        )
    waves = np.cos(2 * np.pi * np.arange(1, carriers + 1)[:, None] * np.arange(length) / length)
    names = ([*TEN_TWENTY, *(f"E{i + 1}" for i in range(width))])[:width]

    def samples() -> Iterator[Sample]:
        rng = np.random.default_rng([spec.seed, 4])
        for sample in synthetic_samples(dataclasses.replace(spec, features=carriers * width)):
            moments = np.einsum("wkc,kt->wtc", sample.features.reshape(-1, carriers, width), waves).reshape(-1, width)
            moments += WHITE * rng.standard_normal(moments.shape)
            yield dataclasses.replace(sample, features=moments)

    about = {"sfreq": rate, "channels": names}
    if width <= len(TEN_TWENTY):
        where = {name: (x, y, max(0, 1 - x * x - y * y) ** 0.5) for name, (x, y) in TEN_TWENTY.items()}
        about["electrodes"] = [(name, *(HEAD * np.array(where[name])).round(5).tolist()) for name in names]
    provenance = {"source": "synthetic", **dataclasses.asdict(spec), **about}
    return Source(samples(), provenance, f"synthetic waves of {width} channels, {rate:g} samples a second")


def synthetic_source(spec: SyntheticSpec, raw: RawSpec) -> Source:
    """Return synthetic features of words, or waves if `raw` asks for them.

    Raises UserError if that takes more memory than this machine has.
    """
    longest = SENTENCE_WORDS[1]
    drawn = TRIES * (40 * longest + 150)  # bytes a sentence, of drawn word numbers
    words = 0.5 * sum(SENTENCE_WORDS) * 8 * (4 * spec.features + 3 * LATENT_WIDTH)  # features of one subject
    needed, there = spec.sentences * (drawn + words), os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if needed > there:
        raise UserError(
            f"data.synthetic.sentences is {spec.sentences} with {spec.features} features a word, which takes about "
            f"{needed / 1e9:.0f} GB of memory to make; expected at most {there / 1e9:.0f} GB, which this machine has; "
            "take fewer sentences or features."
        )
    if raw.is_waves:
        return synthetic_waves(spec, raw.resample or 64.0, raw.window)
    provenance = {"source": "synthetic", **dataclasses.asdict(spec)}
    return Source(synthetic_samples(spec), provenance, f"{spec.features} synthetic features")


def _times(spec: SyntheticSpec, subject: int, n_words: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return onset and duration of sentences, float64 `[n]`, and the drift at all words, `[sum W, F]`."""
    onset, duration = np.zeros(len(n_words)), np.zeros(len(n_words))
    sentence_of = np.repeat(np.arange(len(n_words)), n_words)  # [sum W]
    place = np.concatenate([np.arange(n) for n in n_words])  # [sum W], in the sentence
    slow = np.zeros((len(sentence_of), spec.features))
    for task in range(spec.tasks):
        numbers = np.arange(task, len(n_words), spec.tasks)
        if not len(numbers):
            continue
        per_recording = () if spec.order == "same_for_all" else (2 + subject,)
        rng = np.random.default_rng([spec.seed, task, *per_recording])
        shown = numbers[rng.permutation(len(numbers))]
        if spec.order == "blocks":  # one group after the other
            group = shown % spec.groups
            shown = shown[np.argsort(rng.permutation(group.max() + 1)[group], kind="stable")]
        duration[shown] = WORD_SECONDS * n_words[shown]
        onset[shown] = np.concatenate([[0.0], np.cumsum(duration[shown] + PAUSE)[:-1]])
        if spec.drift:
            inside = sentence_of % spec.tasks == task
            times = onset[sentence_of[inside]] + WORD_SECONDS * place[inside]
            slow[inside] = drift(times, spec.features, np.random.default_rng([spec.seed, 3, task, subject]))
    return onset, duration, slow


# Synthetic fMRI of stories is a BIDS folder. Stories are random walks as above, at about one word per TR. Maps that the
# subjects partly share turn a word's latent vector into a smooth voxel pattern `lag_tr` frames later, and a weaker one
# a frame after it, besides drift and noise. `groups` divides a story into scenes with disjoint vocabularies. Music
# precedes a story, and some words have no time, as with a real aligner.

Event = tuple[float, float, str, str]  # onset, duration, trial_type, stim_file
Aligned = tuple[str, str, float | None, float | None]  # word, token, start, end (None: not found)


def write_description(root: Path, name: str) -> None:
    """Create a folder with the file that marks it as BIDS."""
    root.mkdir(parents=True, exist_ok=True)
    (root / "dataset_description.json").write_text(json.dumps({"Name": name, "BIDSVersion": "1.2.0"}))


def write_scan(
    root: Path, subject: str, task: str, volumes: np.ndarray, tr: float, events: Sequence[Event], *, run: str = "",
    packed: bool = True,
) -> Path:  # fmt: skip
    """Write `volumes` `[X, Y, Z, frames]` (`packed`: `.nii.gz`), sidecar and events; return the image."""
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
    rows = [("onset", "duration", "trial_type", "stim_file"), *events]
    with (folder / f"{stem}_events.tsv").open("w", encoding="utf8", newline="") as file:
        csv.writer(file, delimiter="\t", lineterminator="\n").writerows(rows)
    return path


def write_transcript(folder: Path, stimulus: str, words: Sequence[Aligned]) -> Path:
    """Write `STIMULUS/align.csv` below a folder."""
    path = folder / stimulus / "align.csv"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows(words)
    return path


TR = 1.5
MUSIC, ONSET, AFTER = 1.5, 6.0, 12.0  # seconds: onsets of music and story, rest after it
UNALIGNED = 0.03  # share of words without a time
BLURRED = 0.3  # strength of a pattern one frame later
OWN_MAPS = 0.2  # individual share of a subject's maps
BASELINE, SIZE = 1000.0, 10.0  # mean of a brain voxel, amplitude of patterns
DRIFT, NOISE = 15.0, 10.0


@dataclasses.dataclass(frozen=True)
class PlantedSpec:
    """The fields of `config.data.synthetic_fmri`."""

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
                f"data.synthetic_fmri.heard is {self.heard}; expected at most its stories ({self.stories})."
            )
        _check_groups("synthetic_fmri", self)


def write_planted(root: Path, spec: PlantedSpec) -> None:
    """Write synthetic fMRI as a BIDS folder. The stories do not depend on `signal` or `drift`."""
    words, stories = _texts(spec)
    write_description(root, "planted stories")
    rng = np.random.default_rng([spec.seed, 1])
    latent = rng.standard_normal((spec.vocabulary, LATENT_WIDTH))
    shared = _maps(spec.grid, rng)
    axes = np.stack(np.meshgrid(*(np.linspace(-1, 1, n) for n in spec.grid), indexing="ij"), -1)
    brain = ((axes**2).sum(-1) <= 1.6).reshape(-1)  # an ellipsoid
    names = [f"story{number + 1:02d}" for number in range(spec.stories)]
    for name, story in zip(names, stories, strict=True):
        write_transcript(root / "stimuli" / "gentle", name, _aligned(story, words, rng))
    heard = _who_hears_what(spec, rng)
    for subject in range(spec.subjects):
        maps = np.sqrt(1 - OWN_MAPS) * shared + np.sqrt(OWN_MAPS) * _maps(spec.grid, rng)
        for number in heard[subject]:
            spoken, begins = stories[number]
            fresh = rng.standard_normal((len(spoken), LATENT_WIDTH))
            source = spec.signal * latent[spoken] + np.sqrt(1 - spec.signal**2) * fresh
            volumes = _volumes(spec, source, begins, maps, brain, rng, (subject, number))
            file = f"{names[number]}_audio.wav"
            events = [(MUSIC, ONSET - MUSIC - 0.5, "music", file), (ONSET, spec.frames * TR, "story", file)]
            write_scan(root, f"sub-{subject + 1:02d}", names[number], volumes, TR, events)


Story = tuple[np.ndarray, np.ndarray]  # words' numbers, and onsets in seconds of the story [n]


def _texts(spec: PlantedSpec) -> tuple[list[str], list[Story]]:
    rng = np.random.default_rng([spec.seed, 0])
    words = make_vocabulary(spec.vocabulary, rng)
    width = spec.vocabulary // spec.groups  # words of a group
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
    """Return the rows of align.csv; the audio begins with the music."""
    rows: list[Aligned] = []
    lost = rng.random(len(story[0])) < UNALIGNED
    lost[[0, -1]] = False
    for number, begin, unknown in zip(*story, lost, strict=True):
        start = round(float(begin) + ONSET - MUSIC, 3)
        rows.append((words[number], "", None, None) if unknown else (words[number], words[number], start, start + 0.3))
    return rows


def _who_hears_what(spec: PlantedSpec, rng: np.random.Generator) -> list[np.ndarray]:
    """Return the numbers of the stories that each subject hears, all about equally often."""
    order = itertools.chain.from_iterable(rng.permutation(spec.stories) for _ in itertools.count())
    heard = []
    for _ in range(spec.subjects):
        stories: list[int] = []
        while len(stories) < spec.heard:
            number = int(next(order))
            stories += [] if number in stories else [number]
        heard.append(np.sort(stories))
    return heard


def _maps(grid: tuple[int, int, int], rng: np.random.Generator) -> np.ndarray:
    """Draw smooth patterns of unit variance, `[LATENT_WIDTH, voxels]`: each a sum of six blobs."""
    axes = np.stack(np.meshgrid(*map(np.arange, grid), indexing="ij"), -1).reshape(-1, 3)
    maps = np.zeros((LATENT_WIDTH, len(axes)))
    for row in maps:
        for _ in range(6):
            centre, width = rng.uniform(0, grid), rng.uniform(0.8, 1.8)
            row += rng.standard_normal() * np.exp(-((axes - centre) ** 2).sum(1) / (2 * width**2))
        row /= row.std() + 1e-9
    return maps


def _volumes(
    spec: PlantedSpec, source: np.ndarray, begins: np.ndarray, maps: np.ndarray, brain: np.ndarray,
    rng: np.random.Generator, scan: tuple[int, int],
) -> np.ndarray:  # fmt: skip
    """Return a scan, int16 `[X, Y, Z, frames]`, of words with latent vectors `source` and onsets `begins`.

    `scan` are the numbers of subject and story.
    """
    length = round(ONSET / TR) + spec.frames + round(AFTER / TR) + spec.lag_tr
    drive = np.zeros((length + 1, LATENT_WIDTH))
    frame = np.floor((ONSET + begins) / TR + 1e-9).astype(int) + spec.lag_tr
    np.add.at(drive, frame, source)
    np.add.at(drive, frame + 1, BLURRED * source)
    time = np.linspace(-1, 1, length)[:, None]
    slow = rng.standard_normal((2, maps.shape[1]))
    values = SIZE * drive[:length] @ maps / np.sqrt(LATENT_WIDTH)
    values += DRIFT * (time * slow[0] + time**2 * slow[1])
    if spec.drift:  # of its own random stream, so that all else stays equal
        drift_rng = np.random.default_rng([spec.seed, 2, *scan])
        values += spec.drift * SIZE * drift(TR * np.arange(length), maps.shape[1], drift_rng)
    values += NOISE * rng.standard_normal(values.shape)
    values = np.where(brain, BASELINE + values, 20 + 0.1 * values)
    return np.ascontiguousarray(np.rint(values).astype(np.int16).T.reshape(*spec.grid, length))


# Synthetic raw EEG is pink noise in which each word has channels and bands of higher amplitude.

VOCABULARY = ("amber", "brook", "cedar", "delta", "ember", "field", "grove", "haven", "isle", "jetty", "knoll", "larch")
BANDS = ((13.5, 18.0), (18.5, 30.0), (30.5, 40.0), (40.0, 49.5))  # Hz, those of ZuCo whose filters settle within a word
CHANNELS, RATE = ("Fz", "Cz", "Pz", "Oz", "C3", "C4"), 128.0  # Hz
WORD, PAUSE_SECONDS = 0.5, 1.5  # seconds of a word, and between sentences


@dataclasses.dataclass(frozen=True)
class Plan:
    """The sentences and onsets of a recording, equal for all subjects."""

    sentences: tuple[tuple[int, ...], ...]  # indices in VOCABULARY
    begins: tuple[float, ...]  # seconds

    @classmethod
    def draw(cls, sentences: int, seed: int) -> "Plan":
        rng = np.random.default_rng([seed, 0])
        words: dict[tuple[int, ...], None] = {}
        while len(words) < sentences:
            words[tuple(map(int, rng.integers(len(VOCABULARY), size=rng.integers(4, 8))))] = None
        lengths = np.array([len(sentence) * WORD + PAUSE_SECONDS for sentence in words])
        begins = PAUSE_SECONDS + np.concatenate([[0.0], np.cumsum(lengths)[:-1]])
        return cls(tuple(words), tuple(map(float, begins)))

    @property
    def seconds(self) -> float:
        return self.end(len(self.sentences) - 1) + PAUSE_SECONDS

    def end(self, i: int) -> float:
        return self.begins[i] + WORD * len(self.sentences[i])

    def text(self, i: int) -> str:
        return " ".join(VOCABULARY[word] for word in self.sentences[i])

    def word_times(self, i: int) -> list[float]:
        return [self.begins[i] + WORD * place for place in range(len(self.sentences[i]))]


def voltages(plan: Plan, subject: int, *, planted: bool, seed: int = 0) -> np.ndarray:
    """Return a recording in volts, `[channels, samples]`; if not `planted`, each word has the code of a random word."""
    channels = len(CHANNELS)
    codes = np.random.default_rng([seed, 1]).random((len(VOCABULARY), len(BANDS), channels)) < 0.4
    rng = np.random.default_rng([seed, 2, subject])
    n = int(plan.seconds * RATE)
    spectrum = np.fft.rfft(rng.standard_normal((channels, n)))
    spectrum /= np.sqrt(np.maximum(np.fft.rfftfreq(n, 1 / RATE), 0.5))  # power falls as 1/f
    noise = np.fft.irfft(spectrum, n)
    volts = 10 * noise / noise.std()
    time = np.arange(int(WORD * RATE)) / RATE
    swell = np.sin(np.pi * time / WORD)
    for i, sentence in enumerate(plan.sentences):
        for word, begin in zip(sentence, plan.word_times(i), strict=True):
            low, high = np.transpose(BANDS)[:, :, None]
            pitch = rng.uniform(low, high, (len(BANDS), channels))
            waves = np.sin(2 * np.pi * (pitch[..., None] * time + rng.random((len(BANDS), channels, 1))))
            code = codes[word] if planted else rng.permutation(codes.reshape(len(codes), -1))[0].reshape(codes[0].shape)
            start = round(begin * RATE)
            volts[:, start : start + len(time)] += 12 * swell * (code[..., None] * waves).sum(0)
    return volts * 1e-6


def write_recordings(
    folder: Path, how: str, *, subjects: int = 4, sentences: int = 60, planted: bool = True, scale: float = 1.0,
    seed: int = 0,
) -> list[str]:  # fmt: skip
    """Write recordings with marked sentences.

    Args:
      folder: created if missing.
      how: "fif" (texts in annotations), "edf" (texts in a table of events), "brainvision" (codes, and a table of texts
        by trial) or "bids" (codes with durations of zero in tables with byte order marks, texts by code).
      scale: factor of all voltages.

    Returns:
      The overrides of `config.data.raw` that `eeg2text prepare` and `run` need.
    """
    import mne  # an optional package

    folder.mkdir(parents=True, exist_ok=True)
    plan = Plan.draw(sentences, seed)
    for subject in range(subjects):
        volts = scale * voltages(plan, subject, planted=planted, seed=seed)
        info = mne.create_info(list(CHANNELS), RATE, "eeg")
        _write(folder, f"S{subject + 1}", how, mne.io.RawArray(volts, info, verbose="error"), plan)
    if how in ("brainvision", "bids"):
        key = "trial" if how == "brainvision" else "code"
        lines = [f"{key}\ttext", *(f"{i + (1 if key == 'trial' else 1000)}\t{plan.text(i)}" for i in range(sentences))]
        (folder / "texts.tsv").write_text("\n".join(lines) + "\n")
    fields = {"fif": {"word": "a word"}, "edf": {"word": "word"}}
    fields["brainvision"] = {"begin": "begin", "end": "end", "word": "word", "texts": str(folder / "texts.tsv")}
    fields["bids"] = {**fields["brainvision"], "begin": "1*", "end": "9"}
    return [f"--config.data.raw.{name}={value}" for name, value in fields[how].items()]


def _write(folder: Path, subject: str, how: str, raw: Any, plan: Plan) -> None:
    marks: list[tuple[float, float, str, int]] = []  # onset, duration, kind, number of the sentence
    for i in range(len(plan.sentences)):
        marks.append((plan.begins[i], plan.end(i) - plan.begins[i], "sentence", i))
        marks += [(time, WORD, "word", i) for time in plan.word_times(i)]
        marks.append((plan.end(i), 0.0, "end", i))
    table, bom = folder / f"{subject}_events.tsv", ""  # `bom`: a byte order mark
    if how in ("fif", "edf"):
        marks = [mark for mark in marks if mark[2] != "end"]
    if how == "fif":
        import mne

        texts = [plan.text(i) if kind == "sentence" else "a word" for *_, kind, i in marks]
        raw.set_annotations(mne.Annotations(*list(zip(*marks, strict=True))[:2], texts))
        raw.save(folder / f"{subject}_raw.fif", verbose="error", fmt="double")
        return
    if how == "bids":
        import mne_bids

        raw.info["line_freq"] = 50
        path = mne_bids.BIDSPath(subject=subject, task="reading", datatype="eeg", root=folder)
        mne_bids.write_raw_bids(raw, path, format="BrainVision", allow_preload=True, overwrite=True, verbose="error")
        table, bom = path.copy().update(suffix="events", extension=".tsv").fpath, "\ufeff"
    else:
        raw.export(folder / f"{subject}.{'edf' if how == 'edf' else 'vhdr'}", verbose="error")
    if how == "edf":
        cells = [(*mark[:3], plan.text(mark[3]) if mark[2] == "sentence" else "n/a") for mark in marks]
    else:  # codes with durations of 0, as triggers have
        codes = [{"sentence": "begin"} if how == "brainvision" else {"sentence": 1000 + i, "end": 9} for *_, i in marks]
        cells = [(onset, 0.0, code.get(kind, kind)) for (onset, _, kind, _), code in zip(marks, codes, strict=True)]
    header = ("onset", "duration", "trial_type", "text") if how == "edf" else ("onset", "duration", "value")
    table.write_text(bom + "".join("\t".join(map(str, row)) + "\n" for row in (header, *cells)), encoding="utf8")
