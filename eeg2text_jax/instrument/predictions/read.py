"""Read a predictions file of any layout, recognised by its content, and describe it in words.

`Lines` become a `Table` (_containers, _printed, _labelled), two tables one (_joins); `Columns` say what it holds
(columns); its rows become predictions (_samples). Each step raises UserError for what it cannot read.
"""

import argparse
import dataclasses
import functools
import os
import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from etils import epath

from eeg2text_jax.base.errors import UserError, count_of
from eeg2text_jax.base.files import file_digest
from eeg2text_jax.base.stores.buckets import at_hand
from eeg2text_jax.instrument.predictions._containers import (
    NO_TABLE,
    TEXTS_ALONE,
    Columns,
    Table,
    csv_table,
    json_table,
    line_texts,
    lines_table,
    text_lines,
)
from eeg2text_jax.instrument.predictions._joins import Side, join_files, lines_of_ids
from eeg2text_jax.instrument.predictions._labelled import LAYOUTS, labelled_table
from eeg2text_jax.instrument.predictions._names import SIDES, Names, join_names, load_names, normalize_names
from eeg2text_jax.instrument.predictions._printed import EPOCH, WHICH, Text, recurring_heads, tables_among, with_texts
from eeg2text_jax.instrument.predictions._samples import (
    FEWEST_WITH_MARKS,
    conditions_of,
    conversions,
    predictions_of,
    stated,
    values_of,
)
from eeg2text_jax.instrument.predictions.columns import (
    SAID,
    describe_columns,
    divided,
    likely,
    option,
    roles,
    split_list,
    test_part,
    ways,
)
from eeg2text_jax.instrument.predictions.file import (
    HAN,
    MODES,
    UNKNOWN,
    Prediction,
    PredictionSet,
    count_labels,
    is_own,
    mode_name,
    parse_predictions,
)
from eeg2text_jax.instrument.predictions.packed import TEXT, Lines

SIDE_FORMATS = ("F", "H", "J", "P", "K")  # of files of references or predictions alone
FORMATS = ("jsonl", *LAYOUTS, *SIDE_FORMATS)
REFERENCE = (
    "the true texts of files with outputs alone: lines, a table, JSON or HDF5, in the same order or by the same ids"
)

BLOCK = "of a file of several parts (epochs, systems, tables, cells): the number of one, last or all"
COLUMNS = "columns of the reference and of one or more predictions, by name or by number from 1; CONDITION=COLUMN says "
COLUMNS += "what a prediction was made from"


class Once(argparse.Action):
    """An option that is refused if it is given twice."""

    def __call__(self, parser: Any, flags: Any, value: Any, option: str | None = None) -> None:
        if getattr(flags, self.dest) is not None:
            raise UserError(f"{option} is given twice; give it once.")
        setattr(flags, self.dest, value)


def add_options(add: Any) -> None:
    """Add the options of reading to a command; `add` is `add_argument` of its parser."""
    add = functools.partial(add, action=Once)
    add("--reference", type=epath.Path, metavar="FILE", help=REFERENCE)
    add("--format", choices=FORMATS, help="layout of the files, if it is recognised wrongly")
    add("--columns", type=split_list, metavar="REF,PRED", help=COLUMNS)
    id_help = "columns by which predictions and references are joined; rows: row by row"
    add("--id", type=split_list, metavar="COLUMNS", help=id_help)
    add("--labels", type=split_list, metavar="TRUE,PRED", help="labels of printed references and predictions")
    add("--block", metavar="N", help=BLOCK)
    add("--names", type=epath.Path, metavar="FILE", help="further names of columns and labels, see docs/layouts.md")


def options_of(flags: Any) -> dict[str, Any]:
    """Return the arguments of `read_any` that these options state."""
    return {"layout": flags.format, **{name: getattr(flags, name) for name in OPTIONS}}


OPTIONS = ("columns", "reference", "id", "labels", "block", "names")


