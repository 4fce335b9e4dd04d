"""Files on the command line: outputs are checked before any work, buckets' files stand in for their URLs."""

import contextlib
import glob
import itertools
import os
import re
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

from eeg2text_jax.base.errors import UserError
from eeg2text_jax.base.files import check_replaceable, file_digest, files_below, is_local
from eeg2text_jax.base.stores import buckets

# Options that name outputs, and endings of files that commands write and may replace.
WRITTEN = ("out", "json", "croissant", "html", "rows", "png", "time", "map", "markdown", "tex")
WRITTEN += ("write-plan", "places", "repeats-png")
REPLACEABLE = (".json", ".html", ".png", ".h5", ".parquet", ".md", ".tex", ".toml")
FOLDERS = ("export", "records", "reproduce")  # commands whose --out is a folder
MIRRORED = ("run", "train", "decode", "judge")  # commands that mirror their --workdir, see `mirror`
STATEMENTS = ("proof", "licence")  # options whose value may contain a URL that is not read


def check_addresses(arguments: Sequence[str]) -> None:
    """Raise UserError for a URL that can neither be read nor written: only gs:// and s3:// can."""
    for before, argument in itertools.pairwise(["", *arguments]):
        if {before, argument.split("=")[0]} & {f"--{option}" for option in STATEMENTS}:
            continue
        # `training/sections.py` checks the URLs of configuration fields.
        address = re.match(r"(?!--config\.).*?(?:^|=)(([A-Za-z][A-Za-z0-9+.-]*)://(.*))", argument)
        if not address or address[2] in ("gs", "s3"):
            continue
        url, scheme, rest = address.groups()
        if scheme.lower() in ("gs", "s3"):
            raise UserError(f"{argument}: expected {scheme} in small letters; write {scheme.lower()}://{rest}.")
        if scheme.lower() == "file":
            path = re.sub(r"^[A-Za-z]+://(localhost(?=/))?", "", url)
            raise UserError(f"{argument}: expected a path for a place on this machine; write {path}.")
        what = "copy the file to this machine, or mount it as a folder, and give that path"
        raise UserError(f"{argument}: web addresses are not read or written, only buckets (gs://, s3://); {what}.")


def check_outputs(command: str, arguments: Sequence[str]) -> None:
    """Raise UserError, before any work, for an output that cannot be written.

    It is empty, `-`, a link, a device, a folder in place of a file, an input of the same command, named twice, or in a
    missing folder.
    """
    if {"-h", "--help"} & set(arguments):
        return
    outputs, inputs = _divide(arguments)
    seen: dict[str, str] = {}
    for option, value in outputs:
        shown = f"--{option}={value}"
        if value in ("", "-"):
            raise UserError(f"{shown}: is no file name, and outputs cannot go to standard output; name a file.")
        if is_local(value):
            _check_place(command, option, value, shown)
        identity = os.path.realpath(value) if is_local(value) else value
        if identity in seen:
            raise UserError(f"{shown}: --{seen[identity]} names the same place; give each output its own name.")
        seen[identity] = option
        if any(_same(value, other) or _is_within(value, other) for other in inputs):
            raise UserError(f"{shown}: is an input of the same command, which would be lost; take another name.")


def _divide(arguments: Sequence[str]) -> tuple[list[tuple[str, str]], list[str]]:
    """Return the outputs as pairs (option, path), and all other values."""
    outputs: list[tuple[str, str]] = []
    inputs: list[str] = []
    waiting = ""  # the output option whose value is the next argument
    for argument in arguments:
        name, equals, value = argument.partition("=")
        if argument.startswith("--") and len(name) > 2:
            # argparse accepts a prefix of an option's name.
            option = next((written for written in WRITTEN if written.startswith(name[2:])), "")
            waiting = "" if equals else option
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
        head, colon, rest = value.partition(":")
        yield from (head, *(part.partition("=")[2] for part in rest.split(","))) if colon else ()


