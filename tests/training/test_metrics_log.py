"""Curves as lines and as TensorBoard events."""

import errno
import json
import math
import struct
from types import SimpleNamespace

import numpy as np
import pytest
from etils import epath
from tensorboardX.event_file_writer import EventsWriter
from tensorboardX.proto.event_pb2 import Event

from eeg2text_jax.base.errors import UserError
from eeg2text_jax.training.metrics_log import MetricsLog, curves_figure, loss_figure, slices_figure


def read_events(folder) -> list[Event]:
    """Records of a TensorBoard file: length, its checksum, the event, its checksum."""
    events = []
    for path in sorted(folder.iterdir()):
        rest = path.read_bytes()
        while rest:
            (length,) = struct.unpack("<Q", rest[:8])
            events.append(Event.FromString(rest[12 : 12 + length]))
            rest = rest[16 + length :]
    return events


def test_lines_and_events_say_the_same(tmp_path):
    with MetricsLog(epath.Path(tmp_path), 0) as log:
        log.add(1, {"loss/eeg/0": 2.5, "grad_norm/eeg/0": math.inf})
        log.add(2, {"loss/eeg/0": 1.5})
    rows = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert rows == [{"step": 1, "loss/eeg/0": 2.5, "grad_norm/eeg/0": None}, {"step": 2, "loss/eeg/0": 1.5}]
    values = [(e.step, v.tag, v.simple_value) for e in read_events(tmp_path / "tensorboard") for v in e.summary.value]
    assert values == [(1, "loss/eeg/0", 2.5), (1, "grad_norm/eeg/0", math.inf), (2, "loss/eeg/0", 1.5)]


def test_a_tracker_gets_what_is_logged(tmp_path):
    sent = []
    with MetricsLog(epath.Path(tmp_path), 0, tracker=SimpleNamespace(add=lambda *row: sent.append(row))) as log:
        log.add(1, {"loss/eeg/0": 2.5})
    assert sent == [(1, {"loss/eeg/0": 2.5})]


def test_going_on_drops_what_will_be_done_again(tmp_path):
    with MetricsLog(epath.Path(tmp_path), 0) as log:
        for step in (1, 2, 3):
            log.add(step, {"loss/eeg/0": float(step)})
    kept = log.lines[:2]  # as the checkpoint of step 2 says
    (tmp_path / "metrics.jsonl").write_text("lost")
    with MetricsLog(epath.Path(tmp_path), 2, kept):
        pass
    steps = [json.loads(line)["step"] for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert steps == [1, 2]
    starts = [event.step for event in read_events(tmp_path / "tensorboard") if event.HasField("session_log")]
    assert starts[-1] == 2


@pytest.mark.parametrize("before", [None, UserError("a checkpoint cannot be written")])
def test_a_disk_full_at_the_end_is_an_error_unless_one_is_on_its_way(tmp_path, monkeypatch, before):
    really_close = EventsWriter.close

    def close(self: EventsWriter) -> None:
        really_close(self)
        raise OSError(errno.ENOSPC, "No space left on device")

    def train() -> None:
        with MetricsLog(epath.Path(tmp_path), 0) as log:
            log.add(1, {"loss/eeg/0": 2.5})
            if before:
                raise before

    monkeypatch.setattr(EventsWriter, "close", close)
    with pytest.raises(type(before) if before else OSError, match=str(before) if before else "No space left"):
        train()


def test_figures_draw_each_loss_of_each_arm_and_the_two_trivial_ones(tmp_path):
    """Of two arms and two splits: training losses, those on dev, and the levels in the colour of their arm."""
    rows = [{"step": 0, "zero/eeg/0": 0.8, "mean/eeg/0": 0.7, "zero/noise/1": 0.6, "mean/noise/1": 0.5}]
    rows += [
        {"step": step, "loss/eeg/0": 3.0 / step, "loss/noise/1": 4.0 / step, "dev_loss/eeg/0": 5.0 / step,
         "dev_loss/noise/1": 6.0 / step} for step in (1, 2, 4)
    ]  # fmt: skip
    others = [{name: value if name == "step" else 10 * value for name, value in row.items()} for row in rows]

    def drawn(axes):
        return {line.get_label(): (list(line.get_xdata()), list(line.get_ydata())) for line in axes.lines}

    path = epath.Path(tmp_path) / "metrics.jsonl"
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    (axes,) = loss_figure(path).axes
    expected = {"eeg/0, train": 3.0, "eeg/0, dev": 5.0, "noise/1, train": 4.0, "noise/1, dev": 6.0}
    assert drawn(axes) == {name: ([1, 2, 4], [loss, loss / 2, loss / 4]) for name, loss in expected.items()}
    curves = {"snapshot": {"": rows}, "series": {"(a)": rows, "(b)": others}}
    alone, both = curves_figure(curves, ["eeg/0", "noise/1"]).axes
    found = drawn(alone)
    assert [found[name][1] for name in ("eeg/0", "noise/1")] == [[5.0, 2.5, 1.25], [6.0, 3.0, 1.5]]
    levels = {"eeg/0: zero": 0.8, "eeg/0: mean": 0.7, "noise/1: zero": 0.6, "noise/1: mean": 0.5}
    assert {name: found[name][1] for name in levels} == {name: [level] * 2 for name, level in levels.items()}
    colours = [{line.get_color() for line in alone.lines if arm in line.get_label()} for arm in ("eeg/0", "noise/1")]
    assert len(colours[0]) == len(colours[1]) == len(colours[0] | colours[1]) - 1 == 1
    assert [drawn(both)[f"({name}) noise/1"][1][0] for name in "ab"] == [6.0, 60.0]
    assert sorted(line.get_ydata()[0] for line in both.lines if len(line.get_ydata()) == 2) == [
        0.5, 0.6, 0.7, 0.8, 5.0, 6.0, 7.0, 8.0
    ]  # fmt: skip
    assert [axes.get_title() for axes in (alone, both)] == ["snapshot reconstructed", "series reconstructed"]


def test_slices_of_a_volume_are_its_middles_along_each_axis_above_those_of_the_reconstruction():
    fed, made = np.random.default_rng(0).normal(size=(2, 4, 5, 7))
    shown = [np.asarray(axes.images[0].get_array()) for axes in slices_figure(fed, made).axes if axes.images]
    expected = [part for x in (fed, made) for part in (x[2].T, x[:, 2].T, x[:, :, 3].T)]
    for picture, middle in zip(shown, expected, strict=True):
        np.testing.assert_array_equal(picture, middle)


def test_records_are_appended_and_a_line_cut_short_is_not_drawn(tmp_path):
    path = tmp_path / "metrics.jsonl"
    with MetricsLog(epath.Path(tmp_path), 0, ['{"step": 1, "dev_loss/eeg/0": 3.0}']) as log:
        file = path.stat().st_ino
        log.add(2, {"dev_loss/eeg/0": 2.0})
        assert path.read_text().splitlines() == log.lines
        assert path.stat().st_ino == file, "was written anew"
    with path.open("a") as cut:
        cut.write('{"step": 3, "dev_lo')
    (curve,) = (line for line in loss_figure(epath.Path(path)).axes[0].lines if line.get_marker() == "o")
    assert list(curve.get_xdata()) == [1, 2]
    named = {text.get_text() for text in loss_figure(epath.Path(path)).axes[0].get_legend().get_texts()}
    assert named == {"eeg/0, train", "eeg/0, dev"}
    with MetricsLog(epath.Path(tmp_path), 2, log.lines):
        assert path.read_text().splitlines() == log.lines
