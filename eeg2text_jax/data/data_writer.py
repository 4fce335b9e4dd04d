"""Write data files of words, waves or fMRI volumes sample by sample."""

import contextlib
import hashlib
import itertools
import json
import math
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Self

import h5py
import numpy as np

from eeg2text_jax.base.errors import UserError
from eeg2text_jax.base.files import locked, replacing
from eeg2text_jax.data.clock import CLOCK_COLUMNS, Clock
from eeg2text_jax.data.datafile import (
    FORMAT,
    HALF_RANGE,
    NUMBERS,
    REALS,
    STRINGS,
    VOLUMES,
    WAVES,
    WINDOW_COLUMNS,
    PatientFile,
    digest_of,
    digests_of,
    to_half,
)
from eeg2text_jax.data.source import Sample, Source, Tally

CHUNK = 1 << 16  # bytes of a chunk of waves, so that a batch reads little more than its samples


class DataWriter:
    """Stream samples into a data file, which gets its name when it is complete. Use as a context manager.

    On an exception, such as a full disk, nothing is left. One process at a time can write a file. `features_are` is the
    meaning of the F = `n_features` columns, e.g. `"8 bands x 105 channels, band-major"`.
    """

    _format, _in_file = FORMAT, False  # `_in_file`: features stay on disk when the file is read

    def __init__(self, path: str | os.PathLike[str], n_features: int, features_are: str):
        self.path = Path(path)
        self._n_features, self._features_are = n_features, features_are
        self._columns: dict[str, list[Any]] = {name: [] for name in (*STRINGS, "sentence_index", *CLOCK_COLUMNS)}
        self._offsets = [0]
        self._hash = hashlib.sha256()  # of the features so far
        self.provenance: dict[str, Any] = {}
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._resources = contextlib.ExitStack()
        self._resources.enter_context(locked(self.path.with_name(f".{self.path.name}.lock"), str(self.path)))
        self._disk = PatientFile(str(self._resources.enter_context(replacing(self.path))), "w+")
        self._file = h5py.File(self._disk, "w")
        self._file.attrs["format"] = self._format
        self._file.attrs["features_are"] = features_are
        shape, dtype, rows = self._layout()
        self._features = self._file.create_dataset(
            "features", (0, *shape), dtype, maxshape=(None, *shape), chunks=(rows, *shape), fletcher32=self._in_file
        )

    def _layout(self) -> tuple[tuple[int, ...], Any, int]:
        """Return shape and dtype of a position, and the positions in a chunk."""
        return (self._n_features,), np.float32, 256

    def add(self, sample: Sample) -> None:
        """Append a sample; its features must be finite `[W >= 1, F]`."""
        features = np.ascontiguousarray(sample.features, np.float32)
        if features.ndim != 2 or features.shape[1] != self._n_features or not len(features):
            raise ValueError(f"features must be [W >= 1, {self._n_features}], got {features.shape}")
        if not np.isfinite(features).all():
            raise ValueError(f"features of {sample.subject}/{sample.task}/{sample.sentence_index} are not finite")
        fields = {name: getattr(sample, name) for name in self._columns}
        self._check_texts(fields)
        self._offsets.append(self._append(features))  # first, as it may refuse the sample
        self._add_values(fields)

    def _check_texts(self, fields: Mapping[str, Any]) -> None:
        """Raise UserError for a text that HDF5 cannot store."""
        for name, value in fields.items():
            odd = re.search("[\0\ud800-\udfff]", value) if isinstance(value, str) else None
            if odd:
                what = "a NUL character" if odd[0] == "\0" else f"{odd[0]!r}, which is no character"
                subject, task = (ascii(fields[column])[1:-1] for column in ("subject", "task"))
                raise UserError(
                    f"{subject}/{task}/{fields['sentence_index']}: {name} has {what} ({value!r:.80}); HDF5 cannot "
                    "store it. Remove it from the text."
                )

    def _add_values(self, fields: Mapping[str, Any]) -> None:
        for name, values in self._columns.items():
            values.append(fields[name])

    def _append(self, rows: np.ndarray) -> int:
        """Append rows to the file's `features`; return the number of all rows."""
        start, stop = len(self._features), len(self._features) + len(rows)
        self._features.resize(stop, axis=0)
        self._features[start:stop] = rows
        self._hash.update(rows.data)
        self._disk.check()
        return stop

    def add_all(self, samples: Iterable[Sample]) -> None:
        for sample in samples:
            self.add(sample)

    def clock(self) -> Clock:
        return Clock.of(self._columns)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: Any) -> None:
        try:
            with contextlib.closing(self._disk), contextlib.closing(self._file):
                if raised[0] is None:
                    self._finish()
            self._disk.check()
        except BaseException:
            self._resources.__exit__(*sys.exc_info())
            raise
        self._resources.__exit__(*raised)

    def _finish(self) -> None:
        clock = self.clock()
        plain = {name: values for name, values in self._columns.items() if name not in CLOCK_COLUMNS}
        columns = {**plain, **clock.columns(), "offsets": np.asarray(self._offsets, np.int64)}
        for name, values in columns.items():
            if name in (*NUMBERS, *REALS):
                columns[name] = self._file[name] = np.asarray(values, np.float64 if name in REALS else np.int64)
            else:
                self._file.create_dataset(name, data=values, dtype=h5py.string_dtype())
        self._file.attrs["provenance"] = about = json.dumps(self.provenance, sort_keys=True)
        features, frames = self._hash, {}
        if self._in_file:
            frames = {"frames": self._hash.hexdigest()}
            features = hashlib.sha256(frames["frames"].encode())
        digests = {**digests_of(features, columns), **frames, "about": digest_of([self._features_are, about])}
        self._file.attrs["checksums"] = json.dumps(digests)


