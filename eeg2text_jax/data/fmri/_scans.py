"""The settings for fMRI; the scans of a BIDS folder, and those to read, by names, sidecars and tables alone."""

import collections
import csv
import dataclasses
import itertools
import math
import os
import re
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from eeg2text_jax.base import kinds
from eeg2text_jax.base.errors import UserError, first_line
from eeg2text_jax.base.files import parse_json
from eeg2text_jax.base.stores.buckets import at_hand
from eeg2text_jax.data.source import is_pointer

# A table of events has `onset` and `duration` in seconds, `trial_type` (music, story, movie, ...) and `stim_file`. Only
# rows of type `story` are stories, but an audio file begins at the first row that names it: music before a story is in
# the same file.
#
# A transcript is `align.csv` of the aligner gentle, without header: word, aligned token, start and end (seconds of the
# audio). The times of a word that was not found are interpolated.

STORY = "story"
_EMPTY = ("", "n/a")
MOVED = 0.5  # seconds, less than half a TR; smaller shifts are ignored
FILE = "align.csv"
NEAR = 3  # TRs from a story's onset to the first word of a correct transcript, at most
# Onsets of first words, in seconds of the audio, where gentle's are far off (values of published code).
CORRECT_ONSETS = {"notthefallintact": (25.8,), "prettymouth": (21.0,), "merlin": (29.0, 29.15)}


@dataclasses.dataclass(frozen=True)
class Story:
    """A story played in a scan; times are seconds of the scan."""

    stimulus: str  # name of the audio file, without `_audio` and ending, and of its transcript
    onset: float
    duration: float
    audio_start: float  # when the audio file began
    moved: float = 0.0  # seconds that the story is later in the audio than by other tables

    def frames(self, tr: float) -> range:
        """Return the frames during the story, without lag; `tr` is the repetition time in seconds."""
        first = round(self.onset / tr)
        return range(first, first + round(self.duration / tr))


def read_stories(path: Path) -> tuple[Story, ...]:
    """Return the stories in a table of events, by onset.

    Raises UserError `KIND|SENTENCE` if the table or a story is missing, a row is unusable, or stories overlap.
    """
    audio_starts: dict[str, float] = {}
    rows = _rows(path)
    for row in rows:
        audio_starts[row["stim_file"]] = min(row["onset"], audio_starts.get(row["stim_file"], math.inf))
    stories = []
    for row in rows:
        if row["trial_type"] != STORY:
            continue
        if (file := row["stim_file"]) in _EMPTY:
            raise UserError(f"no audio named|a story in {path.name} names no audio file (stim_file)")
        if not file.isprintable():
            raise UserError(f"unreadable events|{path.name} names an audio file {file!r}, which is no name")
        name = (Path(file).name.rpartition(".")[0] or file).removesuffix("_audio")
        stories.append(Story(name, row["onset"], row["duration"], audio_starts[file]))
    if not stories:
        raise UserError(f"no story|{path.name} has no row of trial_type {STORY}")
    stories.sort(key=lambda story: story.onset)
    for before, after in itertools.pairwise(stories):
        if after.onset < before.onset + before.duration:
            what = f"the story at {after.onset:g} s begins before the one at {before.onset:g} s has ended"
            raise UserError(f"overlapping stories|in {path.name} {what}")
    return tuple(stories)


def _rows(path: Path) -> list[dict]:
    if absent := not_downloaded(path):
        raise UserError(f"events not downloaded|its table {path.name} {absent}")
    if not path.exists():
        raise UserError(f"no events|has no {path.name} beside it, which says when the story was played")
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            rows: list[dict[Any, Any]] = list(csv.DictReader(file, delimiter="\t", strict=True))
        for row in rows:
            if None in row or None in row.values():
                raise ValueError("its rows have unequal numbers of columns")
            for name in ("onset", "duration"):
                row[name] = float(row[name]) if row[name] not in _EMPTY else math.nan
            row.update({name: (row[name] or "").strip() for name in ("trial_type", "stim_file")})
            onset, duration = row["onset"], row["duration"]
            if row["trial_type"] == STORY and not (0 <= onset < 1e5 and 0 < duration < 1e5):
                raise ValueError(
                    f"a story has onset {onset} s (expected 0 or more) and duration {duration} s (above 0)"
                )
    except (OSError, ValueError, KeyError, TypeError, csv.Error) as error:
        what = f"{path.name} is no table of onset, duration, trial_type and stim_file ({first_line(error)})"
        raise UserError(f"unreadable events|{what}") from error
    return rows


