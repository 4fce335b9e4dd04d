"""Groups of references (class, topic, story): one label each, from a column of a predictions file or CSV."""

import itertools
import os
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np

from eeg2text_jax.data.datafile import DataFile
from eeg2text_jax.errors import UserError
from eeg2text_jax.predictions.columns import read_metadata
from eeg2text_jax.predictions.file import FIELDS, PredictionSet, sentence_key
from eeg2text_jax.predictions.foreign import ForeignRow, condition_name, fed_word, joined_words

# Likely names of columns with the class, topic or story of a reference.
LIKELY = tuple(
    f"{first}{second}"
    for second in ("class", "object", "category", "topic", "story", "label", "genre")
    for first in ("", "expected ", "true ", "target ", "gold ")
)
MOST_DIVIDED = 0.1  # largest share of references with several labels; more means that labels belong to rows

Labels = dict[str, dict[str, str]]  # column -> reference -> label


Counts = dict[str, Counter]  # reference -> how often each label
PARTS = {
    **dict.fromkeys(("test", "testing", "eval", "evaluation", "heldout", "held_out"), "test"),
    **dict.fromkeys(("dev", "val", "valid", "validation"), "dev"),
    **dict.fromkeys(("train", "training"), "train"),
}


class Collected:
    """Pass rows on and collect what they carry: labels of groups, conditions, seeds, notes."""

    def __init__(self, rows: Iterable[ForeignRow]):
        self._rows = rows
        self.groups: dict[str, Counts] = defaultdict(lambda: defaultdict(Counter))
        self.fed: set[str] = set()  # values of a column of conditions
        self.seeds_stated = False
        self.read_as: Counter[str] = Counter()  # conversions of texts, with numbers of rows
        self.part = ""  # effect of a column of splits
        self.others: dict[str, Counter[str]] = defaultdict(Counter)  # conditions in other columns

    def __iter__(self) -> Iterator[ForeignRow]:
        for row in self._tested(iter(self._rows)):
            self.fed.add(condition_name(row))
            self.seeds_stated |= "seed" in row.about
            self.read_as.update(row.read_as)
            for name, value in row.about.items():
                if name.startswith("group "):
                    self.groups[name.removeprefix("group ")][sentence_key(row.reference)][value.strip()] += 1
                elif name.startswith("other "):
                    self.others[name.removeprefix("other ")][fed_word(value)] += 1
            yield row

    def _tested(self, rows: Iterator[ForeignRow]) -> Iterator[ForeignRow]:
        """Yield the rows of the test part, else of dev, if a column of splits has several parts."""
        first = next(rows, None)
        if first is None:
            return
        rows = itertools.chain([first], rows)
        if "split" not in first.about:
            yield from rows
            return
        listed = [(row, PARTS.get(joined_words(row.about["split"]), "")) for row in rows]
        counts = Counter(part for _, part in listed)
        kept = next((part for part in ("test", "dev") if counts[part]), "")
        if kept and counts[kept] < len(listed):
            others = ", ".join(f"{count} of {part or 'another'}" for part, count in counts.items() if part != kept)
            self.part = f"of the column of splits the {counts[kept]} rows of {kept} count; left out are {others}"
        elif counts["train"] == len(listed):
            self.part = "every row is of the training part by its column: what is decoded there may be remembered"
        yield from (row for row, part in listed if part == kept or not kept)

    def columns_of_conditions(self, rows: int) -> list[str]:
        """Return columns of other names that state EEG or a control in every one of `rows`."""
        return [name for name, fed in self.others.items() if fed.total() == rows and "eeg" in fed and len(fed) > 1]


def groups_of(
    read: PredictionSet, columns: Sequence[str], meta: str | os.PathLike[str] | None = None
) -> tuple[Labels, list[str]]:
    """Return labels by column, from a metadata CSV or else the file, and notes on references with several labels.

    Raises UserError if there is no such column, or it describes rows instead of references.
    """
    lines = list(read_metadata(meta)) if meta else []
    found: Labels = {}
    notes = []
    for column in columns:
        if lines and column in lines[0]:
            counts = counted((line["reference"] or "", line[column] or "") for line in lines)
        elif column in read.groups:
            counts = read.groups[column]
        elif column in FIELDS:
            counts = counted((row.reference, str(getattr(row, column))) for row in read.predictions)
        else:
            where = f"{read.path} or {meta}" if meta else f"{read.path}"
            raise UserError(f"--groups={column}: there is no such column in {where}; name one that the file has.")
        divided = sum(len(labels) > 1 for labels in counts.values())
        if divided > MOST_DIVIDED * len(counts):
            raise UserError(
                f"--groups={column}: {divided} of {len(counts)} references have several labels; expected one label for "
                "each reference, such as its class, topic or story."
            )
        if divided:
            notes.append(f"--groups={column}: {divided} references have several labels; the most frequent one counts")
        found[column] = {reference: labels.most_common(1)[0][0] for reference, labels in counts.items()}
    return found, notes


def likely_groups(read: PredictionSet) -> list[str]:
    """Return `LIKELY` columns with one group per reference, and at most half as many groups as references."""
    found = []
    for column, counts in read.groups.items():
        labels = {label for own in counts.values() for label in own}
        divided = sum(len(own) > 1 for own in counts.values())
        if column in LIKELY and 1 < len(labels) <= len(counts) / 2 and not divided and "" not in labels:
            found.append(column)
    return found


def labels_of_samples(data: DataFile, path: Path) -> dict[str, np.ndarray]:
    """Return labels of all samples of a data file, object `[N]`, by column of a CSV with sentences as `reference`.

    Raises UserError if there is no such column, or a sentence has no line.
    """
    lines = list(read_metadata(path))
    if not lines or "reference" not in lines[0] or len(lines[0]) < 2:
        raise UserError(f"{path}: expected a CSV with the columns reference and one or more groups.")
    found = {}
    for column in lines[0].keys() - {"reference"}:
        label = {sentence_key(line["reference"] or ""): (line[column] or "").strip() for line in lines}
        try:
            found[column] = np.array([label[sentence_key(text)] for text in data.sentence], object)
        except KeyError as error:
            raise UserError(f"{path}: has no line for the sentence {error.args[0]!r:.60}; add one.") from None
    return found


def counted(pairs: Iterable[tuple[str, str]]) -> Counts:
    """Count the labels of each reference."""
    counts: Counts = defaultdict(Counter)
    for reference, label in pairs:
        counts[sentence_key(reference)][label.strip()] += 1
    return counts
