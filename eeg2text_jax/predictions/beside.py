"""Layouts P and K: texts without their references, which are in a second file in the same order or by the same ids."""

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

from eeg2text_jax.errors import UserError
from eeg2text_jax.predictions.file import DECODER, Lines
from eeg2text_jax.predictions.foreign import UNKNOWN, ForeignRow
from eeg2text_jax.predictions.lists import one_text

Texts = dict[str, object]  # by id, or by number of the line from 1: a text or a list of texts
TRN = re.compile(r"(.*?)\s*\((\S+)\)")  # the text, then the id of the utterance in brackets


def read_beside(lines: Lines, reference: Lines) -> tuple[Iterator[ForeignRow], str]:
    """Rows of a file of texts beside the file of their references, and the layout in words.

    Both are a text a line, with or without ids of utterances (`ID text`, `text (ID)`), or JSON: `{id: text}`,
    `{id: [texts]}`, a list of texts.

    Raises:
      UserError: the files differ in their number of lines or in their ids, or a value is no text.
    """
    sides: list[Any] = [_json_texts(side) for side in (lines, reference)]
    by_id = all(isinstance(side, dict) for side in sides)
    if not by_id:
        if any(isinstance(side, dict) for side in sides):
            raise UserError(
                f"{lines.path} and {reference.path}: one has its texts by id and the other line by line; give both in "
                "one form."
            )
        sides = [_lines(lines) if side is None else side for side, lines in zip(sides, (lines, reference), strict=True)]
        sides = _equally_long(sides[0], sides[1], lines, reference)
        ids = [_ids(side) for side in sides]
        if all(ids) and len(set(ids[0]) & set(ids[1])) > 0.9 * len(ids[1]):
            sides, by_id = ids, True
    if not by_id:
        texts, references = ({str(i): text for i, text in enumerate(side, 1)} for side in sides)
    else:
        texts, references = sides
    if missing := [key for key in texts if key not in references]:
        raise UserError(
            f"{lines.path}: the id {missing[0]!r:.60} is not in {reference.path} ({len(missing)} of {len(texts)} are "
            "not); expected the references of these texts."
        )
    lacking = f", which has {lacked} more" if (lacked := len(references) - len(texts)) else ""
    kind = "K (texts by id" if by_id else "P (a text a line"
    return _rows(texts, references, by_id, lines, reference), f"{kind}; references from {reference.path}{lacking})"


def _rows(texts: Texts, references: Texts, by_id: bool, lines: Lines, reference: Lines) -> Iterator[ForeignRow]:
    unit = "id" if by_id else "line"
    for number, (key, held) in enumerate(texts.items(), 1):
        expected, how_expected = _text(references[key], key, reference)
        found, how_found = _text(held, key, lines)
        done = [f"{side} {how}" for side, how in (("references", how_expected), ("predictions", how_found)) if how]
        yield ForeignRow(
            number, expected, {(UNKNOWN, UNKNOWN): found}, {"sample_id": key} if by_id else {}, unit, tuple(done)
        )


def _text(value: object, key: str, lines: Lines) -> tuple[str, str]:
    """The text of a value, and what was done to have it. Raises UserError where it is no text or list of texts."""
    text, how = one_text(value) if isinstance(value, list) else (value, "")
    if not isinstance(text, str):
        raise UserError(f"{lines.path}: {key!r:.60} is {json.dumps(value)[:60]}; expected a text or a list of texts.")
    return text, how


def _json_texts(lines: Lines) -> Texts | list | None:
    """The texts of a JSON file; None where the file is lines of text."""
    if lines.data.lstrip()[:1] not in (b"{", b"["):
        return None
    try:
        found = DECODER.decode("\n".join(lines))
    except (ValueError, RecursionError):
        return None  # a sentence may begin with a bracket
    return found if isinstance(found, (dict, list)) else None


def _lines(lines: Lines) -> list[str]:
    texts = list(lines)
    return texts[:-1] if texts and not texts[-1] else texts  # nothing follows the last line's end


def _equally_long(texts: list, references: list, lines: Lines, reference: Lines) -> list[Any]:
    """Both sides, without empty lines at the end of the longer one. Raises UserError where their lengths differ."""
    n = min(len(texts), len(references))
    for side in (texts, references):
        if any(side[n:]):
            raise UserError(
                f"{lines.path}: {len(texts)} texts, and {len(references)} references in {reference.path}; expected as "
                "many, in the same order."
            )
    return [texts[:n], references[:n]]


def _ids(texts: Sequence[Any]) -> Texts:
    """Texts by the ids of utterances in their lines; empty where the lines have none."""
    if not all(isinstance(text, str) for text in texts):
        return {}
    matches = [TRN.fullmatch(text) for text in texts]
    if all(matches):
        pairs = [(found[2], found[1]) for found in matches]
    else:
        pairs = [text.partition(" ")[::2] for text in texts]
    found = dict(pairs)
    coded = all(re.search(r"\d|_", key) for key in found)  # else the first words of sentences
    return found if coded and len(found) == len(texts) else {}
