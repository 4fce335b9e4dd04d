"""UniCoRN on recordings with a planted signal: unseen subjects and texts, a leaking split, shuffled labels, no signal.

python tools/calibrations/planted_fair.py DIR [--rows f star ...] [--config.FIELD=VALUE ...]

Each row is configs/demo_fmri.py but for what makes it that row; finished ones in DIR are only read. They are
  f         split (f), reconstruction first           null      the same without a signal
  star      the same with a random encoder            shuffled  trained on the texts of other samples
  c         split (c), which leaks subjects and texts
Printed are free-running BLEU-1 with recordings and with noise, their ratio, and the verdict.
"""

import argparse
import json
from pathlib import Path

from eeg2text_jax.commands.cli import main as eeg2text
from eeg2text_jax.instrument.auditing.audit import audit
from eeg2text_jax.instrument.auditing.notices import DECODED_HERE
from eeg2text_jax.instrument.predictions.file import read_predictions
from eeg2text_jax.instrument.predictions.selection import select_cells

ROWS = {
    "f": {},
    "star": {"pretrain.enabled": False},
    "c": {"split.method": "c"},
    "null": {"data.synthetic_fmri.signal": 0.0},
    "shuffled": {"grid.train_conditions": ("label_shuffle", "noise"), "grid.eval_conditions": ("eeg", "noise")},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workdir", type=Path)
    parser.add_argument("--rows", nargs="+", default=list(ROWS), choices=list(ROWS))
    arguments, overrides = parser.parse_known_args()
    for name in arguments.rows:
        flags = [f"--config.{field}={value}" for field, value in ROWS[name].items()]
        workdir = f"--workdir={arguments.workdir / name}"
        status = eeg2text(["run", "--config=configs/demo_fmri.py:planted", workdir, *flags, *overrides])
        if status:
            raise SystemExit(status)
    if status := eeg2text(["table", *(str(arguments.workdir / name) for name in arguments.rows), "--profile=standard"]):
        raise SystemExit(status)
    print("\n".join(map(ratio, (arguments.workdir / name for name in arguments.rows))))


def mean(results: dict, arm: str, mode: str, figure: str) -> float | None:
    """Mean of a score over the arms trained and tested with a condition; None if there are none."""
    found = [
        cell["metrics"][figure]["value"]
        for cell in results["cells"]
        if cell["mode"] == mode and cell["train_condition"] == cell["eval_condition"] == arm
    ]
    return sum(found) / len(found) if found else None


def ratio(workdir: Path) -> str:
    """Free-running BLEU-1 of the arm of the recordings over that of the noise arm."""
    results = json.loads((workdir / "results.json").read_text())
    scores = {arm: mean(results, arm, "free_running", "word_bleu-1") for arm in ("eeg", "noise")}
    if scores["eeg"] is None:  # trained on shuffled labels, tested with recordings
        wanted = {"train_condition": "label_shuffle", "eval_condition": "eeg", "mode": "free_running"}
        cell = next(cell for cell in results["cells"] if wanted.items() <= cell.items())
        scores["eeg"] = cell["metrics"]["word_bleu-1"]["value"]
    if workdir.name == "shuffled":  # has no arm of the recordings, so that its run has judged nothing
        controls = select_cells(read_predictions(workdir / "predictions.jsonl").predictions, "label_shuffle")
        found = audit(controls.pop("eeg"), controls, decoded=DECODED_HERE, recording="fmri").verdict.value
    else:
        found = json.loads((workdir / "audit.json").read_text())["verdict"]
    return (
        f"{workdir.name:<9} BLEU-1 {scores['eeg']:6.2f} with recordings, {scores['noise']:6.2f} with noise: "
        f"{scores['eeg'] / max(scores['noise'], 1e-9):.2f} times; {found}"
    )


if __name__ == "__main__":
    main()
