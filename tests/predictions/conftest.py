"""What tests of this folder read: a file written for them."""

from pathlib import Path

import pytest


@pytest.fixture
def write(tmp_path):
    def write(text: str | bytes, name: str = "file.txt") -> Path:
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return write
