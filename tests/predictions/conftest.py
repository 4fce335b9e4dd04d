"""What tests of this folder read: files written for them."""

from pathlib import Path

import pytest
from reading import refusal

from eeg2text_jax.instrument.predictions.read import read_any


@pytest.fixture
def write(tmp_path):
    def write(text: str | bytes, name: str = "file.txt") -> Path:
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return write


@pytest.fixture
def join(write):
    """Read outputs beside their references; `kind` is the end of the names of one or both files."""

    def join(outputs, references, kind="txt", kind_of_references="", reading=read_any, **options):
        reference = write(references, f"ref.{kind_of_references or kind}")
        return reading(write(outputs, f"out.{kind}"), reference=reference, **options)

    return join


@pytest.fixture
def join_refused(join):
    return lambda message, *files, **options: join(*files, reading=refusal, message=message, **options)
