"""The data file: every sample of a study in one HDF5 file.

Layout: `features` float32 `[sum W, F]` holds the words of all samples, `offsets` int64 `[N + 1]` the start of each
sample. `sentence`, `subject`, `task` (UTF-8) and `sentence_index` (int64, numbers a task's sentences, equal for all
subjects) have one entry per sample; so have `recording`, `onset`, `duration` and `order` if time is known (`clock.py`).
Attributes: `format`, `features_are` (meaning of the F columns), `provenance` (JSON: sources with hashes, reader, drop
counts) and `checksums` (JSON), which reading compares. For volumes see `volume_file.py`.
"""

import contextlib
import dataclasses
import functools
import hashlib
import json
import math
import os
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Self

import h5py
import numpy as np

from eeg2text_jax.data.clock import CLOCK_COLUMNS, Clock, times_of
from eeg2text_jax.data.frames import Frames
from eeg2text_jax.data.hdf5_disk import PatientFile, check_own
from eeg2text_jax.data.layout import (
    FORMAT,
    NUMBERS,
    REALS,
    STRINGS,
    VOLUMES,
    WINDOW_COLUMNS,
    WITHOUT_CHECKSUMS,
    WITHOUT_TIME,
    check_columns,
    check_sums,
    digest_of,
    digests_of,
)
from eeg2text_jax.errors import UserError, first_line
from eeg2text_jax.files import locked, replacing
from eeg2text_jax.stores.copying import at_hand

# Exceptions of h5py on damaged files, from different layers of the library.
_ERRORS = (OSError, KeyError, RuntimeError, ValueError, TypeError, AttributeError, MemoryError, OverflowError)


@dataclasses.dataclass(frozen=True)
class Sample:
    """One subject reading one sentence in one task. `features` is float32 `[W, F]`.

    `recording` names one run of the subject; `onset` and `duration` are in seconds, `order` is the place in the run.
    """

    features: np.ndarray
    sentence: str
    subject: str
    task: str
    sentence_index: int
    recording: str = ""
    onset: float = math.nan
    duration: float = math.nan
    order: int = -1


class DataWriter:
    """Stream samples into a data file, which gets its name when it is complete. Use as a context manager.

    On an exception, such as a full disk, the temporary file is removed. One process at a time writes a file and
    overwrites the remains of a killed one. `n_features` is F, the width of every sample's features; `features_are` is
    the meaning of the F columns, e.g. `"8 bands x 105 channels, band-major"`.
    """

    _format = FORMAT

    def __init__(self, path: str | os.PathLike[str], n_features: int, features_are: str):
        self.path = Path(path)
        self._n_features, self._features_are = n_features, features_are
        self._columns: dict[str, list[Any]] = {name: [] for name in (*STRINGS, "sentence_index", *CLOCK_COLUMNS)}
        self._offsets = [0]
        self._hash = hashlib.sha256()  # of the features so far
        self.provenance: dict[str, Any] = {}
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._held = contextlib.ExitStack()
        self._held.enter_context(locked(self.path.with_name(f".{self.path.name}.lock"), str(self.path)))
        self._disk = PatientFile(str(self._held.enter_context(replacing(self.path))), "w+")
        self._file = h5py.File(self._disk, "w")
        self._file.attrs["format"] = self._format
        self._file.attrs["features_are"] = features_are
        self._features = self._make_features()

    def _make_features(self) -> h5py.Dataset:
        """Create the empty dataset of the features."""
        width = self._n_features
        return self._file.create_dataset(
            "features", (0, width), np.float32, maxshape=(None, width), chunks=(256, width)
        )

    def add(self, sample: Sample) -> None:
        """Append a sample; its features must be finite `[W >= 1, F]`."""
        features = np.asarray(sample.features, np.float32)
        if features.ndim != 2 or features.shape[1] != self._n_features or not len(features):
            raise ValueError(f"features must be [W >= 1, {self._n_features}], got {features.shape}")
        if not np.isfinite(features).all():
            raise ValueError(f"features of {sample.subject}/{sample.task}/{sample.sentence_index} are not finite")
        start, stop = self._offsets[-1], self._offsets[-1] + len(features)
        self._features.resize(stop, axis=0)
        self._features[start:stop] = features
        self._hash.update(np.ascontiguousarray(features).data)
        self._disk.check()
        self._offsets.append(stop)
        for name, values in self._columns.items():
            values.append(getattr(sample, name))

    def add_all(self, samples: Iterable[Sample]) -> None:
        for sample in samples:
            self.add(sample)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: Any) -> None:
        try:
            if raised[0] is None:
                self._finish()
            self._file.close()
            self._disk.close()
            self._disk.check()
        except BaseException:
            self._held.__exit__(*sys.exc_info())
            raise
        self._held.__exit__(*raised)

    def _finish(self) -> None:
        """Write the columns, provenance and checksums."""
        clock = Clock.of(self._columns)
        plain = {name: values for name, values in self._columns.items() if name not in CLOCK_COLUMNS}
        columns = {**plain, **clock.columns(), "offsets": np.asarray(self._offsets, np.int64)}
        for name, values in columns.items():
            if name in (*NUMBERS, *REALS):
                columns[name] = self._file[name] = np.asarray(values, np.float64 if name in REALS else np.int64)
            else:
                self._file.create_dataset(name, data=values, dtype=h5py.string_dtype())
        about = self._features_are, json.dumps(self.provenance, sort_keys=True)
        self._file.attrs["provenance"] = about[1]
        checksums = {**self._digests(columns), "about": digest_of(about)}
        self._file.attrs["checksums"] = json.dumps(checksums)

    def _digests(self, columns: Mapping[str, Any]) -> dict[str, str]:
        return digests_of(self._hash, columns)


