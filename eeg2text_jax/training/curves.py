"""Loss curves of a run as a PNG, from its `metrics.jsonl`."""

import json

from etils import epath
from matplotlib.figure import Figure

from eeg2text_jax.files import replacing

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")  # Okabe and Ito
DASHES = ("-", "--", "-.", ":")


def write_curves(metrics: epath.Path, out: epath.Path) -> None:
    """Writes `loss_figure` as a PNG."""
    figure = loss_figure(metrics)
    with replacing(out) as partial, partial.open("wb") as file:
        figure.savefig(file, format="png", dpi=150)


def loss_figure(metrics: epath.Path) -> Figure:
    """Training (thin) and dev loss (thick, dots) of every arm by step."""
    rows = [json.loads(line) for line in metrics.read_text().splitlines()]
    figure = Figure(figsize=(6.0, 3.6), layout="constrained")
    axes = figure.subplots()
    names = list(dict.fromkeys(key.partition("/")[2] for row in rows for key in row if key.startswith("dev_loss/")))
    for i, name in enumerate(names):
        style = {"color": COLOURS[i % len(COLOURS)], "linestyle": DASHES[i // len(COLOURS) % len(DASHES)]}
        axes.plot(*_series(rows, f"loss/{name}"), lw=0.7, alpha=0.6, **style)
        axes.plot(*_series(rows, f"dev_loss/{name}"), lw=1.8, marker="o", ms=3, label=f"{name}, dev", **style)
    axes.set_xlabel("step")
    axes.set_ylabel("loss, nats per token")
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False, fontsize=8)
    axes.spines[["top", "right"]].set_visible(False)
    return figure


def _series(rows: list[dict], key: str) -> tuple[list[int], list[float | None]]:
    points = [(row["step"], row[key]) for row in rows if key in row]
    return [step for step, _ in points], [value for _, value in points]
