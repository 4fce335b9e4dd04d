"""What was played in a scan, by its table of events, and when the audio began.

A table has `onset` and `duration` in seconds, `trial_type` (music, story, movie, ...) and `stim_file`. Rows `story` are
what is read; the text is that of the audio file, whose time 0 is where the first row that names it begins: where a
story has music before it, both rows name one file. This is read for every scan, as some were begun late.
"""

import csv
import dataclasses
import itertools
import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from eeg2text_jax.errors import UserError, first_line

STORY = "story"
_EMPTY = ("", "n/a")
MOVED = 0.5  # seconds: less than half of a TR is no shift


@dataclasses.dataclass(frozen=True)
class Story:
    """One row `story`. All times are seconds of the scan.

    Fields:
      stimulus: name of the audio file without `_audio` and ending, which its transcript has, too.
      audio_start: when the audio file began.
      moved: the row lies otherwise in the audio than in the other scans, by so many seconds.
    """

    stimulus: str
    onset: float
    duration: float
    audio_start: float
    moved: float = 0.0

    def frames(self, tr: float) -> range:
        """The scan's frames in which it was played, before any lag."""
        first = round(self.onset / tr)
        return range(first, first + round(self.duration / tr))


def read_stories(path: Path) -> tuple[Story, ...]:
    """The rows `story` of a table of events, in the order of time.

    Raises:
      UserError: there is no table or no story in it, a row is not usable, or stories overlap; `kind|sentence`, as the
        scan is left out and not the whole set.
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
    """The stories of many scans, the audio of some begun where it must have.

    A story lies at the same place of its audio in every scan. Where a scan's rows say another one than most do (in
    Narratives two subjects, whose story row alone was corrected), the story's row is right and the audio began by so
    much earlier or later; `moved` says by how much.
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
    """Each story with its number among those of its audio in the scan."""
    found = []
    for scan in stories:
        seen: Counter[str] = Counter()
        for story in scan:
            found.append((seen[story.stimulus], story))
            seen[story.stimulus] += 1
    return found
