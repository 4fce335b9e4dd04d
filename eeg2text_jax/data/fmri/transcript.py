"""Transcripts as the aligner gentle writes them: which word begins when in the audio, and which TR that is.

`align.csv` has no header and four columns: the word as in the transcript, the token it was aligned as (`<unk>` where
the aligner does not know it), start and end in seconds of the audio. Words that were not found in the audio have the
first column alone. They are kept, at times between those of their neighbours: a text without them has holes.
"""

import csv
import dataclasses
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from eeg2text_jax.data.fmri.stories import Story
from eeg2text_jax.errors import UserError, first_line

FILE = "align.csv"
NEAR = 3  # TRs: how far from its story's beginning a first word may begin
# Onsets of the first words in seconds of the audio where gentle's are far off, as public readers of the set have them.
MENDED = {"notthefallintact": (25.8,), "prettymouth": (21.0,), "merlin": (29.0, 29.15)}


@dataclasses.dataclass(frozen=True)
class Transcript:
    """Words in their order; `starts` float64 `[words]`, seconds of the audio, NaN where a word was not found in it."""

    words: tuple[str, ...]
    starts: np.ndarray

    def filled(self) -> np.ndarray:
        """The starts, those unknown on a line between their neighbours'; at either end, the nearest one's."""
        known = np.flatnonzero(np.isfinite(self.starts))
        return np.interp(np.arange(len(self.starts)), known, self.starts[known])


def read_transcript(path: Path) -> Transcript:
    """Reads `align.csv`.

    Raises:
      UserError: it is not there, not of four columns, or has a time that is none; no word has a time.
    """
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
    """First words whose onsets are far from the story's beginning, put where public readers have them.

    Args:
      place: where in the audio the story begins, seconds.

    Returns:
      The transcript and a sentence on what was done or is odd; empty where nothing is.
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
    """The text of every frame of a story, "" where no word begins.

    A word belongs to frame `floor(t / TR)`, `t` in seconds of the scan. The frames of a story are whole TRs, so that
    its first or last word may begin up to half a TR outside of them: it goes to the nearest one.
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


def backwards(transcript: Transcript) -> int:
    """How many words begin before the one before them."""
    known = transcript.starts[np.isfinite(transcript.starts)]
    return int((np.diff(known) < 0).sum())


def joined(segments: Sequence[str]) -> str:
    """The text of a window."""
    return " ".join(filter(None, segments))
