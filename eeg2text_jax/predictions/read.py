"""Read a predictions file of any layout, recognised by its content, and describe it in words."""

import dataclasses
import os
import unicodedata
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from etils import epath

from eeg2text_jax.errors import UserError
from eeg2text_jax.files import file_digest
from eeg2text_jax.predictions.blocks import LAYOUTS, read_blocks, read_pairs, read_words, survey
from eeg2text_jax.predictions.csv_rows import read_csv
from eeg2text_jax.predictions.file import MODES, Prediction, PredictionSet, is_own, parse_predictions
from eeg2text_jax.predictions.foreign import UNKNOWN, ForeignRow, complete, mode_name
from eeg2text_jax.predictions.groups import RowSummary
from eeg2text_jax.predictions.json_rows import read_json
from eeg2text_jax.predictions.notes import possible_faults, repetitions
from eeg2text_jax.predictions.packed import Lines
from eeg2text_jax.predictions.two_files import read_two_files
from eeg2text_jax.stores.copying import at_hand

FORMATS = ("jsonl", *LAYOUTS, "C2", "E", "F", "H", "J", "P", "K")
REFERENCE = (
    "the true texts of files that hold outputs alone: lines, a table or JSON, in the same order or by the same ids"
)
BLOCK_NOTES = {
    "A": "A (target string / predicted string with tf / predicted string)",
    "A1": "A1 (target string / predicted string)",
    "A2": "A2 (target string / predicted string with tf / predicted string, with lines of tokens)",
    "B": "B (Target string / Predicted string, closed by dashes)",
    "C": "C (start / Predicted / True / end)",
    "C1": "C1 (Predicted / True, closed by equals signs)",
    "C2": "C2 (a line of reference and one of prediction, with labels)",
    "D": "D (target sentence / predicted sentence)",
    "E": "E (target word / pred word, one line per word)",
}


def read_any(
    path: str | os.PathLike[str],
    *,
    layout: str | None = None,
    columns: Sequence[str] | None = None,
    mode: str | None = None,
    groups: Sequence[str] = (),
    reference: str | os.PathLike[str] | None = None,
) -> PredictionSet:
    """Read a predictions file of any layout in `FORMATS`.

    Values that the file does not state are "unknown"; a missing sentence id is made from the reference.

    Args:
      path: the file, or its address in a bucket.
      layout: a name in `FORMATS`; None recognises the layout by content.
      columns: of a table or foreign JSON: the reference and one or more predictions, by name or by number from 1.
      mode: the mode of rows that do not state one; rows of other modes are dropped.
      groups: columns of a table or foreign JSON whose labels to keep, see `predictions/groups.py`.
      reference: a file of references for a file that has only predictions, joined line by line or by id.

    Raises:
      UserError: the file or a line of it cannot be read as its layout, or no row is of `mode`.

    Examples:
      >>> from eeg2text_jax import read_any
      >>> rows = read_any("run/predictions.jsonl", mode="free_running").predictions
      >>> sorted({row.eval_condition for row in rows})
      ['eeg', 'noise', 'shuffled']
    """
    path = epath.Path(at_hand(path))
    if layout is not None and layout not in FORMATS:
        raise UserError(f"--format={layout}: there is no such layout; the layouts are {', '.join(FORMATS)}.")
    mode = mode if mode is None else mode_name(mode)
    if mode is not None and mode not in MODES:
        raise UserError(f"--mode={mode}: there is no such mode; the modes are {', '.join(MODES)}.")
    lines = Lines(path)
    if not lines.data.strip():
        raise UserError(f"{path}: the file is empty.")
    rows: Any
    description: str | Callable[..., str]
    notes: Sequence[str] = ()
    if reference is not None:
        rows, description = read_two_files(lines, Lines(at_hand(epath.Path(reference))), layout, columns, groups)
    elif layout in ("P", "K"):
        raise UserError(
            f"--format={layout}: the file has only predictions; give their references with --reference=FILE."
        )
    elif layout == "jsonl" or (layout is None and not columns and is_own(lines)):
        return in_mode(in_one_form(parse_predictions(lines)), mode)
    else:
        rows, description, notes = read_foreign(lines, layout, columns, groups)
    rows = RowSummary(rows)
    predictions = complete(rows, path)
    if callable(description):
        fed = rows.fed == {p.eval_condition for p in predictions}
        dropped = (*(() if fed else ("condition",)), *(() if rows.part else ("split",)))
        description = description(dropped)
        refuse_conditions(rows, predictions, path)
    if not predictions:
        raise UserError(f"{path}: no predictions in the file.")
    converted = (f"in {count} rows {sentence}" for sentence, count in rows.read_as.items())
    notes = (*notes, *([rows.part] if rows.part else []), *converted)
    read = PredictionSet(predictions, {}, description, path, notes, (), rows.groups, lines.digest, rows.seeds_stated)
    return in_mode(in_one_form(read), mode)


