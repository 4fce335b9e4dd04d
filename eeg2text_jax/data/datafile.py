"""The data file: every sample of a study in one HDF5 file.

Layout: `features` float32 [sum W, F] holds the words of all samples one after the other, `offsets` int64 [N + 1]
says where each sample begins, and `sentence`, `subject`, `task` (UTF-8) and `sentence_index` (int64) have one entry
a sample. `sentence_index` numbers the sentences of a task and is the same for every subject. Attributes:
`format`, `features_are` (what the F columns mean) and `provenance` (JSON: sources with hashes, reader, drop counts).
"""

import dataclasses
import hashlib
import json
import os
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Any

import h5py
import numpy as np

from eeg2text_jax.data.hdf5_disk import PatientFile
from eeg2text_jax.errors import UserError, first_line

FORMAT = "eeg2text-data-1"
_STRINGS = ("sentence", "subject", "task")


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

    Use as a context manager: on an exception, `OSError` of a full disk among them, the temporary file is removed.

    Args:
      path: where the data file shall be.
      n_features: F, the width of every sample's features.
      features_are: what the F columns mean, e.g. `"8 bands x 105 channels, band-major"`.
    """

    def __init__(self, path: str | os.PathLike[str], n_features: int, features_are: str):
        self.path = Path(path)
        self._partial = self.path.with_name(f".{self.path.name}.{os.getpid()}.partial")
        self._n_features = n_features
        self._columns: dict[str, list[Any]] = {name: [] for name in (*_STRINGS, "sentence_index")}
        self._offsets = [0]
        self.provenance: dict[str, Any] = {}
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._disk = PatientFile(self._partial, "w+")
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
        if kind is None:
            self._file["offsets"] = np.asarray(self._offsets, np.int64)
            self._file["sentence_index"] = np.asarray(self._columns["sentence_index"], np.int64)
            for name in _STRINGS:
                self._file.create_dataset(name, data=self._columns[name], dtype=h5py.string_dtype())
            self._file.attrs["provenance"] = json.dumps(self.provenance, sort_keys=True)
        self._file.close()
        self._disk.close()
        try:
            self._disk.check()
            if kind is None:
                self._partial.replace(self.path)
        finally:
            self._partial.unlink(missing_ok=True)


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

    def digest(self) -> str:
        """A hash of all that the file holds, whatever it is called."""
        digest = hashlib.sha256()
        for array in (self.features, self.offsets, self.sentence_index):
            digest.update(np.ascontiguousarray(array).data)
        for name in _STRINGS:
            digest.update("\0".join(getattr(self, name)).encode())
        return digest.hexdigest()[:16]


def read_datafile(path: str | os.PathLike[str]) -> DataFile:
    """Reads and checks a data file.

    Raises:
      UserError: the file is missing, is not a data file, is cut short, or its parts do not fit together.
    """
    data = _load(Path(path), slice(None))
    _check(data)
    return data


def read_outline(path: str | os.PathLike[str]) -> DataFile:
    """Reads a data file without its features, which may be larger than memory: they are `[0, F]`, unchecked.

    Raises:
      UserError: the file is missing, is not a data file, or is cut short.
    """
    return _load(Path(path), slice(0))


def _load(path: Path, rows: slice) -> DataFile:
    if not path.exists():
        raise UserError(f"{path}: there is no such file; `eeg2text prepare SOURCE --out={path}` makes one.")
    try:
        with h5py.File(path, "r") as file:
            if file.attrs.get("format") != FORMAT:
                raise UserError(
                    f"{path}: expected an eeg2text data file (format {FORMAT}), found "
                    f"{file.attrs.get('format', 'another HDF5 file')}; make one with `eeg2text prepare`."
                )
            columns = {name: file[name].asstr()[:] for name in _STRINGS}
            arrays = {name: file[name][:] for name in ("offsets", "sentence_index")}
            return DataFile(
                path=path,
                features=file["features"][rows],
                features_are=str(file.attrs["features_are"]),
                provenance=json.loads(file.attrs["provenance"]),
                **columns,
                **arrays,
            )
    except (OSError, KeyError, RuntimeError, ValueError) as error:
        raise UserError(
            f"{path}: cannot be read as an eeg2text data file, it may be cut short "
            f"({first_line(error)}); make it again with `eeg2text prepare`."
        ) from error


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
