"""Read CSV, Markdown, JSON and lines of text as one table of named columns."""

import ast
import contextlib
import csv
import dataclasses
import html
import itertools
import json
import re
import sys
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

from etils import epath

from eeg2text_jax.base.errors import UserError
from eeg2text_jax.instrument.predictions._names import SIDES, Names, join_names, normalize, normalize_names
from eeg2text_jax.instrument.predictions.file import DECODER, UNKNOWN, parse_object
from eeg2text_jax.instrument.predictions.packed import TEXT, Lines

TAB = "\t"
DELIMITERS = (",", TAB, ";")
NO_MARK = "\x1f"  # between the cells of a table of one column
BAR = "|"  # between the cells of a table with a known header, also in Markdown
RULE = re.compile(r"[|: ]*-[-|: ]*")  # below a header in Markdown
FEW = 10  # fewest distinct rows of a table without header
MOST_OF_CELL = 40  # characters, in messages
ABSENT = object()  # cell of a JSON object that lacks a name
TEXTS_ALONE = "if each line of the file is one text, give its references with --reference=FILE"
NO_TABLE = (
    "neither a known layout nor a table with at least two columns; {hint}; see `eeg2text score --help` for the layouts."
)
TRN = re.compile(r"(?P<text>.*?)\s*\((?P<id>\S+|[A-Za-z]+ \d+)\)")  # a text, then its id
MARKED = {  # texts among marks -> the pattern of one
    "subtitles": re.compile(r"^(?:\d+:)?\d+:\d\d[.,]\d{3} --> .*\n(?P<text>(?:.+\n)*)", re.MULTILINE),
    "segments of SGML": re.compile(r"<seg\b(?:[^>]*?\bid=[\"'](?P<id>[^\"']*))?[^>]*>(?P<text>.*?)</seg>", re.DOTALL),
    "lines with times": re.compile(
        r"^(?:\[[\d:.]+ --> [\d:.]+\]|[\d.]+\s+[\d.]+)[ \t]+(?P<text>[^\s\d].*)\n", re.MULTILINE
    ),
    "lines of Moses": re.compile(r"^\d+ \|\|\| (?P<text>.*?) \|\|\| .*\n", re.MULTILINE),
    "texts of CoNLL-U": re.compile(
        r"^(?:# sent_id = (?P<id>.*)\n(?:# (?!text =|sent_id =).*\n)*)?# text = (?P<text>.*)\n", re.MULTILINE
    ),
}
COMMENT = re.compile(r";;|# (?!text = )|\d[\d.-]*\t(?:[^\t]*\t){8}")  # and the words of CoNLL-U
BESIDE = re.compile(r"\AWEBVTT.*\n(?:.+\n)*|<[^>]*>|\d+")
TAGGED = ("subtitles", "segments of SGML")  # texts may have tags, and other lines stand beside them
# NIST: id, channel, onset, duration, word, perhaps its confidence; or id, channel, speaker, onset, end, text.
NIST = re.compile(r"\S+ \S+ (?:[\d.]+ [\d.]+ \S+(?: [\d.-]+)?|\S+ [\d.]+ [\d.]+ (?:<[^>]*> )?.*)")
HTK = re.compile(r'^"(?:\*/)?([^"\n]*?)(?:\.\w+)?"\n((?:(?!\.\n).*\n)*)', re.MULTILINE)  # a file and its words
HTK_WORD = re.compile(r"^(?:\d+ \d+ )?(\S+)", re.MULTILINE)
KEYED = re.compile(r"(?P<id>[A-Za-z]+ \d+(?![^:|,;\s])|[^\s|,;]+?)(?::?\s+|[|,;]\s*)(?P<text>.*)")  # id, then text
QUOTED = re.compile(r"b?(?=(?:'.*'|\".*\")$)['\"](.*)['\"]", re.DOTALL)
FIELD = re.compile(r'"((?:[^"]|"")*)"')
FIELDS = re.compile(r'"(?:[^"\\]|""|\\.)*"(?:\s*[,;\t]\s*"(?:[^"\\]|""|\\.)*")+')  # a row of a table
SURE = re.compile(r"\d\d|_|-\d|[a-z]\d|\d[a-z]")  # of an id, and of no phoneme such as AH0
CODED = re.compile(r"\d|_")  # of most ids, and of hardly any first word


