"""Convert recordings, tables and arrays to one HDF5 data file, and read it as fixed-shape batches.

For Python: `write` makes a data file from any iterable of samples, `read_datafile` opens one, and `write_recordings`
writes synthetic EEG recordings.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from eeg2text_jax.data.datafile import DataFile, read_datafile
    from eeg2text_jax.data.planted.planted_recordings import write_recordings
    from eeg2text_jax.data.rows import write
    from eeg2text_jax.data.source import Sample

__all__ = ["DataFile", "Sample", "read_datafile", "write", "write_recordings"]

_PLACES = {
    "DataFile": "datafile",
    "Sample": "source",
    "read_datafile": "datafile",
    "write": "rows",
    "write_recordings": "planted.planted_recordings",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_PLACES[name]}"), name)
