"""What was recorded, in the audit's words; and which windows of a story count as sentences of their own."""

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from eeg2text_jax.predictions.file import Prediction

NAMES = {"eeg": "EEG", "fmri": "fMRI"}
Row = TypeVar("Row", bound=Prediction)
# A word of its own: the recording, or the condition in a sentence; not a part of an image, a path or an option.
_EEG = re.compile(r"(?<![\w+/])EEG(?![\w+/=])|(?<![\w+/.=-])eeg(?![\w+/=]|\.\w)")


def said(text: Any, recording: str) -> Any:
    """A text, or all texts in lists and dictionaries, with the name of the recording in the place of EEG.

    A text that is "eeg" alone stays: it is the name of a condition, by which programs find it.
    """
    if recording not in NAMES or recording == "eeg":
        return text
    if isinstance(text, dict):
        return {name: value if name == "examples" else said(value, recording) for name, value in text.items()}
    if isinstance(text, list | tuple):
        return type(text)(said(value, recording) for value in text)
    return _EEG.sub(NAMES[recording], text) if isinstance(text, str) and text != "eeg" else text


def disjoint(rows: Sequence[Row]) -> list[Row]:
    """Rows of windows that share no segment of their stimulus, from its first window on.

    Windows that overlap have text and frames in common, so that neither their references nor their predictions can be
    exchanged as those of separate sentences can: a permutation would find content in what is smooth in time.
    """
    next_free: dict[str, float] = {}
    kept = set()
    for story, start, stop in sorted({_window(row) for row in rows}):
        if start >= next_free.get(story, -math.inf):
            next_free[story] = stop
            kept.add((story, start, stop))
    return [row for row in rows if _window(row) in kept]


def judged(
    eeg: Sequence[Row], controls: Mapping[str, Sequence[Row]], recording: str
) -> tuple[Sequence[Row], Mapping[str, Sequence[Row]], list[str]]:
    """The rows that are judged, of windows those that are `disjoint`; and a sentence on those left out, if any are."""
    if recording != "fmri":
        return eeg, controls, []
    kept = disjoint(eeg)
    said_so = f"windows overlap: {len(kept)} of {len(eeg)} rows share no segment with another window and are judged"
    apart = {name: disjoint(rows) for name, rows in controls.items()}
    return kept, apart, [said_so] if len(kept) < len(eeg) else []


def _window(row: Prediction) -> tuple[str, float, float]:
    """Story, beginning and end, in seconds or, where the row has no `story_time`, in segments.

    The story is that of `sentence_id`, as `task` may name the fold, too.
    """
    story, _, first = row.sentence_id.rpartition(":")
    start, stop = (int(first), int(first) + row.n_words) if row.story_time is None else row.story_time
    return story, start, stop