@dataclasses.dataclass(frozen=True)
class Columns:
    """Positions of columns, from 0, by their role."""

    reference: int
    predictions: dict[tuple[str, str], int]  # (condition, mode) -> position
    about: dict[str, list[int]]  # field, such as "subject" -> positions
    notes: tuple[str, ...] = ()

    def used(self, dropped: Collection[str] = ()) -> set[int]:
        """Return the positions of all columns but those of the fields `dropped`."""
        about = (positions for name, positions in self.about.items() if name not in dropped)
        return {self.reference, *self.predictions.values(), *(i for positions in about for i in positions)}

    @property
    def named(self) -> bool:
        """Whether a column or names of columns say what the encoder was fed."""
        return "eval_condition" in self.about or any(condition != UNKNOWN for condition, _ in self.predictions)


FIRST_TWO = Columns(0, {(UNKNOWN, UNKNOWN): 1}, {})


class FirstText(str):
    """The first of several texts of a cell."""


@dataclasses.dataclass
class Table:
    """Rows of named columns, and how they were found.

    `layout` is the letter of `docs/layouts.md`, `kind` the container in words, `titles` are the names as written (None:
    no header), `numbers` the places of the rows in the file, counted in `unit`s. `roles`: what the columns hold, if the
    layout says it. `coded`: each text has an id beside it. `grouped`: an id has several references. `samples`: the
    first row is surely no header. `blocks`: the part of the file, such as a cell of a notebook, of each row; () if
    there is one. `why`: what divides the rows if the layout does not.
    """

    path: epath.Path
    layout: str
    kind: str
    titles: list[str] | None
    rows: Sequence[Sequence[Any]]
    numbers: Sequence[int] = ()  # default: from 1
    unit: str = "line"
    notes: tuple[str, ...] = ()
    roles: Columns | None = None
    coded: bool = False
    grouped: bool = False
    samples: bool = False
    blocks: Sequence[str] = ()
    why: str = ""
    names: list[str] = dataclasses.field(init=False)  # `titles` in the form of `normalize`

    def __post_init__(self) -> None:
        self.names = normalize_names(self.titles or ())
        self.numbers = self.numbers or range(1, len(self.rows) + 1)

    @property
    def width(self) -> int:
        return len(self.titles if self.titles is not None else self.rows[0] if self.rows else ())

    def error(self, what: str, row: int | None = None) -> UserError:
        """Return an error of the table or of a row."""
        return UserError(f"{self.path}{'' if row is None else f', {self.unit} {self.numbers[row]}'}: {what}.")

    def keep(self, places: Sequence[int]) -> "Table":
        """Return the table with these rows."""
        rows, numbers = [self.rows[i] for i in places], [self.numbers[i] for i in places]
        blocks = [self.blocks[i] for i in places] if self.blocks else ()
        return dataclasses.replace(self, rows=rows, numbers=numbers, blocks=blocks)

    def column(self, index: int) -> list[Any]:
        return [row[index] for row in self.rows]

    def shown(self, index: int) -> str:
        """Return a column's name for messages; pandas gives an index an empty one."""
        if self.titles is None:
            return f"column {index + 1}"
        unnamed = f"column {index + 1} (no name)" if index else "the index (column 1)"
        return repr(self.titles[index]) if self.titles[index] else unnamed

    def first_rows(self, room: int = 200) -> str:
        """Return the first two rows, with the header, for messages."""
        samples = [["" if cell is ABSENT else f"{cell!s:.{MOST_OF_CELL}}" for cell in row] for row in self.rows[:2]]
        rows = [*([self.titles] if self.titles is not None else []), *samples][:2]
        return " and ".join(f"'{join_names(row, 20, room, ' | ')}'" for row in rows)


def is_id(values: Sequence[Any], code: re.Pattern[str] = CODED) -> bool:
    """Return whether all values look like ids: distinct, without spaces, with a `code`."""
    texts = [str(value) for value in values]
    return len(set(texts)) == len(texts) and all(code.search(v) and " " not in v for v in texts)


# Tables with a mark between cells.


