"""The data file: all samples of a study in one HDF5 file.

Columns, one entry a sample: `sentence`, `subject`, `task` (UTF-8), `sentence_index` (int64, the sentence's number in
its task, equal for all subjects) and, if time is known, `recording`, `onset`, `duration`, `order` (`clock.py`).
Attributes: `format`, `features_are` (meaning of the F columns), `provenance` (JSON: sources with hashes, reader, drop
counts) and `checksums` (JSON, verified on reading).

EEG: `features` float32 `[sum W, F]` are the words of all samples, `offsets` int64 `[N + 1]` their starts.

Waves: `features` float16 `[sum W, C]` are the moments of C channels, which stay in the file until a batch needs them;
HDF5 keeps a checksum of each chunk. `provenance` has `sfreq`, `channels` and `types`.

Volumes: `features` float16 or float32 `[frames, X, Y, Z]`, one chunk with a checksum per frame. A sample is a window of
consecutive frames: `starts` int64 `[N]` is its first frame, `offsets` the running sum of lengths. `task` is the
stimulus, `sentence_index` the number in it of the window's first segment (the text of one repetition, TR), `text_group`
`[N]` the story. Windows share text if their times in the stimulus overlap (`clock.times_of`).
"""

import dataclasses
import functools
import hashlib
import io
import json
import math
import os
import threading
import warnings
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from h5py import h5d, h5g, h5i, h5l, h5o

from eeg2text_jax.base.errors import UserError, did_you_mean, first_line
from eeg2text_jax.base.files import parse_json
from eeg2text_jax.base.packages import library
from eeg2text_jax.base.stores.buckets import at_hand
from eeg2text_jax.data.clock import CLOCK_COLUMNS, Clock, times_of

# The HDF5 library ends the process with a segmentation fault after a failed write, or a read of other bytes than were
# written. When reading, it follows links and external storage to other files, whose bytes would become features, and
# allocates any size that a file claims.

_EXPANSION = 1032  # largest compression ratio: deflate on zeros


def open_own(group: h5g.GroupID, name: bytes) -> h5g.GroupID | h5d.DatasetID:
    """Open a member of a group. Raises ValueError for a link to elsewhere, KeyError if it is absent."""
    if group.links.get_info(name).type != h5l.TYPE_HARD:
        raise ValueError(f"{name.decode(errors='replace')} is a link to another place, which is not followed")
    return h5o.open(group, name)


def check_size(dataset: h5d.DatasetID, name: str) -> None:
    """Raise ValueError if a dataset's values are in another file, or more than the file holds."""
    properties = dataset.get_create_plist()
    layout = properties.get_layout()
    if layout == h5d.VIRTUAL or (layout == h5d.CONTIGUOUS and properties.get_external_count()):
        raise ValueError(f"{name} keeps its values in another file, which is not read")
    claimed, stored = math.prod(dataset.shape) * dataset.dtype.itemsize, dataset.get_storage_size()
    most = min(stored, h5i.get_file_id(dataset).get_filesize()) * (_EXPANSION if properties.get_nfilters() else 1)
    if claimed > most:
        raise ValueError(f"{name} claims {dataset.shape} entries, and the file holds {stored} bytes of it")


def check_own(group: h5g.GroupID, name: bytes) -> None:
    """Raise ValueError unless a member is a dataset that the file itself holds; KeyError if it is absent."""
    member = open_own(group, name)
    if not isinstance(member, h5d.DatasetID):
        raise ValueError(f"{name.decode()} is no dataset")
    check_size(member, name.decode())


class PatientFile(io.FileIO):
    """A binary file for `h5py.File(file, "w")` whose writes never raise; `check` raises the first error.

    After the error, writes go to memory for HDF5 to read back; frequent calls of `check` limit this memory.
    """

    _error: OSError | None = None

    def __init__(self, *arguments: Any):
        self._in_memory: list[tuple[int, bytes]] = []  # position and bytes of the failed and later writes
        super().__init__(*arguments)

    def write(self, data: Any) -> int:
        """Write all of `data`, of which `FileIO.write` may write a part."""
        whole = memoryview(data).cast("B")
        start, rest = self.tell(), whole
        try:
            while rest and self._error is None:
                rest = rest[super().write(rest) :]
        except OSError as error:
            self._error = error
        if self._error is not None:
            self._in_memory.append((start, bytes(whole)))
            super().seek(start + whole.nbytes)
        return whole.nbytes

    def readinto(self, buffer: Any) -> int:
        whole = memoryview(buffer).cast("B")
        start = self.tell()
        size = max(0, min(whole.nbytes, self._end() - start))
        got = super().readinto(whole)
        if self._error is None:
            return got
        whole[got:size] = bytes(max(0, size - got))
        for place, data in self._in_memory:
            first, last = max(start, place), min(start + size, place + len(data))
            if first < last:
                whole[first - start : last - start] = data[first - place : last - place]
        super().seek(start + size)
        return size

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        return super().seek(self._end() + offset) if whence == os.SEEK_END else super().seek(offset, whence)

    def _end(self) -> int:
        return max([os.fstat(self.fileno()).st_size, *(place + len(data) for place, data in self._in_memory)])

    def truncate(self, size: int | None = None) -> int:
        try:
            return super().truncate(size)
        except OSError as error:
            self._error = self._error or error
            return self.tell() if size is None else size

    def check(self) -> None:
        """Raise the first OSError of a write."""
        if self._error is not None:
            raise OSError(self._error.errno, self._error.strerror, str(self.name)) from self._error


