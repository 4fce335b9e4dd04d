"""The one place that decides which columns of a table are what: for one file and for each of two."""

import contextlib
import csv
import dataclasses
import functools
import io
import itertools
import json
import os
import re
from collections import Counter
from collections.abc import Collection, Sequence
from typing import Any

from eeg2text_jax.base.errors import UserError, count_of
from eeg2text_jax.instrument.predictions._containers import ABSENT, Columns, Table, is_id, literal
from eeg2text_jax.instrument.predictions._names import (
    PHONEMES,
    TEXT,
    Names,
    built_in,
    join_names,
    normalize,
    normalize_names,
)
from eeg2text_jax.instrument.predictions.file import (
    MISSING,
    MODE_FIELDS,
    MODES,
    UNKNOWN,
    Samples,
    fed_word,
    mode_name,
    refuse_surrogates,
)
from eeg2text_jax.instrument.predictions.packed import read_text

FIRST_OF_SEVERAL = "hold several texts; the first of them counts"
SEVERAL = "a row holds several samples; write one sample per row"
BETWEEN_WORDS = "'|' stands between the phonemes of words; it is no phoneme and is left out"
PADDED = "asterisks alone ('***') stand for words of the other text; they are left out"
PADDING = re.compile(r"(?<!\S)\*\*+(?!\S)")
SEPARATORS = ("<>", "||", " | ")  # between several references in a cell
FEWEST_WITH_MARKS = 4  # rows with fewer may have them by chance
JOINED = "are lists of tokens; they are joined by spaces"
METADATA = ("n_words", "recording", "onset", "duration", "order")  # further columns of a metadata CSV
TIME = ("recording", "onset", "duration", "order")
NAME_BOTH = "--columns=REFERENCE,PREDICTION"
# What a description says of other columns -> their fields.
SAID = {
    **{name: (name,) for name in ("subject", "task")},
    **{"condition": ("condition", "eval_condition", "train_condition"), "mode": MODE_FIELDS, "time": TIME},
    **{"ids": ("sample_id", "sentence_id"), "seed": ("seed",), "split": ("split",)},
}
# Value in a column that names the split of each row -> test, dev or train.
SPLITS = {
    **dict.fromkeys(("test", "testing", "eval", "evaluation", "heldout", "held_out"), "test"),
    **dict.fromkeys(("dev", "val", "valid", "validation"), "dev"),
    **dict.fromkeys(("train", "training"), "train"),
}
NUMBER = re.compile(r"-?\d+(\.\d*)?(e[+-]?\d+)?", re.IGNORECASE)
NUMBERS = re.compile(rf"{NUMBER.pattern}|\[({NUMBER.pattern}(, *|(?=\])))+\]", re.IGNORECASE)  # or a list of them
MOST_SYSTEMS = 50  # values of a column that may be systems
FILE_NAME = re.compile(r".*\.(?=\w*[a-z])\w{2,4}", re.IGNORECASE)  # such as a/b_1.wav
MOST_COMPARED = 40  # columns of a table that are compared with each other
SAMPLED = 200  # rows whose texts tell phonemes from words


def roles(table: Table, names: Names, stated: Sequence[str] | None = None, groups: Sequence[str] = ()) -> Columns:
    """Return what the columns of a file with both sides hold, as `stated` (`--columns`) or by their known names.

    Raises UserError if no pair of columns fits, or several do.
    """
    columns = stated_columns(table, names, stated) if stated else table.roles or known_columns(table, names)
    return dataclasses.replace(columns, about=columns.about | group_positions(table, groups))


def group_positions(table: Table, groups: Sequence[str]) -> dict[str, list[int]]:
    """Return `group NAME` -> position of the column NAME, for those of `groups` that the table has."""
    names = table.names or []
    return {f"group {name}": [names.index(normalize(name))] for name in groups if normalize(name) in names}


