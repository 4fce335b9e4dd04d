"""Convert rows of arrays, Parquet files, data sets and Python iterables to samples.

A row is one subject reading one sentence: features `[W, F]`, a line for each word, fixation or window (or `[F]` for all
of it), the sentence, and optionally subject, task, number of the sentence, and time.
"""

import collections
import dataclasses
import math
import os
import sys
import zipfile
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from eeg2text_jax.base import kinds
from eeg2text_jax.base.errors import UserError, count_of, did_you_mean, first_line
from eeg2text_jax.data.clock import CLOCK_COLUMNS, parse_time
from eeg2text_jax.data.data_writer import write_source
from eeg2text_jax.data.source import Sample, Source, Tally, files_of

SUBJECT, TASK = "all", "all"  # defaults
FEWEST_SAMPLES = 200  # time points of a row of raw EEG, about a second
PLAIN = ("subject", "task", "sentence_index")
Name = Annotated[str, kinds.text(empty=False)]


@dataclasses.dataclass(frozen=True)
class Columns:
    """Column names: the fields of `config.data.columns`. Only `features` and `sentence` must exist."""

    features: Name = "features"
    sentence: Name = "sentence"
    subject: Name = "subject"
    task: Name = "task"
    sentence_index: Name = "sentence_index"
    word: Name = "word"  # of a table with a line per word
    mask: Name = "mask"  # of padded arrays: True at words
    recording: Name = "recording"  # a run of the subject
    onset: Name = "onset"  # seconds from its start
    duration: Name = "duration"  # seconds
    order: Name = "order"  # place in it, if onsets are not known
    features_are: Annotated[str, kinds.text()] = ""  # meaning of the F columns

    @property
    def of_samples(self) -> tuple[str, ...]:
        """Names of the columns with a value a sample."""
        return tuple(getattr(self, field) for field in ("sentence", *PLAIN, *CLOCK_COLUMNS))

    @classmethod
    def of(cls, columns: "Columns | Mapping[str, str] | None") -> "Columns":
        """Convert a mapping, field -> column name (None: the defaults). Raises UserError for an unknown field."""
        if isinstance(columns, Columns):
            return columns
        fields = [field.name for field in dataclasses.fields(cls)]
        for name in columns or ():
            if name not in fields:
                raise UserError(f"columns: there is no field {name!r}; {did_you_mean(name, fields)}")
        return cls(**dict(columns or {}))


def note_unused(names: Iterable[str], columns: Columns, where: str, tally: Tally, used: Iterable[str] = ()) -> None:
    """Record the columns `names` that are neither named by `columns` nor in `used`."""
    named = {field.name: getattr(columns, field.name) for field in dataclasses.fields(columns)}
    optional = {role: named[role] for role in PLAIN}
    tally.not_used(list(map(str, names)), [*named.values(), *used], where, optional)


def check_named(names: Collection[str], columns: Columns, where: str, kind: str = "column") -> None:
    """Raise UserError if `names` lack the column of features or of sentences."""
    for needed in (columns.features, columns.sentence):
        if needed not in names:
            raise UserError(
                f"{where}: there is no {kind} {needed!r}, there are {', '.join(map(str, names)) or 'none'}; set "
                f"data.columns.features and data.columns.sentence (in Python `columns=`) to the names of these {kind}s."
            )


def source_of_rows(
    rows: Iterable[Mapping[str, Any]], columns: Columns, where: str, name: str, provenance: dict[str, Any], tally: Tally
) -> Source:
    """Make a Source of rows; `where` names the files in messages, `name` in `features_are`."""
    samples = rows_to_samples(rows, columns, where, tally)
    return Source(samples, provenance, columns.features_are or f"{columns.features} of {name}")


