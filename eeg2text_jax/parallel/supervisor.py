"""Supervise the process of a run on several hosts: say in one sentence why it ended, with a status to restart on.

JAX's coordination service notices a host that died or was stopped, and then aborts the processes of all other hosts in
C++, where Python cannot handle it. So the command forks before it imports JAX: the child works, and the parent waits,
reads what the coordination service wrote, and exits with the right status.
"""

import contextlib
import ctypes
import os
import re
import resource
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from eeg2text_jax.errors import HostLost, Terminated, UserError

GRACE = 3.0  # seconds between an error of a process and its end; the other hosts may have the same error
NAMES: list[Path] = []  # in the child: where the names of the hosts are written, one a line


def supervised(name: str, work: Callable[[], None], patience: float) -> None:
    """Call `work` in a child process. Return in the child; end the parent with the status that the child should have.

    After `patience` seconds JAX's coordination service has noticed a lost host. `name` is the command, for messages.
    """
    folder = Path(tempfile.mkdtemp(prefix="eeg2text_host_"))
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child:
        _supervise(name, child, folder)
    _become_child(folder)
    try:
        work()
        _write_status(folder, 0)
    except BaseException as error:
        if type(error).__name__ == "JaxRuntimeError":  # a collective with a host that was lost
            time.sleep(patience)  # in which the coordination service ends this process
        _write_status(folder, status_of(error))
        raise


def status_of(error: BaseException) -> int:
    """Return the exit status that the command line gives an exception."""
    if isinstance(error, UserError):
        return error.status
    return 143 if isinstance(error, Terminated) else 130 if isinstance(error, KeyboardInterrupt) else 1


def _become_child(folder: Path) -> None:
    """Send Python's messages to stderr as before, and those of C++ to a file."""
    with contextlib.suppress(OSError, AttributeError):  # Linux
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: end with the parent
    most = resource.getrlimit(resource.RLIMIT_CORE)[1]
    resource.setrlimit(resource.RLIMIT_CORE, (0, most))  # an abort would dump the whole memory
    sys.stderr = os.fdopen(os.dup(2), "w", buffering=1, errors="backslashreplace")
    log = os.open(folder / "log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(log, 2)
    os.close(log)
    NAMES[:] = [folder / "names"]


def _write_status(folder: Path, status: int) -> None:
    sys.stdout.flush()
    (folder / ".status").write_text(str(status))
    (folder / ".status").rename(folder / "status")


def _supervise(name: str, child: int, folder: Path) -> None:
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: os.kill(child, number))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it to the child as well
    ended, failed = 0, 0.0
    while not ended:
        ended, code = os.waitpid(child, os.WNOHANG)
        noted = _read(folder / "status")
        if not ended and noted not in ("", "0"):
            failed = failed or time.monotonic()
            if time.monotonic() - failed > GRACE:  # it would wait for the others to end
                os.kill(child, signal.SIGKILL)
        time.sleep(0.0 if ended else 0.05)
    status, log = os.waitstatus_to_exitcode(code), _read(folder / "log")
    if noted:
        status = int(noted)
    elif status:
        lost = lost_host(log, _read(folder / "names").splitlines()) if status == -signal.SIGABRT else ""
        sys.stderr.write(f"eeg2text {name}: {lost}\n" if lost else log)
        if status == -signal.SIGKILL:
            sys.stderr.write(f"eeg2text {name}: was killed (by the system, if memory was short).\n")
        status = HostLost.status if lost else status if status > 0 else 128 - status
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()
    sys.stderr.flush()
    os._exit(status)


def _read(path: Path) -> str:
    return path.read_text(errors="replace") if path.exists() else ""


def lost_host(log: str, names: list[str]) -> str:
    """Return the sentence about a lost host, from what JAX's coordination service logged; "" if no host was lost."""
    if "JAX distributed service detected fatal errors" not in log:
        return ""
    if "RegisterTask" in log:
        return (
            "not all hosts came in time (parallel.startup): one was not started, or cannot reach the first host; "
            "look at the others and start the same command on all of them again."
        )
    unhealthy = re.search(r"stopped sending heartbeats\):\n((?:.*\d+\n)+)", log)
    numbers = sorted({int(n) for n in re.findall(r"(\d+)$", unhealthy[1], re.MULTILINE)}) if unhealthy else [0]
    said = " and ".join(f"{n} ({names[n]})" if n < len(names) else str(n) for n in numbers)
    return (
        f"host {said} ended or does not answer (its own messages say why, if it had time for them); start the same "
        "command on all hosts again, which may be others or fewer: it goes on from the newest checkpoint."
    )
