"""Draws docs/scaling.svg from tables that `eeg2text preflight` keeps with `--json`.

python tools/site/draw_scaling.py "32 rows a chip=WEAK.json" "batch 32=STRONG.json" [...], in the order of the legend.

On the left samples/s over chips, with dotted lines of perfect scaling from the smallest slice that fits; on the right
the share of a chip's peak. Hollow points are slices of a table that do not fit.
"""

import json
import math
import sys
from pathlib import Path

import matplotlib
from matplotlib.figure import Figure

ROOT = Path(__file__).parents[2]
SIZE = (9, 3.4)


def rows(path: Path) -> list[dict]:
    """The rows of a table that have a time, by chips."""
    found = json.loads(path.read_text())["scaling"].values()
    timed = [{**row, "chips": math.prod(row["mesh"])} for row in found if row["milliseconds"]]
    return sorted(timed, key=lambda row: row["chips"])


def main(arguments: list[str]) -> None:
    matplotlib.rcParams["svg.hashsalt"] = "scaling"  # the same picture, byte for byte
    figure = Figure(figsize=SIZE, layout="constrained")
    speed, peak = figure.subplots(1, 2)
    for argument, color in zip(arguments, ("#4477aa", "#cc6677", "#228833", "#aa8800"), strict=False):
        name, _, path = argument.rpartition("=")
        table = rows(Path(path))
        chips = [row["chips"] for row in table]
        rates = [1e3 * row["batch"] / row["milliseconds"] for row in table]
        speed.plot(chips, rates, "o-", color=color, label=name)
        peak.plot(chips, [100 * row["share_of_peak"] for row in table], "o-", color=color, label=name)
        speed.plot(chips, [rates[0] * n / chips[0] for n in chips], ":", color=color, lw=1)
        over = [(row, rate) for row, rate in zip(table, rates, strict=True) if row["memory"] > row["usable"]]
        speed.plot([row["chips"] for row, _ in over], [rate for _, rate in over], "o", color=color, mfc="white")
    for axes, label in ((speed, "samples/s of each arm"), (peak, "share of peak, %")):
        axes.set_xscale("log", base=2)
        axes.set_xlabel("chips")
        axes.set_ylabel(label)
        axes.set_xticks([1, 4, 16, 64, 256], [1, 4, 16, 64, 256])
    speed.set_yscale("log", base=2)
    speed.yaxis.set_major_formatter(matplotlib.ticker.StrMethodFormatter("{x:,.0f}"))
    peak.set_ylim(0)
    speed.legend(frameon=False)
    figure.savefig(ROOT / "docs/scaling.svg", metadata={"Date": None})


if __name__ == "__main__":
    main(sys.argv[1:])
