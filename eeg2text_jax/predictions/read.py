"""Reads any predictions file: recognises its layout by content, and says what it recognised."""

import dataclasses
import os
import unicodedata
from collections import Counter
from collections.abc import Sequence

from etils import epath

from eeg2text_jax.errors import UserError
from eeg2text_jax.files import file_digest
from eeg2text_jax.predictions.blocks import LAYOUTS, Survey, read_blocks, read_words, survey
from eeg2text_jax.predictions.csv_rows import read_csv
from eeg2text_jax.predictions.file import MODES, Lines, PredictionSet, is_own, parse_predictions
from eeg2text_jax.predictions.foreign import UNKNOWN, complete
from eeg2text_jax.predictions.groups import Collected
from eeg2text_jax.predictions.json_rows import read_json
from eeg2text_jax.stores.copying import at_hand

FORMATS = ("jsonl", *LAYOUTS, "E", "F", "H", "J")
BLOCK_NOTES = {
    "A": "A (target string / predicted string with tf / predicted string)",
    "A1": "A1 (target string / predicted string)",
    "A2": "A2 (target string / predicted string with tf / predicted string, with lines of tokens)",
    "B": "B (Target string / Predicted string, closed by dashes)",
    "C": "C (start / Predicted / True / end)",
    "C1": "C1 (Predicted / True, closed by equals signs)",
    "D": "D (target sentence / predicted sentence)",
    "E": "E (target word / pred word, a line a word)",
}


def read_any(
    path: str | os.PathLike[str],
    *,
    layout: str | None = None,
    columns: Sequence[str] | None = None,
    mode: str | None = None,
    groups: Sequence[str] = (),
) -> PredictionSet:
    """Reads a predictions file of any layout in `FORMATS`.

    Args:
      layout: the layout, instead of the one recognised by content.
      columns: of a table or foreign JSON: the reference and one or more predictions, by name or by number from 1.
      mode: for a file that does not say its mode, the mode; for one that does, the only mode to keep.
      groups: columns of a table or foreign JSON whose labels to keep, see `predictions/groups.py`.

    What a file does not say is "unknown"; sentence ids come from the reference text where there are none.

    Raises:
      UserError: the file or a line of it cannot be read as its layout, or nothing of `mode` is in it.

    Examples:
      >>> from eeg2text_jax import read_any
      >>> rows = read_any("run/predictions.jsonl", mode="free_running").predictions
      >>> sorted({row.eval_condition for row in rows})
      ['eeg', 'noise', 'shuffled']
    """
    path = epath.Path(at_hand(path))
    if layout is not None and layout not in FORMATS:
        raise UserError(f"--format={layout}: there is no such layout; the layouts are {', '.join(FORMATS)}.")
    if mode is not None and mode not in MODES:
        raise UserError(f"--mode={mode}: there is no such mode; the modes are {', '.join(MODES)}.")
    lines = Lines(path)
    if not lines.data.strip():
        raise UserError(f"{path}: the file is empty.")
    if layout == "jsonl" or (layout is None and not columns and is_own(lines)):
        return in_mode(in_one_form(parse_predictions(lines)), mode)
    found = survey(lines)
    name = layout or recognise(found, columns)
    notes: list[str] = []
    if name == "J":
        rows, description = read_json(
            lines, columns, by_line=found.first == "{" and 2 * found.braces >= found.filled, groups=groups
        )
    elif name in ("F", "H"):
        rows, description = read_csv(lines, columns, header={"H": False, "F": True}.get(layout), groups=groups)
    elif name == "E":
        rows, description = read_words(lines), BLOCK_NOTES[name]
    else:
        (rows, notes), description = read_blocks(lines, name, found), BLOCK_NOTES[name]
    rows = Collected(rows)
    predictions = complete(rows, path)
    if callable(description):
        dropped = () if rows.fed == {p.eval_condition for p in predictions} else ("condition",)
        description = description(dropped)
    about = {"groups": rows.groups, "digest": lines.digest, "seeds_stated": rows.seeds_stated}
    read = PredictionSet(predictions, {}, description, path, tuple(notes), **about)
    if not read.predictions:
        raise UserError(f"{path}: no predictions in the file.")
    return in_mode(in_one_form(read), mode)


def recognise(found: Survey, columns: Sequence[str] | None) -> str:
    """The layout of a file that is not ours: JSON, labelled blocks, or else a table."""
    if found.first in ("[", "{"):
        return "J"
    return "F" if columns else found.layout() or "F"


def in_one_form(read: PredictionSet) -> PredictionSet:
    """All texts in Unicode form NFC, and a note where some were not.

    An é may be one character or two (NFC, NFD). They look the same and no metric takes them for equal, so a
    prediction in the one form against a reference in the other would be scored as an error.
    """
    changed = set()
    rows = []
    for row in read.predictions:
        texts = {name: getattr(row, name) for name in ("reference", "prediction")}
        formed = {name: unicodedata.normalize("NFC", text) for name, text in texts.items() if not text.isascii()}
        if formed := {name: text for name, text in formed.items() if text != texts[name]}:
            changed.add(row.sample_id)
            row = dataclasses.replace(row, **formed)
        rows.append(row)
    if not changed:
        return read
    note = f"{len(changed)} samples have text in another Unicode form than NFC; they were brought to NFC to be compared"
    return dataclasses.replace(read, predictions=rows, notes=(*read.notes, note))