_DOWN, _UP = np.float32(2.0**-112), np.float32(2.0**112)  # shift between exponent biases: 127 of float32, 15 of float16


class Frames:
    """Frames `[frames, X, Y, Z]` or moments of waves `[moments, C]` that stay in a data file, which states `digest`.

    Slicing reads them as float32 and verifies the checksum of each chunk; each process and thread opens the file anew.
    """

    def __init__(self, path: Path, shape: tuple[int, ...], digest: str):
        self.path, self.shape, self.digest = path, shape, digest
        self._open = threading.local()

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: slice) -> np.ndarray:
        """Read float32 `[rows, ...]`. Raises UserError if they are damaged."""
        try:
            if getattr(self._open, "process", None) != os.getpid():
                self._open.file = h5py.File(self.path, "r")
                self._open.process = os.getpid()
            frames = self._open.file["features"][rows]
            return from_half(frames) if frames.dtype == np.float16 else frames
        except (OSError, RuntimeError, KeyError) as error:
            raise UserError(
                f"{self.path}: {'frames' if len(self.shape) > 2 else 'samples in time'} {rows.start} to {rows.stop} "
                f"cannot be read, the file may be damaged ({first_line(error)}); make it again with `eeg2text prepare`."
            ) from error

    def __reduce__(self) -> tuple[type, tuple[Path, tuple[int, ...], str]]:
        return Frames, (self.path, self.shape, self.digest)


HALF_RANGE = 65504.0  # largest number of float16


def to_half(values: np.ndarray) -> np.ndarray:
    """Round finite, contiguous float32 up to 65504 to the nearest float16, below 2^-14 to one of the two nearest.

    Takes half the time of NumPy's conversion.
    """
    bits = (values * _DOWN).view(np.uint32)
    odd = bits >> np.uint32(13)
    odd &= np.uint32(1)
    odd += np.uint32(0x0FFF)
    magnitude = bits & np.uint32(0x7FFFFFFF)
    magnitude += odd
    magnitude >>= np.uint32(13)
    half = magnitude.astype(np.uint16)
    half |= (values.view(np.uint32) >> np.uint32(16)).astype(np.uint16) & np.uint16(0x8000)
    return half.view(np.float16)


def from_half(halves: np.ndarray) -> np.ndarray:
    """Convert finite, contiguous float16 to float32 in a third of NumPy's time."""
    bits = halves.view(np.uint16).astype(np.uint32)
    sign = bits & np.uint32(0x8000)
    sign <<= np.uint32(16)
    bits &= np.uint32(0x7FFF)
    bits <<= np.uint32(13)
    values = bits.view(np.float32)
    values *= _UP
    values.view(np.uint32)[...] |= sign
    return values


FORMAT = "eeg2text-data-3"
VOLUMES = "eeg2text-volumes-2"
WAVES = "eeg2text-waves-1"
# Formats of earlier versions, which are still read.
WITHOUT_CHECKSUMS = "eeg2text-data-1"
WITHOUT_TIME = (WITHOUT_CHECKSUMS, "eeg2text-data-2", "eeg2text-volumes-1")

STRINGS = ("sentence", "subject", "task")
WINDOW_COLUMNS = ("starts", "text_group")  # of volumes
NUMBERS = ("offsets", "sentence_index", "starts", "order")  # int64 columns
REALS = ("onset", "duration")  # float64 columns; the others are UTF-8
# Exceptions of h5py on damaged files.
HDF5_ERRORS = (OSError, KeyError, RuntimeError, ValueError, TypeError, AttributeError, MemoryError, OverflowError)


