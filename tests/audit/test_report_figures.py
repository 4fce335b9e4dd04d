"""Figures of the report: what is drawn, and text that stays inside of the picture."""

import dataclasses
import itertools

import numpy as np
import pytest
from matplotlib.figure import Figure
from rows import simulated_rows

from eeg2text_jax.instrument.auditing.audit import audit
from eeg2text_jax.instrument.auditing.report import BLUE, GREY, effect_figure, sentence_figure
from eeg2text_jax.instrument.auditing.verdict import Z_95


@pytest.fixture(scope="module")
def result():
    eeg, noise = simulated_rows(information=0.5, sentences=60)
    turned = [dataclasses.replace(row, eval_condition="time_reversed") for row in noise]
    return audit(eeg, {"the arm trained on label_shuffle, seed 1": noise, "noise": noise, "turned": turned})


@pytest.fixture
def drawn(monkeypatch):
    found, save = [], Figure.savefig

    def keep(figure, *arguments, **options):
        save(figure, *arguments, **options)
        found.append(figure)

    monkeypatch.setattr(Figure, "savefig", keep)
    return found


@pytest.mark.parametrize("draw", [effect_figure, sentence_figure])
def test_text_of_a_figure_stays_inside(result, draw, drawn):
    draw(dataclasses.replace(result, metric="mean rank (percentile)"))
    (figure,) = drawn
    figure.draw_without_rendering()
    texts = [figure._supxlabel] if figure._supxlabel else []
    for axes in figure.axes:
        low, high = sorted(axes.get_ylim())
        ticks = zip(axes.get_yticks(), axes.get_yticklabels(), strict=False)  # the second panel has no labels
        texts += [axes.title, *axes.texts, axes.xaxis.label, axes.yaxis.label]
        texts += [label for place, label in ticks if low < place < high]
    assert len([text for text in texts if text.get_text().strip()]) > 2
    for text in texts:
        if text.get_text().strip() and text.get_visible():
            extent = text.get_window_extent()
            assert figure.bbox.x0 - 1 <= extent.x0, text.get_text()
            assert extent.x1 <= figure.bbox.x1 + 1, text.get_text()
            assert figure.bbox.y0 - 1 <= extent.y0, text.get_text()
            assert extent.y1 <= figure.bbox.y1 + 1, text.get_text()
    titles = [axes.title.get_window_extent() for axes in figure.axes if axes.get_title()]
    assert all(left.x1 <= right.x0 for left, right in itertools.pairwise(titles))


def test_each_control_has_a_thick_bar_of_90_percent_and_a_thin_one_of_95(result, drawn):
    effect_figure(result)
    (axes,) = drawn[0].axes
    lines = {(*line.get_ydata(), line.get_linewidth()): tuple(line.get_xdata()) for line in axes.lines}
    for place, comparison in enumerate(result.comparisons):
        assert lines[place, place, 4] == comparison.contrast.interval()
        assert lines[place, place, 1.5] == comparison.contrast.interval(Z_95)
        assert (comparison.contrast.effect,) in [x for (y, *_), x in lines.items() if y == place]
    colors = [next(line.get_color() for line in axes.lines if set(line.get_ydata()) == {place}) for place in range(3)]
    assert colors == [BLUE, BLUE, GREY], "what does not decide is grey"
    assert axes.get_yticklabels()[1].get_text() == "noise"
    assert (axes.patches[0].get_x(), axes.patches[0].get_width()) == (-result.margin, 2 * result.margin)


def test_each_sentence_is_a_dot_and_the_diamond_is_as_high_above_the_line_as_the_content(result, drawn):
    """With EEG and with the deciding control, on the same axes, on which the line has equal scores."""
    sentence_figure(result)
    panels = drawn[0].axes
    names = ["eeg", result.deciding.control]
    assert panels[0].get_xlim() == panels[1].get_xlim()
    assert panels[0].get_ylim() == panels[1].get_ylim()
    for axes, name in zip(panels, names, strict=True):
        dots = axes.collections[-1].get_offsets()
        rows = [row for row in result.rows if row.condition == name]
        assert len(dots) == len({row.reference for row in rows}) == 60
        line, mean = axes.lines
        np.testing.assert_array_equal(line.get_xdata(), line.get_ydata())
        (x,), (y,) = mean.get_data()
        (content,) = [c.content.effect for c in result.conditions if c.name == name]
        assert y - x == pytest.approx(content)
        np.testing.assert_allclose([x, y], dots.mean(0), atol=0.01)


def test_sentences_in_one_place_are_one_larger_dot(drawn):
    eeg, noise = simulated_rows(sentences=60)
    same = [dataclasses.replace(row, prediction="nothing of it") for row in eeg]
    sentence_figure(audit(same, {"noise": noise}))
    same, apart = (axes.collections[-1] for axes in drawn[0].axes)
    assert len(same.get_offsets()) < 10
    assert len(apart.get_offsets()) == 60
    assert sum(same.get_sizes()) == pytest.approx(sum(apart.get_sizes()))
