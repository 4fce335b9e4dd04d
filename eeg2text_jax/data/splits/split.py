"""Splits into train, dev and test, their files, columns of samples (`Readings`), normalization of texts."""

import collections
import dataclasses
import hashlib
import json
import os
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from etils import epath

from eeg2text_jax.base.errors import UserError
from eeg2text_jax.base.files import content_digest, parse_json, write_text
from eeg2text_jax.base.stores.buckets import at_hand
from eeg2text_jax.data.clock import Clock, Stretches, stretches

if TYPE_CHECKING:  # who reads a split file need not open a data file
    from eeg2text_jax.data.datafile import DataFile


def normalize(text: str) -> str:
    """Return the letters and decimal digits of a text, case-folded and without accents.

    All else differs between ZuCo's tasks: quotes, dashes, spacing, superscripts (`km²`, `km˝`).
    """
    letters = "".join(c for c in unicodedata.normalize("NFD", text) if c.isalpha() or c.isdecimal())
    return unicodedata.normalize("NFKC", letters).casefold()


def tokens(text: str) -> list[str]:
    """Return a text's normalized words that have letters or digits."""
    return [word for word in map(normalize, text.split()) if word]


NORMALIZATIONS: dict[str, Callable[[str], str]] = {
    "letters-digits": normalize,
    "case-space": lambda text: " ".join(text.lower().split()),  # usual, but misses variants in ZuCo
}


@dataclasses.dataclass(frozen=True)
class Readings:
    """Who read which sentence: columns of samples, object arrays `[N]`."""

    sample_id: np.ndarray  # unique, see `sample_ids`
    subject: np.ndarray
    task: np.ndarray
    sentence_id: np.ndarray
    text: np.ndarray | None  # None if only ids are known
    segments: Stretches | None = None  # of windows: segments of the stimulus
    text_group: np.ndarray | None = None  # of windows: the story
    clock: Clock | None = None  # recording and time

    def __len__(self) -> int:
        return len(self.sample_id)


def readings_of(data: "DataFile") -> Readings:
    """Return the columns of a data file, in its order."""
    sentence_id, segments = data.sentence_id, stretches(data) if data.is_windows else None
    names = sample_ids(data.subject, sentence_id)
    return Readings(names, data.subject, data.task, sentence_id, data.sentence, segments, data.text_group, data.clock)


def text_units(data: "DataFile") -> np.ndarray:
    """Return the text of each sample as splits compare it, `[N]`: normalized; of windows, the text group."""
    if data.is_windows:
        return data.text_group.astype(str)
    return np.array([normalize(text) for text in data.sentence])


def sample_ids(subjects: Iterable[str], sentence_ids: Iterable[str]) -> np.ndarray:
    """Return ids `subject/task:index` of samples, object `[N]`; repeated readings end in `#2`, `#3`, ..."""
    seen: collections.Counter[str] = collections.Counter()
    ids = []
    for subject, sentence in zip(subjects, sentence_ids, strict=True):
        name = f"{subject}/{sentence}"
        seen[name] += 1
        ids.append(name if seen[name] == 1 else f"{name}#{seen[name]}")
    return np.array(ids, object)


PARTS = ("train", "dev", "test")


@dataclasses.dataclass(frozen=True)
class Split:
    """Train, dev and test parts of a data file's samples; a sample is in at most one."""

    method: str
    seed: int
    parts: Mapping[str, np.ndarray]  # sorted rows of each part, int64
    names: np.ndarray  # `sample_ids` of the data file, object `[N]`

    @classmethod
    def of(cls, data: "DataFile", method: str, seed: int, part: np.ndarray) -> "Split":
        """Return the split with sample i in `PARTS[part[i]]`, in none if it is -1; UserError if a part is empty."""
        parts = {name: np.flatnonzero(part == k) for k, name in enumerate(PARTS)}
        return cls(method, seed, parts, sample_ids(data.subject, data.sentence_id))

    def __post_init__(self) -> None:
        for name in PARTS:
            if not len(self.parts[name]):
                raise UserError(
                    f"split {self.method!r} (seed {self.seed}) leaves its {name} part empty; try another ratio or seed."
                )

    def digest(self) -> str:
        """Return the `parts_digest`, which checkpoints and predictions files carry."""
        return parts_digest({name: self.names[self.parts[name]] for name in PARTS})

    @property
    def kept(self) -> int:
        """Number of samples in all parts."""
        return sum(len(self.parts[name]) for name in PARTS)


def parts_digest(samples: Mapping[str, Iterable[str]]) -> str:
    """Return a hash of the sample ids of each part, in any order."""
    content = json.dumps({name: sorted(samples[name]) for name in PARTS})
    return hashlib.sha256(content.encode()).hexdigest()[:16]


