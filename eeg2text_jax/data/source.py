"""`Sample` and `Source`: what every reader of files returns; and functions that the readers share."""

import csv
import dataclasses
import glob
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from eeg2text_jax.errors import UserError
from eeg2text_jax.files import file_digest


@dataclasses.dataclass(frozen=True)
class Sample:
    """One subject reading one sentence in one task; `features` is float32 `[W, F]`.

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


@dataclasses.dataclass(frozen=True)
class Source:
    """Samples, read lazily; `provenance` is complete after the last sample."""

    samples: Iterable[Sample]
    provenance: dict[str, Any]
    features_are: str  # meaning of the F columns


def files_of(paths: list[Path]) -> list[dict[str, str]]:
    """Return name and SHA-256 of each file, for the provenance. Raises UserError for a missing file."""
    for path in paths:
        if not path.is_file():
            raise UserError(f"{path}: {'is a folder; expected a file' if path.is_dir() else 'there is no such file'}.")
    return [{"name": path.name, "sha256": file_digest(path)} for path in paths]


def matches(source: str) -> list[Path]:
    """Return the paths that a glob matches, sorted. Raises UserError if there is none."""
    found = sorted(map(Path, glob.glob(source, recursive=True)))
    if not found:
        raise UserError(f"{source}: there is no such file or folder, and as a pattern it matches nothing.")
    return found


def is_pointer(path: Path) -> bool:
    """Return whether a file is a pointer of git-annex or git-lfs, which stands for data that are not downloaded."""
    if path.stat().st_size >= 1024:  # pointers are smaller
        return False
    head = path.read_bytes()
    return b"/annex/objects/" in head or head.startswith(b"version https://git-lfs")


def read_cells(path: Path) -> list[tuple[int, list[str]]]:
    """Return (line number, cells) of each line of a CSV or TSV file (by its ending); UserError if it cannot be read."""
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
