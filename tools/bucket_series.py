"""Runs with their workdir and data on s3:// and gs:// (servers on the loopback), killed and resumed: equal results?

python tools/bucket_series.py /tmp/buckets [--servers s3,gs] [--kills 2] [--seed 0]

For each server, the data are prepared to an address, and a run from there into a folder is the reference. One with its
workdir in the bucket is killed at moments drawn over the whole of a run, its local copy being removed every other
time, as on another machine. The bucket's content is at the end what the folder has. Exit status 1
where it has not, or where a start prints a traceback.
"""

import argparse
import functools
import os
import random
import shutil
import sys
import time
from pathlib import Path

from eeg2text_jax import cli
from eeg2text_jax.stores import lease
from eeg2text_jax.stores.copying import at_hand
from eeg2text_testing.bucket_servers import SERVERS, Server
from eeg2text_testing.forked_runs import TRACEBACK, Forked, arguments, differing, prepare, what_counts


def start(out: Path, *argv: str) -> Forked:
    return Forked(functools.partial(cli.main, list(argv)), out / "log")


def series(server: Server, out: Path, kills: int, seed: int, quick: bool) -> int:
    """Prepares, runs, kills and resumes on one server; returns how many things went wrong."""
    os.environ.update(server.environment, EEG2TEXT_BUCKET_CACHE=str(out / f"{server.scheme}_cache"))
    rng, failures = random.Random(seed), 0
    source, folder = server.address("data/planted.h5"), out / f"{server.scheme}_folder"
    made = [argument for argument in arguments() if "--config" in argument and "=" in argument]
    failures += start(out, "prepare", "synthetic", *made, f"--out={source}").wait() != 0
    command = ("run", *arguments(data__source=source, train__steps=12, train__save_every=3))
    begun = time.monotonic()
    whole = start(out, *command, f"--workdir={folder}")
    if whole.wait():
        sys.exit(whole.output())
    span = (time.monotonic() - begun) / 2
    if not quick:
        begun = time.monotonic()
        failures += start(out, *command, f"--workdir={folder}_again").wait() != 0  # programs are compiled by now
        span = time.monotonic() - begun
    workdir = server.address("runs/one")
    for number in range(kills):
        forked = start(out, *command, f"--workdir={workdir}")
        moment = (0.2 + 0.75 * (number + rng.random()) / kills) * span  # one in each part of a run
        end = time.monotonic() + moment
        while time.monotonic() < end and not forked.ended():
            time.sleep(0.01)
        status = forked.kill()
        print(f"{server.scheme}: start {number + 1} killed after {moment:.1f} of {span:.1f} s ({status})", flush=True)
        failures += report(forked, "a start that was killed")
        if number % 2:
            shutil.rmtree(out / f"{server.scheme}_cache")
    last = start(out, *command, f"--workdir={workdir}")
    status = last.wait()
    failures += report(last, "the last start") + (status != 0)
    commands = (
        ("score", f"{workdir}/predictions.jsonl", f"--json={server.address('scores.json')}"),
        ("export", f"--workdir={workdir}", f"--out={server.address('model')}"),
        ("records", workdir, f"--out={server.address('records')}"),
    )
    for argv in () if quick else commands:
        other = start(out, *argv)
        if other.wait():
            failures += 1
            print(f"{' '.join(argv)} failed:\n{other.output()[-1000:]}", flush=True)
    found = Forked(functools.partial(compare, server, workdir, folder), out / "log_of_comparing")
    failures += found.wait() != 0
    print(f"{server.scheme}: {found.output().strip()}", flush=True)
    return failures


def compare(server: Server, workdir: str, folder: Path) -> int:
    """Copies the whole workdir out of the bucket, and compares."""
    os.environ["EEG2TEXT_BUCKET_CACHE"] = str(folder.with_name(f"{server.scheme}_copy"))
    expected, found = (what_counts(place, folder.with_name("log")) for place in (folder, Path(at_hand(workdir))))
    other = differing(expected, found)
    print(f"differ: {', '.join(other)}" if other else f"all {len(found)} results are those of a folder")
    return min(len(other), 1)


def report(forked: Forked, what: str) -> int:
    if TRACEBACK not in forked.output():
        return 0
    print(f"{what} printed a traceback:\n{forked.output()[-2000:]}", flush=True)
    return 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--servers", default="s3,gs")
    parser.add_argument("--kills", type=int, default=2)
    parser.add_argument("--quick", action="store_true", help="without the commands that read a finished run")
    parser.add_argument("--seed", type=int, default=0)
    flags = parser.parse_args()
    out = flags.out.absolute()
    out.mkdir(parents=True, exist_ok=True)
    lease.BEAT, lease.PATIENCE = 1.0, 5.0  # a start on another machine waits for a killed one's lease
    prepare(out / "compiled")
    failures = 0
    for name in flags.servers.split(","):
        with SERVERS[name]() as server:
            failures += series(server, out, flags.kills, flags.seed, flags.quick)
    print(f"{failures} failures")
    return min(failures, 1)


if __name__ == "__main__":
    sys.exit(main())
