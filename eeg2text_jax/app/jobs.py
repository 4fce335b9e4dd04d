"""Jobs of the web page: copy a visitor's files to a folder, judge them in a worker process with limits, delete them."""

import contextlib
import dataclasses
import json
import os
import queue
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

from eeg2text_jax.app.worker import ANSWER, REFERENCES, ROLES
from eeg2text_jax.errors import UserError

BYTES = 64 * 2**20  # largest size of an upload, in bytes
SECONDS = {"look": 60, "judge": 180}  # kind of job -> limit of its CPU time in seconds
PATIENCE = 2  # limit of wall-clock time, in multiples of the limit of CPU time: the machine may be busy
EACH = 2  # most jobs of a visitor that run or wait
GONE = 10  # seconds without a question after which a waiting job has no visitor any more
POLL = 0.5  # seconds between reports of progress
FAILED = "the page could not {do} these files; this is a fault of the program, not of the files: please report it."
TOO_LONG = "the job takes more than {} s; judge the files with `eeg2text audit` on a machine of yours."


@dataclasses.dataclass(frozen=True)
class Progress:
    """The progress of a running job."""

    line: str  # the last line that the worker printed
    seconds: float  # time since the start of the job


@dataclasses.dataclass(frozen=True)
class Answer:
    """The result of a finished or refused job."""

    found: dict[str, Any]  # JSON answer of the worker; a refused job has the reason, a sentence, as `refused`
    report: str = ""  # HTML, "" without a report


@dataclasses.dataclass(eq=False)
class _Job:
    visitor: str
    until: float  # time until which it counts: its visitor may be gone, its process killed


