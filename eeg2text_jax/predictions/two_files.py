"""Reader of predictions whose references are in a second file, in the same order (layout P) or by id (layout K)."""

import json
import re
from collections.abc import Iterator, Sequence

from eeg2text_jax.errors import UserError
from eeg2text_jax.predictions.columns import one_text, parse_list
from eeg2text_jax.predictions.foreign import UNKNOWN, ForeignRow
from eeg2text_jax.predictions.packed import Lines
from eeg2text_jax.predictions.text_files import Side, read_side

FAIRSEQ = re.compile(r"^[STHD]-(?=\d+$)")  # prefixes of ids in fairseq's output
LAYOUTS = ("P", "K", "F", "H", "J")  # layouts of files of references alone or predictions alone


def read_two_files(
    lines: Lines, reference: Lines, layout: str | None, columns: Sequence[str] | None, groups: Sequence[str]
) -> tuple[Iterator[ForeignRow], str]:
    """Return the samples of a file of predictions and a file of their references, and the layout in words.

    Each file has one text per line, with or without ids (`ID text`, `text (ID)`); or is a table or JSON with a column
    of texts; or JSON `{id: text}`, `{id: [texts]}`, or a list of texts. Rows are joined by id if both files have ids.
    `columns` names the columns of the reference and of the prediction, each in its file. Raises UserError if the files
    differ in number of rows or in ids, or a value is not a text.
    """
    if layout not in (None, *LAYOUTS):
        raise UserError(
            f"--format={layout}: files of this layout hold references themselves; with --reference, expected "
            f"{' or '.join(LAYOUTS)}; set one of these, or leave --reference out."
        )
    if columns and len(columns) != 2:
        raise UserError(
            f"--columns={','.join(columns)}: with --reference, expected two columns: the reference's, in "
            f"{reference.path}, and the prediction's, in {lines.path}; set --columns=REFERENCE,PREDICTION."
        )
    reference_column, text_column = columns or (None, None)
    references = read_side(Side(reference, "reference", reference_column, groups), layout)
    texts = read_side(Side(lines, "prediction", text_column, groups), layout)
    if layout == "K" and not (texts.ids and references.ids):
        raise UserError(
            f"{lines.path}: --format=K joins texts by id, but some texts of this file or of {references.lines.path} "
            "have no id; set --format=P to join them line by line."
        )
    by_id = _by_id(texts, references)
    if not by_id:
        _equally_long(texts, references)
    places = _places(texts, references) if by_id else list(range(len(texts.texts)))
    more = len(references.texts) - len(set(places))
    said = f"{'K' if by_id else 'P'} ({texts.description or ('texts by id' if by_id else 'one text per line')}"
    said += f"; references from {reference.path}" + (f": {references.description}" if references.description else "")
    said += f", {more} of them without a prediction" if more else ""
    if not by_id and (texts.ids is not None or references.ids is not None):
        said += "; joined row by row, because only one file has ids"
    return _rows(texts, references, places, by_id), f"{said})"


def _by_id(texts: Side, references: Side) -> bool:
    """Return whether both files have ids. Raises UserError if one file alone has them, in its lines or as JSON keys."""
    sides = (texts, references)
    if all(side.ids is not None for side in sides):
        return True
    for one, other in (sides, sides[::-1]):
        if one.by_key:
            raise UserError(
                f"{texts.lines.path} and {references.lines.path}: one has its texts by id and the other line by line; "
                "give both in the same form."
            )
        if one.coded and other.ids is None:
            raise UserError(
                f"{one.lines.path}: each line begins or ends with an id, such as {one.ids[0]!r:.40}, and the lines of "
                f"{other.lines.path} do not; give both files with ids or both without, or say --format=P if the "
                "ids are part of the texts."
            )
    return False


def _places(texts: Side, references: Side) -> list[int]:
    """Return for each prediction the position of the reference with its id. Raises UserError if none or several fit."""
    ids, known = _alike(texts.ids, references.ids)
    if ids == known:
        return list(range(len(texts.texts)))
    found: dict[str, int] = {}
    for place, key in enumerate(known):
        if references.texts[found.setdefault(key, place)] != references.texts[place]:
            raise UserError(
                f"{references.lines.path}: the id {key!r:.60} has several references; keep one row of an id, or write "
                "{id: [texts]}, of which the first counts."
            )
    if missing := [key for key in ids if key not in found]:
        raise UserError(
            f"{texts.lines.path}: the id {missing[0]!r:.60} is not in {references.lines.path}, whose first id is "
            f"{known[0]!r:.60} ({len(missing)} of {len(ids)} ids are missing there); give the file with the "
            "references of these texts, or write the ids of both files alike."
        )
    return [found[key] for key in ids]


def _alike(ids: list[str], known: list[str]) -> tuple[list[str], list[str]]:
    """Return the ids of both files, without differences in case or in fairseq's prefixes such as `T-` and `H-`.

    Ids are returned unchanged if two ids of a file would become equal, or if the files would still not match.
    """
    for form in (str, str.casefold, lambda key: FAIRSEQ.sub("", key)):
        changed, reduced = list(map(form, ids)), list(map(form, known))
        distinct = len(set(changed)) == len(set(ids)) and len(set(reduced)) == len(set(known))
        if distinct and set(changed) <= set(reduced):
            return changed, reduced
    return ids, known


def _rows(texts: Side, references: Side, places: Sequence[int], by_id: bool) -> Iterator[ForeignRow]:
    """Yield the samples: prediction k with the reference at `places[k]`."""
    unit, unique = "id" if by_id else "line", by_id and len(set(texts.ids)) == len(texts.ids)
    for row, place in enumerate(places):
        key = texts.ids[row] if by_id else str(row + 1)
        expected, how_expected = _text(references.texts[place], key, references)
        found, how_found = _text(texts.texts[row], key, texts)
        notes = [f"{side} {how}" for side, how in (("references", how_expected), ("predictions", how_found)) if how]
        stated = {**(references.about[place] if references.about else {}), **(texts.about[row] if texts.about else {})}
        stated |= {"sample_id": key} if unique else {}
        yield ForeignRow(row + 1, expected, {(UNKNOWN, UNKNOWN): found}, stated, unit, tuple(notes))


def _text(value: object, key: str, side: Side) -> tuple[str, str]:
    """Return a value as one text, and a note on its conversion. Raises UserError if it is no text or list of texts."""
    items = parse_list(value) if isinstance(value, str) and side.about else value  # tables have lists as text
    text, how = one_text(items) if isinstance(items, list) else (value, "")
    if not isinstance(text, str):
        raise UserError(
            f"{side.lines.path}: {key!r:.60} is {json.dumps(value)[:60]}; expected a text or a list of texts."
        )
    return text, how


def _equally_long(texts: Side, references: Side) -> None:
    """Cut empty lines at the end of the longer file. Raises UserError if the numbers of lines still differ."""
    n = min(len(texts.texts), len(references.texts))
    for side in (texts, references):
        if any(side.texts[n:]):
            raise UserError(
                f"{texts.lines.path}: {len(texts.texts)} texts, and {len(references.texts)} references in "
                f"{references.lines.path}; expected as many references as texts, in the same order; look for missing "
                "or extra lines."
            )
    texts.texts, references.texts = texts.texts[:n], references.texts[:n]
