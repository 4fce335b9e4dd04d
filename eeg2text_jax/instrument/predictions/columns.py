"""Decide what the columns of a table hold, of one file or of two."""

import csv
import dataclasses
import io
import itertools
import os
import re
from collections import Counter
from collections.abc import Collection, Sequence

from eeg2text_jax.base.errors import UserError
from eeg2text_jax.instrument.predictions._containers import ABSENT, Columns, Table, is_id
from eeg2text_jax.instrument.predictions._names import (
    MARKS_OF_CONDITIONS,
    PHONEMES,
    SIDES,
    TEXT,
    Names,
    built_in,
    join_names,
    normalize,
    normalize_names,
)
from eeg2text_jax.instrument.predictions._samples import SAMPLED, fed_word, is_spelled, values_of
from eeg2text_jax.instrument.predictions.file import MODES, UNKNOWN, mode_name
from eeg2text_jax.instrument.predictions.packed import read_text

TIME = ("recording", "onset", "duration", "order")
METADATA = ("n_words", *TIME)  # further columns of a metadata CSV
NAME_BOTH = "--columns=REFERENCE,PREDICTION"
# What a description calls columns -> their fields.
SAID = {
    **{name: (name,) for name in ("subject", "task")},
    **{"condition": ("condition", "eval_condition", "train_condition"), "mode": ("mode", "forced", "decoding")},
    **{"time": TIME, "ids": ("sample_id", "sentence_id"), "seed": ("seed",), "split": ("split",), "part": ("part",)},
}
# Value in a column of splits -> test, dev or train.
SPLITS = {
    **dict.fromkeys(("test", "testing", "eval", "evaluation", "heldout", "held_out"), "test"),
    **dict.fromkeys(("dev", "val", "valid", "validation"), "dev"),
    **dict.fromkeys(("train", "training"), "train"),
}
NUMBER = re.compile(r"-?\d+(\.\d*)?(e[+-]?\d+)?", re.IGNORECASE)
NUMBERS = re.compile(rf"{NUMBER.pattern}|\[({NUMBER.pattern}(, *|(?=\])))+\]", re.IGNORECASE)  # or a list
MOST_SYSTEMS = 50  # values of a column that may be systems
FILE_NAME = re.compile(r".*\.(?=\w*[a-z])\w{2,4}", re.IGNORECASE)
CODE = re.compile(r"[\w.:-]*\d[\w.:-]*", re.ASCII)  # of a reader, an image
MOST_COMPARED = 40  # columns, each with each


def roles(table: Table, names: Names, stated: Sequence[str] | None = None, groups: Sequence[str] = ()) -> Columns:
    """Return what columns of a file with both sides hold, as `stated` (`--columns`) or by known names."""
    columns = stated_columns(table, names, stated) if stated else table.roles or known_columns(table, names)
    return dataclasses.replace(columns, about=columns.about | group_positions(table, groups))


def group_positions(table: Table, groups: Sequence[str]) -> dict[str, list[int]]:
    """Return `group NAME` -> position of the column NAME, if the table has it."""
    names = table.names
    return {f"group {name}": [names.index(normalize(name))] for name in groups if normalize(name) in names}


