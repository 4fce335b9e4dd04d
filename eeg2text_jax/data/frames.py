"""Frames of scans that stay in their file: what a data file of volumes has in place of an array of word features."""

import os
import threading
from pathlib import Path

import h5py
import numpy as np

from eeg2text_jax.data.half import from_half
from eeg2text_jax.errors import UserError, first_line


class Frames:
    """Frames `[frames, X, Y, Z]` of an HDF5 file, read when they are sliced, as float32.

    The file keeps a checksum with every frame, which reading compares. Each process and thread opens the file anew.

    Args:
      path: the data file.
      shape: of all frames.
      digest: SHA-256 of the frames as they are stored, in hexadecimal, as the file states it.
    """

    def __init__(self, path: Path, shape: tuple[int, ...], digest: str):
        self.path, self.shape, self.digest = path, shape, digest
        self._open = threading.local()

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: slice) -> np.ndarray:
        """Some frames, float32 `[rows, X, Y, Z]`.

        Raises:
          UserError: they cannot be read, or are damaged.
        """
        try:
            found = self._dataset()[rows]
            return from_half(found) if found.dtype == np.float16 else found
        except (OSError, RuntimeError, KeyError) as error:
            raise UserError(
                f"{self.path}: frames {rows.start} to {rows.stop} cannot be read, the file may be damaged "
                f"({first_line(error)}); make it again with `eeg2text prepare`."
            ) from error

    def _dataset(self) -> h5py.Dataset:
        if getattr(self._open, "process", None) != os.getpid():
            self._open.file = h5py.File(self.path, "r")
            self._open.process = os.getpid()
        return self._open.file["features"]

    def __reduce__(self) -> tuple[type, tuple[Path, tuple[int, ...], str]]:
        return Frames, (self.path, self.shape, self.digest)
