"""How training goes, read late: losses that must be finite, samples, tokens, model FLOPs and
waiting for input; and a profile of some steps, which XProf opens.
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
    """Begins a profile without Python's own calls, which would slow down what it is about."""
    options = jax.profiler.ProfileOptions()
    options.python_tracer_level = 0
    jax.profiler.start_trace(folder, profiler_options=options)


class StepProfile:
    """Writes `DIR/profile` of the steps `START:END`, both included. Use as a context manager around all steps.

    A step that was done before a resume is not done again for its profile.

    Args:
      steps: `train.profile`; empty: none is written.
      workdir: DIR; every host writes a file of its own.

    Raises:
      UserError: `steps` is something else.
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
        """A context manager around step `number`: what is done in it is called so in the profile."""
        if not self._running and self._first <= number <= self._last:
            start_trace(str(self._folder))
            self._running = True
        return jax.profiler.StepTraceAnnotation("train", step_num=number)

    def after(self, number: int, wait: Callable[[], None]) -> None:
        """Ends the profile behind its last step, once `wait` has waited for the devices."""
        if self._running and number >= self._last:
            wait()
            self._stop()

    def _stop(self) -> None:
        if self._running:
            self._running = False
            jax.profiler.stop_trace()
            print(f"profile of steps {self._first} to {self._last}: {self._folder}")


class BatchWork(NamedTuple):
    """What one batch is to each arm; all seeds have batches of one shape."""

    samples: int  # real rows
    tokens: int  # real target tokens of these
    words: int  # EEG positions of a row, padding among them
    positions: int  # target positions of a row, padding among them
    rows: int  # all, those that only fill the batch among them

    @classmethod
    def of(cls, batch: Batch, pad_token: int) -> "BatchWork":
        """Of a training batch `[S, B, ...]`; the numbers of samples and tokens are those of the first seed."""
        weight = batch["weight"][0]
        real = (batch["labels"][0] != pad_token) & (weight > 0)[:, None]
        _, rows, words = batch["features"].shape[:3]
        return cls(int(weight.sum()), int(real.sum()), words, real.shape[1], rows)


class Pace:
    """Rates of a training, measured from one line of the log to the next.

    Args:
      model: whose FLOPs are counted.
      n_arms: how many of it every batch trains.
      mesh: the devices; the share of their peak (MFU) is told where `parallel.chips` knows it.
    """

    def __init__(self, model: Seq2SeqModel | ReconstructionModel, n_arms: int, mesh: Mesh):
        chip = chip_of_device(mesh.devices.flat[0].device_kind)
        self._model, self._n_arms = model, n_arms
        self._peak = chip.flops * mesh.size if chip else None
        self.restart()

    def restart(self) -> None:
        """Begins to measure anew."""
        self._start, self._waited = time.monotonic(), 0.0
        self._samples = self._tokens = self._flops = 0.0

    def waited(self, seconds: float) -> None:
        """The devices had nothing to do while the next batch was made."""
        self._waited += seconds

    def done(self, work: BatchWork) -> None:
        """A step is over."""
        self._samples += work.samples
        self._tokens += work.tokens
        self._flops += self._n_arms * training_flops(self._model, work.rows, work.words, work.positions)

    def rates(self) -> dict[str, float]:
        """`samples_per_s`, `tokens_per_s`, both of one arm, `input_wait`, a share of the time, and `mfu` if known.

        `mfu` holds all arms' matrix products, positions at padding included, against the devices' bfloat16 peak.
        """
        seconds = time.monotonic() - self._start
        found = {
            "samples_per_s": self._samples / seconds,
            "tokens_per_s": self._tokens / seconds,
            "input_wait": self._waited / seconds,
        }
        return found if self._peak is None else found | {"mfu": self._flops / seconds / self._peak}


class Pending:
    """Metrics of the steps that were dispatched last.

    They are read once the next step is under way. Of several hosts, for whom that is a collective, those of a whole log
    interval are read together.
    """

    def __init__(self, study: Study, log: MetricsLog, progress: ProgressLine, pace: Pace):
        self._arms, self._every, self._log, self._progress = study.arms, study.config.train.log_every, log, progress
        self._pace, self._pad_token = pace, study.model.pad_token
        self._held: list[tuple[int, BatchWork, dict[str, jax.Array]]] = []
        self._alone = jax.process_count() == 1
        self._last_finite = 0

    def next_batch(self, iterator: Iterator[Batch]) -> Batch:
        """The next batch; its making is waited for if what was dispatched last is done by then."""
        begun = time.monotonic()
        batch = next(iterator)
        if not self._held or self._held[-1][2]["loss"].is_ready():
            self._pace.waited(time.monotonic() - begun)
        return batch

    def swap(self, step: int, batch: Batch, metrics: dict[str, jax.Array]) -> None:
        """Reads what is due of the steps before, then holds the metrics of `step`."""
        if self._alone or (step - 1) % self._every == 0:
            self.flush()
        elif self._held:  # no more than one step is dispatched ahead
            jax.block_until_ready(self._held[-1][2])
        self._held.append((step, BatchWork.of(batch, self._pad_token), metrics))

    def flush(self) -> None:
        """Reads what is held.

        Raises:
          UserError: a loss is not finite.
        """
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
                f"{self._last_finite}); lower optim.lr or look at the features."
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
        """Records the losses on dev after `step`.

        Raises:
          UserError: one is not finite, or one on train was not.
        """
        self.flush()
        if not np.isfinite(losses).all():
            raise UserError(
                f"the loss of arm {not_finite(self._arms, losses)} on dev is not finite after step {step}, that on "
                "train was; lower optim.lr or look at the features of the dev part."
            )
        self._log.add(step, by_arm(self._arms, {"dev_loss": losses}))


def by_arm(arms: Sequence[Arm], values: Mapping[str, np.ndarray]) -> dict[str, float]:
    """Values `[A]` by name as `name/arm`, one after the other."""
    return {f"{name}/{arm}": float(value) for name, of in values.items() for arm, value in zip(arms, of, strict=True)}


def not_finite(arms: Sequence[Arm], values: np.ndarray) -> Arm:
    """The first arm whose value `[A]` is not finite."""
    return arms[int(np.argmin(np.isfinite(values)))]
