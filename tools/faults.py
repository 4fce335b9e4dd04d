"""Faults: kills, suspended processes, second starts, no locks, full and read-only disks, damaged files.

    python tools/faults.py DIR [--kills 10] [--cases run,folds,judge,fmri,contrastive,llm,score] [--stores folder,s3,gs]
    python tools/faults.py DIR --kills 0 --disks          # full and read-only ones; root's rights on Linux
    python tools/faults.py DIR --kills 0 --mutations 300  # of files of workdirs

A command is interrupted at random moments of its named stages, twice in one workdir, then left alone. Whatever
happened, no start prints a traceback, and the end has the same bytes as that of a command that nothing happened to.
The buckets are those of servers on the loopback (moto, an emulator of Google Cloud Storage); every other time this
machine's copy is removed, as if another machine went on. Exit status 1 where something failed.
"""

import argparse
import itertools
import shutil
import sys
import time
from pathlib import Path

from eeg2text_testing.fault_cases import STORES, cases
from eeg2text_testing.fault_disks import disks
from eeg2text_testing.fault_mutations import mutate
from eeg2text_testing.fault_series import Series
from eeg2text_testing.forked_runs import prepare


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, help="folder for the runs; emptied first, but for compiled programs")
    parser.add_argument("--kills", type=int, default=10, help="faults that commands are interrupted by")
    parser.add_argument("--cases", default="run,folds,judge,fmri,contrastive,llm,score")
    parser.add_argument("--stores", default=",".join(STORES))
    parser.add_argument("--disks", action="store_true")
    parser.add_argument("--mutations", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    out, begun = options.out.absolute(), time.monotonic()
    for path in out.glob("*"):
        if path.name != "compiled":
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    out.mkdir(parents=True, exist_ok=True)
    prepare(out / "compiled")
    series = Series(out, options.seed)
    interrupt(series, options.cases.split(","), options.stores.split(","), options.kills)
    if options.disks:
        disks(series)
    if options.mutations:
        mutate(series, options.mutations)
    print(series.table())
    print(f"{series.counts.total()} faults, {len(series.failures)} failures, {time.monotonic() - begun:.0f} s")
    return bool(series.failures)


def interrupt(series: Series, names: list[str], stores: list[str], kills: int) -> None:
    """Goes through commands and stores in turn, two faults each, until so many have met a command at work."""
    made = cases(scored_rows(series) if "score" in names else series.out / "rows.jsonl")
    pairs = list(itertools.product(names, stores))  # in an order in which a short series meets them all
    pairs.sort(key=lambda pair: (stores.index(pair[1]) - names.index(pair[0])) % len(stores))
    for name, store in itertools.cycle(pairs):
        if sum(n for (*_, stage), n in series.counts.items() if stage != "too late") >= kills:
            return
        case = made[name]
        if (name, store) not in series.spans:
            series.measure(case, store)
        stages = [stage for stage, _ in case.stages]
        series.attempt(case, store, sorted(series.rng.sample(stages, 2), key=stages.index))


def scored_rows(series: Series) -> Path:
    folder = series.out / "scored"
    run = series.command(cases(folder)["run"].command(str(folder)))
    if run.wait():
        raise SystemExit(run.output()[-3000:])
    shutil.copy(folder / "predictions.jsonl", series.out / "rows.jsonl")  # a file of no workdir
    return series.out / "rows.jsonl"


if __name__ == "__main__":
    sys.exit(main())
