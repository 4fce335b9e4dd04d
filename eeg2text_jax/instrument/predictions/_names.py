"""The dictionary of names: what a column of a table, a field of JSON or a label of a printed text holds.

`names.toml` has the names; `--names=FILE` adds a user's file of the same form.
"""

import dataclasses
import functools
import itertools
import os
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from eeg2text_jax.base.errors import UserError, did_you_mean
from eeg2text_jax.instrument.predictions.file import UNKNOWN, normalize

SIDES = ("reference", "prediction")
TEXT, PHONEMES = "text", "phonemes"  # forms of a text
PARTS = ("trial", "block", "session")  # keys that name a row together, not alone
LIST_OF_PAIRS = "pairs"
# Prefixes and suffixes of a column's name that state the mode of its predictions.
MODE_AFFIXES = {
    "free_running": re.compile(r"_?\(?(?:w/o_?tf|(?:without|wo|no)_tf|free(?:_running)?)\)?$|^free_(?:running_)?"),
    "teacher_forced": re.compile(
        r"_?\(?(?:w/_?tf|(?:with|w)_tf|tf|teacher_forc(?:ed|ing))\)?$|^(?:tf|teacher_forced)_"
    ),
}
# Marks of a condition beside a name of predictions, `pred_real`, that are no name of a column by themselves.
MARKS_OF_CONDITIONS = {"shuffled": "shuffled", "zero": "zero", "real": "eeg", "random": "noise"}
MOST_OF_NAME, FURTHER = 40, 2  # characters of a name of a column; its words beside a known name
COMMON = ("condition", "forced", "decoding", "split", "recording", "onset", "duration", "order")  # words of any text


def normalize_names(names: Iterable[Any]) -> list[str]:
    return [normalize(str(name)) for name in names]


def join_names(names: Sequence[str], most: int = 8, room: int = 200, mark: str = ", ") -> str:
    """Return the first `most` names, or those of `room` characters together, for messages; and how many are left."""
    sizes = [*itertools.accumulate(len(name + mark) for name in names[:most])]
    shown = [f"{name:.{room}}" for name in names[: max(1, sum(size <= room for size in sizes))]]
    return mark.join(shown) + (f" and {len(names) - len(shown)} more" if len(names) > len(shown) else "")


@dataclasses.dataclass(frozen=True)
class Names:
    """What the names of columns mean; names are compared in the form of `normalize`."""

    sections: Mapping[str, Any]  # the content of `names.toml`
    claimed: Mapping[str, str] = dataclasses.field(default_factory=dict)  # name in a user's file -> its section

    @functools.cached_property
    def pairs(self) -> list[tuple[str, str]]:
        return [(reference, prediction) for reference, prediction in self.sections[LIST_OF_PAIRS]]

    @functools.cached_property
    def fields(self) -> dict[str, str]:
        """Name of a column -> field of `Samples.about`, such as "subject"."""
        return self._key_of("field")

    @functools.cached_property
    def keys(self) -> dict[str, str]:
        """Name of a column -> key by which files are joined, such as "id"; in order of preference."""
        return self._key_of("key")

    @functools.cached_property
    def _conditions(self) -> dict[str, str]:
        return self._key_of("condition")

    def _key_of(self, section: str) -> dict[str, str]:
        return {name: key for key, names in self.sections[section].items() for name in names}

    @functools.cached_property
    def _forms(self) -> dict[str, dict[str, str]]:
        """Side -> name of a text column -> form of its text ("text" or "phonemes")."""
        forms: dict[str, dict[str, str]] = {side: {} for side in SIDES}
        for place, side in enumerate(SIDES):
            names, marks = self.sections[side]["names"], self.sections[side]["marks"]
            form_of = dict.fromkeys((pair[place] for pair in self.pairs if pair[place] not in self.maybe), TEXT)
            for form, nouns in self.sections["nouns"].items():
                form_of |= {f"{a}_{b}": form for m in marks for n in nouns for a, b in ((m, n), (n, m))}
            forms[side] = {name: form for name, form in form_of.items() if self.claimed.get(name, side) == side}
            forms[side] = dict.fromkeys(names, TEXT) | forms[side]
        return forms

    @functools.cached_property
    def maybe(self) -> tuple[str, ...]:
        return tuple(self.sections["reference"]["maybe"])

    @functools.cached_property
    def either(self) -> tuple[str, ...]:
        return (*self.sections["either"]["names"], *self.sections["nouns"]["text"])

    def form(self, side: str, name: str) -> str:
        """Return the form of the text in a column of `side` ("reference" or "prediction"), "" if it is none."""
        return self._forms[side].get(name, "")

    def condition(self, name: str) -> str:
        """Return the condition that a column's name states (`pred_noise`: "noise", `eeg_pred`: "eeg"), or ""."""
        if name in self._conditions:
            return self._conditions[name]
        for mark, condition in (self._conditions | MARKS_OF_CONDITIONS).items():
            rest = name.removesuffix(f"_{mark}") if name.endswith(f"_{mark}") else name.removeprefix(f"{mark}_")
            if rest != name and self.form("prediction", rest):
                return condition
        return ""

    def split_mode(self, name: str) -> tuple[str, str]:
        """Split a column's name such as `pred_tf` into its base and its mode ("unknown" if the name states none)."""
        for mode, affix in MODE_AFFIXES.items():
            base = affix.sub("", name)
            if base != name and (self.form("prediction", base) or self.condition(base)):
                return base, mode
        return name, UNKNOWN

    def is_text(self, name: str) -> bool:
        """Return whether a name is of a column of references or predictions, whatever else it may be."""
        base = self.split_mode(name)[0]
        return any(self.form(side, base) for side in SIDES) or base in (*self.maybe, *self.either)

    def is_usual(self, name: str) -> bool:
        """Return whether a name is known and rare enough outside of headers to tell a header from a sample."""
        named = self.is_text(name) or bool(self.condition(self.split_mode(name)[0])) or self.keys.get(name) == "id"
        return named or self.fields.get(name, "condition") not in COMMON

    def likely(self, names: Sequence[str]) -> list[int]:
        """Return the positions of two names that hold known ones as words: `transcript_raw`, `hypothesis_raw`.

        The longest known name says the side, fewest further words come first. [] if a side is missing.
        """
        ranked: dict[str, list[tuple[int, int]]] = {side: [] for side in SIDES}
        for place, name in enumerate(names):
            words = [*filter(None, name.split("_"))] if len(name) < MOST_OF_NAME and ":" not in name else []
            for more, first in ((k, i) for k in range(min(len(words), FURTHER + 1)) for i in range(k + 1)):
                known = "_".join(words[first : first + len(words) - more])
                side = "prediction" if self.form("prediction", known) else "reference"
                if self.form(side, known) or known in self.maybe:
                    ranked[side].append((more, place))
                    break
        return [min(of)[1] for of in ranked.values()] if all(ranked.values()) else []

    def contrasted(self, labels: Sequence[str]) -> list[str]:
        """Return two of the labels with one noun, the first with a mark of references: `Actual x`, `Translated x`."""
        marks = tuple(f"{mark}_" for mark in self.sections["reference"]["marks"])
        plain = dict(zip(labels, normalize_names(labels), strict=True))
        for label, name in plain.items():
            nouns = {name.removeprefix(mark) for mark in marks if name.startswith(mark)}
            ends = tuple(f"_{noun}" for noun in nouns)
            others = [one for one, of in plain.items() if of.endswith(ends) and not of.startswith(marks)]
            if ends and others:
                return [label, others[-1]]
        return []

    def is_header(self, names: Sequence[str]) -> bool:
        """Return whether a record names columns.

        Two are usual, or hold known names of both sides and share a word, or all look like names and one is usual or
        the first, an index, is empty.
        """
        usual = {self.split_mode(name)[0] for name in names if self.is_usual(name)}
        plain = all(re.fullmatch(r"[\w.:()/]{0,40}", name) for name in names)
        named = plain and any(map(self.is_text, names)) and names[0] not in self.fields
        indexed = plain and names[0] == "" and len(names) > 1 and all(re.match(r"[a-z]", name) for name in names[1:])
        likely = [{*names[place].split("_")} for place in self.likely(names)]
        return len(usual) >= 2 or named or indexed or bool(likely and likely[0] & likely[1])


