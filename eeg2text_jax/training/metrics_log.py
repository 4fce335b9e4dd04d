"""Training curves: lines of `metrics.jsonl`, TensorBoard, trackers and figures."""

import contextlib
import io
import json
import math
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from etils import epath
from jax.sharding import Mesh
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from eeg2text_jax.base.devices.hosts import is_main, to_host
from eeg2text_jax.base.devices.mesh import chip_of_device
from eeg2text_jax.base.errors import UserError
from eeg2text_jax.base.files import content_digest, naming, notify, replacing, write_text
from eeg2text_jax.base.packages import hidden
from eeg2text_jax.base.progress import ProgressLine
from eeg2text_jax.base.stores.buckets import address_of
from eeg2text_jax.data.batches import Batch
from eeg2text_jax.instrument.workdir import PLACES, without_folders
from eeg2text_jax.models.brain import ReconstructionModel
from eeg2text_jax.models.functional import Seq2SeqModel, training_flops
from eeg2text_jax.training.study import Arm, Study

# A tracker (W&B or Trackio, which share an API) has a process of its own, fed by a thread with a bounded queue: if it
# fails or hangs, training neither waits nor stops, and the first problem is printed. Each arm is a run of one group.

PROJECT = "eeg2text"
MOST_WAITING = 1000  # queued lines; further ones are dropped
PATIENCE = 30.0  # seconds to send the queued lines after training


class Tracker:
    """A context manager that sends scalars to a tracker; no method raises.

    `wanted` is `wandb` or `trackio`, perhaps with `:PROJECT`, or "" for none. `place`, the address of the workdir,
    names the group; the tracker writes to `folder` and shows `config`.
    """

    def __init__(self, wanted: str, place: str, folder: str, arms: Iterable[str], config: Mapping[str, Any]):
        self._package, _, project = wanted.partition(":")
        self._arms = list(arms)
        group = os.path.basename(os.path.normpath(place)) or "run"
        mark = content_digest([place, dict(config)])[:8]
        # By workdir and configuration, so that a resumed run continues its runs of the tracker.
        runs = {arm: f"{mark}-{arm.replace('/', '-')}" for arm in self._arms}
        about = {"package": self._package, "project": project or PROJECT, "group": f"{group}-{mark}"}
        self._begin: dict[str, Any] = {**about, "runs": runs, "config": dict(config), "folder": folder}
        self._lines: queue.Queue[str | None] = queue.Queue(MOST_WAITING)
        self._process: subprocess.Popen[str] | None = None
        self._has_reported = False

    def __enter__(self) -> "Tracker":
        if self._package:
            self._put(json.dumps(self._begin, default=str))
            self._thread = threading.Thread(target=self._work, name=self._package, daemon=True)
            self._thread.start()
        return self

    def add(self, step: int, scalars: Mapping[str, float]) -> None:
        """Queue the scalars of a step: `NAME/ARM` for the run of that arm, others for all runs."""
        if not self._package:
            return
        rows: dict[str, dict[str, float]] = {arm: {} for arm in self._arms}
        for name, value in scalars.items():
            what, _, arm = name.partition("/")
            for each in [arm] if arm in rows else self._arms:
                rows[each][what if arm in rows else name] = float(value)
        self._put(json.dumps({"step": step, "rows": rows}))

    def __exit__(self, *_: object) -> None:
        if not self._package:
            return
        with contextlib.suppress(queue.Full):
            self._lines.put_nowait(None)
        self._thread.join(PATIENCE)
        if self._thread.is_alive():
            self._report_once(f"has not taken all lines after a wait of {PATIENCE:.0f} s")
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._thread.join(1.0)

    def _put(self, line: str) -> None:
        try:
            self._lines.put_nowait(line)
        except queue.Full:
            self._report_once("does not keep up, so curves there have gaps")

    def _work(self) -> None:
        errors: list[str] = []
        command = [sys.executable, "-m", "eeg2text_jax.training._tracker_process"]
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
        try:
            self._process = process = subprocess.Popen(command, text=True, errors="replace", **pipes)

            def listen() -> None:
                with process.stderr as pipe:
                    errors.extend(pipe)

            listener = threading.Thread(target=listen, daemon=True)
            listener.start()
            with contextlib.suppress(BrokenPipeError, ValueError):
                while (line := self._lines.get()) is not None:
                    print(line, file=process.stdin, flush=True)
            with contextlib.suppress(BrokenPipeError, ValueError):
                process.stdin.close()
            status = process.wait()
            listener.join(1.0)
            if status > 0:
                reason = next((line.strip() for line in reversed(errors) if line.strip()), f"status {status}")
                self._report_once(f"ended with an error ({reason[:200]})")
        except (OSError, ValueError) as error:
            self._report_once(f"could not be started ({error})")

    def _report_once(self, problem: str) -> None:
        if not self._has_reported:
            self._has_reported = True
            kept = "metrics.jsonl and TensorBoard have every line"
            print(f"{self._package}: {problem}; training is not affected; {kept}.")


