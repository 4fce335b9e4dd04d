"""Find reference, predictions and other fields among the columns of a foreign table or the names of JSON objects."""

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
    normalize_names,
    split_mode,
)
from eeg2text_jax.predictions.foreign import MISSING, MODE_FIELDS, UNKNOWN, ForeignRow, fed_word
from eeg2text_jax.predictions.packed import read_text

FIRST_OF_SEVERAL = "hold several texts; the first of them counts"
SEVERAL = "a row holds several samples; write one sample per row"
JOINED = "are lists of tokens; they are joined by spaces"
METADATA = ("n_words", "recording", "onset", "duration", "order")  # further columns of a metadata CSV


@dataclasses.dataclass(frozen=True)
class Columns:
    """Positions of the columns in a row, from 0, by their role."""

    reference: int
    predictions: dict[tuple[str, str], int]  # (condition, mode) -> position
    about: dict[str, list[int]]  # field, such as "subject" -> positions
    others: Mapping[str, int] = dataclasses.field(default_factory=dict)  # unused column -> its position

    def used(self, dropped: Collection[str] = ()) -> set[int]:
        """Return the positions of all used columns except those of the fields `dropped`."""
        about = (found for name, found in self.about.items() if name not in dropped)
        return {self.reference, *self.predictions.values(), *(i for found in about for i in found)}


def named_columns(names: Sequence[str], path: epath.Path, titles: Sequence[str] = ()) -> Columns:
    """Return the columns with usual `names` (normalized); `titles` are the names as written in the file, for messages.

    Raises UserError if no pair of columns fits, or several do.
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
    forced = {condition for condition, mode in chosen.values() if mode == "teacher_forced"}
    predictions = {
        # a column without a mode is free-running if there is a teacher-forced column of the same condition
        (condition, "free_running" if mode == UNKNOWN and condition in forced else mode): names.index(name)
        for name, (condition, mode) in chosen.items()
    }
    return Columns(names.index(reference), predictions, field_positions(names))


def _unclear(
    pairs: Sequence, references: Sequence[str], predicted: Sequence[str], names: Sequence[str], titles: Sequence[str]
) -> str:
    """Return the message that says which of reference and prediction is unclear, and how to name it."""
    title = next(
        (t for t, name in zip(titles, names, strict=True) if split_mode(name)[0] in (*references, *predicted)), ""
    )
    others = [other for other, name in zip(titles, names, strict=True) if other != title and name not in ABOUT_NAMES]
    if pairs or bool(references) == bool(predicted) or not others:
        found = "several columns may be" if pairs or (references and predicted) else "no column is known as"
        among = f"{found} reference and prediction among {join_names(titles)}"
        return f"{among}; name them with --columns=REFERENCE,PREDICTION."
    if len(found := references or predicted) > 1:
        side = "reference" if references else "prediction"
        return (
            f"several columns may be the {side} ({join_names(found)}); name both with --columns=REFERENCE,PREDICTION."
        )
    sides = ("reference", "prediction") if references else ("prediction", "reference")
    named = f"{title},PREDICTION" if references else f"REFERENCE,{title}"
    return (
        f"the {sides[0]} is {title!r}; no column can be recognized as the {sides[1]} among "
        f"{join_names(others)}; name it with --columns={repr(named) if ' ' in named else named}."
    )


def join_names(names: Sequence[str], most: int = 8) -> str:
    """Return the first `most` names joined by commas, and the number of further names."""
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def field_positions(names: Sequence[str]) -> dict[str, list[int]]:
    """Return field, such as "subject" -> positions of its columns, by the names in `ABOUT_NAMES`.

    The first column of a field counts. Of `task`, all columns count: a data set and a key in it may identify a task.
    """
    found: dict[str, list[int]] = {}
    for index, name in enumerate(names):
        field = ABOUT_NAMES.get(name)
        if field and (field == "task" or field not in found):
            found.setdefault(field, []).append(index)
    return found


def stated_columns(columns: Sequence[str], names: Sequence[str] | None, width: int, path: epath.Path) -> Columns:
    """Return the columns that `--columns` names: the reference, then predictions, by name or by number from 1."""
    if len(columns) < 2:
        raise UserError(f"--columns={','.join(columns)}: expected the reference and at least one prediction.")
    positions = [find_column(column, names, width, path) for column in columns]
    reference, *predictions = positions
    titles = [condition_of(name) or name for name in normalize_names(columns[1:])]
    conditions = titles if len(predictions) > 1 else [UNKNOWN]
    if len(set(positions)) < len(positions) or len(set(conditions)) < len(conditions):
        raise UserError(f"--columns={','.join(columns)}: a column or condition is named twice; name each once.")
    keys = [(condition, UNKNOWN) for condition in conditions]
    return Columns(reference, dict(zip(keys, predictions, strict=True)), field_positions(names) if names else {})


def find_column(column: str, names: Sequence[str] | None, width: int, path: epath.Path) -> int:
    """Return the position from 0 of a column given by name or by number from 1. Raises UserError if it is missing."""
    name = normalize_names([column])[0]
    if names and name in names:
        return list(names).index(name)
    if column.isascii() and column.isdigit() and 1 <= int(column) <= width:
        return int(column) - 1
    offered = ", ".join(names) if names else f"1 to {width}"
    raise UserError(f"{path}: there is no column {column!r}; the columns are {offered}.")


def with_groups(columns: Columns, names: Sequence[str] | None, groups: Sequence[str]) -> Columns:
    """Return `columns` with the columns named in `groups` as fields `group NAME`, and unused columns as `others`."""
    titles = {name: normalize_names([name])[0] for name in groups}
    places = {f"group {name}": [names.index(title)] for name, title in titles.items() if title in (names or ())}
    columns = dataclasses.replace(columns, about=columns.about | places)
    used = columns.used()
    return dataclasses.replace(columns, others={n: i for i, n in enumerate(names or ()) if i not in used})


def parse_list(cell: str) -> list | None:
    """Return the list that a cell holds in the notation of JSON, Python or NumPy; None if it holds text."""
    text = cell.strip()
    if not (text[:1] == "[" and text[-1:] == "]"):
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        pass
    try:  # NumPy prints no commas; without commas, Python would join adjacent strings
        return ast.literal_eval(re.sub(r"(?<=['\"])\s+(?=['\"])", ", ", text))
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return None


def one_text(items: Sequence[Any]) -> tuple[str | None, str]:
    """Return one text for a list of texts, and a note on the conversion; the text is None if an item is no text.

    Texts without spaces are tokens and are joined. Of other texts (references of a caption, hypotheses of a beam), the
    first counts, because the audit compares scores against one text of a sentence.
    """
    if any(not isinstance(item, str) for item in items):
        return None, ""
    texts = list(dict.fromkeys(item.strip() for item in items))
    if len(texts) < 2:
        return (items[0] if items else ""), ""
    if any(" " in text for text in texts):
        return items[0], FIRST_OF_SEVERAL
    return " ".join(items), JOINED


def has_several_lists(items: Iterable[Any]) -> bool:
    """Return whether two or more items are lists, as if a row held several samples."""
    return sum(isinstance(item, list) for item in items) > 1


def foreign_row(
    number: int, fields: Sequence[str], columns: Columns, path: epath.Path, unit: str = "line"
) -> ForeignRow:
    """Return a table's row as a sample; `unit` says what `number` counts. Raises UserError for a list of non-texts."""
    notes: list[str] = []

    def text(side: str, field: str) -> str:
        items = parse_list(field)
        found, how = (field, "") if items is None else one_text(items)
        if found is None:
            kind, cure = ("list of lists", SEVERAL) if has_several_lists(items) else ("list", "expected text")
            raise UserError(f"{path}, {unit} {number}: the {side} is the {kind} {field!r:.60}; {cure}.")
        notes.extend([f"{side}s {how}"] if how else [])
        return found

    def joined(positions: Sequence[int]) -> str:
        values = [fields[i] for i in positions]
        return "/".join([value for value in values if value.strip().lower() not in MISSING] or values[:1])

    reference = text("reference", fields[columns.reference])
    outputs = {key: text("prediction", fields[index]) for key, index in columns.predictions.items()}
    stated = {name: joined(positions) for name, positions in columns.about.items()}
    stated |= {f"other {name}": fields[i] for name, i in columns.others.items() if fed_word(fields[i])}
    return ForeignRow(number, reference, outputs, stated, unit, tuple(dict.fromkeys(notes)))