def write(
    path: str | os.PathLike[str],
    samples: Iterable[Sample | Mapping[str, Any]],
    *,
    columns: Columns | Mapping[str, str] | None = None,
    features_are: str = "",
    provenance: Mapping[str, Any] | None = None,
    tally: Tally | None = None,
) -> Path:
    """Write a data file from an iterable of samples, one at a time.

    Args:
      path: the data file, `.h5`.
      samples: `Sample`s, or mappings with `features` (`[W, F]`, a list or an array; W may differ, F may not),
        `sentence`, and optionally `subject`, `task`, `sentence_index` (number of the sentence in its task, equal for
        all who read it; default: sentences are numbered by their text), and the time: `recording` (default: subject and
        task) with `onset` and `duration` in seconds, or with `order`, the place in the recording. A `datasets.Dataset`
        or a pandas table works, too.
      columns: field -> column name, where they differ, e.g. `{"features": "eeg", "sentence": "text"}`.
      features_are: the meaning of the F columns, stored in the file.
      provenance: the origin of the samples, stored in the file as JSON. With `sfreq`, features are waves: W moments of
        F channels, `sfreq` a second; `channels` names them.
      tally: counts samples and collects notes; by default notes are printed.

    Returns:
      The path.

    Raises:
      UserError: a row lacks a value or has an invalid one; the message has the row's number, from 0.

    Examples:
      Sixty-four recordings of four words with six features each:

      >>> import numpy as np
      >>> from eeg2text_jax import data
      >>> rng = np.random.default_rng(0)
      >>> pairs = [(a, b) for a in ("dog", "cat", "cow", "hen", "fox", "owl", "elk", "bee") for b in "abcdefgh"]
      >>> rows = [{"features": rng.normal(size=(4, 6)), "sentence": f"the {a} saw {b}"} for a, b in pairs]
      >>> str(data.write("own.h5", rows))
      'own.h5'
    """
    path, named = Path(path), Columns.of(columns)
    if hasattr(samples, "ch_names"):
        raise UserError(f"{path}: the samples are MNE's {type(samples).__name__}; call `eeg2text_jax.prepare`.")
    if hasattr(samples, "to_dict") and hasattr(samples, "itertuples"):  # a table of pandas
        samples = samples.to_dict("records")
    prints, tally = tally is None, tally or Tally()
    rows, origin = rows_to_samples(samples, named, str(path), tally), {"source": "python", **(provenance or {})}
    source = Source(rows, origin, features_are or named.features_are or "features")
    none = f"{path}: there is no sample to write; expected one or more."
    write_source(path, source, tally, lambda: {"notes": [*tally.notes]}, none)
    if prints and tally.notes:
        print("\n".join(tally.notes), file=sys.stderr)
    return path


def rows_to_samples(
    rows: Iterable[Sample | Mapping[str, Any]], columns: Columns, where: str, tally: Tally
) -> Iterator[Sample]:
    """Check rows and yield them as samples; the tally gets notes."""
    numbers = SentenceNumbers()
    width, shapes, words = None, set(), set()
    for number, row in enumerate(rows):
        name = f"{where}, row {number}"
        sample = row if isinstance(row, Sample) else _sample(row, columns, name, numbers)
        checked = features_of(sample.features, name)
        width = width or checked.shape[1]
        if width != checked.shape[1]:
            said = f"{checked.shape[1]} features a word, but the rows before have {width}"
            raise UserError(f"{name}: has {said}; expected the same number in every row.")
        numbers.compare(sample)
        shapes.add(checked.shape)
        words.add(len(sample.sentence.split()))
        yield dataclasses.replace(sample, features=checked)
    tally.notes += [*numbers.notes(where), *_raw_eeg_notes(shapes, words, where)]


