"""Kills runs at random moments of every stage, fills their disks, and starts them twice at once; nothing may be lost.

python tools/crash_series.py /tmp/crashes [--kills 60] [--least 10] [--pairs 5] [--seed 0] [--no-disks]

A kill waits until the run has come to the stage aimed at, and then for a moment drawn from the time that a run left
alone spent there; it counts for the stage that it met. The series goes on until each stage was met `--least` times.

Every run that was killed ends, once it is left alone, with the same bytes as one that never was; no start prints a
traceback. With root's rights on Linux, disks of 1, 4 and 20 KiB and 1, 3, 8 and 20 MiB (tmpfs, which rounds up to a
page) are filled and then given room, and every command meets a place that may only be read. Exit status 1 where one
fails.
"""

import argparse
import collections
import functools
import itertools
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from eeg2text_jax import cli
from eeg2text_testing.forked_runs import TRACEBACK, Forked, arguments, differing, prepare, what_counts

SIZES = ("1k", "4k", "20k", "1m", "3m", "8m", "20m")
ORDER = ("preparing", "training", "saving", "decoding", "scoring")
STAGES = ("preparing", "training", "saving", "training", "decoding", "decoding", "decoding", "scoring")  # of one run
SAVING = 0.05  # seconds into a save
SHARE = 0.9  # of a stage's time; later kills would come too late where the machine is faster than before


def reached(workdir: Path, stage: str, since: float) -> bool:
    """Whether the start of time `since` has come to a stage, by what is in the folder `workdir`."""
    if stage == "preparing":
        return True
    if stage == "training":
        log = workdir / "metrics.jsonl"  # one of an earlier start counts, too
        return log.exists() and log.stat().st_size > 0
    if stage == "saving":
        return any("tmp" in path.name and newer(path, since) for path in (workdir / "checkpoints").glob("*"))
    if stage == "decoding":
        return newer(workdir / ".predictions.jsonl.partial", since)  # a start that was killed leaves its own
    return (workdir / "predictions.jsonl").exists()


def newer(path: Path, since: float) -> bool:
    try:
        return path.stat().st_mtime > since
    except FileNotFoundError:
        return False


