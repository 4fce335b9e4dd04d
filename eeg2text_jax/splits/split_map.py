"""Figures of a data file: time of the recordings, and the part of each sample under each split method."""

from typing import Any

import numpy as np

from eeg2text_jax.data.datafile import DataFile
from eeg2text_jax.errors import UserError
from eeg2text_jax.splits.methods import METHODS, make_split
from eeg2text_jax.splits.split import PARTS, Split, text_units

MOST_LINES, MOST_NAMED = 60, 12  # recordings drawn; groups in the legend


def time_figure(data: DataFile) -> Any:
    """Draw the samples of each recording by time, colored by story or task, with matplotlib."""
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


SHOWN = ("a", "b", "c", "d", "e", "f")
_COLOURS = {"nothing": "#ffffff", "discarded": "#d9d9d9", "train": "#3b6fb6", "dev": "#e0a030", "test": "#c2403a",
            "several parts": "#7d5ba6"}  # fmt: skip


def part_cells(data: DataFile, split: Split) -> np.ndarray:
    """Return the index into `_COLOURS` of each subject and text (or text group), int `[subjects, texts]`."""
    subject = np.unique(data.subject.astype(str), return_inverse=True)[1]
    text = np.unique(text_units(data), return_inverse=True)[1]
    counts = np.zeros((subject.max() + 1, text.max() + 1, len(PARTS) + 1), np.int64)
    part = np.full(len(data), len(PARTS))
    for k, name in enumerate(PARTS):
        part[split.parts[name]] = k
    np.add.at(counts, (subject, text, part), 1)
    in_parts = (counts[..., : len(PARTS)] > 0).sum(axis=-1)
    cells = np.where(in_parts == 1, counts[..., : len(PARTS)].argmax(axis=-1) + 2, in_parts)
    cells = np.where(in_parts > 1, len(_COLOURS) - 1, cells)
    return np.where((in_parts == 0) & (counts[..., -1] > 0), 1, cells)


def split_map(data: DataFile, ratio: tuple[float, float, float], seed: int, methods: tuple[str, ...] = SHOWN) -> Any:
    """Draw a panel for each method, with matplotlib: the parts and kept samples, or why the method does not apply."""
    from matplotlib.colors import ListedColormap
    from matplotlib.figure import Figure  # slow to import, and seldom needed
    from matplotlib.patches import Patch

    figure = Figure(figsize=(3.2 * len(methods), 4.2), layout="constrained")
    colours = ListedColormap(list(_COLOURS.values()))
    for axes, method in zip(np.atleast_1d(figure.subplots(1, len(methods))), methods, strict=True):
        axes.set(xticks=[], yticks=[], xlabel="text group" if data.is_windows else "text", ylabel="subject")
        try:
            split = make_split(data, method, ratio, seed) if method in METHODS else None
        except UserError as error:
            axes.set_title(f"({method})")
            axes.text(0.5, 0.5, str(error).rpartition(": ")[2], wrap=True, ha="center", va="center", fontsize=7,
                      transform=axes.transAxes)  # fmt: skip
            continue
        axes.imshow(part_cells(data, split), cmap=colours, vmin=0, vmax=len(_COLOURS) - 1, aspect="auto",
                    interpolation="nearest")  # fmt: skip
        sizes = " / ".join(f"{len(split.parts[name]):,}" for name in PARTS)
        axes.set_title(f"({method}) keeps {split.kept / len(data):.0%}\n{sizes}", fontsize=9)
    figure.legend(
        handles=[Patch(facecolor=colour, edgecolor="#888888", label=name) for name, colour in _COLOURS.items()],
        loc="outside lower center", ncols=len(_COLOURS), fontsize=8,
    )  # fmt: skip
    return figure
