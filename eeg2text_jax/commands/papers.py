"""`eeg2text leakage` and `eeg2text fair-table`: the cross-subject paper's tables in its layout."""

import argparse
import dataclasses
import json
import statistics
from collections.abc import Sequence
from pathlib import Path

from eeg2text_jax.commands.data import PAPER_RATIO, parse_ratio
from eeg2text_jax.data.datafile import DataFile, read_outline
from eeg2text_jax.errors import UserError
from eeg2text_jax.files import write_text
from eeg2text_jax.records.fair_tables import row, tables
from eeg2text_jax.splits.leakage import SEGMENT, SENTENCE_ID, assess_leakage
from eeg2text_jax.splits.methods import make_split
from eeg2text_jax.splits.split import readings_of


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
        written = [{**dataclasses.asdict(found), "average": found.average} for found in rows]
        write_text(flags.json, json.dumps(written, indent=1) + "\n")
        print(f"wrote {flags.json}")
    return 0


def fair_table(argv: Sequence[str]) -> int:
    """Print Tables 2, 3 and 4 of the cross-subject paper from finished runs, with their controls and verdicts."""
    parser = argparse.ArgumentParser(prog="eeg2text fair-table", description=fair_table.__doc__)
    parser.add_argument("workdirs", nargs="+", type=Path, metavar="DIR")
    parser.add_argument("--json", type=Path, metavar="OUT", help="write the rows to this file")
    flags = parser.parse_args(argv)
    rows = [row(workdir) for workdir in flags.workdirs]
    print(tables(rows))
    if flags.json:
        write_text(flags.json, json.dumps(rows, indent=1) + "\n")
        print(f"wrote {flags.json}")
    return 0


MOST_SEEDS = 1000  # each seed makes six splits of the whole data file
BSLR, OVER_ALL = "BSLR", ", over all"
# By rate and split method: the averages that the paper prints for Narratives and for ZuCo, in percent.
PUBLISHED = {
    BSLR: {"a": (0, 0), "b": (9.67, None), "c": (12.5, 12.5), "d": (12.795, 12.59), "e": (12.27, None), "f": (0, 0)},
    "TSLR": {"a": (100.0, 22.5), "b": (0, None), "c": (100.0, 13.07), "d": (99.82, 0), "e": (9.29, None), "f": (0, 0)},
}  # fmt: skip


@dataclasses.dataclass(frozen=True)
class LeakageRow:
    """One leakage rate of one split method, in percent."""

    rate: str  # `BSLR` (subjects), or `TSLR` (texts) and how texts are compared; and `OVER_ALL` or nothing
    method: str  # a to f
    values: tuple[float, ...]  # the rate of each seed; empty if the method cannot divide this data
    published: float | None  # the paper's average on this kind of recording; None if the paper has none
    why: str = ""  # why the method cannot divide this data

    @property
    def average(self) -> float | None:
        """The mean over seeds."""
        return statistics.mean(self.values) if self.values else None


def leakage_rows(data: DataFile, seeds: Sequence[int], ratio: Sequence[float]) -> list[LeakageRow]:
    """Return leakage rates from train to test of the paper's methods a to f: BSLR of all, then each TSLR of all.

    Each rate is an average over the subjects or texts of the test part, as the paper says, and then over all of them,
    as some of its figures suggest.
    """
    readings, kind = readings_of(data), 0 if data.is_windows else 1
    found: dict[tuple[str, str], list[float]] = {}
    why: dict[str, str] = {}
    for method in PUBLISHED[BSLR]:
        for seed in seeds:
            try:
                split = make_split(data, method, ratio, seed)
            except UserError as error:
                why[method] = str(error)
                break
            leaked = assess_leakage(readings, split.parts)[0]
            rates = {BSLR: leaked.bslr_over_test, f"{BSLR}{OVER_ALL}": leaked.bslr_over_all}
            for name, value in leaked.tslr.items():
                rates[f"TSLR, {name}"] = value
                if name in leaked.tslr_over_all:
                    rates[f"TSLR, {name}{OVER_ALL}"] = leaked.tslr_over_all[name]
            for rate, value in rates.items():
                found.setdefault((rate, method), []).append(100 * value)
    rows = []
    for rate in dict.fromkeys(rate for rate, _ in found):
        # The paper compares fMRI texts by story segment, and EEG texts by the sentence's index in the task.
        plain = rate.removesuffix(OVER_ALL)
        printed = plain in (BSLR, f"TSLR, {SEGMENT if data.is_windows else SENTENCE_ID}")
        for method, averages in PUBLISHED[plain.partition(",")[0]].items():
            values = () if method in why else tuple(found[rate, method])
            rows.append(LeakageRow(rate, method, values, averages[kind] if printed else None, why.get(method, "")))
    return rows


def leakage_text(rows: Sequence[LeakageRow], seeds: Sequence[int]) -> str:
    """Return the rates as lines in the paper's layout."""
    rates = dict.fromkeys(entry.rate for entry in rows)
    width = max(len(rate) for rate in rates) + 5
    heading = [f"{'(%)':<{width}}method", *(f"seed {seed}" for seed in seeds), "average", "published"]
    lines = ["".join(f"{word:>11}" if i else f"{word:<{width + 8}}" for i, word in enumerate(heading))]
    for entry in rows:
        values = [*entry.values, entry.average] if entry.values else [None] * (len(seeds) + 1)
        cells = "".join(f"{'-' if value is None else f'{value:.2f}':>11}" for value in [*values, entry.published])
        lines.append(f"{entry.rate:<{width}}({entry.method})     {cells}")
    reasons = {entry.method: entry.why for entry in rows if entry.why}
    return "\n".join([*lines, *(f"({method}): {why}" for method, why in reasons.items())])
