"""Logs, outputs of notebooks and pages as plain lines; the tables among them; their parts."""

import contextlib
import csv
import functools
import html
import itertools
import json
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from eeg2text_jax.instrument.predictions._containers import QUOTED, RULE, Table, between_bars, literal
from eeg2text_jax.instrument.predictions._names import Names, normalize_names
from eeg2text_jax.instrument.predictions._samples import parse_list
from eeg2text_jax.instrument.predictions.columns import NUMBERS, holds_words, spaced
from eeg2text_jax.instrument.predictions.packed import TEXT, Lines

PAGE = re.compile(rb"\s*<(?:!doctype html|html|table)\b", re.IGNORECASE)
NOTEBOOK = b'"nbformat"'
ESCAPE = re.compile(r"\x1b\[[0-9;]*m|\x08")
# Bars of tqdm, with a description that begins a line, or of Keras.
PROGRESS = re.compile(
    r"(^[^:|]{0,40}:)? {0,9}(?<!\d)\d{1,3}%\|[^|]*\| {0,9}[\d.]+\w*/[\d.?]+\w* {0,9}\[[^\]]*\]"
    r"|(?<!\d)\d{1,9}/\d{1,9} {1,9}(?:\[[=>.]*\]|\u2501+)[ -]*(?:ETA: )?(?:[\d:.]+ ?[mu\u03bc]?s?)?"
    r"(?: [\d.]+[mu\u03bc]?s/\w+)?",
    re.MULTILINE,
)
TENSOR = re.compile(  # texts as TensorFlow prints them
    r"<tf\.Tensor: [^>]*?numpy=(?:array\()?(b?'[^'>]*'|b?\"[^\">]*\"|\[[^>]*?\])(?:, dtype=object)?\)?>"
    r"|tf\.Tensor\(\s*(b?'[^']*'|b?\"[^\"]*\"|\[.*?\]), shape=\([\d, ]*\), [^)]*\)",
    re.DOTALL,
)
SERIES = re.compile(r"^\d+ {2,}(.*)\nName: .*, dtype: object$", re.MULTILINE)  # one text as pandas prints a Series
# Also `[20000/300000] Train loss: 0.3`; `[3/500]` without a figure of training is of a sample.
EPOCH = re.compile(
    r"\b(epoch|step|iteration)\b\D{0,6}(\d+)|^\s*\[(\d+)/\d+\](?=.*\b(?:loss|acc|accuracy|lr|train|valid)\b)",
    re.IGNORECASE,
)
SAVED = re.compile(r"\bsav(?:ing|ed)\b", re.IGNORECASE)  # of an epoch that has ended
HEADING = re.compile(  # in Markdown, between marks, or before a colon
    r"\s*(?:#{1,6}\s+(.*\w.*)|([=*~#_-]{2,})\s*([^\W\d].{0,60}?)\s*[=*~#_-]{2,}|(?!Traceback)([^\W\d][^:|]{0,60}):)\s*"
)
FIGURE = re.compile(r"[:=]\s*[\d.]+\s*%?\s*$")  # ends no heading
HEAD = re.compile(r"([A-Za-z][\w ()\[\]/.+-]{0,48}?)\s*:")  # a possible label
MARKED = re.compile(
    rf"{HEAD.pattern[:-1]}(?::|[<>=](?=[\s\['\"])|->|(?<=\s)-\s)|([=<>]) (?=\w)|\u3010([^\u3011]{{1,40}})\u3011"
)
NUMBER = re.compile(r"(?<!\w)#?\d+(?!\w)")
INSTALLING = {"Requirement already satisfied", "Looking in indexes", "Installing collected packages"}  # of pip
BARS = re.compile(r"(?<!\\)\|")
BOX = re.compile(r"\s*[\u2502\u2503].*[\u2502\u2503]\s*")  # a row of rich or polars
DOTS = re.compile(r"\.\.+")  # rows that pandas leaves out
BETWEEN = (" ||| ", " || ", "\t", " | ", " -> ", " => ")  # two texts without labels
# In `key >> [text] (text)`: brackets beside a space or an end, and marks alone.
MARK = r"(?:[][(){}]|(?<![^ ])[<>=~]+(?![^ ]))"
MARKS = re.compile(r"(?:^| )M+(?: M+)* ?|M+(?:(?: M+)+ ?| |$)".replace("M", MARK))
LONGEST = 2000  # characters of such a line
QUOTE = r"(\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*')"
AMONG, PAIRS, LISTS = "a table among other lines", "pairs of quoted texts", "lists of tokens below each other"
QUOTED_PAIR = re.compile(rf"\({QUOTE}, {QUOTE}\)")
WHICH = ", and with --block=last or all which parts count"  # in messages
FEWEST = 2  # pairs among other lines