def read_any(
    path: str | os.PathLike[str],
    *,
    layout: str | None = None,
    columns: Sequence[str] | str | None = None,
    mode: str | None = None,
    groups: Sequence[str] = (),
    reference: str | os.PathLike[str] | None = None,
    id: Sequence[str] | str | None = None,
    labels: Sequence[str] | str | None = None,
    block: str | int | None = None,
    names: str | os.PathLike[str] | None = None,
) -> PredictionSet:
    """Read a predictions file of any layout in `FORMATS`.

    Values that the file does not state are "unknown"; a missing sentence id is made from the reference.

    Args:
      path: the file, or its address in a bucket.
      layout: a name in `FORMATS`; None recognises the layout by content.
      columns: of a table or foreign JSON: the reference and one or more predictions, by name or by number from 1;
        `CONDITION=COLUMN` states what a prediction was made from.
      mode: the mode of rows that do not state one; rows of other modes are dropped.
      groups: columns of a table or foreign JSON whose labels to keep, see `groups_of`.
      reference: a file of references for a file that has only predictions, joined line by line or by id.
      id: the columns by which the two files are joined, or `rows`; None: a key that both have.
      labels: the labels of references and predictions in a printed text, if they are no known names.
      block: of a file of several parts (epochs, systems, tables, cells of a notebook): the number of one from 1, `last`
        or `all`.
      names: a file with further names of columns and labels, of the form of `instrument/predictions/names.toml`.

    Raises:
      UserError: the file or a line of it cannot be read as its layout, or no row is of `mode`.

    Examples:
      >>> from eeg2text_jax import read_any
      >>> rows = read_any("run/predictions.jsonl", mode="free_running").predictions
      >>> sorted({row.eval_condition for row in rows})
      ['eeg', 'noise', 'shuffled']
    """
    path = epath.Path(at_hand(path))
    columns, id, labels = (split_list(of) if isinstance(of, str) else of for of in (columns, id, labels))
    mode = mode if mode is None else mode_name(mode)
    for flag, what, value, known in (("format", "layout", layout, FORMATS), ("mode", "mode", mode, MODES)):
        if value not in (None, *known):
            raise UserError(f"--{flag}={value}: there is no such {what}; the {what}s are {', '.join(known)}.")
    vocabulary = load_names(names)
    lines, beside = Lines(path), None if reference is None else Lines(at_hand(epath.Path(reference)))
    for file in (lines, *([beside] if beside else [])):
        if not file.data.strip():
            raise UserError(f"{file.path}: the file is empty.")
    if reference is not None and labels:
        raise UserError(f"--labels={','.join(labels)}: of one file that holds both; leave it or --reference out.")
    if reference is None and id is not None:
        raise UserError(f"--id={','.join(id)}: joins two files; give the references with --reference=FILE.")
    if reference is None and layout in ("P", "K"):
        how = "give their references with --reference=FILE"
        raise UserError(f"--format={layout}: the file has only predictions; {how}.")
    if reference is None and (layout == "jsonl" or (not (layout or columns or labels) and is_own(lines))):
        return in_one_form(parse_predictions(lines), mode)
    if beside is None:
        table = table_of_file(lines, layout, vocabulary, columns or (), labels)
        used = roles(table, vocabulary, columns, groups)
    else:
        table, used = read_two(lines, beside, layout, columns, groups, id, vocabulary)
    return set_of(table, used, mode, lines.digest, block)


def set_of(
    table: Table, used: Columns, mode: str | None, digest: str = "", block: str | int | None = None
) -> PredictionSet:
    """Return the rows of a table, of one mode and block, in one Unicode form."""
    table, part = test_part(without_footer(table, used), used)
    table = in_block(table, used, block)
    changed: dict[str, set[int]] = {}  # note on converted texts -> rows
    predictions = predictions_of(table, used, changed)
    if not predictions:
        raise table.error("no predictions in the file")
    notes = (*table.notes, *used.notes, *filter(None, [part]), *conversions(changed))
    said = {"condition": conditions_of(table, used)[1], "split": part}
    layout = describe_columns(table, used, [name for name, counts in said.items() if not counts])
    references = [row.reference for row in predictions[:: len(used.predictions)]]
    groups = {
        name.removeprefix("group "): count_labels(zip(references, labels, strict=True))
        for name, labels in stated(table, used.about).items()
        if name.startswith("group ")
    }
    read = PredictionSet(predictions, {}, layout, table.path, notes, (), groups, digest, "seed" in used.about)
    return in_one_form(read, mode)


