"""`eeg2text reproduce`, `table` and `leakage`: the papers' tables in their layout, and any runs in one table."""

import argparse
import dataclasses
import json
import os
from collections.abc import Sequence
from pathlib import Path

from eeg2text_jax.base.errors import UserError
from eeg2text_jax.base.files import write_text
from eeg2text_jax.base.packages import hide_torch
from eeg2text_jax.commands.data import PAPER_RATIO, parse_ratio
from eeg2text_jax.commands.paper_tables import (
    TABLES,
    footnotes,
    joined,
    judges_table,
    leakage_rows,
    leakage_text,
    verdicts,
)
from eeg2text_jax.data.datafile import read_outline
from eeg2text_jax.instrument.auditing.result import columns_text
from eeg2text_jax.instrument.metrics.score import PROFILES
from eeg2text_jax.instrument.metrics.tables import Table, write_table

MOST_SEEDS = 1000  # each seed makes six splits of the whole data file


def leakage(argv: Sequence[str]) -> int:
    """Print what split methods (a) to (f) leak from train to test, by seed: Table 1 of the cross-subject paper."""
    parser = argparse.ArgumentParser(prog="eeg2text leakage", description=leakage.__doc__)
    parser.add_argument("data", type=Path, metavar="DATA.h5")
    parser.add_argument("--seeds", type=int, default=4, help="number of seeds; 4 by default, as in the paper")
    parser.add_argument("--ratio", type=parse_ratio, default=PAPER_RATIO, help="train,dev,test; 0.8,0.1,0.1 by default")
    parser.add_argument("--json", type=Path, metavar="OUT", help="write all rates to this file")
    flags = parser.parse_args(argv)
    if not 1 <= flags.seeds <= MOST_SEEDS:
        raise UserError(f"--seeds={flags.seeds}: expected a whole number from 1 to {MOST_SEEDS}.")
    seeds = range(1, flags.seeds + 1)
    rows = leakage_rows(read_outline(flags.data), seeds, flags.ratio)
    print(leakage_text(rows, seeds))
    if flags.json:
        written = [{**dataclasses.asdict(row), "average": row.average} for row in rows]
        write_text(flags.json, json.dumps(written, indent=1) + "\n")
        print(f"wrote {flags.json}")
    return 0


def table(argv: Sequence[str]) -> int:
    """Join finished runs, or judges, in one table: model, tasks, split, mode, conditions, scores; then the verdicts."""
    parser = argparse.ArgumentParser(prog="eeg2text table", description=table.__doc__)
    parser.add_argument("workdirs", nargs="+", type=Path, metavar="DIR", help="workdirs of `eeg2text run` or `judge`")
    parser.add_argument("--profile", choices=PROFILES, default="paper", help="paper: BLEU on tokens, package rouge")
    parser.add_argument(
        "--out", type=Path, action="append", default=[], metavar="FILE", help="also write .md, .tex, .csv"
    )
    flags = parser.parse_args(argv)
    judges = [folder for folder in flags.workdirs if (folder / "judge").is_dir()]
    runs = [folder for folder in flags.workdirs if folder not in judges]
    judged = verdicts(runs)
    tables = [*([joined(runs, flags.profile)] if runs else []), *([judges_table(judges)] if judges else [])]
    for made in (*tables, *([judged] if judged.rows else [])):
        show(made)
    for path in flags.out:
        if len(tables) > 1:
            raise UserError(f"--out={path}: runs and judges are two tables; write them one by one.")
        write_table(path, tables[0], [": ".join(row[:2]) for row in judged.rows])
        print(f"wrote {path}")
    return 0


def show(made: Table) -> None:
    """Print a table with aligned columns, below its title."""
    print(f"{made.caption}\n{columns_text(made.headings, *made.rows)}\n")


