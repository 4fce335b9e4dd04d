"""Jobs of the page: a visitor's files in a folder of their own, read by a process with limits, then removed."""

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

BYTES = 64 * 2**20  # of one file
SECONDS = {"look": 60, "judge": 180}  # of computing
PATIENCE = 5  # times as long a busy machine may take
POLL = 0.5
FAILED = "the page could not {do} these files; this is a fault of the program, not of the files: please report it."
TOO_LONG = "the job takes more than {} s; judge the files with `eeg2text audit` on a machine of yours."


@dataclasses.dataclass(frozen=True)
class Progress:
    """The last line that the worker printed, and the seconds from the start of the job until now."""

    line: str
    seconds: float


@dataclasses.dataclass(frozen=True)
class Answer:
    """The result of the worker, and the report as text if it wrote one."""

    found: dict[str, Any]
    report: str = ""


def run(
    do: str, uploads: Mapping[str, str | None], request: Mapping[str, Any], seconds: int | None = None
) -> Iterator[Progress | Answer]:
    """Read (`look`) or `judge` the uploads, given by role: yield progress about twice a second, then the answer.

    If the job is refused, the answer's field `refused` holds the reason, one sentence. All files are removed.
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
    """Copy uploads under the names of their roles; raise a UserError if one is missing or too large."""
    if not uploads.get(ROLES[0]):
        raise UserError("there is no file of predictions; drop one first.")
    for role in (*ROLES, REFERENCES):
        upload = uploads.get(role)
        if not upload:
            continue
        if not os.path.isfile(upload):
            raise UserError(f"{role}: the upload is no longer here, as none is kept for long; drop it again.")
        if (size := os.path.getsize(upload)) > BYTES:
            raise UserError(f"{role}: {size / 2**20:.0f} MiB; this page takes files of {BYTES // 2**20} MiB.")
        shutil.copyfile(upload, folder / role)


def _work(folder: Path, request: dict[str, Any], limit: int) -> Iterator[Progress | Answer]:
    start = time.monotonic()
    process = _start(folder)
    try:
        with contextlib.suppress(BrokenPipeError):  # it died at once, which is said below
            process.stdin.write(json.dumps(request))
            process.stdin.close()
        lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        threading.Thread(target=_pass_on, args=(process.stdout, lines), daemon=True).start()
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
    """Start the worker in its own process group, with one thread and the modules of this process."""
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


def _pass_on(source: IO[str], lines: "queue.SimpleQueue[str]") -> None:
    for line in source:
        lines.put(line)


def _end(process: subprocess.Popen) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    process.stdout.close()
