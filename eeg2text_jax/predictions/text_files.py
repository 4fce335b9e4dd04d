"""Reader of a file that holds references alone or predictions alone, as lines, a table or JSON (layouts P and K)."""

import csv
import dataclasses
import re
from collections.abc import Sequence
from typing import Any

from eeg2text_jax.errors import UserError
from eeg2text_jax.predictions.blocks import survey
from eeg2text_jax.predictions.column_names import (
    ABOUT_NAMES,
    PREDICTION_NAMES,
    REFERENCE_NAMES,
    known_names,
    normalize_names,
)
from eeg2text_jax.predictions.columns import column_titles, field_positions, find_column, join_names
from eeg2text_jax.predictions.csv_rows import DELIMITERS, first_names, kind_of, records_of
from eeg2text_jax.predictions.file import DECODER
from eeg2text_jax.predictions.json_rows import (
    is_lists,
    is_objects,
    is_split,
    items_by_line,
    items_of_text,
    without_chat,
)
from eeg2text_jax.predictions.packed import TEXT, Lines

# Names of columns with ids, in order of preference; pandas leaves the name of its index empty.
IDS = ("sample_id", "utterance_id", "utt_id", "id", "key", "uid", "segment_id", "trial_id", "sentence_id", "image_id")
INDEX = ("index", "idx", "unnamed:_0", "", "number", "no", "row", "line", "trial", "utt", "name", "file", "filename")
EITHER = ("text", "sentence", "caption", "captions", "transcript", "transcription", "label", "labels", "response")
SIDES = {"reference": (*REFERENCE_NAMES, *EITHER), "prediction": (*PREDICTION_NAMES, "hypothesis", *EITHER)}
FEW = 10  # fewest distinct lines with equally many delimiters that count as a table
NAME = re.compile(r"[\w.:()/]{0,40}")  # a normalized name of a column
TRN = re.compile(r"(.*?)\s*\((\S+)\)")  # a text, then the id of the utterance in brackets
CODED = re.compile(r"\d|_")  # ids have digits or "_"; first words of sentences hardly ever do


@dataclasses.dataclass
class Side:
    """The references or the predictions that one file holds, in the order of the file."""

    lines: Lines
    role: str  # "reference" or "prediction"
    column: str | None  # name of the text column, or its number from 1; None: recognised by its name
    groups: Sequence[str]  # names of columns whose labels are kept
    texts: list[Any] = dataclasses.field(default_factory=list)  # texts or lists of texts
    ids: list[str] | None = None  # None: the file has no ids
    about: list[dict[str, str]] = dataclasses.field(default_factory=list)  # per row: field -> value
    by_key: bool = False  # whether the file is a JSON object of texts by id
    coded: bool = False  # whether each line holds an id beside its text
    description: str = ""  # description of the columns, for messages


def read_side(side: Side, layout: str | None) -> Side:
    """Read the file of `side`; return `side` with the texts, ids and other columns of the file.

    `layout`: P (a text per line), K (by id), F and H (a table with and without header), J (JSON) or None to recognise
    the layout. Raises UserError if the file has both references and predictions, or the text column is unclear.
    """
    lines, column = side.lines, side.column
    if layout == "P":
        found = dataclasses.replace(side, texts=line_texts(lines))
    elif layout in (None, "J", "K") and lines.kind == TEXT and (texts := json_side(side)):
        return texts
    elif layout == "J":
        raise UserError(f"{lines.path}: not JSON; leave --format out, or give the layout of this file.")
    elif layout != "K" and (texts := table_side(side, layout)):
        return texts
    else:
        if (blocks := survey(lines).layout()) and layout is None:
            raise UserError(
                f"{lines.path}: is of layout {blocks}, with references and predictions of its own; leave --reference "
                "out, or give a file that has only predictions."
            )
        found = with_ids(side)
    if column:
        raise UserError(
            f"{lines.path}: there is no column {column!r}, as each line of the file is a text; leave --columns out."
        )
    return found


def line_texts(lines: Lines) -> list[str]:
    """Return all lines; the empty text after the last line end does not count as a line."""
    texts = list(lines)
    return texts[:-1] if texts and not texts[-1] else texts


