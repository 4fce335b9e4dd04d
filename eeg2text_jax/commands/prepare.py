"""`eeg2text prepare SOURCE --out=DATA.h5`: a recording or table -> one data file."""

from pathlib import Path

from eeg2text_jax.configuration import parse_config
from eeg2text_jax.data.prepare import prepare


def main(argv: list[str]) -> int:
    arguments = parse_config(argv, "prepare", default="configs/default.py", positional="SOURCE", options=("out",))
    config = arguments.config
    if arguments.positional:
        config.data.source = arguments.positional[0]
    out = Path(arguments.options["out"])
    tally = prepare(config.data, out)
    print(tally.table())
    print(f"wrote {out}")
    return 0