Rows = list[tuple[int, list[str]]]  # line, cells


class Text:
    """The lines of a log, a notebook or a page (HTML), without escapes and progress bars.

    `kind` says which, "" for a file of lines; `cells` has each line's cell of a notebook.
    """

    def __init__(self, file: Lines) -> None:
        self.path, self.kind, self._file = file.path, "", file
        self.cells: Sequence[str] = ()
        if file.kind == TEXT and PAGE.match(file.data):
            self.kind, self.lines = "a page, ", plain_lines(shown_text({"text/html": "\n".join(file)}))
        if file.kind == TEXT and NOTEBOOK in file.data:
            with contextlib.suppress(ValueError, RecursionError, LookupError, TypeError, AttributeError):
                cells = json.loads("\n".join(file))["cells"]
                outputs = [
                    (f"cell {i}", output) for i, cell in enumerate(cells, 1) for output in cell.get("outputs") or []
                ]
                lines = [(line, cell) for cell, output in outputs for line in plain_lines(output_text(output))]
                self.lines, self.cells = [line for line, _ in lines], [cell for _, cell in lines]
                self.kind = "printed outputs of a notebook, "

    @functools.cached_property
    def lines(self) -> list[str]:
        return plain_lines("\n".join(self._file))

    def parts(
        self, numbers: Sequence[int], used: Collection[int], *tables: Sequence[str], headed: bool = True
    ) -> list[str]:
        """Return the part of the text (cell, epoch, section) of each pair, by its line; [] if there is one part.

        `used` are the lines of all pairs, `tables` further parts of each. Parts other than epochs count if there are at
        most half as many as pairs. `headed`: headings divide the text.
        """
        parts: dict[int, tuple[str, str]] = {}  # line -> epoch and section
        now, seen = ["", ""], set()
        heads = [(mark, line.strip()) for line in self.lines if (mark := HEAD.match(line.strip()))]
        labels = {mark[1] for mark, line in heads if mark.end() < len(line)}
        for number, line in enumerate(self.lines, 1):
            said, which = "", 1
            if number not in used and (epoch := EPOCH.search(line)) and not SAVED.search(line):
                said, which = f"{(epoch[1] or 'step').lower()} {epoch[2] or epoch[3]}", 0
            elif number not in used and headed and (title := heading(self.lines, number - 1)) and title not in labels:
                said = repr(title[:40])
            if said not in ("", now[which]):
                now[which] = f"{said} of line {number}" if said in seen else said
                seen.add(said)
            parts[number] = now[0], now[1]
        columns: list[Sequence[str]] = [[parts[n][which] for n in numbers] for which in (0, 1)]
        columns += [[self.cells[n - 1] for n in numbers] if self.cells else [""] * len(numbers), *tables]
        counted = [c for i, c in enumerate(columns) if len({*c}) > 1 and (i == 0 or 2 * len({*c}) <= len(c))]
        return [", ".join(filter(None, row)) or "before it" for row in zip(*counted, strict=True)]


def heading(lines: Sequence[str], i: int) -> str:
    """Return the words of a heading, also of one above a ruler; "" for another line."""
    found = HEADING.fullmatch(lines[i])
    ruled = re.fullmatch(r"\s*[=~*#-]{3,}\s*", "".join(lines[i + 1 : i + 2])) and re.match(r"\s*[^\W\d]", lines[i])
    ruled = ruled and not FIGURE.search(lines[i])
    return (found[1] or found[3] or found[4]).strip() if found else lines[i].strip() if ruled else ""


def plain_lines(text: str) -> list[str]:
    """Return the lines as a terminal shows them, without colors and bars of progress."""
    if "\x1b" in text or "\x08" in text:
        text = ESCAPE.sub("", text)
    if re.search(r"%\||\d [\[\u2501]", text):
        text = re.sub(r"[^\n\r]*\r(?=[^\n\r])", "", text)  # overwritten
        text = PROGRESS.sub(lambda bar: bar[1] if bar[1] and EPOCH.search(bar[1]) else "", text)
    if "tf.Tensor" in text:
        text = TENSOR.sub(lambda m: " ".join(((QUOTED.fullmatch(m[1] or m[2]) or m)[1] or m[2]).split("\n")), text)
    return text.splitlines()


