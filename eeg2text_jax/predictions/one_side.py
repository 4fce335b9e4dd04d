"""One side of layouts P and K: a file of texts, with or without ids, as lines, a table or JSON."""

import csv
import dataclasses
import re
from collections.abc import Iterator, Sequence
from typing import Any

from eeg2text_jax.errors import UserError
from eeg2text_jax.predictions.blocks import survey
from eeg2text_jax.predictions.column_names import ABOUT_NAMES, PREDICTION_NAMES, REFERENCE_NAMES, known, normalised
from eeg2text_jax.predictions.columns import about, enumerated, place_of, titles_of
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

# Names of columns with ids, the likeliest first; pandas leaves the name of its index empty.
IDS = ("sample_id", "utterance_id", "utt_id", "id", "key", "uid", "segment_id", "trial_id", "sentence_id", "image_id")
INDEX = ("index", "idx", "unnamed:_0", "", "number", "no", "row", "line", "trial", "utt", "name", "file", "filename")
EITHER = ("text", "sentence", "caption", "captions", "transcript", "transcription", "label", "labels", "response")
SIDES = {"reference": (*REFERENCE_NAMES, *EITHER), "prediction": (*PREDICTION_NAMES, "hypothesis", *EITHER)}
FEW = 10  # different lines that all have as many commas are a table
NAME = re.compile(r"[\w.:()/]{0,40}")  # a name of a column, once normalised
TRN = re.compile(r"(.*?)\s*\((\S+)\)")  # the text, then the id of the utterance in brackets
CODED = re.compile(r"\d|_")  # what ids hold and first words of sentences hardly ever


@dataclasses.dataclass
class Side:
    """Texts (or lists of texts) of one file in its order. `ids` is None if the file has none.

    `about` holds the other columns of each row; `by_key`: the file is an object of texts by id; `coded`: ids are parts
    of lines. `said` describes the columns.
    """

    lines: Lines
    texts: list[Any]
    ids: list[str] | None = None
    about: list[dict[str, str]] = dataclasses.field(default_factory=list)
    by_key: bool = False
    coded: bool = False
    said: str = ""


def read_side(lines: Lines, side: str, layout: str | None, column: str | None, groups: Sequence[str]) -> Side:
    """Return the texts of a file; `side` is "reference" or "prediction".

    `layout`: P (a text per line), K (by id), F and H (a table with and without header), J (JSON) or None, by content.
    `column` is the text column's name, or its number from 1. Raises UserError if the file has both references and
    predictions, or the text column is unclear.
    """
    if layout == "P":
        found = Side(lines, line_texts(lines))
    elif layout in (None, "J", "K") and lines.kind == TEXT and (texts := json_side(lines, side, column, groups)):
        return texts
    elif layout == "J":
        raise UserError(f"{lines.path}: not JSON; leave --format out, or give the layout of this file.")
    elif layout != "K" and (texts := table_side(lines, side, layout, column, groups)):
        return texts
    else:
        if (blocks := survey(lines).layout()) and layout is None:
            raise UserError(
                f"{lines.path}: is of layout {blocks}, with references and predictions of its own; leave --reference "
                "out, or give a file of texts alone."
            )
        found = with_ids(lines)
    if column:
        raise UserError(
            f"{lines.path}: there is no column {column!r}, as each line of the file is a text; leave --columns out."
        )
    return found


def line_texts(lines: Lines) -> list[str]:
    texts = list(lines)
    return texts[:-1] if texts and not texts[-1] else texts  # nothing follows the last line's end


def with_ids(lines: Lines) -> Side:
    """Split lines from their ids if all have one (`ID text`, `text (ID)`), with or without a line `id text` above."""
    texts = line_texts(lines)
    head = normalised(texts[0].split()) if texts else []
    headed = len(head) == 2 and head[0] in (*IDS, *INDEX) and head[1] in {*SIDES["reference"], *SIDES["prediction"]}
    filled = [text for text in texts[headed:] if text.strip()]
    matches = [TRN.fullmatch(text) for text in filled]
    if filled and all(matches):
        pairs = [(found[2], found[1]) for found in matches]
    else:
        pairs = [tuple(text.partition(" ")[::2]) for text in filled]
    ids = [key for key, _ in pairs]
    if not ids or len(set(ids)) < len(ids) or not all(CODED.search(key) and "\t" not in key for key in ids):
        return Side(lines, texts)
    return Side(lines, [text for _, text in pairs], ids, coded=True)


def json_side(lines: Lines, side: str, column: str | None, groups: Sequence[str]) -> Side | None:
    """Return the texts of JSON; None for other files."""
    start = lines.data.lstrip()[:1]
    if start not in (b"{", b"["):
        return None
    try:
        found = DECODER.decode("\n".join(lines))
    except (ValueError, RecursionError):
        first = next(line for line in lines if line.strip())
        if start == b"[" or '":' not in first.replace('" :', '":'):
            return None  # a sentence may begin with a bracket
        return records_side(lines, [row for _, row in items_by_line(lines)], side, column, groups, "JSON lines")
    if is_objects(found) or is_split(found) or (is_lists(found) and known(normalised(found))):
        rows, kind = items_of_text(lines)
        return records_side(lines, [row for _, row in rows], side, column, groups, kind.removeprefix("J ("))
    if isinstance(found, dict):
        return Side(lines, list(found.values()), list(found), by_key=True)
    return Side(lines, found) if isinstance(found, list) else None


