"""Send training curves to an experiment tracker (W&B or Trackio, which share an API).

Each arm is a run of the tracker, and all arms are in one group.

The tracker's package runs in its own process; a thread with a bounded queue feeds it. If the process fails or hangs,
training neither waits nor stops, and the first problem is printed.
"""

import contextlib
import json
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Iterable, Mapping
from typing import IO, Any

from eeg2text_jax.files import content_digest
from eeg2text_jax.parallel.distributed import is_main
from eeg2text_jax.stores.address import address_of
from eeg2text_jax.study.configuration import to_json
from eeg2text_jax.study.places import PLACES, without_folders
from eeg2text_jax.study.study import Study

PROJECT = "eeg2text"
MOST_WAITING = 1000  # maximum number of queued lines; further lines are dropped
PATIENCE = 30.0  # seconds that the tracker has after training to send the queued lines


class Tracker:
    """Send scalars to a tracker; each arm is a run. Use as a context manager; no method raises.

    Args:
      wanted: `wandb` or `trackio`, optionally with a project (`wandb:PROJECT`); "" for no tracker.
      place: path or URL of the workdir; its last part names the group.
      folder: a folder for files that the tracker writes.
      arms: names of the arms.
      config: the configuration as JSON, which the tracker shows.
    """

    def __init__(self, wanted: str, place: str, folder: str, arms: Iterable[str], config: Mapping[str, Any]):
        self._package, _, project = wanted.partition(":")
        self._arms = list(arms)
        group = os.path.basename(os.path.normpath(place)) or "run"
        mark = content_digest([place, dict(config)])[:8]
        # Workdir and configuration identify a run, so a resumed run continues the same runs of the tracker.
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
        """Queue the scalars of one step without blocking: `NAME/ARM` for the run of that arm, others for all runs."""
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
        """Start the tracker's process and send it the queued lines until the end (runs in the thread)."""
        try:
            command = [sys.executable, "-m", "eeg2text_jax.training.tracker_process"]
            pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
            self._process = subprocess.Popen(command, text=True, errors="replace", **pipes)
            errors: list[str] = []
            listener = threading.Thread(target=_read_all, args=(self._process.stderr, errors), daemon=True)
            listener.start()
            self._feed(self._process)
            status = self._process.wait()
            listener.join(1.0)
            if status > 0:
                reason = next((line.strip() for line in reversed(errors) if line.strip()), f"status {status}")
                self._report_once(f"ended with an error ({reason[:200]})")
        except (OSError, ValueError) as error:
            self._report_once(f"could not be started ({error})")

    def _feed(self, process: "subprocess.Popen[str]") -> None:
        """Write queued lines to the process until the end, or until its pipe breaks."""
        with contextlib.suppress(BrokenPipeError, ValueError):
            while (line := self._lines.get()) is not None:
                print(line, file=process.stdin, flush=True)
        with contextlib.suppress(BrokenPipeError, ValueError):
            process.stdin.close()

    def _report_once(self, problem: str) -> None:
        """Print a problem unless one was printed before."""
        if not self._has_reported:
            self._has_reported = True
            print(
                f"{self._package}: {problem}; training is not affected; metrics.jsonl and TensorBoard have every line."
            )


def _read_all(pipe: IO[str], lines: list[str]) -> None:
    with pipe:
        lines.extend(pipe)


def tracker_of(study: Study) -> Tracker:
    """Return the tracker that `train.tracker` names; on other hosts than the first it sends nothing."""
    root, config = str(study.workdir.root), study.config
    wanted = config.train.tracker if is_main() else ""
    published = without_folders(json.loads(to_json(config.document)), PLACES)
    return Tracker(wanted, address_of(root), root, map(str, study.arms), published)
