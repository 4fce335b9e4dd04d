"""Any source -> one data file, with its provenance and a count of what was kept and dropped."""

import collections
import dataclasses
import hashlib
from collections.abc import Iterable, Iterator
from pathlib import Path

from ml_collections import ConfigDict

from eeg2text_jax import __version__
from eeg2text_jax.data.datafile import DataWriter, Sample
from eeg2text_jax.data.synthetic import SyntheticSpec, synthetic_samples
from eeg2text_jax.data.table import table_samples
from eeg2text_jax.errors import UserError


@dataclasses.dataclass
class Tally:
    """Samples by (subject, task): how many were kept, and how many dropped for which reason."""

    kept: collections.Counter[tuple[str, str]] = dataclasses.field(default_factory=collections.Counter)
    dropped: collections.Counter[tuple[str, str, str]] = dataclasses.field(default_factory=collections.Counter)

    def count(self, samples: Iterable[Sample]) -> Iterator[Sample]:
        """Passes samples on, counting them."""
        for sample in samples:
            self.kept[sample.subject, sample.task] += 1
            yield sample

    def table(self) -> str:
        """One line per subject and task; beyond 24 of them, one per task."""
        rows = collections.defaultdict(lambda: [0, 0])
        by_subject = len(self.kept) <= 24
        for (subject, task), n in self.kept.items():
            rows[subject if by_subject else "all", task][0] += n
        for (subject, task, _), n in self.dropped.items():
            rows[subject if by_subject else "all", task][1] += n
        lines = [f"{'subject':<10} {'task':<8} {'kept':>7} {'dropped':>8}"]
        lines += [f"{subject:<10} {task:<8} {k:>7} {d:>8}" for (subject, task), (k, d) in sorted(rows.items())]
        reasons = collections.Counter()
        for (_, _, reason), n in self.dropped.items():
            reasons[reason] += n
        lines += [f"dropped, {reason}: {n}" for reason, n in reasons.most_common()]
        return "\n".join(lines)


def prepare(config: ConfigDict, out: Path) -> Tally:
    """Writes the data file of `config.data` (its `source`, and the section of that source) to `out`.

    Raises:
      UserError: the source is missing or damaged; nothing is left at `out` then.
    """
    source = str(config.source)
    if source == "synthetic":
        spec = SyntheticSpec(**config.synthetic)
        samples, provenance = synthetic_samples(spec), {"source": "synthetic", **dataclasses.asdict(spec)}
        features_are = f"{spec.features} synthetic features"
    elif Path(source).suffix in (".tsv", ".csv"):
        table = config.table
        samples = table_samples(source, table.word_column, table.feature_columns)
        provenance = {"source": Path(source).name, "columns": list(table.feature_columns)}
        features_are = table.features_are or "numeric columns of a table"
    else:
        raise UserError(
            f"data.source is {source!r}; expected 'synthetic', a word-feature table (.tsv, .csv) or a data file (.h5)."
        )
    tally = Tally()
    counted = tally.count(samples)
    first = next(counted)  # tells the width, and fails before a file is made
    if Path(source).is_file():
        provenance["sha256"] = hashlib.sha256(Path(source).read_bytes()).hexdigest()
    with DataWriter(out, first.features.shape[1], features_are) as writer:
        writer.add(first)
        writer.add_all(counted)
        writer.provenance = {**provenance, "reader": f"eeg2text_jax {__version__}", "samples": sum(tally.kept.values())}
    return tally
