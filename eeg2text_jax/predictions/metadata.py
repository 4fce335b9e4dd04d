"""What predictions files do not carry (subject, task, number of words), from a CSV beside them."""

import csv
import dataclasses
import io
import os
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path

from eeg2text_jax.errors import UserError
from eeg2text_jax.predictions.file import Prediction, read_text, sentence_key


def join_metadata(rows: Sequence[Prediction], path: str | os.PathLike[str]) -> list[Prediction]:
    """Rows with `subject`, `task` and `n_words` from a CSV, joined on its `reference` column.

    A reference has one line, which then holds for all its rows, or one line per row, in the order of the rows (of each
    mode, condition and seed).

    Raises:
      UserError: a column is missing, a number is not one, a reference is not in the CSV or has a wrong number of lines.
    """
    path = Path(path)
    lines = _metadata_lines(path)
    counts = Counter(map(_cell, rows))
    seen: Counter = Counter()
    joined = []
    for row in rows:
        cell = _cell(row)
        found = lines.get(cell[0], [])
        if len(found) not in (1, counts[cell]):
            expected = "1" if counts[cell] == 1 else f"1 or {counts[cell]}"
            raise UserError(f"{path}: {len(found)} lines for the reference {cell[0]!r:.60}; expected {expected}.")
        values = found[seen[cell]] if len(found) > 1 else found[0]
        seen[cell] += 1
        joined.append(dataclasses.replace(row, **values))
    return joined


def _cell(row: Prediction) -> tuple[str, str, str, str, int]:
    """The reference first; the rest tells apart what one file may hold of the same sample."""
    return sentence_key(row.reference), row.mode, row.train_condition, row.eval_condition, row.seed


def _metadata_lines(path: Path) -> dict[str, list[dict[str, str | int]]]:
    reader = csv.DictReader(io.StringIO(read_text(path), newline=""))
    columns = set(reader.fieldnames or ()) & {"subject", "task", "n_words"}
    if "reference" not in (reader.fieldnames or ()) or not columns:
        raise UserError(
            f"{path}, line 1: columns are {', '.join(reader.fieldnames or ['none'])}; expected reference and at least "
            "one of subject, task, n_words."
        )
    lines: dict[str, list[dict[str, str | int]]] = defaultdict(list)
    for line in reader:
        values: dict[str, str | int] = {name: line[name] or "" for name in columns}
        if "n_words" in columns:
            if not str(values["n_words"]).isdigit():
                raise UserError(f"{path}, line {reader.line_num}: n_words is {values['n_words']!r}; expected a number.")
            values["n_words"] = int(values["n_words"])
        lines[sentence_key(line["reference"] or "")].append(values)
    return lines
