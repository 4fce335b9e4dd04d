"""The roles of columns in a foreign table, or of names in its JSON objects."""

import ast
import csv
import dataclasses
import io
import json
import os
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from etils import epath

from eeg2text_jax.errors import UserError
from eeg2text_jax.predictions.column_names import (
    ABOUT_NAMES,
    MAYBE_REFERENCES,
    PAIRS,
    PHONEMES,
    PREDICTION_NAMES,
    REFERENCE_NAMES,
    condition_of,
    normalised,
    split_mode,
)
from eeg2text_jax.predictions.foreign import MISSING, MODE_FIELDS, UNKNOWN, ForeignRow, fed_word
from eeg2text_jax.predictions.packed import read_text

FIRST_OF_SEVERAL = "hold several texts; the first of them counts"
SEVERAL = "a row holds several samples; write one a row"
JOINED = "are lists of tokens; they are joined by spaces"
METADATA = ("n_words", "recording", "onset", "duration", "order")  # what a metadata CSV may tell of a reference


@dataclasses.dataclass(frozen=True)
class Columns:
    """Names (of JSON) or positions (of a table): the reference, the predictions by condition and mode, what else."""

    reference: int
    predictions: dict[tuple[str, str], int]
    about: dict[str, list[int]]
    others: Mapping[str, int] = dataclasses.field(default_factory=dict)  # columns whose names say nothing

    def used(self, dropped: Collection[str] = ()) -> set[int]:
        about = (found for name, found in self.about.items() if name not in dropped)
        return {self.reference, *self.predictions.values(), *(i for found in about for i in found)}


def named_columns(names: Sequence[str], path: epath.Path, titles: Sequence[str] = ()) -> Columns:
    """Find columns by the usual names; `titles` are the names as the file has them, for messages.

    Raises UserError if no pair or several pairs fit.
    """
    parts = [split_mode(name) for name in names]
    bases = [base for base, _ in parts]
    pairs = [pair for pair in PAIRS if set(pair) <= set(bases)]
    references = [name for name in REFERENCE_NAMES if name in names]
    predicted = [name for name in PREDICTION_NAMES if name in bases]
    conditions = {name: condition for name in bases if (condition := condition_of(name))}
    maybe = [name for name in MAYBE_REFERENCES if name in names]
    if not pairs and not references and len(predicted) == len(maybe) == 1:
        references = maybe
    if not pairs and len(references) == 1 and len(predicted) == 1:
        pairs = [(references[0], predicted[0])]
    if not pairs and not references and all(set(side) & set(names) for side in PHONEMES):
        pairs = [tuple(next(name for name in side if name in names) for side in PHONEMES)]
    if len(pairs) == 1:
        reference, wanted = pairs[0][0], {pairs[0][1]: UNKNOWN}
    elif not pairs and len(references) == 1 and conditions:
        reference, wanted = references[0], conditions
    else:
        raise UserError(f"{path}: {_unclear(pairs, references, predicted, names, titles or names)}")
    chosen = {name: (wanted[base], mode) for name, (base, mode) in zip(names, parts, strict=True) if base in wanted}
    if repeated := [name for name in (reference, *chosen) if list(names).count(name) > 1]:
        raise UserError(f"{path}, line 1: two columns are named {repeated[0]!r}; name the columns by number, from 1.")
    if len(set(chosen.values())) < len(chosen):
        raise UserError(
            f"{path}: the columns {', '.join(chosen)} are predictions of one condition and mode; name one with "
            "--columns=REFERENCE,PREDICTION."
        )
    return Columns(names.index(reference), {key: names.index(name) for name, key in _paired(chosen)}, about(names))


