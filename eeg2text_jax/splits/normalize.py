"""When two texts count as the same: the normalizations that every leakage figure names."""

import unicodedata
from collections.abc import Callable


def normalize(text: str) -> str:
    """Only the letters and decimal digits of a text, case-folded and without accents.

    Quotes, dashes and spacing differ between ZuCo's tasks for the same sentence, so nothing else is kept. A
    superscript is no decimal digit (one ZuCo sentence has `km²` in NR and a mangled `km˝` in TSR).
    """
    letters = "".join(c for c in unicodedata.normalize("NFD", text) if c.isalpha() or c.isdecimal())
    return unicodedata.normalize("NFKC", letters).casefold()


def fold_case_and_space(text: str) -> str:
    """Lower case, runs of white space made one space: the usual comparison, which misses ZuCo's variants."""
    return " ".join(text.lower().split())


def tokens(text: str) -> list[str]:
    """The words of a text, each normalized; words without letters and digits vanish."""
    return [word for word in map(normalize, text.split()) if word]


NORMALIZATIONS: dict[str, Callable[[str], str]] = {
    "letters-digits": normalize,
    "case-space": fold_case_and_space,
}
