"""Read transcripts of the aligner gentle: word onsets in the audio, and the TR of each word.

`align.csv` has no header and four columns: the word in the transcript, the aligned token (`<unk>` if unknown), start
and end in seconds of the audio. A word that was not found in the audio has the first column alone; it is kept, at a
time interpolated between its neighbours, so that the text stays complete.
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
NEAR = 3  # largest distance in TRs of a first word from its story's onset
# Corrected onsets of first words, in seconds of the audio, where gentle is far off (values of public readers).
MENDED = {"notthefallintact": (25.8,), "prettymouth": (21.0,), "merlin": (29.0, 29.15)}


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
    """Read `align.csv`.

    Raises:
      UserError: the file is missing, does not have four columns, has an invalid time, or no word has a time.
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
    """Correct onsets of first words that are far from the story's onset, with the values of public readers.

    Args:
      transcript: the words and their onsets.
      stimulus: the name of the audio.
      place: the story's onset in seconds of the audio.
      tr: the repetition time in seconds.

    Returns:
      The transcript, and a message on corrections and oddities, or "".
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

    A word belongs to frame `floor(t / TR)`, `t` in seconds of the scan. A story's frames are whole TRs, so its first
    or last word may begin up to half a TR outside of them; it then belongs to the nearest frame.
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
    """Count words that begin before their predecessor."""
    known = transcript.starts[np.isfinite(transcript.starts)]
    return int((np.diff(known) < 0).sum())


def joined(segments: Sequence[str]) -> str:
    """Join the texts of a window's frames."""
    return " ".join(filter(None, segments))