class Series:
    """Counts what was done, and what went wrong."""

    def __init__(self, out: Path, seed: int):
        self.out, self.rng = out, random.Random(seed)
        self.kills: collections.Counter[str] = collections.Counter()
        self.spans: dict[str, float] = {}  # seconds that a run spends in each stage
        self.failures: list[str] = []
        self._number = itertools.count()

    def start(self, workdir: Path, command: str = "run") -> Forked:
        return self.command([command, *arguments(), f"--workdir={workdir}"])

    def command(self, argv: list[str]) -> Forked:
        return Forked(functools.partial(cli.main, argv), self.log())

    def log(self) -> Path:
        return self.out / f"log_{next(self._number)}"

    def expect(self, holds: bool, what: str, forked: Forked | None = None) -> None:
        if not holds:
            tail = f"\n{forked.output()[-1500:]}" if forked else ""
            self.failures.append(what + tail)
            print(f"FAILED: {what}{tail}", flush=True)

    def finish(self, workdir: Path, expected: dict, what: str) -> None:
        """Leaves a run alone, and holds its end against `expected`."""
        last = self.start(workdir)
        self.expect(last.wait() == 0, f"{what}: the last start has status {last.wait()}", last)
        self.expect(TRACEBACK not in last.output(), f"{what}: a traceback at the end", last)
        if last.wait() == 0:
            different = differing(expected, what_counts(workdir, self.log()))
            self.expect(not different, f"{what}: {different} differ from the run that was left alone")

    def time_stages(self, expected: dict) -> None:
        """Measures `spans` on a run that is left alone and finds its programs compiled, as those to be killed do."""
        workdir, since = self.out / "timed", time.time()
        run = self.start(workdir)
        begins = []
        for stage in ("preparing", "training", "decoding", "scoring"):
            while not run.ended() and not reached(workdir, stage, since):
                time.sleep(0.001)
            begins.append((stage, time.time()))
        run.wait()
        ends = [begin for _, begin in begins[1:]] + [time.time()]
        self.spans = {stage: SHARE * (end - begin) for (stage, begin), end in zip(begins, ends, strict=True)}
        self.spans["saving"] = SAVING
        print("kills come within", ", ".join(f"{s:.2f} s of {stage}" for stage, s in self.spans.items()), flush=True)
        self.finish(workdir, expected, "the run that is timed")
        shutil.rmtree(workdir)

    def left(self, kills: int, least: int) -> list[str]:
        """Stages for the next run to be killed in; none where the series is long enough."""
        missing = kills - self.kills.total() + self.kills["too late"]
        return [stage for stage in STAGES if missing > 0 or self.kills[stage] < least]

    def killed_run(self, number: int, stages: Sequence[str], expected: dict) -> None:
        """One run, killed once in each of `stages`, then left alone."""
        workdir = self.out / f"killed_{number}"
        saved = 0
        for stage in stages:
            since = time.time()
            run = self.start(workdir)
            aim = ORDER[ORDER.index(stage) :]  # a stage that an earlier start has behind it does not come again
            while not run.ended() and not any(reached(workdir, s, since) for s in aim):
                time.sleep(0.001)
            time.sleep(self.rng.uniform(0, self.spans[stage]))
            where = next(s for s in reversed(ORDER) if reached(workdir, s, since))
            kind = self.rng.choice((signal.SIGKILL, signal.SIGTERM))
            early = run.ended()
            status = run.kill(kind)
            self.kills["too late" if early else where] += 1
            self.expect(
                TRACEBACK not in run.output(), f"run {number}: a traceback after {kind.name} while {where}", run
            )
            self.expect(status in (0, 143, -9, -15), f"run {number}: status {status} after {kind.name}", run)
            steps = [int(path.name[5:]) for path in (workdir / "checkpoints").glob("step_*") if path.name[5:].isdigit()]
            self.expect(max(steps, default=0) >= saved, f"run {number}: step {saved} had been saved, and is lost")
            saved = max(steps, default=saved)
            print(f"run {number}: {kind.name} while {where}, status {status}, step {saved} is saved", flush=True)
        self.finish(workdir, expected, f"run {number}")
        shutil.rmtree(workdir)

    def pair(self, number: int, expected: dict) -> None:
        """Two starts of one workdir, together or one after the other: one works, the other says who does."""
        workdir = self.out / f"pair_{number}"
        first = self.start(workdir)
        time.sleep(self.rng.uniform(0, 3.0) if number else 0.0)
        second = self.start(workdir)
        runs = sorted((first, second), key=Forked.wait)
        statuses = [run.wait() for run in runs]
        self.expect(statuses in ([0, 2], [0, 0]), f"pair {number}: statuses {statuses}", runs[-1])
        if statuses == [0, 2]:
            said = runs[1].output()
            self.expect("is in use by process" in said and TRACEBACK not in said, f"pair {number}: said {said[-500:]}")
        print(f"pair {number}: statuses {statuses}", flush=True)
        self.finish(workdir, expected, f"pair {number}")
        shutil.rmtree(workdir)

    def full_disk(self, size: str, expected: dict) -> None:
        """A run on a disk that is too small, which then gets room."""
        disk = self.out / "disk"
        disk.mkdir(exist_ok=True)
        mount("-t", "tmpfs", "-o", f"size={size}", "tmpfs", disk)
        try:
            run = self.start(disk / "run")
            status = run.wait()
            said = run.output()
            self.expect(status in (0, 2) and TRACEBACK not in said, f"{size}: status {status}", run)
            lines = [line for line in said.splitlines() if line.startswith("eeg2text run: ")]
            self.expect(len(lines) == (status == 2), f"{size}: {len(lines)} sentences", run)
            print(f"disk of {size}: status {status}: {' '.join(lines)}", flush=True)
            mount("-o", "remount,size=500m", disk)
            self.finish(disk / "run", expected, f"disk of {size}")
            prepared = disk / "alone.h5"
            mount("-o", f"remount,size={used(disk) + 4096}", disk)
            alone = subprocess.run(  # a process of its own, whose end HDF5 has its part in
                [sys.executable, "-m", "eeg2text_jax", "prepare", "synthetic", f"--out={prepared}"],
                capture_output=True,
                text=True,
            )
            self.expect(alone.returncode == 2 and alone.stderr.count("\n") == 1, f"{size}: prepare: {alone.stderr}")
            self.expect(not prepared.exists() and not list(disk.glob(".alone*")), f"{size}: prepare left a file")
        finally:
            subprocess.run(["umount", "-l", str(disk)], check=True)

    def read_only(self, finished: Path, trained: Path) -> None:
        """Every command, where nothing may be written."""
        disk = self.out / "disk"
        disk.mkdir(exist_ok=True)
        mount("-t", "tmpfs", "-o", "size=500m", "tmpfs", disk)
        try:
            shutil.copytree(finished, disk / "finished")
            shutil.copytree(trained, disk / "trained")
            mount("-o", "remount,ro", disk)
            rows = f"{disk}/finished/predictions.jsonl"
            commands = {
                "new run": ["run", *arguments(), f"--workdir={disk}/new"],
                "run": ["run", *arguments(), f"--workdir={disk}/finished"],
                "train": ["train", *arguments(), f"--workdir={disk}/trained"],
                "decode": ["decode", *arguments(), f"--workdir={disk}/trained"],
                "prepare": ["prepare", "synthetic", f"--out={disk}/x.h5"],
                "split": ["split", f"{disk}/finished/data.h5", f"--json={disk}/x.json"],
                "score": ["score", rows, f"--json={disk}/x.json"],
                "audit": ["audit", "--eeg", rows, f"--json={disk}/x.json"],
                "export": ["export", f"--workdir={disk}/finished", f"--out={disk}/export"],
            }
            for name, argv in commands.items():
                run = self.command(argv)
                status, said = run.wait(), run.output()
                sentence = [line for line in said.splitlines() if line.startswith("eeg2text ")]
                self.expect(status == 2 and len(sentence) == 1, f"read-only {name}: status {status}", run)
                self.expect(TRACEBACK not in said, f"read-only {name}: a traceback", run)
                print(f"read-only {name}: status {status}: {' '.join(sentence)}", flush=True)
        finally:
            subprocess.run(["umount", "-l", str(disk)], check=True)