class Meanings:
    """The columns of a table by what their names may mean; a column of numbers has no text."""

    def __init__(self, table: Table, names: Names) -> None:
        self.plain = [
            name if holds_words(table, i) else f"{name} (numbers)" for i, name in enumerate(table.names or ())
        ]
        self.modes = [names.split_mode(name) for name in self.plain]  # name without its mode, mode
        self.bases = [base for base, _ in self.modes]
        self.pairs = [pair for pair in names.pairs if pair[0] in self.plain and pair[1] in self.bases]
        self.references, self.spoken = self._of("reference", self.plain, names)
        self.predictions, self.heard = self._of("prediction", self.bases, names)
        self.spoken += [name for name in self.plain if name in names.either and name == PHONEMES]
        self.conditions = {name: fed for name in self.bases if (fed := names.condition(name))}
        self.maybe = [name for name in names.maybe if name in self.plain]
        if not self.pairs and not self.references and len(self.predictions) == len(self.maybe) == 1:
            self.references = self.maybe

    def _of(self, side: str, of: Sequence[str], names: Names) -> tuple[list[str], list[str]]:
        """Return the names of texts and of phonemes of one side."""
        texts, phonemes = ([n for n in dict.fromkeys(of) if names.form(side, n) == form] for form in (TEXT, PHONEMES))
        return texts, phonemes

    def choice(self) -> tuple[str, dict[str, str]] | None:
        """Return the reference, and prediction -> its condition; None if no pair of columns fits, or several do."""
        one = len(self.predictions) == 1
        if self.pairs or (one and len(self.references) == 1):
            pairs = self.pairs or [(self.references[0], self.predictions[0])]
            return (pairs[0][0], {pairs[0][1]: UNKNOWN}) if len(pairs) == 1 else None
        if self.spoken and self.heard and not (self.references and self.predictions):
            return self.spoken[0], {self.heard[0]: UNKNOWN}
        if self.spoken and not self.references and one:
            return self.spoken[0], {self.predictions[0]: UNKNOWN}
        return (self.references[0], self.conditions) if len(self.references) == 1 and self.conditions else None


def known_columns(table: Table, names: Names) -> Columns:
    """Return the columns with known names. Raises UserError if no pair of columns fits, or several do."""
    if table.names is None:
        raise UserError(f"{table.path}: {unnamed(table, names)}")
    meanings = Meanings(table, names)
    if (taken := meanings.choice()) is None:
        raise UserError(f"{table.path}: {unclear(table, names, meanings)}")
    reference, wanted = taken
    predicted = {
        name: (wanted[b], mode) for name, (b, mode) in zip(meanings.plain, meanings.modes, strict=True) if b in wanted
    }
    if len(set(predicted.values())) < len(predicted):
        raise UserError(
            f"{table.path}: the columns {', '.join(predicted)} are predictions of one condition and mode; name one "
            f"with {NAME_BOTH}."
        )
    notes: list[str] = []
    place = functools.partial(find_column, table)
    reference = of_one_form(table, reference, [*map(place, predicted)], meanings.spoken, notes)
    forced = {condition for condition, mode in predicted.values() if mode == "teacher_forced"}
    predictions = {
        # a column without a mode is free-running if there is a teacher-forced column of the same condition
        (condition, "free_running" if mode == UNKNOWN and condition in forced else mode): place(name)
        for name, (condition, mode) in predicted.items()
    }
    return Columns(place(reference), predictions, field_positions(table, names), notes=tuple(notes))


def holds_words(table: Table, index: int) -> bool:
    """Return whether a column may hold texts: not all its cells are numbers, lists of numbers, yes or no, or empty."""
    cells = filled(table, index)
    return not cells or not all(NUMBERS.fullmatch(cell) or cell in ("True", "False") for cell in cells)


def filled(table: Table, index: int) -> list[str]:
    """Return the cells of a column that are not empty, as text."""
    cells = (str(cell).strip() for cell in table.column(index) if cell is not None and cell is not ABSENT)
    return [cell for cell in cells if cell]


