"""Convert ZuCo's recordings to samples, one file at a time."""

import collections
import dataclasses
import pickle
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, BinaryIO

import h5py
import numpy as np

from eeg2text_jax.base import kinds
from eeg2text_jax.base.errors import UserError, count_of, first_line
from eeg2text_jax.base.files import file_digest
from eeg2text_jax.data.recordings import _features
from eeg2text_jax.data.recordings._mat_v5 import HEADER, byte_order, read_mat_v5
from eeg2text_jax.data.recordings._mat_v73 import read_mat_v73
from eeg2text_jax.data.source import Sample, Tally, UnreadableRecording, matches, read_recordings

TASKS = ("SR", "NR", "TSR", "NRv2", "TSRv2")  # sentiment, normal and task-specific reading; v2: ZuCo 2.0
SUFFIXES = (".mat", ".pickle", ".pkl")
_SUBJECT_FILE = re.compile(r"^results([A-Z]{3})_(SR|NR|TSR)(?:_\w+)?\.mat$")
# Folder and file names of Wang & Ji (task1-SR, task2-NR-2.0, ...) and of NeuSpeech (task1_source, taskNRv2_source).
_PICKLED_TASK = (
    (re.compile(r"NR[-_]?2\.0|NR_?v2"), "NRv2"),
    (re.compile(r"task1|(?<![A-Z])SR"), "SR"),
    (re.compile(r"task2|(?<![A-Z])NR"), "NR"),
    (re.compile(r"task3|TSR"), "TSR"),
)


@dataclasses.dataclass(frozen=True)
class RecordingFile:
    """The file of a task of one subject (MATLAB) or all (pickle; `subject` is "")."""

    path: Path
    subject: str
    task: str


def find_recordings(sources: Sequence[str], task: str = "") -> tuple[list[RecordingFile], list[str]]:
    """Return the recordings in files, folders (and subfolders) and globs, by task and subject, and notes on others.

    `task` is that of pickles whose names state none. Raises UserError if there is no recording, a file's name lacks
    subject or task, or two files have both in common.
    """
    file_of: dict[Path, RecordingFile] = {}
    ignored = []
    for source in sources:
        for path in _paths(source):
            file = _identify(path, task)
            if isinstance(file, RecordingFile):
                file_of[path.resolve()] = file
            elif Path(source).is_file():
                raise UserError(f"{path}: {file}")
            else:
                ignored.append(f"{path}: passed over; {file}")
    if not file_of:
        raise UserError(
            f"{', '.join(sources)}: no recordings found; expected results<SUBJECT>_<SR|NR|TSR>.mat or a task's pickle."
        )
    files = sorted(file_of.values(), key=lambda file: (TASKS.index(file.task), file.subject, str(file.path)))
    refuse_duplicates((file.subject, file.task, file.path) for file in files)
    return files, ignored


def refuse_duplicates(entries: Iterable[tuple[str, str, Path]]) -> None:
    """Raise UserError if two entries (subject, task, file) have the same subject and task."""
    seen: dict[tuple[str, str], Path] = {}
    for subject, task, path in entries:
        other = seen.setdefault((subject, task), path)
        if subject and other != path:
            raise UserError(f"{other} and {path} both hold subject {subject} of task {task}; name one of them only.")


def layout(path: Path) -> str:
    """Return `mat-v5`, `mat-v7.3` or `pickle` by a file's content, or raise UnreadableRecording."""
    try:
        with path.open("rb") as file:
            header = file.read(HEADER)
        if byte_order(header):
            return "mat-v5"
        if h5py.is_hdf5(path):
            return "mat-v7.3"
    except OSError as error:
        raise UnreadableRecording(path, f"cannot be opened ({error.strerror or error}).") from error
    if header[:1] == b"\x80":
        return "pickle"
    if header[124:128] in (b"\x00\x02IM", b"\x02\x00MI"):
        raise UnreadableRecording(path, "is damaged or cut short (a v7.3 header without HDF5 data); fetch it again.")
    kind = "empty" if not header else "neither a MATLAB v5, v7 or v7.3 file nor a pickle"
    raise UnreadableRecording(path, f"is {kind}; expected a ZuCo recording, fetch it again.")


def _paths(source: str) -> list[Path]:
    path = Path(source)
    if path.is_file():
        return [path]
    is_folder = path.is_dir()
    paths = sorted(p for p in path.rglob("*") if p.suffix in SUFFIXES) if is_folder else matches(source)
    return [p for p in paths if p.is_file() and not p.name.startswith(".")]


