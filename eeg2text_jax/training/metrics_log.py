"""Training curves: one JSON object a line in `metrics.jsonl`, and TensorBoard events beside it."""

import json
import math
import time
from collections.abc import Mapping, Sequence

from etils import epath
from tensorboardX.event_file_writer import EventsWriter
from tensorboardX.proto.event_pb2 import Event, SessionLog
from tensorboardX.record_writer import directory_check
from tensorboardX.summary import scalar

from eeg2text_jax.files import write_text
from eeg2text_jax.parallel.distributed import is_main


class MetricsLog:
    """Appends scalars by step. Use as a context manager. Of several hosts the first one writes.

    Args:
      workdir: where `metrics.jsonl` and `tensorboard/` are.
      step: the step that training goes on from.
      lines: what was logged until then. The checkpoint says it, not the file, which is written anew: it may have lines
        of steps that will be done again, and may have been changed or deleted.
    """

    def __init__(self, workdir: epath.Path, step: int, lines: Sequence[str] = ()):
        self._workdir, self.lines = workdir, list(lines)
        write_lines(workdir, self.lines)
        self._events = _Events(str(workdir / "tensorboard"), step) if is_main() else None

    def add(self, step: int, scalars: Mapping[str, float]) -> None:
        """Records scalars of one step; a value that is not finite becomes null."""
        row = {name: float(value) if math.isfinite(value) else None for name, value in scalars.items()}
        self.lines.append(json.dumps({"step": step, **row}))
        write_lines(self._workdir, self.lines)
        if self._events:
            self._events.add(step, scalars)

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
    """Writes `metrics.jsonl`; of several hosts the first one does."""
    if is_main():
        # Whole, as gs:// cannot append, and under another name first: a kill must not cost the lines before it.
        write_text(workdir / "metrics.jsonl", "".join(f"{line}\n" for line in lines))


class _Events:
    """A TensorBoard event file, written in this thread.

    tensorboardX's `SummaryWriter` writes in a thread of its own, whose errors (a full disk) are printed at length and
    end nothing.
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