def tracker_of(study: Study) -> Tracker:
    """Return the tracker that `train.tracker` names; only the first host's sends."""
    root, config = str(study.workdir.root), study.config
    wanted = config.train.tracker if is_main() else ""
    published = without_folders(config.document, PLACES)
    return Tracker(wanted, address_of(root), root, map(str, study.arms), published)


# tensorboardX would import both in 4 s of CPU time; boto3 is not needed, as s3:// workdirs are written to a local copy.
with hidden("torch", "boto3"):
    from tensorboardX.event_file_writer import EventsWriter
    from tensorboardX.proto.event_pb2 import Event, SessionLog
    from tensorboardX.record_writer import directory_check
    from tensorboardX.summary import scalar

PAUSE = 30.0  # seconds between flushes of TensorBoard events; one to gs:// sends the whole file


class MetricsLog(contextlib.AbstractContextManager["MetricsLog"]):
    """A context manager that appends scalars to `metrics.jsonl`, TensorBoard (on the first host) and a tracker.

    The `lines` of steps up to `step`, from the checkpoint, replace `metrics.jsonl`. With tensorboardX's
    `SummaryWriter`, which has a thread, a full disk would not stop training.
    """

    def __init__(self, workdir: epath.Path, step: int, lines: Sequence[str] = (), tracker: Tracker | None = None):
        self._path, self.lines, self._tracker = workdir / "metrics.jsonl", list(lines), tracker
        write_lines(workdir, self.lines)
        if is_main():
            folder = str(workdir / "tensorboard")
            directory_check(folder)
            self._events, self._flushed = EventsWriter(f"{folder}/events"), time.monotonic()
            # TensorBoard then drops an earlier process's events beyond this step.
            self._write_event(step, session_log=SessionLog(status=SessionLog.START))

    def add(self, step: int, scalars: Mapping[str, float]) -> None:
        """Record the scalars of a step; in `metrics.jsonl`, one that is not finite is null."""
        row = {name: float(value) if math.isfinite(value) else None for name, value in scalars.items()}
        self.lines.append(json.dumps({"step": step, **row}))
        if is_main():
            with naming(self._path), self._path.open("a") as file:
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
        except OSError:  # a full disk; an exception that is already raised takes precedence
            if kind is None:
                raise

    def _write_event(self, step: int, **content: Any) -> None:
        self._events.write_event(Event(wall_time=time.time(), step=step, **content))


def write_lines(workdir: epath.Path, lines: Sequence[str]) -> None:
    """Replace `metrics.jsonl` by `lines`, on the first host."""
    if is_main():
        write_text(workdir / "metrics.jsonl", "".join(f"{line}\n" for line in lines))


def stale(lines: Sequence[str]) -> int:
    """Return the number of dev evaluations since any arm improved, from lines of `metrics.jsonl`."""
    best: dict[str, float] = {}
    since = 0
    for row in map(json.loads, lines):
        if losses := {name: value for name, value in row.items() if name.startswith("dev_loss/")}:
            better = {name: value for name, value in losses.items() if value < best.get(name, math.inf)}
            since, best = (0 if better else since + 1), best | better
    return since


COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")  # Okabe and Ito's, for colour blindness
DASHES = ("-", "--", "-.", ":")


class Picture(Figure):
    """A figure that Jupyter shows without pyplot."""

    def _repr_png_(self) -> bytes:
        out = io.BytesIO()
        self.savefig(out, format="png", dpi=100)
        return out.getvalue()


def line_style(number: int) -> dict[str, Any]:
    """Return colour and dashes of line `number` of a figure."""
    return {"color": COLOURS[number % len(COLOURS)], "linestyle": DASHES[number // len(COLOURS) % len(DASHES)]}


def _finish(axes: Axes, unit: str, loss: str, size: int) -> None:
    axes.set(xlabel=unit, ylabel=loss)
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False, fontsize=size)
    axes.spines[["top", "right"]].set_visible(False)


def write_figure(figure: Figure, out: epath.Path) -> None:
    """Write a figure as a PNG file, atomically."""
    with replacing(out) as partial, partial.open("wb") as file:
        figure.savefig(file, format="png", dpi=150)


def rows_of(metrics: epath.Path) -> list[dict[str, Any]]:
    """Return the complete lines of `metrics.jsonl`, each a step and its scalars."""
    text = metrics.read_text()
    return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]  # a kill may cut the last line


def curve(rows: Sequence[Mapping[str, Any]], name: str) -> tuple[list[int], list[float | None]]:
    """Return the steps of the scalar `name`, and its values (None: not finite)."""
    points = [(row["step"], row[name]) for row in rows if name in row]
    return [step for step, _ in points], [value for _, value in points]


def loss_figure(metrics: epath.Path) -> Figure:
    """Plot training loss (thin) and dev loss (thick, dots) of every arm by step."""
    rows = rows_of(metrics)
    figure = Picture(figsize=(6.0, 3.6), layout="constrained")
    axes = figure.subplots()
    names = dict.fromkeys(key.partition("/")[2] for row in rows for key in row if key.startswith("dev_loss/"))
    for i, name in enumerate(names):
        style = line_style(i)
        axes.plot(*curve(rows, f"loss/{name}"), lw=0.7, alpha=0.6, label=f"{name}, train", **style)
        axes.plot(*curve(rows, f"dev_loss/{name}"), lw=1.8, marker="o", ms=3, label=f"{name}, dev", **style)
    _finish(axes, "step", "loss, nats", 8)
    return figure


TRIVIAL = ("zero", "mean")  # predictions beside reconstructions: zeros, and the mean training input


def curves_figure(
    curves: Mapping[str, Mapping[str, list[dict[str, Any]]]], arms: Sequence[str], unit: str = "step"
) -> Figure:
    """Plot dev losses by step (in `unit`), a panel per stage, and lines at the losses of `TRIVIAL`.

    `curves` are, by stage and label (a split, for example), rows of `metrics.jsonl`.
    """
    figure = Figure(figsize=(4.2 * len(curves), 3.6), layout="constrained")
    for axes, (stage, by_label) in zip(figure.subplots(1, len(curves), squeeze=False)[0], curves.items(), strict=True):
        series = [(label, rows, arm) for label, rows in by_label.items() for arm in arms]
        for number, (label, rows, arm) in enumerate(series):
            style, name = line_style(number), f"{label} {arm}".strip()
            axes.plot(*curve(rows, f"dev_loss/{arm}"), lw=1.6, marker="o", ms=3, label=name, **style)
            for trivial, dash in zip(TRIVIAL, ((0, (4, 2)), (0, (1, 2))), strict=True):
                said = None if label else f"{arm}: {trivial}"
                axes.axhline(rows[0][f"{trivial}/{arm}"], lw=0.9, linestyle=dash, color=style["color"], label=said)
        axes.set_title(f"{stage} reconstructed", fontsize=10)
        _finish(axes, unit, "loss on dev", 7)
    return figure


