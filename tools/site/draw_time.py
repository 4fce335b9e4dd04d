"""Draws the three pictures of docs/time.md from made-up recordings: blocks, drift and places.

python tools/site/draw_time.py
"""

import io
import sys
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from PIL import Image

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tools/calibrations"))
from repeats_truth import Design, made, slow  # noqa: E402

from eeg2text_jax.runs.repeats import compare  # noqa: E402

KINDS, TEXTS, EACH = 6, 60, 10
CURVES = {
    "slow drift": Design(drift=1.0),
    "slow drift and words": Design(drift=1.0, words=0.3),
    "drift that changes within 20 places": Design(drift=1.0, places=20),
}
COLORS = ("#4477aa", "#228833", "#cc6677")


def blocks(figure: Figure) -> None:
    """Kinds of sentences by place, in blocks and in random order, with every fifth one tested."""
    rng, tested = np.random.default_rng(0), np.arange(2, TEXTS, 5)
    trained = np.setdiff1d(np.arange(TEXTS), tested)
    kinds = np.repeat(np.arange(KINDS), EACH)
    for axes, name, kind in zip(figure.subplots(2, 1), ("blocks", "random order"), (kinds, rng.permutation(kinds)),
                                strict=True):  # fmt: skip
        near = trained[np.abs(trained[None] - tested[:, None]).argmin(1)]
        told = np.mean(kind[near] == kind[tested])
        axes.imshow(kind[None], aspect="auto", cmap="Set2", interpolation="nearest")
        axes.plot(tested, np.full(len(tested), 0.0), "kv", ms=4)
        axes.set(yticks=[], xticks=[])
        axes.set_title(f"{name}: the training sentence nearest in time has the kind of {told:.0%} of the test "
                       "sentences", fontsize=9)  # fmt: skip
    axes.set_xlabel("place in the recording; color: kind of sentence; triangle: test sentence", fontsize=8)


def drift(figure: Figure) -> None:
    """One feature of three recordings with the same slow drift, and likeness by distance in places."""
    over, likeness = figure.subplots(1, 2)
    rng, design = np.random.default_rng(3), CURVES["slow drift"]
    shared = slow(np.arange(design.sentences), design, np.random.default_rng(1))[:, 0]
    for day, color in enumerate(COLORS):
        over.plot(shared + 0.4 * rng.normal(size=design.sentences), ".", ms=2, color=color, label=f"day {day + 1}")
    over.plot(shared, "k-", lw=1)
    over.set_xlabel("place in the recording", fontsize=8)
    over.set_title("a feature that drifts alike on three days", fontsize=9)
    over.legend(fontsize=7)
    for (name, of), color in zip(CURVES.items(), COLORS, strict=True):
        sets = [compare(*made(of, rng)).curve for _ in range(20)]
        likeness.plot(np.mean(sets, axis=0)[:9], "o-", ms=3, color=color, label=name)
    likeness.set_xlabel("distance in places; 0: the same sentence", fontsize=8)
    likeness.set_title("likeness of two recordings, in points", fontsize=9)
    likeness.legend(fontsize=7)


def places(figure: Figure) -> None:
    """Texts by place in six recordings, in the same order and in random order."""
    rng = np.random.default_rng(0)
    orders = [[np.arange(TEXTS)] * 6, [rng.permutation(TEXTS) for _ in range(6)]]
    for axes, name, order in zip(figure.subplots(2, 1), ("the same order on all days", "another order on each day"),
                                 orders, strict=True):  # fmt: skip
        axes.imshow(np.array(order), aspect="auto", cmap="viridis", interpolation="nearest")
        told = np.mean(order[0] == order[5])
        axes.set_title(f"{name}: day 1 at the same place has the text of {told:.0%} of day 6", fontsize=9)
        axes.set_yticks(range(6), [f"day {k + 1}" for k in range(6)], fontsize=6)
        axes.set_xticks([])
    axes.set_xlabel("place in the recording; color: text", fontsize=8)


def main() -> None:
    for draw, size in ((blocks, (7, 1.9)), (drift, (7, 2.5)), (places, (7, 2.6))):
        figure, drawn = Figure(figsize=size, dpi=100, layout="constrained"), io.BytesIO()
        draw(figure)
        figure.savefig(drawn, format="png")
        Image.open(drawn).convert("RGB").quantize(128).save(ROOT / f"docs/time_{draw.__name__}.png", optimize=True)


if __name__ == "__main__":
    main()