class Meanings:
    """What the names of columns may mean; a column of numbers has no text."""

    def __init__(self, table: Table, names: Names) -> None:
        self.plain = [name if holds_words(table, i) else f"{name} (numbers)" for i, name in enumerate(table.names)]
        self.modes = [names.split_mode(name) for name in self.plain]  # name without its mode, mode
        self.bases = [base for base, _ in self.modes]
        self.pairs = [pair for pair in names.pairs if pair[0] in self.plain and pair[1] in self.bases]
        of = {"reference": dict.fromkeys(self.plain), "prediction": dict.fromkeys(self.bases)}
        self.references, self.spoken, self.predictions, self.heard = (
            [name for name in of[side] if names.form(side, name) == form] for side in SIDES for form in (TEXT, PHONEMES)
        )
        self.spoken += [name for name in self.plain if name in names.either and name == PHONEMES]
        self.conditions = {name: fed for name in self.bases if (fed := names.condition(name))}
        if self.conditions:  # `eeg` beside `random`
            self.conditions |= {name: MARKS_OF_CONDITIONS[name] for name in self.bases if name in MARKS_OF_CONDITIONS}
        self.maybe = [name for name in names.maybe if name in self.plain]
        if not self.pairs and not self.references and len(self.predictions) == len(self.maybe) == 1:
            self.references = self.maybe

    def choice(self) -> tuple[str, dict[str, str]] | None:
        """Return the reference, and prediction -> condition; None if no pair of columns fits, or several do."""
        references, predictions = self.references, self.predictions
        if self.spoken and not (references and predictions) and (self.heard or not references):
            references, predictions = self.spoken[:1], self.heard[:1] or predictions
        pairs = self.pairs or [*zip(references, predictions, strict=False)]
        if self.pairs or len(references) == len(predictions) == 1:
            return (pairs[0][0], {pairs[0][1]: UNKNOWN}) if len(pairs) == 1 else None
        return (references[0], self.conditions) if len(references) == 1 and self.conditions else None


def known_columns(table: Table, names: Names) -> Columns:
    """Return the columns with known names. Raises UserError if no pair fits, or several do."""
    if table.titles is None:
        raise table.error(unnamed(table, names))
    meanings = Meanings(table, names)
    if (taken := meanings.choice()) is None:
        raise table.error(unclear(table, names, meanings))
    reference, wanted = taken
    predicted = {i: (wanted[base], mode) for i, (base, mode) in enumerate(meanings.modes) if base in wanted}
    if len({*predicted.values()}) < len(predicted):
        twice = ", ".join(table.names[i] for i in predicted)
        raise table.error(f"the columns {twice} are predictions of one condition and mode; name one with {NAME_BOTH}")
    reference, notes = of_one_form(table, reference, [*predicted], meanings.spoken)
    forced = {condition for condition, mode in predicted.values() if mode == "teacher_forced"}
    predictions = {
        # without a mode, beside a teacher-forced column of the same condition, it is free-running
        (condition, "free_running" if mode == UNKNOWN and condition in forced else mode): i
        for i, (condition, mode) in predicted.items()
    }
    return Columns(find_column(table, reference), predictions, field_positions(table, names), notes=notes)


def holds_words(table: Table, index: int) -> bool:
    """Return whether a column may hold texts: not all cells are numbers, lists of numbers, yes or no, or empty."""
    cells = filled(table, index)
    return not cells or not all(NUMBERS.fullmatch(cell) or cell in ("True", "False") for cell in cells)


def filled(table: Table, index: int) -> list[str]:
    """Return the cells with content, as text."""
    cells = (str(cell).strip() for cell in table.column(index) if cell is not None and cell is not ABSENT)
    return [cell for cell in cells if cell]


def of_one_form(
    table: Table, reference: str, predicted: Sequence[int], spoken: Sequence[str]
) -> tuple[str, tuple[str, ...]]:
    """Return the name of the reference in the form of the predictions, of `spoken` for phonemes, and a note on it."""
    place = table.names.index(reference)
    if reference in spoken or is_spelled(table.column(place)) or not all(map(is_spelled, map(table.column, predicted))):
        return reference, ()
    titles, title = " and ".join(map(table.shown, predicted)), table.shown(place)
    if spoken:
        other = table.shown(table.names.index(spoken[0]))
        return spoken[0], (f"{titles} holds phonemes, so that {other} is the reference, and not {title}",)
    return reference, (f"{titles} holds phonemes or single letters, and the reference {title} holds words",)


# Messages about unclear columns.