def mount(*options: object) -> None:
    subprocess.run(["mount", *map(str, options)], check=True)


def used(disk: Path) -> int:
    return shutil.disk_usage(disk).used


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, help="folder for the runs; emptied first")
    parser.add_argument("--kills", type=int, default=60)
    parser.add_argument("--least", type=int, default=10, help="kills in each stage, beyond `--kills` if need be")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--no-disks", action="store_true", help="mount nothing")
    options = parser.parse_args()
    shutil.rmtree(options.out, ignore_errors=True)
    options.out.mkdir(parents=True)
    prepare(options.out / "cache")
    begun = time.monotonic()
    series = Series(options.out, options.seed)
    whole = options.out / "whole"
    train = series.start(whole, "train")
    series.expect(train.wait() == 0, "training alone", train)
    shutil.copytree(whole, options.out / "trained")
    first = series.start(whole)
    series.expect(first.wait() == 0, "the run that is left alone", first)
    expected = what_counts(whole, series.log())
    print(f"left alone: {time.monotonic() - begun:.0f} s", flush=True)
    if not options.no_disks:
        series.read_only(whole, options.out / "trained")
        for size in SIZES:
            series.full_disk(size, expected)
    for number in range(options.pairs):
        series.pair(number, expected)
    series.time_stages(expected)
    for number in range(options.kills + 5 * options.least):  # a stage that is never met does not go on for ever
        if not (stages := series.left(options.kills, options.least)):
            break
        series.killed_run(number, stages, expected)
    series.expect(not series.left(options.kills, options.least), "too few kills")
    kills = ", ".join(f"{series.kills[stage]} {stage}" for stage in (*ORDER, "too late"))
    print(f"kills: {kills}; {len(series.failures)} failures; {time.monotonic() - begun:.0f} s")
    return bool(series.failures)


if __name__ == "__main__":
    sys.exit(main())