@dataclasses.dataclass(frozen=True)
class DataFile:
    """A data file in memory; `features` is float32 `[sum W, F]`, `offsets` int64 `[N + 1]`, the rest `[N]`.

    For volumes, `features` are `Frames` `[frames, X, Y, Z]`, which stay in the file, and samples are windows of `W`
    frames that may overlap. `starts` is the first frame of each window; its text is that of the segments
    `sentence_index` to `sentence_index + W - 1` of the stimulus `task`. Stimuli of one `text_group` tell the same
    story.
    """

    path: Path
    features: np.ndarray | Frames
    offsets: np.ndarray
    sentence: np.ndarray
    subject: np.ndarray
    task: np.ndarray
    sentence_index: np.ndarray
    features_are: str
    provenance: dict[str, Any]
    recording: str = "eeg"  # eeg | fmri
    starts: np.ndarray | None = None  # int64 [N], of windows
    text_group: np.ndarray | None = None  # [N], of windows
    clock: Clock | None = None  # None: of a file without time

    def __len__(self) -> int:
        return len(self.sentence)

    @property
    def feature_shape(self) -> tuple[int, ...]:
        """Shape of one position of a sample: `(F,)`, or `(X, Y, Z)` for volumes."""
        return tuple(self.features.shape[1:])

    @property
    def n_features(self) -> int:
        """F, or the number of voxels."""
        return math.prod(self.feature_shape)

    @property
    def is_windows(self) -> bool:
        """Whether samples are windows of scans, which may overlap."""
        return self.starts is not None

    @property
    def n_words(self) -> np.ndarray:
        """Words (EEG positions) of every sample, int64 `[N]`."""
        return np.diff(self.offsets)

    @property
    def sentence_id(self) -> np.ndarray:
        """`task:index` of every sample, equal for all subjects who read the sentence."""
        pairs = zip(self.task, self.sentence_index, strict=True)
        return np.array([f"{task}:{index}" for task, index in pairs], object)

    @functools.cached_property
    def story_times(self) -> np.ndarray:
        """Start and end of each window in its story, int64 `[N, 2]`, see `clock.times_of`."""
        return times_of(self)

    def words(self, i: int) -> np.ndarray:
        """Return the features of sample `i`, float32 `[W, *feature_shape]`; volumes are read from the file."""
        start = self.offsets[i] if self.starts is None else self.starts[i]
        return self.features[start : start + self.offsets[i + 1] - self.offsets[i]]

    @functools.cached_property
    def digests(self) -> dict[str, str]:
        """Hashes of the `features`, of the `samples` (who read what, in order) and of the `sentences`."""
        names = (*STRINGS, "offsets", "sentence_index", *(WINDOW_COLUMNS if self.is_windows else ()))
        columns = {name: getattr(self, name) for name in names} | ({} if self.clock is None else self.clock.columns())
        if isinstance(self.features, Frames):
            return digests_of(hashlib.sha256(self.features.digest.encode()), columns)
        return digests_of(hashlib.sha256(np.ascontiguousarray(self.features).data), columns)

    def digest(self) -> str:
        """Return a hash of all samples, independent of file name and provenance."""
        return digest_of(self.digests.values())[:16]


