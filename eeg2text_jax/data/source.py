"""`Sample` and `Source`, which every reader returns, and functions that readers share."""

import collections
import csv
import dataclasses
import glob
import math
import os
import re
import statistics
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from eeg2text_jax.base.errors import UserError, nearest
from eeg2text_jax.base.files import file_digest

LEFT_OUT = "LEFT OUT: "  # begins notes on unreadable files


@dataclasses.dataclass(frozen=True)
class Sample:
    """One subject reading one sentence in one task; `features` is float32 `[W, F]`.

    `recording` names a run of the subject, in which `onset` and `duration` are seconds and `order` is the place.
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


@dataclasses.dataclass(frozen=True)
class Source:
    """Samples, read lazily; `provenance` is complete after the last one."""

    samples: Iterable[Sample]
    provenance: dict[str, Any]
    features_are: str  # meaning of the F columns


class UnreadableRecording(UserError):
    """A file is damaged or no recording; without `strict`, `prepare` notes it and reads the others."""

    def __init__(self, path: str | os.PathLike[str], problem: str):
        super().__init__(f"{path}: {problem}")


def read_recordings(
    files: Sequence[Any], read: Callable[[Any, str], Iterable[Sample]], strict: bool, notes: list[str]
) -> Iterator[Sample]:
    """Yield the samples of `read(file, "[NUMBER/ALL]")` for each file; add notes on unreadable files."""
    for number, file in enumerate(files, 1):
        try:
            yield from read(file, f"[{number}/{len(files)}]")
        except UnreadableRecording as error:
            if strict:
                raise
            notes.append(f"{LEFT_OUT}{error}")
            print(f"[{number}/{len(files)}] {file.path}: LEFT OUT, see below", file=sys.stderr)


def files_of(paths: list[Path]) -> list[dict[str, str]]:
    """Return name and SHA-256 of each file. Raises UserError for a missing file."""
    for path in paths:
        if not path.is_file():
            raise UserError(f"{path}: {'is a folder; expected a file' if path.is_dir() else 'there is no such file'}.")
    return [{"name": path.name, "sha256": file_digest(path)} for path in paths]


def matches(source: str) -> list[Path]:
    """Return the paths that a glob matches, sorted. Raises UserError if there is none."""
    if paths := sorted(map(Path, glob.glob(source, recursive=True))):
        return paths
    raise UserError(f"{source}: there is no such file or folder, and as a pattern it matches nothing.")


def is_pointer(path: Path) -> bool:
    """Return whether a file is a pointer of git-annex or git-lfs, whose data are not downloaded."""
    is_small = not path.is_dir() and path.stat().st_size < 1024
    head = path.read_bytes() if is_small else b""
    return b"/annex/objects/" in head or head.startswith(b"version https://git-lfs")


def read_cells(path: Path) -> list[tuple[int, list[str]]]:
    """Return (line number, cells) of each line of a `.csv`, else TSV, file; raise UserError if it cannot be read."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError as error:
        raise UserError(f"{path}: there is no such file; expected a table (.tsv or .csv).") from error
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: cannot be read as a table in UTF-8 ({error}); save it as CSV UTF-8.") from error
    if path.suffix != ".csv":  # quotes have no meaning in TSV, where words may be quotation marks
        return [(number, line.split("\t")) for number, line in enumerate(text.splitlines(), 1)]
    reader = csv.reader(text.splitlines(keepends=True))
    return [(reader.line_num, cells) for cells in reader]


_MOST_ROWS = 120  # a longer table has one row per task
SHOWN_TEXTS = 3
_CODE = re.compile(r"[A-Za-z]{0,2} *\d+(\.0)?|\w+?-?\d+")  # codes of triggers: `S  8`, `101`, `event_1`
MARK = 5  # a text this many times as frequent as the next may be a mark such as `+`