def unnamed(table: Table, names: Names) -> str:
    """Return the message for a table without known names."""
    if table.layout == "K" or table.width < 2:
        what = "texts by id" if table.layout == "K" else "holds one text a row, outputs"
        other = "if these are references, give the file of outputs, and this one with --reference"
        return f"{what} without references; give their references with --reference=FILE; {other}"
    below = dataclasses.replace(table, rows=table.rows[1:])  # a name above numbers is of no text
    two = names.likely([name * holds_words(below, i) for i, name in enumerate(normalize_names(table.rows[0]))])
    texts = spaced(table)
    how = f"name two with {NAME_BOTH}, by name if line 1 is a header, or by number from 1 with --format=H"
    how = how if len(texts) > 2 and not two else ways(table, two or likely(table))
    return f"no column has a known name; its first rows are {table.first_rows()}; {how}"


def ways(table: Table, two: Sequence[int]) -> str:
    """Return a proposal to name two columns in either order."""

    def either(cells: Sequence[str]) -> str:
        return f"{option('--columns', cells)} or {option('--columns', cells[::-1])}"

    titles = [table.titles[i] for i in two] if table.titles else []
    said = either(titles if len({*titles}) > 1 else [str(i + 1) for i in two])
    if table.layout == "H" and not table.samples:
        said += ", with --format=H, if line 1 is a sample"
        top = [str(table.rows[0][i]) for i in two]
        if all(len(name.split()) <= 4 for name in top) and len({*top}) > 1:
            said = f"{either(top)} if line 1 is a header, or {said}"
    return f"name two with {NAME_BOTH}, such as {said}"


def spaced(table: Table) -> list[int]:
    """Return the columns in which half of the filled cells, and a third of all, have a space."""
    columns = [filled(table, i) for i in range(table.width)]
    counts = [(sum(" " in cell for cell in cells), len(cells)) for cells in columns]
    return [i for i, (count, some) in enumerate(counts) if 2 * count >= some and 3 * count >= len(table.rows)]


def letter_pairs(table: Table) -> dict[int, list[set[str]]]:
    """Return position -> pairs of letters in the first cells; without columns of numbers, codes and names of files."""
    pairs = {}
    for i in range(min(table.width, MOST_COMPARED)):
        cells = [str(cell).strip() for cell in table.column(i)[table.titles is None :][:SAMPLED]]
        if not all(any(of.fullmatch(cell) for of in (NUMBERS, FILE_NAME, CODE)) for cell in cells if cell):
            pairs[i] = [{cell[k : k + 2] for k in range(len(cell) - 1)} for cell in cells]
    return pairs


def likely(table: Table, other: Table | None = None) -> list[int]:
    """Return the two columns whose rows share most pairs of letters, or else the first with spaces.

    Columns of the same texts are left out. Columns of two tables, whose rows may be in any order, are compared as a
    whole.
    """
    parts, others = letter_pairs(table), letter_pairs(other or table)
    if other:
        parts, others = ({i: [set().union(*rows)] for i, rows in of.items()} for of in (parts, others))

    def shared(pair: tuple[int, int]) -> float:
        both = [*zip(parts[pair[0]], others[pair[1]], strict=False)]
        return sum(len(a & b) / len(a | b) for a, b in both if a and b) if any(a != b for a, b in both) else 0.0

    best = max(itertools.product(parts, others) if other else itertools.combinations(parts, 2), key=shared, default=())
    if best and shared(best):
        return [*best]
    one, two = ([*dict.fromkeys([*spaced(of), *range(of.width)])] for of in (table, other or table))
    return [one[0], two[0]] if other else one[:2]


