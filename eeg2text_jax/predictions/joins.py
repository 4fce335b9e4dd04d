"""Join a file of predictions with a file of references: by columns that are one key, or row by row."""

import dataclasses
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence

from eeg2text_jax.errors import UserError
from eeg2text_jax.predictions.columns import (
    field_positions,
    group_positions,
    join_names,
    option,
    side_column,
    stated_fields,
    text_of,
)
from eeg2text_jax.predictions.containers import Table, is_id
from eeg2text_jax.predictions.file import UNKNOWN
from eeg2text_jax.predictions.foreign import ForeignRow
from eeg2text_jax.predictions.names import PARTS, Names, normalize

FORMS = (  # ids may differ by case, in `1.0` for `1`, or in the prefixes of fairseq's output
    str,
    str.casefold,
    lambda key: re.sub(r"^[STHD]-(?=\d+$)", "", key),
    lambda key: re.sub(r"^(\d+)\.0$", r"\1", key),
)
ROWS, INDEX = "rows", "index"  # --id=rows joins row by row; an index is the weakest key
HOW = "say --id=COLUMN to join by another column, --id=COLUMN,COLUMN by several, or --id=rows to join row by row"


class Side:
    """One of two files: its table, the column of its texts, its columns of keys and of fields."""

    def __init__(self, table: Table, role: str, column: str | None, names: Names, groups: Sequence[str]) -> None:
        if not table.rows:
            raise UserError(f"{table.path}: no texts in the file.")
        self.table, self.role, self.text = table, role, side_column(table, role, column, names)
        plain = enumerate(table.names or ())
        self.columns = {name: i for i, name in plain if i != self.text}
        found = {
            names.keys.get(name, ""): i for name, i in reversed(self.columns.items())
        }  # of a key, the first column
        self.keys = {key: found[key] for key in dict.fromkeys(names.keys.values()) if key in found}
        if table.titles is None:
            ids = [i for i in range(table.width) if i != self.text and (table.coded or is_id(table.column(i)))]
            self.keys = dict(zip([""], ids, strict=False))  # the key of ids without a name
        self.about = {f: i for f, i in field_positions(table, names).items() if f not in ("sample_id", "sentence_id")}
        self.about |= group_positions(table, groups)

    def values(self, places: Sequence[int]) -> list[str]:
        """Return each row's id, of one column or of several."""
        return ["/".join("" if row[i] is None else str(row[i]).strip() for i in places) for row in self.table.rows]

    def distinct(self) -> dict[str, int]:
        """Return the columns beside the texts that have another value in each row: normalized name -> position."""
        count = len(self.table.rows)
        return {name: i for name, i in self.columns.items() if len({*self.values([i])}) == count > 1}

    def titles(self, places: Sequence[int]) -> str:
        return " and ".join(self.table.shown(i) for i in places)

    def described(self, used: Sequence[int]) -> str:
        """Return the columns in words: texts, ids and what is not used."""
        table = self.table
        if table.layout in ("P", "K"):
            return table.kind
        told = {self.text, *used, *(i for places in self.about.values() for i in places)}
        unused = [table.shown(i) for i in range(table.width) if i not in told]
        said = f"{table.kind}, {self.role} {table.shown(self.text)}" + (f", id {self.titles(used)}" if used else "")
        return said + (f", not used: {join_names(unused)}" if unused else "")

    def looks_headed(self) -> bool:
        """Return whether the first text has one or two words and the others usually more, as below a header."""
        lengths = [len(str(row[self.text]).split()) for row in self.table.rows]
        return self.table.titles is None and lengths[0] < 3 < sorted(lengths)[len(lengths) // 2]

    def cell(self, number: int, key: str) -> tuple[str, str]:
        table, value = self.table, self.table.rows[number][self.text]
        if isinstance(value, str) and table.layout in ("P", "K"):  # a whole line may begin and end with a bracket
            return value, ""
        where = f"{table.path}, {table.unit} {table.numbers[number]}" + (f", id {key!r:.60}" if key else "")
        return text_of(value, self.role, table.shown(self.text), where)


@dataclasses.dataclass
class Join:
    """Two files, the positions of the ids by which they are joined (none: row by row), and a phrase on the join."""

    outputs: Side
    references: Side
    mine: Sequence[int] = ()
    theirs: Sequence[int] = ()
    said: str = ""

    def by(self, mine: Sequence[int], theirs: Sequence[int], said: str = "") -> "Join":
        """Return the join by these columns; `said` is added to its phrase."""
        join = dataclasses.replace(self, mine=mine, theirs=theirs)
        ids, known = join.ids(raw=True)
        titles, parallel = join.titles(), ids == known and len({*known}) < len(known)
        how = f"row by row, because {titles} repeats, in one order in both files" if parallel else f"by {titles}"
        return dataclasses.replace(join, said=f"joined {how}{said}")

    def ids(self, *, raw: bool = False) -> tuple[list[str], list[str]]:
        """Return the ids of both files, in the first of `FORMS` in which all match and none of a file become equal."""
        ids, known = self.outputs.values(self.mine), self.references.values(self.theirs)
        for form in () if raw else FORMS:
            changed, reduced = [*map(form, ids)], [*map(form, known)]
            distinct = len({*changed}) == len({*ids}) and len({*reduced}) == len({*known})
            if distinct and {*changed} <= {*reduced}:
                return changed, reduced
        return ids, known

    def titles(self) -> str:
        mine, theirs = self.outputs.titles(self.mine), self.references.titles(self.theirs)
        return mine if mine == theirs else f"{mine} of the predictions and {theirs} of the references"

    def fits(self, mine: Sequence[int], theirs: Sequence[int]) -> bool:
        """Return whether each row of the predictions has one text among the references by these columns."""
        ids, known = dataclasses.replace(self, mine=mine, theirs=theirs).ids()
        texts = [str(row[self.references.text]) for row in self.references.table.rows]
        found = dict(zip(known, texts, strict=True))
        if not {*ids} <= found.keys() or ids == known or self.references.table.grouped:
            return {*ids} <= found.keys()
        return all(found[key] == text for key, text in zip(known, texts, strict=True))

    def choose(self, stated: Sequence[str] | None) -> "Join":
        """Return how to join: as stated, by a key that both files have, or row by row."""
        outputs, references = self.outputs, self.references
        if stated is not None and [*map(normalize, stated)] == [ROWS]:
            return dataclasses.replace(self, said="joined row by row, as stated")
        if stated is not None:
            return self.by(*self.stated(stated), ", as stated")
        if "" in {*outputs.keys, *references.keys} and outputs.keys and references.keys:  # ids without a name
            pairs = [([mine], [theirs]) for mine in outputs.keys.values() for theirs in references.keys.values()]
            mine, theirs = next((pair for pair in pairs if self.fits(*pair)), pairs[0])
            return dataclasses.replace(self, mine=mine, theirs=theirs)
        self.refuse_coded()
        common = [key for key in outputs.keys if key in references.keys and key not in PARTS]
        pairs = [([outputs.keys[key]], [references.keys[key]]) for key in common if key != INDEX]
        parts = [key for key in outputs.keys if key in references.keys and key in PARTS]
        if parts:
            mine, theirs = ([side.keys[key] for key in parts] for side in (outputs, references))
            readers = [side.about.get("subject", [])[:1] for side in (outputs, references)]
            both = all(readers) and "trial" in parts  # a trial is one of a session, and of a reader
            pairs.append((mine + readers[0], theirs + readers[1]) if both else (mine, theirs))
        unknown = [(i, references.distinct().get(name)) for name, i in outputs.distinct().items()]
        weak = [([i], [other]) for i, other in unknown if other is not None and i != outputs.keys.get(INDEX)]
        weak += [([outputs.keys[INDEX]], [references.keys[INDEX]])] if INDEX in common else []
        for pair in (*pairs, *weak):
            if self.fits(*pair):
                return self.by(*pair)
        if pairs or INDEX in common:  # what does not fit is said by `places`
            mine, theirs = (pairs or weak[-1:])[0]
            return dataclasses.replace(self, mine=mine, theirs=theirs)
        self.refuse_other_order()
        titles = [s.titles(sorted({*s.keys.values(), *s.distinct().values()})) for s in (outputs, references)]
        why = "no column of ids is in both files" if all(titles) else "only one file has ids" if any(titles) else ""
        both = f", because {why} ({' and of the references '.join(filter(None, titles))})" if why else ""
        return dataclasses.replace(self, said=f"joined row by row{both}")

    def stated(self, stated: Sequence[str]) -> tuple[list[int], list[int]]:
        """Return the positions of the columns of `--id` on both sides.

        The columns are in both files; or of two columns, one is of the references and the other of the predictions.
        """
        keys, sides = [*map(normalize, stated)], (self.outputs, self.references)
        found = [[side.columns.get(key) for key in keys] for side in sides]
        if None not in (*found[0], *found[1]):
            return found[0], found[1]
        one, two = ([place for place in places if place is not None] for places in found)
        if len(keys) == 2 and len(one) == len(two) == 1 and found[0].index(one[0]) != found[1].index(two[0]):
            return one, two
        side, places = next((s, p) for s, p in zip(sides, found, strict=True) if None in p)
        columns = join_names(side.table.names) if side.table.names else "without names"
        raise UserError(
            f"{option('--id', stated)}: {side.table.path} has no column {stated[places.index(None)]!r}, its columns "
            f"are {columns}; name columns of both files, or one of the references and one of the predictions."
        )

    def refuse_coded(self) -> None:
        """Raise UserError for a file with an id beside each text, and another without ids."""
        one = next((side for side in (self.outputs, self.references) if side.table.coded), None)
        if one is None:
            return
        other = self.references if one is self.outputs else self.outputs
        if one.table.layout == "K":
            raise UserError(
                f"{one.table.path} and {other.table.path}: one has its texts by id and the other line by line; give "
                "both in the same form."
            )
        raise UserError(
            f"{one.table.path}: each line begins or ends with an id, such as {one.values([one.keys['']])[0]!r:.40}, "
            f"and the lines of {other.table.path} do not; give both files with ids or both without, or say --format=P "
            "if the ids are part of the texts."
        )

    def refuse_other_order(self) -> None:
        """Raise UserError if columns of other names hold the same values in another order: rows are not parallel."""
        outputs, references = self.outputs, self.references
        for mine in outputs.distinct().values():
            for theirs in references.distinct().values():
                ids, known = outputs.values([mine]), references.values([theirs])
                if ids != known and sorted(ids) == sorted(known):
                    named = option("--id", [references.table.titles[theirs], outputs.table.titles[mine]])
                    raise UserError(
                        f"{outputs.table.path}: its {outputs.titles([mine])} and {references.titles([theirs])} of "
                        f"{references.table.path} hold the same values in another order, but the names are not one "
                        f"key; say {named} to join by them, or --id=rows to join row by row."
                    )

    def places(self, notes: list[str]) -> list[int]:
        """Return for each prediction the position of its reference. Raises UserError if none or several fit."""
        if not self.theirs:
            return self.parallel()
        ids, known = self.ids()
        path, grouped = self.references.table.path, self.references.table.grouped
        if ids == known and not grouped:
            return [*range(len(ids))]
        found: dict[str, int] = {}
        texts: dict[str, set[str]] = defaultdict(set)
        for place, key in enumerate(known):
            found.setdefault(key, place)
            texts[key].add(str(self.references.table.rows[place][self.references.text]))
            if len(texts[key]) > 1 and not grouped:
                raise UserError(
                    f"{path}: the id {key!r:.60} has several references (ids: {self.references.titles(self.theirs)}); "
                    f"{HOW}, or write {{id: [texts]}}, of which the first counts."
                )
        if missing := [key for key in ids if key not in found]:
            raise UserError(
                f"{self.outputs.table.path}: the id {missing[0]!r:.60} is not in {path}, whose first id is "
                f"{known[0]!r:.60} ({len(missing)} of {len(ids)} ids are missing there; ids: {self.titles()}); give "
                f"the file with the references of these texts, or {HOW}."
            )
        if several := sum(len(texts[key]) > 1 for key in {*ids}):
            notes.append(f"{several} ids have several references; the first of them counts")
        return [found[key] for key in ids]

    def parallel(self) -> list[int]:
        """Cut empty texts at the end of the longer file. Raises UserError if the numbers of rows still differ."""
        sides = (self.outputs, self.references)
        counts = [len(side.table.rows) for side in sides]
        n = min(counts)
        if any(row[side.text] for side in sides for row in side.table.rows[n:]):
            ids = [side.titles([*side.keys.values()]) for side in sides[::-1]]
            how = f" ({ids[0]}; {ids[1]}), or say --id=REFERENCE_ID,PREDICTION_ID to join by ids" if all(ids) else ""
            raise UserError(
                f"{self.outputs.table.path}: {counts[0]} texts, and {counts[1]} references in "
                f"{self.references.table.path}; expected as many references as texts, in the same order; look for "
                f"missing or extra lines, or for a header of unknown names in one file{how}."
            )
        for side in sides:
            side.table.rows = side.table.rows[:n]
        return [*range(n)]

    def rows(self, places: Sequence[int]) -> Iterator[ForeignRow]:
        """Yield the samples: prediction k with the reference at `places[k]`."""
        ids = self.outputs.values(self.mine) if self.mine else []
        unique = bool(ids) and len({*ids}) == len(ids)
        for row, place in enumerate(places):
            key = ids[row] if ids else ""
            (expected, how), (found, other) = self.references.cell(place, key), self.outputs.cell(row, key)
            notes = [f"{side} {note}" for side, note in (("references", how), ("predictions", other)) if note]
            stated = stated_fields(self.references.table.rows[place], self.references.about)
            stated |= stated_fields(self.outputs.table.rows[row], self.outputs.about)
            stated |= {"sample_id": key} if unique else {}
            unit = "id" if ids else "line"
            yield ForeignRow(row + 1, expected, {(UNKNOWN, UNKNOWN): found}, stated, unit, tuple(notes))


def join_files(
    outputs: Side, references: Side, stated: Sequence[str] | None = None
) -> tuple[Iterator[ForeignRow], str, list[str]]:
    """Return the samples, the layout in words and notes. `stated`: the columns of `--id`, or `ROWS`.

    Raises UserError if no key is in both files and they differ in length, or if ids have no or several references.
    """
    join = Join(outputs, references).choose(stated)
    notes: list[str] = []
    places = join.places(notes)
    if outputs.looks_headed() and references.looks_headed():
        firsts = " and ".join(repr(str(side.table.rows[0][side.text])) for side in (outputs, references))
        notes.append(f"the first lines, {firsts}, may be headers, and are used as a sample")
    more = len(references.table.rows) - len({*places}) if not references.table.grouped else 0
    said = f"{'K' if join.theirs else 'P'} ({outputs.described(join.mine)}; references from {references.table.path}: "
    said += references.described(join.theirs) + (f", {more} of them without a prediction" if more else "")
    return join.rows(places), f"{said}{f'; {join.said}' if join.said else ''})", notes