def of_one_form(table: Table, reference: str, predicted: Sequence[int], spoken: Sequence[str], notes: list[str]) -> str:
    """Return the name of the reference that has the form of the predictions: phonemes for phonemes.

    `spoken` are names of columns of true phonemes. A note tells the choice, or that the forms differ.
    """
    place = table.names.index(reference)
    if reference in spoken or is_spelled(table.column(place)) or not all(map(is_spelled, map(table.column, predicted))):
        return reference
    titles, title = " and ".join(map(table.shown, predicted)), table.shown(place)
    if spoken:
        other = table.shown(table.names.index(spoken[0]))
        notes.append(f"{titles} holds phonemes, so that {other} is the reference, and not {title}")
        return spoken[0]
    notes.append(f"{titles} holds phonemes or single letters, and the reference {title} holds words")
    return reference


def is_spelled(cells: Sequence[Any]) -> bool:
    """Return whether texts are phonemes or single letters: nearly all parts between spaces are short."""
    texts = [" ".join(map(str, c)) if isinstance(c, list) else str(c) for c in cells[:SAMPLED]]
    parts = [re.sub(r"[\d\W]", "", part) for text in texts for part in text.split()]
    return len(parts) >= 8 * min(len(texts), 3) and 10 * sum(len(part) <= 2 for part in parts) >= 9 * len(parts)


def unnamed(table: Table, names: Names) -> str:
    """Return the message for a table in which no column has a known name, with its first rows and their columns."""
    if table.layout == "K" or table.width < 2:
        what = "texts by id" if table.layout == "K" else "holds one text a row, outputs"
        other = "if these are references, give the file of outputs, and this one with --reference"
        return f"{what} without references; give their references with --reference=FILE; {other}."
    two = names.likely(normalize_names(table.rows[0])) or most_alike(table)
    two = two or (spaced(table) + [i for i in range(table.width) if i not in spaced(table)])[:2]
    known = f"no column has a known name; its first rows are {table.first_rows()}"
    return f"{known}; {ways(table, two)}."


def ways(table: Table, two: Sequence[int]) -> str:
    """Return a proposal to name two columns, the first of which may be the reference or the prediction."""

    def either(cells: Sequence[str]) -> str:
        return f"{option('--columns', cells)} or {option('--columns', cells[::-1])}"

    titles = [table.titles[i] for i in two[:2]] if table.titles else []
    said = either(titles if len({*titles}) > 1 else [str(i + 1) for i in two[:2]])
    if table.layout == "H" and not table.samples:
        said += ", with --format=H, if line 1 is a sample"
        top = [str(table.rows[0][i]) for i in two]
        if all(len(name.split()) <= 4 for name in top) and len({*top}) > 1:
            said = f"{either(top)} if line 1 is a header, or {said}"
    return f"name two with {NAME_BOTH}, such as {said}"


def spaced(table: Table) -> list[int]:
    """Return the positions of columns in which at least half of the cells have a space within."""
    counts = [sum(" " in str(cell).strip() for cell in table.column(i)) for i in range(table.width)]
    return [i for i, count in enumerate(counts) if 2 * count >= len(table.rows)]


def most_alike(table: Table) -> list[int]:
    """Return the positions of the two columns of texts whose rows share most pairs of letters, [] if none share any.

    Columns of numbers, of names of files and of the same texts are left out.
    """
    rows = table.rows[1:][:SAMPLED] if table.titles is None else table.rows[:SAMPLED]
    parts: dict[int, list[set[str]]] = {}
    for i in range(min(table.width, MOST_COMPARED)):
        cells = [str(row[i]).strip() for row in rows]
        if not all(NUMBERS.fullmatch(cell) or FILE_NAME.fullmatch(cell) for cell in cells if cell):
            parts[i] = [{cell[k : k + 2] for k in range(len(cell) - 1)} for cell in cells]

    def shared(pair: tuple[int, int]) -> float:
        both = [*zip(*map(parts.get, pair), strict=True)]
        return sum(len(a & b) / len(a | b) for a, b in both if a and b) if any(a != b for a, b in both) else 0.0

    best = max(itertools.combinations(parts, 2), key=shared, default=())
    return [*best] if best and shared(best) else []


