"""Write HDF5 to a disk that may be full, and read HDF5 files that may claim more than they hold.

After a failed write the HDF5 library cannot recover: `close` fails too, and the process ends with a segmentation fault.
Nor does it tolerate reading back other bytes than it wrote. When reading, it follows links and external storage to
other files, whose bytes would become features, and allocates whatever size a file claims.
"""

import io
import math
import os
from typing import Any

from h5py import h5d, h5g, h5i, h5l, h5o

_EXPANSION = 1032  # largest compression ratio: deflate, HDF5's usual filter, on zeros


def open_own(group: h5g.GroupID, name: bytes) -> h5g.GroupID | h5d.DatasetID:
    """Open a member of a group that the file itself holds.

    Raises:
      ValueError: the member is a link to another place.
      KeyError: there is no such member.
    """
    if group.links.get_info(name).type != h5l.TYPE_HARD:
        raise ValueError(f"{name.decode(errors='replace')} is a link to another place, which is not followed")
    return h5o.open(group, name)


def check_size(dataset: h5d.DatasetID, name: str) -> None:
    """Raise ValueError if a dataset keeps its values in other files or claims more than the file can hold."""
    properties = dataset.get_create_plist()
    if properties.get_layout() == h5d.VIRTUAL or (
        properties.get_layout() == h5d.CONTIGUOUS and properties.get_external_count()
    ):
        raise ValueError(f"{name} keeps its values in another file, which is not read")
    claimed, stored = math.prod(dataset.shape) * dataset.dtype.itemsize, dataset.get_storage_size()
    most = min(stored, h5i.get_file_id(dataset).get_filesize()) * (_EXPANSION if properties.get_nfilters() else 1)
    if claimed > most:
        raise ValueError(f"{name} claims {dataset.shape} entries, and the file holds {stored} bytes of it")


def check_own(group: h5g.GroupID, name: bytes) -> None:
    """Raise ValueError unless a member is a dataset of the file itself with a plausible size; KeyError if absent."""
    member = open_own(group, name)
    if not isinstance(member, h5d.DatasetID):
        raise ValueError(f"{name.decode()} is no dataset")
    check_size(member, name.decode())


class PatientFile(io.FileIO):
    """A binary file that notes its first write error and then pretends success. For `h5py.File(file, "w")`.

    After the error, writes are kept in memory for HDF5 to read back. Call `check` when HDF5 is done, and before that
    often enough to limit this memory.
    """

    _error: OSError | None = None

    def __init__(self, *arguments: Any):
        self._kept: list[tuple[int, bytes]] = []  # position and bytes of failed writes, in order
        super().__init__(*arguments)

    def write(self, data: Any) -> int:
        """Write all of `data`; raw files may write a part."""
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

    def readinto(self, buffer: Any) -> int:
        """Read what was written, on the disk or in memory."""
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
        """Raise the first OSError of a write, with the file's name."""
        if self._error is not None:
            raise OSError(self._error.errno, self._error.strerror, str(self.name)) from self._error
