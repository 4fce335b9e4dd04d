"""Figures of classifiers: precision-recall and ROC curves."""

import os
from collections.abc import Mapping

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from eeg2text_jax.files import replacing
from eeg2text_jax.judge.thresholds import auc, curve


def write_curves(path: str | os.PathLike[str], classifiers: Mapping[str, np.ndarray], labels: np.ndarray) -> None:
    """Write a PNG with both curves of every classifier's scores `[N]`."""
    figure = Figure(figsize=(9, 4.2), layout="constrained")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2)
    for name, scores in classifiers.items():
        found = curve(scores, labels)
        left.step([0.0, *found.recall], [1.0, *found.precision], where="post", label=name)
        right.plot(
            [0.0, *found.false_positive_rate], [0.0, *found.recall], label=f"{name}, AUC {auc(scores, labels) or 0:.3f}"
        )
    right.plot([0, 1], [0, 1], color="0.7", linewidth=0.8, linestyle=":")
    left.set(xlabel="recall", ylabel="precision", xlim=(0, 1), ylim=(0, 1.02), title="Precision and recall")
    right.set(xlabel="false-positive rate", ylabel="true-positive rate", xlim=(0, 1), ylim=(0, 1.02), title="ROC")
    left.legend(fontsize="small")
    right.legend(fontsize="small")
    with replacing(path) as partial:
        figure.savefig(partial, format="png", dpi=120, metadata={"Software": None})