def align_stories(scans: Sequence[tuple[Story, ...]]) -> list[tuple[Story, ...]]:
    """Return the stories of each scan, with `audio_start` corrected where a table contradicts most others.

    A story's place in the audio is the same in all scans. In Narratives, two subjects' tables have another one: the
    onset of the story was corrected, the row of the audio was not.
    """
    keyed = []  # each scan's stories with their keys: stimulus, and number among the stories of this stimulus
    for scan in scans:
        names = [story.stimulus for story in scan]
        keyed.append([((name, names[:i].count(name)), scan[i]) for i, name in enumerate(names)])
    places: dict[tuple[str, int], list[float]] = collections.defaultdict(list)
    for key, story in itertools.chain.from_iterable(keyed):
        places[key].append(round(story.onset - story.audio_start, 3))
    usual = {key: max(statistics.multimode(differences)) for key, differences in places.items()}
    return [tuple(_shifted(story, usual[key]) for key, story in scan) for scan in keyed]


def _shifted(story: Story, place: float) -> Story:
    """Return the story with its onset `place` seconds into the audio."""
    moved = story.onset - place - story.audio_start
    if abs(moved) < MOVED:
        return story
    return dataclasses.replace(story, audio_start=story.audio_start + moved, moved=moved)


@dataclasses.dataclass(frozen=True)
class Transcript:
    """The words of an audio file, and their onsets in seconds; NaN for words that were not found."""

    words: tuple[str, ...]
    starts: np.ndarray  # float64 [words]


def read_transcript(path: Path) -> Transcript:
    """Read `align.csv`. Raises UserError `KIND|SENTENCE` if it is missing or malformed, or no word has a time."""
    if absent := not_downloaded(path):
        raise UserError(f"transcript not downloaded|{path} {absent}")
    if not path.exists():
        raise UserError(f"no transcript|{path} is not there")
    words, starts = [], []
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file, strict=True)
            for row in reader:
                line = f"line {reader.line_num}"
                if len(row) != 4:
                    raise ValueError(f"{line} has {len(row)} columns")
                if any(ord(character) < 32 and not character.isspace() for cell in row for character in cell):
                    raise ValueError(f"{line} has a character that is no text")
                word, _, start, end = (cell.strip() for cell in row)
                if bool(start) != bool(end):
                    raise ValueError(f"{line} has a start without an end, or an end without a start")
                seconds = float(start) if start else math.nan
                if start and not (0 <= seconds <= float(end) < 1e5):
                    raise ValueError(f"{line} has the times {start} and {end}")
                words.append(" ".join(word.split()))
                starts.append(seconds)
    except (OSError, ValueError, csv.Error) as error:
        what = f"{path} is no table of word, token, start and end ({first_line(error)})"
        raise UserError(f"unreadable transcript|{what}") from error
    if not np.isfinite(starts).any():
        raise UserError(f"unreadable transcript|{path} has no word with a time")
    return Transcript(tuple(words), np.array(starts))


def correct_onsets(transcript: Transcript, stimulus: str, place: float, tr: float) -> tuple[Transcript, str]:
    """Return the transcript, with `CORRECT_ONSETS` of first words far from the story's onset `place`, and a note or "".

    Times are seconds of the audio `stimulus`.
    """
    timed = np.flatnonzero(np.isfinite(transcript.starts))
    first, starts = timed[0], transcript.starts.copy()
    if abs(starts[first] - place) <= NEAR * tr:
        return transcript, ""
    odd = f"the transcript of {stimulus} has its first word at {starts[first]:g} s of the audio, but the story "
    if stimulus not in CORRECT_ONSETS:
        return transcript, f"{odd}begins at {place:g} s: is it the transcript of this audio? It is used as it is."
    changed = []
    for index, better in zip(timed, CORRECT_ONSETS[stimulus], strict=False):
        if abs(starts[index] - place) > NEAR * tr:
            starts[index] = better
            changed.append(f"{transcript.words[index]!r} at {better:g} s")
    note = f"{odd}begins at {place:g} s; corrected: {', '.join(changed)}."
    return dataclasses.replace(transcript, starts=starts), note


def frame_texts(transcript: Transcript, story: Story, tr: float) -> list[str]:
    """Return the words that begin in each frame of a story, or "".

    A word at `t` seconds of the scan is in frame `floor(t / TR)`; a story's first or last word may begin up to half a
    TR outside of its frames, and is in the nearest one.
    """
    frames, starts = story.frames(tr), transcript.starts
    timed = np.flatnonzero(np.isfinite(starts))
    onsets = np.interp(np.arange(len(starts)), timed, starts[timed])  # at the ends those of the nearest known word
    words_by_frame: list[list[str]] = [[] for _ in frames]
    for word, start in zip(transcript.words, onsets, strict=True):
        seconds = story.audio_start + start
        index = math.floor(seconds / tr + 1e-9)
        inside = story.onset <= seconds < story.onset + story.duration
        if word and len(frames) and (inside or index in frames):
            words_by_frame[min(max(index - frames.start, 0), len(frames) - 1)].append(word)
    return [" ".join(words) for words in words_by_frame]