def slices_figure(fed: np.ndarray, made: np.ndarray) -> Figure:
    """Plot the middle slices of a volume `[X, Y, Z]`, above those of its reconstruction."""
    figure = Figure(figsize=(6.4, 4.4), layout="constrained")
    most = float(np.abs(fed).max()) or 1.0
    for row, (name, volume) in zip(figure.subplots(2, 3), (("fed", fed), ("reconstructed", made)), strict=True):
        for axis, axes in enumerate(row):
            middle = volume.shape[axis] // 2
            image = axes.imshow(np.take(volume, middle, axis).T, origin="lower", cmap="RdBu_r", vmin=-most, vmax=most)
            axes.set_title(f"{name}, {'xyz'[axis]} = {middle}", fontsize=9)
            axes.set(xticks=[], yticks=[])
    figure.colorbar(image, ax=figure.axes, shrink=0.6, label="standard deviations")
    return figure


def start_trace(folder: str) -> None:
    """Start a JAX profile without the Python tracer, which slows steps down."""
    options = jax.profiler.ProfileOptions()
    options.python_tracer_level = 0
    jax.profiler.start_trace(folder, profiler_options=options)


class StepProfile(contextlib.AbstractContextManager["StepProfile"]):
    """A profile of the steps "START:END" (both included; "": none) in `workdir/profile`, of every host."""

    def __init__(self, steps: str, workdir: epath.Path):
        self._first, self._last = map(int, (steps or "0:0").split(":"))
        self._folder, self._running = workdir / "profile", False

    def step(self, number: int) -> Any:
        """Start the profile if `number` is in it; return a context manager that labels the step."""
        if not self._running and self._first <= number <= self._last:
            start_trace(str(self._folder))
            self._running = True
        return jax.profiler.StepTraceAnnotation("train", step_num=number)

    def after(self, number: int, wait: Callable[[], None]) -> None:
        """End the profile if `number` is its last step; `wait` blocks until the devices are idle."""
        if self._running and number >= self._last:
            wait()
            self.__exit__()

    def __exit__(self, *_: object) -> None:
        if self._running:
            self._running = False
            jax.profiler.stop_trace()
            print(f"profile of steps {self._first} to {self._last}: {self._folder}")


class BatchWork(NamedTuple):
    """The size of one arm's training batch."""

    samples: int  # rows without padding rows
    tokens: int  # target tokens without padding
    words: int  # EEG positions per row, with padding
    positions: int  # target positions per row, with padding
    rows: int  # rows with padding rows

    @classmethod
    def of(cls, batch: Batch, pad_token: int) -> "BatchWork":
        """Return the size of the first seed's batch in a training batch `[S, B, ...]`."""
        weight, (_, rows, words) = batch["weight"][0], batch["features"].shape[:3]
        real = (batch["labels"][0] != pad_token) & (weight > 0)[:, None]
        samples, tokens, rows = batch.get("whole", (weight.sum(), real.sum(), rows))
        return cls(int(samples), int(tokens), words, real.shape[1], int(rows))


class Pace:
    """Training rates since `restart`, with the MFU of devices in `mesh.CHIPS`."""

    def __init__(self, model: Seq2SeqModel | ReconstructionModel, n_arms: int, mesh: Mesh):
        chip = chip_of_device(mesh.devices.flat[0].device_kind)
        self._model, self._n_arms = model, n_arms
        self._peak = chip.flops * mesh.size if chip else None
        self.restart()

    def restart(self) -> None:
        self._start, self._waited = time.monotonic(), 0.0
        self._samples = self._tokens = self._flops = 0.0

    def waited(self, seconds: float) -> None:
        """Add seconds in which devices waited for a batch."""
        self._waited += seconds

    def done(self, work: BatchWork) -> None:
        self._samples += work.samples
        self._tokens += work.tokens
        self._flops += self._n_arms * training_flops(self._model, work.rows, work.words, work.positions)

    def rates(self) -> dict[str, float]:
        """Return `samples_per_s`, `tokens_per_s` of one arm, `input_wait` (share of the time), and `mfu` if known.

        `mfu` is the share of the devices' bfloat16 peak that all arms' matrix products take, padding included.
        """
        seconds = time.monotonic() - self._start
        sums = {"samples_per_s": self._samples, "tokens_per_s": self._tokens, "input_wait": self._waited}
        rates = {name: value / seconds for name, value in sums.items()}
        return rates if self._peak is None else rates | {"mfu": self._flops / seconds / self._peak}