@dataclasses.dataclass
class Tally:
    """Numbers of kept and dropped samples, and notes for users."""

    # (subject, task) or (subject, task, reason) -> samples
    n_kept: collections.Counter[tuple[str, str]] = dataclasses.field(default_factory=collections.Counter)
    dropped: collections.Counter[tuple[str, str, str]] = dataclasses.field(default_factory=collections.Counter)
    # (subject, task) -> sentences in its file, with placeholders of missing ones
    sentences: dict[tuple[str, str], int] = dataclasses.field(default_factory=dict)
    notes: list[str] = dataclasses.field(default_factory=list)
    unused: list[str] = dataclasses.field(default_factory=list)  # columns of the source
    _texts: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)  # text -> kept samples

    def count(self, samples: Iterable[Sample]) -> Iterator[Sample]:
        """Yield `samples` and count them as kept."""
        for sample in samples:
            self.n_kept[sample.subject, sample.task] += 1
            self._texts[sample.sentence] += 1
            yield sample

    def not_used(self, names: Sequence[str], used: Sequence[str], where: str, roles: Mapping[str, str]) -> None:
        """Record the columns `names` that are not `used`, with a note.

        `roles`: optional fields of `config.data.columns` and their columns, to suggest.
        """
        self.unused += [name for name in names if name not in used]
        if not self.unused:
            return
        alike = {field: nearest(name, self.unused, 0.6) for field, name in roles.items() if name not in names}
        hints = [
            f"; if {near!r} is the {field}, give data.columns.{field}={near}" for field, near in alike.items() if near
        ]
        self.notes.append(f"{where}: columns not used: {', '.join(self.unused)}{''.join(hints)}.")

    def drops(self, subject: str = "", task: str = "") -> dict[str, int]:
        """Return dropped samples by reason, most frequent first; "" stands for all subjects or tasks."""
        reasons: collections.Counter[str] = collections.Counter()
        for (of_subject, of_task, reason), n in self.dropped.items():
            if subject in ("", of_subject) and task in ("", of_task):
                reasons[reason] += n
        return dict(sorted(reasons.items(), key=lambda item: (-item[1], item[0])))

    def said_drops(self, subject: str = "", task: str = "") -> str:
        return ", ".join(f"{reason} {n}" for reason, n in self.drops(subject, task).items())

    def refuse_none(self, *reasons: str) -> None:
        """Raise UserError if no sample was kept, with the first unreadable file or reason."""
        if not self.n_kept:
            unreadable = [note.removeprefix(LEFT_OUT) for note in self.notes if note.startswith(LEFT_OUT)]
            raise UserError(f"no sample to write: {[*unreadable, *reasons][0]}")

    def table(self) -> str:
        """Return a table of kept and dropped samples by subject and task, with sums."""
        pairs = sorted(self.n_kept.keys() | {key[:2] for key in self.dropped}, key=lambda pair: pair[::-1])
        if len(pairs) > _MOST_ROWS:
            pairs = [("", task) for task in sorted({task for _, task in pairs})]
        lines = [f"{'subject':<10} {'task':<8} {'read':>7} {'kept':>7} {'dropped':>8}"]
        for subject, task in [*pairs, ("", "")]:
            count = sum(n for key, n in self.n_kept.items() if subject in ("", key[0]) and task in ("", key[1]))
            dropped, who = sum(self.drops(subject, task).values()), f"{subject or 'all':<10} {task or 'all':<8}"
            lines.append(f"{who} {count + dropped:>7} {count:>7} {dropped:>8}  {self.said_drops(subject, task)}")
        return "\n".join(map(str.rstrip, lines))

    def report(self) -> str:
        """Return the table, the first texts, and `mark_notes`."""
        shown = [first_texts(self._texts)] if self._texts else []
        return "\n".join([self.table(), *shown, *(f"note: {note}" for note in mark_notes(self._texts.elements()))])


def are_codes(texts: Iterable[str]) -> bool:
    """Return whether texts, three or more, all look like codes of triggers, such as `S  8`."""
    different = set(texts)
    return len(different) >= 3 and all(len(text) < 40 and _CODE.fullmatch(text) for text in different)


def mark_notes(texts: Iterable[str]) -> list[str]:
    """Return a note if all texts look like codes, or one is frequent enough for a marker."""
    counts = collections.Counter(texts)
    if are_codes(counts):
        return [
            f"all {len(counts)} texts look like codes of triggers, such as {min(counts)!r}; give a table of "
            "the texts by `code` or `trial` with data.raw.texts."
        ]
    if len(counts) < 3:
        return []
    (text, most), (_, second) = counts.most_common(2)
    if most < MARK * second or most < MARK * statistics.median(counts.values()):
        return []
    return [
        f"{text[:60]!r} is the text of {most} of {counts.total()} samples, the next most frequent text has {second}. "
        "If the first is no sentence, but a marker such as a fixation cross, name it in data.raw.skip."
    ]


def first_texts(texts: Iterable[str]) -> str:
    """Return a line with the first different texts, shortened."""
    shown = list(dict.fromkeys(texts))[:SHOWN_TEXTS]
    return f"first texts: {' | '.join(textwrap.shorten(text, 100, placeholder=' ...') for text in shown)}"