LISTED = "code/scan_exclude.json"  # of Narratives; this list alone may be missing
IMAGES = ("_bold.nii.gz", "_bold.nii")
_NAME = re.compile(r"(?P<subject>sub-[a-zA-Z0-9]+)_(?:.+_)?task-(?P<task>[a-zA-Z0-9]+)(?:_run-(?P<run>[0-9]+))?")


@dataclasses.dataclass(frozen=True)
class FmriSpec:
    """The fields of `config.data.fmri`, documented in `configs/default.py`; `grid` is (X, Y, Z)."""

    transcripts: Annotated[str, kinds.place()]
    tasks: Annotated[tuple[str, ...], kinds.many(kinds.text(empty=False), least=0)]
    grid: Annotated[tuple[int, int, int], kinds.grid()]
    exclude: Annotated[str, kinds.place()]
    runs: Annotated[str, kinds.one_of("first", "all")]
    window: Annotated[int, kinds.whole(1, 10_000)]
    stride: Annotated[int, kinds.whole(1, 10_000)]
    lag_tr: Annotated[int, kinds.whole(0, 1000)]
    detrend: Annotated[int, kinds.whole(0, 10)]
    clip: Annotated[float, kinds.number(0, 1000, above=True)]
    mask: Annotated[float, kinds.number(0, 1, below=True)]
    dtype: Annotated[str, kinds.one_of("float16", "float32")]
    same_text: Annotated[tuple[tuple[str, ...], ...], kinds.many(kinds.many(kinds.text(empty=False), least=2), least=0)]
    strict: Annotated[bool, kinds.flag()]

    def group_of(self, stimulus: str) -> str:
        """Return the first name of a stimulus's `same_text` group, else its own."""
        return next((names[0] for names in self.same_text if stimulus in names), stimulus)

    def features_are(self) -> str:
        """Return a description of the voxels' values."""
        trend = f"less a polynomial of degree {self.detrend}" if self.detrend else "less the mean"
        masked = f", 0 where the mean is below {self.mask:g} of its 98th percentile" if self.mask else ""
        return (
            f"{' x '.join(map(str, self.grid))} voxels, each over its run {trend} and over its standard deviation, cut "
            f"at +-{self.clip:g}{masked}; frame t + {self.lag_tr} with the words of TR t"
        )


@dataclasses.dataclass(frozen=True)
class Scan:
    """A run of a subject, with the stories played in it."""

    folder: Path
    stem: str  # file name up to `_bold`
    subject: str
    task: str
    run: str
    tr: float  # repetition time, seconds
    slices: int  # number of slices (Z) in the sidecar, 0 if unknown
    stories: tuple[Story, ...]
    problem: str = ""  # `KIND|SENTENCE` if the scan cannot be used

    @property
    def image(self) -> Path:
        """Path of the image; of the compressed one if neither exists."""
        paths = [self.folder / f"{self.stem}{ending}" for ending in IMAGES]
        return next((path for path in paths if os.path.lexists(path)), paths[0])


def window_starts(frames: range, length: int, stride: int) -> range:
    """Return the first frame of each window inside `frames`."""
    return range(frames.start, frames.stop - length + 1, stride)


def is_fmri(source: str) -> bool:
    """Return whether a source is a BIDS folder with functional images."""
    root = Path(source)
    return root.is_dir() and next(root.glob("sub-*/func/*_bold.*"), None) is not None


def find_scans(root: Path) -> list[Scan]:
    """Return the functional scans of a BIDS folder, by path."""
    names = (*IMAGES, "_bold.json")
    stems: dict[tuple[Path, str], None] = {}
    for path in sorted(root.glob("sub-*/func/*_bold.*")):
        ending = next((name for name in names if path.name.endswith(name)), "")
        if ending and _NAME.match(path.name):
            stems[path.parent, path.name.removesuffix(ending)] = None
    return [_read_scan(folder, stem) for folder, stem in stems]


