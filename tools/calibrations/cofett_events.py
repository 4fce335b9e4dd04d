"""COFETT's recipe on the public tables of events of ds006317, with made-up signals and texts.

    python tools/calibrations/cofett_events.py FOLDER OUT

FOLDER has the public tables (signals need not be downloaded). OUT gets a copy of them with a small EDF file of noise
beside each, 5 samples a second, and Excel files of invented texts, whose numbers of characters fit the events. Both
phases of both tasks are prepared with `configs/cofett.py` (one band, 0.5 to 2 Hz), and `check` compares the orders.
Then texts that are shifted by one row, or those of another run, must be refused. Needs 300 MB.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import edfio
import numpy as np
import openpyxl
from real_layouts import rows_of

from configs.cofett import EVENTS

RATE, CHARACTER = 5, 0.4  # samples a second; seconds a character
TASKS, PHASES = ("para1", "para2"), ("reading", "inner")


def signals(folder: Path, out: Path) -> list[Path]:
    """Copy the tables, and write an EDF file beside each table of events, with the channels of its table."""
    rng, tables = np.random.default_rng(0), []
    for table in sorted(folder.glob("sub-*/ses-*/eeg/*_events.tsv")):
        stem = out / table.relative_to(folder).with_name(table.name.removesuffix("_events.tsv"))
        stem.parent.mkdir(parents=True, exist_ok=True)
        for suffix in ("events.tsv", "channels.tsv", "eeg.json"):
            shutil.copyfile(table.with_name(table.name.replace("events.tsv", suffix)), f"{stem}_{suffix}")
        seconds = int(json.loads(Path(f"{stem}_eeg.json").read_text(encoding="utf-8-sig"))["RecordingDuration"]) + 1
        names = [row["name"] for row in rows_of(Path(f"{stem}_channels.tsv"))]
        channels = [
            edfio.EdfSignal(rng.normal(0, 20, seconds * RATE), RATE, label=name, physical_dimension="uV",
                            physical_range=(-200, 200))
            for name in names
        ]  # fmt: skip
        edfio.Edf(channels).write(f"{stem}_eeg.edf")
        tables.append(Path(f"{stem}_events.tsv"))
    return tables


def texts(tables: list[Path], out: Path) -> None:
    """Write the Excel files: texts that differ, with as many characters as most recordings show for the trial."""
    shown: dict[str, list[np.ndarray]] = {}
    for table in tables:
        task, run = re.search(r"task-(para\d)_run-0*(\d+)", table.name).groups()
        rows = rows_of(table)
        begin, end = (np.array([float(row["onset"]) for row in rows if row["value"] == c]) for c in EVENTS["reading"])
        name = f"text1-{run}.xlsx" if task == TASKS[0] else "text2.xlsx"
        shown.setdefault(name, []).append(np.rint((end - begin) / CHARACTER))
    rng = np.random.default_rng(0)
    for name, counts in shown.items():
        lengths = np.median(counts, axis=0).astype(int)
        write_book(out / name, ["".join(map(chr, rng.integers(0x4E00, 0x9FA5, n))) for n in lengths])


def write_book(path: Path, rows: list[str]) -> None:
    book = openpyxl.Workbook()
    for text in rows:
        book.active.append([text])
    book.save(path)


def read_book(path: Path) -> list[str]:
    return [str(row[0]) for row in openpyxl.load_workbook(path).active.values]


def run(*arguments: str) -> str:
    """Run a command of eeg2text; return what it prints, its message if it refuses."""
    done = subprocess.run([sys.executable, "-m", "eeg2text_jax", *arguments], capture_output=True, text=True,
                          env=os.environ | {"JAX_PLATFORMS": "cpu"}, check=False)  # fmt: skip
    return done.stdout if done.returncode == 0 else done.stderr


def prepare(out: Path, phase: str, task: str, books: Path) -> str:
    name = "text1-{run}.xlsx" if task == TASKS[0] else "text2.xlsx"
    source = f"{out}/sub-*/ses-*/eeg/*task-{task}*.edf"
    return run("prepare", f"--config=configs/cofett.py:phase={phase},task={task}", f"--config.data.source={source}",
               f"--config.data.raw.texts={books / name}", "--config.data.raw.resample=0",
               "--config.data.raw.bands=((0.5,2),)", f"--out={out}/{phase}_{task}.h5")  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("out", type=Path)
    flags = parser.parse_args()
    tables = sorted(flags.out.glob("sub-*/ses-*/eeg/*_events.tsv")) or signals(flags.folder, flags.out)
    texts(tables, flags.out)
    print(f"{len(tables)} recordings", flush=True)
    for phase in PHASES:
        for task in TASKS:
            print(f"\n{phase}, {task}: {prepare(flags.out, phase, task, flags.out)}", flush=True)
            print(run("check", f"{flags.out}/{phase}_{task}.h5"), flush=True)
    wrong = flags.out / "wrong"
    wrong.mkdir(exist_ok=True)
    books = {k: read_book(flags.out / f"text1-{k}.xlsx") for k in "1234"}
    for why, shift in (("shifted by a row", lambda k: books[k][-1:] + books[k][:-1]),
                       ("of another run", lambda k: books[str(int(k) % 4 + 1)])):  # fmt: skip
        for k in books:
            write_book(wrong / f"text1-{k}.xlsx", shift(k))
        print(f"{why}: {prepare(flags.out, 'reading', TASKS[0], wrong)}", flush=True)


if __name__ == "__main__":
    main()