class WaveWriter(DataWriter):
    """Stream waves into a data file: features `[W, C]`, stored as float16."""

    _format, _in_file = WAVES, True

    def _layout(self) -> tuple[tuple[int, ...], Any, int]:
        return (self._n_features,), np.float16, max(CHUNK // (2 * self._n_features), 16)

    def _append(self, rows: np.ndarray) -> int:
        if np.abs(rows).max() > HALF_RANGE:
            raise UserError(
                f"{self.path}: sample {len(self._offsets) - 1} has {np.abs(rows).max():g}; expected waves up to "
                f"{HALF_RANGE:g}, the largest float16: give them in uV or fT, without an offset."
            )
        return super()._append(to_half(rows))


class VolumeWriter(DataWriter):
    """Stream scans and their windows into a data file: frames of `grid` (X, Y, Z), float16 or float32."""

    _format, _in_file = VOLUMES, True

    def __init__(self, path: str | os.PathLike[str], grid: tuple[int, int, int], dtype: str, features_are: str):
        self._grid, self._dtype = grid, np.dtype(dtype)
        super().__init__(path, math.prod(grid), features_are)
        self._columns.update({name: [] for name in WINDOW_COLUMNS})

    def _layout(self) -> tuple[tuple[int, ...], Any, int]:
        return self._grid, self._dtype, 1

    def add_frames(self, frames: np.ndarray) -> int:
        """Append finite frames `[n, X, Y, Z]`; return the number of the first."""
        frames = np.ascontiguousarray(frames, self._dtype)
        if frames.shape[1:] != self._grid:
            raise ValueError(f"frames must be [n, {self._grid}], got {frames.shape}")
        # By exponent bits: NumPy's isfinite takes four times as long for float16.
        kind: Any
        kind, exponent = (np.uint16, 0x7C00) if frames.dtype == np.float16 else (np.uint32, 0x7F800000)
        if ((frames.view(kind) & kind(exponent)) == exponent).any():
            raise ValueError("frames are not finite")
        return self._append(frames) - len(frames)

    def add_window(
        self, start: int, length: int, *, sentence: str, subject: str, task: str, sentence_index: int, text_group: str,
        recording: str = "", onset: float = math.nan, duration: float = math.nan,
    ) -> None:  # fmt: skip
        """Append a sample: `length` of the frames added so far, from `start` on."""
        if not 0 <= start < start + length <= len(self._features):
            raise ValueError(f"a window of {length} frames begins at frame {start} of {len(self._features)}")
        fields = {"sentence": sentence, "subject": subject, "task": task, "sentence_index": sentence_index,
                  "starts": start, "text_group": text_group, "recording": recording, "onset": onset,
                  "duration": duration, "order": -1}  # fmt: skip
        self._check_texts(fields)
        self._offsets.append(self._offsets[-1] + length)
        self._add_values(fields)


def write_source(out: Path, source: Source, tally: Tally, about: Callable[[], Mapping[str, Any]], none: str) -> None:
    """Write the samples of a source, counted in `tally`; raise UserError `none` if there is none.

    `about` is called after the last sample, and returns further provenance to store beside that of the source.
    """
    counted = tally.count(source.samples)
    # The first sample tells F; a faulty source fails before a file is created.
    if (first := next(counted, None)) is None:
        raise UserError(none)
    kind = WaveWriter if "sfreq" in source.provenance else DataWriter
    with kind(out, first.features.shape[1], source.features_are) as writer:
        writer.add_all(itertools.chain([first], counted))
        writer.provenance = {**source.provenance, **about()}
    tally.notes += writer.clock().notes()
