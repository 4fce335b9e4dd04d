"""Figures of reconstructions: dev losses by step, and slices of a volume beside slices of its reconstruction."""

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from etils import epath
from matplotlib.figure import Figure

from eeg2text_jax.data.batches import each_evaluation_batch
from eeg2text_jax.parallel.distributed import to_host
from eeg2text_jax.study.study import Study
from eeg2text_jax.training.grid_program import make_program
from eeg2text_jax.training.loop import TRIVIAL
from eeg2text_jax.training.metrics_log import curve, line_style, rows_of, write_figure
from eeg2text_jax.training.resume import trained_params
from eeg2text_jax.training.stages import RECONSTRUCTIONS, stages


def write_reconstructions(study: Study) -> list[epath.Path]:
    """Write figures of the trained reconstruction stages into the study's workdir; return their paths."""
    chain = [stage for stage in stages(study) if stage.workdir.root.name in RECONSTRUCTIONS]
    chain = [stage for stage in chain if stage.workdir.metrics.exists()]
    if not chain:
        return []
    curves = {stage.workdir.root.name: {"": rows_of(stage.workdir.metrics)} for stage in chain}
    figures = {study.workdir.root / "reconstruction.png": curves_figure(curves, list(map(str, study.arms)))}
    if len(study.data.feature_shape) == 3:
        figures[study.workdir.root / "volume.png"] = slices_figure(*a_reconstruction(chain[-1]))
    for path, figure in figures.items():
        write_figure(figure, path)
    return list(figures)


def curves_figure(
    curves: Mapping[str, Mapping[str, list[dict[str, Any]]]], arms: Sequence[str], unit: str = "step"
) -> Figure:
    """Plot dev losses by step, one panel per stage, and horizontal lines at the losses of predicting zero or the mean.

    `unit` is what a row's `step` counts.
    `curves` maps a stage to a dict: label of plotted curves (a split, for example) -> rows of `metrics.jsonl` as dicts.
    """
    figure = Figure(figsize=(4.2 * len(curves), 3.6), layout="constrained")
    for axes, (stage, by_label) in zip(figure.subplots(1, len(curves), squeeze=False)[0], curves.items(), strict=True):
        series = [(label, rows, arm) for label, rows in by_label.items() for arm in arms]
        for number, (label, rows, arm) in enumerate(series):
            style = line_style(number)
            points = curve(rows, f"dev_loss/{arm}")
            axes.plot(*points, lw=1.6, marker="o", ms=3, label=f"{label} {arm}".strip(), **style)
            for trivial, dash in zip(TRIVIAL, ((0, (4, 2)), (0, (1, 2))), strict=True):
                level, name = rows[0][f"{trivial}/{arm}"], f"{label} {arm}: {trivial}".strip()
                axes.axhline(level, lw=0.9, linestyle=dash, color=style["color"], label=name if not label else None)
        axes.set_title(f"{stage} reconstructed", fontsize=10)
        axes.set_xlabel(unit)
        axes.set_ylabel("loss on dev")
        axes.set_ylim(bottom=0)
        axes.legend(frameon=False, fontsize=7)
        axes.spines[["top", "right"]].set_visible(False)
    return figure


def slices_figure(given: np.ndarray, made: np.ndarray) -> Figure:
    """Plot the middle slice along each axis of a volume `[X, Y, Z]`, above the same slices of its reconstruction.

    All slices have one colour scale.
    """
    figure = Figure(figsize=(6.4, 4.4), layout="constrained")
    most = float(np.abs(given).max()) or 1.0
    for row, (name, volume) in zip(figure.subplots(2, 3), (("fed", given), ("reconstructed", made)), strict=True):
        for axes, axis in zip(row, range(3), strict=True):
            middle = volume.shape[axis] // 2
            image = axes.imshow(np.take(volume, middle, axis).T, origin="lower", cmap="RdBu_r", vmin=-most, vmax=most)
            axes.set_title(f"{name}, {'xyz'[axis]} = {middle}", fontsize=9)
            axes.set_xticks([])
            axes.set_yticks([])
    figure.colorbar(image, ax=figure.axes, shrink=0.6, label="standard deviations")
    return figure


def a_reconstruction(stage: Study) -> tuple[np.ndarray, np.ndarray]:
    """Return the middle volume `[X, Y, Z]` of the first dev sample, and the first arm's reconstruction of it."""
    rows = stage.split.parts["dev"][:1]
    batch = next(each_evaluation_batch(stage.samples, rows, stage.config.batch.buckets, 1))
    program = make_program(stage.config, stage.model, stage.arms)
    params = jax.tree.map(lambda leaf: jnp.asarray(to_host(leaf)[0]), trained_params(stage))

    def both(params: Any) -> tuple[jax.Array, jax.Array]:
        fed = program.fed(batch, stage.arrays)
        return fed["features"][0], stage.model.reconstruct(params, fed["features"][0], fed["mask"][0])[0]

    place = int(stage.samples.n_words()[rows[0]]) // 2
    given, made = jax.jit(both)(params)
    return np.asarray(given[0, place]), np.asarray(made[0, place])
