"""A picture of what was recorded when: a line for each recording, a color for each group of texts."""

from typing import Any

import numpy as np

from eeg2text_jax.data.datafile import DataFile

MOST_LINES, MOST_NAMED = 60, 12  # recordings drawn; groups in the legend


def time_figure(data: DataFile) -> Any:
    """A matplotlib figure of the samples of each recording by time, colored by story, or else by task."""
    from matplotlib import colormaps
    from matplotlib.figure import Figure  # slow to import, and seldom needed

    clock = data.clock
    groups = data.task if data.text_group is None else data.text_group
    names, label = np.unique(groups.astype(str), return_inverse=True)
    lines = list(clock.recordings().items())
    shown = lines[:MOST_LINES]
    figure = Figure(figsize=(9, 1.5 + 0.18 * len(shown)), layout="constrained")
    axes = figure.subplots()
    colors = colormaps["tab20"](np.arange(len(names)) % 20)
    for y, (_, rows) in enumerate(shown):
        rows = rows[clock.known[rows]]
        begin, end = clock.spans[rows].T
        width = np.maximum(end - begin, 0.6 if clock.unit == "samples" else 0.2)
        axes.barh(np.full(len(rows), y), width, left=begin, height=0.8, color=colors[label[rows]])
    axes.set(yticks=range(len(shown)), yticklabels=[name for name, _ in shown], ylim=(len(shown) - 0.4, -0.6),
             xlabel="seconds" if clock.in_seconds else "place in the order")  # fmt: skip
    axes.tick_params(axis="y", labelsize=6)
    more = f", {len(shown)} of {len(lines)} recordings" if len(lines) > len(shown) else ""
    axes.set_title(f"{data.path.name}: what was recorded when{more}", fontsize=9)
    for name, color in list(zip(names, colors, strict=True))[:MOST_NAMED]:
        axes.barh([0], [0], color=color, label=name)
    axes.legend(fontsize=6, loc="upper right")
    return figure