def part_sizes(n: int, ratio: Sequence[float]) -> tuple[int, int, int]:
    """Return the sizes of the parts of `n` units; train and dev are rounded down, as by Wang & Ji."""
    train, dev = int(n * ratio[0] + 1e-9), int(n * ratio[1] + 1e-9)
    return train, dev, n - train - dev


def check_same_split(expected: str, stated: str | None, path: str | os.PathLike[str]) -> None:
    """Raise UserError if the checkpoint or predictions file at `path` states another split hash, or none."""
    if stated != expected:
        carried = f"split {stated[:16]}" if stated else "no split hash"
        raise UserError(
            f"{path}: carries {carried}, expected split {expected[:16]}; its training may have seen our test part, so "
            "use the configuration (split method, ratio, seed) that it was made with."
        )


def check_same_data(expected: str, stated: str | None, path: str | os.PathLike[str]) -> None:
    """Raise UserError if the checkpoint or predictions file at `path` states another data hash, or none."""
    if stated != expected:
        carried = f"data {stated[:16]}" if stated else "no hash of its data"
        raise UserError(
            f"{path}: carries {carried}, expected data {expected[:16]}; use the data file that it was made from, or "
            "another --workdir."
        )


# Split files: certificates, or made elsewhere. A JSON object with `train`, `dev` (or `val`, `valid`, `validation`) and
# `test`, at the top or under `parts`. Each part is a list of samples, or an object whose `ids` is one. A sample is
#
# - an id, `"subject/task:index"` (`"ZAB/NR:12"`), where index numbers the sentences of the task from 0;
# - a row number in the data file;
# - or an object with `subject`, `task` and `sentence_index`; without a data file, with `subject` and `text`.
#
# Of a certificate, method, seed and hashes are checked.

FORMAT = "eeg2text-split-2"  # of a certificate that states the hashes of its data file
_NAMES = {"train": ("train",), "dev": ("dev", "val", "valid", "validation"), "test": ("test",)}  # part -> names in file


@dataclasses.dataclass(frozen=True)
class SplitFile:
    """The content of a split file."""

    path: epath.Path
    samples: dict[str, list[Any]]  # of each part, in the forms above
    record: dict[str, Any]  # the whole JSON object

    def resolve(self, data: "DataFile") -> Split:
        """Look up the samples in a data file and return the split.

        Raises UserError if a sample is unknown or named twice, or the certificate is of other data or was edited.
        """
        row_of = {name: row for row, name in enumerate(readings_of(data).sample_id)}
        parts = {
            part: np.sort(np.array([self._row(sample, part, row_of, data) for sample in samples], np.int64))
            for part, samples in self.samples.items()
        }
        split = self._split(parts, np.array(list(row_of), object))
        self._check_claims(split, data)
        return split

    def readings(self) -> tuple[Readings, Split]:
        """Return samples and split without a data file; UserError for a row number or a sample twice."""
        entries = [self._entry(sample, part) for part in PARTS for sample in self.samples[part]]
        ids, subject, task, sentence_id, text = (np.array(column, object) for column in zip(*entries, strict=True))
        ends = np.cumsum([len(self.samples[part]) for part in PARTS])
        split = self._split(dict(zip(PARTS, np.split(np.arange(ends[-1]), ends[:-1]), strict=True)), ids)
        return Readings(ids, subject, task, sentence_id, None if any(t is None for t in text) else text), split

    def _split(self, parts: dict[str, np.ndarray], names: np.ndarray) -> Split:
        where: dict[str, str] = {}
        for part in PARTS:
            for name in names[parts[part]].tolist():
                if name in where:
                    said = f"sample {name!r} is in part {where[name]} and again in part {part}"
                    raise UserError(f"{self.path}: {said}; remove one of the two.")
                where[name] = part
        seed = self.record.get("seed", 0)
        return Split(str(self.record.get("method", "file")), seed if isinstance(seed, int) else 0, parts, names)

    def check_same_data(self, data: "DataFile") -> None:
        """Raise UserError unless this certificate is of the same columns."""
        if self.record.get("format") != FORMAT:
            raise UserError(f"{self.path}: does not say which data file it was made from; take another --workdir.")
        stated = self.record["data"]
        if differing := [name for name, digest in data.digests.items() if stated.get(name) != digest]:
            raise UserError(
                f"{data.path}: is not the data that this run was begun with, according to {self.path}; its "
                f"{' and '.join(differing)} differ; restore the old file, or take another --workdir for the new one."
            )

    def _check_claims(self, split: Split, data: "DataFile") -> None:
        if self.record.get("format") != FORMAT:
            return
        claimed = self.record["data"]
        if claimed["readings"] != readings_digest(readings_of(data)):
            raise UserError(
                f"{self.path}: was made from {claimed['name']}, whose subjects, tasks or sentences are not those of "
                f"{data.path}; split {data.path} anew, or copy only train, dev and test of {self.path} to a new file."
            )
        if self.record["digest"] != split.digest():
            raise UserError(
                f"{self.path}: states the split hash {self.record['digest']}, but its parts have {split.digest()}, so "
                "it was edited; restore it."
            )

    def _row(self, sample: Any, part: str, row_of: dict[str, int], data: "DataFile") -> int:
        if isinstance(sample, int) and not isinstance(sample, bool):
            if not 0 <= sample < len(data):
                raise UserError(
                    f"{self.path}: row {sample} of part {part} is not in {data.path} ({len(data)} rows); use the data "
                    "file that the split was made from."
                )
            return sample
        name = self._entry(sample, part)[0]
        if name not in row_of:
            raise UserError(
                f"{self.path}: sample {name!r} of part {part} is not in {data.path}, which has {next(iter(row_of))!r} "
                "and others; use the data file that the split was made from."
            )
        return row_of[name]

    def _entry(self, sample: Any, part: str) -> tuple[str, str, str, str, str | None]:
        """Return sample id, subject, task, sentence id and text (None: unknown) of a sample."""
        if isinstance(sample, str):
            subject, slash, sentence = sample.partition("/")
            sentence = sentence.partition("#")[0]
            task, colon, index = sentence.rpartition(":")
            if slash and colon and index.isdecimal():
                return sample, subject, task, sentence, None
        elif isinstance(sample, dict) and isinstance(subject := sample.get("subject"), str):
            task, number, text = str(sample.get("task", "")), sample.get("sentence_index"), sample.get("text")
            if isinstance(number, int) or isinstance(text, str):
                sentence = f"{task}:{number if isinstance(number, int) else text}"
                return f"{subject}/{sentence}", subject, task, sentence, text
        elif isinstance(sample, int):
            raise UserError(
                f"{self.path}: part {part} names samples by row number; name the data file as well: "
                f"`eeg2text split --audit {self.path} DATA.h5`."
            )
        raise UserError(
            f"{self.path}: part {part} holds {json.dumps(sample)[:80]}; expected a row number, an id like "
            '"ZAB/NR:12", or an object with subject, task and sentence_index (or text).'
        )