def with_ids(side: Side) -> Side:
    """Return `side` with the lines as texts, split from their ids if every line has one (`ID text` or `text (ID)`).

    A first line such as `id text` is a header.
    """
    texts = line_texts(side.lines)
    head = normalize_names(texts[0].split()) if texts else []
    headed = len(head) == 2 and head[0] in (*IDS, *INDEX) and head[1] in {*SIDES["reference"], *SIDES["prediction"]}
    filled = [text for text in texts[headed:] if text.strip()]
    matches = [TRN.fullmatch(text) for text in filled]
    if filled and all(matches):
        pairs = [(found[2], found[1]) for found in matches]
    else:
        pairs = [tuple(text.partition(" ")[::2]) for text in filled]
    ids = [key for key, _ in pairs]
    if not ids or len(set(ids)) < len(ids) or not all(CODED.search(key) and "\t" not in key for key in ids):
        return dataclasses.replace(side, texts=texts)
    return dataclasses.replace(side, texts=[text for _, text in pairs], ids=ids, coded=True)


def json_side(side: Side) -> Side | None:
    """Return `side` with the texts of a JSON file, or None if the file is not JSON."""
    lines = side.lines
    start = lines.data.lstrip()[:1]
    if start not in (b"{", b"["):
        return None
    try:
        found = DECODER.decode("\n".join(lines))
    except (ValueError, RecursionError):
        first = next(line for line in lines if line.strip())
        if start == b"[" or '":' not in first.replace('" :', '":'):
            return None  # a text may begin with a bracket
        return records_side(side, [row for _, row in items_by_line(lines)], "JSON lines")
    if is_objects(found) or is_split(found) or (is_lists(found) and known_names(normalize_names(found))):
        rows, kind = items_of_text(lines)
        return records_side(side, [row for _, row in rows], kind.removeprefix("J ("))
    if isinstance(found, dict):
        return dataclasses.replace(side, texts=list(found.values()), ids=list(found), by_key=True)
    return dataclasses.replace(side, texts=found) if isinstance(found, list) else None


def records_side(side: Side, rows: Sequence[dict[str, Any]], kind: str) -> Side:
    """Return `side` with the texts of JSON objects. Raises UserError if one lacks a name that the first has."""
    rows = [without_chat(row) for row in rows]
    titles = list(rows[0])
    for number, row in enumerate(rows, 1):
        if missing := [name for name in titles if name not in row]:
            raise UserError(
                f"{side.lines.path}: object {number} has no {missing[0]!r}, but the first one has it; add the name, or "
                "remove the object."
            )
    fields = [[row[name] for name in titles] for row in rows]
    return columns_side(side, normalize_names(titles), fields, kind)


def table_side(side: Side, layout: str | None) -> Side | None:
    """Return `side` with the texts, ids and other columns of a table; None if the file is no table.

    A table has a header, or lines of equally many fields with ids, quotes or tabs. Raises UserError if the text column
    is unclear.
    """
    lines, column = side.lines, side.column
    texts = {*SIDES["reference"], *SIDES["prediction"]}
    offered = DELIMITERS if lines.kind == TEXT else DELIMITERS[:1]
    for delimiter in sorted(offered, key=lambda one: -len(first_names(lines, one))):
        names = first_names(lines, delimiter)
        stated = normalize_names([column])[0] in names if column else False
        header = all(map(NAME.fullmatch, names)) and bool({*names} & texts) and names[0] not in ABOUT_NAMES
        header |= all(map(NAME.fullmatch, names)) and len({*names} & {*texts, *ABOUT_NAMES}) > 1
        if layout != "H" and (header or stated or (layout == "F" and len(names) > 1) or lines.kind != TEXT):
            if len(names) == 1:
                return one_column(side, names[0])
            rows = [fields for _, fields in records_of(lines, delimiter)][1:]
            return columns_side(side, names, rows, kind_of(lines, delimiter))
    for delimiter in DELIMITERS:
        try:
            rows = [fields for _, fields in records_of(lines, delimiter)]
        except UserError:
            continue
        coded = any(is_id([row[i] for row in rows]) for i in range(len(rows[0])))
        quoted = any(delimiter in field for row in rows for field in row)
        close = quoted or f"{delimiter} ".encode() not in lines.data  # in sentences a space follows a comma
        if coded or (close and len(set(map(tuple, rows))) >= FEW) or delimiter == "\t" or layout == "H":
            return columns_side(side, None, rows, f"{kind_of(lines, delimiter)} without header")
    return None