def table_of_file(
    lines: Lines,
    layout: str | None,
    names: Names,
    columns: Sequence[str] = (),
    labels: Sequence[str] | None = None,
    *,
    alone: bool = True,
) -> Table:
    """Return the table of a file: JSON, a CSV with a known header, printed text, another CSV, or lines.

    `alone`: the file has both sides; else `columns` has the column of its side.
    """
    plain = lines.kind == TEXT
    if not plain and (layout in ("P", "K") or not lines.kind.startswith("Excel")):
        layout = None  # it has columns with names, whatever the other file has
    if layout == "P" and plain:
        return text_lines(lines.path, line_texts(lines))
    printed = Text(lines)
    if printed.kind and not alone:
        if tables := [table for table in tables_among(printed, names) if table.titles]:
            return max(tables, key=lambda table: len(table.rows))
        raise UserError(f"{lines.path}: {printed.kind}without a table; write its texts as lines or CSV.")
    table, refusal = None, None
    wanted = [column.partition("=")[2] or column for column in columns]
    data = not (printed.kind or labels)
    if data and plain and layout in (None, "J", "K"):
        try:
            table = json_table(lines, names, alone=alone)
        except UserError as error:
            refusal = error
    if layout == "J" and table is None:
        raise refusal or UserError(f"{lines.path}: not JSON; leave --format out, or give the layout of this file.")
    if data and not (table or refusal) and layout in (None, "F", "H"):
        table = csv_table(lines, names, layout, wanted, alone=alone)
    labelled = None
    unsure = table is None or (table.layout == "H" and layout is None and alone)
    if plain and unsure and layout in (None, *LAYOUTS):
        labelled = labelled_table(printed, names, labels, () if table else wanted)
    if labelled and not alone:
        said = f"is of layout {labelled.layout}, with references and predictions of its own"
        raise labelled.error(f"{said}; leave --reference out, or give a file that has only predictions")
    if not (labelled or table) and (refusal or alone):
        raise refusal or UserError(f"{lines.path}: {no_layout(printed, layout, labels, names)}")
    return labelled or table or lines_table(lines, names, by_id=layout == "K")


def no_layout(printed: Text, layout: str | None, labels: Sequence[str] | None, names: Names) -> str:
    """Return the message for a text without a table and known labels."""
    if labels:
        return f"--labels={','.join(labels)}: no pairs of lines begin with these labels; copy them as they are printed."
    (heads, before_texts), kind = recurring_heads(printed.lines), printed.kind
    tables = with_texts(tables_among(printed, names))
    tables = [table for table in tables if table.titles or len(table.rows) >= FEW or (kind and not heads)]
    if not (heads or tables or kind or layout in LAYOUTS):
        shown = [f"{line.strip():.60}" for line in printed.lines if line.strip()]
        return NO_TABLE.format(hint=f"{TEXTS_ALONE}; its first lines are {join_names([*map(repr, shown[:3])])}")
    said = f"; lines begin with {join_names([*map(repr, heads)])}" if heads else ""
    said += "; name the labels with --labels=TRUE,PREDICTED" if heads or not tables else ""
    likely_heads = [before_texts[i] for i in names.likely(normalize_names(before_texts))]
    if two := names.contrasted(before_texts) or likely_heads:
        said += f", such as {option('--labels', two)}"
    if "--labels" in said and (printed.cells or any(map(EPOCH.search, printed.lines))):
        said += WHICH
    for table in tables[:3]:
        rows = f"{table.first_rows(80)}, {count_of(len(table.rows), 'row')}"
        said += f"; from line {table.numbers[0]}, {table.kind} ({rows}): {ways(table, likely(table))}"
    said = f"no samples of known labels{said}"
    if kind:
        return f"{'a notebook whose printed outputs have' if 'notebook' in kind else f'{kind}with'} {said}."
    return NO_TABLE.format(hint=f"it has {said}; or, {TEXTS_ALONE}")


