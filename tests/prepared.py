"""`eeg2text prepare` as tests call it."""

from pathlib import Path

from eeg2text_jax.commands.cli import main
from eeg2text_jax.data.datafile import DataFile, read_datafile


def prepare(root: Path, *arguments: str | Path) -> DataFile:
    """The data file `root/data.h5` that is made of recordings."""
    assert main(["prepare", *map(str, arguments), f"--out={root / 'data.h5'}"]) == 0
    return read_datafile(root / "data.h5")