def _unclear(
    pairs: Sequence[Any],
    references: Sequence[str],
    predicted: Sequence[str],
    names: Sequence[str],
    titles: Sequence[str],
) -> str:
    """Explain which of reference and prediction is unclear, and how to name it."""
    title = next(
        (t for t, name in zip(titles, names, strict=True) if split_mode(name)[0] in (*references, *predicted)), ""
    )
    others = [other for other, name in zip(titles, names, strict=True) if other != title and name not in ABOUT_NAMES]
    if pairs or bool(references) == bool(predicted) or not others:
        found = "several columns may be" if pairs or (references and predicted) else "no column is known as"
        among = f"{found} reference and prediction among {enumerated(titles)}"
        return f"{among}; name them with --columns=REFERENCE,PREDICTION."
    if len(found := references or predicted) > 1:
        side = "reference" if references else "prediction"
        return (
            f"several columns may be the {side} ({enumerated(found)}); name both with --columns=REFERENCE,PREDICTION."
        )
    sides = ("reference", "prediction") if references else ("prediction", "reference")
    named = f"{title},PREDICTION" if references else f"REFERENCE,{title}"
    return (
        f"the {sides[0]} is {title!r}; which column is the {sides[1]} cannot be told among "
        f"{enumerated(others)}; say it with --columns={repr(named) if ' ' in named else named}."
    )


def enumerated(names: Sequence[str], most: int = 8) -> str:
    """Return the first names, and the number of the others."""
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def _paired(chosen: Mapping[str, tuple[str, str]]) -> list[tuple[str, tuple[str, str]]]:
    """Set the mode of a column without one beside its teacher-forced twin to free-running."""
    forced = {condition for condition, mode in chosen.values() if mode == "teacher_forced"}
    return [
        (name, (condition, "free_running" if mode == UNKNOWN and condition in forced else mode))
        for name, (condition, mode) in chosen.items()
    ]


def about(names: Sequence[str]) -> dict[str, list[int]]:
    """Return the positions of the columns for fields of a prediction: the first of each, and all for the task.

    A data set and a key of its task together identify the task.
    """
    found: dict[str, list[int]] = {}
    for index, name in enumerate(names):
        field = ABOUT_NAMES.get(name)
        if field and (field == "task" or field not in found):
            found.setdefault(field, []).append(index)
    return found


def stated_columns(columns: Sequence[str], names: Sequence[str] | None, width: int, path: epath.Path) -> Columns:
    """Return the columns that the user named, by name or by number from 1."""
    if len(columns) < 2:
        raise UserError(f"--columns={','.join(columns)}: expected the reference and at least one prediction.")
    positions = [place_of(column, names, width, path) for column in columns]
    reference, *predictions = positions
    titles = [condition_of(name) or name for name in normalised(columns[1:])]
    conditions = titles if len(predictions) > 1 else [UNKNOWN]
    if len(set(positions)) < len(positions) or len(set(conditions)) < len(conditions):
        raise UserError(f"--columns={','.join(columns)}: a column or condition is named twice; name each once.")
    keys = [(condition, UNKNOWN) for condition in conditions]
    return Columns(reference, dict(zip(keys, predictions, strict=True)), about(names) if names else {})


def place_of(column: str, names: Sequence[str] | None, width: int, path: epath.Path) -> int:
    """Return the position of a column given by its name, or its number from 1. Raises UserError if there is none."""
    name = normalised([column])[0]
    if names and name in names:
        return list(names).index(name)
    if column.isascii() and column.isdigit() and 1 <= int(column) <= width:
        return int(column) - 1
    offered = ", ".join(names) if names else f"1 to {width}"
    raise UserError(f"{path}: there is no column {column!r}; the columns are {offered}.")


def with_groups(columns: Columns, names: Sequence[str] | None, groups: Sequence[str]) -> Columns:
    """Add the columns of `groups`, whose values rows carry as `group NAME`, and the unused columns."""
    titles = {name: normalised([name])[0] for name in groups}
    places = {f"group {name}": [names.index(title)] for name, title in titles.items() if title in (names or ())}
    columns = dataclasses.replace(columns, about=columns.about | places)
    used = columns.used()
    return dataclasses.replace(columns, others={n: i for i, n in enumerate(names or ()) if i not in used})


def listed(cell: str) -> list | None:
    """Parse a list in the notation of JSON, Python or NumPy; None if the cell is text."""
    text = cell.strip()
    if not (text[:1] == "[" and text[-1:] == "]"):
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        pass
    try:  # NumPy leaves out the commas, and Python would join the texts
        return ast.literal_eval(re.sub(r"(?<=['\"])\s+(?=['\"])", ", ", text))
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return None


