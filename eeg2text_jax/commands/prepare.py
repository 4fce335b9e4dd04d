"""`eeg2text prepare SOURCE... --out=DATA.h5`: recordings, a table or a generator -> one data file."""

import sys
from pathlib import Path

from eeg2text_jax.configuration import parse_config
from eeg2text_jax.data.datafile import read_outline
from eeg2text_jax.data.prepare import prepare
from eeg2text_jax.errors import UserError
from eeg2text_jax.splits.methods import make_split
from eeg2text_jax.splits.report import paper_table1

PAPER_RATIO = (0.8, 0.1, 0.1)

# Flags of this command -> what they stand for; other fields are set by their own names.
_SHORT = {
    "--strict": "--config.data.recordings.strict=True",
    "--compat=": "--config.data.recordings.compat=",
    "--task=": "--config.data.recordings.task=",
}


def main(argv: list[str]) -> int:
    argv = [_expand(argument) for argument in argv]
    positional = "SOURCE... [--compat=wang-ji] [--strict] [--task=NR]"
    arguments = parse_config(
        argv, "prepare", default="default", positional=positional, options=("out",), sections=("data",)
    )
    out = Path(arguments.options["out"])
    tally = prepare(arguments.config.data, out, arguments.positional)
    for note in tally.notes:
        print(note, file=sys.stderr)
    print(tally.table())
    if tally.sentences:  # recordings
        print(f"\n{_table1(out)}\n")
    print(f"wrote {out}")
    return 0


def _table1(out: Path) -> str:
    """The paper's Table 1 for what was made: samples per task under its positional split."""
    data = read_outline(out)
    try:
        table = paper_table1(data, make_split(data, "unique_sent", PAPER_RATIO, seed=0))
    except UserError as error:
        return f"Table 1 of the paper cannot be made: {error}"
    return f"as Table 1 of the paper (positional split {PAPER_RATIO}, unique_sent):\n{table}"


def _expand(argument: str) -> str:
    for short, field in _SHORT.items():
        if argument == short or (short.endswith("=") and argument.startswith(short)):
            return field + argument.removeprefix(short)
    return argument