def csv_table(
    lines: Lines, names: Names, layout: str | None = None, wanted: Sequence[str] = (), *, alone: bool = True
) -> Table | None:
    """Return a CSV with a header (`F`) or without (`H`); None if the lines are no table.

    `wanted` names columns, which tells a header. `alone`: the file should hold both sides; else its lines may be texts
    with commas, so that a table without header needs ids, quotes or tabs.
    """
    stated, above = top_of(lines)
    notes = (f"{above} lines of comments above the table are not used",) if above and not stated else ()
    offered = (stated,) if stated else DELIMITERS if lines.kind == TEXT else DELIMITERS[:1]
    heads = {delimiter: head_of(lines, delimiter, above) for delimiter in (*offered, *(() if alone or stated else BAR))}
    kinds = {TAB: "TSV"}
    for delimiter in sorted(heads, key=lambda one: -len(heads[one])):
        head = normalize_names(heads[delimiter])
        named = [normalize(name) for name in wanted if not name.isdigit()]
        has_wanted = any(name in head for name in named) or (wanted and {*wanted} <= {*head})
        header = layout == "F" and len(head) > 1
        if layout != "H" and (header or has_wanted or names.is_header(head) or lines.kind != TEXT):
            if len(head) == 1:
                return one_column(lines, heads[delimiter][0], above)
            numbers, (titles, *rows) = records_of(lines, delimiter, above)
            return Table(lines.path, "F", kinds.get(delimiter, lines.kind), titles, rows, numbers[1:], notes=notes)
    errors = []
    for delimiter in offered:
        try:
            numbers, rows = records_of(lines, delimiter, above)
        except UserError as error:
            errors.append(error)
            continue
        coded = any(is_id([row[i] for row in rows]) for i in range(len(rows[0])))
        quoted = any(delimiter in field for row in rows for field in row)
        close = quoted or f"{delimiter} ".encode() not in lines.data  # in texts a space follows a comma
        if layout == "H" or alone or coded or delimiter == TAB or (close and len({*map(tuple, rows)}) >= FEW):
            kind = f"{kinds.get(delimiter, lines.kind)} without header"
            return Table(lines.path, "H", kind, None, rows, numbers, samples=layout == "H", notes=notes)
    claimed = layout in ("F", "H") or (alone and lines.path.suffix.lower() in (".csv", ".tsv"))
    if claimed and errors and "at least two columns" not in str(errors[0]):
        raise errors[0]
    return None


def top_of(lines: Lines) -> tuple[str, int]:
    """Return the delimiter that a first line `sep=;` states, or "", and the number of lines above a table."""
    texts = [*itertools.islice(lines, 100)]
    if re.fullmatch(r"sep=[,;\t|]", texts[0]):
        return texts[0][4], 1
    comments = next((i for i, line in enumerate(texts) if line.strip() and line[0] != "#"), 0)
    last, below = texts[comments - 1], texts[comments]
    header = last[1:2] != " " and any(last.count(mark) == below.count(mark) > 0 for mark in DELIMITERS)
    return "", 0 if header or texts[0][:1] != "#" else comments


def head_of(lines: Lines, delimiter: str, above: int) -> list[str]:
    """Return the cells of the first line with content; [] if one is too long for the csv module."""
    line = next((line for line in itertools.islice(lines, above, None) if line), "")
    with contextlib.suppress(csv.Error):
        cells = next(csv.reader([line], delimiter=delimiter), [])
        return between_bars(cells) if delimiter == BAR else cells
    return []


def records(
    lines: Iterable[str], delimiter: str, path: epath.Path, above: int = 0, quotes: bool = True, blank: bool = False
) -> Iterator[tuple[int, list[str]]]:
    """Yield the number of the first line and the cells of each record, without rules of Markdown.

    `blank`: blanks behind delimiters are no part of the cells.
    """
    reader = csv.reader(
        (f"{line}\n" for line in lines),
        delimiter=delimiter,
        strict=True,
        skipinitialspace=blank,
        quoting=csv.QUOTE_MINIMAL if quotes else csv.QUOTE_NONE,
    )
    while True:
        number = reader.line_num + 1 + above
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            raise UserError(f"{path}, line {number}: not a CSV row ({error}); is a quote missing?") from error
        cells = between_bars(cells) if delimiter == BAR else cells
        if delimiter != BAR or not RULE.fullmatch("".join(cells)):
            yield number, cells


def records_of(lines: Lines, delimiter: str, above: int, quotes: bool = True) -> tuple[list[int], list[list[str]]]:
    """Return the number of the first line, and the cells, of each record; blank lines are skipped.

    Between tabs, quotes that close no field are characters of the texts.
    """
    found: dict[int, list[str]] = {}
    width, limit = 0, csv.field_size_limit(sys.maxsize)
    try:
        first = itertools.islice(lines, above, above + 20)
        blank = delimiter in ",;" and any(f'"{delimiter} "' in line for line in first)
        for number, cells in records(itertools.islice(lines, above, None), delimiter, lines.path, above, quotes, blank):
            width = width or len(cells)
            if width > 1 == len(cells) and re.fullmatch(r"[-=_*]{3,}", cells[0]):
                continue  # a ruler below the header
            if cells and len(cells) != width:
                said = f"{len(cells)} fields where the first line has {width}"
                how = "put quotes around fields that hold a delimiter or a line break"
                raise UserError(f"{lines.path}, line {number}: {said}; {how}.")
            if width == 1:
                raise UserError(f"{lines.path}: {NO_TABLE.format(hint=TEXTS_ALONE)}")
            found |= {number: cells} if cells else {}
    except UserError:
        if delimiter == TAB and quotes and b'"' in lines.data and b'\\"' not in lines.data:
            with contextlib.suppress(UserError):
                return records_of(lines, delimiter, above, False)
        raise
    finally:
        csv.field_size_limit(limit)
    if not found:
        raise UserError(f"{lines.path}: {NO_TABLE.format(hint=TEXTS_ALONE)}")
    return [*found], [*found.values()]


