"""Kills a run again and again, at random times and in the middle of saves, and holds its end against an unkilled one.

python tools/kill_series.py /tmp/kills [--kills 20] [--seed 0] [--config.train.steps=2000 ...]

Every start must go on from where the one before had saved; the final parameters, losses, position in the data and
predictions must equal those of the run that was left alone, bit for bit. Exit status 1 where they do not.
"""

import argparse
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from eeg2text_jax.testing.finished_runs import final_checkpoint, logged_metrics

CONFIG = "configs/demo.py:planted"
SMALL = (
    "data.synthetic.sentences=300",
    "data.synthetic.features=16",
    "batch.buckets=((20,40),)",
    "batch.size=16",
    "model.encoder_ffn=32",
    "model.shape.d_model=32",
    "model.shape.encoder_ffn_dim=64",
    "model.shape.decoder_ffn_dim=64",
    "train.steps=2000",
    "train.save_every=40",
    "train.eval_every=80",
    "train.log_every=10",
    "decode.num_beams=2",
    "decode.max_length=16",
    "audit.resamples=200",
)
SIGNALS = (signal.SIGKILL, signal.SIGTERM)
# A process that is told to end before Python listens dies of the signal itself.
ENDS = {signal.SIGKILL: (-signal.SIGKILL,), signal.SIGTERM: (143, -signal.SIGTERM)}


class Run:
    """One start of `eeg2text run` in a folder."""

    def __init__(self, workdir: Path, arguments: list[str]):
        self.workdir, self._log = workdir, workdir.parent / f"{workdir.name}.log"
        self._lines = 0
        command = [sys.executable, "-m", "eeg2text_jax", "run", *arguments, f"--workdir={workdir}"]
        environment = {**os.environ, "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0", "PYTHONUNBUFFERED": "1"}
        with self._log.open("w") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=environment)

    def wait(self) -> int:
        return self._process.wait()

    def ended(self) -> bool:
        return self._process.poll() is not None

    def send(self, number: signal.Signals) -> int:
        self._process.send_signal(number)
        return self.wait()

    def output(self) -> str:
        return self._log.read_text()

    def resumed_from(self) -> int | None:
        """The step that this start went on from, if it came that far."""
        found = re.search(r"going on from the checkpoint of step (\d+)", self.output())
        return int(found[1]) if found else None

    def training(self) -> bool:
        """Whether it has logged steps of its own: a start first writes again what it goes on from."""
        log = self.workdir / "metrics.jsonl"
        if "training " not in self.output() or not log.exists():
            return False
        lines = log.read_text().count("\n")
        self._lines = self._lines or lines
        return lines > self._lines

    def saving(self) -> bool:
        """Whether a checkpoint is being written."""
        folder = self.workdir / "checkpoints"
        return folder.exists() and any("tmp" in path.name for path in folder.iterdir())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, help="folder for both runs; emptied first")
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    options, overrides = parser.parse_known_args()
    shutil.rmtree(options.out, ignore_errors=True)
    options.out.mkdir(parents=True)
    cache = f"--config.compilation_cache={options.out / 'cache'}"
    arguments = [f"--config={CONFIG}", *(f"--config.{field}" for field in SMALL), cache, *overrides]
    begun = time.monotonic()
    whole = Run(options.out / "whole", arguments)
    if whole.wait():
        raise SystemExit(whole.output()[-3000:])
    print(f"left alone: {time.monotonic() - begun:.0f} s")
    killed = kill_series(options.out / "killed", arguments, options.kills, random.Random(options.seed))
    print(f"all of it took {time.monotonic() - begun:.0f} s")
    return compare(whole.workdir, killed)


def kill_series(workdir: Path, arguments: list[str], kills: int, rng: random.Random) -> Path:
    """Runs and kills `kills` times, then lets the run finish."""
    reached = 0
    for number in range(1, kills + 1):
        run = Run(workdir, arguments)
        kind = rng.choice(SIGNALS)
        moment = until_a_save(run) if number % 3 == 0 else until_some_time(run, rng)
        if run.ended():
            raise SystemExit(f"the run ended by itself before kill {number}; give it more train.steps")
        status, resumed = run.send(kind), run.resumed_from()
        print(f"{number:3} {kind.name} {moment}, status {status}, had gone on from {resumed}", flush=True)
        if status not in ENDS[kind]:
            raise SystemExit(f"the status is none of {ENDS[kind]}:\n{run.output()[-3000:]}")
        if resumed is not None:
            if resumed < reached:
                raise SystemExit(f"step {reached} had been saved and this start went on from {resumed}")
            reached = resumed
    last = Run(workdir, arguments)
    if last.wait():
        raise SystemExit(last.output()[-3000:])
    return workdir


def until_some_time(run: Run, rng: random.Random) -> str:
    """Waits for a random time from the start, or from the first steps on."""
    early = rng.random() < 0.3
    if not early:
        until(run, run.training)
    seconds = rng.uniform(0, 8 if early else 2)
    time.sleep(seconds)
    return f"{seconds:.1f} s after {'its start' if early else 'its first steps'}"


def until_a_save(run: Run) -> str:
    """Waits until this start has taken steps and writes a checkpoint."""
    until(run, lambda: run.training() and run.saving())
    return "during a save"


def until(run: Run, condition: Callable[[], bool]) -> None:
    while not run.ended() and not condition():
        time.sleep(0.001)


def compare(whole: Path, killed: Path) -> int:
    """Prints what was compared and returns 1 where something differs."""
    (_, expected, expected_info), (_, found, found_info) = map(final_checkpoint, (whole, killed))
    same = {
        f"{len(expected)} arrays of the final checkpoint": expected.keys() == found.keys()
        and all(np.array_equal(values, found[name]) for name, values in expected.items()),
        "position in the data": expected_info == found_info,
        "losses of every logged step": logged_metrics(whole) == logged_metrics(killed),
        "predictions.jsonl": same_file(whole, killed, "predictions.jsonl"),
        "results.json": same_file(whole, killed, "results.json"),
    }
    for name, holds in same.items():
        print(f"{name}: {'equal' if holds else 'DIFFERENT'}")
    return 0 if all(same.values()) else 1


def same_file(whole: Path, killed: Path, name: str) -> bool:
    return (whole / name).read_bytes() == (killed / name).read_bytes()


if __name__ == "__main__":
    sys.exit(main())
