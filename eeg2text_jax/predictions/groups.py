"""Labels of references, such as class, topic or story, from columns of a predictions file or a CSV of metadata."""

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
from eeg2text_jax.predictions.foreign import ForeignRow, condition_name, fed_word, join_words

# Usual names of columns with the class, topic or story of a reference.
LIKELY = tuple(
    f"{first}{second}"
    for second in ("class", "object", "category", "topic", "story", "label", "genre")
    for first in ("", "expected ", "true ", "target ", "gold ")
)
MOST_DIVIDED = 0.1  # largest share of references with several labels; above it, labels describe rows, not references
Labels = dict[str, dict[str, str]]  # column -> `sentence_key` -> label
Counts = dict[str, Counter]  # `sentence_key` -> label -> number of rows
# Value in a column that names the split of each row -> test, dev or train.
PARTS = {
    **dict.fromkeys(("test", "testing", "eval", "evaluation", "heldout", "held_out"), "test"),
    **dict.fromkeys(("dev", "val", "valid", "validation"), "dev"),
    **dict.fromkeys(("train", "training"), "train"),
}


class RowSummary:
    """An iterator over the rows of a file that collects their labels, conditions and notes as they are read."""

    def __init__(self, rows: Iterable[ForeignRow]):
        self._rows = rows
        self.groups: dict[str, Counts] = defaultdict(lambda: defaultdict(Counter))  # column -> counts of labels
        self.fed: set[str] = set()  # conditions in the column of conditions
        self.seeds_stated = False
        self.read_as: Counter[str] = Counter()  # note on converted texts -> number of rows
        self.part = ""  # note on the rows that the column of splits left out; "" if none
        self.others: dict[str, Counter[str]] = defaultdict(Counter)  # unused column -> condition -> number of rows

    def __iter__(self) -> Iterator[ForeignRow]:
        for row in self._test_rows(iter(self._rows)):
            self.fed.add(condition_name(row.about.get("condition", "")))
            self.seeds_stated |= "seed" in row.about
            self.read_as.update(row.read_as)
            for name, value in row.about.items():
                if name.startswith("group "):
                    self.groups[name.removeprefix("group ")][sentence_key(row.reference)][value.strip()] += 1
                elif name.startswith("other "):
                    self.others[name.removeprefix("other ")][fed_word(value)] += 1
            yield row

    def _test_rows(self, rows: Iterator[ForeignRow]) -> Iterator[ForeignRow]:
        """Yield the rows of the test part, or of dev if none are of test; all rows without a column of splits."""
        first = next(rows, None)
        rows = itertools.chain([first] if first else [], rows)
        if first is None or "split" not in first.about:
            yield from rows
            return
        listed = [(row, PARTS.get(join_words(row.about["split"]), "")) for row in rows]
        counts = Counter(part for _, part in listed)
        kept = next((part for part in ("test", "dev") if counts[part]), "")
        if kept and counts[kept] < len(listed):
            others = ", ".join(f"{count} of {part or 'another'}" for part, count in counts.items() if part != kept)
            self.part = f"by the column of splits, only {counts[kept]} rows of {kept} are used; left out are {others}"
        elif counts["train"] == len(listed):
            self.part = "every row is of the training part by the column of splits: models may have memorized its texts"
        yield from (row for row, part in listed if part == kept or not kept)


def groups_of(
    read: PredictionSet, columns: Sequence[str], meta: str | os.PathLike[str] | None = None
) -> tuple[Labels, list[str]]:
    """Return column -> reference -> label, and notes on references with several labels.

    A column of the CSV `meta` is preferred to one of the file. Raises UserError if a column is missing, or if more than
    `MOST_DIVIDED` of the references have several labels: the labels then describe rows instead of references.
    """
    lines = list(read_metadata(meta)) if meta else []
    found: Labels = {}
    notes = []
    for column in columns:
        if lines and column in lines[0]:
            counts = count_labels((line["reference"] or "", line[column] or "") for line in lines)
        elif column in read.groups:
            counts = read.groups[column]
        elif column in FIELDS:
            counts = count_labels((row.reference, str(getattr(row, column))) for row in read.predictions)
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
    """Return the `LIKELY` columns with one label per reference, and with 2 to (references / 2) distinct labels."""
    found = []
    for column, counts in read.groups.items():
        labels = {label for own in counts.values() for label in own}
        unique = all(len(own) == 1 for own in counts.values())
        if column in LIKELY and 1 < len(labels) <= len(counts) / 2 and unique and "" not in labels:
            found.append(column)
    return found


def labels_of_samples(data: DataFile, path: Path) -> dict[str, np.ndarray]:
    """Return column of the CSV at `path` -> labels of all samples of the data file, object `[N]`.

    The CSV's column `reference` has the sentences. Raises UserError without this column or a line for each sentence.
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


def count_labels(pairs: Iterable[tuple[str, str]]) -> Counts:
    """Return `sentence_key` of a reference -> label -> number of pairs, from pairs (reference, label)."""
    counts: Counts = defaultdict(Counter)
    for reference, label in pairs:
        counts[sentence_key(reference)][label.strip()] += 1
    return counts