def _parse_reproduce(argv: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
    """Return the options of `reproduce`, and those of every run."""
    parser = argparse.ArgumentParser(prog="eeg2text reproduce", description=reproduce.__doc__)
    add = parser.add_argument
    add("table", choices=TABLES, metavar="TABLE", help=", ".join(TABLES))
    add("--out", type=Path, required=True, metavar="DIR", help="folder of the runs and of the table")
    add("--data", type=Path, default=Path(), metavar="DIR", help="folder of the data files; default: the current one")
    add("--checkpoints", type=Path, metavar="DIR", help="folder with the checkpoints; default: the Hub")
    add("--pairs", default="", metavar="FILE", help="labelled pairs of the latte tables")
    add("--conversations", default="", metavar="FILE", help="test pairs of latte-5")
    add("--judges", default="", metavar="ONE,TWO", help="checkpoints of the two judges of latte-4")
    add(
        "--as",
        dest="authors",
        choices=("paper", "authors"),
        default="paper",
        help="authors: configs/paper.py:as=authors",
    )
    add("--demo", action="store_true", help="made-up data and tiny models, in minutes")
    add("--list", action="store_true", help="print the price and the command of each missing run, and run nothing")
    add(
        "--topology",
        default="",
        metavar="SLICE",
        help="the price is for these chips, e.g. v5e:2x4; default: this machine",
    )
    add("--part", type=parse_part, default=(1, 1), metavar="K/N", help="make only every N-th run, from the K-th on")
    flags, overrides = parser.parse_known_args(argv)
    if wrong := [option for option in overrides if not option.startswith("--config.")]:
        raise UserError(f"{wrong[0]}: reproduce has no such option; expected --config.FIELD=VALUE, or one of --help.")
    return flags, overrides


def reproduce(argv: Sequence[str]) -> int:
    """Make a table or figure of the papers: print what it needs and its price, run what is missing, write the table.

    Finished runs in OUT are read only; a killed call resumes. Other options, --config.FIELD=VALUE, go to every run.
    """
    flags, overrides = _parse_reproduce(argv)
    environment = dict(os.environ)
    os.environ["JAX_PLATFORMS"] = "cpu"  # the devices are for the runs, which are processes of their own
    hide_torch()
    from eeg2text_jax.commands import reproduce as made

    judges = tuple(flags.judges.split(",")) if flags.judges else made.JUDGES
    if len(judges) != 2:
        raise UserError(f"--judges={flags.judges}: expected two checkpoints, with a comma.")
    wanted = made.Wanted(
        flags.table,
        flags.out,
        flags.out if flags.demo else flags.data,
        flags.checkpoints,
        flags.pairs,
        flags.conversations,
        judges,
        flags.authors == "authors",
        flags.demo,
        tuple(overrides),
    )
    print("\n".join(made.price_lines(wanted, flags.topology, environment)), flush=True)
    if flags.demo:
        made.make_demo_data(wanted)
    if flags.list:
        print("\n".join(made.commands(wanted)))
        return 0
    made.check_needs(wanted)
    made.make_runs(wanted, flags.part, environment)
    print()
    result, notes = made.table_of(wanted), footnotes(flags.table)
    show(result)
    judged = verdicts([flags.out / run.name for run in wanted.runs])
    if judged.rows:
        show(judged)
    print("\n".join(f"- {note}" for note in notes))
    for suffix in (".md", ".tex", ".csv"):
        write_table(
            flags.out / f"{flags.table}{suffix}", result, [*(": ".join(row[:2]) for row in judged.rows), *notes]
        )
    print(f"wrote {flags.table}.md, .tex and .csv in {flags.out}")
    return 0


def parse_part(text: str) -> tuple[int, int]:
    """Parse K/N, the K-th of N parts."""
    k, _, n = text.partition("/")
    if not (k.isdecimal() and n.isdecimal() and 1 <= int(k) <= int(n)):
        raise UserError(f"--part={text}: expected K/N with K from 1 to N, such as 1/4.")
    return int(k), int(n)
