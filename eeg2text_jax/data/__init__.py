"""Convert recordings, tables and arrays to one HDF5 data file, divide it into parts, and read it in batches.

In: recordings (`raw`, `recordings`, `fmri`, `rows`, `table_files`, `planted`). Out: a data file, a certified split
(`splits`), batches `[B, W, F]`.
"""

from etils import epy

with epy.lazy_api_imports(globals()):
    from eeg2text_jax.data.datafile import DataFile, read_datafile
    from eeg2text_jax.data.planted import write_recordings
    from eeg2text_jax.data.rows import write
    from eeg2text_jax.data.source import Sample

__all__ = ["DataFile", "Sample", "read_datafile", "write", "write_recordings"]
