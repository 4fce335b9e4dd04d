"""Run a command of several hosts in a child process, forked before JAX is imported.

When a host is lost, JAX's coordination service aborts all others in C++, where no Python can act: the parent
reads its log, says why in one sentence, and exits with a status that tells scripts to restart.
"""

import contextlib
import ctypes
import os
import re
import resource
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from eeg2text_jax.base.errors import HostLost, Terminated, UserError, one_line

GRACE = 3.0  # seconds that a failed child may wait for the other hosts before it is killed
# Words in the errors of collectives that fail because of another host. Gloo (CPUs) waits 30 s for a host to connect.
_COLLECTIVE = re.compile("gloo|coordination|DEADLINE_EXCEEDED|UNAVAILABLE", re.IGNORECASE)
NAMES: list[Path] = []  # in the child: the file for the hosts' names, one per line


def supervised(name: str, work: Callable[[], None], patience: float) -> None:
    """Call `work` in a child process and return there; the parent exits with the status of the command `name`.

    In `patience` seconds JAX's coordination service notices a lost host.
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
        if type(error).__name__ != "JaxRuntimeError" or not _COLLECTIVE.search(str(error)):
            _write_status(folder, status_of(error))
            raise
        time.sleep(patience)  # if a host is lost, this process is ended meanwhile
        _write_status(folder, HostLost.status)
        raise HostLost(
            f"a host did not answer in time, but no host is known to have failed ({one_line(error)}); start the same "
            "command on all hosts again: it resumes from the newest checkpoint."
        ) from error


def status_of(error: BaseException) -> int:
    if isinstance(error, UserError):
        return error.status
    return 143 if isinstance(error, Terminated) else 130 if isinstance(error, KeyboardInterrupt) else 1


def _become_child(folder: Path) -> None:
    """Let Python write to stderr, and C++ to the file `log`; end with the parent."""
    with contextlib.suppress(OSError, AttributeError):  # prctl exists on Linux only
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    most = resource.getrlimit(resource.RLIMIT_CORE)[1]
    resource.setrlimit(resource.RLIMIT_CORE, (0, most))  # else an abort writes the whole memory to disk
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
    """Forward signals to the child; when it ends, say why unless it did, and exit with its status."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: os.kill(child, number))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal sends it to the child
    ended, failed = 0, 0.0
    while not ended:
        ended, code = os.waitpid(child, os.WNOHANG)
        written = _read(folder / "status")
        if not ended and written not in ("", "0"):
            failed = failed or time.monotonic()
            if time.monotonic() - failed > GRACE:  # the child waits for the other hosts to end
                os.kill(child, signal.SIGKILL)
        time.sleep(0.0 if ended else 0.05)
    status, log = os.waitstatus_to_exitcode(code), _read(folder / "log")
    if written:
        status = int(written)
    elif status:
        lost = lost_host(log, _read(folder / "names").splitlines()) if status == -signal.SIGABRT else ""
        sys.stderr.write(f"eeg2text {name}: {lost}\n" if lost else log)
        if status == -signal.SIGKILL:
            sys.stderr.write(f"eeg2text {name}: was killed (by the system, if memory was short).\n")
        status = HostLost.status if lost else status if status > 0 else 128 - status
    shutil.rmtree(folder, ignore_errors=True)
    sys.stderr.flush()
    os._exit(status)


def _read(path: Path) -> str:
    return path.read_text(errors="replace") if path.exists() else ""


def lost_host(log: str, names: list[str]) -> str:
    """Return a message about a lost host by the log of JAX's coordination service, or ""."""
    if "JAX distributed service detected fatal errors" not in log:
        return ""
    if "RegisterTask" in log:
        return (
            "not all hosts came in time (parallel.startup): one was not started, or cannot reach the first host; "
            "read the messages of the other hosts, and start the same command on all hosts again."
        )
    unhealthy = re.search(r"stopped sending heartbeats\):\n((?:.*\d+\n)+)", log)
    numbers = sorted({int(n) for n in re.findall(r"(\d+)$", unhealthy[1], re.MULTILINE)}) if unhealthy else [0]
    hosts = " and ".join(f"{n} ({names[n]})" if n < len(names) else str(n) for n in numbers)
    return (
        f"host {hosts} ended or does not answer (its own messages say why, if it had time for them); start the same "
        "command again on all hosts, or on other or fewer hosts: the run resumes from the newest checkpoint."
    )
