"""UniCoRN on recordings with a planted signal: unseen subjects and texts, a leaking split, shuffled labels, no signal.

python tools/planted_fair.py DIR [--words] [--rows f star ...] [--config.FIELD=VALUE ...]

It makes volumes of people who hear stories, or with --words EEG of 10 readers. Finished rows are only read. They are
  f         split (f), reconstruction first           null      the same without a signal
  star      the same with a random encoder            shuffled  trained on the texts of other samples
  c         split (c), which leaks subjects and texts
Printed are free-running BLEU-1 with recordings and with noise, their ratio, and the verdict.
"""

import argparse
import json
from pathlib import Path

from fair_table import mean, row, table

from eeg2text_jax.auditing.audit import audit
from eeg2text_jax.auditing.fitness import DECODED_HERE
from eeg2text_jax.cli import main as eeg2text
from eeg2text_jax.predictions.file import read_predictions
from eeg2text_jax.predictions.selection import select_cells

ROWS = {
    "f": {},
    "star": {"pretrain.enabled": False},
    "c": {"split.method": "c"},
    "null": {"data.synthetic.signal": 0.0, "data.synthetic_fmri.signal": 0.0},
    "shuffled": {"grid.train_conditions": ("label_shuffle", "noise"), "grid.eval_conditions": ("eeg", "noise")},
}
WORDS = {
    "data.synthetic.subjects": 10,
    "data.synthetic.sentences": 1200,
    "data.synthetic.tasks": 1,
    "data.synthetic.vocabulary": 100,
}
VOLUMES = {
    "data.source": "synthetic-fmri",
    "data.standardize": False,
    "data.synthetic_fmri.grid": (8, 8, 4),
    "data.synthetic_fmri.stories": 40,
    "data.synthetic_fmri.heard": 20,
    "data.fmri.lag_tr": 3,
    "data.fmri.detrend": 2,
    "data.fmri.mask": 0.2,
    "data.fmri.stride": 2,
    "split.ratio": (0.7, 0.15, 0.15),  # 3146, 104 and 390 windows of 8, 1 and 3 people under split (f)
    "split.seed": 2,
    "batch.buckets": ((10, 32),),
    "text.max_tokens": 32,
    "decode.max_length": 32,
}
# A small model: what it takes to see a planted signal in minutes on two cores.
SMALL = {
    "split.method": "f",
    "text.vocab_size": 500,
    "model.encoder": "unicorn",
    "model.encoder_layers": 1,
    "model.encoder_ffn": 256,
    "model.unicorn.hidden": 128,
    "model.unicorn.channels": (16, 32),
    "model.dropout": 0.0,
    "pretrain.enabled": True,
    **{f"pretrain.{stage}.{name}": value for stage in ("snapshot", "series")
       for name, value in {"steps": 100, "lr": 3e-3, "eval_every": 50}.items()},
    "train.steps": 400,
    "train.eval_every": 50,
    "optim.lr": 3e-3,
    "parallel.arms": "auto",
    "decode.num_beams": 2,
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workdir", type=Path)
    parser.add_argument("--words", action="store_true")
    parser.add_argument("--rows", nargs="+", default=list(ROWS), choices=list(ROWS))
    arguments, overrides = parser.parse_known_args()
    for name in arguments.rows:
        fields = SMALL | (WORDS if arguments.words else VOLUMES) | ROWS[name]
        flags = [f"--config.{field}={value}" for field, value in fields.items()]
        status = eeg2text(
            ["run", "--config=configs/demo.py:planted", f"--workdir={arguments.workdir / name}", *flags, *overrides]
        )
        if status:
            raise SystemExit(status)
    print("\n" + table([row(arguments.workdir / name) for name in arguments.rows]))
    print("\n".join(map(ratio, (arguments.workdir / name for name in arguments.rows))))


def ratio(workdir: Path) -> str:
    """Free-running BLEU-1 of the arm of the recordings over that of the noise arm."""
    results = json.loads((workdir / "results.json").read_text())
    scores = {arm: mean(results, arm, "free_running", "word_bleu-1") for arm in ("eeg", "noise")}
    if scores["eeg"] is None:  # trained on shuffled labels, tested with recordings
        scores["eeg"] = next(
            cell["metrics"]["word_bleu-1"]["value"]
            for cell in results["cells"]
            if (cell["train_condition"], cell["eval_condition"], cell["mode"])
            == ("label_shuffle", "eeg", "free_running")
        )
    arm = "label_shuffle" if workdir.name == "shuffled" else "eeg"
    controls = select_cells(read_predictions(workdir / "predictions.jsonl").predictions, arm)
    found = audit(controls.pop("eeg"), controls, proof=DECODED_HERE).verdict.value
    return (
        f"{workdir.name:<9} BLEU-1 {scores['eeg']:6.2f} with recordings, {scores['noise']:6.2f} with noise: "
        f"{scores['eeg'] / max(scores['noise'], 1e-9):.2f} times; {found}"
    )


if __name__ == "__main__":
    main()
