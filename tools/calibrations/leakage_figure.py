"""Losses of the reconstructions on dev under each split, beside the trivial predictors: Figure 4 of the paper.

python tools/calibrations/leakage_figure.py OUT.png DIR [DIR ...]

Each DIR is a finished run of configs/leakage.py; its split's method is its label. Drawn is the arm of the recordings.
"""

import json
import sys

from etils import epath

from eeg2text_jax.training.metrics_log import rows_of, write_figure
from eeg2text_jax.training.pictures import curves_figure
from eeg2text_jax.training.stages import RECONSTRUCTIONS


def main(out: str, *workdirs: str) -> None:
    curves: dict[str, dict[str, list]] = {}
    for workdir in map(epath.Path, workdirs):
        config = json.loads((workdir / "config.json").read_text())
        arm, label = f"eeg/{config['grid']['seeds'][0]}", f"({config['split']['method']})"
        for stage in RECONSTRUCTIONS:
            if (workdir / stage / "metrics.jsonl").exists():
                rows = rows_of(workdir / stage / "metrics.jsonl")
                curves.setdefault(stage, {})[label] = rows
                losses = [row[f"dev_loss/{arm}"] for row in rows if f"dev_loss/{arm}" in row]
                trivial = ", ".join(f"{name} {rows[0][f'{name}/{arm}']:.4f}" for name in ("zero", "mean"))
                print(f"{stage:<9} {label}  lowest {min(losses):.4f}, last {losses[-1]:.4f}; predicting {trivial}")
    if not curves:
        raise SystemExit(f"{', '.join(workdirs)}: no run there has reconstructed anything; run configs/leakage.py.")
    write_figure(curves_figure(curves, [arm]), epath.Path(out))


if __name__ == "__main__":
    if len(sys.argv) < 3:
        raise SystemExit(__doc__)
    main(*sys.argv[1:])
