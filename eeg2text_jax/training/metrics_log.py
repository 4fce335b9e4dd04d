"""Training curves: a JSON object per line of `metrics.jsonl`, TensorBoard event files, and figures of the losses."""

import contextlib
import io
import json
import math
import time
from collections.abc import Mapping, Sequence
from typing import Any

from etils import epath
from matplotlib.figure import Figure

from eeg2text_jax.files import naming, notify, replacing, write_text
from eeg2text_jax.imports import hidden
from eeg2text_jax.parallel.distributed import is_main
from eeg2text_jax.training.tracker import Tracker

# tensorboardX would import both in 4 s of CPU time; boto3 is not needed, as runs write s3:// workdirs to a local copy.
with hidden("torch", "boto3"):
    from tensorboardX.event_file_writer import EventsWriter
    from tensorboardX.proto.event_pb2 import Event, SessionLog
    from tensorboardX.record_writer import directory_check
    from tensorboardX.summary import scalar

PAUSE = 30.0  # seconds between two flushes of TensorBoard events; a flush to gs:// sends the whole file


class MetricsLog(contextlib.AbstractContextManager["MetricsLog"]):
    """Append the scalars of each step to `metrics.jsonl`, TensorBoard and a tracker. Use as a context manager.

    Only the first of several hosts writes files. tensorboardX's `SummaryWriter` is not used: it writes events in a
    thread of its own, so a full disk would not stop training.

    Args:
      workdir: the folder of `metrics.jsonl` and `tensorboard/`.
      step: the step from which training resumes; 0 at the start.
      lines: the lines of all earlier steps, from the checkpoint. They replace the content of `metrics.jsonl`, which may
        have lines of steps that will be repeated.
    """

    def __init__(self, workdir: epath.Path, step: int, lines: Sequence[str] = (), tracker: Tracker | None = None):
        self._workdir, self.lines, self._tracker = workdir, list(lines), tracker
        write_lines(workdir, self.lines)
        if is_main():
            folder = str(workdir / "tensorboard")
            directory_check(folder)
            self._events, self._flushed = EventsWriter(f"{folder}/events"), time.monotonic()
            # TensorBoard drops all events of an earlier process that are beyond this step.
            self._write_event(step, session_log=SessionLog(status=SessionLog.START))

    def add(self, step: int, scalars: Mapping[str, float]) -> None:
        """Record the scalars of one step; in `metrics.jsonl` a value that is not finite becomes null."""
        row = {name: float(value) if math.isfinite(value) else None for name, value in scalars.items()}
        self.lines.append(json.dumps({"step": step, **row}))
        if is_main():
            with naming(self._workdir / "metrics.jsonl"), (self._workdir / "metrics.jsonl").open("a") as file:
                file.write(f"{self.lines[-1]}\n")
            notify()
            for name, value in scalars.items():
                self._write_event(step, summary=scalar(name, value))
            if time.monotonic() - self._flushed > PAUSE:
                self._events.flush()
                self._flushed = time.monotonic()
        if self._tracker:
            self._tracker.add(step, scalars)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if is_main():
                self._events.close()
        except OSError:  # the disk is full; an exception that is already being raised takes precedence
            if kind is None:
                raise

    def _write_event(self, step: int, **content: Any) -> None:
        self._events.write_event(Event(wall_time=time.time(), step=step, **content))


def write_lines(workdir: epath.Path, lines: Sequence[str]) -> None:
    """Replace `metrics.jsonl` by `lines`; only the first of several hosts writes."""
    if is_main():
        write_text(workdir / "metrics.jsonl", "".join(f"{line}\n" for line in lines))


def stale(lines: Sequence[str]) -> int:
    """Return the number of dev evaluations since any arm last improved, from the lines of `metrics.jsonl`."""
    best: dict[str, float] = {}
    since = 0
    for row in map(json.loads, lines):
        losses = {name: value for name, value in row.items() if name.startswith("dev_loss/")}
        if losses:
            better = {name: value for name, value in losses.items() if value < best.get(name, math.inf)}
            since, best = (0 if better else since + 1), best | better
    return since


COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")  # Okabe and Ito's, for colour blindness
DASHES = ("-", "--", "-.", ":")


class Picture(Figure):
    """A matplotlib figure that Jupyter shows even if pyplot was not imported."""

    def _repr_png_(self) -> bytes:
        out = io.BytesIO()
        self.savefig(out, format="png", dpi=100)
        return out.getvalue()


def line_style(number: int) -> dict[str, Any]:
    """Return matplotlib arguments, colour and dashes, that distinguish line `number` of a figure from the others."""
    return {"color": COLOURS[number % len(COLOURS)], "linestyle": DASHES[number // len(COLOURS) % len(DASHES)]}


def write_figure(figure: Figure, out: epath.Path) -> None:
    """Write a figure as a PNG file, atomically."""
    with replacing(out) as partial, partial.open("wb") as file:
        figure.savefig(file, format="png", dpi=150)


def rows_of(metrics: epath.Path) -> list[dict[str, Any]]:
    """Return the complete lines of a file `metrics.jsonl`, each a dict with a step and its scalars."""
    text = metrics.read_text()
    return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]  # a kill may cut the last line


def curve(rows: Sequence[Mapping[str, Any]], name: str) -> tuple[list[int], list[float | None]]:
    """Return the steps at which the scalar `name` was recorded, and its values (None: not finite)."""
    points = [(row["step"], row[name]) for row in rows if name in row]
    return [step for step, _ in points], [value for _, value in points]


def loss_figure(metrics: epath.Path) -> Figure:
    """Plot training loss (thin) and dev loss (thick, dots) of every arm by step, from a file `metrics.jsonl`."""
    rows = rows_of(metrics)
    figure = Picture(figsize=(6.0, 3.6), layout="constrained")
    axes = figure.subplots()
    names = list(dict.fromkeys(key.partition("/")[2] for row in rows for key in row if key.startswith("dev_loss/")))
    for i, name in enumerate(names):
        style = line_style(i)
        axes.plot(*curve(rows, f"loss/{name}"), lw=0.7, alpha=0.6, label=f"{name}, train", **style)
        axes.plot(*curve(rows, f"dev_loss/{name}"), lw=1.8, marker="o", ms=3, label=f"{name}, dev", **style)
    axes.set_xlabel("step")
    axes.set_ylabel("loss, nats")
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False, fontsize=8)
    axes.spines[["top", "right"]].set_visible(False)
    return figure