def without_footer(table: Table, columns: Columns) -> Table:
    """Return a CSV up to an empty row below which no row has both texts, with a note.

    In a table with names, rows without a reference and a prediction are no samples.
    """
    sides, notes = [[columns.reference], columns.predictions.values()], [*table.notes]
    filled = [[any(str(row[k] or "").strip() for k in side) for side in sides] for row in table.rows]
    last = max((i for i, both in enumerate(filled) if all(both)), default=len(filled))
    empty = (i for i in range(last + 1, len(filled)) if not any(str(cell).strip() for cell in table.rows[i]))
    end = next(empty, len(filled)) if table.layout in ("F", "H") else len(filled)
    if end < len(filled):
        note, below = f"{table.unit} {table.numbers[end]} is empty and ends the table", table.rows[end + 1 :]
        note += f"; left out as a footer: {count_of(len(below), 'row')} from {below[0][0]!r:.40} on" if below else ""
        notes.append(note)
    kept = [i for i in range(end) if any(filled[i]) or not table.titles or table.layout not in ("F", "J")]
    if lost := end - len(kept):
        many = count_of(lost, "row without reference and", "rows without reference and")
        notes.append(f"{many} prediction are no samples: left out")
    return dataclasses.replace(table.keep(kept), notes=(*notes,)) if kept and len(kept) < len(filled) else table


POOLED = "all rows count as one system's outputs"
NAMED = "; if they are systems, conditions or readers, name the column eval_condition or subject"


def in_block(table: Table, used: Columns, block: str | int | None) -> Table:
    """Return the rows of one part (an epoch, a system, a table, a cell), or all with a note."""
    references = [str(row[used.reference]) for row in table.rows]
    table = in_parts(table, used, references)
    rows: dict[str, list[int]] = {}
    for i, name in enumerate(table.blocks):
        rows.setdefault(name, []).append(i)
    numbers = {str(n): name for n, name in enumerate(rows, 1)}
    texts = [[[*table.rows[i]] for i in of] for of in rows.values()]
    again = [f", those of {texts.index(of) + 1}" * (texts.index(of) < n) for n, of in enumerate(texts)]
    named = zip(numbers.items(), again, strict=True)
    blocks = [f"{n} is {name} with {count_of(len(rows[name]), 'row')}{same}" for (n, name), same in named]
    named = join_names(blocks, 4) + (f", the last {blocks[-1]}" if len(blocks) > 4 else "")
    numbers |= {"last": next(reversed(rows))} if rows else {}
    choice = "" if block is None else str(block)
    if choice not in ("", "all", *numbers) and (rows or choice != "last"):
        offered = f"{len(rows)} blocks: {named}; choose one, last or all" if rows else "one block only"
        raise UserError(f"--block={choice}: there is no such block; {table.path} has {offered}.")
    if choice in numbers:
        name = numbers[choice]
        part = dataclasses.replace(table.keep(rows[name]), blocks=(), why="")
        notes = [f"only block {[*rows].index(name) + 1} of {len(rows)} is used: {name}"]
        others = {text for text, of in zip(references, table.blocks, strict=True) if of != name}
        again = sum(references[i] in others for i in rows[name])
        if len(rows[name]) / 2 <= again < len(rows[name]):
            said = f"{again} of its {len(rows[name])} rows have references of other blocks, and the rest do not"
            notes.append(f"{said}: batches of training and a validation may stand beside each other in it")
        notes += [f"{why}: {POOLED}{NAMED}" for why in repeated(part, used)]
        return dataclasses.replace(part, notes=(*part.notes, *notes))
    if not rows:
        alone = "the file has one part, which is used whole"
        return dataclasses.replace(table, notes=(*table.notes, alone)) if choice == "last" else table
    said = f"{table.why or 'the pairs stand in several parts of the file'} ({len(rows)} blocks: {named})"
    how = "--block=N takes one, --block=last the last"
    if not (choice or table.why):
        raise table.error(f"{said}; {how}, --block=all all as of one system")
    said += f": {POOLED}{', as stated' if choice else f'; {how}'}{NAMED * bool(table.why)}"
    return dataclasses.replace(table, notes=(*table.notes, said))


