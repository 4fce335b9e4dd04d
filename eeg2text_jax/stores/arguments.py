"""Bucket URLs on the command line: inputs are downloaded before the command, outputs uploaded after it."""

import contextlib
import os
import re
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

from eeg2text_jax.errors import UserError
from eeg2text_jax.files import file_digest, files_below
from eeg2text_jax.outputs import WRITTEN
from eeg2text_jax.stores.address import Address, address_of, cache_folder, is_address, parse
from eeg2text_jax.stores.copying import Files, at_hand
from eeg2text_jax.stores.store import Store, open_store

WORKED_IN = ("run", "train", "decode", "judge")  # commands whose --workdir is mirrored, see `mirror`


@contextlib.contextmanager
def placed(command: str, arguments: Sequence[str]) -> Iterator[list[str]]:
    """Replace bucket URLs in the arguments by local paths; upload what was written there when the block ends.

    Configuration fields are not replaced: `config.json` keeps the URL, and readers call `at_hand`. Raises UserError if
    a URL cannot be read or, checked before the command begins, written.
    """
    spool = cache_folder() / "spool" / f"{os.getpid()}.out"
    written: list[tuple[Address, Store, Path]] = []
    local, option = [], ""
    for argument in arguments:
        is_option = argument.startswith("-")
        name, equals, value = argument.partition("=") if is_option else ("", "", argument)
        option = name.lstrip("-") if is_option else option
        is_field = option.startswith("config.")
        worked_in = option == "workdir" and command in WORKED_IN
        if is_field or worked_in or not is_address(value):
            local.append(argument)
        elif option in WRITTEN:
            address = parse(value)
            path = spool / str(len(written)) / Path(address.key).name
            written.append((address, _empty(command, address), path))
            path.parent.mkdir(parents=True, exist_ok=True)
            local.append(f"{name}{equals}{path}")
        else:
            local.append(f"{name}{equals}{at_hand(value)}")
        if not is_option:
            option = option if option in ("eeg", "control") else ""  # the only options with several values
    try:
        yield local
        for address, store, path in written:
            if path.exists():
                _send(store, address, path)
                print(f"sent to {address}")
    finally:
        shutil.rmtree(spool, ignore_errors=True)


def _empty(command: str, address: Address) -> Store:
    """Open the store of an output and send one request, so that wrong credentials fail before the work."""
    if not address.key:
        raise UserError(
            f"{address}: names a bucket without a path in it; give a path to write to, such as {address}/NAME."
        )
    store = open_store(address)
    if command == "export" and Files.of(store, address):
        raise UserError(f"{address}: exists already and is not empty; take another place.")
    return store


def _send(store: Store, address: Address, path: Path) -> None:
    if path.is_dir():
        for name in files_below(path):
            store.upload(path / name, address.below(name).key, file_digest(path / name))
    else:
        store.upload(path, address.key, file_digest(path))


def readable(text: str) -> str:
    """Replace cached paths in a sentence by their URLs."""
    start = re.escape(str(cache_folder().absolute()))
    return re.sub(rf"{start}/[^\s:;,'\"]+", lambda found: address_of(found[0]), text)