def between_bars(cells: list[str]) -> list[str]:
    """Return the cells of a line in Markdown, without what is outside of its first and last bar."""
    cells = [cell.strip() for cell in cells]
    return cells[1:-1] if len(cells) > 2 and not cells[0] and not cells[-1] else cells


# Lines of text.


def line_texts(lines: Lines) -> list[str]:
    """Return all lines, without the empty one behind the last line end."""
    texts = list(lines)
    return texts[:-1] if texts and not texts[-1] else texts


def single_cells(texts: Sequence[str], mark: str, path: epath.Path) -> list[list[str]]:
    """Return the rows of a CSV of one column, without quotes; [] if the texts are none."""
    with contextlib.suppress(UserError):
        rows = [cells or [""] for _, cells in records(texts, mark, path)]
        return rows if all(len(cells) == 1 for cells in rows) else []
    return []


def one_column(lines: Lines, name: str, above: int = 0) -> Table:
    """Return the lines below the header `name`."""
    texts = line_texts(lines)[above + 1 :]
    escaped = [text.replace('\\"', '"') for text in unquoted(texts)] if b'\\"' in lines.data else texts
    mark = BAR if all(text.startswith(BAR) for text in texts) else NO_MARK
    rows = single_cells(texts, mark, lines.path) or [[text] for text in escaped]
    kind = f"one text per line below the header {name!r}"
    return Table(lines.path, "P", kind, [name], rows, range(above + 2, above + len(rows) + 2))


def text_lines(path: epath.Path, texts: Sequence[str]) -> Table:
    """Return whole lines as texts."""
    return Table(path, "P", "one text per line", None, [[text] for text in texts])


def lines_table(lines: Lines, names: Names, *, by_id: bool = False) -> Table:
    """Return the lines as texts, split from their ids if every line has one (`ID text` or `text (ID)`).

    A first line such as `id text` is a header. Ids before tabs need no digit. `by_id`: ids may recur.
    """
    texts, suffix = line_texts(lines), lines.path.suffix.lower()
    if table := marked_table(lines.path, texts):
        return table
    if len(texts) > 1 and all(map(FIELDS.fullmatch, filter(str.strip, texts))):
        how = "name the columns of texts with --columns, or say --format=P if whole lines are texts"
        raise UserError(f"{lines.path}: quoted fields without known names, such as {texts[0]!r:.80}; {how}.")
    if suffix == ".csv" and any(text[:1] == '"' for text in texts):
        texts = [cell for (cell,) in single_cells(texts, NO_MARK, lines.path)] or texts
    if suffix in (".json", ".jsonl"):
        strings = [*map(literal, texts)]
        texts = strings if all(isinstance(text, str) for text in strings) else texts
    texts = unquoted(texts)
    head = normalize_names(texts[0].split()) if texts else []
    headed = len(head) == 2 and head[0] in names.keys and names.is_text(head[1])
    filled = [text for text in texts[headed:] if text.strip()]
    behind, before = ([*map(form.fullmatch, filled)] for form in (TRN, KEYED))
    found = behind if all(behind) else before
    ids = [match["id"] if match else text for match, text in zip(found, filled, strict=True)]
    tabbed = 2 * sum(text.partition("\t")[0] == key for text, key in zip(filled, ids, strict=True) if "\t" in text)
    spoken = sum(bool(match and match["text"]) for match in found)
    # First phonemes recur more often; a word with a digit is no id without a text.
    many = 2 * len({*ids}) > len(ids) and (spoken > 1 or 2 * spoken > len(ids))
    words = [word for match in found if match for word in match["text"].split()]
    likely = all(map(SURE.search, ids)) and 2 * sum(map(bool, map(SURE.search, words))) < len(words)
    if not (many or by_id) and spoken == len(ids) and 1 < len({*ids}) < spoken and likely:
        said = f"each line has what may be an id, such as {ids[0]!r:.40}, and some recur"
        raise UserError(f"{lines.path}: {said}; say --format=K to join by these, or --format=P if they are words.")
    if not (many or by_id) or not (tabbed > len(ids) or all(map(CODED.search, ids))):
        return text_lines(lines.path, texts)
    texts = unquoted([match["text"] if match else "" for match in found])
    for i, match in enumerate(found):
        before = match.string[: match.start("text")].rstrip() if match else ""
        quoted = FIELD.fullmatch(texts[i]) if before.endswith((",", ";", "|")) else None
        texts[i] = quoted[1].replace('""', '"') if quoted else texts[i]
    return Table(lines.path, "P", "texts by id", None, [*zip(ids, texts, strict=True)], coded=True)