@dataclasses.dataclass(frozen=True)
class DataFile:
    """A data file; features of waves and volumes stay on disk. `offsets` are int64 `[N + 1]`, other columns `[N]`.

    A position is a word, a moment of waves, or a frame of a window of volumes; windows may overlap.
    """

    path: Path
    features: np.ndarray | Frames  # float32 [sum W, F], [sum W, C] or [frames, X, Y, Z]
    offsets: np.ndarray
    sentence: np.ndarray
    subject: np.ndarray
    task: np.ndarray
    sentence_index: np.ndarray
    features_are: str
    provenance: dict[str, Any]
    recording: str = "eeg"  # or fmri
    starts: np.ndarray | None = None  # int64 [N], first frame of each window; None for EEG
    text_group: np.ndarray | None = None  # [N], story of each window; None for EEG
    clock: Clock | None = None  # None if the file has no columns of time

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
        """Whether samples are windows of fMRI scans."""
        return self.starts is not None

    @property
    def is_waves(self) -> bool:
        """Whether positions are moments, `sfreq` a second, rather than words or frames."""
        return self.sfreq > 0

    @property
    def sfreq(self) -> float:
        """Samples a second of waves; 0 for words and volumes."""
        return float(self.provenance.get("sfreq", 0.0))

    @property
    def channels(self) -> tuple[str, ...]:
        """Names of the channels; empty if the file does not say."""
        return tuple(map(str, self.provenance.get("channels", ())))

    @property
    def types(self) -> tuple[str, ...]:
        """MNE's type of each of `channels`: eeg | mag | grad | seeg | ecog."""
        return tuple(map(str, self.provenance.get("types", ["eeg"] * len(self.channels))))

    @property
    def positions(self) -> np.ndarray | None:
        """Positions of `channels` in metres (right, front, up), float32 `[C, 3]`; None if unknown."""
        places = [place[1:] for place in electrodes_of(self)]
        return np.array(places, np.float32) if places and len(places) == len(self.channels) else None

    @property
    def n_words(self) -> np.ndarray:
        """Number of positions of each sample, int64 `[N]`."""
        return np.diff(self.offsets)

    @property
    def sentence_id(self) -> np.ndarray:
        """`task:index` of each sample, equal for all subjects."""
        pairs = zip(self.task, self.sentence_index, strict=True)
        return np.array([f"{task}:{index}" for task, index in pairs], object)

    @functools.cached_property
    def story_times(self) -> np.ndarray:
        """Start and end of each window in milliseconds of its story's audio, int64 `[N, 2]`."""
        return times_of(self)

    def words(self, i: int) -> np.ndarray:
        """Return the features of sample `i`, float32 `[W, *feature_shape]`."""
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
        """Return a hash of all samples, without file name and provenance."""
        return digest_of(self.digests.values())[:16]


def digests_of(features: Any, columns: Mapping[str, Any]) -> dict[str, str]:
    """Return `DataFile.digests`; `features` hashes the features, or the frames' digest."""
    features = features.copy()
    for name in ("offsets", "starts"):
        if name in columns:
            features.update(np.ascontiguousarray(columns[name]).data)
    index = np.asarray(columns["sentence_index"]).tolist()
    groups = [list(columns["text_group"])] if "text_group" in columns else []
    samples = json.dumps([list(columns["subject"]), list(columns["task"]), index, *groups])
    digests = {
        "features": features.hexdigest(),
        "samples": digest_of([samples]),
        "sentences": digest_of([json.dumps(list(columns["sentence"]))]),
    }
    if "recording" in columns:
        times = [np.ascontiguousarray(columns[name]).tobytes().hex() for name in ("onset", "duration", "order")]
        digests["clock"] = digest_of([json.dumps(list(columns["recording"])), *times])
    return digests


def digest_of(texts: Iterable[str]) -> str:
    """Return the hexadecimal SHA-256 of texts joined by newlines."""
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()