def _identify(path: Path, task: str) -> RecordingFile | str:
    """Return the recording, or what is wrong with its name."""
    if path.suffix in (".pickle", ".pkl"):
        task = task or next((name for pattern, name in _PICKLED_TASK if pattern.search(path.name)), "")
        what = f"its name tells no task; give --task=, one of {', '.join(TASKS)}."
        return RecordingFile(path, "", task) if task else what
    if (match := _SUBJECT_FILE.match(path.name)) is None:
        return "its name tells no subject and task; expected results<SUBJECT>_<SR|NR|TSR>.mat."
    subject, task = match.groups()
    # Releases 1.0 (subjects Z..) and 2.0 (Y.., X..) both have NR and TSR, with different sentences.
    return RecordingFile(path, subject, f"{task}v2" if subject[0] in "XY" and task != "SR" else task)


# The pickles of Wang & Ji's scripts (and of NeuSpeech's copy) hold the fixated words of one task of all subjects, with
# the scripts' errors. As loading a pickle can execute any function that it names, the names under which numpy writes
# arrays resolve to the classes below, and every other name is refused.


class Forbidden(Exception):
    """A pickle names a class or function that recordings do not need; the message is the name."""


class _Dtype:
    """Stand-in for `numpy.dtype`, of numbers alone."""

    def __init__(self, name: "str | _Dtype", *_: Any):
        self.dtype: np.dtype = name.dtype if isinstance(name, _Dtype) else np.dtype(str(name))
        if self.dtype.kind not in "biuf":
            raise ValueError(f"an array of {name!r}, not of plain numbers")

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        if state[1] in ("<", ">"):
            self.dtype = self.dtype.newbyteorder(state[1])


class _Array:
    """Stand-in for `numpy.ndarray`."""

    def __init__(self, *_: Any):
        self.value: np.ndarray | None = None

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _, shape, dtype, is_fortran, content = state
        self.value = _rebuild(content, dtype, shape, "F" if is_fortran else "C")


def _rebuild(content: Any, dtype: Any, shape: Any, order: str = "C") -> np.ndarray:
    if not isinstance(dtype, _Dtype) or not isinstance(content, bytes | bytearray):
        raise ValueError("an array whose elements are no numbers")
    flat = np.frombuffer(content, dtype.dtype)
    if flat.size != np.prod(shape, dtype=object):
        raise ValueError(f"an array of shape {shape} with {flat.size} numbers")
    return flat.reshape(shape, order="F" if order == "F" else "C")


_ALLOWED = {("numpy", "ndarray"): _Array, ("numpy", "dtype"): _Dtype} | {
    (f"numpy.{core}.{module}", name): stand_in
    for core in ("core", "_core")  # numpy 1 and numpy 2
    for module, name, stand_in in (
        ("multiarray", "_reconstruct", _Array),
        ("multiarray", "scalar", lambda dtype, content: _rebuild(content, dtype, ()).item()),
        ("numeric", "_frombuffer", _rebuild),
    )
}


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ALLOWED:
            raise Forbidden(f"{module}.{name}")
        return _ALLOWED[module, name]


def load_plain(file: BinaryIO) -> Any:
    """Load a pickle of numbers, text, containers and numeric arrays, which `array` converts.

    Raises Forbidden for another class or function (nothing was executed), any Exception if it is damaged.
    """
    content = _Unpickler(file).load()
    if file.read(1):
        raise ValueError("data after its end")
    return content


def array(value: Any) -> np.ndarray:
    """Flatten a loaded array, number or empty list; raise TypeError for others."""
    if isinstance(held := getattr(value, "value", value), np.ndarray):
        return held.ravel()
    if isinstance(value, int | float) or (isinstance(value, list) and not value):
        return np.atleast_1d(np.asarray(value, np.float64))
    raise TypeError(f"{type(value).__name__} where numbers were expected")


PICKLED = ("GD", "FFD", "TRT")