def unquoted(texts: list[str]) -> list[str]:
    """Return texts without quotes if several are all in quotes (`'a'`, `"a"`, `b'a'`)."""
    inner = [QUOTED.fullmatch(text) for text in texts]
    return [found[1] for found in inner] if len(texts) > 1 and all(inner) else texts


def untagged(text: str) -> str:
    """Return a text of XML without its tags, entities and further white space."""
    return " ".join(html.unescape(re.sub(r"<[^>]*>", "", text)).split())


def marked_table(path: epath.Path, lines: Sequence[str]) -> Table | None:
    """Return the texts of a file of `MARKED`, or those by id of a label file of HTK (`.mlf`)."""
    text = "\n".join(lines) + "\n"
    filled = [line for line in lines if line.strip() and not COMMENT.match(line)]
    if text.startswith("#!MLF!#\n"):
        bodies = [(key, body.partition("\n///")[0]) for key, body in HTK.findall(text)]
        rows = [(key, " ".join(HTK_WORD.findall(body))) for key, body in bodies]
        return Table(path, "P", "texts by id", None, rows, coded=True)
    for kind, pattern in MARKED.items():
        tagged = kind in TAGGED
        searched = re.sub(r"(?s)<src\b.*?</src>", "", text) if tagged else text
        found = [*pattern.finditer(searched)]
        # One alone may be a word of a text, unless only tags, numbers and the head of WebVTT stand beside it.
        alone = tagged and len(found) == 1 and not BESIDE.sub("", pattern.sub("", searched)).strip()
        if alone or (len(found) > 1 and (tagged or len(found) == len(filled))):
            rows = [[untagged(one["text"]) if tagged else " ".join(one["text"].split())] for one in found]
            ids = [one.groupdict().get("id") for one in found]
            if None in ids or len({*ids}) < len(ids):
                return Table(path, "P", kind, None, rows)
            return Table(path, "P", kind, ["id", "text"], [[key, *row] for key, row in zip(ids, rows, strict=True)])
    if filled and all(map(NIST.fullmatch, filled)):
        raise UserError(f"{path}: a file of NIST (.ctm, .stm), with times; write a text on each line, or `ID text`.")
    return None


# JSON.


def json_table(lines: Lines, names: Names, *, alone: bool) -> Table | None:
    """Return the rows of JSON lines or of a JSON text (see `table_of`); None if the file is neither."""
    start = lines.data.lstrip()[:1]
    if start not in (b"{", b"[", b"("):
        return None
    filled = {number: line for number, line in enumerate(lines, 1) if line.strip()}
    first, *others = filled.values()
    ends = [line.strip(" ,") for line in filled.values()]
    if others and all(line[:1] + line[-1:] in ("[]", "()") for line in ends):
        rows = [list(row) if isinstance(row := literal(line), list | tuple) else row for line in ends]
        if form_of(rows) == "rows" and {type(cell) for row in rows for cell in row} == {str}:
            titled = len(rows) > 1 and names.is_header(normalize_names(rows[0]))
            titles, rows = (rows[0], rows[1:]) if titled else (None, rows)
            numbers = range(titled + 1, len(rows) + titled + 1)
            return Table(lines.path, "J", "a list on each line", titles, rows, numbers, "row")
    if others and start == b"{" and 2 * sum(line.startswith("{") for line in filled.values()) >= len(filled):
        of_python = {number: literal(line) for number, line in filled.items() if line.startswith("{'")}
        dicts = [of_python.get(n) or parse_object(line, f"{lines.path}, line {n}") for n, line in filled.items()]
        dicts = [{str(name): value for name, value in row.items()} for row in dicts]
        return objects_table(dicts, lines.path, names, "JSON lines", [*filled])
    if start == b"(":
        return None
    text = "\n".join(lines)
    try:
        content: Any = DECODER.decode(text)
    except (ValueError, RecursionError) as error:
        content = literal(text) if start == b"[" else None  # as Python prints it
        if not isinstance(content, list):
            extra = getattr(error, "msg", "") == "Extra data" and getattr(error, "lineno", 0) == 1
            begins = re.match(r'\[\s*(?:[\[{"\]]|-?\d+\s*[,\]])', "\n".join((first, *others[:2])))
            if (start == b"[" and (extra or not begins)) or not (alone or re.search(r'" ?:', first)):
                return None  # a text or a log may begin with a bracket
            reason = getattr(error, "msg", str(error))
            place = f", line {error.lineno}" if isinstance(error, json.JSONDecodeError) else ""
            raise UserError(f"{lines.path}{place}: not JSON ({reason}); the file may be cut short.") from error
    return table_of(content, lines.path, names, alone=alone)


