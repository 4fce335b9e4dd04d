"""Write the data file of any source."""

import dataclasses
import glob
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from eeg2text_jax.base.errors import UserError
from eeg2text_jax.base.files import file_digest
from eeg2text_jax.base.packages import __version__
from eeg2text_jax.base.stores.buckets import at_hand
from eeg2text_jax.data.data_writer import write_source
from eeg2text_jax.data.fmri._prepare_scans import prepare_scans
from eeg2text_jax.data.fmri._scans import is_fmri
from eeg2text_jax.data.planted import synthetic_source, write_planted
from eeg2text_jax.data.raw.find import is_raw, refuse_nested
from eeg2text_jax.data.raw.raw_samples import RawRecordings
from eeg2text_jax.data.recordings._zuco import SUFFIXES, Recordings
from eeg2text_jax.data.rows import open_arrays
from eeg2text_jax.data.source import Source, Tally
from eeg2text_jax.data.source_settings import DataSettings
from eeg2text_jax.data.table_files import is_dataset, open_dataset, open_parquet, table_samples

NO_SOURCE = "recordings"  # placeholder in our configurations
# Ending of a part of a recording -> ending of its header, which MNE opens.
COMPANIONS = {".eeg": ".vhdr", ".vmrk": ".vhdr", ".fdt": ".set"}
WORKBOOKS = (".xlsx", ".xls", ".ods")
ARRAYS = {".npz": open_arrays, ".parquet": open_parquet}


def prepare(config: DataSettings, out: Path, sources: Sequence[str] = ()) -> Tally:
    """Write the data file of `sources` (files, folders, globs; default: `config.source`) to `out`.

    Returns sample counts and notes. Raises UserError if a source is missing or damaged; `out` is unchanged then.
    """
    sources = tuple(map(at_hand, sources or (str(config.source),)))
    tally = Tally()
    if len(sources) == 1 and is_fmri(sources[0]):
        prepare_scans(Path(sources[0]), config.fmri, out, tally)
        return tally
    if sources == ("synthetic-fmri",):
        spec = config.synthetic_fmri
        with tempfile.TemporaryDirectory() as temporary:
            root = Path(spec.folder or temporary) / "planted"
            if root.exists():
                raise UserError(
                    f"{root}: exists already; set data.synthetic_fmri.folder to a new folder, or set "
                    f"data.source={root} to read this one."
                )
            write_planted(root, spec)
            prepare_scans(root, dataclasses.replace(config.fmri, grid=spec.grid, transcripts=""), out, tally)
        return tally

    def about() -> dict[str, Any]:
        unused = {"not_used": tally.unused} if tally.unused else {}
        return {"reader": f"eeg2text_jax {__version__}", "samples": tally.n_kept.total(), **unused}

    none = f"{', '.join(sources)}: no sample was found; expected at least one."
    write_source(out, _open(config, sources, tally), tally, about, none)
    return tally


def _open(config: DataSettings, sources: tuple[str, ...], tally: Tally) -> Source:
    """Open the sources with the reader that fits. Raises UserError if none does."""
    if sources == ("synthetic",):
        return synthetic_source(config.synthetic, config.raw)
    paths, columns = _paths(sources), config.columns
    suffixes = {path.suffix for path in paths}
    if len(paths) == 1 and suffixes <= {".tsv", ".csv"}:
        path, table = paths[0], config.table
        samples = table_samples(path, table.word_column, table.feature_columns, columns, tally)
        provenance = {"source": path.name, "columns": list(table.feature_columns)}
        provenance |= {"sha256": file_digest(path)} if path.is_file() else {}
        return Source(samples, provenance, table.features_are or columns.features_are or "numeric columns of a table")
    if len(suffixes) == 1 and (open_them := ARRAYS.get(suffixes.pop())):
        return open_them(paths, columns, tally)
    if len(paths) == 1 and is_dataset(paths[0]):
        return open_dataset(paths[0], columns, tally)
    has_zuco = any(path.is_dir() and any(other.suffix in SUFFIXES for other in path.iterdir()) for path in paths)
    if all(map(is_raw, sources)) and not has_zuco:
        raw = RawRecordings(sources, config.raw, tally)
        return Source(raw, raw.provenance, raw.features_are)
    for source in sources:
        path, is_glob = Path(source), glob.has_magic(source)
        if source == NO_SOURCE and not path.exists():
            raise UserError(
                "data.source names no recordings yet; give --config.data.source=FILES: a BIDS folder, files that "
                "MNE reads, tables, arrays, Parquet files, or ZuCo's recordings."
            )
        if (beside := COMPANIONS.get(path.suffix)) and path.exists():
            raise UserError(f"{source}: is a part of a recording; name {path.with_suffix(beside)} instead.")
        refuse_nested(source)
        if path.suffix in WORKBOOKS:
            raise UserError(f"{source}: is a workbook, which is not read; save its sheet as CSV (UTF-8) and name that.")
        if not (path.exists() or is_glob):
            raise UserError(f"{source}: there is no such file or folder; check its name.")
        if not (path.is_dir() or path.suffix in SUFFIXES or is_glob):
            raise UserError(
                f"{source!r} is no source; expected 'synthetic', 'synthetic-fmri', one table (.tsv, .csv), arrays "
                "(.npz), Parquet files, a data set saved by `datasets`, a data file (.h5, already prepared), files "
                f"that MNE reads, a BIDS folder, or ZuCo recordings: files ({', '.join(SUFFIXES)}), folders or globs."
            )
    recordings = Recordings(sources, config.recordings, tally)
    return Source(recordings, recordings.provenance, config.recordings.features_are)


def _paths(sources: tuple[str, ...]) -> list[Path]:
    """Return files and folders; globs, and folders of Parquet files alone, are expanded."""
    paths = []
    for source in sources:
        path = Path(source)
        inside = sorted(path.glob("[!.]*")) if path.is_dir() else sorted(map(Path, glob.glob(source)))
        if path.is_dir() and any(other.suffix != ".parquet" for other in inside):
            inside = []
        paths += inside or [path]
    return paths
