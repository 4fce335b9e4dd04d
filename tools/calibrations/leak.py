"""Shows a leak: `eeg2text run` of configs/leak.py under a split that leaks texts and one that does not, a row each.

python tools/calibrations/leak.py /tmp/leak [--splits c f] [--config.train.steps=200 ...]
"""

import argparse
import json
from pathlib import Path

from eeg2text_jax.commands.cli import main as eeg2text

METRIC = "word_bleu-1"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("workdir", type=Path, help="gets one folder a split; finished runs in it are only read")
    parser.add_argument("--splits", nargs="+", default=["c", "f"], choices=["a", "c", "f"])
    arguments, overrides = parser.parse_known_args()
    rows = []
    for split in arguments.splits:
        workdir = arguments.workdir / split
        status = eeg2text(["run", f"--config=configs/leak.py:{split}", f"--workdir={workdir}", *overrides])
        if status:
            raise SystemExit(status)
        rows.append(row(split, workdir))
    print(f"\n{METRIC} of null data, trained and tested with the same condition (EEG | noise)")
    print(f"{'split':<6} {'train':>6} {'test':>5} {'TSLR':>7} {'free-running':>16} {'teacher-forced':>16}")
    print("\n".join(rows))


def row(split: str, workdir: Path) -> str:
    """One line: sizes, text leakage of test by train, and the scores of both conditions in both modes."""
    certificate = json.loads((workdir / "split.json").read_text())
    cells = json.loads((workdir / "results.json").read_text())["cells"]
    scores = {
        (cell["train_condition"], cell["mode"]): cell["metrics"][METRIC]["value"]
        for cell in cells
        if cell["train_condition"] == cell["eval_condition"]
    }
    sizes = [certificate["parts"][name]["samples"] for name in ("train", "test")]
    tslr = certificate["leakage"][0]["tslr"]["letters-digits"]
    modes = ("free_running", "teacher_forced")
    free, forced = (f"{scores['eeg', mode]:6.2f} | {scores['noise', mode]:6.2f}" for mode in modes)
    return f"{split:<6} {sizes[0]:>6} {sizes[1]:>5} {tslr:>7.1%} {free:>16} {forced:>16}"


if __name__ == "__main__":
    main()
