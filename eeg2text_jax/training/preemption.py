"""A machine that is taken away says so with SIGTERM: training then ends behind a saved step."""

import signal
import threading
from types import FrameType

import jax
from jax.experimental import multihost_utils

from eeg2text_jax.errors import Terminated


class Preemption:
    """Notes SIGTERM instead of dying of it. Use as a context manager around what saves when `stop_after` says so.

    Of several hosts, each may be told at another time; JAX's coordination service then agrees on the step to stop at.
    """

    def __init__(self) -> None:
        self._noted = False

    def __enter__(self) -> "Preemption":
        # JAX has a handler of its own for several hosts, and only a main thread may set one.
        self._handles = jax.process_count() == 1 and threading.current_thread() is threading.main_thread()
        if self._handles:
            self._before = signal.signal(signal.SIGTERM, self._note)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Raises `Terminated` where SIGTERM was noted and nothing else is on its way."""
        if self._handles:
            signal.signal(signal.SIGTERM, self._before)
        if self._noted and kind is None:
            raise Terminated("ended by SIGTERM; what is trained is saved, and the same command goes on from there.")

    def stop_after(self, step: int) -> bool:
        """Whether training shall end behind `step`; ask at every step."""
        if jax.process_count() > 1:
            self._noted = multihost_utils.reached_preemption_sync_point(step)
        return self._noted

    def _note(self, signum: int, frame: FrameType | None) -> None:
        self._noted = True