def one_text(items: Sequence[Any]) -> tuple[str | None, str]:
    """Return the text of a list and a note on the conversion; None if it holds anything but texts.

    The first of several texts (references of a caption, hypotheses of a beam) counts, whatever the scores: content is
    then the score against one text of the sentence minus that against one text of another.
    """
    if any(not isinstance(item, str) for item in items):
        return None, ""
    texts = list(dict.fromkeys(item.strip() for item in items))
    if len(texts) < 2:
        return (items[0] if items else ""), ""
    if any(" " in text for text in texts):
        return items[0], FIRST_OF_SEVERAL
    return " ".join(items), JOINED


def is_several(items: Iterable[Any]) -> bool:
    """Return whether a list holds the lists of several samples."""
    return sum(isinstance(item, list) for item in items) > 1


def foreign_row(
    number: int, fields: Sequence[str], columns: Columns, path: epath.Path, unit: str = "line"
) -> ForeignRow:
    """Make a sample from the fields of its row. Raises UserError for a list of anything but texts."""
    done: list[str] = []

    def text(side: str, field: str) -> str:
        items = listed(field)
        found, how = (field, "") if items is None else one_text(items)
        if found is None and is_several(items or ()):
            raise UserError(f"{path}, {unit} {number}: the {side} is the list of lists {field!r:.60}; {SEVERAL}.")
        if found is None:
            raise UserError(f"{path}, {unit} {number}: the {side} is the list {field!r:.60}; expected text.")
        done.extend([f"{side}s {how}"] if how else [])
        return found

    reference = text("reference", fields[columns.reference])
    outputs = {key: text("prediction", fields[index]) for key, index in columns.predictions.items()}
    stated = {name: "/".join(_filled(fields[i] for i in found)) for name, found in columns.about.items()}
    stated |= {f"other {name}": fields[i] for name, i in columns.others.items() if fed_word(fields[i])}
    return ForeignRow(number, reference, outputs, stated, unit, tuple(dict.fromkeys(done)))


def _filled(values: Iterable[str]) -> list[str]:
    """Return the values that are not empty; if all are, the first."""
    values = list(values)
    return [value for value in values if value.strip().lower() not in MISSING] or values[:1]


def read_metadata(path: str | os.PathLike[str]) -> csv.DictReader:
    """Open a metadata CSV; columns of references, subjects and tasks get the names `reference`, `subject`, `task`."""
    reader = csv.DictReader(io.StringIO(read_text(path), newline=""))
    names = reader.fieldnames or ()
    plain = normalised(names)
    references = [name for name in ("reference", *REFERENCE_NAMES, *MAYBE_REFERENCES) if name in plain][:1]
    found: list[str] = []
    for name, title in zip(plain, names, strict=True):
        field = "reference" if name in references else ABOUT_NAMES.get(name, "")
        usual = field in ("reference", "subject", "task") and field not in (*found, *(plain if name != field else ()))
        found.append(field if usual else name if name in METADATA else title)
    reader.fieldnames = found
    return reader


def titles_of(names: Sequence[str] | None, width: int) -> list[str]:
    """Return names of columns for messages; pandas leaves the name of its index empty."""
    if not names:
        return [f"column {i + 1}" for i in range(width)]
    return [repr(name) if name else f"the index (column {i})" for i, name in enumerate(names, 1)]


def describe_columns(
    columns: Columns, names: Sequence[str] | None, width: int, kind: str, dropped: Collection[str] = ()
) -> str:
    """Describe the used and unused columns; `dropped` are fields that were not used."""
    titles = titles_of(names, width)
    used = columns.used(dropped)
    unused = [title for i, title in enumerate(titles) if i not in used]
    predicted = ", ".join(titles[i] for i in columns.predictions.values())
    task = columns.about.get("task", [])
    tasks = f", task {' and '.join(titles[i] for i in task)}" if task else ""
    mode = [titles[i] for name in MODE_FIELDS if name not in dropped for i in columns.about.get(name, [])]
    tasks += f", mode {' and '.join(mode)}" if mode else ""
    about = f"; reference {titles[columns.reference]}, prediction {predicted}{tasks}"
    return f"{kind}{about}{f'; not used: {enumerated(unused)}' if unused else ''})"