def output_text(output: Mapping[str, Any]) -> str:
    """Return what an output shows; a Series of one text is the text."""
    text = output.get("text") or shown_text(output.get("data", {}))
    text = SERIES.sub(r"\1", "".join(map(str, text)) if isinstance(text, list) else str(text))
    return re.sub(r"(?<=>),\n +(?=<tf)", ", ", text)  # lists of tensors


def shown_text(data: Mapping[str, Any]) -> str:
    """Return the plain text, or HTML without its tags if it has tables, or if the plain text names an object."""
    plain, page = ("".join(data.get(f"text/{kind}", "")) for kind in ("plain", "html"))
    if not page or (plain and "<table" not in page and not re.match(r"<IPython|<[\w. ]+ at 0x", plain)):
        return plain
    page = re.sub(r"<tr.*?</tr>", barred, re.sub(r"<style.*?</style>", "", page, flags=re.DOTALL), flags=re.DOTALL)
    return html.unescape(re.sub(r"<[^>]*>", "", re.sub(r"<br ?/?>|</(?:p|div|tr|li|h\d)>", "\n", page)))


def barred(row: re.Match[str]) -> str:
    """Return a row of a table in HTML as one of Markdown, a header with a rule."""
    cells = re.findall(r"<(t[hd])\b[^>]*>(.*?)</t[hd]>", row[0], re.DOTALL)
    texts = [" ".join(re.sub(r"<[^>]*>", " ", text).split()).replace("|", r"\|") for _, text in cells]
    return f"| {' | '.join(texts)} |\n" + "|---|\n" * all(kind == "th" for kind, _ in cells)


def tables_among(text: Text, names: Names, wanted: Sequence[str] = ()) -> Iterator[Table]:
    """Yield the tables among other lines, and the lines of two texts with a mark between.

    A header stands above a rule of Markdown, or has names of both sides or the `wanted` ones. A table printed twice
    counts once, where it stands last.
    """

    def is_head(row: Sequence[str]) -> bool:
        plain = normalize_names(row)
        return names.has_both(plain) or (bool(wanted) and {*normalize_names(wanted)} <= {*plain})

    boxed = (re.sub("[\u2502\u2503\u2506]", "|", line) if BOX.fullmatch(line) else line for line in text.lines)
    lines = unfolded([*boxed])
    filled = {i for i, line in enumerate(lines, 1) if re.search(r"\w", line)}

    def table(kind: str, titles: Sequence[str] | None, parts: Mapping[int, Rows], tall: int = 1) -> Table:
        """Return the tables as one; `parts`: line of a header -> rows of `tall` lines."""
        distinct = {repr([row for _, row in of]) if kind == AMONG else top: top for top, of in parts.items()}
        whole = [(top, *row) for top in sorted(distinct.values()) for row in parts[top]]
        found = [(top, number, row) for top, number, row in whole if not DOTS.fullmatch("".join(row))]
        numbers, rows = [number for _, number, _ in found], [row for *_, row in found]
        used = {number + k for of in parts.values() for number, _ in of for k in range(tall)} | parts.keys()
        cut = sum(len(cell) > 40 and cell.endswith("...") for row in rows for cell in row)
        notes = [f"{cut} cells end with '...': pandas cut their texts; write whole ones, as with to_csv"] * bool(cut)
        notes += ["rows are left out where '...' stands: pandas cut the table"] * (len(rows) < len(whole))
        notes += [f"{lost} other lines are not used" for lost in [len(filled - used)] if lost]
        blocks = text.parts(numbers, used, [f"table of line {top}" for top, *_ in found])
        layout, kind, heads = ("F" if titles else "H"), f"{text.kind}{kind}", [*titles] if titles else None
        samples = not titles
        return Table(text.path, layout, kind, heads, rows, numbers, notes=(*notes,), samples=samples, blocks=blocks)

    for titles, parts in [*barred_tables(lines, is_head).items(), *frames(lines, is_head).items()]:
        if any(parts.values()):
            yield table(AMONG, titles, {top: [*of.items()] for top, of in parts.items()})
    for kind, found in without_header(lines):
        legends = (row for _, row in found if kind not in (PAIRS, LISTS) and names.has_both(normalize_names(row)))
        legend, top, below = next(legends, None), 0, defaultdict[int, Rows](list)
        for number, row in found:
            top = number if row == legend else top
            below[top] += [(number, row)] * (row != legend)
        if sum(map(len, below.values())) >= FEWEST:
            yield table(kind, legend, below, len(found[0][1]) if kind == LISTS else 1)


