"""Safe use of the HDF5 library: write to a disk that may be full, and read files that may be malicious.

After a failed write the library cannot recover: `close` fails, too, and the process ends with a segmentation fault. The
same happens if a read returns other bytes than were written. When reading, the library follows links and external
storage to other files, whose bytes would become features, and allocates any size that a file claims.
"""

import io
import math
import os
from typing import Any

from h5py import h5d, h5g, h5i, h5l, h5o

_EXPANSION = 1032  # largest compression ratio: deflate, HDF5's usual filter, on zeros


def open_own(group: h5g.GroupID, name: bytes) -> h5g.GroupID | h5d.DatasetID:
    """Open a member of a group. Raises ValueError for a soft or external link, KeyError if there is no such member."""
    if group.links.get_info(name).type != h5l.TYPE_HARD:
        raise ValueError(f"{name.decode(errors='replace')} is a link to another place, which is not followed")
    return h5o.open(group, name)


def check_size(dataset: h5d.DatasetID, name: str) -> None:
    """Raise ValueError if a dataset stores its values in another file, or declares more of them than the file holds."""
    properties = dataset.get_create_plist()
    layout = properties.get_layout()
    if layout == h5d.VIRTUAL or (layout == h5d.CONTIGUOUS and properties.get_external_count()):
        raise ValueError(f"{name} keeps its values in another file, which is not read")
    claimed, stored = math.prod(dataset.shape) * dataset.dtype.itemsize, dataset.get_storage_size()
    most = min(stored, h5i.get_file_id(dataset).get_filesize()) * (_EXPANSION if properties.get_nfilters() else 1)
    if claimed > most:
        raise ValueError(f"{name} claims {dataset.shape} entries, and the file holds {stored} bytes of it")


def check_own(group: h5g.GroupID, name: bytes) -> None:
    """Raise ValueError unless a member is a dataset inside the file with a plausible size; KeyError if it is absent."""
    member = open_own(group, name)
    if not isinstance(member, h5d.DatasetID):
        raise ValueError(f"{name.decode()} is no dataset")
    check_size(member, name.decode())


class PatientFile(io.FileIO):
    """A binary file for `h5py.File(file, "w")` whose writes never raise; `check` raises the first write error.

    After the error, writes go to memory, so that HDF5 can read them back. Call `check` at the end, and often enough
    before it to limit this memory.
    """

    _error: OSError | None = None

    def __init__(self, *arguments: Any):
        self._in_memory: list[tuple[int, bytes]] = []  # position and bytes of the failed and all later writes, in order
        super().__init__(*arguments)

    def write(self, data: Any) -> int:
        """Write all of `data`; `FileIO.write` may write only a part of it."""
        whole = memoryview(data).cast("B")
        start, rest = self.tell(), whole
        try:
            while rest and self._error is None:
                rest = rest[super().write(rest) :]
        except OSError as error:
            self._error = error
        if self._error is not None:
            self._in_memory.append((start, bytes(whole)))
            super().seek(start + whole.nbytes)
        return whole.nbytes

    def readinto(self, buffer: Any) -> int:
        """Read the written bytes, from the disk or from memory."""
        whole = memoryview(buffer).cast("B")
        start = self.tell()
        size = max(0, min(whole.nbytes, self._end() - start))
        got = super().readinto(whole)
        if self._error is None:
            return got
        whole[got:size] = bytes(max(0, size - got))
        for place, data in self._in_memory:
            first, last = max(start, place), min(start + size, place + len(data))
            if first < last:
                whole[first - start : last - start] = data[first - place : last - place]
        super().seek(start + size)
        return size

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        return super().seek(self._end() + offset) if whence == os.SEEK_END else super().seek(offset, whence)

    def _end(self) -> int:
        return max([os.fstat(self.fileno()).st_size, *(place + len(data) for place, data in self._in_memory)])

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
