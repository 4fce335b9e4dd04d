"""The data file of volumes: every frame once, and samples as windows of frames.

Layout, besides `sentence`, `subject`, `task`, `sentence_index`, the columns of time and the attributes of
`datafile.py`: `features` float16 or float32 `[frames, X, Y, Z]`, one chunk a frame, each with a checksum of HDF5;
`starts` int64 `[N]`, the first frame of a sample; `offsets` int64 `[N + 1]`, running sum of the samples' frames;
`text_group` `[N]`. Frames of a scan are consecutive, as are those of a window.

`task` is the stimulus, and `sentence_index` the number of the window's first segment in it. A segment is the text of
one repetition (TR); for scans with another TR, the nearest segment counts. Two windows share text if their times in the
stimulus overlap, whatever the strings are; `clock.times_of` gives these times.
"""

import hashlib
import math
import os
from collections.abc import Mapping
from typing import Any

import h5py
import numpy as np

from eeg2text_jax.data.datafile import DataWriter
from eeg2text_jax.data.layout import VOLUMES, WINDOW_COLUMNS, digests_of

DTYPES = ("float16", "float32")


class VolumeWriter(DataWriter):
    """Stream scans and their windows into a data file; see `DataWriter`.

    Args:
      path: the data file.
      grid: (X, Y, Z).
      dtype: one of `DTYPES`.
      features_are: the meaning of the voxels' values.
    """

    _format = VOLUMES

    def __init__(self, path: str | os.PathLike[str], grid: tuple[int, int, int], dtype: str, features_are: str):
        self._grid, self._dtype, self._n_frames = grid, np.dtype(dtype), 0
        super().__init__(path, int(np.prod(grid)), features_are)
        self._columns.update({name: [] for name in WINDOW_COLUMNS})

    def _make_features(self) -> h5py.Dataset:
        return self._file.create_dataset(
            "features", (0, *self._grid), self._dtype, maxshape=(None, *self._grid), chunks=(1, *self._grid),
            fletcher32=True,
        )  # fmt: skip

    def add_frames(self, frames: np.ndarray) -> int:
        """Append finite frames `[n, X, Y, Z]`; return the number of the first one."""
        frames = np.ascontiguousarray(frames, self._dtype)
        if frames.shape[1:] != self._grid:
            raise ValueError(f"frames must be [n, {self._grid}], got {frames.shape}")
        if not _finite(frames):
            raise ValueError("frames are not finite")
        start, self._n_frames = self._n_frames, self._n_frames + len(frames)
        self._features.resize(self._n_frames, axis=0)
        self._features[start : self._n_frames] = frames
        self._hash.update(frames.data)
        self._disk.check()
        return start

    def add_window(
        self,
        start: int,
        length: int,
        *,
        sentence: str,
        subject: str,
        task: str,
        sentence_index: int,
        text_group: str,
        recording: str = "",
        onset: float = math.nan,
        duration: float = math.nan,
    ) -> None:
        """Append one sample: frames `start` to `start + length - 1` of those added so far."""
        if not 0 <= start < start + length <= self._n_frames:
            raise ValueError(f"a window of {length} frames from {start} on, of {self._n_frames}")
        self._offsets.append(self._offsets[-1] + length)
        own = {"sentence": sentence, "subject": subject, "task": task, "sentence_index": sentence_index,
               "starts": start, "text_group": text_group, "recording": recording, "onset": onset,
               "duration": duration, "order": -1}  # fmt: skip
        for name, values in self._columns.items():
            values.append(own[name])

    def _digests(self, columns: Mapping[str, Any]) -> dict[str, str]:
        frames = self._hash.hexdigest()
        return {**digests_of(hashlib.sha256(frames.encode()), columns), "frames": frames}


def _finite(frames: np.ndarray) -> bool:
    """Return whether all values are finite, by exponent bits: NumPy takes four times as long for half precision."""
    kind: Any
    kind, exponent = (np.uint16, 0x7C00) if frames.dtype == np.float16 else (np.uint32, 0x7F800000)
    return not ((frames.view(kind) & kind(exponent)) == exponent).any()