def read_datafile(path: str | os.PathLike[str]) -> DataFile:
    """Read and check a data file.

    Raises:
      UserError: the file is missing, is not a data file, is truncated, or its parts do not fit together.

    Examples:
      >>> from eeg2text_jax import read_datafile
      >>> data = read_datafile("own.h5")
      >>> len(data), data.n_features, data.sentence[0], data.words(0).shape
      (64, 6, 'the dog saw a', (4, 6))
    """
    data, stated = _load(Path(at_hand(path)), slice(None))
    check_columns(data)
    check_sums(data, stated, data.digests)
    return data


def read_outline(path: str | os.PathLike[str]) -> DataFile:
    """Read a data file without its features, which may exceed memory: they are `[0, F]`, unchecked.

    Raises:
      UserError: the file is missing, is not a data file, or is truncated.
    """
    data, stated = _load(Path(path), slice(0))
    check_sums(data, stated, {name: sum_ for name, sum_ in data.digests.items() if name != "features"})
    return data


def _load(path: Path, rows: slice) -> tuple[DataFile, dict[str, str] | None]:
    """Return the data and the checksums that the file states (None in the format without checksums)."""
    if path.is_dir() or not path.exists():
        missing = f"there is no such file; `eeg2text prepare SOURCE --out={path}` makes one"
        raise UserError(f"{path}: {'is a folder; expected a data file (.h5)' if path.is_dir() else missing}.")
    try:
        with h5py.File(path, "r") as file:
            kind = file.attrs.get("format")
            if kind not in (FORMAT, VOLUMES, *WITHOUT_TIME):
                raise UserError(
                    f"{path}: expected an eeg2text data file (format {FORMAT}), found "
                    f"{'another HDF5 file' if kind is None else kind}; make one with `eeg2text prepare`."
                )
            windows = "volumes" in kind
            names = [*STRINGS, "offsets", "sentence_index", *(WINDOW_COLUMNS if windows else ())]
            names += CLOCK_COLUMNS if "recording" in file else ()
            for name in ("features", *names):
                check_own(file["/"].id, name.encode())
            numbers = (*NUMBERS, *REALS)
            columns = {name: file[name][:] if name in numbers else file[name].asstr()[:] for name in names}
            if "recording" in file:
                columns["clock"] = Clock(*(columns.pop(name) for name in CLOCK_COLUMNS))
            about = str(file.attrs["features_are"]), str(file.attrs["provenance"])
            stated = None
            if kind != WITHOUT_CHECKSUMS:
                stated = {**json.loads(file.attrs["checksums"]), "about now": digest_of(about)}
            if windows:
                columns["recording"] = "fmri"
                features = Frames(path, file["features"].shape, str(stated["frames"]))
            else:
                features = file["features"][rows]
            return DataFile(path, features, features_are=about[0], provenance=json.loads(about[1]), **columns), stated
    except _ERRORS as error:
        raise UserError(
            f"{path}: cannot be read as an eeg2text data file, it may be cut short "
            f"({first_line(error)}); make it again with `eeg2text prepare`."
        ) from error
