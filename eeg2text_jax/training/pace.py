"""Throughput of training: samples, tokens, MFU, input wait; the check that losses are finite; profiles for XProf.

Metrics of step n are read after step n+1 is dispatched, so that reading them never stalls the device.
"""

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
    """Start a profile without the Python tracer, which would slow down the profiled steps."""
    options = jax.profiler.ProfileOptions()
    options.python_tracer_level = 0
    jax.profiler.start_trace(folder, profiler_options=options)


class StepProfile:
    """Write a profile of the steps of `train.profile` to `DIR/profile`. Use as a context manager around all steps.

    Steps that were finished before a resume are not profiled; every host writes its own file.

    Raises:
      UserError: `steps` is neither "START:END" (both included) nor empty.
    """

    def __init__(self, steps: str, workdir: epath.Path):
        found = re.fullmatch(r"([1-9]\d*):([1-9]\d*)", steps)
        first, last = map(int, found.groups()) if found else (0, 0)
        if steps and (not found or last < first):
            raise UserError(f"train.profile = {steps!r}; expected the first and the last step, as in '10:12', or ''.")
        self._first, self._last, self._folder, self._running = first, last, workdir / "profile", False

    def __enter__(self) -> "StepProfile":
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()

    def step(self, number: int) -> Any:
        """Return a context manager that labels step `number` in the profile."""
        if not self._running and self._first <= number <= self._last:
            start_trace(str(self._folder))
            self._running = True
        return jax.profiler.StepTraceAnnotation("train", step_num=number)

    def after(self, number: int, wait: Callable[[], None]) -> None:
        """End the profile after its last step; `wait` blocks until the devices are idle."""
        if self._running and number >= self._last:
            wait()
            self._stop()

    def _stop(self) -> None:
        if self._running:
            self._running = False
            jax.profiler.stop_trace()
            print(f"profile of steps {self._first} to {self._last}: {self._folder}")


class BatchWork(NamedTuple):
    """The size of one arm's batch; batches of all seeds have one shape."""

    samples: int  # real rows
    tokens: int  # real target tokens of these
    words: int  # EEG positions of a row, including padding
    positions: int  # target positions of a row, including padding
    rows: int  # all, including padding rows

    @classmethod
    def of(cls, batch: Batch, pad_token: int) -> "BatchWork":
        """Measure a training batch `[S, B, ...]`; samples and tokens are counted for the first seed."""
        weight = batch["weight"][0]
        real = (batch["labels"][0] != pad_token) & (weight > 0)[:, None]
        _, rows, words = batch["features"].shape[:3]
        return cls(int(weight.sum()), int(real.sum()), words, real.shape[1], rows)


class Pace:
    """Training rates, measured between two log lines; MFU is reported if `parallel.mesh` knows the devices' peak."""

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
        """Count seconds in which the devices were idle because no batch was ready."""
        self._waited += seconds

    def done(self, work: BatchWork) -> None:
        """Count one finished step."""
        self._samples += work.samples
        self._tokens += work.tokens
        self._flops += self._n_arms * training_flops(self._model, work.rows, work.words, work.positions)

    def rates(self) -> dict[str, float]:
        """Return `samples_per_s` and `tokens_per_s` of one arm, `input_wait` (share of the time), and `mfu` if known.

        `mfu`: FLOPs of all arms' matrix products (padding included) over the devices' bfloat16 peak.
        """
        seconds = time.monotonic() - self._start
        found = {
            "samples_per_s": self._samples / seconds,
            "tokens_per_s": self._tokens / seconds,
            "input_wait": self._waited / seconds,
        }
        return found if self._peak is None else found | {"mfu": self._flops / seconds / self._peak}


class Pending:
    """Metrics of dispatched steps that were not read yet.

    They are read after the next step is dispatched. On several hosts reading is a collective, so the metrics of a whole
    log interval are read together.
    """

    def __init__(self, study: Study, log: MetricsLog, progress: ProgressLine, pace: Pace):
        self._arms, self._every, self._log, self._progress = study.arms, study.config.train.log_every, log, progress
        self._pace, self._pad_token = pace, study.model.pad_token
        self._held: list[tuple[int, BatchWork, dict[str, jax.Array]]] = []
        self._alone = jax.process_count() == 1
        self._last_finite = 0

    def next_batch(self, iterator: Iterator[Batch]) -> Batch:
        """Return the next batch; count the wait as `input_wait` if the devices became idle meanwhile."""
        begun = time.monotonic()
        batch = next(iterator)
        if not self._held or self._held[-1][2]["loss"].is_ready():
            self._pace.waited(time.monotonic() - begun)
        return batch

    def swap(self, step: int, batch: Batch, metrics: dict[str, jax.Array]) -> None:
        """Read the metrics of earlier steps that are due, then store those of `step`."""
        if self._alone or (step - 1) % self._every == 0:
            self.flush()
        elif self._held:  # no more than one step is dispatched ahead
            jax.block_until_ready(self._held[-1][2])
        self._held.append((step, BatchWork.of(batch, self._pad_token), metrics))

    def flush(self) -> None:
        """Read all stored metrics; raise a UserError if a loss is not finite."""
        if not self._held:
            return
        held, self._held = self._held, []
        if len(held) == 1:
            step, work, metrics = held[0]
            self._record(step, work, to_host(metrics))
            return
        read = to_host(jax.tree.map(lambda *values: jnp.stack(values), *(metrics for _, _, metrics in held)))
        for number, (step, work, _) in enumerate(held):
            self._record(step, work, {name: values[number] for name, values in read.items()})

    def _record(self, step: int, work: BatchWork, metrics: dict[str, np.ndarray]) -> None:
        losses = metrics["loss"]
        if not np.isfinite(losses).all():
            raise UserError(
                f"the loss of arm {not_finite(self._arms, losses)} is not finite at step {step} (it was at step "
                f"{self._last_finite}); lower optim.lr, or look for extreme values in the features."
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
        """Record the dev losses after `step`; raise a UserError if one, or an earlier training loss, is not finite."""
        self.flush()
        if not np.isfinite(losses).all():
            raise UserError(
                f"the loss of arm {not_finite(self._arms, losses)} on dev is not finite after step {step}, although "
                "the training loss is finite; lower optim.lr, or look for extreme values in the features of the dev "
                "part."
            )
        self._log.add(step, by_arm(self._arms, {"dev_loss": losses}))


def by_arm(arms: Sequence[Arm], values: Mapping[str, np.ndarray]) -> dict[str, float]:
    """Flatten values `[A]` by name to one entry `name/arm` per arm."""
    return {f"{name}/{arm}": float(value) for name, of in values.items() for arm, value in zip(arms, of, strict=True)}


def not_finite(arms: Sequence[Arm], values: np.ndarray) -> Arm:
    """Return the first arm whose value in `[A]` is not finite."""
    return arms[int(np.argmin(np.isfinite(values)))]