def in_parts(table: Table, used: Columns, references: Sequence[str]) -> Table:
    """Return the table with `blocks`, or a note that rows share references and nothing says why.

    Blocks are parts that the layout or a column of epochs states, values of unused columns with the same references
    each, or passes. `why` is set if they may be readers.
    """
    values = values_of(table, used.about.get("part", ()))
    if 1 < len({*values}) <= len(values) / 2:
        title = table.shown(used.about["part"][0])
        table = dataclasses.replace(table, blocks=[f"{title} {value}" for value in values])
    table = dataclasses.replace(table, blocks=in_passes(table.blocks, references))
    if used.named or conditions_of(table, used)[1]:
        return table
    table = divided(table, used.used(("condition",)), references)
    for why in () if table.blocks else repeated(table, used):
        passes = in_passes([""] * len(references), references)
        if 1 < len({*passes}) <= len(passes) / 2:
            return dataclasses.replace(table, blocks=passes, why=why * (table.layout != "C2"))
        return dataclasses.replace(table, notes=(*table.notes, f"{why}: {POOLED}{NAMED}"))
    return table


def in_passes(blocks: Sequence[str], references: Sequence[str]) -> list[str]:
    """Return each row's block, cut where a block repeats its list of references, as validations do."""
    passes: dict[str, list[list[str]]] = {}
    places: list[int] = []
    for name, text in zip(blocks, references, strict=False):
        of = passes.setdefault(name, [[]])
        if text in of[-1][:1]:
            of.append([])
        of[-1].append(text)
        places.append(len(of))
    again = {name for name, of in passes.items() if len(of) > 1 and all(one == of[0] for one in of)}
    return [f"{name}, pass {n}".lstrip(", ") if name in again else name for name, n in zip(blocks, places, strict=True)]


