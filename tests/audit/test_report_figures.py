"""Figures of the report: bins that fit the values, and text that stays inside of the picture."""

import base64
import dataclasses
import re
import types

import numpy as np
import pytest
from matplotlib.figure import Figure
from rows import simulated_rows

from eeg2text_jax.auditing import figures
from eeg2text_jax.auditing.audit import audit
from eeg2text_jax.auditing.figures import bin_edges, bootstrap_figure, effect_figure, null_figure, subject_figure
from eeg2text_jax.auditing.report import effect_figures


@pytest.mark.parametrize(("step", "values"), [(100 / 36, 30), (100 / 112, 100), (0.5, 40), (1.0, 1)])
def test_every_bin_of_a_histogram_holds_as_many_of_the_possible_values(step, values):
    draws = step * np.arange(values) - 3.0
    counts, _ = np.histogram(draws, bin_edges(draws))
    assert counts.sum() == values
    assert len(counts) <= 46
    assert len(set(counts[:-1])) <= 1
    assert counts[-1] <= counts[0]


def test_draws_that_are_not_multiples_of_a_step_fill_equal_bins():
    draws = np.random.default_rng(0).normal(size=2000)
    edges = bin_edges(draws)
    assert len(edges) == 45
    np.testing.assert_allclose(np.diff(edges), edges[1] - edges[0])
    assert np.histogram(draws, edges)[0].sum() == len(draws)


@pytest.fixture(scope="module")
def result():
    eeg, noise = simulated_rows(information=0.5, seeds=3, sentences=24)
    return audit(eeg, {"the arm trained on label_shuffle, seed 1": noise, "noise": noise}, resamples=100)


@pytest.mark.parametrize("name", ["effect", "long", "null", "subjects", "seeds"])
def test_text_of_a_figure_stays_inside(result, name, monkeypatch):
    """Also where the effect is far from the equivalence band, whose label is long."""
    drawn, save = [], Figure.savefig

    def keep(figure, *arguments, **options):
        save(figure, *arguments, **options)
        drawn.append(figure)

    monkeypatch.setattr(Figure, "savefig", keep)
    main = result.deciding
    {
        "effect": lambda: effect_figure(result),
        "long": lambda: effect_figure(dataclasses.replace(result, metric="mean rank (percentile)")),
        "null": lambda: null_figure(main, "eeg"),
        "subjects": lambda: subject_figure(main, result.metric),
        "seeds": lambda: bootstrap_figure(main.primary, result.metric),
    }[name]()
    (figure,) = drawn
    figure.draw_without_rendering()
    box = figure.bbox
    (axes,) = figure.axes
    low, high = sorted(axes.get_ylim())
    rows = [label for place, label in zip(axes.get_yticks(), axes.get_yticklabels(), strict=True) if low < place < high]
    texts = [*axes.texts, axes.xaxis.label, *rows]
    assert len(texts) > 1 or name == "seeds"
    for text in texts:
        if text.get_text().strip() and text.get_visible():
            extent = text.get_window_extent()
            assert box.x0 - 1 <= extent.x0, text.get_text()
            assert extent.x1 <= box.x1 + 1, text.get_text()
            assert box.y0 - 1 <= extent.y0, text.get_text()
            assert extent.y1 <= box.y1 + 1, text.get_text()


def test_each_control_has_a_thick_bar_of_90_percent_and_a_thin_one_of_95(monkeypatch):
    values = {"noise": ((-1.0, 2.0), (-2.0, 3.0), 0.5), "zero": ((2.0, 4.0), (1.5, 5.0), 3.0)}
    primary = [types.SimpleNamespace(interval_90=i, interval=j, effect=effect) for i, j, effect in values.values()]
    controls = [types.SimpleNamespace(control=name, primary=p) for name, p in zip(values, primary, strict=True)]
    axes = Figure().subplots()
    monkeypatch.setattr(figures, "_svg", lambda draw, height: draw(axes))
    effect_figure(types.SimpleNamespace(comparisons=controls, margin=1.5, metric="BLEU-1"))
    drawn = {(*line.get_ydata(), line.get_linewidth()): tuple(line.get_xdata()) for line in axes.lines}
    for place, (thick, thin, effect) in enumerate(values.values()):
        assert drawn[place, place, 4] == thick
        assert drawn[place, place, 1.5] == thin
        assert (effect,) in [x for (y, *_), x in drawn.items() if y == place]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["noise", "zero"]
    assert (axes.patches[0].get_x(), axes.patches[0].get_width()) == (-1.5, 3.0)


def test_figures_of_another_recording_do_not_say_eeg(result):
    page = effect_figures(dataclasses.replace(result, recording="fmri"))
    drawn = "".join(base64.b64decode(svg).decode() for svg in re.findall(r"base64,([^\"]+)", page))
    assert "score of fMRI minus noise" in drawn
    assert "score of eeg" not in drawn
