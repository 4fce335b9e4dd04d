"""The dictionary of names of columns, fields and labels, `names.toml`; `--names=FILE` adds a file of the same form."""

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
# Marks of a condition beside a name (`pred_real`) that are no names by themselves.
MARKS_OF_CONDITIONS = {"shuffled": "shuffled", "zero": "zero", "real": "eeg", "random": "noise"}
MOST_OF_NAME, FURTHER = 40, 2  # characters of a name; words beside a known one
COMMON = ("condition", "forced", "decoding", "split", "recording", "onset", "duration", "order")  # words of any text


def normalize_names(names: Iterable[Any]) -> list[str]:
    return [normalize(str(name)) for name in names]


def join_names(names: Sequence[str], most: int = 8, room: int = 200, mark: str = ", ") -> str:
    """Return at most `most` names or `room` characters for messages, and how many names are left."""
    sizes = [*itertools.accumulate(len(name + mark) for name in names[:most])]
    shown = [f"{name:.{room}}" for name in names[: max(1, sum(size <= room for size in sizes))]]
    return mark.join(shown) + (f" and {len(names) - len(shown)} more" if len(names) > len(shown) else "")


class Names:
    """What names of columns, in the form of `normalize`, mean."""

    def __init__(self, sections: Mapping[str, Any], claimed: Mapping[str, str]) -> None:
        """`sections`: the content of `names.toml`; `claimed`: name in a user's file -> its section."""
        self.sections = sections
        self.pairs = [(reference, prediction) for reference, prediction in sections[LIST_OF_PAIRS]]
        # Name -> field such as "subject"; key of joins, in order of preference; condition.
        self.fields, self.keys, self.conditions = (
            {name: key for key, names in sections[of].items() for name in names} for of in ("field", "key", "condition")
        )
        self.maybe = (*sections["reference"]["maybe"],)
        self.either = (*sections["either"]["names"], *sections["nouns"]["text"])
        self.forms: dict[str, dict[str, str]] = {}  # side -> name -> form of the text
        for place, side in enumerate(SIDES):
            forms = dict.fromkeys((pair[place] for pair in self.pairs if pair[place] not in self.maybe), TEXT)
            for form, nouns in sections["nouns"].items():
                marked = itertools.product(sections[side]["marks"], nouns)
                forms |= {name: form for a, b in marked for name in (f"{a}_{b}", f"{b}_{a}")}
            forms = {name: form for name, form in forms.items() if claimed.get(name, side) == side}
            self.forms[side] = dict.fromkeys(sections[side]["names"], TEXT) | forms

    def form(self, side: str, name: str) -> str:
        """Return the form of text of a name of a `side` ("reference" or "prediction"), "" for another name."""
        return self.forms[side].get(name, "")

    def has_both(self, names: Sequence[str]) -> bool:
        """Return whether there are names of both sides."""
        return all(any(self.form(side, name) for name in names) for side in SIDES)

    def condition(self, name: str) -> str:
        """Return the condition of a name (`pred_noise`: "noise", `eeg_pred`: "eeg"), or ""."""
        if name in self.conditions:
            return self.conditions[name]
        for mark, condition in (self.conditions | MARKS_OF_CONDITIONS).items():
            rest = name.removesuffix(f"_{mark}") if name.endswith(f"_{mark}") else name.removeprefix(f"{mark}_")
            if rest != name and self.form("prediction", rest):
                return condition
        return ""

    def split_mode(self, name: str) -> tuple[str, str]:
        """Split a name such as `pred_tf` into its base and its mode, perhaps "unknown"."""
        for mode, affix in MODE_AFFIXES.items():
            base = affix.sub("", name)
            if base != name and (self.form("prediction", base) or self.condition(base)):
                return base, mode
        return name, UNKNOWN

    def is_text(self, name: str) -> bool:
        """Return whether a name may be of references or predictions."""
        base = self.split_mode(name)[0]
        return any(self.form(side, base) for side in SIDES) or base in (*self.maybe, *self.either)

    def is_usual(self, name: str) -> bool:
        """Return whether a name is known, and rare enough in texts to tell a header."""
        named = self.is_text(name) or bool(self.condition(self.split_mode(name)[0])) or self.keys.get(name) == "id"
        return named or self.fields.get(name, "condition") not in COMMON

    def likely(self, names: Sequence[str]) -> list[int]:
        """Return the positions of two names that hold known ones: `transcript_raw`, `hypothesis_raw`; [] without two.

        Or of `x` and `predicted_x`. The longest known name says the side; names with fewest further words are taken.
        """
        ends = [re.compile(rf"^{mark}_|_{mark}$") for mark in self.sections["prediction"]["marks"]]
        for place, name in enumerate(names):
            if twin := {end.sub("", name) for end in ends} & {*names} - {name, ""}:
                return [names.index(twin.pop()), place]
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
        """Return two labels with one noun, first that with a mark of references: `Actual x`, `Translated x`."""
        marks = tuple(f"{mark}_" for mark in self.sections["reference"]["marks"])
        plain = dict(zip(labels, normalize_names(labels), strict=True))
        for label, name in plain.items():
            nouns = {name.removeprefix(mark) for mark in marks if name.startswith(mark)}
            ends = tuple(f"_{noun}" for noun in nouns)
            others = [one for one, of in plain.items() if of.endswith(ends) and not of.startswith(marks)]
            said = [one for one in others if {*plain[one].split("_")} & {*self.sections["prediction"]["marks"]}]
            if ends and others:
                return [label, (said or others)[-1]]
        return []

    def is_header(self, names: Sequence[str]) -> bool:
        """Return whether a record names columns.

        Two are usual, or hold known names of both sides and share a word; or all look like names, and one is of a text
        or the first, an index, is empty.
        """
        usual = {self.split_mode(name)[0] for name in names if self.is_usual(name)}
        plain = all(re.fullmatch(r"[\w.:()/]{0,40}", name) for name in names)
        named = plain and any(map(self.is_text, names)) and names[0] not in self.fields
        indexed = plain and names[0] == "" and len(names) > 1 and all(re.match(r"[a-z]", name) for name in names[1:])
        likely = [{*names[place].split("_")} for place in self.likely(names)]
        return len(usual) >= 2 or named or indexed or bool(likely and likely[0] & likely[1])


