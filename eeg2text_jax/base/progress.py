"""Progress of long work: a live bar on a terminal, an occasional line elsewhere."""

import sys
import time
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

SECONDS_BETWEEN_LINES = 15.0
UNITS_BEFORE_FORECAST = 10


class ProgressLine:
    """A context manager that displays progress of `total` units, of which `done` were done before."""

    def __init__(self, title: str, total: int, done: int = 0):
        self._title, self._total, self._done = title, total, done
        self._start = self._last_line = time.monotonic()
        self._warm: tuple[float, int] | None = None  # after the first advance, which included compiling
        self._bar = None
        if sys.stdout.isatty():
            columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
            self._bar = Progress(*columns, TextColumn("{task.fields[note]}"), console=Console())
            self._task = self._bar.add_task(title, total=total, completed=done, note="")

    def advance(self, units: int, note: str = "") -> None:
        self._done += units
        self._warm = self._warm or (time.monotonic(), self._done)
        if self._bar is not None:
            self._bar.update(self._task, completed=self._done, note=note)
            return
        now = time.monotonic()
        if now - self._last_line >= SECONDS_BETWEEN_LINES or self._done >= self._total:
            self._last_line = now
            elapsed, (warm, counted) = now - self._start, self._warm
            new, missing = self._done - counted, self._total - self._done
            left = f", {(now - warm) / new * missing:.0f} s left" if new >= UNITS_BEFORE_FORECAST else ""
            rest = left if missing > 0 else f", took {elapsed:.0f} s"
            said = f"{note}{rest}".removeprefix(", ")
            print(f"{self._title}: {self._done}/{self._total}  {said}", flush=True)

    def __enter__(self) -> "ProgressLine":
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        if self._bar is not None:
            self._bar.stop()
