"""Figures of the report as SVG, in the palette of Okabe and Ito; places and labels tell the same as the colors."""

import io
from collections import defaultdict
from collections.abc import Callable

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from eeg2text_jax.auditing.contrast import Z_95
from eeg2text_jax.auditing.result import AuditResult

BLUE, ORANGE, GREY, DARK = "#0072B2", "#D55E00", "#8A8A8A", "#333333"
WIDTH = 4.6  # inches; text stays at 9 px or more when the figure fills a phone's width
STYLE = {"font.size": 10, "axes.spines.top": False, "axes.spines.right": False, "svg.hashsalt": "eeg2text"}
MOST_VECTORS = 1500  # more dots than this are drawn as an image within the figure


def signal_name(result: AuditResult, condition: str) -> str:
    """Return the name of a condition in figures: the kind of signal for the condition "eeg"."""
    return result.verdict.recording if condition == "eeg" else condition


def sentence_points(result: AuditResult, condition: str) -> np.ndarray:
    """Return for each sentence the mean score of its rows against others and against its own reference, `[S, 2]`."""
    found: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for row in result.rows:
        if row.condition == condition and not np.isnan(row.content):
            found[row.reference].append((row.others, row.own))
    return np.array([np.mean(rows, 0) for rows in found.values()]).reshape(-1, 2)


def sentence_figure(result: AuditResult) -> str:
    """Return an SVG plot of each sentence under EEG and under the deciding control, if there is one.

    One dot is a sentence: its score against other sentences to the right, against itself upwards. A dot on the line has
    no content.
    """
    names = [result.conditions[0].name, *filter(None, [result.deciding.control])]
    points = [sentence_points(result, name) for name in names]
    low, high = (f([f(p, 0, initial=0.0) for p in points], 0) for f in (np.min, np.max))
    pad = 0.06 * np.maximum(high - low, 1e-6)
    top, low, high = high[1], low - pad, high + pad * (1, 4)  # room for a label

    def draw(figure: Figure) -> None:
        grid = figure.subplots(1, len(names), sharex=True, sharey=True, squeeze=False)[0]
        for axes, name, dots in zip(grid, names, points, strict=True):
            content = next(c.content.effect for c in result.conditions if c.name == name)
            title = f"with {_short(signal_name(result, name), 15)}\ncontent {content:+.1f}"
            axes.set_title(title, fontsize=11, fontweight="bold")
            _sentence_panel(axes, dots, low, high)
        label = "above the line: fits\nits own sentence better"
        grid[0].text(0.03, 0.98, label, va="top", fontsize=9, color=DARK, transform=grid[0].transAxes)
        grid[0].set_yticks([tick for tick in grid[0].get_yticks() if low[1] <= tick <= top])
        grid[0].set_ylabel("score against its own sentence")
        figure.supxlabel("score against other sentences", fontsize=10)

    return _svg(draw, 3.3)


def _sentence_panel(axes: Axes, dots: np.ndarray, low: np.ndarray, high: np.ndarray) -> None:
    """Draw the dots `[S, 2]` of one condition, the line of no content, and the mean of all sentences."""
    ends = np.array([low[0], high[0]])
    axes.fill_between(ends, ends, max(high), color=BLUE, alpha=0.08, lw=0)
    axes.plot(ends, ends, color="black", lw=1)
    places, counts = np.unique(np.round(dots, 3), axis=0, return_counts=True)
    size = np.clip(600 / max(len(dots), 1), 6, 14) * counts
    x, y = places.T
    axes.scatter(x, y, size, color=BLUE, alpha=0.45, lw=0, rasterized=len(places) > MOST_VECTORS)
    axes.plot(*dots.mean(0), "D", color=ORANGE, markeredgecolor="white", ms=9, mew=1.2)
    axes.set_xlim(low[0], high[0])
    axes.set_ylim(low[1], high[1])


def effect_figure(result: AuditResult) -> str:
    """Return an SVG plot of the content difference to each control, with intervals, over the band of equivalence."""
    comparisons = result.comparisons
    names = [_short(c.control or "other sentences") for c in comparisons]

    def draw(figure: Figure) -> None:
        axes = figure.subplots()
        if comparisons[0].control:
            axes.axvspan(-result.margin, result.margin, color=GREY, alpha=0.2, lw=0)
        for place, comparison in enumerate(comparisons):
            found, color = comparison.contrast, BLUE if not comparison.question else GREY
            axes.plot(found.interval(Z_95), (place, place), color=color, lw=1.5)
            axes.plot(found.interval(), (place, place), color=color, lw=4, solid_capstyle="butt")
            axes.plot(found.effect, place, "o", color="white", markeredgecolor=color, ms=8, mew=2)
        axes.axvline(0, color="black", lw=0.8)
        axes.set_yticks(range(len(names)), names)
        axes.set_ylim(len(names) - 0.4, -0.6)
        # Short lines, because long names of controls leave little width.
        band = f"grey: within ±{result.margin:g};\n" if comparisons[0].control else ""
        axes.set_xlabel(f"content difference,\npoints of {result.metric}\n({band}thick: 90 %, thin: 95 %)")

    return _svg(draw, 1.9 + 0.42 * len(names))


def _svg(draw: Callable[[Figure], None], height: float) -> str:
    """Return the SVG of a figure, `height` inches high, that the function `draw` fills."""
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(WIDTH, height), layout="constrained")
        draw(figure)
        file = io.StringIO()
        figure.savefig(file, format="svg", dpi=200, metadata={"Date": None})
    return file.getvalue()


def _short(name: str, limit: int = 22) -> str:
    return name if len(name) <= limit else f"{name[: limit - 1]}…"
