"""Training curves: one JSON object a line in `metrics.jsonl`, and TensorBoard events beside it."""

import io
import json
import math
import time
from collections.abc import Mapping, Sequence
from typing import Any

from etils import epath
from matplotlib.figure import Figure
from tensorboardX.event_file_writer import EventsWriter
from tensorboardX.proto.event_pb2 import Event, SessionLog
from tensorboardX.record_writer import directory_check
from tensorboardX.summary import scalar

from eeg2text_jax.files import naming, notify, replacing, write_text
from eeg2text_jax.parallel.distributed import is_main
from eeg2text_jax.training.tracker import Tracker


class MetricsLog:
    """Append scalars by step to `metrics.jsonl`, TensorBoard and a tracker. Use as a context manager.

    Only the first of several hosts writes.

    Args:
      workdir: the folder of `metrics.jsonl` and `tensorboard/`.
      step: the step that training resumes from.
      lines: the lines until then, from the checkpoint. The file is written anew: it may have lines of steps that will
        be repeated, and may have been changed or deleted.
    """

    def __init__(self, workdir: epath.Path, step: int, lines: Sequence[str] = (), tracker: Tracker | None = None):
        self._workdir, self.lines, self._tracker = workdir, list(lines), tracker
        write_lines(workdir, self.lines)
        self._events = _Events(str(workdir / "tensorboard"), step) if is_main() else None

    def add(self, step: int, scalars: Mapping[str, float]) -> None:
        """Record the scalars of one step; a value that is not finite becomes null."""
        row = {name: float(value) if math.isfinite(value) else None for name, value in scalars.items()}
        self.lines.append(json.dumps({"step": step, **row}))
        if is_main():
            with naming(self._workdir / "metrics.jsonl"), (self._workdir / "metrics.jsonl").open("a") as file:
                file.write(f"{self.lines[-1]}\n")
            notify()
        if self._events:
            self._events.add(step, scalars)
        if self._tracker:
            self._tracker.add(step, scalars)

    def __enter__(self) -> "MetricsLog":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if self._events:
                self._events.close()
        except OSError:  # a full disk; where another error is on its way, that one says more
            if kind is None:
                raise


def write_lines(workdir: epath.Path, lines: Sequence[str]) -> None:
    """Write `metrics.jsonl`; only the first of several hosts writes."""
    if is_main():
        write_text(workdir / "metrics.jsonl", "".join(f"{line}\n" for line in lines))


def stale(lines: Sequence[str]) -> int:
    """Return the number of consecutive dev evaluations without improvement in any arm."""
    best: dict[str, float] = {}
    since = 0
    for row in map(json.loads, lines):
        losses = {name: value for name, value in row.items() if name.startswith("dev_loss/")}
        if losses:
            better = {name: value for name, value in losses.items() if value < best.get(name, math.inf)}
            since, best = (0 if better else since + 1), best | better
    return since


class _Events:
    """A TensorBoard event file, written by the calling thread.

    tensorboardX's `SummaryWriter` writes in its own thread, where an error (a full disk) prints a long traceback and
    does not stop training.
    """

    PAUSE = 30.0  # seconds between two flushes; to gs:// each one sends the whole file

    def __init__(self, folder: str, step: int):
        directory_check(folder)
        self._file, self._flushed = EventsWriter(f"{folder}/events"), time.monotonic()
        # TensorBoard then forgets what an earlier start logged beyond this step.
        start = SessionLog(status=SessionLog.START)
        self._file.write_event(Event(wall_time=time.time(), step=step, session_log=start))

    def add(self, step: int, scalars: Mapping[str, float]) -> None:
        for name, value in scalars.items():
            self._file.write_event(Event(wall_time=time.time(), step=step, summary=scalar(name, value)))
        if time.monotonic() - self._flushed > self.PAUSE:
            self._file.flush()
            self._flushed = time.monotonic()

    def close(self) -> None:
        self._file.close()


COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")  # Okabe and Ito
DASHES = ("-", "--", "-.", ":")


class Picture(Figure):
    """A figure that Jupyter draws, whether or not pyplot was imported."""

    def _repr_png_(self) -> bytes:
        out = io.BytesIO()
        self.savefig(out, format="png", dpi=100)
        return out.getvalue()


def line_style(number: int) -> dict[str, Any]:
    """Return colour and dashes of line `number` of a figure."""
    return {"color": COLOURS[number % len(COLOURS)], "linestyle": DASHES[number // len(COLOURS) % len(DASHES)]}


def write_figure(figure: Figure, out: epath.Path) -> None:
    """Write a PNG atomically."""
    with replacing(out) as partial, partial.open("wb") as file:
        figure.savefig(file, format="png", dpi=150)


def loss_figure(metrics: epath.Path) -> Figure:
    """Plot training loss (thin) and dev loss (thick, dots) of every arm by step."""
    text = metrics.read_text()
    rows = [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]  # a kill may cut the last line
    figure = Picture(figsize=(6.0, 3.6), layout="constrained")
    axes = figure.subplots()
    names = list(dict.fromkeys(key.partition("/")[2] for row in rows for key in row if key.startswith("dev_loss/")))
    for i, name in enumerate(names):
        style = line_style(i)
        axes.plot(*_series(rows, f"loss/{name}"), lw=0.7, alpha=0.6, label=f"{name}, train", **style)
        axes.plot(*_series(rows, f"dev_loss/{name}"), lw=1.8, marker="o", ms=3, label=f"{name}, dev", **style)
    axes.set_xlabel("step")
    axes.set_ylabel("loss, nats per token")
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False, fontsize=8)
    axes.spines[["top", "right"]].set_visible(False)
    return figure


def _series(rows: list[dict], key: str) -> tuple[list[int], list[float | None]]:
    points = [(row["step"], row[key]) for row in rows if key in row]
    return [step for step, _ in points], [value for _, value in points]