def literal(text: str) -> Any:
    """Return the value of a text of JSON or Python, None for another text."""
    for read in (DECODER.decode, ast.literal_eval):
        with contextlib.suppress(ValueError, SyntaxError, RecursionError, MemoryError, TypeError):
            return read(text.strip())
    return None


def form_of(value: Any) -> str:
    """Return what a JSON value may be, "" if nothing: of lists, "objects", "rows", "texts" or another "list".

    Of objects: "split" (a table of wandb or pandas), "keyed" (objects by key), "lists" by name or another "object".
    """
    if isinstance(value, list) and value:
        kinds = {*map(type, value)}
        if kinds == {list} and len({*map(len, value)}) == 1 and len(value[0]) > 1:
            return "rows"
        return "objects" if kinds == {dict} else "texts" if kinds == {str} else "list"
    if not isinstance(value, dict) or not value:
        return ""
    columns, rows = value.get("columns"), value.get("data")
    wide = isinstance(columns, list) and isinstance(rows, list) and len(columns)
    if wide and rows and all(isinstance(row, list) and len(row) == wide for row in rows):
        return "split"
    if len(value) > 1 and all(isinstance(inner, dict) for inner in value.values()):
        return "keyed"
    return "lists" if sum(isinstance(inner, list) and bool(inner) for inner in value.values()) > 1 else "object"


def rows_of(value: Any, names: Names) -> tuple[str, list[dict[str, Any]]]:
    """Return the kind and the rows of a JSON value, "" and [] if it is no table."""
    form = form_of(value)
    if form == "objects":
        return "JSON list", value
    if form == "split":
        return "JSON list", [dict(zip(value["columns"], row, strict=True)) for row in value["data"]]
    numbered = form == "keyed" and all([*of] == [*map(str, range(len(of)))] for of in value.values())  # by pandas
    if form == "keyed" and not numbered and sum(map(names.is_usual, normalize_names(value))) < 2:
        name = "index" if [*value] == [*map(str, range(len(value)))] else "key"
        return "JSON objects by key", [{**({} if name in row else {name: key}), **row} for key, row in value.items()]
    columns = [*value.values()] if form == "keyed" else []  # as pandas writes a table
    if columns and all(column.keys() == columns[0].keys() for column in columns):
        return "JSON objects by key", [{name: column[key] for name, column in value.items()} for key in columns[0]]
    return "", []


