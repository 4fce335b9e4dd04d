"""Reads any predictions file: recognises its layout by content, and says what it recognised."""

import dataclasses
import os
from collections.abc import Sequence

from etils import epath

from eeg2text_jax.errors import UserError
from eeg2text_jax.predictions.blocks import LAYOUTS, read_blocks, read_words, recognise_blocks
from eeg2text_jax.predictions.csv_columns import read_csv
from eeg2text_jax.predictions.file import MODES, PredictionSet, read_predictions, read_text
from eeg2text_jax.predictions.foreign import UNKNOWN, complete

FORMATS = ("jsonl", *LAYOUTS, "A2", "E", "F", "H")
BLOCK_NOTES = {
    "A": "A (target string / predicted string with tf / predicted string)",
    "A1": "A1 (target string / predicted string)",
    "A2": "A2 (target string / predicted string with tf / predicted string, with lines of tokens)",
    "B": "B (Target string / Predicted string, closed by dashes)",
    "C": "C (start / Predicted / True / end)",
    "D": "D (target sentence / predicted sentence)",
    "E": "E (target word / pred word, a line a word)",
}


def read_any(
    path: str | os.PathLike[str],
    *,
    layout: str | None = None,
    columns: Sequence[str] | None = None,
    mode: str | None = None,
) -> PredictionSet:
    """Reads a predictions file of any layout in `FORMATS`.

    Args:
      layout: the layout, instead of the one recognised by content.
      columns: of a table: the reference and one or more predictions, by name or by number from 1.
      mode: for a file that does not say its mode, the mode; for one that does, the only mode to keep.

    What a file does not say is "unknown"; sentence ids come from the reference text where there are none.

    Raises:
      UserError: the file or a line of it cannot be read as its layout, or nothing of `mode` is in it.
    """
    path = epath.Path(path)
    if layout is not None and layout not in FORMATS:
        raise UserError(f"--format={layout}: there is no such layout; the layouts are {', '.join(FORMATS)}.")
    if mode is not None and mode not in MODES:
        raise UserError(f"--mode={mode}: there is no such mode; the modes are {', '.join(MODES)}.")
    text = read_text(path)
    if not text.strip():
        raise UserError(f"{path}: the file is empty.")
    lines = text.split("\n")
    found = layout or ("F" if columns else recognise(lines))
    if found == "jsonl":
        read = read_predictions(path)
    elif found in ("F", "H"):
        rows, description = read_csv(text, path, columns, header={"H": False, "F": True}.get(layout))
        read = PredictionSet(complete(rows, path), {}, description, path)
    else:
        rows = read_words(lines, path) if found == "E" else read_blocks(lines, found, path)
        read = PredictionSet(complete(rows, path), {}, BLOCK_NOTES[found], path)
    if not read.predictions:
        raise UserError(f"{path}: no predictions in the file.")
    return in_mode(read, mode)


def recognise(lines: Sequence[str]) -> str:
    """The layout of a file: JSON lines, labelled blocks, or else a table."""
    filled = [line for line in lines if line.strip()]
    if 2 * sum(line.startswith("{") for line in filled) >= len(filled):
        return "jsonl"
    return recognise_blocks(list(lines)) or "F"


def in_mode(read: PredictionSet, mode: str | None) -> PredictionSet:
    """The rows of one mode; rows of unknown mode count as of this one. All rows where `mode` is None."""
    if mode is None:
        return read
    stated = [dataclasses.replace(p, mode=mode) if p.mode == UNKNOWN else p for p in read.predictions]
    kept = [p for p in stated if p.mode == mode]
    if not kept:
        raise UserError(f"{read.path}: no {mode} predictions in the file; it has {read.predictions[0].mode} ones.")
    return dataclasses.replace(read, predictions=kept)


def describe(read: PredictionSet) -> str:
    """What was recognised, in one line."""
    modes = ", ".join(dict.fromkeys(p.mode for p in read.predictions))
    conditions = ", ".join(dict.fromkeys(f"{p.train_condition} → {p.eval_condition}" for p in read.predictions))
    sentences = len({p.sentence_id for p in read.predictions})
    subjects = {p.subject for p in read.predictions} - {UNKNOWN}
    repeated = f"; rows that repeat another of the same subject: {count}" if (count := repetitions(read)) else ""
    return (
        f"{read.path}: layout {read.layout}; {len(read.predictions)} predictions of {sentences} sentences, "
        f"{len(subjects) or 'unknown'} subjects; mode {modes}; training → evaluation {conditions}{repeated}."
    )


def repetitions(read: PredictionSet) -> int:
    """Rows that agree with an earlier one in everything but the sample id, where subjects are known."""
    rows = [
        dataclasses.replace(p, sample_id="", reference_tokens=None, prediction_tokens=None)
        for p in read.predictions
        if p.subject != UNKNOWN
    ]
    return len(rows) - len(set(rows))
