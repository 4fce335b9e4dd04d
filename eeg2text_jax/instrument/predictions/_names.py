"""The dictionary of names: what a column of a table, a field of JSON or a label of a printed text holds.

`names.toml` has the names; `--names=FILE` adds a user's file of the same form.
"""

import dataclasses
import functools
import os
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from eeg2text_jax.base.errors import UserError, did_you_mean
from eeg2text_jax.instrument.predictions.file import UNKNOWN

SIDES = ("reference", "prediction")
TEXT, PHONEMES = "text", "phonemes"  # forms of a text
PARTS = ("trial", "block", "session")  # keys that name a row together, not alone
FORBIDDEN = re.compile(r"[\s\-_]+")
LIST_OF_PAIRS = "pairs"
# Prefixes and suffixes of a column's name that state the mode of its predictions.
MODE_AFFIXES = (
    ("free_running", re.compile(r"_?\(?(?:w/o_?tf|(?:without|wo|no)_tf|free(?:_running)?)\)?$|^free_(?:running_)?")),
    (
        "teacher_forced",
        re.compile(r"_?\(?(?:w/_?tf|(?:with|w)_tf|tf|teacher_forc(?:ed|ing))\)?$|^(?:tf|teacher_forced)_"),
    ),
)


def normalize(name: str) -> str:
    """Return a name in lower case with `_` for spaces and hyphens."""
    return FORBIDDEN.sub("_", name.strip().lower())


def normalize_names(names: Iterable[Any]) -> list[str]:
    return [normalize(str(name)) for name in names]


@dataclasses.dataclass(frozen=True)
class Names:
    """What the names of columns mean; names are compared in the form of `normalize`."""

    sections: Mapping[str, Any]  # the content of `names.toml`

    @functools.cached_property
    def pairs(self) -> list[tuple[str, str]]:
        return [(reference, prediction) for reference, prediction in self.sections[LIST_OF_PAIRS]]

    @functools.cached_property
    def fields(self) -> dict[str, str]:
        """Name of a column -> field of `ForeignRow.about`, such as "subject"."""
        return {name: field for field, names in self.sections["field"].items() for name in names}

    @functools.cached_property
    def keys(self) -> dict[str, str]:
        """Name of a column -> key by which files are joined, such as "id"; in order of preference."""
        return {name: key for key, names in self.sections["key"].items() for name in names}

    @functools.cached_property
    def _forms(self) -> dict[str, dict[str, str]]:
        """Side -> name of a text column -> form of its text ("text" or "phonemes")."""
        forms: dict[str, dict[str, str]] = {}
        for side in SIDES:
            section, pairs = self.sections[side], [pair[SIDES.index(side)] for pair in self.pairs]
            form_of = dict.fromkeys((*section["names"], *(n for n in pairs if n not in self.maybe)), TEXT)
            for form, nouns in self.sections["nouns"].items():
                form_of |= {f"{a}_{b}": form for m in section["marks"] for n in nouns for a, b in ((m, n), (n, m))}
            forms[side] = form_of
        claimed = self.sections.get("claimed", {})  # names that the user's file gives a meaning
        return {
            side: {
                n: f for n, f in form_of.items() if claimed.get(n, side) == side or n in self.sections[side]["names"]
            }
            for side, form_of in forms.items()
        }

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
        condition_of = {n: condition for condition, names in self.sections["condition"].items() for n in names}
        if name in condition_of:
            return condition_of[name]
        for end, condition in (
            condition_of | {"shuffled": "shuffled", "zero": "zero", "real": "eeg", "random": "noise"}
        ).items():
            rest = name.removesuffix(f"_{end}") if name.endswith(f"_{end}") else name.removeprefix(f"{end}_")
            if rest != name and self.form("prediction", rest):
                return condition
        return ""

    def split_mode(self, name: str) -> tuple[str, str]:
        """Split a column's name such as `pred_tf` into its base and its mode ("unknown" if the name states none)."""
        for mode, affix in MODE_AFFIXES:
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
        common = ("condition", "forced", "decoding", "split", "recording", "onset", "duration", "order")
        named = self.is_text(name) or bool(self.condition(self.split_mode(name)[0])) or self.keys.get(name) == "id"
        return named or self.fields.get(name, "condition") not in common

    def twins(self, names: Sequence[str]) -> list[str]:
        """Return two of the names that begin with marks of both sides before one noun: `actual_x` and `predicted_x`."""
        true, predicted = (self.sections[side]["marks"] for side in SIDES)
        nouns = [(name, name[len(mark) :]) for name in names for mark in true if name.startswith(f"{mark}_")]
        return next(([name, mark + noun] for name, noun in nouns for mark in predicted if mark + noun in names), [])

    def is_header(self, names: Sequence[str]) -> bool:
        """Return whether a record names columns: two names are usual or twins, or one is and all look like names."""
        usual = {self.split_mode(name)[0] for name in names if self.is_usual(name)}
        plain = all(re.fullmatch(r"[\w.:()/]{0,40}", name) for name in names)
        named = plain and any(map(self.is_text, names)) and names[0] not in self.fields
        return len(usual) >= 2 or named or bool(self.twins(names))