def table_of(content: Any, path: epath.Path, names: Names, *, alone: bool) -> Table:
    """Return the rows of a JSON value.

    Forms: a list of objects, of texts or of lists; lists by name; objects or texts by id; one of these under a name;
    tables of pandas and wandb; results and annotations of COCO.
    """
    form, (kind, rows) = form_of(content), rows_of(content, names)
    if form in ("lists", "object") and form_of(content.get("annotations")) == "objects":
        keys = ("image_id", "caption")
        if {*keys} <= {*content["annotations"][0]}:
            rows = [{key: row.get(key, ABSENT) for key in keys} for row in content["annotations"]]
            return dataclasses.replace(objects_table(rows, path, names, "COCO annotations"), grouped=True)
    if kind != "JSON list" and (lists := [*lists_in(content, names, 1 + alone)]):
        table = objects_table([row for _, of in lists for row in of], path, names, "JSON lists of objects")
        places = [at for at, of in lists for _ in of]
        blocks = [places[number - 1] for number in table.numbers]
        return dataclasses.replace(table, blocks=blocks if len({*blocks}) > 1 else ())
    if rows:
        return objects_table(rows, path, names, kind)
    lists = [*lists_in(content, names, 0)] if form in ("object", "list") else []
    lists = [(at, of) for at, of in lists if at.count(".") == min(at.count(".") for at, _ in lists)]
    if len(lists) == 1:
        ((at, rows),) = lists
        return objects_table(rows, path, names, f"JSON list under {at!r}" if at else "JSON list within a list")
    if form == "object":
        named = [v for n, v in content.items() if isinstance(v, list) and names.is_text(normalize(n)) and not alone]
        forms = [[v for v in content.values() if form_of(v) == of] for of in ("split", "lists", "keyed")]
        inner = next(filter(None, [*forms, named]), [])
        if len(inner) == 1:
            return table_of(inner[0], path, names, alone=alone)
    if form == "lists" and (rows := columns_of(content, path, names, alone=alone)):
        return objects_table(rows, path, names, "JSON lists by name")
    if isinstance(content, dict) and content:
        named, kinds = any(map(names.is_usual, normalize_names(content))), {*map(type, content.values())}
        if not alone or (kinds <= {str, list} and len(content) > 1 and not named):
            return Table(path, "K", "texts by id", None, [*content.items()], unit="item", coded=True)
        if dict not in kinds and (named or list not in kinds):
            return objects_table([content], path, names, "JSON object")
    if form == "rows" and alone:
        titled = all(isinstance(cell, str) for cell in content[0]) and names.is_header(normalize_names(content[0]))
        if titled and len(content) > 1:
            numbers = range(2, len(content) + 1)
            return Table(path, "J", "JSON list below names", content[0], content[1:], numbers, "item")
        return Table(path, "J", "JSON list without names", None, content, unit="item")
    if form == "texts" or (form in ("rows", "list") and not alone):
        return Table(path, "P", "JSON list of texts", None, [[item] for item in content], unit="item")
    wanted = "a list of objects, each with a reference and a prediction, or a list of references and one of predictions"
    raise UserError(f"{path}: JSON without predictions; expected {wanted}.")


def columns_of(content: dict[str, Any], path: epath.Path, names: Names, *, alone: bool) -> list[dict[str, Any]]:
    """Return the rows of lists by name, [] if these are texts by id."""
    lists = {name: value for name, value in content.items() if isinstance(value, list)}
    lengths = {*map(len, lists.values())}
    columns = len(lengths) == 1 < max(lengths) and len(lists) < max(4 * FEW, *lengths)
    columns = columns or {type(text) for of in lists.values() for text in of} != {str}
    if not (alone and columns) and not any(map(names.is_text, normalize_names(content))):
        return []
    if len(lengths) > 1:
        listed = join_names([f"{name}: {len(value)}" for name, value in lists.items()])
        wanted = "expected one item for each sample in each list"
        raise UserError(f"{path}: lists of different lengths ({listed}); {wanted}.")
    return [dict(zip(lists, row, strict=True)) for row in zip(*lists.values(), strict=True)]


