"""When a window of a scan lies in its story, and the stretches of a story that windows share.

Scans of one story may have different repetition times (TR): the same number of frames then covers other words. So a
window is known by the milliseconds of audio that it covers. The provenance of a data file of volumes says under
`story_time` for every story of a scan: its first frame in the file, the second of the audio at which that frame
begins (before any lag), and the TR.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from eeg2text_jax.data.datafile import DataFile

STORY_TIME = "story_time"  # in the provenance
UNIT = 1000  # a second; without `story_time`, a segment


class Stretches(NamedTuple):
    """The shortest stretches of all stories between any two ends of windows, numbered story by story.

    Fields:
      windows: the first stretch of every window and how many it has, int64 `[N, 2]`.
      lengths: of every stretch, int64, in milliseconds.
    """

    windows: np.ndarray
    lengths: np.ndarray


def times_of(data: "DataFile") -> np.ndarray:
    """From where to where in its story each window lies, int64 `[N, 2]` in milliseconds of the audio.

    Files of earlier versions do not say: there the number of the first segment counts, as if it took a second.
    """
    table: Sequence[tuple[float, float, float]] = data.provenance.get(STORY_TIME, ())
    if not table:
        return UNIT * np.stack([data.sentence_index, data.sentence_index + data.n_words], axis=1)
    first, begin, tr = np.array(sorted(table), float).T
    scan = np.searchsorted(first, data.starts, side="right") - 1
    start = begin[scan] + (data.starts - first[scan]) * tr[scan]
    return np.rint(UNIT * np.stack([start, start + data.n_words * tr[scan]], axis=1)).astype(np.int64)


def stretches(data: "DataFile") -> Stretches:
    """What windows are made of: two windows of a story share a stretch where, and only where, their times overlap."""
    times, windows, lengths = data.story_times, np.zeros((len(data), 2), np.int64), []
    so_far = 0
    stories = np.unique(data.task.astype(str), return_inverse=True)[1]
    for story in range(stories.max() + 1):
        rows = stories == story
        ends = np.unique(times[rows])
        place = np.searchsorted(ends, times[rows])
        windows[rows] = np.stack([so_far + place[:, 0], place[:, 1] - place[:, 0]], axis=1)
        lengths.append(np.diff(ends))
        so_far += len(ends) - 1
    return Stretches(windows, np.concatenate(lengths))
