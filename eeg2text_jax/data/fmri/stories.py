"""The stories played in a scan, from its table of events, and their words, from transcripts.

A table of events has `onset` and `duration` in seconds, `trial_type` (music, story, movie, ...) and `stim_file`. Rows
`story` are read. The audio file begins at the first row that names it: music before a story is in the same file. Every
scan has its own table, because some scans began late.

A transcript is `align.csv` of the aligner gentle, without header: the word, the aligned token (`<unk>` if unknown),
start and end in seconds of the audio. A word that was not found in the audio has no times; it is kept, at a time
interpolated between its neighbours, so that the text stays complete.
"""

import csv
import dataclasses
import itertools
import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from eeg2text_jax.errors import UserError, first_line

STORY = "story"
_EMPTY = ("", "n/a")
MOVED = 0.5  # seconds; a smaller shift, of less than half a TR, does not count
FILE = "align.csv"
NEAR = 3  # largest distance in TRs of a first word from its story's onset
# Corrected onsets of first words, in seconds of the audio, where gentle is far off (values of public readers).
MENDED = {"notthefallintact": (25.8,), "prettymouth": (21.0,), "merlin": (29.0, 29.15)}


@dataclasses.dataclass(frozen=True)
class Story:
    """One row `story`; all times are seconds of the scan."""

    stimulus: str  # name of the audio file without `_audio` and ending, and of its transcript
    onset: float
    duration: float
    audio_start: float  # when the audio file began
    moved: float = 0.0  # shift of the row against the other scans

    def frames(self, tr: float) -> range:
        """Return the scan's frames during the story, before any lag."""
        first = round(self.onset / tr)
        return range(first, first + round(self.duration / tr))


def read_stories(path: Path) -> tuple[Story, ...]:
    """Return the rows `story` of a table of events in order of time.

    Raises:
      UserError: there is no table or no story, a row is unusable, or stories overlap; as `kind|sentence`, because only
        this scan is left out.
    """
    rows = _rows(path)
    begun: dict[str, float] = {}
    for row in rows:
        begun[row["stim_file"]] = min(row["onset"], begun.get(row["stim_file"], math.inf))
    stories = []
    for row in rows:
        if row["trial_type"] != STORY:
            continue
        if row["stim_file"] in _EMPTY:
            raise UserError(
                f"no audio named|a story in {path.name} names no audio file (stim_file), so no transcript is its"
            )
        if not row["stim_file"].isprintable():
            raise UserError(f"unreadable events|{path.name} names an audio file {row['stim_file']!r}, which is no name")
        name = Path(row["stim_file"]).name.rpartition(".")[0] or row["stim_file"]
        stories.append(Story(name.removesuffix("_audio"), row["onset"], row["duration"], begun[row["stim_file"]]))
    if not stories:
        raise UserError(f"no story|{path.name} has no row of trial_type {STORY}")
    stories.sort(key=lambda story: story.onset)
    for before, after in itertools.pairwise(stories):
        if after.onset < before.onset + before.duration:
            raise UserError(
                f"overlapping stories|in {path.name} the story at {after.onset:g} s begins before the one at "
                f"{before.onset:g} s has ended"
            )
    return tuple(stories)


def _rows(path: Path) -> list[dict]:
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
            if row["trial_type"] == STORY and not (0 <= row["onset"] < 1e5 and 0 < row["duration"] < 1e5):
                raise ValueError(f"a story with onset {row['onset']} and duration {row['duration']}")
    except (OSError, ValueError, KeyError, TypeError, csv.Error) as error:
        raise UserError(
            f"unreadable events|{path.name} is no table of onset, duration, trial_type and stim_file "
            f"({first_line(error)})"
        ) from error
    return rows


def aligned(stories: Sequence[tuple[Story, ...]]) -> list[tuple[Story, ...]]:
    """Return the stories of many scans with corrected starts of their audio.

    A story has the same place in its audio in every scan. If a scan's rows state another place than most scans (in
    Narratives two subjects, whose story row alone was corrected), the story's row is taken as right and the start of
    the audio is shifted by `moved`.
    """
    places: dict[tuple[str, int], Counter[float]] = {}
    for number, story in _numbered(stories):
        places.setdefault((story.stimulus, number), Counter())[round(story.onset - story.audio_start, 3)] += 1
    usual = {key: max(found, key=lambda place: (found[place], place)) for key, found in places.items()}
    result = []
    for scan in stories:
        own = []
        for number, story in _numbered([scan]):
            moved = story.onset - usual[story.stimulus, number] - story.audio_start
            if abs(moved) >= MOVED:
                story = dataclasses.replace(story, audio_start=story.audio_start + moved, moved=moved)
            own.append(story)
        result.append(tuple(own))
    return result