def repeated(table: Table, used: Columns) -> list[str]:
    """Return why rows are pooled, if references recur and nothing says why."""
    about, references = stated(table, used.about), [str(row[used.reference]) for row in table.rows]
    readers = ("subject", "task", "train_condition", "seed", *SAID["mode"])  # what tells rows of one sentence apart
    keys = [*zip(references, *(about[name] for name in readers if name in about), strict=True)]
    rows, subjects = sum(n for n in Counter(keys).values() if n > 1), "subject" in about
    why = f"{rows} rows share their {'subject and ' * subjects}reference with another row, and no known column says why"
    return [why] if rows > (0 if subjects else len(keys) // 2) else []


def read_two(
    lines: Lines, reference: Lines, layout: str | None, columns: Sequence[str] | None, groups: Sequence[str],
    ids: Sequence[str] | None, names: Names,
) -> tuple[Table, Columns]:  # fmt: skip
    """Return predictions and references as one table, and what its columns hold."""
    if layout not in (None, *SIDE_FORMATS):
        said, expected = "files of this layout hold references themselves", " or ".join(SIDE_FORMATS)
        raise UserError(f"--format={layout}: {said}; with --reference, expected {expected}, or leave --reference out.")
    if columns and len(columns) != 2:
        expected = f"two columns: the reference's, in {reference.path}, and the prediction's, in {lines.path}"
        raise UserError(f"--columns={','.join(columns)}: with --reference, expected {expected}.")
    tables, stated = [], columns or (None, None)
    for file, column in zip((reference, lines), stated, strict=True):
        table = table_of_file(file, layout, names, [column] if column else [], alone=False)
        lines_alone = table.titles is None and table.layout in ("P", "K")
        if column and lines_alone and (column != "1" or table.layout == "K"):
            said = f"there is no column {column!r}, as each line of the file is a text"
            raise table.error(f"{said}; name it 1 where the other file has columns, or leave --columns out")
        tables.append(table)
    tables[1] = lines_of_ids(tables[1], tables[0])
    sides = [Side(tables[i], tables[1 - i], SIDES[i], stated[i], names, groups) for i in (0, 1)]
    tops, suffixes = [side.first_text() for side in sides], {side.table.path.suffix.lower() for side in sides}
    coded = any(side.table.coded or "" in side.keys for side in sides)
    if layout is None and not coded and "" != tops[0] == tops[1] and suffixes <= {".csv", ".tsv"}:
        return read_two(lines, reference, layout, tops, groups, ids, names)
    if layout == "K" and not all(side.keys for side in sides):
        said = f"--format=K joins texts by id, but some texts of this file or of {reference.path} have no id"
        raise UserError(f"{lines.path}: {said}; set --format=P to join them line by line.")
    return join_files(sides[1], sides[0], ids)


def in_one_form(read: PredictionSet, mode: str | None) -> PredictionSet:
    """Return the rows of one mode (None: of all), in the Unicode form NFC, with a note on those in another.

    Rows of unknown mode get the mode. For a metric, an é of one character differs from one of two, which looks alike.
    """
    changed, rows = set(), []
    for row in read.predictions:
        if not (row.reference.isascii() and row.prediction.isascii()):
            texts: dict[str, Any] = {side: unicodedata.normalize("NFC", getattr(row, side)) for side in SIDES}
            if texts != {side: getattr(row, side) for side in SIDES}:
                changed.add(row.sample_id)
                row = dataclasses.replace(row, **texts)
        row = dataclasses.replace(row, mode=mode) if mode and row.mode == UNKNOWN else row
        if mode in (None, row.mode):
            rows.append(row)
    if mode and not rows:
        stated = read.predictions[0].mode
        said = f"no {mode} predictions in the file, only {stated} ones"
        raise UserError(f"{read.path}: {said}; set --mode={stated}, or give another file.")
    many = count_of(len(changed), "sample has", "samples have")
    note = f"{many} text in another Unicode form than NFC, which was brought to NFC to be compared"
    further = tuple(p for p in read.further if mode in (None, p.mode))
    return dataclasses.replace(read, predictions=rows, notes=(*read.notes, *[note][: len(changed)]), further=further)


def check_given_once(paths: Sequence[epath.Path], reference: epath.Path | None = None) -> list[str]:
    """Return notes on different files with the same bytes. Raises UserError if two paths are of one file."""
    notes: list[str] = []
    places: set[str] = set()
    digests: dict[str, epath.Path] = {}
    for path in (*paths, *([reference] if reference else [])):
        place = os.path.realpath(path) if "://" not in str(path) else str(path)
        if place in places:
            raise UserError(f"{path}: the file is given twice; give each file once.")
        places.add(place)
        if os.path.isfile(place) and (reference or len(paths) > 1):  # a pipe can be read once only
            other = digests.setdefault(file_digest(path), path)
            if other != path:
                notes.append(f"{path}: the file has the same bytes as {other}; one of them may be a copy.")
    return notes


def describe(read: PredictionSet) -> str:
    """Describe a file: a line with layout, counts, modes and conditions, then a line per note."""
    rows = read.predictions
    modes = ", ".join(dict.fromkeys(p.mode for p in rows))
    conditions = ", ".join(dict.fromkeys(f"{p.train_condition} → {p.eval_condition}" for p in rows))
    sentences, subjects = {p.sentence_id for p in rows}, {p.subject for p in rows} - {UNKNOWN}
    content = [
        (p.subject, p.task, p.sentence_id, p.train_condition, p.eval_condition, p.seed, p.mode, p.prediction)
        for p in rows
        if p.subject != UNKNOWN
    ]
    twice = len(content) - len({*content})
    repeated = f"; rows that repeat another row of the same subject: {twice}" if twice else ""
    fed = "" if conditions == f"{UNKNOWN} → {UNKNOWN}" else f"; training → evaluation {conditions}"
    readers = count_of(len(subjects), "subject") if subjects else "unknown subjects"
    counted = f"{count_of(len(rows), 'prediction')} of {count_of(len(sentences), 'sentence')}, {readers}"
    first = f"{read.path}: layout {read.layout}; {counted}; mode {modes}{fed}{repeated}."
    notes = [*read.notes, *possible_faults(read)]
    return "\n".join([first, *(f"{read.path}: {note}." for note in notes)])


FEW = 10  # fewest distinct texts whose frequencies and lack of spaces are judged
MARKS = (",", ";", "|", "/")  # between references in a cell, or within one
SPECIAL = re.compile(r"</?s>|<pad>|(?<!<)<unk>|<\|endoftext\|>|\[(?:PAD|SEP|CLS|UNK)\]")
PIECES = re.compile("@@ |\u2581| ##\\w")  # marks of word pieces
QUOTES = re.compile("[\u2018\u2019\u201c\u201d]"), re.compile("['\"]")  # curly, straight
HAN_OR_KANA = re.compile(f"[{HAN}\u3005-\u3007\u3040-\u30ff\u3105-\u312f]")  # letters, with bopomofo


def possible_faults(read: PredictionSet) -> Iterator[str]:
    """Yield a sentence for each possible fault of a file."""
    rows = read.predictions
    yield from empty_halves(read)
    written = [(p.reference, p.prediction, p.mode, p.eval_condition, p.subject) for p in rows]
    half = len(rows) // 2
    if half >= 10 and written[:half] == written[half:] and len({*written[:half]}) > 1:
        yield f"the second half of the file repeats its first {half} rows; it may have been written twice"
    yield from exchanged_columns(read)
    yield from other_marks(rows)
    yield from several_references(rows)
    yield from ends(rows)
    bare = [p.reference for p in rows if p.reference.strip() and not any(map(str.isalpha, p.reference))]
    if bare and 10 * len(bare) < len(rows):
        said = count_of(len(bare), "reference has", "references have")
        yield f"{said} no letter, such as {bare[0]!r:.40}: scored as any other"
    if len(rows) > 1 and all(p.reference == p.prediction for p in rows):
        yield "every prediction is its reference; if both are the references, name the column of the outputs"
    if 2 * (silent := sum(not p.prediction.strip() for p in rows)) >= len(rows):
        yield f"{silent} of {len(rows)} predictions are empty"
    if empty := sum(not p.reference.strip() for p in rows):
        yield (
            f"{count_of(empty, 'row has', 'rows have')} an empty reference: `score` counts every word predicted there "
            "as wrong, and `audit` refuses the file; remove the rows if they are no samples (such as a row of means)"
        )


def empty_halves(read: PredictionSet) -> list[str]:
    """Return notes on conditions and modes without a text, if others have some."""
    cells = {(p.train_condition, p.eval_condition, p.mode): False for p in read.predictions}
    cells |= {(p.train_condition, p.eval_condition, p.mode): True for p in read.predictions if p.prediction.strip()}
    return [
        f"every {mode} prediction under {train} → {evaluation} is empty; only the rest can be scored and judged"
        for (train, evaluation, mode), filled in cells.items()
        if not filled and any(cells.values())
    ]


def exchanged_columns(read: PredictionSet) -> Iterator[str]:
    """Yield a note if both sides seem exchanged: predictions recur, or references hold special tokens."""
    rows = read.predictions
    references, predictions = (Counter(getattr(p, side) for p in rows) for side in SIDES)
    usual = sorted(predictions.values())[len(predictions) // 2]
    equally = sum(abs(count - usual) <= 0.25 * usual for count in predictions.values())
    recur = usual > 1 and equally >= 0.8 * len(predictions) and len(references) > 0.9 * len(rows)
    marked = [sum(bool(SPECIAL.search(text)) for text in side) / len(side) for side in (references, predictions)]
    reason = ""
    if len(predictions) >= FEW and recur:
        reason = f"{len(predictions)} predictions recur about {usual} times each and the references hardly ever"
    elif marked[0] >= 0.05 and not marked[1]:
        reason = f"{marked[0]:.0%} of the references hold special tokens, and no prediction does"
    if reason:
        beside = read.layout.startswith(("P (", "K ("))
        cure = "exchange the two files" if beside else "name them with --columns=REFERENCE,PREDICTION"
        yield f"are reference and prediction exchanged? {reason}; if so, {cure}"


def other_marks(rows: Sequence[Prediction]) -> Iterator[str]:
    """Yield notes on quotes that differ, word pieces, and references without spaces."""
    texts = {side: [getattr(p, side) for p in rows] for side in SIDES}
    curly, straight = ({side: sum(map(bool, map(kind.search, texts[side]))) for side in SIDES} for kind in QUOTES)
    for side, other in (SIDES, SIDES[::-1]):
        if curly[side] and not curly[other] and straight[other]:
            yield (
                f"{count_of(curly[side], f'{side} has', f'{side}s have')} curly quotes or apostrophes and the {other}s "
                "straight ones: a word with such a mark counts as wrong; use the same marks in both"
            )
    if pieces := [side for side in SIDES if 20 * sum(map(bool, map(PIECES.search, texts[side]))) > len(rows)]:
        yield f"the {' and the '.join(f'{side}s' for side in pieces)} hold word pieces, which are scored as words"
    parts = [part for text in texts["reference"] for part in text.split()]
    if parts and len(rows) >= FEW and 10 * sum(len(part) == 1 and part.isascii() for part in parts) >= 9 * len(parts):
        yield "the references are letters apart; each counts as a word, so that WER is a rate of letters"
    references = {*texts["reference"]}
    long = sum(len(text) >= 12 and len(text.split()) == 1 for text in references)
    if (spaceless := sum(map(is_spaceless, references))) and 2 * spaceless >= len(references):
        yield "the references are in a script without spaces; each Han or kana character counts as a word"
    elif len(references) >= FEW and 2 * long >= len(references):
        said = f"{long} of {len(references)} references have no space"
        yield f"{said}: each counts as one word, right or wrong as a whole"


def is_spaceless(text: str) -> bool:
    """Return whether half of the letters are Han or kana, which are written without spaces."""
    return not text.isascii() and 2 * len(HAN_OR_KANA.findall(text)) >= max(1, sum(map(str.isalpha, text)))


def several_references(rows: Sequence[Prediction]) -> Iterator[str]:
    """Yield a note on a mark between texts of the same words in nearly all references and no prediction."""

    def alike(text: str, mark: str) -> bool:
        first, *others = [{*part.casefold().split()} for part in text.split(mark)]
        return bool(first and others) and all(2 * len(first & other) >= len(first | other) for other in others)

    for mark in MARKS if len(rows) >= FEWEST_WITH_MARKS else ():
        held, near = (sum(test(p.reference, mark) for p in rows) for test in (str.__contains__, alike))
        spoken = sum(mark in p.prediction for p in rows)
        if 10 * held >= 9 * len(rows) and 4 * near >= 3 * held and 20 * spoken <= len(rows):
            yield (
                f"{held} of {len(rows)} references hold {mark!r}, in {near} of them between texts that share most "
                f"words, and {count_of(spoken, 'prediction does', 'predictions do')}: are they several references in "
                'a cell? each cell counts as one text; write <> between them, or a list such as ["a b", "a c"], and '
                "the first counts"
            )


# Figures behind a text, such as ` (time: 3 s)` or `, level=hard`.
FIGURE = r"\w+\s*[:=]\s*\S+(?: \w{1,3}\b)?"
FIGURES = re.compile(rf"[\s,]\(?{FIGURE}(?:[,;]?\s*{FIGURE})*\)?\W*$")


def ends(rows: Sequence[Prediction]) -> Iterator[str]:
    """Yield notes on a word, such as `endseq`, at the begin or end of nearly all predictions or all texts.

    And on marks or figures there, as of a log, on one side alone.
    """
    shapes = []  # of each side: first words without letters, figures at the end
    for side in SIDES:
        texts = [getattr(p, side) for p in rows]
        heads = (re.sub(r"\d+", "0", text.split()[0]) if " " in text.strip() else "" for text in texts)
        tails = (re.findall(r"(\w+)\s*[:=]", found[0]) if (found := FIGURES.search(text)) else [] for text in texts)
        both = Counter(heads).most_common(1)[0], Counter(map(" ".join, tails)).most_common(1)[0]
        shapes.append([shape if 10 * count >= 9 * len(rows) > 18 else "" for shape, count in both])
    for side, own, other in zip(SIDES, shapes, shapes[::-1], strict=True):
        for place, (shape, of_other) in zip(("begin", "end"), zip(own, other, strict=True), strict=True):
            if shape and shape != of_other and (place == "end" or not any(map(str.isalpha, shape))):
                example = getattr(rows[0], side)
                example = example[:40] if place == "begin" else example[-40:]
                yield f"nearly all {side}s {place} alike, as {example!r}; leave marks and figures out that are no words"
    spoken, true = ([getattr(p, side).split() or [""] for p in rows] for side in SIDES[::-1])
    varied = 2 * len({*map(tuple, spoken)}) > len(rows) > 4
    known = {re.sub(r"\W", "", word) for words in true for word in words}
    for place, how in ((0, "begin"), (-1, "end")) if varied else ():
        ((word, count),) = Counter(words[place] for words in spoken).most_common(1)
        both = sum(words[place] == word for words in true)
        if 10 * count >= 9 * len(rows) and (bare := re.sub(r"\W", "", word)):
            if bare not in known:
                yield f"{count} predictions {how} with {word!r}, and no reference does: it counts as a wrong word"
            elif 10 * both >= 9 * len(rows):
                yield f"{count} predictions and {both} references {how} with {word!r}: it counts as a right word"
