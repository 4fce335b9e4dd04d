"""`eeg2text leakage` and `eeg2text fair-table`: the cross-subject paper's tables in its layout."""

import argparse
import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path

from eeg2text_jax.commands.data import PAPER_RATIO, parse_ratio
from eeg2text_jax.data.datafile import read_outline
from eeg2text_jax.errors import UserError
from eeg2text_jax.files import write_text
from eeg2text_jax.records.fair_tables import row, tables
from eeg2text_jax.splits.leakage_table import leakage_rows, leakage_text


def leakage(argv: Sequence[str]) -> int:
    """Print what splits (a) to (f) leak from train to test over several seeds: Table 1 of the cross-subject paper."""
    parser = argparse.ArgumentParser(prog="eeg2text leakage", description=leakage.__doc__)
    parser.add_argument("data", type=Path, metavar="DATA.h5")
    parser.add_argument("--seeds", type=int, default=4, help="how many, from 1; 4 by default, as in the paper")
    parser.add_argument("--ratio", type=parse_ratio, default=PAPER_RATIO, help="train,dev,test; 0.8,0.1,0.1 by default")
    parser.add_argument("--json", type=Path, metavar="OUT", help="write all rates there")
    flags = parser.parse_args(argv)
    if flags.seeds < 1:
        raise UserError(f"--seeds={flags.seeds}: expected a whole number above 0.")
    seeds = range(1, flags.seeds + 1)
    rows = leakage_rows(read_outline(flags.data), seeds, flags.ratio)
    print(leakage_text(rows, seeds))
    if flags.json:
        written = [{**dataclasses.asdict(found), "average": found.average} for found in rows]
        write_text(flags.json, json.dumps(written, indent=1) + "\n")
        print(f"wrote {flags.json}")
    return 0


def fair_table(argv: Sequence[str]) -> int:
    """Print Tables 2, 3 and 4 of the cross-subject paper from finished runs, with controls and verdicts beside."""
    parser = argparse.ArgumentParser(prog="eeg2text fair-table", description=fair_table.__doc__)
    parser.add_argument("workdirs", nargs="+", type=Path, metavar="DIR")
    parser.add_argument("--json", type=Path, metavar="OUT", help="write the rows there")
    flags = parser.parse_args(argv)
    rows = [row(workdir) for workdir in flags.workdirs]
    print(tables(rows))
    if flags.json:
        write_text(flags.json, json.dumps(rows, indent=1) + "\n")
        print(f"wrote {flags.json}")
    return 0