def _numbered(stories: Sequence[tuple[Story, ...]]) -> list[tuple[int, Story]]:
    """Return each story with its number among those of its audio in the scan."""
    found = []
    for scan in stories:
        seen: Counter[str] = Counter()
        for story in scan:
            found.append((seen[story.stimulus], story))
            seen[story.stimulus] += 1
    return found


@dataclasses.dataclass(frozen=True)
class Transcript:
    """Words in order; `starts` float64 `[words]`, seconds of the audio, NaN for words that were not found."""

    words: tuple[str, ...]
    starts: np.ndarray

    def filled(self) -> np.ndarray:
        """Return the starts with unknown ones interpolated linearly; at the ends, the nearest known start."""
        known = np.flatnonzero(np.isfinite(self.starts))
        return np.interp(np.arange(len(self.starts)), known, self.starts[known])


def read_transcript(path: Path) -> Transcript:
    """Read `align.csv`. Raises UserError if it is missing, malformed, or no word has a time."""
    words, starts = [], []
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file, strict=True)
            for row in reader:
                if len(row) != 4:
                    raise ValueError(f"line {reader.line_num} has {len(row)} columns")
                if any(ord(character) < 32 and not character.isspace() for cell in row for character in cell):
                    raise ValueError(f"line {reader.line_num} has a character that is no text")
                word, _, start, end = (cell.strip() for cell in row)
                if bool(start) != bool(end):
                    raise ValueError(f"line {reader.line_num} has a start without an end, or an end without a start")
                seconds = float(start) if start else math.nan
                if start and not (0 <= seconds <= float(end) < 1e5):
                    raise ValueError(f"line {reader.line_num} has the times {start} and {end}")
                words.append(" ".join(word.split()))
                starts.append(seconds)
    except (OSError, ValueError, csv.Error) as error:
        raise UserError(
            f"unreadable transcript|{path} is no table of word, token, start and end ({first_line(error)})"
        ) from error
    if not np.isfinite(starts).any():
        raise UserError(f"unreadable transcript|{path} has no word with a time")
    return Transcript(tuple(words), np.array(starts))


def mended(transcript: Transcript, stimulus: str, place: float, tr: float) -> tuple[Transcript, str]:
    """Correct onsets of first words that are far from the story's onset, with the values of public readers.

    `stimulus` names the audio; `place` is the story's onset in seconds of the audio. Return the transcript, and a
    message on corrections and oddities, or "".
    """
    known = np.flatnonzero(np.isfinite(transcript.starts))
    first, starts = known[0], transcript.starts.copy()
    if abs(starts[first] - place) <= NEAR * tr:
        return transcript, ""
    found = f"the transcript of {stimulus} has its first word at {starts[first]:g} s of the audio, where the story "
    if stimulus not in MENDED:
        return transcript, f"{found}begins at {place:g} s: is it the transcript of this audio? It is used as it is."
    changed = []
    for index, better in zip(known, MENDED[stimulus], strict=False):
        if abs(starts[index] - place) > NEAR * tr:
            starts[index] = better
            changed.append(f"{transcript.words[index]!r} at {better:g} s")
    return dataclasses.replace(transcript, starts=starts), f"{found}begins at {place:g} s; taken: {', '.join(changed)}."


def texts(transcript: Transcript, story: Story, tr: float) -> list[str]:
    """Return the text of every frame of a story, "" for a frame in which no word begins.

    A word belongs to frame `floor(t / TR)`, `t` in seconds of the scan. Frames are whole TRs, so a story's first or
    last word may begin up to half a TR outside; it then belongs to the nearest frame.
    """
    frames = story.frames(tr)
    found: list[list[str]] = [[] for _ in frames]
    for word, start in zip(transcript.words, transcript.filled(), strict=True):
        seconds = story.audio_start + start
        index = math.floor(seconds / tr + 1e-9)
        inside = story.onset <= seconds < story.onset + story.duration
        if word and len(frames) and (inside or index in frames):
            found[min(max(index - frames.start, 0), len(frames) - 1)].append(word)
    return [" ".join(words) for words in found]