def unclear(table: Table, names: Names, meanings: Meanings) -> str:
    """Return the message that says which of reference and prediction is unclear, and how to name it."""
    sides = dict(zip(SIDES, (meanings.references, meanings.predictions), strict=True))
    known = names.fields.keys() | names.keys.keys()
    others = [i for i in range(table.width) if table.names[i] not in known]
    texts = [table.column(i) for i in others if not (is_id(table.column(i)) and holds_words(table, i))]
    cells = [cell[:1] if isinstance(cell, list) else [cell] for column in texts for cell in column]
    if not meanings.references and len(texts) == 1 and all(isinstance(text, str) for cell in cells for text in cell):
        columns = join_names([*map(repr, table.titles)])
        return f"holds outputs without references (columns {columns}); give its references with --reference=FILE"
    several = [side for side, of in sides.items() if len(of) > 1]
    if several and not meanings.pairs:
        said = f"several columns may be the {several[0]} ({join_names(sides[several[0]])}); name both with {NAME_BOTH}"
        if several == ["prediction"] and meanings.references:
            one, two = meanings.predictions[:2]
            both = option("--columns", [meanings.references[0], f"eeg={one}", f"control={two}"])
            said += f", or, if one of them is of a control, with {both}"
        return said
    spoken = [i for i in spaced(table) if i in others and not any(cell[0] in "[{" for cell in filled(table, i))]
    various = [i for i in spoken if 2 * len({*filled(table, i)}) > len(filled(table, i))]
    words = [i for i in others if holds_words(table, i)]
    offers = (names.likely([name * (i in of) for i, name in enumerate(table.names)]) for of in (various, words))
    proposed = [table.titles[i] for i in next(filter(None, offers), [])]
    shown = sorted(range(table.width), key=lambda i: i not in various)  # texts first
    used = {*meanings.references, *meanings.predictions}
    left = [table.titles[i] for i in shown if meanings.bases[i] not in used and table.names[i] not in names.fields]
    present, missing = sides if meanings.references else [*sides][::-1]
    title = table.titles[meanings.bases.index(sides[present][0])] if sides[present] else ""
    one = bool(meanings.references) != bool(meanings.predictions) and (not proposed or title in proposed)
    if one and left and not meanings.pairs:
        wanted = proposed or ([title, "PREDICTION"] if meanings.references else ["REFERENCE", title])
        among = f"no column can be recognized as the {missing} among {join_names(left)}"
        return f"the {present} is {title!r}; {among}; name it with {option('--columns', wanted)}"
    said = "several columns may be" if meanings.pairs or all(sides.values()) else "no column is known as"
    how = f"name two with {NAME_BOTH}" + (f", such as {option('--columns', proposed)}" if proposed else "")
    how = ways(table, spoken) if len(spoken) == 2 and not proposed else how
    among = f"{join_names([table.titles[i] for i in shown])}; its first rows are {table.first_rows()}"
    return f"{said} reference and prediction among {among}; {how}"


def option(name: str, values: Sequence[str]) -> str:
    """Return an option as it is typed in a shell."""
    text = ",".join(f'"{value}"' if "," in value else value for value in values)
    text = text if re.fullmatch(r"[\w.,:/=-]*", text) else f"'{text}'"
    return f"{name}={text}"


def split_list(text: str | None) -> list[str] | None:
    """Return values between commas; one with a comma is in double quotes."""
    rows = csv.reader([text or ""], skipinitialspace=True)
    return None if text is None else [value.strip() for value in next(rows, [])]


def field_positions(table: Table, names: Names) -> dict[str, list[int]]:
    """Return field, such as "subject" -> its first column, or all of `task` (a data set and a key in it).

    Columns of time count if one of them says when a sample was recorded.
    """
    positions: dict[str, list[int]] = {}
    for index, name in enumerate(table.names):
        field = names.fields.get(name, "") or ("split" if holds_splits(table, index) else "")
        first = next(iter(filled(table, index)), "") if field in TIME else ""
        holds = field not in TIME or (first and (field == "recording" or NUMBER.fullmatch(first)))
        holds = holds and (field != "mode" or any(mode_name(cell) in MODES for cell in filled(table, index)))
        if field and holds and (field == "task" or field not in positions):
            positions.setdefault(field, []).append(index)
    timed = "onset" in positions or "order" in positions
    return {field: places for field, places in positions.items() if timed or field not in TIME}


