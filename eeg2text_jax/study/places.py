"""Paths in a configuration.

`config.json` has them relative to its own folder, so that a moved run finds its files and no path of the user's machine
is in it. Digests take their last part alone, so that equal runs in two folders have equal digests.
"""

import os
from collections.abc import Callable, Collection, Mapping
from typing import Any

from eeg2text_jax.kinds import Range
from eeg2text_jax.stores.address import is_address

HERE = "{workdir}"  # begins a path that is relative to the folder of `config.json`
NO_PATHS = ("synthetic", "synthetic-fmri", "toy", "edits", "templates", "minilm")  # values with meanings of their own
IN_SOURCE = ("data.fmri.exclude",)  # fields whose relative paths begin in the data source


def place_names(ranges: Mapping[str, Range]) -> list[str]:
    """Return the dotted names of the fields that hold paths."""
    return [name for name, found in ranges.items() if found.is_place]


def is_path(value: Any, name: str = "") -> bool:
    """Return whether a value of field `name` is a path of this machine, and no keyword, URL or name on the Hub."""
    if not isinstance(value, str) or not value or value in NO_PATHS or is_address(value):
        return False
    return os.path.isabs(value) or (name not in IN_SOURCE and os.path.exists(value))


def portable(document: Any, root: str | os.PathLike[str], names: Collection[str]) -> Any:
    """Return the content of `config.json` in the folder `root`: nested dicts, with paths relative to that folder.

    A path that begins with `~` stays.
    """

    def relative(value: str, name: str) -> str:
        return f"{HERE}/{os.path.relpath(value, root)}" if is_path(value, name) else value

    return _mapped(document, relative, names)


def resolved(document: Any, root: str | os.PathLike[str], names: Collection[str]) -> Any:
    """Return a configuration whose paths `portable` has made relative, with paths that exist on this machine."""

    def absolute(value: str, name: str) -> str:
        inside = value.removeprefix(f"{HERE}/")
        return os.path.abspath(os.path.join(root, inside)) if inside != value else value

    return _mapped(document, absolute, names)


def without_folders(document: Any, names: Collection[str]) -> Any:
    """Return a configuration with the last part of each path, for digests and for what is published."""
    return _mapped(document, lambda value, name: value if name in IN_SOURCE else last_part(value), names)


def last_part(value: str) -> str:
    return value.rstrip("/").rpartition("/")[2]


def is_same_place(now: Any, there: Any, name: str) -> bool:
    """Return whether two values of the field `name` mean the same file or folder, which may have been moved since.

    `there` is from a `config.json`, and `resolved`.
    """
    if now == there:
        return True
    if not (is_path(now, name) and isinstance(there, str)):
        return False
    if os.path.exists(there):
        return os.path.exists(now) and os.path.samefile(now, there)
    return last_part(now) == last_part(there)


def _mapped(document: Any, change: Callable[[str, str], str], names: Collection[str], prefix: str = "") -> Any:
    """Return a copy of nested dicts in which `change` replaces the texts in fields `names`."""
    found = {}
    for name, value in document.items():
        dotted = f"{prefix}{name}"
        if isinstance(value, Mapping):
            found[name] = _mapped(value, change, names, f"{dotted}.")
        else:
            found[name] = change(value, dotted) if dotted in names and isinstance(value, str) else value
    return found