def check_given_once(paths: Sequence[epath.Path]) -> list[str]:
    """Notes on files with the same bytes. Raises UserError where one file is given twice, by whatever path."""
    notes, places, sizes = [], {}, {}
    for path in paths:
        place = os.path.realpath(path) if "://" not in str(path) else str(path)
        if place in places:
            raise UserError(f"{path}: the file is given twice; give each file once.")
        places[place] = path
        if os.path.isfile(place):  # no pipe, which could be read once only
            sizes.setdefault(os.path.getsize(place), []).append(path)
    for same in sizes.values():
        digests: dict[str, epath.Path] = {}
        for path in same if len(same) > 1 else ():
            other = digests.setdefault(file_digest(path), path)
            if other != path:
                notes.append(f"{path}: the file has the same bytes as {other}; one of them may be a copy.")
    return notes


def in_mode(read: PredictionSet, mode: str | None) -> PredictionSet:
    """The rows of one mode; rows of unknown mode count as of this one. All rows where `mode` is None."""
    if mode is None:
        return read
    stated = [dataclasses.replace(p, mode=mode) if p.mode == UNKNOWN else p for p in read.predictions]
    kept = [p for p in stated if p.mode == mode]
    if not kept:
        raise UserError(f"{read.path}: no {mode} predictions in the file; it has {read.predictions[0].mode} ones.")
    return dataclasses.replace(read, predictions=kept, further=tuple(p for p in read.further if p.mode == mode))


def describe(read: PredictionSet) -> str:
    """What was recognised in one line, and a line for each thing to know about it."""
    modes = ", ".join(dict.fromkeys(p.mode for p in read.predictions))
    conditions = ", ".join(dict.fromkeys(f"{p.train_condition} → {p.eval_condition}" for p in read.predictions))
    sentences = len({p.sentence_id for p in read.predictions})
    subjects = {p.subject for p in read.predictions} - {UNKNOWN}
    repeated = f"; rows that repeat another of the same subject: {count}" if (count := repetitions(read)) else ""
    first = (
        f"{read.path}: layout {read.layout}; {len(read.predictions)} predictions of {sentences} sentences, "
        f"{len(subjects) or 'unknown'} subjects; mode {modes}; training → evaluation {conditions}{repeated}."
    )
    notes = [*read.notes, *empty_halves(read), *doubled(read), *unparted(read)]
    if empty := sum(not p.reference.strip() for p in read.predictions):
        notes.append(f"{empty} rows have an empty reference; all that is predicted there counts as wrong")
    return "\n".join([first, *(f"{read.path}: {note}." for note in notes)])


def empty_halves(read: PredictionSet) -> list[str]:
    """Cells and modes in which every prediction is empty, beside others that are not."""
    filled: dict[tuple[str, str, str], int] = {}
    for p in read.predictions:
        cell = (p.train_condition, p.eval_condition, p.mode)
        filled[cell] = filled.get(cell, 0) + bool(p.prediction.strip())
    if not any(filled.values()):
        return []
    return [
        f"every {mode} prediction under {train} → {evaluation} is empty; only the rest can be scored and judged"
        for (train, evaluation, mode), count in filled.items()
        if not count
    ]


def doubled(read: PredictionSet) -> list[str]:
    """Says where the second half of a file repeats the first, as where a file was appended to itself."""
    rows = [(p.reference, p.prediction, p.mode, p.eval_condition, p.subject) for p in read.predictions]
    half = len(rows) // 2
    if half < 10 or len(rows) % 2 or rows[:half] != rows[half:] or len(set(rows[:half])) < 2:
        return []
    return [f"the second half of the file repeats its first {half} rows; it may have been written twice"]


def repetitions(read: PredictionSet) -> int:
    """Rows that agree with an earlier one in everything but the sample id, where subjects are known."""
    rows = [
        hash((p.subject, p.task, p.sentence_id, p.train_condition, p.eval_condition, p.seed, p.mode, p.prediction))
        for p in read.predictions
        if p.subject != UNKNOWN
    ]
    return len(rows) - len(set(rows))


def unparted(read: PredictionSet) -> list[str]:
    """Says where rows of a subject and sentence recur and nothing tells what each was decoded from."""
    counts = Counter(
        (p.subject, p.task, p.sentence_id, p.train_condition, p.seed, p.mode)
        for p in read.predictions
        if p.eval_condition == UNKNOWN != p.subject
    )
    repeated = sum(count for count in counts.values() if count > 1)
    if not repeated:
        return []
    return [
        f"{repeated} rows share their subject and reference with another row, and no known column tells what each was "
        "decoded from: they count as from EEG, all of them; if some are of a control, say so in a column eval_condition"
    ]
