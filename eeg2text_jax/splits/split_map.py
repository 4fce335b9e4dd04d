"""Figures of a data file: times of its samples, and the part of each sample under several splitting methods."""

from typing import Any

import numpy as np

from eeg2text_jax.data.clock import runs_of
from eeg2text_jax.data.datafile import DataFile
from eeg2text_jax.errors import UserError
from eeg2text_jax.splits.methods import make_split
from eeg2text_jax.splits.neighbors import texts_of
from eeg2text_jax.splits.split import PARTS, Split, readings_of, text_units

MOST_LINES, MOST_NAMED = 60, 12  # most recordings in the figure; most groups in its legend


def time_figure(data: DataFile) -> Any:
    """Return a matplotlib figure of the samples by time, a line per recording, colored by story or task."""
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


def place_figure(data: DataFile) -> Any:
    """Return a matplotlib figure of texts by place, a line per recording, with panels of task and run.

    A text has a color by its place in the first recording of its run that has it. So recordings of the same order look
    alike, and those of other orders do not.
    """
    from matplotlib.figure import Figure  # slow to import, and seldom needed

    clock, text = data.clock, texts_of(readings_of(data))
    lines: dict[str, list[tuple[str, np.ndarray]]] = {}
    for name, rows in clock.recordings().items():
        rows = rows[clock.known[rows]]
        if len(rows):
            run = str(runs_of(data.task[rows[:1]], clock.recording[rows[:1]])[0])
            lines.setdefault(run, []).append((name, rows[np.argsort(clock.places["index"][rows], kind="stable")]))
    shown = list(lines.items())[:MOST_NAMED]
    sizes = [min(len(own), MOST_LINES) for _, own in shown]
    figure = Figure(figsize=(9, 1 + 0.5 * len(shown) + 0.12 * sum(sizes)), layout="constrained")
    panels = figure.subplots(len(shown), squeeze=False, gridspec_kw={"height_ratios": sizes})[:, 0]
    for axes, (run, own) in zip(panels, shown, strict=True):
        own = own[:MOST_LINES]
        image = np.full((len(own), max(len(rows) for _, rows in own)), np.nan)
        first: dict[str, int] = {}
        for y, (_, rows) in enumerate(own):
            image[y, : len(rows)] = [first.setdefault(text[i], len(first)) for i in rows]
        axes.imshow(image, aspect="auto", interpolation="nearest", cmap="viridis")
        axes.set_title(f"{run}: {len(lines[run])} recordings", fontsize=8)
        axes.set_yticks(range(len(own)), [name for name, _ in own], fontsize=5)
    panels[-1].set_xlabel("place in the recording (index); color: the text")
    return figure


_COLOURS = {"nothing": "#ffffff", "discarded": "#d9d9d9", "train": "#3b6fb6", "dev": "#e0a030", "test": "#c2403a",
            "several parts": "#7d5ba6"}  # fmt: skip


def part_cells(data: DataFile, split: Split) -> np.ndarray:
    """Return the part of each pair of subject and text as an index into `_COLOURS`, int `[subjects, texts]`."""
    subject = np.unique(data.subject.astype(str), return_inverse=True)[1]
    text = np.unique(text_units(data), return_inverse=True)[1]
    part = np.full(len(data), len(PARTS))  # at first, all samples count as discarded
    for k, name in enumerate(PARTS):
        part[split.parts[name]] = k
    found = np.zeros((subject.max() + 1, text.max() + 1, len(PARTS) + 1), bool)
    found[subject, text, part] = True
    n_parts = found[..., :-1].sum(axis=-1)
    cases = [n_parts > 1, n_parts == 1, found[..., -1]]
    return np.select(cases, [len(_COLOURS) - 1, found.argmax(axis=-1) + 2, 1], 0)


def split_map(data: DataFile, ratio: tuple[float, float, float], seed: int) -> Any:
    """Return a matplotlib figure with a panel per method (a) to (f): the part of each pair of subject and text.

    The panel of a method that cannot split this data says why.
    """
    from matplotlib.colors import ListedColormap
    from matplotlib.figure import Figure  # slow to import, and seldom needed
    from matplotlib.patches import Patch

    figure = Figure(figsize=(19.2, 4.2), layout="constrained")
    colours = ListedColormap(list(_COLOURS.values()))
    for axes, method in zip(figure.subplots(1, 6), "abcdef", strict=True):
        axes.set(xticks=[], yticks=[], xlabel="text group" if data.is_windows else "text", ylabel="subject")
        try:
            split = make_split(data, method, ratio, seed)
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