def read_foreign(
    lines: Lines, layout: str | None, columns: Sequence[str] | None, groups: Sequence[str]
) -> tuple[Iterator[ForeignRow], str | Callable[..., str], Sequence[str]]:
    """Return the samples of a foreign file, its layout in words (or a function, see `describe_columns`), and notes."""
    found = survey(lines)
    name = layout or ("J" if found.first in ("[", "{") else "F" if columns else found.layout() or "F")
    if name == "J":
        by_line = found.first == "{" and 2 * found.braces >= found.filled
        return *read_json(lines, columns, by_line=by_line, groups=groups), ()
    if name in ("F", "H"):
        return *read_csv(lines, columns, header={"H": False, "F": True}.get(layout), groups=groups), ()
    if name in ("C2", "E"):
        return read_words(lines) if name == "E" else read_pairs(lines, found), BLOCK_NOTES[name], ()
    rows, notes = read_blocks(lines, name, found)
    return rows, BLOCK_NOTES[name], notes


def refuse_conditions(rows: RowSummary, predictions: Sequence[Prediction], path: epath.Path) -> None:
    """Raise UserError if the conditions of the rows, EEG and controls, are stated only by a column that is not used."""
    known = {p.eval_condition for p in predictions} != {UNKNOWN}
    for name, fed in rows.others.items():
        if not known and fed.total() == len(predictions) and "eeg" in fed and len(fed) > 1:
            raise UserError(
                f"{path}: the column {name!r} says what was fed ({', '.join(fed)}), and rows with different inputs "
                "are not judged together; rename the column to eval_condition, or give one file for each value."
            )


def in_one_form(read: PredictionSet) -> PredictionSet:
    """Convert all texts to the Unicode form NFC, and note how many samples had another form.

    An é may be one character or two (NFC, NFD), which look the same and count as different in every metric.
    """
    changed = set()
    rows = []
    for row in read.predictions:
        if not (row.reference.isascii() and row.prediction.isascii()):
            reference, prediction = (unicodedata.normalize("NFC", text) for text in (row.reference, row.prediction))
            if (reference, prediction) != (row.reference, row.prediction):
                changed.add(row.sample_id)
                row = dataclasses.replace(row, reference=reference, prediction=prediction)
        rows.append(row)
    if not changed:
        return read
    note = f"{len(changed)} samples have text in another Unicode form than NFC; they were brought to NFC to be compared"
    return dataclasses.replace(read, predictions=rows, notes=(*read.notes, note))


def check_given_once(paths: Sequence[epath.Path], reference: epath.Path | None = None) -> list[str]:
    """Return notes on different files with the same bytes. Raises UserError if two paths are of one file."""
    notes: list[str] = []
    places: set[str] = set()
    sizes: dict[int, list[epath.Path]] = defaultdict(list)
    for path in (*paths, *([reference] if reference else [])):
        place = os.path.realpath(path) if "://" not in str(path) else str(path)
        if place in places:
            raise UserError(f"{path}: the file is given twice; give each file once.")
        places.add(place)
        if os.path.isfile(place):  # not a pipe, which can be read once only
            sizes[os.path.getsize(place)].append(path)
    for same in sizes.values():
        digests: dict[str, epath.Path] = {}
        for path in same if len(same) > 1 else ():
            other = digests.setdefault(file_digest(path), path)
            if other != path:
                notes.append(f"{path}: the file has the same bytes as {other}; one of them may be a copy.")
    return notes


def in_mode(read: PredictionSet, mode: str | None) -> PredictionSet:
    """Return the rows of one mode; rows of unknown mode get this mode. None returns all rows unchanged.

    Raises UserError if no row is left.
    """
    if mode is None:
        return read
    stated = [dataclasses.replace(p, mode=mode) if p.mode == UNKNOWN else p for p in read.predictions]
    kept = [p for p in stated if p.mode == mode]
    if not kept:
        raise UserError(
            f"{read.path}: no {mode} predictions in the file, only {read.predictions[0].mode} ones; set "
            f"--mode={read.predictions[0].mode}, or give another file."
        )
    return dataclasses.replace(read, predictions=kept, further=tuple(p for p in read.further if p.mode == mode))


def count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def describe(read: PredictionSet) -> str:
    """Return a description of a file: a line with layout, counts, modes and conditions, then a line per note."""
    modes = ", ".join(dict.fromkeys(p.mode for p in read.predictions))
    conditions = ", ".join(dict.fromkeys(f"{p.train_condition} → {p.eval_condition}" for p in read.predictions))
    sentences = len({p.sentence_id for p in read.predictions})
    subjects = {p.subject for p in read.predictions} - {UNKNOWN}
    repeated = f"; rows that repeat another row of the same subject: {twice}" if (twice := repetitions(read)) else ""
    fed = "" if conditions == f"{UNKNOWN} → {UNKNOWN}" else f"; training → evaluation {conditions}"
    first = (
        f"{read.path}: layout {read.layout}; {count(len(read.predictions), 'prediction')} of "
        f"{count(sentences, 'sentence')}, {count(len(subjects), 'subject') if subjects else 'unknown subjects'}; mode "
        f"{modes}{fed}{repeated}."
    )
    notes = [*read.notes, *possible_faults(read)]
    if empty := sum(not p.reference.strip() for p in read.predictions):
        notes.append(
            f"{empty} rows have an empty reference: `score` counts every word predicted there as wrong, and `audit` "
            "refuses the file; remove the rows if they are no samples (such as a row of means)"
        )
    return "\n".join([first, *(f"{read.path}: {note}." for note in notes)])
