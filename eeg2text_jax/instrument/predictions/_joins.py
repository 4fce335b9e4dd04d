"""Join predictions with references of another file: by columns that are one key, or row by row."""

import contextlib
import dataclasses
import itertools
import re
from collections import defaultdict
from collections.abc import Sequence

from eeg2text_jax.base.errors import UserError, count_of
from eeg2text_jax.instrument.predictions._containers import ABSENT, FIRST_TWO, Columns, Table, is_id
from eeg2text_jax.instrument.predictions._names import PARTS, Names, join_names, normalize
from eeg2text_jax.instrument.predictions._samples import Changed, conversions, stated, texts
from eeg2text_jax.instrument.predictions.columns import (
    NUMBER,
    divided,
    field_positions,
    group_positions,
    option,
    side_column,
)


def bare(key: str) -> str:
    """Return an id without what ids of one sample may differ in: case, folder, leading zeros, prefix, ends."""
    ends = r"\.[A-Za-z]\w{1,3}$|\.0$|[_-](?:pred|hyp|ref|gt|true)$"
    return re.sub(rf"^.*/|^[sthd]-(?=\d+$)|^0+(?=\d)|{ends}", "", key.casefold())


MOST_ENDS = 8  # suffixes of ids that name systems
ANY = re.compile("")
ROWS, INDEX = "rows", "index"  # --id=rows joins row by row; an index is the weakest key
HOW = "say --id=COLUMN to join by another column, --id=COLUMN,COLUMN by several, or --id=rows to join row by row"


