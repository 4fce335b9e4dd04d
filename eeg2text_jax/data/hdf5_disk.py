"""A file for HDF5 to write into that keeps a disk's errors to itself until asked.

The HDF5 library does not get over a write that fails: `close` fails as well, and so does its own end, with a
segmentation fault once the process exits. Nor does it get over reading back something else than it wrote.
"""

import io
import os


class PatientFile(io.FileIO):
    """A binary file that notes its first error in writing and pretends that all went well. For `h5py.File(file, "w")`.

    What is written from then on is kept in memory, for HDF5 to read back. Call `check` when HDF5 is through with it,
    and before, so that it does not become much.
    """

    _error: OSError | None = None

    def __init__(self, *arguments: str):
        self._kept: list[tuple[int, bytes]] = []  # place and bytes of what the disk did not take, in order
        super().__init__(*arguments)

    def write(self, data: bytes | memoryview) -> int:
        """Writes all of `data`, which raw files need not do at once."""
        whole = memoryview(data).cast("B")
        start, rest = self.tell(), whole
        try:
            while rest and self._error is None:
                rest = rest[super().write(rest) :]
        except OSError as error:
            self._error = error
        if self._error is not None:
            self._kept.append((start, bytes(whole)))
            super().seek(start + whole.nbytes)
        return whole.nbytes

    def readinto(self, buffer: bytearray | memoryview) -> int:
        """Reads what was written, on the disk or not."""
        whole = memoryview(buffer).cast("B")
        start = self.tell()
        size = max(0, min(whole.nbytes, self._end() - start))
        got = super().readinto(whole)
        if self._error is None:
            return got
        whole[got:size] = bytes(max(0, size - got))
        for place, data in self._kept:
            first, last = max(start, place), min(start + size, place + len(data))
            if first < last:
                whole[first - start : last - start] = data[first - place : last - place]
        super().seek(start + size)
        return size

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        return super().seek(self._end() + offset) if whence == os.SEEK_END else super().seek(offset, whence)

    def _end(self) -> int:
        return max([os.fstat(self.fileno()).st_size, *(place + len(data) for place, data in self._kept)])

    def truncate(self, size: int | None = None) -> int:
        try:
            return super().truncate(size)
        except OSError as error:
            self._error = self._error or error
            return self.tell() if size is None else size

    def check(self) -> None:
        """
        Raises:
          OSError: the first one that a write met, with the file's name.
        """
        if self._error is not None:
            raise OSError(self._error.errno, self._error.strerror, str(self.name)) from self._error
