"""Training curves: one JSON object a line in `metrics.jsonl`, and TensorBoard events beside it."""

import json
import math
from collections.abc import Mapping

from etils import epath
from tensorboardX import SummaryWriter

from eeg2text_jax.parallel.distributed import is_main
from eeg2text_jax.workdir import write_text


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
        self._tensorboard = SummaryWriter(str(workdir / "tensorboard"), purge_step=step, write_to_disk=is_main())
        self._write()

    def add(self, step: int, scalars: Mapping[str, float]) -> None:
        """Records scalars of one step; a value that is not finite becomes null."""
        row = {name: float(value) if math.isfinite(value) else None for name, value in scalars.items()}
        self._lines.append(json.dumps({"step": step, **row}))
        self._write()  # first: a full disk is an error here, and a silent thread's in TensorBoard's writer
        for name, value in scalars.items():
            self._tensorboard.add_scalar(name, value, step)

    def __enter__(self) -> "MetricsLog":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            self._tensorboard.close()
        except OSError:  # a full disk; where another error is on its way, that one says more
            if kind is None:
                raise

    def _write(self) -> None:
        if is_main():
            # Whole, as gs:// cannot append, and under another name first: a kill must not cost the lines before it.
            write_text(self._path, "".join(f"{line}\n" for line in self._lines))