def unclear(table: Table, names: Names, meanings: Meanings) -> str:
    """Return the message that says which of reference and prediction is unclear, and how to name it."""
    sides = {"reference": meanings.references, "prediction": meanings.predictions}
    known = names.fields.keys() | names.keys.keys()
    texts = [i for i in range(table.width) if not (is_id(table.column(i)) and holds_words(table, i))]
    texts = [i for i in texts if table.names[i] not in known]
    cells = [c[:1] if isinstance(c, list) else [c] for i in texts for c in table.column(i)]
    if not meanings.references and len(texts) == 1 and all(isinstance(text, str) for cell in cells for text in cell):
        columns = join_names([*map(repr, table.titles)])
        return f"holds outputs without references (columns {columns}); give its references with --reference=FILE."
    several = [side for side, of in sides.items() if len(of) > 1]
    if several and not meanings.pairs:
        said = f"several columns may be the {several[0]} ({join_names(sides[several[0]])}); name both with {NAME_BOTH}"
        if several == ["prediction"] and meanings.references:
            one, two = meanings.predictions[:2]
            both = option("--columns", [meanings.references[0], f"eeg={one}", f"control={two}"])
            said += f", or, if one of them is of a control, with {both}"
        return f"{said}."
    words = [name if name not in known and holds_words(table, i) else "" for i, name in enumerate(table.names)]
    proposed = [table.titles[i] for i in names.likely(words)]
    others = [
        title
        for title, name, base in zip(table.titles, table.names, meanings.bases, strict=True)
        if base not in (*meanings.references, *meanings.predictions) and name not in names.fields
    ]
    if bool(meanings.references) != bool(meanings.predictions) and others and not meanings.pairs:
        present, missing = sides if meanings.references else [*sides][::-1]
        title = table.titles[meanings.bases.index(sides[present][0])]
        wanted = [title, "PREDICTION"] if meanings.references else ["REFERENCE", title]
        wanted = option("--columns", proposed or wanted)
        return (
            f"the {present} is {title!r}; no column can be recognized as the {missing} among {join_names(others)}; "
            f"name it with {wanted}."
        )
    said = "several columns may be" if meanings.pairs or all(sides.values()) else "no column is known as"
    two = [i for i in spaced(table) if table.names[i] not in known]
    how = f"name two with {NAME_BOTH}" + (f", such as {option('--columns', proposed)}" if proposed else "")
    how = ways(table, two) if len(two) == 2 and not proposed else how
    among = f"{join_names(table.titles)}; its first rows are {table.first_rows()}"
    return f"{said} reference and prediction among {among}; {how}."


def option(name: str, values: Sequence[str]) -> str:
    """Return an option with a list of values as it is typed in a shell."""
    text = ",".join(f'"{value}"' if "," in value else value for value in values)
    text = text if re.fullmatch(r"[\w.,:/=-]*", text) else f"'{text}'"
    return f"{name}={text}"


def split_list(text: str | None) -> list[str] | None:
    """Return the values of an option, separated by commas; a value with a comma is in double quotes."""
    if text is None:
        return None
    return [value.strip() for value in next(csv.reader([text], skipinitialspace=True), [])]


def field_positions(table: Table, names: Names) -> dict[str, list[int]]:
    """Return field, such as "subject" -> positions of its columns, by their names.

    The first column of a field counts. Of `task`, all columns count: a data set and a key in it may identify a task.
    Columns of time count if one of them says when a sample was recorded.
    """
    positions: dict[str, list[int]] = {}
    for index, name in enumerate(table.names or ()):
        field = names.fields.get(name, "")
        first = next(iter(filled(table, index)), "") if field in TIME else ""
        holds = field not in TIME or (first and (field == "recording" or NUMBER.fullmatch(first)))
        holds = holds and (field != "mode" or any(mode_name(cell) in MODES for cell in filled(table, index)))
        if field and holds and (field == "task" or field not in positions):
            positions.setdefault(field, []).append(index)
    timed = "onset" in positions or "order" in positions
    return {field: places for field, places in positions.items() if timed or field not in TIME}


