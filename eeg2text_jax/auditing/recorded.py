"""The name of the recording in the audit's sentences, and the selection of disjoint windows of a story."""

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from eeg2text_jax.predictions.file import Prediction

NAMES = {"eeg": "EEG", "fmri": "fMRI"}
Row = TypeVar("Row", bound=Prediction)
# "EEG" as a word: the recording or the condition in a sentence, but not a part of an image, a path or an option.
_EEG = re.compile(r"(?<![\w+/])EEG(?![\w+/=])|(?<![\w+/.=-])eeg(?![\w+/=]|\.\w)")


def said(text: Any, recording: str) -> Any:
    """Replace EEG by the name of the recording in a text, or in all texts of lists and dictionaries.

    A text that is exactly "eeg" is kept: it is the name of a condition for programs.
    """
    if recording not in NAMES or recording == "eeg":
        return text
    if isinstance(text, dict):
        return {name: value if name == "examples" else said(value, recording) for name, value in text.items()}
    if isinstance(text, list | tuple):
        return type(text)(said(value, recording) for value in text)
    return _EEG.sub(NAMES[recording], text) if isinstance(text, str) and text != "eeg" else text


def disjoint(rows: Sequence[Row]) -> list[Row]:
    """Return the rows of windows that share no segment of their stimulus, beginning with its first window.

    Overlapping windows share text and frames, so they are not exchangeable like separate sentences: a permutation test
    would find content in anything that is smooth in time.
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
    """Return the rows to judge (for windows, the `disjoint` ones), and a message on rows left out, if any."""
    if recording != "fmri":
        return eeg, controls, []
    kept = disjoint(eeg)
    said_so = f"windows overlap: {len(kept)} of {len(eeg)} rows share no segment with another window and are judged"
    apart = {name: disjoint(rows) for name, rows in controls.items()}
    return kept, apart, [said_so] if len(kept) < len(eeg) else []


def _window(row: Prediction) -> tuple[str, float, float]:
    """Return story, start and end, in seconds, or in segments if the row has no `story_time`.

    The story comes from `sentence_id`, because `task` may also contain the fold.
    """
    story, _, first = row.sentence_id.rpartition(":")
    start, stop = (int(first), int(first) + row.n_words) if row.story_time is None else row.story_time
    return story, start, stop