def without_header(lines: Sequence[str]) -> Iterator[tuple[str, Rows]]:
    """Yield lines of texts without labels: what stands between the texts, and rows."""
    for mark in BETWEEN:
        marked = [(i, [*map(str.strip, line.split(mark))]) for i, line in enumerate(lines, 1)]
        marked = [(i, pair) for i, pair in marked if lines[i - 1][:1] != "|" and not RULE.fullmatch(lines[i - 1])]
        kind = f"lines of two texts with {mark.strip() or 'a tab'!r} between"
        yield kind, [(i, pair) for i, pair in marked if len(pair) == 2 and all(pair)]
    forms: dict[tuple[str, ...], Rows] = {}
    for i, line in enumerate(lines, 1):
        plain = " ".join(line.split()) if len(line) < LONGEST and line[:1] != "|" else ""
        form = (*(mark[0].strip() for mark in MARKS.finditer(plain)),)
        if len(form) > 2 and plain.partition(":")[0] not in INSTALLING:  # of fewer marks, prose may be
            forms.setdefault(form, []).append((i, MARKS.sub("\t", plain).split("\t")))
    for form, rows in sorted(forms.items(), key=lambda item: -len(item[1]))[:1]:
        kept = [k for k in range(len(form) + 1) if any(row[k] for _, row in rows)]
        yield f"lines of texts with {' ... '.join(form)!r} between", [(i, [row[k] for k in kept]) for i, row in rows]
    commas: dict[int, Rows] = {}  # number of cells -> lines that begin with a number
    for i, line in enumerate(lines, 1):
        cells = next(csv.reader([line])) if line.count(",") > 1 and len(line) < LONGEST else []
        if len(cells) > 2 and NUMBERS.fullmatch(cells[0]):
            commas.setdefault(len(cells), []).append((i, cells))
    yield from ((f"lines of {n} cells with ',' between", rows) for n, rows in commas.items())
    quoted = ((i, QUOTED_PAIR.findall(line)) for i, line in enumerate(lines, 1) if re.search(r"\(['\"]", line))
    yield PAIRS, [(i, [*map(literal, pair)]) for i, of_line in quoted for pair in of_line]
    lists = [i for i, line in enumerate(lines, 1) if line[:2] in ("['", '["') and parse_list(line)]
    runs = [[i for _, i in run] for _, run in itertools.groupby(enumerate(lists), key=lambda item: item[1] - item[0])]
    for size, _ in Counter(len(run) for run in runs if 1 < len(run) < 5).most_common(1):
        yield LISTS, [(run[0], [lines[i - 1] for i in run]) for run in runs if len(run) == size]


Tables = dict[tuple[str, ...], dict[int, dict[int, list[str]]]]  # header -> its line -> line -> cells


def barred_tables(lines: Sequence[str], is_head: Callable[[Sequence[str]], bool]) -> Tables:
    """Return the tables with `|` between their cells."""
    cells = [between_bars(BARS.split(line)) if "|" in line else [] for line in lines]
    ruled = ["|" in line and bool(RULE.fullmatch(line)) for line in (*lines, "")]
    known: Tables = {}
    head: tuple[str, ...] = ()
    for i, row in enumerate(cells):
        if len(row) > 1 and not ruled[i] and (ruled[i + 1] or tuple(row) in known or is_head(row)):
            head = tuple(row)
            known.setdefault(head, {})[i + 1] = {}
        elif len(row) == len(head) > 1 and not ruled[i]:
            [*known[head].values()][-1][i + 1] = [cell.replace("\\|", "|") for cell in row]
    return known


def frames(lines: Sequence[str], is_head: Callable[[Sequence[str]], bool]) -> Tables:
    """Return the tables whose columns end where their names end, as in pandas, or begin where they begin."""
    known: Tables = {}
    rows: dict[int, list[str]] = {}
    titles: list[re.Match[str]] = []
    for i, line in enumerate(lines, 1):
        head = [*re.finditer(r"\S+(?: \S+)*", line)]
        if len(head) > 1 and "|" not in line and is_head([title[0] for title in head]):
            titles, rows, sides = head, {}, (True, False)
            known.setdefault(tuple(title[0] for title in titles), {})[i] = rows
        elif titles and not re.fullmatch(r"[- ]+", line):
            fitting = [(side, row) for side in sides if (row := cells_below(line, titles, ends=side))]
            sides, rows[i] = ((fitting[0][0],), fitting[0][1]) if fitting else (sides, [])
            titles = titles if rows[i] or rows.pop(i) else []
    for rows in (of for parts in known.values() for of in parts.values()):
        indexed = all(re.match(r"\S+ {2}", row[0]) for row in rows.values())
        for row in rows.values():
            row[:] = [(row[0].partition(" ")[2] if indexed else row[0]).strip(), *map(str.strip, row[1:])]
    return known


