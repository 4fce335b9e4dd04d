"""The data file: every sample of a study in one HDF5 file.

Layout: `features` float32 [sum W, F] holds the words of all samples one after the other, `offsets` int64 [N + 1]
says where each sample begins, and `sentence`, `subject`, `task` (UTF-8) and `sentence_index` (int64) have one entry
a sample. `sentence_index` numbers the sentences of a task and is the same for every subject. Attributes:
`format`, `features_are` (what the F columns mean), `provenance` (JSON: sources with hashes, reader, drop counts) and
`checksums` (JSON: SHA-256 of the features, of who read them, of the sentences and of the two attributes before), which
reading compares.
"""

import contextlib
import dataclasses
import functools
import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

import h5py
import numpy as np

from eeg2text_jax.data.hdf5_disk import PatientFile, check_own
from eeg2text_jax.errors import UserError, first_line
from eeg2text_jax.files import locked, partial_of, tell

FORMAT = "eeg2text-data-2"
WITHOUT_CHECKSUMS = "eeg2text-data-1"  # as earlier versions wrote it
_STRINGS = ("sentence", "subject", "task")
# What h5py raises on damaged files, depending on which of the library's layers notices.
_ERRORS = (OSError, KeyError, RuntimeError, ValueError, TypeError, AttributeError, MemoryError, OverflowError)


@dataclasses.dataclass(frozen=True)
class Sample:
    """One subject reading one sentence in one task. `features` is float32 `[W, F]`."""

    features: np.ndarray
    sentence: str
    subject: str
    task: str
    sentence_index: int


class DataWriter:
    """Streams samples into a data file; nothing exists under the final name until all of it does.

    Use as a context manager: on an exception, `OSError` of a full disk among them, the temporary file is removed. One
    process at a time writes a file; what a killed one has left is written over.

    Args:
      path: where the data file shall be.
      n_features: F, the width of every sample's features.
      features_are: what the F columns mean, e.g. `"8 bands x 105 channels, band-major"`.
    """

    def __init__(self, path: str | os.PathLike[str], n_features: int, features_are: str):
        self.path = Path(path)
        self._partial = Path(partial_of(self.path))
        self._n_features, self._features_are = n_features, features_are
        self._columns: dict[str, list[Any]] = {name: [] for name in (*_STRINGS, "sentence_index")}
        self._offsets = [0]
        self._hash = hashlib.sha256()  # of the features so far
        self.provenance: dict[str, Any] = {}
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._lock = contextlib.ExitStack()
        self._lock.enter_context(locked(self.path.with_name(f".{self.path.name}.lock"), str(self.path)))
        self._disk = PatientFile(str(self._partial), "w+")
        self._file = h5py.File(self._disk, "w")
        self._file.attrs["format"] = FORMAT
        self._file.attrs["features_are"] = features_are
        self._features = self._file.create_dataset(
            "features", (0, n_features), np.float32, maxshape=(None, n_features), chunks=(256, n_features)
        )

    def add(self, sample: Sample) -> None:
        """Appends one sample; its features must be finite `[W >= 1, F]`."""
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

    def __enter__(self) -> "DataWriter":
        return self

    def __exit__(self, kind: type[BaseException] | None, _: BaseException | None, __: TracebackType | None) -> None:
        try:
            if kind is None:
                self._finish()
            self._file.close()
            self._disk.close()
            self._disk.check()
            if kind is None:
                self._partial.replace(self.path)
                tell()
        finally:
            self._partial.unlink(missing_ok=True)
            self._lock.close()

    def _finish(self) -> None:
        """Writes what is known once all samples are there."""
        columns = {**self._columns, "offsets": np.asarray(self._offsets, np.int64)}
        columns["sentence_index"] = np.asarray(columns["sentence_index"], np.int64)
        for name in ("offsets", "sentence_index"):
            self._file[name] = columns[name]
        for name in _STRINGS:
            self._file.create_dataset(name, data=columns[name], dtype=h5py.string_dtype())
        about = self._features_are, json.dumps(self.provenance, sort_keys=True)
        self._file.attrs["provenance"] = about[1]
        checksums = {**_digests(self._hash, columns), "about": _digest_of(about)}
        self._file.attrs["checksums"] = json.dumps(checksums)


@dataclasses.dataclass(frozen=True)
class DataFile:
    """A data file in memory; `features` is float32 `[sum W, F]`, `offsets` int64 `[N + 1]`, the rest `[N]`."""

    path: Path
    features: np.ndarray
    offsets: np.ndarray
    sentence: np.ndarray
    subject: np.ndarray
    task: np.ndarray
    sentence_index: np.ndarray
    features_are: str
    provenance: dict[str, Any]

    def __len__(self) -> int:
        return len(self.sentence)

    @property
    def n_features(self) -> int:
        return self.features.shape[1]

    @property
    def n_words(self) -> np.ndarray:
        """Words (EEG positions) of every sample, int64 `[N]`."""
        return np.diff(self.offsets)

    @property
    def sentence_id(self) -> np.ndarray:
        """`task:index` of every sample: equal for the subjects who read the same sentence."""
        pairs = zip(self.task, self.sentence_index, strict=True)
        return np.array([f"{task}:{index}" for task, index in pairs], object)

    def words(self, i: int) -> np.ndarray:
        """Features of sample `i`, `[W, F]`."""
        return self.features[self.offsets[i] : self.offsets[i + 1]]

    @functools.cached_property
    def digests(self) -> dict[str, str]:
        """Hashes of the `features`, of the `samples` (who read what, in order), and of the `sentences`."""
        columns = {name: getattr(self, name) for name in (*_STRINGS, "offsets", "sentence_index")}
        return _digests(hashlib.sha256(np.ascontiguousarray(self.features).data), columns)

    def digest(self) -> str:
        """A hash of all samples, whatever the file is called and wherever they come from."""
        return _digest_of(self.digests.values())[:16]