@functools.cache
def built_in() -> Names:
    return Names(tomllib.loads((Path(__file__).with_name("names.toml")).read_text("utf8")))


def load_names(path: str | os.PathLike[str] | None) -> Names:
    """Return the built-in names with those of a user's file. Raises UserError if the file has another form.

    A name in the user's file means only what it means there.
    """
    if path is None:
        return built_in()
    try:
        added = tomllib.loads(Path(path).read_text("utf8"))
    except (OSError, ValueError) as error:
        form = "; write it as instrument/predictions/names.toml, UTF-8 text" if isinstance(error, ValueError) else ""
        raise UserError(f"{path}: {f'not TOML ({error})' if form else f'cannot be read ({error})'}{form}.") from error
    usual = built_in().sections
    claimed: dict[str, str] = {}
    for section, content in added.items():
        if section not in usual:
            raise UserError(f"{path}: there is no section {section!r}; {did_you_mean(section, usual)}")
        lists = {LIST_OF_PAIRS: content} if section == LIST_OF_PAIRS else content
        if not isinstance(lists, dict):
            raise UserError(f"{path}: {section} is {content!r:.60}; expected a section [{section}] of lists of names.")
        for key, listed in lists.items():
            if section not in (LIST_OF_PAIRS, "condition", "key") and key not in usual[section]:
                raise UserError(f"{path}, [{section}]: there is no {key!r}; {did_you_mean(key, usual[section])}")
            kinds = [[*map(type, one)] if isinstance(one, list) else type(one) for one in listed]
            if not isinstance(listed, list) or any(
                kind != ([str, str] if listed is content else str) for kind in kinds
            ):
                what = "pairs is" if listed is content else f"{section}.{key} is"
                of = "pairs of names" if listed is content else "names"
                raise UserError(f"{path}: {what} {listed!r:.60}; expected a list of {of}.")
            if listed is content:
                claimed |= {normalize(name): side for pair in listed for name, side in zip(pair, SIDES, strict=True)}
            elif key != "marks" and section != "nouns":
                claimed |= dict.fromkeys(normalize_names(listed), section)
    return Names(_merged(usual, added, claimed), claimed)


def _merged(usual: Mapping[str, Any], added: Mapping[str, Any], claimed: Mapping[str, str]) -> dict[str, Any]:
    """Return both dictionaries as one; names that the user's file has go first, and have no other meaning."""
    merged: dict[str, Any] = {}
    for section, content in usual.items():
        mine = added.get(section, {})
        if section == LIST_OF_PAIRS:
            left = [pair for pair in content if all(claimed.get(n, s) == s for n, s in zip(pair, SIDES, strict=True))]
            merged[section] = [*map(normalize_names, mine), *left]
            continue
        left = {key: [n for n in names if n not in claimed or key == "marks"] for key, names in content.items()}
        keys = {**content, **mine}
        merged[section] = {key: [*normalize_names(mine.get(key, [])), *left.get(key, [])] for key in keys}
    return merged