class Turns:
    """One job at a time, in turns: next is a job of the visitor whose last job ended first, or who had none.

    So a visitor waits for the running job and for at most one job of each other visitor, however many those ask for.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ended: dict[str, float] = {}  # visitor -> when the last job ended
        self._waiting: list[_Job] = []  # in order of arrival
        self._running: _Job | None = None

    def enter(self, visitor: str) -> _Job:
        """Return a job that waits. Raises UserError if `EACH` jobs of the visitor run or wait."""
        with self._lock:
            self._drop_gone()
            if sum(one.visitor == visitor for one in (*self._waiting, self._running) if one) >= EACH:
                raise UserError(f"{EACH} jobs of yours run or wait already; wait until one is done, then try again.")
            self._waiting.append(job := _Job(visitor, time.monotonic() + GONE))
            return job

    def begins(self, job: _Job, seconds: float) -> bool:
        """Return whether it is the turn of a waiting job; if so, it has `seconds`. Ask again within `GONE`."""
        with self._lock:
            job.until = time.monotonic() + GONE
            self._waiting += [job] * (job not in self._waiting)
            self._drop_gone()
            if self._running or job is not min(self._waiting, key=lambda one: self._ended.get(one.visitor, 0.0)):
                return False
            self._waiting.remove(job)
            self._running, job.until = job, job.until + seconds
            return True

    def leave(self, job: _Job) -> None:
        with self._lock:
            if job is self._running:
                self._running = None
                hour_ago = time.monotonic() - 3600
                self._ended = {name: at for name, at in self._ended.items() if at > hour_ago}
                self._ended[job.visitor] = time.monotonic()
            elif job in self._waiting:
                self._waiting.remove(job)

    def _drop_gone(self) -> None:
        now = time.monotonic()
        self._waiting = [one for one in self._waiting if one.until > now]
        if self._running and self._running.until < now:
            self._ended[self._running.visitor], self._running = now, None


_TURNS = Turns()


def run(
    do: str,
    uploads: Mapping[str, str | None],
    request: Mapping[str, Any],
    seconds: int | None = None,
    visitor: str = "",
) -> Iterator[Progress | Answer]:
    """Read (`look`) or `judge` uploads: yield progress about twice a second, then the answer, and remove all copies.

    `uploads`: role (`eeg`, `control`, `references`) -> path. `request`: the worker's `Request`. `seconds`: limit of CPU
    time (None: from `SECONDS`). The visitors' jobs take turns.
    """
    limit = SECONDS[do] if seconds is None else seconds
    start = time.monotonic()
    try:
        job = _TURNS.enter(visitor)
    except UserError as error:
        yield _refused(str(error))
        return
    try:
        while not _TURNS.begins(job, PATIENCE * limit):
            yield Progress("waiting for other visitors' files", time.monotonic() - start)
            time.sleep(POLL)
        yield from _in_turn(do, uploads, request, limit)
    finally:
        _TURNS.leave(job)


def _in_turn(
    do: str, uploads: Mapping[str, str | None], request: Mapping[str, Any], limit: int
) -> Iterator[Progress | Answer]:
    with tempfile.TemporaryDirectory(prefix="eeg2text-job-") as name:
        folder = Path(name)
        try:
            place(uploads, folder)
        except UserError as error:
            yield _refused(str(error))
            return
        yield from _work(folder, {"do": do, "seconds": limit, **request}, limit)


def _refused(sentence: str) -> Answer:
    return Answer({"refused": sentence, "columns": []})


def place(uploads: Mapping[str, str | None], folder: Path) -> None:
    """Copy uploads, role -> path, to files named by role.

    Raises UserError if there are no predictions, or an upload is gone or too large.
    """
    if not uploads.get(ROLES[0]):
        raise UserError("there is no file of predictions; add one first.")
    for role in (*ROLES, REFERENCES):
        upload = uploads.get(role)
        if not upload:
            continue
        if not os.path.isfile(upload):
            raise UserError(f"{role}: the upload was deleted (it is kept for minutes only); upload the file again.")
        if (size := os.path.getsize(upload)) > BYTES:
            raise UserError(f"{role}: {size / 2**20:.0f} MiB; this page takes files of {BYTES // 2**20} MiB at most.")
        shutil.copyfile(upload, folder / role)


def _work(folder: Path, request: dict[str, Any], limit: int) -> Iterator[Progress | Answer]:
    start = time.monotonic()
    process = _start(folder)
    killer = threading.Timer(PATIENCE * limit, _kill, [process])  # also if nobody asks for progress any more
    killer.start()
    try:
        with contextlib.suppress(BrokenPipeError):  # a worker that died at once is reported below
            process.stdin.write(json.dumps(request))
            process.stdin.close()
        lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        threading.Thread(target=_forward_lines, args=(process.stdout, lines), daemon=True).start()
        last = "starting"
        while process.poll() is None:
            with contextlib.suppress(queue.Empty):
                last = lines.get(timeout=POLL).strip() or last
            yield Progress(last, time.monotonic() - start)
    finally:
        killer.cancel()
        _end(process)
    if process.returncode == -signal.SIGXCPU or time.monotonic() - start > PATIENCE * limit:
        yield _refused(TOO_LONG.format(limit))
        return
    answer, report = folder / ANSWER, folder / "report.html"
    if process.returncode or not answer.is_file():
        yield _refused(FAILED.format(do="read" if request["do"] == "look" else "judge"))
        return
    found = json.loads(answer.read_text(encoding="utf8"))
    yield Answer(found, report.read_text(encoding="utf8") if report.is_file() else "")


def _start(folder: Path) -> subprocess.Popen:
    """Start `app.worker` in its own process group, with single-threaded linear algebra and our `sys.path`."""
    path = os.pathsep.join(os.path.abspath(place) for place in sys.path if place)
    environment = {
        **{name: value for name, value in os.environ.items() if name in ("PATH", "HOME", "LANG", "TMPDIR")},
        **dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1"),
        "PYTHONPATH": path,
        "MPLBACKEND": "Agg",
    }
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "eeg2text_jax.app.worker"],
        cwd=folder,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )


def _forward_lines(source: IO[str], lines: "queue.SimpleQueue[str]") -> None:
    for line in source:
        lines.put(line)


def _kill(process: subprocess.Popen) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def _end(process: subprocess.Popen) -> None:
    _kill(process)
    process.wait()
    process.stdout.close()