def holds_splits(table: Table, index: int) -> bool:
    """Return whether the values of a column are several of `SPLITS` and no others."""
    if not table.rows or normalize(str(table.rows[0][index])) not in SPLITS:
        return False
    values = {*map(normalize, filled(table, index))}
    return len(values) > 1 and values <= SPLITS.keys()


def stated_columns(table: Table, names: Names, stated: Sequence[str]) -> Columns:
    """Return the columns that `--columns` names: the reference, then predictions or `CONDITION=PREDICTION`."""
    shown = option("--columns", stated)
    if len(stated) < 2:
        raise UserError(f"{shown}: expected the reference and at least one prediction.")
    split = [("", c) if "=" not in c or normalize(c) in table.names else c.partition("=")[::2] for c in stated]
    refuse_doubtful_header(table, [column for _, column in split])
    reference, *predictions = (find_column(table, column) for _, column in split)
    titles = [normalize(fed) or names.condition(normalize(column)) or normalize(column) for fed, column in split[1:]]
    conditions = titles if len(predictions) > 1 or split[1][0] else [UNKNOWN]
    if len({reference, *predictions}) <= len(predictions) or len({*conditions}) < len(conditions):
        raise UserError(f"{shown}: a column or condition is named twice; name each once.")
    keys = [(condition, UNKNOWN) for condition in conditions]
    return Columns(reference, dict(zip(keys, predictions, strict=True)), field_positions(table, names))


def refuse_doubtful_header(table: Table, stated: Sequence[str]) -> None:
    """Raise UserError if the first line may be a header or a sample: names, or no number above numbers."""
    if table.samples or table.layout != "H" or len(table.rows) < 2:
        return
    places = [find_column(table, column) for column in stated]
    first, *rest = [[str(row[i]) for i in places] for row in table.rows]
    short = all(len(cell.split()) <= 3 and re.fullmatch(r"[\w \-/().]*", cell) for cell in first)
    longer = sum(len(cell.split()) > 3 for row in rest for cell in row) > len(rest)
    columns = [[str(cell) for cell in table.column(i)] for i in range(table.width)]
    named = any(not NUMBER.fullmatch(top) and all(map(NUMBER.fullmatch, below)) for top, *below in columns)
    if named or (short and (longer or all(" " not in cell for cell in first))):
        said = f"{', '.join(first)!r} may be a header or a sample; say --format=F (a header) or --format=H (none)"
        raise table.error(said, 0)


def find_column(table: Table, column: str) -> int:
    """Return the position from 0 of a column by name or number from 1. Raises UserError if it is missing."""
    name, names = normalize(column), table.names
    if names.count(name) > 1:
        raise table.error(f"two columns are named {column!r}; name the columns by number, from 1")
    if name in names:
        return names.index(name)
    if column.isascii() and column.isdigit() and 1 <= int(column) <= table.width:
        return int(column) - 1
    offered = join_names(table.titles, 40, 600) if table.titles else f"1 to {table.width}"
    raise table.error(f"there is no column {column!r}; the columns are {offered}")