def stated_columns(table: Table, names: Names, stated: Sequence[str]) -> Columns:
    """Return the columns that `--columns` names: the reference, then predictions, by name or by number from 1.

    `CONDITION=COLUMN` names the condition of a prediction. Raises UserError if a column is missing or named twice, or
    if it is unclear whether the first line is a header.
    """
    shown = option("--columns", stated)
    if len(stated) < 2:
        raise UserError(f"{shown}: expected the reference and at least one prediction.")
    split = [("", c) if "=" not in c or normalize(c) in (table.names or ()) else c.partition("=")[::2] for c in stated]
    refuse_doubtful_header(table, [column for _, column in split])
    reference, *predictions = (find_column(table, column) for _, column in split)
    titles = [normalize(fed) or names.condition(normalize(column)) or normalize(column) for fed, column in split[1:]]
    conditions = titles if len(predictions) > 1 or split[1][0] else [UNKNOWN]
    if len({reference, *predictions}) <= len(predictions) or len({*conditions}) < len(conditions):
        raise UserError(f"{shown}: a column or condition is named twice; name each once.")
    keys = [(condition, UNKNOWN) for condition in conditions]
    return Columns(reference, dict(zip(keys, predictions, strict=True)), field_positions(table, names))


def refuse_doubtful_header(table: Table, stated: Sequence[str]) -> None:
    """Raise UserError if the first line of a table may be a header or a sample: names, or no number above numbers."""
    if table.samples or table.layout != "H" or len(table.rows) < 2:
        return
    places = [find_column(table, column) for column in stated]
    first, *rest = [[str(row[i]) for i in places] for row in table.rows]
    short = all(len(cell.split()) <= 3 and re.fullmatch(r"[\w \-/().]*", cell) for cell in first)
    longer = sum(len(cell.split()) > 3 for row in rest for cell in row) > len(rest)
    columns = [[str(cell) for cell in table.column(i)] for i in range(table.width)]
    named = any(not NUMBER.fullmatch(top) and all(map(NUMBER.fullmatch, below)) for top, *below in columns)
    if named or (short and (longer or all(" " not in cell for cell in first))):
        raise UserError(
            f"{table.path}, line 1: {', '.join(first)!r} may be a header or a sample; say --format=F (a header) or "
            "--format=H (none)."
        )


def find_column(table: Table, column: str) -> int:
    """Return the position from 0 of a column given by name or by number from 1. Raises UserError if it is missing."""
    name = normalize(column)
    if (table.names or ()).count(name) > 1:
        raise UserError(f"{table.path}: two columns are named {column!r}; name the columns by number, from 1.")
    if name in (table.names or ()):
        return table.names.index(name)
    if column.isascii() and column.isdigit() and 1 <= int(column) <= table.width:
        return int(column) - 1
    offered = join_names(table.titles, 40, 600) if table.titles else f"1 to {table.width}"
    raise UserError(f"{table.path}: there is no column {column!r}; the columns are {offered}.")


def side_column(table: Table, side: str, stated: str | None, names: Names, other: Table) -> int:
    """Return the position of the texts in one of two files, which holds the `side` "reference" or "prediction".

    Raises UserError if the column is unclear (`other`, the other file, helps to propose one), or a file of predictions
    has references of its own.
    """
    if stated is not None:
        return find_column(table, stated)
    if table.titles is None and table.coded:
        return 1
    if table.width == 1:
        return 0
    meanings = Meanings(table, names)
    references, outputs = [*meanings.references, *meanings.spoken], [*meanings.predictions, *meanings.heard]
    if side == "prediction" and references and outputs:
        raise UserError(f"{table.path}: has references of its own ({join_names(table.names)}); leave --reference out.")
    words, fitting = (meanings.predictions, outputs) if side == "prediction" else (meanings.references, references)
    for offered in (words, fitting, [name for name in meanings.plain if name in (*names.either, *names.maybe)]):
        if len(offered) == 1:
            return (meanings.bases if side == "prediction" else meanings.plain).index(offered[0])
    positions = spaced(table)
    if len(positions) != 1:
        shown = join_names(table.titles) if table.names else f"{table.width} columns without known names"
        two = [likely(table, other, names), likely(other, table, names)]
        such = option("--columns", two if side == "reference" else two[::-1])
        raise UserError(
            f"{table.path}: no column can be recognized as the {side} among {shown}; its first rows are "
            f"{table.first_rows(100)}; name both columns with {NAME_BOTH} (REFERENCE is a column of the file of "
            f"references, PREDICTION of the file of predictions), such as {such}, or say --format=P if the lines are "
            "no table."
        )
    return positions[0]


