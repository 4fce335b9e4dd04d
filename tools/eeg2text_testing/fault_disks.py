"""Full and read-only disks: mounted with root's rights on Linux (tmpfs, which rounds up to a page)."""

import contextlib
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from eeg2text_testing.fault_cases import Case, Place, cases
from eeg2text_testing.fault_series import Series
from eeg2text_testing.forked_runs import TRACEBACK, Forked, arguments

SIZES = ("1k", "4k", "20k", "1m", "3m", "8m", "20m")


def disks(series: Series) -> None:
    """Runs on disks that are too small and then get room, and every command where nothing may be written."""
    case = cases(series.out / "rows.jsonl")["run"]
    if (case.name, "folder") not in series.spans:
        series.measure(case, "folder")
    for size in SIZES:
        _full(series, case, size)
    finished, trained = series.out / "finished", series.out / "trained"
    for command, folder in (("train", trained), ("run", finished)):
        made = series.command([command, *arguments(), f"--workdir={folder}"])
        series.expect(made.wait() == 0, f"{command} on a disk with room", made)
    _read_only(series, finished, trained)


@contextlib.contextmanager
def _disk(series: Series, size: str) -> Iterator[Path]:
    disk = series.out / "disk"
    disk.mkdir(exist_ok=True)
    _mount("-t", "tmpfs", "-o", f"size={size}", "tmpfs", disk)
    try:
        yield disk
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)


def _mount(*options: object) -> None:
    subprocess.run(["mount", *map(str, options)], check=True)


def _sentence(series: Series, run: Forked, what: str, statuses: tuple[int, ...]) -> None:
    status, said = run.wait(), run.output()
    lines = [line for line in said.splitlines() if line.startswith("eeg2text ")]
    good = status in statuses and len(lines) == (status == 2) and TRACEBACK not in said
    series.expect(good, f"{what}: status {status}, {len(lines)} sentences", run)
    print(f"{what}: status {status}: {' '.join(lines)}", flush=True)


def _full(series: Series, case: Case, size: str) -> None:
    with _disk(series, size) as disk:
        _sentence(series, series.command(case.command(f"{disk}/run")), f"disk of {size}", (0, 2))
        _mount("-o", "remount,size=500m", disk)
        where = Place(f"{disk}/run", disk / "run", series.out / "log_of_looking")
        series.finish(case, where, series.ends[case.name, "folder"], f"disk of {size}, with room")
        prepared = disk / "alone.h5"
        _mount("-o", f"remount,size={shutil.disk_usage(disk).used + 4096}", disk)
        # In a process of its own, whose end HDF5 has its part in.
        argv = [sys.executable, "-m", "eeg2text_jax", "prepare", "synthetic", f"--out={prepared}"]
        alone = subprocess.run(argv, capture_output=True, text=True)
        series.expect(alone.returncode == 2 and alone.stderr.count("\n") == 1, f"{size}: prepare: {alone.stderr}")
        series.expect(not prepared.exists() and not list(disk.glob(".alone*")), f"{size}: prepare left a file")
    series.counts["run", "folder", "full disk", size] += 1


def _read_only(series: Series, finished: Path, trained: Path) -> None:
    with _disk(series, "500m") as disk:
        shutil.copytree(finished, disk / "finished")
        shutil.copytree(trained, disk / "trained")
        _mount("-o", "remount,ro", disk)
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
            _sentence(series, series.command(argv), f"read-only {name}", (2,))
            series.counts[name, "folder", "read-only disk", ""] += 1