def _digests(features: Any, columns: Mapping[str, Any]) -> dict[str, str]:
    """`DataFile.digests`; `features` is the running hash of their bytes."""
    features = features.copy()
    features.update(np.ascontiguousarray(columns["offsets"]).data)
    index = np.asarray(columns["sentence_index"]).tolist()
    samples = json.dumps([list(columns["subject"]), list(columns["task"]), index])
    return {
        "features": features.hexdigest(),
        "samples": _digest_of([samples]),
        "sentences": _digest_of([json.dumps(list(columns["sentence"]))]),
    }


def _digest_of(texts: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()


def read_datafile(path: str | os.PathLike[str]) -> DataFile:
    """Reads and checks a data file.

    Raises:
      UserError: the file is missing, is not a data file, is cut short, or its parts do not fit together.
    """
    data, stated = _load(Path(path), slice(None))
    _check(data)
    _check_sums(data, stated, data.digests)
    return data


def read_outline(path: str | os.PathLike[str]) -> DataFile:
    """Reads a data file without its features, which may be larger than memory: they are `[0, F]`, unchecked.

    Raises:
      UserError: the file is missing, is not a data file, or is cut short.
    """
    data, stated = _load(Path(path), slice(0))
    _check_sums(data, stated, {name: data.digests[name] for name in ("samples", "sentences")})
    return data


def _load(path: Path, rows: slice) -> tuple[DataFile, dict[str, str] | None]:
    """The data and the checksums that the file states; None where it is of the format without them."""
    if not path.exists():
        raise UserError(f"{path}: there is no such file; `eeg2text prepare SOURCE --out={path}` makes one.")
    try:
        with h5py.File(path, "r") as file:
            if file.attrs.get("format") not in (FORMAT, WITHOUT_CHECKSUMS):
                raise UserError(
                    f"{path}: expected an eeg2text data file (format {FORMAT}), found "
                    f"{file.attrs.get('format', 'another HDF5 file')}; make one with `eeg2text prepare`."
                )
            for name in ("features", "offsets", "sentence_index", *_STRINGS):
                check_own(file["/"].id, name.encode())
            columns = {name: file[name].asstr()[:] for name in _STRINGS}
            arrays = {name: file[name][:] for name in ("offsets", "sentence_index")}
            about = str(file.attrs["features_are"]), str(file.attrs["provenance"])
            stated = None
            if file.attrs["format"] == FORMAT:
                stated = {**json.loads(file.attrs["checksums"]), "about now": _digest_of(about)}
            features, provenance = file["features"][rows], json.loads(about[1])
            data = DataFile(path, features, features_are=about[0], provenance=provenance, **columns, **arrays)
            return data, stated
    except _ERRORS as error:
        raise UserError(
            f"{path}: cannot be read as an eeg2text data file, it may be cut short "
            f"({first_line(error)}); make it again with `eeg2text prepare`."
        ) from error


def _check_sums(data: DataFile, stated: dict[str, str] | None, found: Mapping[str, str]) -> None:
    if stated is None:
        return
    pairs = {**{name: (stated.get(name), sum_) for name, sum_ in found.items()}}
    pairs["description"] = stated.get("about"), stated["about now"]
    for name, (expected, sum_) in pairs.items():
        if expected != sum_:
            raise UserError(
                f"{data.path}: its {name} do not have the checksum that the file states, so it is damaged or was "
                "edited; make it again with `eeg2text prepare`."
            )


def _check(data: DataFile) -> None:
    n, total = len(data.sentence), len(data.features)
    offsets = data.offsets
    if not n:
        raise UserError(f"{data.path}: holds no samples.")
    lengths = {len(data.subject), len(data.task), len(data.sentence_index), len(offsets) - 1}
    if lengths != {n} or offsets[0] != 0 or offsets[-1] != total:
        raise UserError(f"{data.path}: its columns disagree in length; make it again with `eeg2text prepare`.")
    if (data.n_words < 1).any():
        row = int(np.argmax(data.n_words < 1))
        raise UserError(f"{data.path}: sample {row} ({data.subject[row]}, {data.sentence_id[row]}) has no words.")
    if not np.isfinite(data.features).all():
        row = int(np.searchsorted(offsets, np.argwhere(~np.isfinite(data.features))[0, 0], side="right")) - 1
        raise UserError(
            f"{data.path}: sample {row} ({data.subject[row]}, {data.sentence_id[row]}) has NaN or infinity."
        )
    if not all(text.strip() for text in data.sentence):
        row = next(i for i, text in enumerate(data.sentence) if not text.strip())
        raise UserError(
            f"{data.path}: the sentence of sample {row} ({data.subject[row]}, {data.sentence_id[row]}) is empty."
        )