def likely(table: Table, other: Table, names: Names) -> str:
    """Return the column of one of two files that may hold its texts: with spaces, in both files, or named as a text."""
    tops = [of.titles or [str(cell) for cell in of.rows[0]] for of in (table, other)]
    plain, others = map(normalize_names, tops)

    def rank(i: int) -> tuple[bool, ...]:
        same = plain[i] in others and other.column(others.index(plain[i]))[1:] != table.column(i)[1:]
        named = any(map(names.is_text, re.split(r"[_.]", plain[i])))
        return i in spaced(table), same, named and plain[i] not in others

    best = max(range(table.width), key=rank)
    return tops[0][best] if table.titles or len(plain[best].split("_")) < 5 else str(best + 1)


def parse_list(cell: str) -> list | None:
    """Return the list that a cell holds in the notation of JSON, Python or NumPy; None if it holds text."""
    text = cell.strip()
    if not (text[:1] == "[" and text[-1:] == "]") or text[1:-1].strip().isdecimal():  # "[4]" marks a footnote
        return None
    with contextlib.suppress(ValueError, RecursionError):
        return json.loads(text)
    # NumPy prints no commas; without commas, Python would join adjacent strings.
    items = literal(re.sub(r"(?<=['\"])\s+(?=b?['\"])", ", ", text))
    return items and [item.decode("utf8", "replace") if isinstance(item, bytes) else item for item in items]


def candidate_text(item: Any) -> Any:
    """Return the text of a candidate in a list of the n best, an object with a text and a score; None without text."""
    if not isinstance(item, dict):
        return item
    texts = [value for value in item.values() if isinstance(value, str)]
    usual = [item[name] for name in ("text", "sentence", "hypothesis", "caption") if isinstance(item.get(name), str)]
    return usual[0] if usual else texts[0] if len(texts) == 1 else None


def text_of(value: Any, side: str, title: str, where: str) -> tuple[str, str]:
    """Return a cell as one text, and a note on its conversion. Raises UserError if it is no text or list of texts.

    Texts without spaces are tokens and are joined. Of other texts (references of a caption, hypotheses of a beam), the
    first counts, because the audit compares scores against one text of a sentence.
    """
    items = parse_list(value) if isinstance(value, str) else value if isinstance(value, list) else None
    text, how = value, ""
    if items is not None:
        candidates = [*map(candidate_text, items)]
        if all(isinstance(text, str) for text in candidates):
            distinct = {*map(str.strip, candidates)}
            text = candidates[0] if candidates else ""
            if len(distinct) > 1:
                several = any(" " in text for text in distinct)
                text, how = (text, FIRST_OF_SEVERAL) if several else (" ".join(candidates), JOINED)
    if not isinstance(text, str) or (items is not None and text is value):
        shown = repr(value) if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
        several = items is not None and sum(isinstance(item, list) for item in items) > 1
        expected = f"the list of lists {shown:.60}; {SEVERAL}" if several else f"{shown:.60}; expected a text or a list"
        raise UserError(f"{where}: the {side} {title} is {expected}{'' if several else ' of texts'}.")
    refuse_surrogates(text, f"{where}: {title}")
    return text, how


