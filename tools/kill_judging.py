"""Kills `eeg2text judge` at moments all over its run: the same command then ends with the same bytes.

    python tools/kill_judging.py DIR [--kills 6] [-- --config.FIELD=VALUE ...]

The toy at a reduced size, whole into DIR/whole; then into DIR/killed_N with SIGKILL in the Nth part of the whole run's
seconds, every other time when the first checkpoint is there, and the same command to its end. Judge, prompt, results,
pairs and the curve of losses must be the same bytes.
"""

import argparse
import random
import subprocess
import sys
import time
from pathlib import Path

PRODUCTS = ("judge/judge.json", "judge/prompt.safetensors", "results.json", "results.md", "metrics.jsonl", "pairs.tsv")
REDUCED = {
    "compilation_cache": "",
    "toy.steps": 60,
    "toy.pairs": 400,
    "train.steps": 120,
    "train.eval_every": 10,
    "train.save_every": 10,
    "optim.warmup_steps": 10,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--kills", type=int, default=6)
    own, flags = sys.argv[1:], []
    if "--" in own:
        own, flags = own[: own.index("--")], own[own.index("--") + 1 :]
    args = parser.parse_args(own)
    settings = [f"--config.{name}={value}" for name, value in REDUCED.items()] + flags
    command = [sys.executable, "-m", "eeg2text_jax", "judge", "--config=configs/judge.py:checkpoint=toy", *settings]
    whole = args.folder / "whole"
    begun = time.monotonic()
    subprocess.run([*command, f"--workdir={whole}"], check=True, stdout=subprocess.DEVNULL)
    seconds = time.monotonic() - begun
    for number in range(args.kills):
        killed = args.folder / f"killed_{number}"
        process = subprocess.Popen([*command, f"--workdir={killed}"], stdout=subprocess.DEVNULL)
        begun, moment = time.monotonic(), seconds * (number + random.Random(number).random()) / args.kills
        while process.poll() is None:
            reached = steps_of(killed) if number % 2 else time.monotonic() - begun > moment
            if reached:
                break
            time.sleep(0.05)
        moment = time.monotonic() - begun
        process.kill()
        process.wait()
        steps = steps_of(killed)
        at = f"behind step {steps[-1]}" if steps else "before a checkpoint"
        subprocess.run([*command, f"--workdir={killed}"], check=True, stdout=subprocess.DEVNULL)
        different = [name for name in PRODUCTS if (whole / name).read_bytes() != (killed / name).read_bytes()]
        print(
            f"killed after {moment:.0f} of {seconds:.0f} s, {at}: {', '.join(different) or 'nothing'} differs",
            flush=True,
        )
        if different:
            raise SystemExit(1)


def steps_of(workdir: Path) -> list[int]:
    """Of the checkpoints that were written to their end."""
    names = (path.name.removeprefix("step_") for path in (workdir / "checkpoints").glob("step_*"))
    return sorted(int(name) for name in names if name.isdecimal())


if __name__ == "__main__":
    main()
