"""Check the files that a command is told to write before any work is done."""

import glob
import os
import stat
from collections.abc import Iterator, Sequence

from eeg2text_jax.errors import UserError
from eeg2text_jax.files import check_replaceable, is_local

WRITTEN = ("out", "json", "croissant", "html", "rows", "png", "time", "map", "trace")  # options that name outputs
MADE = (".json", ".html", ".png", ".h5", ".parquet")  # endings of files that commands replace
FOLDERS = ("export", "records")  # commands whose --out is a folder


def check_outputs(command: str, arguments: Sequence[str]) -> None:
    """Check every output of a command line.

    Raises UserError if one is empty, `-`, a link, a device, a folder in place of a file, an input of the same command,
    named twice, or in a missing folder.
    """
    if {"-h", "--help"} & set(arguments):
        return
    outputs, inputs = _divide(arguments)
    seen: dict[str, str] = {}
    for option, value in outputs:
        said = f"--{option}={value}"
        if value in ("", "-"):
            raise UserError(f"{said}: is not the name of a file (standard output is not written to); name a file.")
        if is_local(value):
            _check_place(command, option, value, said)
        if _identity(value) in seen:
            raise UserError(f"{said}: --{seen[_identity(value)]} names the same place; give each output its own name.")
        seen[_identity(value)] = option
        for other in inputs:
            if _same(value, other) or _is_within(value, other):
                raise UserError(f"{said}: is an input of the same command, which would be lost; take another name.")


def _divide(arguments: Sequence[str]) -> tuple[list[tuple[str, str]], list[str]]:
    """Return the outputs with their options, and all other values."""
    outputs: list[tuple[str, str]] = []
    inputs: list[str] = []
    waiting = ""
    for argument in arguments:
        name, equals, value = argument.partition("=")
        if argument.startswith("--") and len(name) > 2:
            # argparse takes the beginning of an option's name for the option.
            option = next((written for written in WRITTEN if written.startswith(name[2:])), "")
            waiting = option if not equals else ""
            if option and equals:
                outputs.append((option, value))
            elif equals:
                # Configuration fields are no globs, except for the source.
                plain = name == "--task" or (name.startswith("--config.") and name != "--config.data.source")
                inputs += _inputs(value, pattern=not plain)
        elif waiting:
            outputs.append((waiting, argument))
            waiting = ""
        else:
            inputs += _inputs(argument, pattern=True)
    return outputs, inputs


def _inputs(value: str, pattern: bool) -> Iterator[str]:
    """Yield a value, the files it matches as a glob, and the values in `FILE.py:name=value,...`."""
    yield value
    if is_local(value):
        yield from glob.iglob(value, recursive=True) if pattern and glob.has_magic(value) else ()
        if ":" in value:
            head, _, rest = value.partition(":")
            yield head
            yield from (part.partition("=")[2] for part in rest.split(","))


def _identity(value: str) -> str:
    return os.path.realpath(value) if is_local(value) else value


def _same(output: str, other: str) -> bool:
    if not other or not (is_local(output) and is_local(other)):
        return output == other
    try:
        return os.path.samefile(output, other) and not os.path.isdir(output)
    except (OSError, ValueError):  # one of them is not there
        return False


def _is_within(output: str, other: str) -> bool:
    """Return whether an output is a file in an input folder that no command wrote."""
    if not (is_local(output) and is_local(other) and os.path.isfile(output) and os.path.isdir(other)):
        return False
    inside = os.path.realpath(output).startswith(os.path.join(os.path.realpath(other), ""))
    return inside and os.path.splitext(output)[1].lower() not in MADE


def _check_place(command: str, option: str, value: str, said: str) -> None:
    if option == "trace":  # a folder that the profiler fills
        return
    check_replaceable(value, said)
    folder = option == "out" and command in FOLDERS
    try:
        mode = os.lstat(value).st_mode
    except (FileNotFoundError, NotADirectoryError):
        mode = 0
    if folder and mode and not stat.S_ISDIR(mode):
        raise UserError(f"{said}: is a file; expected a folder. Name another place.")
    if command == "export" and folder and mode and os.listdir(value):
        raise UserError(f"{said}: exists already and is not empty; take another place.")
    if not folder and stat.S_ISDIR(mode):
        raise UserError(f"{said}: is a folder; expected the name of a file to write.")
    parent = os.path.dirname(value) or "."
    if option in ("json", "html", "rows") and command != "split" and not os.path.isdir(parent):  # the others make it
        raise UserError(f"{said}: there is no folder {parent}; make it first.")