def texts(
    table: Table, index: int, side: str, changed: dict[str, set[int]], rows: Sequence[int] | None = None
) -> list[str]:
    """Return the texts of a column, or of some rows of it; `changed` gets note -> the rows that were converted.

    A whole line is a text even if it begins and ends with a bracket. Raises UserError at a cell that is no text.
    """
    whole, column, place = table.layout in ("P", "K"), [], f"{table.path}, {table.unit}"  # of a bucket, this takes time
    for row in range(len(table.rows)) if rows is None else rows:
        value = table.rows[row][index]
        if whole and isinstance(value, str):
            column.append(value)
            continue
        where = f"{place} {table.numbers[row]}" + (f", id {table.rows[row][0]!r:.60}" if table.coded else "")
        text, how = text_of(value, side, table.shown(index), where)
        if table.titles and row in table.firsts.get(table.titles[index], ()):
            how = FIRST_OF_SEVERAL
        if how:
            changed.setdefault(f"{side}s {how}", set()).add(row)
        column.append(text)
    return column


def conversions(changed: dict[str, set[int]]) -> list[str]:
    return [f"in {count_of(len(rows), 'row')} {note}" for note, rows in changed.items()]


def stated(table: Table, about: dict[str, list[int]]) -> dict[str, list[str]]:
    """Return field -> the values of its columns; those of several columns are joined by `/`, without missing ones."""
    values = {}
    for name, places in about.items():
        columns = [["" if c is None or c is ABSENT else str(c) for c in table.column(i)] for i in places]
        rows = zip(*columns, strict=True)
        values[name] = ["/".join(c for c in row if c.strip().lower() not in MISSING) or row[0] for row in rows]
    return values


def test_part(table: Table, columns: Columns) -> tuple[Table, str]:
    """Return the rows of the test part (dev if there is none; all without a column of splits), and a note."""
    values = stated(table, {"split": columns.about["split"]})["split"] if "split" in columns.about else []
    parts = [SPLITS.get(normalize(value), "") for value in values]
    counts = Counter(parts)
    used = next((part for part in ("test", "dev") if counts[part]), "")
    if used and counts[used] < len(parts):
        others = ", ".join(f"{count} of {part or 'another'}" for part, count in counts.items() if part != used)
        note = f"by the column of splits, only {counts[used]} rows of {used} are used; left out are {others}"
        return table.keep([i for i, part in enumerate(parts) if part == used]), note
    if parts and counts["train"] == len(parts):
        return table, "every row is of the training part by the column of splits: models may have memorized its texts"
    return table, ""


def samples(table: Table, columns: Columns, changed: dict[str, set[int]]) -> Samples:
    """Return the samples of a table. Raises UserError at a cell that is no text, or a row that repeats the header."""
    refuse_header_below(table, [columns.reference, *columns.predictions.values()])
    for index in sorted(columns.used()):
        if ABSENT in table.column(index):
            number = table.numbers[table.column(index).index(ABSENT)]
            raise UserError(
                f"{table.path}, {table.unit} {number}: has no {table.titles[index]!r}, but the first {table.unit} has "
                f"it; add the name, or remove the {table.unit}."
            )
    references = texts(table, columns.reference, "reference", changed)
    outputs = {key: texts(table, index, "prediction", changed) for key, index in columns.predictions.items()}
    sides = [references, *outputs.values()]
    for column in sides if all(map(is_spelled, sides)) else ():
        for row, text in enumerate(column):
            if re.search(r"(?:^|\s)\|(?:\s|$)", text):
                column[row] = " ".join(part for part in text.split() if part != "|")
                changed.setdefault(BETWEEN_WORDS, set()).add(row)
    if any(PADDING.search(text) for column in sides for text in column if "**" in text):  # aligned by columns
        for column in sides:
            for row, words in enumerate(map(str.split, column)):
                column[row] = " ".join(word for word in words if word.strip("*"))
                if not all(word.strip("*") for word in words):
                    changed.setdefault(PADDED, set()).add(row)
    for mark in () if is_spelled(references) else SEPARATORS:
        held = [row for row, text in enumerate(references) if mark in text]
        spoken = sum(mark in text for column in sides[1:] for text in column)
        most = len(held) >= max(FEWEST_WITH_MARKS, 0.9 * len(references)) or mark == SEPARATORS[0]
        if held and most and 20 * spoken <= len(references) * len(outputs):
            for row in held:
                references[row] = next(filter(None, map(str.strip, references[row].split(mark))), "")
            changed.setdefault(f"references {FIRST_OF_SEVERAL}", set()).update(held)
    return Samples(table.path, references, outputs, stated(table, columns.about), table.numbers, table.unit)


