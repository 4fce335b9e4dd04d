"""Throughput of training: samples, tokens, MFU, input wait; the check that losses are finite; profiles for XProf.

Metrics of step n are read after step n+1 is dispatched, so that reading them never stalls the device.
"""

import contextlib
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from etils import epath
from jax.sharding import Mesh

from eeg2text_jax.data.batches import Batch
from eeg2text_jax.errors import UserError
from eeg2text_jax.models.flops import training_flops
from eeg2text_jax.models.functional import Seq2SeqModel
from eeg2text_jax.models.reconstruction import ReconstructionModel
from eeg2text_jax.parallel.distributed import to_host
from eeg2text_jax.parallel.mesh import chip_of_device
from eeg2text_jax.progress import ProgressLine
from eeg2text_jax.study.grid import Arm
from eeg2text_jax.study.study import Study
from eeg2text_jax.training.metrics_log import MetricsLog


def start_trace(folder: str) -> None:
    """Start a JAX profile without the Python tracer, which would slow down the profiled steps."""
    options = jax.profiler.ProfileOptions()
    options.python_tracer_level = 0
    jax.profiler.start_trace(folder, profiler_options=options)


class StepProfile(contextlib.AbstractContextManager["StepProfile"]):
    """Write a profile of the training steps `steps` to `workdir/profile`. Use as a context manager around all steps.

    `steps` is "START:END" (both included) or "" for no profile; anything else raises UserError. Steps before a resume
    are not profiled. Every host writes its own file.
    """

    def __init__(self, steps: str, workdir: epath.Path):
        found = re.fullmatch(r"([1-9]\d*):([1-9]\d*)", steps)
        first, last = map(int, found.groups()) if found else (0, 0)
        if steps and (not found or last < first):
            raise UserError(f"train.profile = {steps!r}; expected the first and the last step, as in '10:12', or ''.")
        self._first, self._last, self._folder, self._running = first, last, workdir / "profile", False

    def __exit__(self, *_: object) -> None:
        self._stop()

    def step(self, number: int) -> Any:
        """Start the profile if step `number` is in it; return a context manager that labels the step."""
        if not self._running and self._first <= number <= self._last:
            start_trace(str(self._folder))
            self._running = True
        return jax.profiler.StepTraceAnnotation("train", step_num=number)

    def after(self, number: int, wait: Callable[[], None]) -> None:
        """End the profile if step `number` is its last one; `wait` must block until the devices are idle."""
        if self._running and number >= self._last:
            wait()
            self._stop()

    def _stop(self) -> None:
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
        """Return the size of one seed's batch, counted for the first of S seeds in a training batch `[S, B, ...]`."""
        weight = batch["weight"][0]
        real = (batch["labels"][0] != pad_token) & (weight > 0)[:, None]
        _, rows, words = batch["features"].shape[:3]
        samples, tokens, rows = batch.get("whole", (weight.sum(), real.sum(), rows))
        return cls(int(samples), int(tokens), words, real.shape[1], int(rows))


class Pace:
    """Training rates since `restart` was called; MFU is included if the table `mesh.CHIPS` has the devices' peak."""

    def __init__(self, model: Seq2SeqModel | ReconstructionModel, n_arms: int, mesh: Mesh):
        chip = chip_of_device(mesh.devices.flat[0].device_kind)
        self._model, self._n_arms = model, n_arms
        self._peak = chip.flops * mesh.size if chip else None
        self.restart()

    def restart(self) -> None:
        """Reset all counters."""
        self._start, self._waited = time.monotonic(), 0.0
        self._samples = self._tokens = self._flops = 0.0

    def waited(self, seconds: float) -> None:
        """Add seconds in which the devices were idle because no batch was ready."""
        self._waited += seconds

    def done(self, work: BatchWork) -> None:
        """Add the samples, tokens and FLOPs of one finished step."""
        self._samples += work.samples
        self._tokens += work.tokens
        self._flops += self._n_arms * training_flops(self._model, work.rows, work.words, work.positions)

    def rates(self) -> dict[str, float]:
        """Return `samples_per_s` and `tokens_per_s` of one arm, `input_wait` (share of the time), and `mfu` if known.

        `mfu` is the share of the devices' bfloat16 peak that the matrix products of all arms take, padding included.
        """
        seconds = time.monotonic() - self._start
        found = {
            "samples_per_s": self._samples / seconds,
            "tokens_per_s": self._tokens / seconds,
            "input_wait": self._waited / seconds,
        }
        return found if self._peak is None else found | {"mfu": self._flops / seconds / self._peak}


class Pending:
    """A queue of the metrics of dispatched steps; metrics are logged as soon as they are read.

    The metrics of a step are read from the devices after the next step is dispatched. On several hosts reading is a
    collective, so the metrics of a whole log interval are read together.
    """

    def __init__(self, study: Study, log: MetricsLog, progress: ProgressLine, pace: Pace):
        self._arms, self._every, self._log, self._progress = study.arms, study.config.train.log_every, log, progress
        self._pace, self._pad_token = pace, study.model.pad_token
        self._unread: list[tuple[int, BatchWork, dict[str, jax.Array]]] = []
        self._last_finite = 0  # last step of the run with a finite loss; 0: this process has had none yet

    def next_batch(self, iterator: Iterator[Batch]) -> Batch:
        """Return the next batch; count the wait as `input_wait` if the devices became idle meanwhile."""
        start = time.monotonic()
        batch = next(iterator)
        if not self._unread or self._unread[-1][2]["loss"].is_ready():
            self._pace.waited(time.monotonic() - start)
        return batch

    def swap(self, step: int, batch: Batch, metrics: dict[str, jax.Array]) -> None:
        """Read the queued metrics (on several hosts: once per log interval), then queue the metrics of `step`."""
        if jax.process_count() == 1 or (step - 1) % self._every == 0:
            self.flush()
        elif self._unread:  # dispatch at most one step ahead
            jax.block_until_ready(self._unread[-1][2])
        self._unread.append((step, BatchWork.of(batch, self._pad_token), metrics))

    def flush(self) -> None:
        """Read and log all queued metrics; raise UserError if a loss is not finite."""
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
        if not np.isfinite(losses).all():
            before = f" (it was finite at step {self._last_finite})" if self._last_finite else ""
            raise UserError(
                f"the loss of arm {not_finite(self._arms, losses)} is not finite at step {step}{before}; lower "
                "optim.lr, or look for extreme values in the features."
            )
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
        """Log the dev losses `[A]` after `step`; raise UserError if one, or a queued training loss, is not finite."""
        self.flush()
        if not np.isfinite(losses).all():
            raise UserError(
                f"the loss of arm {not_finite(self._arms, losses)} on dev is not finite after step {step}, although "
                "the training loss is finite; lower optim.lr, or look for extreme values in the features of the dev "
                "part."
            )
        self._log.add(step, by_arm(self._arms, {"dev_loss": losses}))


def by_arm(arms: Sequence[Arm], values: Mapping[str, np.ndarray]) -> dict[str, float]:
    """Return a dict `"name/arm"` -> value, from a dict name -> array `[A]` with a value for each arm."""
    return {f"{name}/{arm}": float(value) for name, row in values.items() for arm, value in zip(arms, row, strict=True)}


def not_finite(arms: Sequence[Arm], values: np.ndarray) -> Arm:
    """Return the first arm whose entry of `values [A]` is not finite."""
    return arms[int(np.argmin(np.isfinite(values)))]