def _sample(row: Mapping[str, Any], columns: Columns, name: str, numbers: "SentenceNumbers") -> Sample:
    if not isinstance(row, Mapping):
        raise UserError(f"{name}: is a {type(row).__name__}; expected a Sample, or a mapping of columns to values.")
    check_named(row, columns, name)
    sentence = row[columns.sentence]
    if not isinstance(sentence, str) or not sentence.strip():
        raise UserError(f"{name}: the sentence is {sentence!r}; expected a text with something in it.")
    sentence, who = " ".join(sentence.split()), []
    for column, default in ((columns.subject, SUBJECT), (columns.task, TASK)):
        value = row.get(column, default)
        if value is None or isinstance(value, float) or not str(value).strip():
            raise UserError(f"{name}: {column} is {value!r}; expected a name in every row, or no such column.")
        who.append(str(value).strip())
    subject, task = who
    index = row.get(columns.sentence_index)
    if index is None:
        index = numbers.of(task, sentence)
    elif not isinstance(index, int | np.integer) or isinstance(index, bool) or index < 0:
        raise UserError(f"{name}: {columns.sentence_index} is {index!r}; expected a whole number, 0 or more.")
    named = {field: getattr(columns, field) for field in CLOCK_COLUMNS}
    time = parse_time(row, name, named, default=f"{subject}/{task}")
    return Sample(row[columns.features], sentence, subject, task, int(index), **time)


def features_of(values: Any, name: str) -> np.ndarray:
    """Convert lists or arrays to finite float32 `[W, F]` (`[F]`: one position). Raises UserError about `name`."""
    try:
        features = np.asarray(values)
    except ValueError as error:  # ragged lists
        raise UserError(f"{name}: words have unequal numbers of features; expected [words, features].") from error
    if not np.issubdtype(features.dtype, np.floating) and not np.issubdtype(features.dtype, np.integer):
        kind = "text" if features.dtype.kind in "US" else f"values of type {features.dtype}"
        raise UserError(f"{name}: the features are {kind}; expected numbers [words, features].")
    features = features[None] if features.ndim == 1 else features
    if features.ndim != 2 or not features.size:
        raise UserError(f"{name}: the features have shape {list(features.shape)}; expected [words, features].")
    with np.errstate(over="ignore"):
        features = features.astype(np.float32)
    if not np.isfinite(features).all():
        raise UserError(f"{name}: the features have NaN or infinity; leave such words out.")
    return features


def _raw_eeg_notes(shapes: set[tuple[int, ...]], words: set[int], where: str) -> list[str]:
    """Return a note if rows look like raw EEG: all of one wide shape, though the texts' lengths `words` differ."""
    positions, width = min(shapes, default=(0, 0))
    if len(shapes) != 1 or len(words) < 2 or positions < 2 or width < max(FEWEST_SAMPLES, 2 * positions):
        return []
    return [
        f"{where}: every row is {positions} positions of {width} features, though the texts have {min(words)} to "
        f"{max(words)} words; if a row is raw EEG, [channels, samples], give mne.EpochsArray instead."
    ]


class SentenceNumbers:
    """Sentence numbers in each task: assigned by text, or checked for several texts of a number."""

    def __init__(self) -> None:
        self._of_text: dict[str, dict[str, int]] = collections.defaultdict(dict)  # task -> text -> number
        self._texts: dict[tuple[str, int], str] = {}  # (task, number) -> first text
        self._other: Sample | None = None  # first sample in conflict, without features
        self._n_other = 0

    def of(self, task: str, sentence: str) -> int:
        """Return the number of a text in its task, from 0 in order of appearance."""
        return self._of_text[task].setdefault(sentence, len(self._of_text[task]))

    def compare(self, sample: Sample) -> None:
        """Count a conflict if the number stood for another text of the task before."""
        if self._texts.setdefault((sample.task, sample.sentence_index), sample.sentence) != sample.sentence:
            self._n_other += 1
            self._other = self._other or dataclasses.replace(sample, features=None)

    def notes(self, where: str) -> list[str]:
        if (first := self._other) is None:
            return []
        before = self._texts[first.task, first.sentence_index]
        many = count_of(self._n_other, "row has", "rows have")
        return [
            f"{where}: {many} another text than the first row of the same task and sentence_index "
            f"(number {first.sentence_index} of {first.task} is both {before[:40]!r} and {first.sentence[:40]!r}); "
            "leave the column out to number sentences by their text, or do not split by index."
        ]