def side_column(table: Table, side: str, stated: str | None, names: Names, other: Table) -> int:
    """Return the position of the texts of a `side` ("reference" or "prediction") in one of two files."""
    if stated is not None:
        return find_column(table, stated)
    if table.titles is None and table.coded:
        return 1
    if table.width == 1:
        return 0
    meanings = Meanings(table, names)
    references, outputs = [*meanings.references, *meanings.spoken], [*meanings.predictions, *meanings.heard]
    if side == "prediction" and references and outputs:
        raise table.error(f"has references of its own ({join_names(table.names)}); leave --reference out")
    words, fitting = (meanings.predictions, outputs) if side == "prediction" else (meanings.references, references)
    for offered in (words, fitting, [name for name in meanings.plain if name in (*names.either, *names.maybe)]):
        if len(offered) == 1:
            return (meanings.bases if side == "prediction" else meanings.plain).index(offered[0])
    beside = [i for i in range(table.width) if not is_id(table.column(i))]
    if table.titles is None and len(beside) == 1 == table.width - 1:  # the texts beside the ids
        return beside[0]
    known = names.fields.keys() | names.keys.keys()
    words = [i for i in letter_pairs(table) if not table.names or table.names[i] not in known]
    if len(positions := spaced(table)) == 1 and (words == positions or not table.names):
        return positions[0]
    shown = join_names(table.titles) if table.names else f"{table.width} columns without known names"
    two = [*zip((table, other), likely(table, other), strict=True)][:: 1 if side == "reference" else -1]
    heads = [str((of.titles or of.rows[0])[i]) for of, i in two]
    named = all(of.titles or len(head.split()) < 4 for (of, _), head in zip(two, heads, strict=True))
    such = option("--columns", heads if named else [str(i + 1) for _, i in two])
    said = f"no column can be recognized as the {side} among {shown}; its first rows are {table.first_rows(100)}"
    how = f"name both columns with {NAME_BOTH}, each of its file, such as {such}"
    raise table.error(f"{said}; {how}, or say --format=P if the lines are no table")


# Which rows count.


def test_part(table: Table, columns: Columns) -> tuple[Table, str]:
    """Return the rows of test, else of dev, else all, and a note."""
    parts = [SPLITS.get(normalize(value), "") for value in values_of(table, columns.about.get("split", ()))]
    counts = Counter(parts)
    used = next((part for part in ("test", "dev") if counts[part]), "")
    if used and counts[used] < len(parts):
        others = ", ".join(f"{count} of {part or 'another'}" for part, count in counts.items() if part != used)
        note = f"by the column of splits, only {counts[used]} rows of {used} are used; left out are {others}"
        return table.keep([i for i, part in enumerate(parts) if part == used]), note
    if parts and counts["train"] == len(parts):
        return table, "every row is of the training part by the column of splits: models may have memorized its texts"
    return table, ""


def divided(table: Table, used: set[int], references: Sequence[str]) -> Table:
    """Return the table with `blocks` by the unused columns whose values have the same references each.

    Raises UserError for one that tells EEG from controls.
    """
    systems: dict[int, int] = {}  # position of such a column -> number of distinct references
    for index in sorted({*range(table.width)} - used):
        cells = [str(cell) for cell in table.column(index)]
        values = dict.fromkeys(cells)
        fed = dict.fromkeys(map(fed_word, values))
        if "eeg" in fed and "" not in fed and len(fed) > 1:
            title = repr(table.names[index]) if table.names else index + 1
            said = f"the column {title} says what was fed ({', '.join(fed)})"
            how = "rename the column to eval_condition, or give one file for each value"
            raise table.error(f"{said}, and rows with different inputs are not judged together; {how}")
        if table.blocks or not 1 < len(values) <= MOST_SYSTEMS:
            continue
        of_value: dict[str, Counter[str]] = {value: Counter() for value in values}
        for cell, reference in zip(cells, references, strict=True):
            of_value[cell][reference] += 1
        if len(first := of_value[cells[0]]) > 1 and all(of == first for of in of_value.values()):
            systems[index] = len(first)
    if not systems:
        return table
    titles, rows = " and ".join(map(table.shown, systems)), [*zip(*map(table.column, systems), strict=True)]
    its = f"is not used, and each of its {len({*rows})}" if len(systems) == 1 else "are not used, and each of their"
    why = f"{titles} {its} values has the same {max(systems.values())} references"
    return dataclasses.replace(table, blocks=[", ".join(map(str, row)) for row in rows], why=why)


def describe_columns(table: Table, columns: Columns, dropped: Collection[str] = ()) -> str:
    """Return the layout, with used and unused columns, in words; fields in `dropped` count as unused."""
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
    """Open a CSV of metadata; usual names become `reference`, `subject`, `task` or one of `METADATA`."""
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
