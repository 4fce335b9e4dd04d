"""Any source -> one data file, with its provenance and a count of what was kept and dropped."""

import dataclasses
import glob
import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from ml_collections import ConfigDict

from eeg2text_jax.data.datafile import DataWriter, Sample
from eeg2text_jax.data.recordings.samples import Recordings, RecordingSpec
from eeg2text_jax.data.recordings.sources import SUFFIXES
from eeg2text_jax.data.synthetic import SyntheticSpec, synthetic_samples
from eeg2text_jax.data.tally import Tally
from eeg2text_jax.data.word_table import table_samples
from eeg2text_jax.errors import UserError
from eeg2text_jax.versions import __version__


@dataclasses.dataclass(frozen=True)
class _Source:
    samples: Iterable[Sample]
    provenance: dict[str, Any]  # complete when the samples have been taken
    features_are: str


def prepare(config: ConfigDict, out: Path, sources: Sequence[str] = ()) -> Tally:
    """Writes the data file of `config.data` (its `source`, and the section of that source) to `out`.

    Args:
      config: the `data` section of a configuration.
      out: where the data file shall be.
      sources: files, folders and globs in place of `config.source`.

    Raises:
      UserError: the source is missing or damaged; nothing is left at `out` then.
    """
    sources = tuple(sources) or (str(config.source),)
    tally = Tally()
    source = _open(config, sources, tally)
    counted = tally.count(source.samples)
    first = next(counted)  # tells the width, and fails before a file is made
    with DataWriter(out, first.features.shape[1], source.features_are) as writer:
        writer.add(first)
        writer.add_all(counted)
        made = {"reader": f"eeg2text_jax {__version__}", "samples": sum(tally.kept.values())}
        writer.provenance = {**source.provenance, **made}
    return tally


def _open(config: ConfigDict, sources: tuple[str, ...], tally: Tally) -> _Source:
    if sources == ("synthetic",):
        spec = SyntheticSpec(**config.synthetic)
        provenance = {"source": "synthetic", **dataclasses.asdict(spec)}
        return _Source(synthetic_samples(spec), provenance, f"{spec.features} synthetic features")
    if len(sources) == 1 and Path(sources[0]).suffix in (".tsv", ".csv"):
        return _open_table(Path(sources[0]), config.table)
    for source in sources:
        if not (Path(source).is_dir() or Path(source).suffix in SUFFIXES or glob.has_magic(source)):
            raise UserError(
                f"{source!r} is no source; expected 'synthetic', one word-feature table (.tsv, .csv), a data file "
                f"(.h5, without preparing), or recordings: files ({', '.join(SUFFIXES)}), folders or globs."
            )
    spec = RecordingSpec(**config.recordings)
    recordings = Recordings(sources, spec, tally)
    return _Source(recordings, recordings.provenance, spec.features_are)


def _open_table(path: Path, config: ConfigDict) -> _Source:
    samples = table_samples(path, config.word_column, config.feature_columns)
    provenance = {"source": path.name, "columns": list(config.feature_columns)}
    if path.is_file():
        provenance["sha256"] = hashlib.sha256(path.read_bytes()).hexdigest()
    return _Source(samples, provenance, config.features_are or "numeric columns of a table")
