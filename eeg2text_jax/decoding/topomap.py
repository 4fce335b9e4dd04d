"""Plot scalp maps: the head seen from above, with one value per electrode, interpolated between electrodes."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from etils import epath
from matplotlib.axes import Axes
from matplotlib.patches import Circle
from scipy.interpolate import RBFInterpolator

from eeg2text_jax.data.raw.electrodes import Place
from eeg2text_jax.training.metrics_log import Picture

POINTS = 120  # interpolated points along each side of the picture
NAMED = 20  # largest number of channels whose names are drawn; more names would overlap
EDGE = 1.15  # radius to which values are drawn; 1 is the plane through the ears and the bridge of the nose


def map_figure(places: Sequence[Place], shares: Mapping[str, Sequence[float]]) -> Picture:
    """Plot a head for each training condition in `shares`: each channel's share in percent, on one colour scale."""
    figure = Picture(figsize=(2.1 * len(shares) + 0.6, 2.6), layout="constrained")
    most = 100 * max(max(own) for own in shares.values())
    flat = flattened(np.array([place[1:] for place in places]))
    for axes, (name, own) in zip(figure.subplots(1, len(shares), squeeze=False)[0], shares.items(), strict=True):
        image = _head(axes, flat, 100 * np.asarray(own), most)
        if len(places) <= NAMED:
            for (label, *_), (x, y) in zip(places, flat, strict=True):
                axes.annotate(label, (x, y), (0, 4), textcoords="offset points", ha="center", fontsize=8)
        axes.set_title(f"arm trained on {name}", fontsize=9)
    figure.colorbar(image, ax=figure.axes, shrink=0.7, label="% of the sum over channels")
    return figure


def flattened(places: np.ndarray) -> np.ndarray:
    """Return the azimuthal equidistant projection `[channels, 2]` of positions `[channels, 3]`; the top is (0, 0)."""
    right, front, up = places.T
    out = np.arctan2(np.hypot(right, front), up) / (np.pi / 2)
    return np.stack([out * np.sin(np.arctan2(right, front)), out * np.cos(np.arctan2(right, front))], axis=1)


def _head(axes: Axes, flat: np.ndarray, values: np.ndarray, most: float):
    line = np.linspace(-EDGE, EDGE, POINTS)
    grid = np.stack(np.meshgrid(line, line), axis=-1).reshape(-1, 2)
    drawn = RBFInterpolator(flat, values, kernel="linear", degree=0, smoothing=1e-9)(grid).reshape(POINTS, POINTS)
    style: dict[str, Any] = {"vmin": 0.0, "vmax": most, "cmap": "viridis"}
    image = axes.imshow(drawn, origin="lower", extent=(-EDGE, EDGE, -EDGE, EDGE), interpolation="bilinear", **style)
    image.set_clip_path(Circle((0, 0), EDGE, transform=axes.transData))
    turn = np.linspace(0, 2 * np.pi, 200)
    axes.plot(EDGE * np.sin(turn), EDGE * np.cos(turn), color="black", lw=1)
    axes.plot((-0.12, 0, 0.12), (EDGE, EDGE + 0.14, EDGE), color="black", lw=1)  # the nose
    axes.plot(*flat.T, "o", ms=3, color="black", markerfacecolor="white")
    axes.set_aspect("equal")
    axes.axis("off")
    return image


def read_map(path: epath.Path) -> tuple[list[Place], dict[str, list[float]]]:
    """Return electrode positions, and channel shares by training condition, that `attributions.ChannelShares` wrote."""
    found = json.loads(path.read_text())
    return [tuple(place) for place in found["electrodes"]], found["shares"]