def read_pickle(path: Path, fields: _features.Fields) -> dict[str, list[_features.Sentence | None]]:
    """Return subject -> sentences, by subject; None is one that Wang & Ji's scripts found missing.

    Raises UnreadableRecording for a damaged or refused file, UserError for a measure not in these pickles.
    """
    if fields.measure not in PICKLED:
        raise UserError(
            f"{path}: Wang & Ji's pickles hold {', '.join(PICKLED)}, not {fields.measure}; "
            "choose another data.recordings.measure or read the MATLAB files."
        )
    try:
        with path.open("rb") as file:
            content = load_plain(file)
        if not isinstance(content, dict) or not content:
            raise TypeError("it holds no dictionary of subjects")
        subjects = {}
        for subject in sorted(content):
            items = content.pop(subject)
            subjects[subject] = [None if item is None else _sentence(item, fields) for item in items]
    except Forbidden as error:
        what = f"it names {error}, and recordings hold only arrays, text and numbers"
        raise UnreadableRecording(path, f"refused, nothing was executed: {what}.") from error
    except Exception as error:  # a damaged pickle makes the C unpickler raise nearly anything
        reason = f"missing {first_line(error)}" if isinstance(error, KeyError) else first_line(error)
        what = f"is damaged or not a pickle by Wang & Ji's scripts ({type(error).__name__}: {reason})."
        raise UnreadableRecording(path, what) from error
    return subjects


def _sentence(item: Any, fields: _features.Fields) -> _features.Sentence:
    words = []
    for word in item["word"]:
        measured, count = word["word_level_EEG"][fields.measure], array(word["nFixations"])
        eeg = tuple(array(measured[name]) for name in fields.word)
        words.append(_features.Word(_text(word["content"]), float(count.item()), eeg))
    contents, every = [word.content for word in words], item["word_tokens_all"]
    fixated = [token for token, mask in zip(every, item["word_tokens_with_mask"], strict=True) if mask != "[MASK]"]
    if contents != item["word_tokens_has_fixation"] or contents != fixated:
        raise ValueError("the words of a sentence contradict its list of tokens")
    means = tuple(array(item["sentence_level_EEG"][name]) for name in fields.sentence)
    return _features.Sentence(_text(item["content"]), tuple(words), tuple(map(_text, every)), frozenset(), means)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{type(value).__name__} where text was expected")
    return value


WANG_JI = "wang-ji"


@dataclasses.dataclass(frozen=True)
class RecordingSpec:
    """The fields of `config.data.recordings`."""

    measure: Annotated[str, kinds.one_of(*_features.MEASURES)]
    bands: Annotated[tuple[str, ...], kinds.many(kinds.one_of(*_features.BANDS))]
    non_words: Annotated[str, kinds.one_of("keep", "skip")]
    zscore: Annotated[bool, kinds.flag()]
    compat: Annotated[str, kinds.one_of("", WANG_JI)]
    exclude: Annotated[tuple[str, ...], kinds.many(kinds.text(empty=False), least=0)]
    task: Annotated[str, kinds.one_of("", *TASKS)]
    strict: Annotated[bool, kinds.flag()]

    def __post_init__(self) -> None:
        if self.compat and self.measure not in PICKLED:
            what = f"data.recordings.measure is {self.measure!r}"
            raise UserError(f"{what}; expected GD, FFD or TRT with compat={WANG_JI}.")

    @property
    def features_are(self) -> str:
        """Meaning of the F columns."""
        unit, size = "z-scores per word" if self.zscore else "µV", f"{_features.CHANNELS} channels"
        return f"{self.measure} band amplitudes ({unit}), {' '.join(self.bands)} x {size}, band-major"