def readings_digest(readings: Readings) -> str:
    """Return a hash of all sample ids with their texts, in any order."""
    return content_digest(sorted(zip(readings.sample_id, readings.text, strict=True)))[:16]


def seal(certificate: dict[str, Any]) -> str:
    """Return the checksum of a certificate, the SHA-256 of all but its key `sha256`."""
    return content_digest({name: value for name, value in certificate.items() if name != "sha256"})


def hash_ids(ids: Sequence[str]) -> str:
    """Return the SHA-256 of sorted sample ids, one a line."""
    return hashlib.sha256("\n".join(sorted(map(str, ids))).encode()).hexdigest()


def read_split_file(path: str | os.PathLike[str]) -> SplitFile:
    """Read a certificate or another split file. Raises UserError if it is missing, malformed or edited."""
    path = epath.Path(at_hand(path))
    try:
        record = parse_json(path.read_text("utf8"))
    except OSError as error:
        raise UserError(
            f"{path}: cannot be read ({error.strerror or error}); make it with `eeg2text split`."
        ) from error
    except ValueError as error:
        raise UserError(f"{path}: expected a split file in JSON ({error}).") from error
    if isinstance(record, dict) and record.get("format") == FORMAT and record.get("sha256") != seal(record):
        raise UserError(
            f"{path}: does not have the checksum that it states, so it was edited or damaged; restore or remake it."
        )
    holder = record.get("parts", record) if isinstance(record, dict) else record
    if not isinstance(holder, dict):
        raise UserError(f"{path}: expected a JSON object with train, dev and test, found {holder!r:.60}.")
    return SplitFile(path, {part: _samples(path, holder, part) for part in PARTS}, record)


def _samples(path: epath.Path, holder: dict[str, Any], part: str) -> list[Any]:
    name = next((name for name in _NAMES[part] if name in holder), None)
    value = holder.get(name)
    samples = value.get("ids") if isinstance(value, dict) else value
    if not isinstance(samples, list) or not samples:
        raise UserError(
            f"{path}: expected a list of samples as part {part!r}, found "
            f"{f'{samples!r:.60}' if name else 'no such part'}; its parts are named "
            f"{', '.join(map(repr, holder))[:120]}."
        )
    stated = value.get("ids_sha256") if isinstance(value, dict) else None
    if stated is not None and stated != hash_ids(samples):
        raise UserError(
            f"{path}: the ids of part {part!r} have another hash than it states, so it was edited; make it again."
        )
    return samples


def write_split_file(path: str | os.PathLike[str], certificate: dict[str, Any]) -> None:
    """Write a certificate atomically; if it states the hashes of its data file, add its checksum as `sha256`."""
    path = epath.Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    certificate = {**certificate, "sha256": seal(certificate)} if certificate["format"] == FORMAT else certificate
    write_text(path, json.dumps(certificate, indent=1, ensure_ascii=False) + "\n")