# NumPy archives (`.npz`): an array per column, all of the same N samples. `features` is `[N, W, F]` with a `mask`
# `[N, W]` (True at real words, which come first) or `n_words` `[N]`; or `[sum W, F]`, the words of all samples, with
# `n_words` or `offsets` `[N + 1]`; or `[N, F]`, one position a sample. What an archive states twice must agree.

RATIO = 100  # largest plausible compression ratio
PLAUSIBLE = 1 << 28  # bytes up to which the ratio is not checked


def open_arrays(paths: list[Path], columns: Columns, tally: Tally) -> Source:
    """Open `.npz` archives as one source. Raises UserError for a missing file, and reading for a damaged one."""
    provenance = {"source": "arrays", "files": files_of(paths)}
    note_unused(_names(paths[0]), columns, paths[0].name, tally, ("n_words", "offsets"))
    rows = (row for path in paths for row in npz_rows(path, columns))
    return source_of_rows(rows, columns, ", ".join(path.name for path in paths), paths[0].name, provenance, tally)


def npz_rows(path: Path, columns: Columns) -> Iterator[dict[str, Any]]:
    """Yield each sample as column name -> value. Raises UserError if unreadable, or arrays do not fit together."""
    arrays = _load(path)
    check_named(arrays, columns, str(path), "array")
    n = arrays[columns.sentence].size
    features = _words(path, arrays, columns, n)
    others = [name for name in columns.of_samples if name in arrays]
    for name in others:
        if arrays[name].shape != (n,):
            raise UserError(
                f"{path}: {name} has shape {list(arrays[name].shape)}; expected [{n}], one value a sentence."
            )
    for i, words in zip(range(n), features, strict=False):
        yield {name: arrays[name][i].item() for name in others} | {columns.features: words}


def _names(path: Path) -> list[str]:
    """Return the names of an archive's arrays; empty if it is none (`npz_rows` raises then)."""
    try:
        with zipfile.ZipFile(path) as archive:
            return [name.removesuffix(".npy") for name in archive.namelist()]
    except (OSError, zipfile.BadZipFile):
        return []


def _load(path: Path) -> dict[str, np.ndarray]:
    name, arrays = "the file", {}
    try:
        _check_sizes(path)
        with np.load(path, allow_pickle=False) as archive:
            for name in archive.files:
                arrays[name] = archive[name]
        return arrays
    except UserError:
        raise
    except Exception as error:  # a damaged header, a Python literal, raises anything
        header = isinstance(error, SyntaxError | RecursionError | MemoryError)
        header |= any(words in str(error) for words in ("malformed node", "parse header", "Header info length"))
        if "pickle" in str(error) and not header:
            raise UserError(
                f"{path}: {name} is an array of objects (a pickle), which is not read; store texts as "
                "np.array(texts, dtype=str), and ragged features one after the other, with n_words."
            ) from error
        reason = "the header of an array is damaged" if header else first_line(error)[:120]
        raise UserError(
            f"{path}: cannot be read as a NumPy archive ({reason}); write it again with np.savez."
        ) from error


def _check_sizes(path: Path) -> None:
    """Raise UserError if an array's shape contradicts its size, or the unpacked size is implausible."""
    total = 0
    with zipfile.ZipFile(path) as archive:
        for member in archive.infolist():
            with archive.open(member) as file:
                version = np.lib.format.read_magic(file)
                read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
                shape, _, dtype = read(file)
                declared = file.tell() + math.prod(shape) * dtype.itemsize
            if declared != member.file_size and not dtype.hasobject:
                raise UserError(
                    f"{path}: {member.filename} declares {declared:,} bytes by its shape {list(shape)} and has "
                    f"{member.file_size:,}; it is damaged. Write the archive again."
                )
            total += member.file_size
    free, packed = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"), max(path.stat().st_size, 1)
    if total > free:
        raise UserError(
            f"{path}: unpacks to {total / 2**30:,.1f} GiB, and {free / 2**30:,.1f} GiB of memory are free; divide it "
            "into several archives, which are read one after the other."
        )
    if total > PLAUSIBLE and total > RATIO * packed:
        raise UserError(
            f"{path}: {packed / 2**20:,.1f} MiB unpack to {total / 2**30:,.2f} GiB, {total // packed} to 1; recordings "
            f"do not shrink more than {RATIO} to 1; write the archive again, without constant data."
        )


