"""The common form of all sources of a data file, and optional packages."""

import dataclasses
import importlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from eeg2text_jax.data.datafile import Sample
from eeg2text_jax.errors import UserError
from eeg2text_jax.files import file_digest


@dataclasses.dataclass(frozen=True)
class Source:
    """Samples, read as they are taken; `provenance` is complete once all are."""

    samples: Iterable[Sample]
    provenance: dict[str, Any]
    features_are: str


def files_of(paths: list[Path]) -> list[dict[str, str]]:
    """Return name and SHA-256 of each file. Raises UserError for a missing file."""
    for path in paths:
        if not path.is_file():
            raise UserError(f"{path}: {'is a folder; expected a file' if path.is_dir() else 'there is no such file'}.")
    return [{"name": path.name, "sha256": file_digest(path)} for path in paths]


def library(name: str, extra: str) -> Any:
    """Import an optional package. Raises UserError that names the extra to install."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise UserError(f"this needs {name}, which is not installed; pip install 'eeg2text_jax[{extra}]'.") from error
