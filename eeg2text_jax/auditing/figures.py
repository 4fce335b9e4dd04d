"""Figures of the report as SVG, in the palette of Okabe and Ito; shapes and labels distinguish the series, too."""

import io
from collections.abc import Callable, Sequence

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from eeg2text_jax.auditing.contrast import Contrast, Evidence
from eeg2text_jax.auditing.result import AuditResult
from eeg2text_jax.auditing.verdict import p_text

BLUE, ORANGE, GREEN, GREY = "#0072B2", "#D55E00", "#009E73", "#8A8A8A"
WIDTH = 4.6  # inches; text stays at 9 px or more when the figure fills a phone's width
STYLE = {"font.size": 10, "axes.spines.top": False, "axes.spines.right": False, "svg.hashsalt": "eeg2text"}


def effect_figure(result: AuditResult) -> str:
    """Return an SVG plot of the content difference to each control, with intervals, over the band of equivalence."""
    comparisons = result.comparisons
    names = [_short(c.control or "its null") for c in comparisons]

    def draw(axes: Axes) -> None:
        if comparisons[0].control:
            axes.axvspan(-result.margin, result.margin, color=GREEN, alpha=0.15, lw=0)
            label = f" green: within ±{result.margin:g}, equivalent"
            axes.text(-result.margin, len(names) - 0.45, label, va="bottom", fontsize=9, color="#00614A")
        for place, comparison in enumerate(comparisons):
            found = comparison.primary
            axes.plot(found.interval, (place, place), color=BLUE, lw=1.5)
            axes.plot(found.interval_90, (place, place), color=BLUE, lw=4, solid_capstyle="butt")
            axes.plot(found.effect, place, "o", color="white", markeredgecolor=BLUE, ms=8, mew=2)
        axes.axvline(0, color="black", lw=0.8)
        axes.set_yticks(range(len(names)), names)
        axes.set_ylim(len(names) - 0.4, -0.6)
        # Four short lines, because long names of controls leave little width.
        axes.set_xlabel(
            f"content difference,\npoints of {result.metric}\n(thick: 90 %, decides equivalence;\nthin: 95 %)"
        )

    return _svg(draw, 1.9 + 0.42 * len(names))


def curve_figure(found: Sequence[tuple[int, Contrast]], metric: str) -> str:
    """Return an SVG plot of the content within ever finer clusters of the references, with 95 % intervals."""

    def draw(axes: Axes) -> None:
        counts = [count for count, _ in found]
        low, high = np.array([c.interval for _, c in found]).T
        axes.fill_between(counts, low, high, color=BLUE, alpha=0.2, lw=0)
        axes.plot(counts, [c.effect for _, c in found], "o-", color=BLUE, ms=5)
        axes.axhline(0, color="black", lw=0.8)
        axes.set_xscale("log")
        axes.set_xticks(counts, [str(count) for count in counts])
        axes.minorticks_off()
        axes.set_xlabel("clusters of the references")
        axes.set_ylabel(f"content left, points of {metric}")

    return _svg(draw, 2.6)


def null_figure(comparison: Evidence, eeg: str) -> str:
    """Return an SVG plot of the score difference over its permutation distribution; a style difference shifts both."""
    found = comparison.primary
    what = f"score of {_short(eeg)}" + (f" minus {_short(comparison.control)}" if comparison.control else "")

    def draw(axes: Axes) -> None:
        low, high = min(found.null_draws.min(), found.observed), max(found.null_draws.max(), found.observed)
        spread = max(high - low, 1e-3)
        axes.hist(found.null_draws, bins=bin_edges(found.null_draws).tolist(), color=GREY, alpha=0.75)
        axes.axvline(found.observed, color=ORANGE, lw=2.2)
        if low - spread < 0 < high + spread and comparison.control:
            axes.axvline(0, color="black", lw=0.8, ls=":")
        _hide_y_axis(axes)
        axes.set_ylim(0, axes.get_ylim()[1] * 1.5)  # room above the bars for the label
        place, side = (found.observed, axes.get_ylim()[1]), "right" if found.observed > (low + high) / 2 else "left"
        label = f"true references {found.observed:+.2f} \n{p_text(found.p)} "
        axes.annotate(label, place, ha=side, va="top", color="#A84300")
        axes.set_xlabel(f"{what}\n(grey: references permuted within strata)")

    return _svg(draw, 2.4)


def bin_edges(draws: np.ndarray, most: int = 45) -> np.ndarray:
    """Return the edges of at most about `most` histogram bins; if values are multiples of a step, the width is, too.

    Ranks and shares of few sentences are such multiples; other bins would alternate between one and two values.
    """
    values = np.unique(np.round(draws, 9))
    spread = max(values[-1] - values[0], 1e-3)
    step = np.diff(values).min() if len(values) > 1 else spread
    steps = np.diff(values) / step
    if spread / step > 20 * most or np.abs(steps - np.round(steps)).max(initial=0) > 0.01:  # no multiples of a step
        return np.linspace(values[0] - 0.02 * spread, values[-1] + 0.02 * spread, most)
    width = step * np.ceil((spread / step + 1) / most)
    return np.arange(values[0] - step / 2, values[-1] + step / 2 + width, width)


def subject_figure(comparison: Evidence, metric: str) -> str:
    """Return an SVG plot of the content difference in each subject."""
    subjects = sorted(comparison.subjects, key=lambda s: s.effect)

    def draw(axes: Axes) -> None:
        for place, subject in enumerate(subjects):
            axes.plot(subject.interval, (place, place), color=BLUE, lw=1.5)
            axes.plot(subject.effect, place, "o", color=BLUE, ms=5)
        axes.axvline(0, color="black", lw=0.8)
        axes.axvline(comparison.primary.effect, color=ORANGE, lw=1.5, ls="--")
        axes.set_yticks(range(len(subjects)), [_short(s.subject) for s in subjects])
        axes.set_ylim(-0.7, len(subjects) - 0.3)
        axes.set_xlabel(f"content difference, points of {metric}\n(95 % intervals; dashed: all subjects)")

    return _svg(draw, 1.3 + 0.24 * len(subjects))


def bootstrap_figure(found: Contrast, metric: str) -> str:
    """Return an SVG plot of each training seed's content difference, below the bootstrap distribution."""

    def draw(axes: Axes) -> None:
        axes.hist(found.boot_draws, bins=45, color=BLUE, alpha=0.35)
        axes.set_ylim(-0.12 * axes.get_ylim()[1], None)
        axes.plot(found.seed_effects, np.full(len(found.seed_effects), axes.get_ylim()[0] / 2), "D", color=ORANGE, ms=6)
        axes.axvline(0, color="black", lw=0.8)
        _hide_y_axis(axes)
        axes.set_xlabel(f"content difference, points of {metric}\n(bootstrap; diamonds: single seeds)")

    return _svg(draw, 2.2)


def _hide_y_axis(axes: Axes) -> None:
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)


def _svg(draw: Callable[[Axes], None], height: float) -> str:
    """Return the SVG of a figure, `height` inches high, whose axes the function `draw` fills."""
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(WIDTH, height), layout="constrained")
        draw(figure.subplots())
        file = io.StringIO()
        figure.savefig(file, format="svg", metadata={"Date": None})
    return file.getvalue()


def _short(name: str, limit: int = 22) -> str:
    return name if len(name) <= limit else f"…{name[-limit + 1 :]}"