def cells_below(line: str, titles: Sequence[re.Match[str]], *, ends: bool) -> list[str]:
    """Return the cells of a line that end, or begin, where the names of columns do; [] if they do not."""
    places = [title.end() for title in titles[:-1]] if ends else [title.start() for title in titles[1:]]
    apart = not any(line[place - (not ends) :][:1].strip() for place in places)
    size = len(line.rstrip())
    whole = places[-1] < size <= titles[-1].end() if ends else all(line[place : place + 1].strip() for place in places)
    return [line[a:b] for a, b in itertools.pairwise([0, *places, max(size, 1)])] if apart and whole else []


def unfolded(lines: Sequence[str]) -> list[str]:
    """Put the columns side by side that pandas prints in parts, with `\\` behind all but the last."""
    lines = [*lines]
    for i, line in enumerate(lines):
        filled = [k for k in range(i, len(lines)) if lines[k].strip()] if line.endswith("  \\") else []
        height = next((k for k, place in enumerate(filled) if place != i + k), 0)
        while height and lines[i].endswith("\\"):
            width, below = len(lines[i]) - 1, [lines[k] for k in filled[height : 2 * height]]
            index = max((len(re.match(r"\S*", row)[0]) for row in below), default=0)
            for k, row in enumerate(below):
                lines[i + k] = lines[i + k][:width].ljust(width) + row[index:]
                lines[filled[height + k]] = ""
            del filled[height : 2 * height]
            height = height if below else 0
    return lines


def table_with(tables: Iterable[Table], names: Names, wanted: Sequence[str]) -> Table | None:
    """Return the longest table with the columns `wanted`, or with names of both sides."""

    def fits(table: Table) -> bool:
        if wanted and all(map(str.isdigit, wanted)):
            return all(int(number) <= table.width for number in wanted)
        if wanted:
            return {*normalize_names(wanted)} <= {*table.names}
        return names.has_both([name for i, name in enumerate(table.names) if holds_words(table, i)])

    fitting = [table for table in tables if fits(table)]
    return max(with_texts(fitting) or fitting, key=lambda table: len(table.rows), default=None)


def with_texts(tables: Iterable[Table]) -> list[Table]:
    """Return the tables with two columns of texts, the longest first; rows that differ in numbers alone are figures."""
    spoken = [table for table in tables if PAIRS in table.kind or len(spaced(table)) > 1]
    spoken = [of for of in spoken if len({re.sub(r"[\d.]+", "", "|".join(row)) for row in of.rows}) > 1]
    return sorted(spoken, key=lambda table: -len(table.rows))


def recurring_heads(lines: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return possible labels that begin several lines, the most frequent first, and those of them before texts.

    They are for messages. On half of the lines of the latter, or below these, a text has two words. Labels that differ
    in a number are one: the number is of the sample.
    """
    written: dict[str, str] = {}
    counts, spoken = Counter[str](), Counter[str]()
    for line, below in itertools.pairwise([*(line.strip() for line in lines if line.strip()), ""]):
        mark, listed = MARKED.match(line), below.startswith(("['", '["'))
        if mark or (listed and re.match(r"[^\W\d]\D{,50}$", line)):  # a line above a list is its label, too
            head = (mark[1] or mark[2] or mark[3]) if mark else line
            plain = NUMBER.sub("", head)
            written.setdefault(plain, re.sub(r"(?<=\w)\s+\d+$", "", head))
            text = line[mark.end() :].strip() if mark else ""
            listed = (text or below).startswith(("['", '["'))
            counts[plain] += 1 + listed  # a list has several texts
            spoken[plain] += 2 if listed else bool(re.search(r"[^\W\d]\S* +[^\W\d]", text or below))
    heads = [head for head, count in counts.most_common() if count > 1 and head not in INSTALLING]
    return [written[h] for h in heads], [written[h] for h in heads if 2 * spoken[h] >= counts[h]]