def refuse_header_below(table: Table, places: Sequence[int]) -> None:
    """Raise UserError for a row of a CSV that is a header, as if two files were joined."""
    head = table.names and [table.names[i] for i in places]
    for number, row in zip(table.numbers, table.rows, strict=True) if table.layout in ("F", "H") else ():
        cells = normalize_names(row[i] for i in places) if len(str(row[places[0]])) < 60 else []
        if cells and (cells == head or (not head and len({*filter(built_in().is_usual, cells)}) > 1)):
            shown = ", ".join(str(row[i]) for i in places)
            raise UserError(
                f"{table.path}, {table.unit} {number}: {shown!r:.80} is a header among the samples, as if two files "
                "were joined; give each file to the command separately, with its header first."
            )


def divided(table: Table, used: set[int], references: Sequence[str]) -> Table:
    """Return the table with `blocks` by a column that is not used and whose values have the same references each.

    Raises UserError if a column that is not used tells EEG from controls.
    """
    for index in sorted({*range(table.width)} - used):
        cells = [str(cell) for cell in table.column(index)]
        values = dict.fromkeys(cells)
        fed = dict.fromkeys(map(fed_word, values))
        if "eeg" in fed and "" not in fed and len(fed) > 1:
            raise UserError(
                f"{table.path}: the column {table.names[index] if table.names else index + 1!r} says what was fed "
                f"({', '.join(fed)}), and rows with different inputs are not judged together; rename "
                "the column to eval_condition, or give one file for each value."
            )
        if table.blocks or not 1 < len(values) <= MOST_SYSTEMS:
            continue
        of_value: dict[str, Counter[str]] = {value: Counter() for value in values}
        for cell, reference in zip(cells, references, strict=True):
            of_value[cell][reference] += 1
        if len(first := of_value[cells[0]]) > 1 and all(of == first for of in of_value.values()):
            why = f"{table.shown(index)} is not used, and each of its {len(values)} values has the same {len(first)}"
            table = dataclasses.replace(table, blocks=cells, why=f"{why} references")
    return table


def describe_columns(table: Table, columns: Columns, dropped: Collection[str] = ()) -> str:
    """Return a layout in words: its kind, the used and the unused columns; fields in `dropped` count as unused."""
    if table.layout in ("P", "K"):
        return f"{table.layout} ({table.kind})"
    used = columns.used(dropped)
    unused = [table.shown(i) for i in range(table.width) if i not in used]
    said = f"; reference {table.shown(columns.reference)}, prediction "
    said += ", ".join(table.shown(i) for i in columns.predictions.values())
    for title, fields in SAID.items():
        places = [i for name in fields if name not in dropped for i in columns.about.get(name, [])]
        said += f", {title} {' and '.join(table.shown(i) for i in places)}" if places else ""
    said += f"; not used: {join_names(unused)}" if unused else ""
    return f"{table.layout} ({table.kind}{said})"


def read_metadata(path: str | os.PathLike[str]) -> csv.DictReader:
    """Open a CSV of metadata; usual names of its columns become `reference`, `subject`, `task` or one of `METADATA`."""
    names = built_in()
    reader = csv.DictReader(io.StringIO(read_text(path), newline=""))
    titles = reader.fieldnames or ()
    plain = normalize_names(titles)
    named = [name for name in plain if names.form("reference", name)]
    references = ["reference"] if "reference" in plain else (named or [n for n in plain if n in names.maybe])[:1]
    fields: list[str] = []
    for name, title in zip(plain, titles, strict=True):
        field = "reference" if name in references else names.fields.get(name, "")
        usual = field in ("reference", "subject", "task") and field not in (*fields, *(plain if name != field else ()))
        fields.append(field if usual else name if name in METADATA else title)
    reader.fieldnames = fields
    return reader
