"""What every source of a data file is: samples, where they come from, and what their features mean."""

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
    """Samples are read as they are taken; `provenance` is complete once all have been."""

    samples: Iterable[Sample]
    provenance: dict[str, Any]
    features_are: str


def files_of(paths: list[Path]) -> list[dict[str, str]]:
    """Name and SHA-256 of each file, for the record.

    Raises:
      UserError: one is not there.
    """
    for path in paths:
        if not path.is_file():
            raise UserError(f"{path}: {'is a folder; expected a file' if path.is_dir() else 'there is no such file'}.")
    return [{"name": path.name, "sha256": file_digest(path)} for path in paths]


def library(name: str, extra: str) -> Any:
    """An optional package.

    Raises:
      UserError: it is not installed; it says which extra brings it.
    """
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise UserError(f"this needs {name}, which is not installed; pip install 'eeg2text_jax[{extra}]'.") from error