def one_column(side: Side, name: str) -> Side:
    """Return `side` with the lines below the header `name`, without quotes if the file is a CSV of one column."""
    texts = line_texts(side.lines)[1:]
    for delimiter in DELIMITERS:
        try:
            rows = list(csv.reader((f"{text}\n" for text in texts), delimiter=delimiter, strict=True))
        except csv.Error:
            continue
        if all(len(row) < 2 for row in rows):
            texts = [row[0] if row else "" for row in rows]
            break
    return dataclasses.replace(side, texts=texts, description=f"one text per line below the header {name!r}")


def columns_side(side: Side, names: list[str] | None, rows: Sequence[Sequence[Any]], kind: str) -> Side:
    """Return `side` with the texts, ids and other columns of a table's rows; `names` is None without a header."""
    if not rows:
        raise UserError(f"{side.lines.path}: no texts in the file.")
    titles = column_titles(names, len(rows[0]))
    text = text_column(side, names, rows)
    order = [names.index(name) for name in (*IDS, *INDEX) if name in names] if names else range(len(rows[0]))
    ids = next((i for i in order if i != text and (names or is_id([row[i] for row in rows]))), None)
    places = {f: i for f, i in field_positions(names or ()).items() if f not in ("sample_id", "sentence_id")}
    places |= {f"group {g}": [names.index(t)] for g in side.groups if (t := normalize_names([g])[0]) in (names or ())}
    stated = [{f: "/".join(str(row[i]) for i in found) for f, found in places.items()} for row in rows]
    used = {text, ids, *(i for found in places.values() for i in found)}
    unused = [title for i, title in enumerate(titles) if i not in used]
    description = f"{kind}, {side.role} {titles[text]}" + (f", id {titles[ids]}" if ids is not None else "")
    description += f", not used: {join_names(unused)}" if unused else ""
    keys = None if ids is None else [str(row[ids]) for row in rows]
    texts = [row[text] for row in rows]
    return dataclasses.replace(side, texts=texts, ids=keys, about=stated, description=description)


def text_column(side: Side, names: list[str] | None, rows: Sequence[Sequence[Any]]) -> int:
    """Return the position of the text column, from 0. Raises UserError if the column is unclear."""
    path, width = side.lines.path, len(rows[0])
    if side.column:
        return find_column(side.column, names, width, path)
    if side.role == "prediction" and {*(names or ())} & {*REFERENCE_NAMES} and {*names} & {*PREDICTION_NAMES}:
        raise UserError(f"{path}: has references of its own ({join_names(names)}); leave --reference out.")
    for offered in (SIDES[side.role][: -len(EITHER)], EITHER):  # names that fit only this side come first
        if len(found := [i for i, name in enumerate(names or ()) if name in offered]) == 1:
            return found[0]
    spaced = [sum(" " in str(row[i]).strip() for row in rows) for i in range(width)]
    found = [i for i in range(width) if 2 * spaced[i] >= len(rows)]
    if len(found) != 1:
        shown = join_names(names) if names else f"{width} columns without names"
        raise UserError(
            f"{path}: no column can be recognized as the {side.role} among {shown}; name both columns with "
            "--columns=REFERENCE,PREDICTION (REFERENCE is a column of the file of references, PREDICTION of the file "
            "of predictions), or say --format=P if the lines are no table."
        )
    return found[0]


def is_id(values: Sequence[Any]) -> bool:
    """Return whether all values look like ids: distinct, without spaces, with a digit or `_`."""
    found = [str(value) for value in values]
    return len(set(found)) == len(found) and all(CODED.search(v) and " " not in v for v in found)