def records_side(
    lines: Lines, rows: Sequence[dict[str, Any]], side: str, column: str | None, groups: Sequence[str], kind: str
) -> Side:
    """Return the texts of objects with the same names."""
    rows = [without_chat(row) for row in rows]
    titles = list(rows[0])
    for number, row in enumerate(rows, 1):
        if missing := [name for name in titles if name not in row]:
            raise UserError(
                f"{lines.path}: object {number} has no {missing[0]!r}, but the first one has it; add the name, or "
                "remove the object."
            )
    fields = [[row[name] for name in titles] for row in rows]
    return columns_side(lines, normalised(titles), fields, side, column, groups, kind)


def table_side(lines: Lines, side: str, layout: str | None, column: str | None, groups: Sequence[str]) -> Side | None:
    """Return the texts of a table with a header, or without one if ids identify it as a table; None for other files.

    Raises UserError for lines of equally many tabs without a column of ids.
    """
    texts = {*SIDES["reference"], *SIDES["prediction"]}
    offered = DELIMITERS if lines.kind == TEXT else DELIMITERS[:1]
    for delimiter in sorted(offered, key=lambda one: -len(first_names(lines, one))):
        names = first_names(lines, delimiter)
        stated = normalised([column])[0] in names if column else False
        header = all(map(NAME.fullmatch, names)) and bool({*names} & texts) and names[0] not in ABOUT_NAMES
        header |= all(map(NAME.fullmatch, names)) and len({*names} & {*texts, *ABOUT_NAMES}) > 1
        if layout != "H" and (header or stated or (layout == "F" and len(names) > 1) or lines.kind != TEXT):
            if len(names) == 1:
                return one_column(lines, names[0])
            rows = [fields for _, fields in records_of(lines, delimiter)][1:]
            return columns_side(lines, names, rows, side, column, groups, kind_of(lines, delimiter))
    for delimiter in DELIMITERS:
        try:
            rows = [fields for _, fields in records_of(lines, delimiter)]
        except UserError:
            continue
        coded = any(is_id([row[i] for row in rows]) for i in range(len(rows[0])))
        quoted = any(delimiter in field for row in rows for field in row)
        close = quoted or f"{delimiter} ".encode() not in lines.data  # as in a table, and not as in sentences
        if coded or (close and len(set(map(tuple, rows))) >= FEW) or delimiter == "\t" or layout == "H":
            return columns_side(lines, None, rows, side, column, groups, f"{kind_of(lines, delimiter)} without header")
    return None


def one_column(lines: Lines, name: str) -> Side:
    """Return the lines below a header, unquoted if the file is a CSV of one column."""
    texts = line_texts(lines)[1:]
    for delimiter in DELIMITERS:
        try:
            rows = list(csv.reader((f"{text}\n" for text in texts), delimiter=delimiter, strict=True))
        except csv.Error:
            continue
        if all(len(row) < 2 for row in rows):
            texts = [row[0] if row else "" for row in rows]
            break
    return Side(lines, texts, said=f"a text a line below the header {name!r}")


def columns_side(
    lines: Lines,
    names: list[str] | None,
    rows: Sequence[Sequence[Any]],
    side: str,
    column: str | None,
    groups: Sequence[str],
    kind: str,
) -> Side:
    """Return the texts of a table's rows, with their ids and other columns."""
    if not rows:
        raise UserError(f"{lines.path}: no texts in the file.")
    titles = titles_of(names, len(rows[0]))
    text = text_column(lines, names, rows, side, column)
    order = [names.index(name) for name in (*IDS, *INDEX) if name in names] if names else range(len(rows[0]))
    ids = next((i for i in order if i != text and (names or is_id([row[i] for row in rows]))), None)
    places = {f: i for f, i in about(names or ()).items() if f not in ("sample_id", "sentence_id")}
    places |= {f"group {g}": [names.index(t)] for g in groups if (t := normalised([g])[0]) in (names or ())}
    stated = [{f: "/".join(str(row[i]) for i in found) for f, found in places.items()} for row in rows]
    used = {text, ids, *(i for found in places.values() for i in found)}
    unused = [title for i, title in enumerate(titles) if i not in used]
    said = f"{kind}, {side} {titles[text]}" + (f", id {titles[ids]}" if ids is not None else "")
    return Side(
        lines,
        [row[text] for row in rows],
        None if ids is None else [str(row[ids]) for row in rows],
        stated,
        said=said + (f", not used: {enumerated(unused)}" if unused else ""),
    )


def text_column(
    lines: Lines, names: list[str] | None, rows: Sequence[Sequence[Any]], side: str, column: str | None
) -> int:
    """Return the position of a side's text. Raises UserError if it is unclear."""
    width = len(rows[0])
    if column:
        return place_of(column, names, width, lines.path)
    if side == "prediction" and {*(names or ())} & {*REFERENCE_NAMES} and {*names} & {*PREDICTION_NAMES}:
        raise UserError(f"{lines.path}: has references of its own ({enumerated(names)}); leave --reference out.")
    for offered in (SIDES[side][: -len(EITHER)], EITHER):  # a sentence may be either
        if len(found := [i for i, name in enumerate(names or ()) if name in offered]) == 1:
            return found[0]
    spaced = [sum(" " in str(row[i]).strip() for row in rows) for i in range(width)]
    found = [i for i in range(width) if 2 * spaced[i] >= len(rows)]
    if len(found) != 1:
        shown = enumerated(names) if names else f"{width} columns without names"
        raise UserError(
            f"{lines.path}: which column is the {side} cannot be told among {shown}; name both with "
            "--columns=REFERENCE,PREDICTION (the first in the file of references, the second in the file of "
            "predictions), or say --format=P if the lines are no table."
        )
    return found[0]


def is_id(values: Iterator[Any] | Sequence[Any]) -> bool:
    """Return whether values look like ids: without spaces, all different, with digits."""
    found = [str(value) for value in values]
    return len(set(found)) == len(found) and all(CODED.search(v) and " " not in v for v in found)
