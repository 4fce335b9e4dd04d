"""A file for HDF5 to write into that keeps a disk's errors to itself until asked.

The HDF5 library does not get over a write that fails: `close` fails as well, and so does its own end, with a
segmentation fault once the process exits.
"""

import io


class PatientFile(io.FileIO):
    """A binary file that notes its first error in writing and pretends that all went well. For `h5py.File(file, "w")`.

    Call `check` when HDF5 is through with it, or before.
    """

    _error: OSError | None = None

    def write(self, data: bytes | memoryview) -> int:
        """Writes all of `data`, which raw files need not do at once."""
        rest = memoryview(data).cast("B")
        try:
            while rest and self._error is None:
                rest = rest[super().write(rest) :]
        except OSError as error:
            self._error = error
        return memoryview(data).nbytes

    def truncate(self, size: int | None = None) -> int:
        try:
            return super().truncate(size)
        except OSError as error:
            self._error = self._error or error
            return self.tell() if size is None else size

    def check(self) -> None:
        """
        Raises:
          OSError: the first one that a write met.
        """
        if self._error is not None:
            raise self._error
