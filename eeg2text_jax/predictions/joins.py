"""Join a file of predictions with a file of references: by columns that are one key, or row by row."""

import dataclasses
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from eeg2text_jax.errors import UserError
from eeg2text_jax.predictions.columns import field_positions, join_names, option, side_column, stated_fields, text_of
from eeg2text_jax.predictions.containers import Table, is_id
from eeg2text_jax.predictions.file import UNKNOWN
from eeg2text_jax.predictions.foreign import ForeignRow
from eeg2text_jax.predictions.names import PARTS, Names, normalize

FAIRSEQ = re.compile(r"^[STHD]-(?=\d+$)")  # prefixes of ids in fairseq's output
ROWS = "rows"  # --id=rows joins row by row
HOW = "say --id=COLUMN to join by another column, --id=COLUMN,COLUMN by several, or --id=rows to join row by row"
UNNAMED = "*"  # the key of ids without a name of their column


@dataclasses.dataclass
class Side:
    """One of two files: its table, its column of texts, its columns of keys and of fields."""

    table: Table
    role: str  # "reference" or "prediction"
    text: int
    keys: dict[str, int]  # key -> position, in the order of preference
    about: dict[str, list[int]]

    @classmethod
    def of(cls, table: Table, role: str, column: str | None, names: Names, groups: Sequence[str]) -> "Side":
        if not table.rows:
            raise UserError(f"{table.path}: no texts in the file.")
        text = side_column(table, role, column, names)
        plain = table.names or []
        keys: dict[str, int] = {}
        for key in dict.fromkeys(names.keys.values()):
            place = next((i for i, name in enumerate(plain) if i != text and names.keys.get(name) == key), None)
            keys |= {} if place is None else {key: place}
        if table.titles is None:
            ids = [i for i in range(table.width) if i != text and (table.coded or is_id(table.column(i)))]
            keys = {UNNAMED: ids[0]} if ids else {}
        about = {f: i for f, i in field_positions(table, names).items() if f not in ("sample_id", "sentence_id")}
        titles = {name: normalize(name) for name in groups}
        about |= {f"group {name}": [plain.index(title)] for name, title in titles.items() if title in plain}
        return cls(table, role, text, keys, about)

    def values(self, places: Sequence[int]) -> list[str]:
        """Return each row's id, of one column or of several."""
        return ["/".join("" if row[i] is None else str(row[i]).strip() for i in places) for row in self.table.rows]

    def distinct(self) -> dict[str, int]:
        """Return the columns beside the texts that have another value in each row: normalized name -> position."""
        found = enumerate(self.table.names or ())
        return {n: i for i, n in found if i != self.text and len({*self.values([i])}) == len(self.table.rows) > 1}

    def titles(self, places: Sequence[int]) -> str:
        return " and ".join(self.table.shown(i) for i in places)

    def described(self, used: Sequence[int]) -> str:
        """Return the columns in words: texts, ids and what is not used."""
        if self.table.layout in ("P", "K"):
            return self.table.kind
        told = {self.text, *used, *(i for places in self.about.values() for i in places)}
        unused = [self.table.shown(i) for i in range(self.table.width) if i not in told]
        said = f"{self.table.kind}, {self.role} {self.table.shown(self.text)}"
        said += f", id {self.titles(used)}" if used else ""
        return said + (f", not used: {join_names(unused)}" if unused else "")


@dataclasses.dataclass
class Join:
    """How rows were joined: positions of the ids on both sides ((), () row by row), and a sentence on it."""

    outputs: Sequence[int]
    references: Sequence[int]
    said: str