def read_datafile(path: str | os.PathLike[str]) -> DataFile:
    """Read and check a data file.

    Raises:
      UserError: the file is missing, damaged or no data file.

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
    """Read a data file without its features, which may exceed memory: `features` is `[0, F]`.

    Raises UserError if the file is missing, truncated or no data file.
    """
    data, stated = _load(Path(path), slice(0))
    _check_sums(data, stated, {name: digest for name, digest in data.digests.items() if name != "features"})
    return data


def _load(path: Path, rows: slice) -> tuple[DataFile, dict[str, str] | None]:
    """Return the data (of EEG only the features `rows`) and the stated checksums (None in the oldest format)."""
    if path.is_dir():
        raise UserError(f"{path}: is a folder; expected a data file (.h5).")
    if not path.exists():
        raise UserError(f"{path}: there is no such file; `eeg2text prepare SOURCE --out={path}` makes one.")
    try:
        with h5py.File(path, "r") as file:
            kind = file.attrs.get("format")
            if kind not in (FORMAT, VOLUMES, WAVES, *WITHOUT_TIME):
                raise UserError(
                    f"{path}: expected an eeg2text data file ({FORMAT}), found {kind or 'another HDF5 file'}; make "
                    "one with `eeg2text prepare`."
                )
            windows = "volumes" in kind
            names = [*STRINGS, "offsets", "sentence_index", *(WINDOW_COLUMNS if windows else ())]
            names += CLOCK_COLUMNS if "recording" in file else ()
            for name in ("features", *names):
                check_own(file["/"].id, name.encode())
            numbers = (*NUMBERS, *REALS)
            columns = {name: file[name][:] if name in numbers else file[name].asstr()[:] for name in names}
            _check_types(kind, file["features"], columns)
            if "recording" in file:
                columns["clock"] = Clock(*(columns.pop(name) for name in CLOCK_COLUMNS))
            if windows:
                columns["recording"] = "fmri"
            about, stated = (str(file.attrs["features_are"]), str(file.attrs["provenance"])), None
            if kind != WITHOUT_CHECKSUMS:
                stated = {**parse_json(file.attrs["checksums"]), "about now": digest_of(about)}
            if windows or kind == WAVES:
                features = Frames(path, file["features"].shape, str(stated["frames"]))
            else:
                features = file["features"][rows]
            return DataFile(path, features, features_are=about[0], provenance=parse_json(about[1]), **columns), stated
    except HDF5_ERRORS as error:
        raise UserError(
            f"{path}: cannot be read as an eeg2text data file, it may be cut short ({first_line(error)}); make it "
            "again with `eeg2text prepare`."
        ) from error


def _check_types(kind: str, features: h5py.Dataset, columns: Mapping[str, np.ndarray]) -> None:
    """Raise ValueError if types or dimensions are not those of the format `kind`."""
    volumes = "volumes" in kind
    types = "float16 or float32" if volumes else "float16" if kind == WAVES else "float32"
    if features.dtype.name not in types.split() or features.ndim != (4 if volumes else 2):
        raise ValueError(f"features have the type {features.dtype} and shape {features.shape}; expected {types}")
    for name, values in columns.items():
        expected = np.dtype(np.int64 if name in NUMBERS else np.float64 if name in REALS else object)
        length = len(columns["sentence"] if name in CLOCK_COLUMNS else values)
        if values.dtype != expected or values.shape != (length,):
            raise ValueError(f"{name} has the type {values.dtype} and shape {values.shape}; expected {expected} [N]")


def _check_sums(data: DataFile, stated: dict[str, str] | None, digests: Mapping[str, str]) -> None:
    """Raise UserError if a checksum that the file states differs from the checksum of the data; None: no check."""
    if stated is None:
        return
    pairs = {name: (stated.get(name), digest) for name, digest in digests.items()}
    pairs["clock"] = stated.get("clock"), digests.get("clock")
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
    if data.starts is None:
        fits = offsets[-1] == len(data.features)
    else:
        fits = len(data.starts) == len(data.text_group) == n and data.starts.min() >= 0
        fits = fits and (data.starts + data.n_words).max() <= len(data.features)
    if lengths != {n} or offsets[0] != 0 or not fits:
        raise UserError(f"{data.path}: its columns disagree in length; make it again with `eeg2text prepare`.")
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


Place = tuple[str, float, float, float]  # channel, and its position in metres (right, front, up)


def electrodes_of(data: DataFile) -> list[Place]:
    """Return the electrode positions in the provenance; empty if unknown or F is no multiple of their number."""
    places = [(str(name), float(x), float(y), float(z)) for name, x, y, z in data.provenance.get("electrodes", [])]
    return places if places and data.n_features % len(places) == 0 else []


def electrodes(info: Any, names: Sequence[str], montage: str = "") -> list[Place]:
    """Return the positions of channels in MNE's head coordinates; empty if one is unknown.

    A recording (`info`) without positions gets those of a standard `montage`, if named. Raises UserError if the montage
    does not exist or lacks a channel.
    """
    where = np.array([info["chs"][info["ch_names"].index(name)]["loc"][:3] for name in names], float)
    if np.isfinite(where).all() and where.any(axis=1).all():
        places = zip(names, where.round(5), strict=True)
        return [(name, float(x), float(y), float(z)) for name, (x, y, z) in places]
    return electrodes(_standard(names, montage), names) if montage else []


def _standard(names: Sequence[str], montage: str) -> Any:
    """Return an MNE info of the channels in a standard montage."""
    mne = library("mne", "mne")
    montages = mne.channels.get_builtin_montages()
    if montage not in montages:
        raise UserError(f"data.raw.montage: MNE has no montage {montage!r}; {did_you_mean(montage, montages)}")
    with warnings.catch_warnings(action="ignore"):  # MNE warns of deprecated channel names
        template = mne.channels.make_standard_montage(montage)
        missing = {name.casefold() for name in names} - {name.casefold() for name in template.ch_names}
        if missing:
            lost = next(name for name in names if name.casefold() in missing)
            raise UserError(f"data.raw.montage: {montage!r} has no channel {lost!r}; set another, or data.raw.exclude.")
        info = mne.create_info(list(names), 1.0, "eeg")
        return info.set_montage(template, match_case=False)
