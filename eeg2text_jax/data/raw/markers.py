"""The marker types that BrainVision files put before texts and codes (`Comment/...`, `Stimulus/S 101`)."""

import functools
import re

# Types of BrainVision's recorders; MNE joins type and description with a slash, and FIF, EDF and BIDS copies keep it.
TYPES = ("Comment", "Stimulus", "Response", "New Segment", "SyncStatus", "Optic", "Toggle", "Time 0", "Bad Interval")
_TYPED = re.compile(f"((?:{'|'.join(TYPES)})/)(.*)", re.DOTALL)
_TRIGGER = re.compile(r"S *0*(\d+)")


def split_type(said: str) -> tuple[str, str]:
    """Split `Comment/a text` into the marker type with its slash (empty if there is none) and the rest."""
    match = _TYPED.fullmatch(said)
    return (match[1], match[2].strip()) if match else ("", said)


@functools.lru_cache(maxsize=4096)
def spellings(code: str) -> tuple[str, ...]:
    """Return the ways to write one code, without its marker type first: `S 101` -> `S 101`, `S101`, `101`."""
    marker, bare = split_type(code)
    found = [bare, *_trigger(bare)]
    return tuple(dict.fromkeys(found + [marker + form for form in found] + [code]))


@functools.lru_cache(maxsize=256)
def patterns(pattern: str, *, typed: bool) -> tuple["re.Pattern[str]", ...]:
    """Return the regular expressions of a pattern, in which `*` stands for anything.

    Args:
      pattern: the user's; one with a marker type matches codes of this type, and codes that have none.
      typed: whether the code has a marker type.
    """
    marker, bare = split_type(pattern)
    kept = marker if typed or bare.startswith("*") else ""
    forms = dict.fromkeys([pattern, kept + bare, *(kept + form for form in _trigger(bare))])
    return tuple(re.compile("(.*)".join(map(re.escape, form.split("*"))), re.DOTALL) for form in forms)


def _trigger(bare: str) -> list[str]:
    match = _TRIGGER.fullmatch(bare)
    return [f"S{match[1]}", match[1]] if match else []