def lists_in(content: Any, names: Names, fewest: int) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Yield the place and the rows of each list of objects with at least `fewest` texts, or of as many lists by name.

    Lists by name count only within another object.
    """
    waiting = [("", content)]
    while waiting:
        at, value = waiting.pop()
        if isinstance(value, dict):
            inner = [(f"{at}.{name}".lstrip("."), v) for name, v in value.items() if name.lower() not in CHATS]
            lists = {n: v for n, v in value.items() if names.is_text(normalize(n)) and form_of(v) == "texts"}
            whole = at and len({*map(len, lists.values())}) == 1
            if whole and len(lists) >= fewest > 1:
                yield at, [dict(zip(lists, row, strict=True)) for row in zip(*lists.values(), strict=True)]
        else:
            items = value if isinstance(value, list) else []
            counts = [sum(map(names.is_text, normalize_names(i))) if isinstance(i, dict) else -1 for i in items]
            if held := min(counts, default=-1) >= 0 and max(counts) >= fewest:
                yield at, items
            inner = [(at, item) for item in items if not held]
        waiting += inner[::-1]


def objects_table(
    rows: Sequence[dict[str, Any]], path: epath.Path, names: Names, kind: str, numbers: Sequence[int] = ()
) -> Table:
    """Return JSON objects as a table with the names of the first; a chat becomes the side that is missing.

    `numbers`: the lines of the objects; () if they are items of a list.
    """
    unit = "line" if numbers else "item"
    notes: dict[str, None] = {}
    both = [i for i, row in enumerate(rows) if sum(map(names.is_text, normalize_names(row))) > 1]
    if both and both[0] > 0 and len(both) > 1:  # a log, whose first objects hold figures
        places = numbers or range(1, len(rows) + 1)
        notes[f"{len(rows) - len(both)} {unit}s without two texts are not used, such as {unit} {places[0]}"] = None
        rows, numbers = [rows[i] for i in both], [places[i] for i in both]
    plain = [without_chat(row, names, notes) for row in rows]
    where = f"{path}, {unit} {next(iter(numbers), 1)}"
    if len({*normalize_names(plain[0])}) < len(plain[0]):
        raise UserError(f"{where}: two names differ only in case or spaces; rename one of them.")
    chat, _ = turns_of(plain[0])
    if chat and len(plain[0]) <= 2:
        how = 'write one row of reference and prediction per line, such as {"reference": "...", "prediction": "..."}'
        raise UserError(f"{where}: no turn of the chat {chat!r} is known to be the reference or prediction; {how}.")
    flats = [dict(flat(row, names)) for row in plain]
    cells = [[row.get(title, ABSENT) for title in flats[0]] for row in flats]
    return Table(path, "J", kind, [*flats[0]], cells, numbers, unit, tuple(notes))


def flat(row: dict[str, Any], names: Names, above: str = "", more: bool = False) -> Iterator[tuple[str, Any]]:
    """Yield names and values of a row, of objects in it, and of the first object of a list."""
    for name, value in row.items():
        listed = isinstance(value, list) and value and all(isinstance(item, dict) for item in value)
        inner = value[0] if listed and not names.is_text(normalize(name)) else value  # not of the n best
        if isinstance(inner, dict):
            yield from flat(inner, names, f"{above}{name}.", more or (inner is not value and len(value) > 1))
        else:
            yield above + name, FirstText(value) if more and isinstance(value, str) else value


CHATS = ("messages", "conversations", "conversation", "chat", "dialogue")
ASSISTANTS = ("assistant", "gpt", "model", "bot")
NUMBERED = re.compile(r"^\s*(?:\d+[.):]|[-*•])\s*")
CANDIDATES = "of the candidates in a user's message the first is the prediction, the assistant's text is the reference"


def without_chat(row: dict[str, Any], names: Names, notes: dict[str, None]) -> dict[str, Any]:
    """Return a row with the assistant's last message, in place of its chat, as the missing reference or prediction.

    If both are missing, candidates (n best) in the user's message are the prediction.
    """
    chat, turns = turns_of(row)
    if not chat:
        return row
    rest = {name: value for name, value in row.items() if name != chat}
    titles = normalize_names(rest)
    reference, prediction = (any(names.form(side, name) for name in titles) for side in SIDES)
    reference = reference or (prediction and not {"label", "labels"}.isdisjoint(titles))
    said = [text for role, text in turns if role in ASSISTANTS]
    if reference and prediction:
        return rest
    if reference or prediction:
        return {**rest, "prediction" if reference else "reference": said[-1] if said else ""}
    asked = [text for role, text in turns if role not in (*ASSISTANTS, "system")]
    candidates = candidates_in(asked[-1]) if asked and len(said) == 1 and isinstance(asked[-1], str) else []
    if not candidates:
        return row
    notes[CANDIDATES] = None
    return {**rest, "reference": said[0], "prediction": candidates}


def candidates_in(text: str) -> list[str]:
    """Return candidates for one text, one a line or apart by `;`; [] if a message lists none."""
    lines = [line for line in text.split("\n") if line.strip()]
    numbered = [line for line in lines if NUMBERED.match(line)]
    lines = numbered if len(numbered) > 1 else lines if len(lines) > 1 else text.split(";")
    candidates = [*filter(None, (NUMBERED.sub("", line).strip(" ;\"'") for line in lines))]
    words = [set(text.lower().split()) for text in candidates]
    alike = all(3 * len(words[0] & other) >= len(words[0] | other) for other in words[1:])
    return candidates if len(candidates) > 1 and alike else []


def turns_of(row: dict[str, Any]) -> tuple[str, list[tuple[str, Any]]]:
    """Return the name of a row's chat, and the roles and texts of its messages; "" without a chat."""
    for name, messages in row.items():
        if name.lower() in CHATS and isinstance(messages, list) and all(isinstance(m, dict) for m in messages):
            roles = [str(message.get("role", message.get("from", ""))).lower() for message in messages]
            texts = [message.get("content", message.get("value", message.get("text", ""))) for message in messages]
            for i, text in enumerate(texts):
                if isinstance(text, list) and all(isinstance(part, dict) for part in text):
                    parts = [part.get("text", "") for part in text]
                    texts[i] = "".join(part for part in parts if isinstance(part, str))
            if all(roles):
                return name, [*zip(roles, texts, strict=True)]
    return "", []
