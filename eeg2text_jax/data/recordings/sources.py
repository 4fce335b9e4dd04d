"""Find ZuCo's recordings in files, folders and globs: subject, task and format of each file."""

import dataclasses
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

import h5py

from eeg2text_jax.data.recordings.features import UnreadableRecording
from eeg2text_jax.data.recordings.mat_v5 import HEADER, byte_order
from eeg2text_jax.data.source import matches
from eeg2text_jax.errors import UserError

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
    """The file of one task of one subject (MATLAB) or of all subjects (pickle; `subject` is "")."""

    path: Path
    subject: str
    task: str


def find_recordings(sources: Sequence[str], task: str = "") -> tuple[list[RecordingFile], list[str]]:
    """Return the recordings in files, folders and globs, ordered by task and subject, and notes on ignored files.

    Subfolders are searched, too. `task` is the task of pickles, whose names may not state it. Raises UserError if a
    source does not exist or has no recordings, if the name of a file lacks subject or task, or if two files have the
    same subject and task.
    """
    if task and task not in TASKS:
        raise UserError(f"data.recordings.task is {task!r}; expected one of {', '.join(TASKS)}.")
    found: dict[Path, RecordingFile] = {}
    ignored = []
    for source in sources:
        for path in _paths(source):
            file = _identify(path, task)
            if file is not None:
                found[path.resolve()] = file
            elif Path(source).is_file():
                raise UserError(f"{path}: {_expectation(path)}")
            else:
                ignored.append(f"{path}: passed over; {_expectation(path)}")
    if not found:
        raise UserError(
            f"{', '.join(sources)}: no recordings found; expected results<SUBJECT>_<SR|NR|TSR>.mat or a task's pickle."
        )
    files = sorted(found.values(), key=lambda file: (TASKS.index(file.task), file.subject, str(file.path)))
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
    """Return the format of a file by its content: `mat-v5`, `mat-v7.3` or `pickle`; else raise UnreadableRecording."""
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
    if path.is_dir():
        found = sorted(p for p in path.rglob("*") if p.suffix in SUFFIXES)
    elif path.is_file():
        return [path]
    else:
        found = matches(source)
    return [p for p in found if p.is_file() and not p.name.startswith(".")]


def _identify(path: Path, task: str) -> RecordingFile | None:
    if path.suffix in (".pickle", ".pkl"):
        task = task or next((name for pattern, name in _PICKLED_TASK if pattern.search(path.name)), "")
        return RecordingFile(path, "", task) if task else None
    match = _SUBJECT_FILE.match(path.name)
    if match is None:
        return None
    subject, task = match.groups()
    # Both releases have NR and TSR, with different sentences; subject codes begin with Z (1.0) or with Y or X (2.0).
    return RecordingFile(path, subject, f"{task}v2" if subject[0] in "XY" and task != "SR" else task)


def _expectation(path: Path) -> str:
    if path.suffix in (".pickle", ".pkl"):
        return f"its name tells no task; give --task=, one of {', '.join(TASKS)}."
    return "its name tells no subject and task; expected results<SUBJECT>_<SR|NR|TSR>.mat."