class Pending:
    """A queue of metrics, read once the next step is dispatched, so that reading stalls no device, and logged at once.

    On several hosts reading is a collective, so those of a log interval are read together.
    """

    def __init__(self, study: Study, log: MetricsLog, progress: ProgressLine, pace: Pace):
        self._arms, self._every, self._log, self._progress = study.arms, study.config.train.log_every, log, progress
        self._pace, self._pad_token = pace, study.model.pad_token
        self._unread: list[tuple[int, BatchWork, dict[str, jax.Array]]] = []
        self._last_finite = 0  # last step with a finite loss; 0: none in this process

    def next_batch(self, iterator: Iterator[Batch]) -> Batch:
        """Return the next batch; the wait counts if devices became idle meanwhile."""
        start = time.monotonic()
        batch = next(iterator)
        if not self._unread or self._unread[-1][2]["loss"].is_ready():
            self._pace.waited(time.monotonic() - start)
        return batch

    def swap(self, step: int, batch: Batch, metrics: dict[str, jax.Array]) -> None:
        """Read the queued metrics (on several hosts: once per log interval), then queue those of `step`."""
        if jax.process_count() == 1 or (step - 1) % self._every == 0:
            self.flush()
        elif self._unread:  # dispatch at most one step ahead
            jax.block_until_ready(self._unread[-1][2])
        self._unread.append((step, BatchWork.of(batch, self._pad_token), metrics))

    def flush(self) -> None:
        """Read and log all queued metrics; UserError if a loss is not finite."""
        if not self._unread:
            return
        unread, self._unread = self._unread, []
        if len(unread) == 1:
            step, work, metrics = unread[0]
            self._record(step, work, to_host(metrics))
            return
        read = to_host(jax.tree.map(lambda *values: jnp.stack(values), *(metrics for _, _, metrics in unread)))
        for number, (step, work, _) in enumerate(unread):
            self._record(step, work, {name: values[number] for name, values in read.items()})

    def _record(self, step: int, work: BatchWork, metrics: dict[str, np.ndarray]) -> None:
        losses = metrics["loss"]
        before = f" (it was finite at step {self._last_finite})" if self._last_finite else ""
        self._check_finite(losses, "is not finite at", f"step {step}{before}", "features")
        self._last_finite = step
        self._pace.done(work)
        rates = self._pace.rates()
        note = "  ".join(f"{arm} {loss:.3f}" for arm, loss in zip(self._arms, losses, strict=True))
        self._progress.advance(1, f"loss {note}  {rates['samples_per_s']:.0f} samples/s")
        if step % self._every == 0:
            values = by_arm(self._arms, {"loss": losses, "grad_norm": metrics["grad_norm"]})
            self._log.add(step, {**values, **rates})
            self._pace.restart()

    def dev(self, step: int, losses: np.ndarray) -> None:
        """Log the dev losses `[A]` after `step`; UserError if one, or a queued training loss, is not finite."""
        self.flush()
        when = f"step {step}, although the training loss is finite"
        self._check_finite(losses, "on dev is not finite after", when, "features of the dev part")
        self._log.add(step, by_arm(self._arms, {"dev_loss": losses}))

    def _check_finite(self, losses: np.ndarray, fails: str, when: str, where: str) -> None:
        if not np.isfinite(losses).all():
            raise UserError(
                f"the loss of arm {not_finite(self._arms, losses)} {fails} {when}; lower optim.lr, or look for extreme "
                f"values in the {where}."
            )


def by_arm(arms: Sequence[Arm], values: Mapping[str, np.ndarray]) -> dict[str, float]:
    """Return "name/arm" -> value, from name -> values `[A]`."""
    return {f"{name}/{arm}": float(value) for name, row in values.items() for arm, value in zip(arms, row, strict=True)}


def not_finite(arms: Sequence[Arm], values: np.ndarray) -> Arm:
    """Return the first arm whose value of `values [A]` is not finite."""
    return arms[int(np.argmin(np.isfinite(values)))]