def read_metadata(path: str | os.PathLike[str]) -> csv.DictReader:
    """Open a CSV of metadata; usual names of its columns become `reference`, `subject`, `task` or one of `METADATA`."""
    reader = csv.DictReader(io.StringIO(read_text(path), newline=""))
    names = reader.fieldnames or ()
    plain = normalize_names(names)
    references = [name for name in ("reference", *REFERENCE_NAMES, *MAYBE_REFERENCES) if name in plain][:1]
    found: list[str] = []
    for name, title in zip(plain, names, strict=True):
        field = "reference" if name in references else ABOUT_NAMES.get(name, "")
        usual = field in ("reference", "subject", "task") and field not in (*found, *(plain if name != field else ()))
        found.append(field if usual else name if name in METADATA else title)
    reader.fieldnames = found
    return reader


def column_titles(names: Sequence[str] | None, width: int) -> list[str]:
    """Return names of all columns for messages; an empty name stands for the index of a pandas table."""
    if not names:
        return [f"column {i + 1}" for i in range(width)]
    return [repr(name) if name else f"the index (column {i})" for i, name in enumerate(names, 1)]


def describe_columns(
    columns: Columns, names: Sequence[str] | None, width: int, kind: str, dropped: Collection[str] = ()
) -> str:
    """Return a layout in words: its kind, the used and the unused columns; fields in `dropped` count as unused."""
    titles = column_titles(names, width)
    used = columns.used(dropped)
    unused = [title for i, title in enumerate(titles) if i not in used]
    predicted = ", ".join(titles[i] for i in columns.predictions.values())
    task = columns.about.get("task", [])
    tasks = f", task {' and '.join(titles[i] for i in task)}" if task else ""
    mode = [titles[i] for name in MODE_FIELDS if name not in dropped for i in columns.about.get(name, [])]
    tasks += f", mode {' and '.join(mode)}" if mode else ""
    roles = f"; reference {titles[columns.reference]}, prediction {predicted}{tasks}"
    return f"{kind}{roles}{f'; not used: {join_names(unused)}' if unused else ''})"
