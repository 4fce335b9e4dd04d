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
PATIENCE = 5  # limit of wall-clock time, in multiples of the limit of CPU time: the machine may be busy
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


def run(
    do: str, uploads: Mapping[str, str | None], request: Mapping[str, Any], seconds: int | None = None
) -> Iterator[Progress | Answer]:
    """Read (`look`) or `judge` uploads: yield progress about twice a second, then the answer, and remove all copies.

    `uploads`: role (`eeg`, `control`, `references`) -> path. `request`: the worker's `Request`. `seconds`: limit of CPU
    time (None: from `SECONDS`).
    """
    limit = SECONDS[do] if seconds is None else seconds
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
    try:
        with contextlib.suppress(BrokenPipeError):  # a worker that died at once is reported below
            process.stdin.write(json.dumps(request))
            process.stdin.close()
        lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        threading.Thread(target=_forward_lines, args=(process.stdout, lines), daemon=True).start()
        last = "starting"
        while process.poll() is None:
            passed = time.monotonic() - start
            if passed > PATIENCE * limit:
                yield _refused(TOO_LONG.format(limit))
                return
            with contextlib.suppress(queue.Empty):
                last = lines.get(timeout=POLL).strip() or last
            yield Progress(last, passed)
    finally:
        _end(process)
    if process.returncode == -signal.SIGXCPU:
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


def _end(process: subprocess.Popen) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    process.stdout.close()