def join_files(
    outputs: Side, references: Side, names: Names, stated: Sequence[str] | None = None
) -> tuple[Iterator[ForeignRow], str, list[str]]:
    """Return the samples, the layout in words and notes. `stated`: the columns of `--id`, or `ROWS`.

    Raises UserError if no key is in both files and they differ in length, or if ids have no or several references.
    """
    join = choose(outputs, references, names, stated)
    notes: list[str] = []
    if join.references:
        places = by_id(outputs, references, join, notes)
    else:
        equally_long(outputs, references)
        places = list(range(len(outputs.table.rows)))
    firsts = [str(side.table.rows[0][side.text]) for side in (outputs, references)]
    if all(side.table.titles is None and is_short(side) for side in (outputs, references)):
        notes.append(f"the first lines, {' and '.join(map(repr, firsts))}, may be headers, and are used as a sample")
    more = len(references.table.rows) - len(set(places)) if not references.table.grouped else 0
    said = f"{'K' if join.references else 'P'} ({outputs.described(join.outputs)}; references from "
    said += f"{references.table.path}: {references.described(join.references)}"
    said += f", {more} of them without a prediction" if more else ""
    said += f"; {join.said}" if join.said else ""
    return rows_of(outputs, references, places, join), f"{said})", notes


def is_short(side: Side) -> bool:
    """Return whether the first text has one or two words and the others usually more, as below a header."""
    lengths = [len(str(row[side.text]).split()) for row in side.table.rows]
    return lengths[0] < 3 and sorted(lengths)[len(lengths) // 2] > 3


def choose(outputs: Side, references: Side, names: Names, stated: Sequence[str] | None) -> Join:
    """Return how to join: as stated, by a key that both files have, or row by row."""
    if stated is not None and [normalize(name) for name in stated] == [ROWS]:
        return Join((), (), "joined row by row, as stated")
    if stated is not None:
        mine, theirs = stated_keys(outputs, references, stated)
        return Join(mine, theirs, f"joined by {pair_of(outputs, references, mine, theirs)}, as stated")
    sides = (outputs, references)
    if any(UNNAMED in side.keys for side in sides) and all(side.keys for side in sides):
        return unnamed_join(outputs, references)
    if one := next((side for side in sides if side.table.coded), None):
        refuse_coded(one, references if one is outputs else outputs)
    common = [key for key in outputs.keys if key in references.keys]
    single = [key for key in common if key not in PARTS]
    for key in single:
        mine, theirs = [outputs.keys[key]], [references.keys[key]]
        if fits(outputs, references, mine, theirs):
            return Join(mine, theirs, how(outputs, references, mine, theirs))
    parts = [key for key in common if key in PARTS]
    mine, theirs = [outputs.keys[k] for k in parts], [references.keys[k] for k in parts]
    if "trial" in parts:  # a trial is one of a session or of a reader
        both = [side.about.get("subject", [])[:1] for side in sides]
        mine, theirs = (mine + both[0], theirs + both[1]) if all(both) else (mine, theirs)
    if parts and (fits(outputs, references, mine, theirs) or not single):
        return Join(mine, theirs, how(outputs, references, mine, theirs))
    if single:  # what does not fit is said by `by_id`
        mine, theirs = [outputs.keys[single[0]]], [references.keys[single[0]]]
        return Join(mine, theirs, "")
    distinct = [side.distinct() for side in sides]
    for title, i in distinct[0].items():  # other columns of one name
        if title in distinct[1] and fits(outputs, references, [i], [distinct[1][title]]):
            return Join([i], [distinct[1][title]], f"joined by {outputs.titles([i])}")
    refuse_other_order(outputs, references)
    titles = [side.titles(sorted({*side.keys.values(), *side.distinct().values()})) for side in sides]
    why = "no column of ids is in both files" if all(titles) else "only one file has ids" if any(titles) else ""
    both = f" ({' and of the references '.join(filter(None, titles))})" if why else ""
    return Join((), (), f"joined row by row{f', because {why}{both}' if why else ''}")


def how(outputs: Side, references: Side, mine: Sequence[int], theirs: Sequence[int]) -> str:
    """Return in words by which columns rows are joined, or that equal ids that repeat are taken in their order."""
    titles, known = pair_of(outputs, references, mine, theirs), references.values(theirs)
    if outputs.values(mine) == known and len(set(known)) < len(known):
        return f"joined row by row, because {titles} repeats, in one order in both files"
    return f"joined by {titles}"


def pair_of(outputs: Side, references: Side, mine: Sequence[int], theirs: Sequence[int]) -> str:
    a, b = outputs.titles(mine), references.titles(theirs)
    return a if a == b else f"{a} of the predictions and {b} of the references"


def stated_keys(outputs: Side, references: Side, stated: Sequence[str]) -> tuple[list[int], list[int]]:
    """Return the positions of the columns of `--id` on both sides.

    The columns are in both files; or of two columns, the first is in the references and the second in the predictions.
    """
    found = []
    for side in (outputs, references):
        found.append({name: (side.table.names or []).index(n) for name in stated
                      if (n := normalize(name)) in (side.table.names or [])})  # fmt: skip
    mine, theirs = found
    if len(mine) == len(theirs) == len(stated):
        return [mine[name] for name in stated], [theirs[name] for name in stated]
    if len(stated) == 2 and stated[0] in theirs and stated[1] in mine:
        return [mine[stated[1]]], [theirs[stated[0]]]
    if len(stated) == 2 and stated[0] in mine and stated[1] in theirs:
        return [mine[stated[0]]], [theirs[stated[1]]]
    for side, names in ((outputs, mine), (references, theirs)):
        if missing := [name for name in stated if name not in names]:
            columns = join_names(side.table.names) if side.table.names else "without names"
            raise UserError(
                f"{option('--id', stated)}: {side.table.path} has no column {missing[0]!r}, its columns are {columns}; "
                "name columns of both files, or one of the references and one of the predictions."
            )
    raise AssertionError("all stated columns are in both files")


def unnamed_join(outputs: Side, references: Side) -> Join:
    """Return the join of a file whose ids have no name with the first column of the other that has these ids."""
    sides = [[place for key, place in side.keys.items()] for side in (outputs, references)]
    pairs = [([mine], [theirs]) for mine in sides[0] for theirs in sides[1]]
    mine, theirs = next((pair for pair in pairs if fits(outputs, references, *pair)), pairs[0])
    return Join(mine, theirs, "")


def refuse_coded(one: Side, other: Side) -> None:
    """Raise UserError for a file with an id beside each text, and another without ids."""
    if one.table.layout == "K":
        raise UserError(
            f"{one.table.path} and {other.table.path}: one has its texts by id and the other line by line; give both "
            "in the same form."
        )
    first = one.values([one.keys[UNNAMED]])[0]
    raise UserError(
        f"{one.table.path}: each line begins or ends with an id, such as {first!r:.40}, and the lines of "
        f"{other.table.path} do not; give both files with ids or both without, or say --format=P if the ids are part "
        "of the texts."
    )


def refuse_other_order(outputs: Side, references: Side) -> None:
    """Raise UserError if columns of other names hold the same values in another order: the rows are not parallel."""
    for mine in outputs.distinct().values():
        for theirs in references.distinct().values():
            ids, known = outputs.values([mine]), references.values([theirs])
            if ids != known and sorted(ids) == sorted(known) and len(set(ids)) > 1:
                a, b = (side.table.titles[i] for side, i in ((references, theirs), (outputs, mine)))
                raise UserError(
                    f"{outputs.table.path}: its {outputs.titles([mine])} and {references.titles([theirs])} of "
                    f"{references.table.path} hold the same values in another order, but the names are not one key; "
                    f"say {option('--id', [a, b])} to join by them, or --id=rows to join row by row."
                )


def fits(outputs: Side, references: Side, mine: Sequence[int], theirs: Sequence[int]) -> bool:
    """Return whether each row of the predictions has one text among the references by these columns."""
    ids, known = alike(outputs.values(mine), references.values(theirs))
    texts = [str(row[references.text]) for row in references.table.rows]
    if ids == known or references.table.grouped:
        return set(ids) <= set(known)
    found = dict(zip(known, texts, strict=True))
    return set(ids) <= found.keys() and all(found[k] == text for k, text in zip(known, texts, strict=True))


def alike(ids: list[str], known: list[str]) -> tuple[list[str], list[str]]:
    """Return the ids of both files, without differences in case, in `1.0` for `1`, or in prefixes as `T-` and `H-`.

    Ids are returned unchanged if two ids of a file would become equal, or if the files would still not match.
    """
    for form in (str, str.casefold, lambda key: FAIRSEQ.sub("", key), lambda key: re.sub(r"^(\d+)\.0$", r"\1", key)):
        changed, reduced = list(map(form, ids)), list(map(form, known))
        distinct = len(set(changed)) == len(set(ids)) and len(set(reduced)) == len(set(known))
        if distinct and set(changed) <= set(reduced):
            return changed, reduced
    return ids, known


def by_id(outputs: Side, references: Side, join: Join, notes: list[str]) -> list[int]:
    """Return for each prediction the position of the reference with its id. Raises UserError if none or several fit."""
    ids, known = alike(outputs.values(join.outputs), references.values(join.references))
    if ids == known and not references.table.grouped:
        return list(range(len(ids)))
    found: dict[str, int] = {}
    texts: dict[str, set[str]] = defaultdict(set)
    titles = references.titles(join.references)
    for place, key in enumerate(known):
        found.setdefault(key, place)
        texts[key].add(str(references.table.rows[place][references.text]))
        if len(texts[key]) > 1 and not references.table.grouped:
            raise UserError(
                f"{references.table.path}: the id {key!r:.60} has several references (ids: {titles}); {HOW}, or write "
                "{id: [texts]}, of which the first counts."
            )
    if missing := [key for key in ids if key not in found]:
        raise UserError(
            f"{outputs.table.path}: the id {missing[0]!r:.60} is not in {references.table.path}, whose first id is "
            f"{known[0]!r:.60} ({len(missing)} of {len(ids)} ids are missing there; ids: "
            f"{pair_of(outputs, references, join.outputs, join.references)}); give the file with the references of "
            f"these texts, or {HOW}."
        )
    if several := sum(len(texts[key]) > 1 for key in set(ids)):
        notes.append(f"{several} ids have several references; the first of them counts")
    return [found[key] for key in ids]


def equally_long(outputs: Side, references: Side) -> None:
    """Cut empty texts at the end of the longer file. Raises UserError if the numbers of rows still differ."""
    n = min(len(outputs.table.rows), len(references.table.rows))
    counts = [len(side.table.rows) for side in (outputs, references)]
    for side in (outputs, references):
        if any(row[side.text] for row in side.table.rows[n:]):
            ids = [s.titles([*s.keys.values()]) for s in (references, outputs)]
            how = f" ({ids[0]}; {ids[1]}), or say --id=REFERENCE_ID,PREDICTION_ID to join by ids" if all(ids) else ""
            raise UserError(
                f"{outputs.table.path}: {counts[0]} texts, and {counts[1]} references in {references.table.path}; "
                f"expected as many references as texts, in the same order; look for missing or extra lines, or for a "
                f"header of unknown names in one file{how}."
            )
    for side in (outputs, references):
        side.table.rows = side.table.rows[:n]


def rows_of(outputs: Side, references: Side, places: Sequence[int], join: Join) -> Iterator[ForeignRow]:
    """Yield the samples: prediction k with the reference at `places[k]`."""
    ids = outputs.values(join.outputs) if join.outputs else []
    unique = bool(ids) and len(set(ids)) == len(ids)
    for row, place in enumerate(places):
        expected, how_expected = cell_of(references, place, ids[row] if ids else "")
        found, how_found = cell_of(outputs, row, ids[row] if ids else "")
        notes = [f"{side} {how}" for side, how in (("references", how_expected), ("predictions", how_found)) if how]
        stated: dict[str, Any] = {}
        for side, number in ((references, place), (outputs, row)):
            stated |= stated_fields(side.table.rows[number], side.about)
        stated |= {"sample_id": ids[row]} if unique else {}
        unit = "id" if ids else "line"
        yield ForeignRow(row + 1, expected, {(UNKNOWN, UNKNOWN): found}, stated, unit, tuple(notes))


def cell_of(side: Side, number: int, key: str) -> tuple[str, str]:
    table = side.table
    where = f"{table.path}, {table.unit} {table.numbers[number]}" + (f", id {key!r:.60}" if key else "")
    value = table.rows[number][side.text]
    if isinstance(value, str) and table.layout in ("P", "K"):  # a whole line may begin and end with a bracket
        return value, ""
    return text_of(value, side.role, table.shown(side.text), where)
