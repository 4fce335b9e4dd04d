"""Kills `eeg2text score` at random moments: nothing half-written is left, and then the same bytes are written.

    python tools/kill_scoring.py FILE... [--kills 5] [--out DIR] -- --metrics=bleu,bertscore,similarity --encoder=minilm

SIGKILL between 0 and the whole run's seconds. What follows `--` goes to the command, which writes --json and --rows.
"""

import argparse
import random
import subprocess
import sys
import time
from pathlib import Path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("files", nargs="+")
    parser.add_argument("--kills", type=int, default=5)
    parser.add_argument("--out", type=Path, default=Path("kill_scoring"))
    own, flags = sys.argv[1:], []
    if "--" in own:
        own, flags = own[: own.index("--")], own[own.index("--") + 1 :]
    args = parser.parse_args(own)
    args.out.mkdir(parents=True, exist_ok=True)

    def command(name: str) -> tuple[list[str], list[Path]]:
        written = [args.out / f"{name}.json", args.out / f"{name}.jsonl"]
        for path in written:
            path.unlink(missing_ok=True)
        outputs = [f"--json={written[0]}", f"--rows={written[1]}"]
        return [sys.executable, "-m", "eeg2text_jax", "score", *args.files, *flags, *outputs], written

    def run(name: str) -> tuple[list[bytes], float]:
        begun = time.monotonic()
        ordered, written = command(name)
        subprocess.run(ordered, check=True, stdout=subprocess.DEVNULL)
        return [path.read_bytes() for path in written], time.monotonic() - begun

    whole, seconds = run("whole")
    seen = {"nothing was written": 0, "one file": 0, "both": 0}
    for number in range(args.kills):
        ordered, written = command("killed")
        process = subprocess.Popen(ordered, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(random.Random(number).uniform(0, seconds))
        process.kill()
        process.wait()
        there = [path for path in written if path.exists()]
        for path, expected in zip(written, whole, strict=True):
            assert not path.exists() or path.read_bytes() == expected, f"{path} is half-written"
        seen[list(seen)[len(there)]] += 1
        again, _ = run("killed")
        assert again == whole, f"kill {number}: other bytes"
    print(f"{args.kills} kills within {seconds:.0f} s, the same bytes after each; after a kill: {seen}")


if __name__ == "__main__":
    main()
