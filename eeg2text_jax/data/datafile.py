"""The data file: all samples of a study in one HDF5 file, its layout, and its checks.

Columns have one entry per sample: `sentence`, `subject`, `task` (UTF-8), `sentence_index` (int64, numbers the sentences
of a task, equal for all subjects), and `recording`, `onset`, `duration`, `order` if time is known (`clock.py`).
Attributes: `format`, `features_are` (meaning of the F columns), `provenance` (JSON: sources with hashes, reader, drop
counts) and `checksums` (JSON, verified on reading).

EEG: `features` float32 `[sum W, F]` holds the words of all samples, `offsets` int64 `[N + 1]` the start of each sample.

Volumes: `features` float16 or float32 `[frames, X, Y, Z]`, one chunk per frame, each with a checksum of HDF5. A sample
is a window of consecutive frames of one scan: `starts` int64 `[N]` is its first frame, `offsets` int64 `[N + 1]` the
running sum of window lengths. `task` is the stimulus, `sentence_index` the number, within the stimulus, of the
window's first segment (the text of one repetition, TR), `text_group` `[N]` the story. Two windows share text if their
times in the stimulus overlap (`clock.times_of`), even if their strings differ.
"""

import dataclasses
import functools
import hashlib
import json
import math
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from eeg2text_jax.data.clock import CLOCK_COLUMNS, Clock, times_of
from eeg2text_jax.data.frames import Frames
from eeg2text_jax.data.hdf5_disk import check_own
from eeg2text_jax.errors import UserError, first_line
from eeg2text_jax.files import parse_json
from eeg2text_jax.stores.copying import at_hand

FORMAT = "eeg2text-data-3"
VOLUMES = "eeg2text-volumes-2"
# Formats of files that earlier versions wrote; they are still read.
WITHOUT_CHECKSUMS = "eeg2text-data-1"
WITHOUT_TIME = (WITHOUT_CHECKSUMS, "eeg2text-data-2", "eeg2text-volumes-1")

STRINGS = ("sentence", "subject", "task")
WINDOW_COLUMNS = ("starts", "text_group")  # columns that only files of volumes have
NUMBERS = ("offsets", "sentence_index", "starts", "order")  # int64 columns
REALS = ("onset", "duration")  # float64 columns; all others are UTF-8
# Exceptions of h5py on damaged files, from different layers of the library.
_ERRORS = (OSError, KeyError, RuntimeError, ValueError, TypeError, AttributeError, MemoryError, OverflowError)


@dataclasses.dataclass(frozen=True)
class DataFile:
    """A data file in memory; `features` is float32 `[sum W, F]`, `offsets` int64 `[N + 1]`, the other columns `[N]`.

    For volumes, `features` are `Frames` `[frames, X, Y, Z]`, which stay in the file, and samples are windows of `W`
    frames that may overlap. Stimuli of one `text_group` tell the same story.
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
    recording: str = "eeg"  # kind of recording: eeg | fmri
    starts: np.ndarray | None = None  # int64 [N], first frame of each window; None for EEG
    text_group: np.ndarray | None = None  # [N], story of each window; None for EEG
    clock: Clock | None = None  # when each sample was recorded; None if the file has no columns of time

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
        """Whether samples are windows of fMRI scans, which may overlap."""
        return self.starts is not None

    @property
    def n_words(self) -> np.ndarray:
        """Number of words (EEG positions, or frames) of each sample, int64 `[N]`."""
        return np.diff(self.offsets)

    @property
    def sentence_id(self) -> np.ndarray:
        """`task:index` of each sample, equal for all subjects who read the sentence."""
        pairs = zip(self.task, self.sentence_index, strict=True)
        return np.array([f"{task}:{index}" for task, index in pairs], object)

    @functools.cached_property
    def story_times(self) -> np.ndarray:
        """Start and end of each window in its story, int64 `[N, 2]`, in milliseconds of the audio."""
        return times_of(self)

    def words(self, i: int) -> np.ndarray:
        """Return the features of sample `i`, float32 `[W, *feature_shape]`; volumes are read from the file."""
        start = self.offsets[i] if self.starts is None else self.starts[i]
        return self.features[start : start + self.offsets[i + 1] - self.offsets[i]]

    @functools.cached_property
    def digests(self) -> dict[str, str]:
        """SHA-256 by name: `features`, `samples` (who read what, in order), `sentences` and, with times, `clock`."""
        names = (*STRINGS, "offsets", "sentence_index", *(WINDOW_COLUMNS if self.is_windows else ()))
        columns = {name: getattr(self, name) for name in names} | ({} if self.clock is None else self.clock.columns())
        if isinstance(self.features, Frames):
            return digests_of(hashlib.sha256(self.features.digest.encode()), columns)
        return digests_of(hashlib.sha256(np.ascontiguousarray(self.features).data), columns)

    def digest(self) -> str:
        """Return a hash of all samples, independent of file name and provenance."""
        return digest_of(self.digests.values())[:16]


def digests_of(features: Any, columns: Mapping[str, Any]) -> dict[str, str]:
    """Return SHA-256 by name, see `DataFile.digests`; `features` hashes the features, or the frames' digest."""
    features = features.copy()
    for name in ("offsets", "starts"):
        if name in columns:
            features.update(np.ascontiguousarray(columns[name]).data)
    index = np.asarray(columns["sentence_index"]).tolist()
    groups = [list(columns["text_group"])] if "text_group" in columns else []
    samples = json.dumps([list(columns["subject"]), list(columns["task"]), index, *groups])
    found = {
        "features": features.hexdigest(),
        "samples": digest_of([samples]),
        "sentences": digest_of([json.dumps(list(columns["sentence"]))]),
    }
    if "recording" in columns:
        times = [np.ascontiguousarray(columns[name]).tobytes().hex() for name in ("onset", "duration", "order")]
        found["clock"] = digest_of([json.dumps(list(columns["recording"])), *times])
    return found