class Recordings:
    """The samples of ZuCo's files, by task, subject, sentence; iterating completes `tally` and `provenance`.

    A damaged file yields none. Iterating raises UserError without a sample, or, with `strict`, for a damaged file.
    """

    def __init__(self, sources: Sequence[str], spec: RecordingSpec, tally: Tally):
        self._spec, self._fields, self._tally = spec, _features.Fields(spec.measure, spec.bands), tally
        self._files, notes = find_recordings(sources, spec.task)
        tally.notes += notes
        self._done: list[tuple[str, str, Path]] = []  # subject, task, file
        self._texts: dict[str, tuple[str, list[str]]] = {}  # task -> first subject, its texts
        self.provenance: dict[str, Any] = {"source": "recordings", **dataclasses.asdict(spec), "files": []}

    def __iter__(self) -> Iterator[Sample]:
        yield from read_recordings(self._files, self._read, self._spec.strict, self._tally.notes)
        self._tally.refuse_none(f"all were dropped ({self._tally.said_drops()}).")
        entries: dict[str, dict[str, int]] = collections.defaultdict(dict)  # task -> subject -> sentences
        for (subject, task), n in self._tally.sentences.items():
            entries[task][subject] = n
        self.provenance |= {"sentences": entries, "dropped": self._tally.drops(), "notes": list(self._tally.notes)}

    def _read(self, file: RecordingFile, title: str) -> list[Sample]:
        if file.subject in self._spec.exclude:
            self._tally.notes.append(f"{file.path}: left out, data.recordings.exclude names {file.subject}.")
            return []
        how = layout(file.path)
        tally = Tally()  # of this file, so that a damaged one adds nothing
        samples: list[Sample] = []
        sentences_of: dict[str, Any]
        if how == "pickle":
            sentences_of = read_pickle(file.path, self._fields)
        else:
            sentences_of = {file.subject: (read_mat_v5 if how == "mat-v5" else read_mat_v73)(file.path, self._fields)}
        refuse_duplicates([*self._done, *((subject, file.task, file.path) for subject in sentences_of)])
        for subject in list(sentences_of):
            sentences = sentences_of.pop(subject)
            if subject not in self._spec.exclude:
                samples += self._subject(file, subject, sentences, how, tally)
        self._done += [(subject, task, file.path) for subject, task in tally.sentences]
        self._tally.sentences |= tally.sentences
        self._tally.dropped += tally.dropped
        self._tally.notes += tally.notes
        digest = file_digest(file.path)
        self.provenance["files"].append({"name": file.path.name, "task": file.task, "layout": how, "sha256": digest})
        print(f"{title} {file.path}: {len(samples)} samples", file=sys.stderr)
        return samples

    def _subject(
        self, file: RecordingFile, subject: str, sentences: Iterable[_features.Sentence | None], how: str, tally: Tally
    ) -> list[Sample]:
        spec, samples, texts, other_tokens, absurd = self._spec, [], [], 0, 0
        for index, sentence in enumerate(sentences):
            texts.append(sentence.content if sentence else "")
            other_tokens += _has_other_tokens(sentence)
            try:
                if spec.compat:
                    features, text = _features.wang_ji_sample(sentence, how, spec.zscore)
                    absurd += any(
                        np.abs(band).max(initial=0) > _features.LARGEST for word in sentence.words for band in word.eeg
                    )
                else:
                    features, text = _features.default_sample(sentence, spec.measure, spec.non_words, spec.zscore)
            except _features.Dropped as reason:
                tally.dropped[subject, file.task, str(reason)] += 1
            else:
                recording = f"{subject}/{file.task}"  # in the order of the task, without onsets
                samples.append(Sample(features, text, subject, file.task, index, recording, order=index))
        tally.sentences[subject, file.task] = len(texts)
        who = f"{file.path} ({subject}, {file.task})"
        if other_tokens:
            many = count_of(other_tokens, "sentence")
            tally.notes.append(f"{who}: in {many} the words are not the tokens of the text.")
        if absurd:
            tally.notes.append(f"{who}: {absurd} sentences kept with values above {_features.LARGEST:g} µV.")
        tally.notes += self._compare(who, subject, file.task, texts)
        return samples

    def _compare(self, who: str, subject: str, task: str, texts: list[str]) -> list[str]:
        """Return notes on texts that differ from those of the task's first subject."""
        first, reference = self._texts.setdefault(task, (subject, texts))
        notes = []
        if len(texts) != len(reference):
            notes.append(f"{who}: has {len(texts)} sentences, {first} has {len(reference)}; matched by index.")
        other = [i for i, (a, b) in enumerate(zip(texts, reference, strict=False)) if a and b and a != b]
        if other:
            many, i = count_of(len(other), "sentence has", "sentences have"), other[0]
            notes.append(
                f"{who}: {many} another text than {first}'s of the same index (the first is {i}: {texts[i][:40]!r}, "
                f"{reference[i][:40]!r}); matched by index, so do not split by index."
            )
        return notes


def _has_other_tokens(sentence: _features.Sentence | None) -> bool:
    """Return whether text and words differ in their tokens with a letter or digit."""
    if sentence is None or sentence.words is None:
        return False
    pair = sentence.content.split(" "), sentence.tokens
    in_text, in_words = ([token for token in tokens if any(map(str.isalnum, token))] for tokens in pair)
    return in_text != in_words