@functools.cache
def built_in() -> Names:
    return Names(tomllib.loads((Path(__file__).with_name("names.toml")).read_text("utf8")), {})


def load_names(path: str | os.PathLike[str] | None) -> Names:
    """Return the built-in names with those of a user's file, which mean only what it says."""
    usual = built_in().sections
    if path is None:
        return built_in()
    try:
        added = tomllib.loads(Path(path).read_text("utf8"))
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error}).") from error
    except ValueError as error:
        form = "write it as instrument/predictions/names.toml, UTF-8 text"
        raise UserError(f"{path}: not TOML ({error}); {form}.") from error
    claimed: dict[str, str] = {}
    for section, content in added.items():
        if section not in usual:
            raise UserError(f"{path}: there is no section {section!r}; {did_you_mean(section, usual)}")
        if section == LIST_OF_PAIRS:
            pairs = content if isinstance(content, list) else [content]
            if not all(isinstance(pair, list) and [*map(type, pair)] == [str, str] for pair in pairs):
                raise UserError(f"{path}: pairs is {content!r:.60}; expected a list of pairs of names.")
            claimed |= {normalize(name): side for pair in content for name, side in zip(pair, SIDES, strict=True)}
            continue
        if not isinstance(content, dict):
            raise UserError(f"{path}: {section} is {content!r:.60}; expected a section [{section}] of lists of names.")
        for key, names in content.items():
            if section not in ("condition", "key") and key not in usual[section]:
                raise UserError(f"{path}, [{section}]: there is no {key!r}; {did_you_mean(key, usual[section])}")
            if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
                raise UserError(f"{path}: {section}.{key} is {names!r:.60}; expected a list of names.")
            if key != "marks" and section != "nouns":
                claimed |= dict.fromkeys(normalize_names(names), section)
    mine, others = added.pop(LIST_OF_PAIRS, []), usual[LIST_OF_PAIRS]
    kept = [pair for pair in others if all(claimed.get(n, s) == s for n, s in zip(pair, SIDES, strict=True))]
    merged: dict[str, Any] = {LIST_OF_PAIRS: [*map(normalize_names, mine), *kept]}
    for section in usual.keys() - {LIST_OF_PAIRS}:
        left = {key: [n for n in of if n not in claimed or key == "marks"] for key, of in usual[section].items()}
        mine = {key: normalize_names(names) for key, names in added.get(section, {}).items()}
        merged[section] = {key: [*mine.get(key, []), *left.get(key, [])] for key in {**left, **mine}}
    return Names(merged, claimed)