def _read_scan(folder: Path, stem: str) -> Scan:
    name = _NAME.match(stem)
    scan = Scan(folder, stem, name["subject"], name["task"], name["run"] or "", 0.0, 0, ())
    sidecar = folder / f"{stem}_bold.json"
    what = f"its sidecar {sidecar.name}"
    try:
        if absent := not_downloaded(sidecar):
            raise UserError(f"sidecar not downloaded|{what} {absent}")
        if not sidecar.exists():
            raise UserError(f"no sidecar|has no {sidecar.name} beside it, which says how long a TR is")
        try:
            fields = parse_json(sidecar.read_text(encoding="utf8"))
            tr, slices = float(fields["RepetitionTime"]), len(fields.get("SliceTiming", ()))
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise UserError(f"unreadable sidecar|{what} does not say how long a TR is ({first_line(error)})") from error
        scan = dataclasses.replace(scan, slices=slices)
        if not 0.1 <= tr <= 20:
            raise UserError(f"impossible TR|{what} says RepetitionTime {tr:g}; expected seconds, 0.1 to 20")
        scan = dataclasses.replace(scan, tr=tr)
        return dataclasses.replace(scan, stories=read_stories(folder / f"{stem}_events.tsv"))
    except UserError as error:
        return dataclasses.replace(scan, problem=str(error))


def select(root: Path, scans: Sequence[Scan], spec: FmriSpec) -> tuple[list[Scan], dict[str, list[Scan]]]:
    """Return the scans on the grid (by the number of slices), and those left out by reason: excluded, further runs.

    Raises UserError if no scan is on the grid, a task does not exist, or the list of excluded scans is unreadable.
    """
    tasks = {scan.task for scan in scans}
    if unknown := [name for name in spec.tasks if name not in tasks]:
        known = ", ".join(sorted(tasks))
        raise UserError(f"data.fmri.tasks names {unknown[0]!r}, which {root} does not have; expected some of {known}.")
    on_grid = [scan for scan in scans if scan.slices in (0, spec.grid[2]) and scan.task in (spec.tasks or tasks)]
    if not on_grid:
        raise UserError(
            f"{root}: none of its {len(scans)} functional scans has {spec.grid[2]} slices, as in data.fmri.grid "
            f"({', '.join(map(str, spec.grid))}); set data.fmri.grid to the grid of the scans."
        )
    excluded = read_exclusions(root, at_hand(spec.exclude))
    wanted: list[Scan] = []
    left_out: dict[str, list[Scan]] = collections.defaultdict(list)
    usable = set()  # (subject, task) with a usable scan
    for scan in on_grid:
        if any(stem in scan.stem for stem in excluded):
            left_out["excluded by the data set's list"].append(scan)
        elif spec.runs == "first" and not scan.problem and (scan.subject, scan.task) in usable:
            left_out["a further run"].append(scan)
        else:
            wanted.append(scan)
            usable |= set() if scan.problem else {(scan.subject, scan.task)}
    return wanted, left_out


def read_exclusions(root: Path, name: str) -> list[str]:
    """Return parts of names of scans to exclude, from JSON (task -> subject -> names).

    Raises UserError if the file is no such list, is not downloaded, or is missing and not the default one.
    """
    path = root / name
    if absent := not_downloaded(path):
        raise UserError(f"{path}: {absent}; fetch it, or set data.fmri.exclude='' to leave no scan out.")
    if name not in ("", LISTED) and not path.exists():
        raise UserError(f"{path}: there is no such file; set data.fmri.exclude to a list like code/scan_exclude.json.")
    if not name or not path.exists():
        return []
    try:
        exclusions = parse_json(path.read_text(encoding="utf8"))
        listed = [names for stems in exclusions.values() for names in stems.values()]
        for names in listed:
            if not isinstance(names, list) or not all(isinstance(name, str) and name for name in names):
                raise ValueError(f"{names!r} where names of scans should be")
        return [name for names in listed for name in names]
    except (OSError, ValueError, AttributeError, TypeError) as error:
        raise UserError(
            f"{path}: is no list of scans to leave out ({first_line(error)}); expected JSON, task -> subject -> names."
        ) from error


def not_here(image: Path) -> str:
    """Return the problem `KIND|SENTENCE` of an image that is missing or not downloaded, or ""."""
    if absent := not_downloaded(image):
        return f"not downloaded|{absent}"
    return "" if image.exists() else "no image|has no image beside its sidecar"


def not_downloaded(path: Path) -> str:
    """Return what stands in place of a file that is not downloaded, as a predicate, or ""."""
    if path.exists():
        return "is a pointer to a file that is not downloaded" if is_pointer(path) else ""
    return "is a link to a file that is not downloaded" if path.is_symlink() else ""