@functools.cache
def built_in() -> Names:
    return Names(tomllib.loads((Path(__file__).with_name("names.toml")).read_text("utf8")))


def load_names(path: str | os.PathLike[str] | None) -> Names:
    """Return the built-in names with those of a user's file. Raises UserError if the file has another form."""
    if path is None:
        return built_in()
    try:
        added = tomllib.loads(Path(path).read_text("utf8"))
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror or error}); check the path.") from error
    except ValueError as error:
        raise UserError(
            f"{path}: not TOML ({error}); write it as instrument/predictions/names.toml, UTF-8 text."
        ) from error
    sections = built_in().sections
    for section, content in added.items():
        if section not in sections:
            raise UserError(f"{path}: there is no section {section!r}; {did_you_mean(section, sections)}")
        if section == LIST_OF_PAIRS:
            _check(content, path, section, lambda pair: isinstance(pair, list) and list(map(type, pair)) == [str, str])
            continue
        if not isinstance(content, dict):
            raise UserError(f"{path}: {section} is {content!r:.60}; expected a section [{section}] of lists of names.")
        for name, listed in content.items():
            if name not in sections[section] and section not in ("condition", "key"):
                raise UserError(f"{path}, [{section}]: there is no {name!r}; {did_you_mean(name, sections[section])}")
            _check(listed, path, f"{section}.{name}", lambda one: isinstance(one, str))
    return Names(_merged(sections, added))


def _check(listed: Any, path: str | os.PathLike[str], what: str, fits: Any) -> None:
    if not isinstance(listed, list) or not all(map(fits, listed)):
        kind = "pairs of names" if what == LIST_OF_PAIRS else "names"
        raise UserError(f"{path}: {what} is {listed!r:.60}; expected a list of {kind}.")


def _merged(usual: Mapping[str, Any], added: Mapping[str, Any]) -> dict[str, Any]:
    """Return both dictionaries as one; a name that `added` has in a section is removed from all others of `usual`."""
    plain = {section: {k: normalize_names(names) for k, names in content.items()}
             for section, content in added.items() if section != LIST_OF_PAIRS}  # fmt: skip
    claimed = {name: section for section, content in plain.items() for k, names in content.items() for name in names
               if k != "marks" and section != "nouns"}  # fmt: skip
    pairs = [tuple(normalize_names(pair)) for pair in added.get(LIST_OF_PAIRS, [])]
    for pair in pairs:
        claimed |= dict(zip(pair, SIDES, strict=True))
    merged: dict[str, Any] = {"claimed": claimed}
    for section, content in usual.items():
        if section == LIST_OF_PAIRS:
            unclaimed = [p for p in content if all(claimed.get(n, s) == s for n, s in zip(p, SIDES, strict=True))]
            merged[section] = [*pairs, *unclaimed]
            continue
        additions = plain.get(section, {})
        merged[section] = {
            key: [*additions.get(key, []), *(n for n in content.get(key, []) if n not in claimed or key == "marks")]
            for key in {**content, **additions}
        }
    return merged