class Side:
    """One of two files: its table, the columns of its texts, keys and fields."""

    def __init__(
        self, table: Table, other: Table, role: str, column: str | None, names: Names, groups: Sequence[str]
    ) -> None:
        if not (table.rows and table.width):
            raise table.error("no texts in the file")
        self.table, self.role, self.text = table, role, side_column(table, role, column, names, other)
        self.columns = {name: i for i, name in enumerate(table.names) if i != self.text}
        self.keys: dict[str, list[int]] = {
            key: places
            for key in dict.fromkeys(names.keys.values())
            if (places := [i for name, i in self.columns.items() if names.keys.get(name) == key])
        }
        if table.titles is None:  # the key of ids without a name
            others = [{*map(str, column)} for k in range(other.width) if is_id(column := other.column(k), ANY)]

            def is_key(column: Sequence[str]) -> bool:  # of several references or outputs of a text, ids recur
                several = any({*column} <= ids or (role == "reference" and ids <= {*column}) for ids in others)
                return is_id(column, ANY) or (several and 2 * len({*column}) > len(column) * (role != "reference"))

            ids = [i for i in range(table.width) if i != self.text and (table.coded or is_key(table.column(i)))]
            self.keys = {"": ids[:1]} if ids else {}
        self.about = {f: i for f, i in field_positions(table, names).items() if f not in ("sample_id", "sentence_id")}
        self.about |= group_positions(table, groups)

    def values(self, places: Sequence[int]) -> list[str]:
        """Return each row's id."""
        return ["/".join("" if row[i] is None else str(row[i]).strip() for i in places) for row in self.table.rows]

    def distinct(self) -> dict[str, int]:
        """Return name -> position of the columns, beside the texts, with another value in each row."""
        count = len(self.table.rows)
        return {name: i for name, i in self.columns.items() if len({*self.values([i])}) == count > 1}

    def titles(self, places: Sequence[int]) -> str:
        if self.table.coded and places:
            return "the id beside each text"
        return " and ".join(self.table.shown(i) for i in places)

    def described(self, used: Sequence[int]) -> str:
        """Return in words the columns of texts and ids, and those not used."""
        table = self.table
        if table.layout in ("P", "K"):
            return table.kind
        unused = [table.shown(i) for i in sorted({*range(table.width)} - self.read(used))]
        said = f"{table.kind}, {self.role} {table.shown(self.text)}" + (f", id {self.titles(used)}" if used else "")
        return said + (f", not used: {join_names(unused)}" if unused else "")

    def read(self, used: Sequence[int]) -> set[int]:
        """Return the columns of texts, ids (`used`) and fields."""
        return {self.text, *used, *(i for places in self.about.values() for i in places)}

    def last_filled(self) -> int:
        """Return the number of rows up to the last filled one."""
        rows = self.table.rows
        return next((i for i in range(len(rows), 0, -1) if any(str(c or "").strip() for c in rows[i - 1])), 0)

    def first_text(self) -> str:
        """Return the first text if it is short, as a header, and most are not; else ""."""
        lengths = [len(str(row[self.text]).split()) for row in self.table.rows]
        short = self.table.titles is None and lengths[0] < 3 < sorted(lengths)[len(lengths) // 2]
        return str(self.table.rows[0][self.text]) if short else ""


def lines_of_ids(lines: Table, references: Table) -> Table:
    """Return the lines of a log that begin with an id of the references, or else all lines."""
    lines_alone = lines.titles is None and lines.width == 1
    for column in map(references.column, range(references.width if lines_alone else 0)):
        ids = {*map(str, column)} if is_id(column) else set()
        split = ((*str(row[0]).split(None, 1), "", "")[:2] for row in lines.rows)
        rows = {number: pair for number, pair in zip(lines.numbers, split, strict=True) if pair[0] in ids}
        spoken = sum(bool(text) for _, text in rows.values())  # words of the references are no ids
        most = 2 * len({key for key, _ in rows.values()}) > len(ids) > 1 and 2 * spoken > len(rows)
        if most and len(rows) < len(lines.rows):
            note = f"{len(lines.rows) - len(rows)} lines that do not begin with an id of the references are not used"
            kind, notes = "lines that begin with an id of the references", (*lines.notes, note)
            cells, numbers = [*rows.values()], [*rows]
            return dataclasses.replace(lines, kind=kind, rows=cells, numbers=numbers, notes=notes, coded=True)
    return lines


@dataclasses.dataclass
class Join:
    """Two files and the columns by which they are joined (none: row by row), `stated` by `--id`.

    `why`: why they are joined row by row.
    """

    outputs: Side
    references: Side
    of_outputs: Sequence[int] = ()
    of_references: Sequence[int] = ()
    stated: bool = False
    why: str = ""

    def titles(self) -> str:
        outputs, references = self.outputs.titles(self.of_outputs), self.references.titles(self.of_references)
        return outputs if outputs == references else f"{outputs} of the predictions and {references} of the references"

    def said(self) -> str:
        """Return in words how the files are joined."""
        ids, reference_ids = self.outputs.values(self.of_outputs), self.references.values(self.of_references)
        how = f"by {self.titles()}" if self.of_references else f"row by row{self.why}"
        if self.of_references and ids == reference_ids and len({*reference_ids}) < len(reference_ids):
            how = f"row by row, because {self.titles()} repeats, in one order in both files"
        return f"joined {how}{', as stated' * self.stated}"

    def ids(self) -> tuple[list[str], list[str]]:
        """Return the ids of both files; in the form of `bare` if only so all match and none become equal."""
        written = self.outputs.values(self.of_outputs), self.references.values(self.of_references)
        reduced = [*map(bare, written[0])], [*map(bare, written[1])]
        distinct = all(len({*a}) == len({*b}) for a, b in zip(written, reduced, strict=True))
        fit, fit_written = ({*ids} <= {*reference_ids} for ids, reference_ids in (reduced, written))
        return reduced if distinct and fit and not fit_written else written

    def fitting(self) -> list[int]:
        """Return `places`, [] if these columns do not give one reference for each prediction."""
        with contextlib.suppress(UserError):
            return self.places([])
        return []

    def candidates(self) -> tuple[list["Join"], list["Join"]]:
        """Return the joins by keys of both files, and those by other columns of one name and by an index.

        An id without a name may be any key.
        """
        outputs, references = self.outputs, self.references
        pairs: dict[str, list[tuple[list[int], list[int]]]] = {}
        for key, places in outputs.keys.items():
            any_key = [other for other in references.keys if "" in (key, other) and not {key, other} & {*PARTS}]
            for other in [key] if key in references.keys else any_key:
                of_key = pairs.setdefault(key if key == other else "", [])
                of_key += [([i], [k]) for i in places for k in references.keys[other]]
                of_key.sort(key=lambda pair: outputs.titles(pair[0]) != references.titles(pair[1]))  # one name first
        strong = [pair for key, of_key in pairs.items() if key not in (*PARTS, INDEX) for pair in of_key]
        if parts := [key for key in pairs if key in PARTS]:
            places = [[side.keys[key][0] for key in parts] for side in (outputs, references)]
            readers = [side.about.get("subject", [])[:1] for side in (outputs, references)]
            if all(readers) and "trial" in parts:  # a trial is one of a session, and of a reader
                places = [of + reader for of, reader in zip(places, readers, strict=True)]
            strong.append((places[0], places[1]))
        # Of two rows, any yes and no would be a key.
        named = references.distinct() if len(references.table.rows) > 2 else {}
        index = outputs.keys.get(INDEX, [])
        weak = [([i], [named[name]]) for name, i in outputs.distinct().items() if name in named and i not in index]
        weak += pairs.get(INDEX, [])
        return [Join(outputs, references, *pair) for pair in strong], [
            Join(outputs, references, *pair) for pair in weak
        ]

    def choose(self, option_id: Sequence[str] | None) -> "Join":
        """Return how to join: as stated, by a key of both files, or row by row."""
        outputs, references = self.outputs, self.references
        if option_id is not None:
            one, two = ([], []) if [*map(normalize, option_id)] == [ROWS] else self.of_option(option_id)
            return Join(outputs, references, one, two, stated=True)
        self.refuse_ids_of_one()
        strong, weak = self.candidates()
        fitting = [join for join in strong or weak if join.fitting()]
        numbers = [[*map(str, range(first, first + len(outputs.table.rows)))] for first in (0, 1)]  # of the rows
        indices = {*outputs.keys.get(INDEX, [])}
        indices |= {i for join in weak for i in join.of_outputs if outputs.values([i]) in numbers}
        if not strong and all({*join.of_outputs} <= indices for join in fitting):
            self.refuse_other_order(indices if weak else set())
        for other in fitting[1:] if outputs.table.titles and references.table.titles else ():
            if other.fitting() != fitting[0].fitting():
                by = option("--id", [outputs.table.titles[i] for i in other.of_outputs])
                two = f"{fitting[0].titles()} and {other.titles()}"
                raise outputs.table.error(f"{two} join the files differently; say {by}, or another column")
        if fitting or strong:
            return (fitting or strong)[0]  # `places` says what does not fit
        if weak and INDEX in outputs.keys and INDEX in references.keys:
            return weak[-1]
        titles = [
            s.titles(sorted({i for places in s.keys.values() for i in places} | {*s.distinct().values()}))
            for s in (outputs, references)
        ]
        why = "no column of ids is in both files" if all(titles) else "only one file has ids" if any(titles) else ""
        both = f", because {why} ({' and of the references '.join(filter(None, titles))})" if why else ""
        return dataclasses.replace(self, why=both)

    def of_option(self, option_id: Sequence[str]) -> tuple[list[int], list[int]]:
        """Return the columns of `--id`, which both files have, or each file one of two."""
        sides = (self.outputs, self.references)
        positions = [[side.columns.get(normalize(name)) for name in option_id] for side in sides]
        if None not in (*positions[0], *positions[1]):
            return positions[0], positions[1]
        one, two = ([place for place in places if place is not None] for places in positions)
        if (
            len(option_id) == 2
            and len(one) == len(two) == 1
            and positions[0].index(one[0]) != positions[1].index(two[0])
        ):
            return one, two
        side, places = next((s, p) for s, p in zip(sides, positions, strict=True) if None in p)
        columns = join_names(side.table.names) if side.table.names else "without names"
        said = f"{side.table.path} has no column {option_id[places.index(None)]!r}, its columns are {columns}"
        how = "name columns of both files, or one of the references and one of the predictions"
        raise UserError(f"{option('--id', option_id)}: {said}; {how}.")

    def refuse_ids_of_one(self) -> None:
        """Raise UserError if only one file has an id beside each text."""
        for one, other in ((self.outputs, self.references), (self.references, self.outputs)):
            if one.table.coded and not other.keys:
                first = one.values(one.keys[""])[0]
                said = f"its texts by id, such as {first!r:.40}, and {other.table.path} has no ids"
                whole = ", or say --format=P if the ids are part of the texts" * (one.table.layout == "P")
                raise one.table.error(f"has {said}; give both in the same form{whole}")

    def refuse_other_order(self, indices: set[int]) -> None:
        """Raise UserError if columns hold the same ids in other rows."""
        outputs, references = self.outputs, self.references
        mine, theirs = (
            [[i] for i in side.columns.values()] or [side.keys.get("", [])] for side in (outputs, references)
        )
        named = [
            name for name in outputs.columns if name in references.columns and outputs.columns[name] not in indices
        ]
        several = [([outputs.columns[name] for name in named], [references.columns[name] for name in named])]
        alone = (pair for pair in itertools.product(mine, theirs) if not {*pair[0]} & indices)
        for column, other in [*alone, *several[: len(named) > 1]]:
            sides = (outputs, column), (references, other)
            ids, reference_ids = (
                ["\t".join(row) for row in zip(*(map(bare, side.values([i])) for i in places), strict=True)]
                for side, places in sides
            )
            both = {*ids} & {*reference_ids} - {""}
            moved = [key for key in ids if key in both] != [key for key in reference_ids if key in both]
            numbers = all(map(NUMBER.fullmatch, both))  # some of which are equal by chance
            one_name = outputs.titles(column) == references.titles(other)
            most, other_rows = (0.5 if one_name else 1.0, moved) if numbers else (0.5, ids != reference_ids)
            several = not numbers and 1 < len({*ids}) == len(ids) == len(both)  # references of one output
            alike = all(len({*of}) > max(len(of) - 1 if numbers else len(of) / 2, 1) for of in (ids, reference_ids))
            if other_rows and (several or alike) and len(both) >= most * min(len(ids), len(reference_ids)):
                how = "write a header above both files, and say --id=COLUMN,COLUMN"
                if outputs.table.titles and references.table.titles:
                    titles = [references.table.titles[i] for i in other] + [outputs.table.titles[i] for i in column]
                    ids = [*dict.fromkeys(titles)]
                    how = f"say {option('--id', ids)} to join by them"
                two = f"{outputs.titles(column)} and {references.titles(other)} of {references.table.path}"
                said = f"its {two} hold the same values in another order, and are not known as one key"
                raise outputs.table.error(f"{said}; {how}, or --id=rows to join row by row")

    def places(self, notes: list[str]) -> list[int]:
        """Return the place of each prediction's reference. Raises UserError if none or several fit."""
        if not self.of_references:
            return self.parallel(notes)
        ids, reference_ids = self.ids()
        table = self.references.table
        distinct = len({*ids}) == len(ids)  # ids that only the references repeat: several references of one text
        grouped = table.grouped or (distinct and (self.stated or table.titles is None))
        if ids == reference_ids and not grouped:
            return [*range(len(ids))]
        place_of: dict[str, int] = {}
        texts_of: dict[str, set[str]] = defaultdict(set)
        for place, key in enumerate(reference_ids):
            place_of.setdefault(key, place)
            texts_of[key].add(str(table.rows[place][self.references.text]))
            if len(texts_of[key]) > 1 and not grouped:
                both = [(table, self.of_references), (self.outputs.table, self.of_outputs)]
                titles = list(dict.fromkeys(of.titles[i] for of, places in both for i in places if of.titles))
                first = f"say {option('--id', titles)}" if distinct and titles else "write {id: [texts]}"
                said = f"the id {key!r:.60} has several references (ids: {self.references.titles(self.of_references)})"
                how = f"if they are several references of one text, {first}: the first of them counts"
                raise table.error(f"{said}; {HOW}; {how}")
        if missing := [key for key in ids if key not in place_of]:
            self.refuse_missing(ids, missing, [*place_of])
        if several := sum(len(texts_of[key]) > 1 for key in {*ids}):
            notes.append(f"{count_of(several, 'id has', 'ids have')} several references; the first of them counts")
        return [place_of[key] for key in ids]

    def refuse_missing(self, ids: list[str], missing: list[str], known: list[str]) -> None:
        """Raise UserError for ids that the references lack."""
        table, of = self.outputs.table, self.references.table.path
        some = ids[:: len(ids) // MOST_ENDS**3 + 1]
        ends = {next((key.removeprefix(one) for one in known if one and key.startswith(one)), "") for key in some}
        if all(re.match(r"[\W_]", end) for end in ends) and len(ends) <= MOST_ENDS:
            said = f"its ids are those of {of} with {join_names([*map(repr, sorted(ends))])} behind them, as of systems"
            raise table.error(f"{said}; give one file for each, with the ids of the references")
        said = f"the id {missing[0]!r:.60} is not in {of}, whose first id is {known[0]!r:.60}"
        said += f" ({len(missing)} of {len(ids)} ids are missing there; ids: {self.titles()})"
        raise table.error(f"{said}; give the file with these references, or {HOW}")

    def groups(self) -> tuple[list[int], str]:
        """Return the first reference of each group, if there are as many groups as outputs, and what divides them."""
        side = self.references
        marks = {"empty lines": [None if row[side.text] else "" for row in side.table.rows]}
        marks |= {side.table.shown(i): side.values([i]) for i in side.columns.values()}
        for what, cells in marks.items():
            starts = [i for i, cell in enumerate(cells) if cell != "" and (i == 0 or cell != cells[i - 1])]
            if len(starts) == len(self.outputs.table.rows) and len({cells[i] for i in starts}) in (1, len(starts)):
                return starts, what
        return [], ""

    def parallel(self, notes: list[str]) -> list[int]:
        """Return places row by row, without empty texts at the end of one file, or the first of each group."""
        sides = (self.outputs, self.references)
        counts, filled = [len(side.table.rows) for side in sides], [*map(Side.last_filled, sides)]
        if filled[0] == filled[1] or min(counts) >= max(filled):
            if filled[0] != filled[1]:
                one, other = sides if filled[0] < filled[1] else sides[::-1]
                many = max(filled) - min(filled)
                empty = "last text is empty, and counts" if many == 1 else f"last {many} texts are empty, and count"
                head = f"if line 1 of {other.table.path} is a header, all pairs are one row off: name it with --columns"
                notes.append(f"of {one.table.path}, the {empty}; {head}")
            return [*range(max(filled))]
        starts, what = self.groups()
        if starts:
            notes.append(f"each output has a group of references, divided by {what}; the first of a group counts")
            return starts
        ids = [join_names([side.table.shown(i) for i in side.columns.values()]) for side in sides[::-1]]
        how = f" ({ids[0]}; {ids[1]}), or say --id=REFERENCE_ID,PREDICTION_ID to join by ids" if all(ids) else ""
        said = f"{counts[0]} texts, and {counts[1]} references in {self.references.table.path}; expected as many"
        look = "look for missing or extra lines, or for a header of unknown names in one file"
        raise self.outputs.table.error(f"{said}, in the same order; {look}{how}")


def join_files(outputs: Side, references: Side, option_id: Sequence[str] | None) -> tuple[Table, Columns]:
    """Return two files as one table, and what its columns hold. `option_id`: the values of `--id`."""
    join = Join(outputs, references).choose(option_id)
    notes = [*outputs.table.notes, *references.table.notes]
    changed: Changed = {}
    places = join.places(notes)
    for side in (outputs, references):
        if side.table.titles is None and side.table.path.suffix.lower() in (".csv", ".tsv") and not join.of_references:
            first = str(side.table.rows[0][side.text])
            said = f"line 1 of {side.table.path}, {first!r:.60}, is used as a text"
            notes.append(f"{said}; if it is a header, all pairs are one row off: name it with --columns")
    if all(firsts := [side.first_text() for side in (outputs, references)]):
        said = f"the first lines, {' and '.join(map(repr, firsts))}, may be headers, and are used as a sample"
        notes.append(f"{said}; {option('--columns', firsts[::-1])} would leave them out")
    sides = [
        (references.table.rows[k][references.text], row[outputs.text])
        for k, row in zip(places, outputs.table.rows, strict=False)
    ]
    both = [i for i, pair in enumerate(sides) if ABSENT not in pair]
    if len(both) < len(places):
        only = [sum(pair[side] is not ABSENT for pair in sides) - len(both) for side in (0, 1)]
        many = count_of(len(places) - len(both), "object without both texts is", "objects without both texts are")
        notes.append(f"{many} left out; {only[0]} of these have a reference only, {only[1]} a prediction only")
    outputs.table, places = outputs.table.keep(both), [places[i] for i in both]
    parts = outputs.table
    ids = outputs.values(join.of_outputs) if join.of_outputs else []
    about = {name: [column[i] for i in places] for name, column in stated(references.table, references.about).items()}
    about |= stated(outputs.table, outputs.about)
    about |= {"sample_id": ids} if ids and len({*ids}) == len(ids) else {}
    truth = texts(references.table, references.text, "reference", changed, places)
    predictions = texts(outputs.table, outputs.text, "prediction", changed)
    if not {"condition", "eval_condition"} & about.keys():
        one = divided(outputs.table, outputs.read(join.of_outputs), truth)
        two = divided(references.table.keep(places), references.read(join.of_references), truth)
        parts = one if one.blocks else two
    grouped = references.table.grouped or (not join.of_references and places != [*range(len(places))])
    keys = references.values(join.of_references) if join.of_references else range(len(references.table.rows))
    used = {keys[place] for place in places}
    more = 0 if grouped else sum(key not in used for key in keys)
    kind = f"{outputs.described(join.of_outputs)}; references from {references.table.path}: "
    kind += references.described(join.of_references) + (f", {more} of them without a prediction" if more else "")
    layout, unit = ("K", "id") if join.of_references else ("P", "line")
    rows = [*zip(truth, predictions, *about.values(), strict=True)]
    notes += conversions(changed)
    table = Table(outputs.table.path, layout, f"{kind}; {join.said()}", None, rows, unit=unit, notes=(*notes,))
    table = dataclasses.replace(table, blocks=parts.blocks, why=parts.why)
    return table, dataclasses.replace(FIRST_TWO, about={name: [i] for i, name in enumerate(about, 2)})