def _same(output: str, other: str) -> bool:
    if not other or not (is_local(output) and is_local(other)):
        return output == other
    try:
        return os.path.samefile(output, other) and not os.path.isdir(output)
    except (OSError, ValueError):  # one of them does not exist
        return False


def _is_within(output: str, other: str) -> bool:
    """Whether an output is a file in an input folder, with an ending that no command writes."""
    if not (is_local(output) and is_local(other) and os.path.isfile(output) and os.path.isdir(other)):
        return False
    inside = os.path.realpath(output).startswith(os.path.join(os.path.realpath(other), ""))
    return inside and os.path.splitext(output)[1].lower() not in REPLACEABLE


def _check_place(command: str, option: str, value: str, shown: str) -> None:
    check_replaceable(value, shown)
    wants_folder, is_folder = option == "out" and command in FOLDERS, os.path.isdir(value)
    if wants_folder and os.path.exists(value) and not is_folder:
        raise UserError(f"{shown}: is a file; expected a folder. Name another place.")
    if command == "export" and wants_folder and is_folder and os.listdir(value):
        raise UserError(f"{shown}: exists already and is not empty; take another place.")
    if is_folder and not wants_folder:
        raise UserError(f"{shown}: is a folder; expected the name of a file to write.")
    parent = os.path.dirname(value) or "."
    needs_parent = option in ("json", "html", "rows", "write-plan") and command != "split"  # else the command makes it
    if needs_parent and not os.path.isdir(parent):
        raise UserError(f"{shown}: there is no folder {parent}; make it first.")


@contextlib.contextmanager
def localize(command: str, arguments: Sequence[str]) -> Iterator[list[str]]:
    """Yield the arguments with local paths in place of bucket URLs; at the end, upload what was written there.

    Configuration fields keep URLs, also in `config.json`; readers call `at_hand`. Raises UserError, before the command
    begins, if a URL cannot be read or written.
    """
    spool = buckets.cache_folder() / "spool" / f"{os.getpid()}.out"
    written: list[tuple[buckets.Address, buckets.Store, Path]] = []
    local, option = [], ""
    for argument in arguments:
        is_option = argument.startswith("-")
        name, equals, value = argument.partition("=") if is_option else ("", "", argument)
        option = name.lstrip("-") if is_option else option
        is_mirrored = option == "workdir" and command in MIRRORED
        if is_mirrored or option.startswith("config.") or option in STATEMENTS or not buckets.is_address(value):
            local.append(argument)
        elif option in WRITTEN:
            address = buckets.parse(value)
            path = spool / str(len(written)) / Path(address.key).name
            written.append((address, _open_output(command, address), path))
            path.parent.mkdir(parents=True, exist_ok=True)
            local.append(f"{name}{equals}{path}")
        else:
            local.append(f"{name}{equals}{buckets.at_hand(value)}")
        if not is_option:
            option = option if option in ("eeg", "control") else ""  # the only options with several values
    try:
        yield local
        for address, store, path in written:
            if path.exists():
                for name in files_below(path) if path.is_dir() else ("",):
                    key = address.below(name).key if name else address.key
                    store.upload(path / name, key, file_digest(path / name))
                print(f"sent to {address}")
    finally:
        shutil.rmtree(spool, ignore_errors=True)


def _open_output(command: str, address: buckets.Address) -> buckets.Store:
    """Open the store of an output, so that a missing client or credentials fail before the work."""
    if not address.key:
        what = f"give a path to write to, such as {address}/NAME"
        raise UserError(f"{address}: names a bucket without a path in it; {what}.")
    store = buckets.open_store(address)
    if command == "export" and buckets.Files.of(store, address):
        raise UserError(f"{address}: exists already and is not empty; take another place.")
    return store


def with_urls(text: str) -> str:
    """Replace paths in the bucket cache by their URLs, in a sentence."""
    inside = re.escape(str(buckets.cache_folder().absolute())) + r"/[^\s:;,'\"]+"
    return re.sub(inside, lambda path: buckets.address_of(path[0]), text)