def digest_of(texts: Iterable[str]) -> str:
    """Return the hexadecimal SHA-256 of texts joined by newlines."""
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()


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
    _check_columns(data)
    _check_sums(data, stated, data.digests)
    return data


def read_outline(path: str | os.PathLike[str]) -> DataFile:
    """Read a data file without its features, which may exceed memory: `features` is `[0, F]` and not checked.

    Raises UserError if the file is missing, is no data file, or is truncated.
    """
    data, stated = _load(Path(path), slice(0))
    _check_sums(data, stated, {name: digest for name, digest in data.digests.items() if name != "features"})
    return data


def _load(path: Path, rows: slice) -> tuple[DataFile, dict[str, str] | None]:
    """Return the data (of EEG features only `rows`) and the file's checksums by name (None in the oldest format)."""
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
                stated = {**parse_json(file.attrs["checksums"]), "about now": digest_of(about)}
            if windows:
                columns["recording"] = "fmri"
                features = Frames(path, file["features"].shape, str(stated["frames"]))
            else:
                features = file["features"][rows]
            return DataFile(path, features, features_are=about[0], provenance=parse_json(about[1]), **columns), stated
    except _ERRORS as error:
        raise UserError(
            f"{path}: cannot be read as an eeg2text data file, it may be cut short "
            f"({first_line(error)}); make it again with `eeg2text prepare`."
        ) from error


def _check_sums(data: DataFile, stated: dict[str, str] | None, found: Mapping[str, str]) -> None:
    """Raise UserError if a checksum `stated` in the file (None: no check) differs from the one `found` for the data."""
    if stated is None:
        return
    pairs = {name: (stated.get(name), digest) for name, digest in found.items()}
    pairs["clock"] = stated.get("clock"), found.get("clock")
    pairs["description"] = stated.get("about"), stated["about now"]
    for name, (expected, digest) in pairs.items():
        if expected != digest:
            raise UserError(
                f"{data.path}: the checksum of its {name} is not the one that the file states: the file is damaged or "
                "was edited; make it again with `eeg2text prepare`."
            )


def _check_columns(data: DataFile) -> None:
    """Raise UserError if columns differ in length, or a sample has no words, no text or non-finite features."""
    n, offsets = len(data), data.offsets
    if not n:
        raise UserError(f"{data.path}: holds no samples.")
    lengths = {len(data.subject), len(data.task), len(data.sentence_index), len(offsets) - 1}
    if lengths != {n} or offsets[0] != 0 or not _covers_features(data):
        raise UserError(f"{data.path}: its columns disagree in length; make it again with `eeg2text prepare`.")
    if data.clock is not None and any(len(column) != n for column in data.clock.columns().values()):
        raise UserError(f"{data.path}: its columns of time disagree in length; make it again with `eeg2text prepare`.")
    wrong = {"has no words": np.flatnonzero(data.n_words < 1)}
    if isinstance(data.features, np.ndarray):
        words = np.flatnonzero(~np.isfinite(data.features).all(axis=1))
        wrong["has NaN or infinity"] = np.searchsorted(offsets, words, side="right") - 1
    wrong["has a sentence that is empty"] = np.flatnonzero([not text.strip() for text in data.sentence])
    for problem, rows in wrong.items():
        if len(rows):
            raise UserError(
                f"{data.path}: sample {rows[0]} ({data.subject[rows[0]]}, {data.sentence_id[rows[0]]}) {problem}; make "
                "the file again with `eeg2text prepare`."
            )


def _covers_features(data: DataFile) -> bool:
    """Return whether EEG samples use up all words of the features, or all windows of volumes lie inside the frames."""
    if data.starts is None:
        return data.offsets[-1] == len(data.features)
    same = len(data.starts) == len(data.text_group) == len(data)
    return same and data.starts.min() >= 0 and (data.starts + data.n_words).max() <= len(data.features)
