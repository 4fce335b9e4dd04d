"""HDF5 on a disk that may be full, and HDF5 files that may claim what they do not hold.

The HDF5 library does not get over a write that fails: `close` fails as well, and so does its own end, with a
segmentation fault once the process exits. When reading, it follows a file's links and external storage to other files,
whose bytes would become features, and makes room for whatever size a file claims.
"""

import io
import math

from h5py import h5d, h5g, h5i, h5l, h5o

# Bytes that a stored one can stand for at most: what deflate, HDF5's usual compression, reaches on zeros.
_EXPANSION = 1032


def open_own(group: h5g.GroupID, name: bytes) -> h5g.GroupID | h5d.DatasetID:
    """A member of a group that the file itself holds.

    Raises:
      ValueError: it is a link to elsewhere.
      KeyError: there is no such member.
    """
    if group.links.get_info(name).type != h5l.TYPE_HARD:
        raise ValueError(f"{name.decode(errors='replace')} is a link to another place, which is not followed")
    return h5o.open(group, name)


def check_size(dataset: h5d.DatasetID, name: str) -> None:
    """Holds what a dataset claims against what the file has.

    Raises:
      ValueError: its values are in other files, or it claims more than the file can hold.
    """
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
    """Both of the above for a dataset of a group.

    Raises:
      ValueError: see there, or it is no dataset.
    """
    member = open_own(group, name)
    if not isinstance(member, h5d.DatasetID):
        raise ValueError(f"{name.decode()} is no dataset")
    check_size(member, name.decode())


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
