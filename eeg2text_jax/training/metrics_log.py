"""Training curves: one JSON object a line in `metrics.jsonl`, and TensorBoard events beside it."""

import json
import math
import time
from collections.abc import Mapping

from etils import epath
from tensorboardX.event_file_writer import EventsWriter
from tensorboardX.proto.event_pb2 import Event, SessionLog
from tensorboardX.record_writer import directory_check
from tensorboardX.summary import scalar

from eeg2text_jax.files import write_text
from eeg2text_jax.parallel.distributed import is_main


class MetricsLog:
    """Appends scalars by step. After a resume, lines of steps that will be done again are dropped first.
    Use as a context manager. Of several hosts the first one writes.

    Args:
      workdir: where `metrics.jsonl` and `tensorboard/` are.
      step: the step that training goes on from.
    """

    def __init__(self, workdir: epath.Path, step: int):
        self._path = workdir / "metrics.jsonl"
        self._lines: list[str] = []
        if self._path.exists():
            for line in self._path.read_text().splitlines():
                if line.endswith("}") and json.loads(line)["step"] <= step:
                    self._lines.append(line)
        self._write()
        self._events = _Events(str(workdir / "tensorboard"), step) if is_main() else None

    def add(self, step: int, scalars: Mapping[str, float]) -> None:
        """Records scalars of one step; a value that is not finite becomes null."""
        row = {name: float(value) if math.isfinite(value) else None for name, value in scalars.items()}
        self._lines.append(json.dumps({"step": step, **row}))
        self._write()
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

    def _write(self) -> None:
        if is_main():
            # Whole, as gs:// cannot append, and under another name first: a kill must not cost the lines before it.
            write_text(self._path, "".join(f"{line}\n" for line in self._lines))


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