def _words(path: Path, arrays: dict[str, np.ndarray], columns: Columns, n: int) -> Iterable[np.ndarray]:
    """Return the features of each sample, `[W, F]`."""
    features, lengths = arrays[columns.features], _stated_lengths(path, arrays, n)
    if features.ndim == 3 and len(features) == n:
        lengths = _padded_lengths(path, arrays, columns, features.shape[:2], lengths)
        return (padded[:length] for padded, length in zip(features, lengths, strict=True))
    if features.ndim == 2 and lengths is not None:
        if lengths.sum() != len(features) or (lengths < 1).any():
            raise UserError(
                f"{path}: {len(features)} words and {n} sentences do not fit n_words or offsets; expected at least one "
                f"word for each sentence, and {len(features)} words in all."
            )
        return np.split(features, np.cumsum(lengths)[:-1])
    if features.ndim == 2 and len(features) == n:
        return features[:, None]
    raise UserError(
        f"{path}: {columns.features} has shape {list(features.shape)} for {n} sentences; expected [sentences, words, "
        "features] with mask or n_words, [words of all sentences, features] with n_words, or [sentences, features]."
    )


def _stated_lengths(path: Path, arrays: dict[str, np.ndarray], n: int) -> np.ndarray | None:
    """Return the numbers of words by `n_words` or `offsets`, int `[N]`; None if it has neither."""
    stated = []
    for name, size in (("n_words", n), ("offsets", n + 1)):
        if (values := arrays.get(name)) is None:
            continue
        if values.shape != (size,) or values.dtype.kind not in "iu" or (name == "offsets" and values[0] != 0):
            begin = ", the first of them 0" if name == "offsets" else ""
            raise UserError(
                f"{path}: {name} must be [{size}] whole numbers{begin}, for {n} sentences; found {values.dtype} "
                f"{list(values.shape)}{f' from {values.flat[0]}' if values.size else ''}."
            )
        values = values.astype(np.int64)
        stated.append(np.diff(values) if name == "offsets" else values)
    if len(stated) == 2 and (stated[0] != stated[1]).any():
        raise UserError(f"{path}: n_words and offsets contradict each other; leave one of them out.")
    return stated[0] if stated else None


def _padded_lengths(
    path: Path, arrays: dict[str, np.ndarray], columns: Columns, shape: tuple[int, int], lengths: np.ndarray | None
) -> np.ndarray:
    """Return the number of words in each row of padded features: `lengths`, or by the mask."""
    if lengths is not None and not ((lengths > 0) & (lengths <= shape[1])).all():
        raise UserError(f"{path}: n_words must be [{shape[0]}] whole numbers from 1 to {shape[1]}.")
    if columns.mask not in arrays:
        if lengths is not None:
            return lengths
        raise UserError(
            f"{path}: {columns.features} [N, W, F] is padded, and the file does not say where; add {columns.mask} [N, "
            "W], True at words and False at padding, or n_words [N]."
        )
    mask = arrays[columns.mask]
    own = mask.astype(bool).sum(-1) if mask.shape == shape and mask.dtype.kind in "biuf" else np.zeros(shape[0])
    if not own.all() or not (mask.astype(bool) == (np.arange(shape[1]) < own[:, None])).all():
        raise UserError(
            f"{path}: {columns.mask} has shape {list(mask.shape)}; expected {list(shape)}, real words (True) first."
        )
    if lengths is not None and (lengths != own).any():
        raise UserError(f"{path}: n_words and {columns.mask} contradict each other; leave one of them out.")
    return own
