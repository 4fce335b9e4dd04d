"""A profile of some training steps, which XProf and TensorBoard's profile plugin open."""

import re
from collections.abc import Callable
from typing import Any

import jax
from etils import epath

from eeg2text_jax.errors import UserError


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
