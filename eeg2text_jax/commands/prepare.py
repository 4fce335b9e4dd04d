"""`eeg2text prepare SOURCE... --out=DATA.h5`: recordings, a table or a generator -> one data file."""

import sys
from pathlib import Path

from eeg2text_jax.configuration import parse_config
from eeg2text_jax.data.prepare import prepare

# Flags of this command -> what they stand for; other fields are set by their own names.
_SHORT = {
    "--strict": "--config.data.recordings.strict=True",
    "--compat=": "--config.data.recordings.compat=",
    "--task=": "--config.data.recordings.task=",
}


def main(argv: list[str]) -> int:
    argv = [_expand(argument) for argument in argv]
    positional = "SOURCE... [--compat=wang-ji] [--strict] [--task=NR]"
    arguments = parse_config(argv, "prepare", default="configs/default.py", positional=positional, options=("out",))
    out = Path(arguments.options["out"])
    tally = prepare(arguments.config.data, out, arguments.positional)
    for note in tally.notes:
        print(note, file=sys.stderr)
    print(tally.table())
    print(f"wrote {out}")
    return 0


def _expand(argument: str) -> str:
    for short, field in _SHORT.items():
        if argument == short or (short.endswith("=") and argument.startswith(short)):
            return field + argument.removeprefix(short)
    return argument
