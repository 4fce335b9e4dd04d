"""A lost host: what the process of another one says, and with which status it ends. Nothing here imports JAX."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from eeg2text_jax.base.devices.supervisor import lost_host
from eeg2text_jax.base.errors import HostLost

ROOT = Path(__file__).parents[2]
# What JAX 0.10.2 (jaxlib's client.h) writes before it aborts.
ABORT = (
    "F1124 client.h:80] Terminating process because the JAX distributed service detected fatal errors. absl::Status: "
)
UNHEALTHY = f"""{ABORT}UNAVAILABLE: The following tasks are unhealthy (stopped sending heartbeats):
1
3
The tasks have crashed. Check the task logs for an earlier error.

RPC: /xla.coordination.CoordinationService/PollForError
*** Check failure stack trace: ***
    @     0x7fa1e0e40634  absl::lts_20260107::log_internal::LogMessage::SendToLog()
"""
SILENT = f"{ABORT}DEADLINE_EXCEEDED: Deadline Exceeded\n\nRPC: /xla.coordination.CoordinationService/Heartbeat\n"
SLOW = "INTERNAL: Gloo context initialization failed: DEADLINE_EXCEEDED: GetKeyValue() timed out with key: cpu:0,1/3"
NEVER_CAME = f"{ABORT}DEADLINE_EXCEEDED: Deadline Exceeded\n\nRPC: /xla.coordination.CoordinationService/RegisterTask\n"


def test_the_lost_host_is_named():
    assert lost_host(UNHEALTHY, ["a", "b", "c", "d"]).startswith("host 1 (b) and 3 (d) ended or does not answer")
    assert lost_host(SILENT, ["a", "b"]).startswith("host 0 (a) ended or does not answer")
    assert lost_host(UNHEALTHY, []).startswith("host 1 and 3 ended")
    assert "not all hosts came in time (parallel.startup)" in lost_host(NEVER_CAME, [])
    assert lost_host("F1124 hlo.cc:1] Check failed: x == y", ["a", "b"]) == ""
    assert all("\n" not in lost_host(log, ["a", "b", "c", "d"]) for log in (UNHEALTHY, SILENT, NEVER_CAME))


def start(work: str) -> subprocess.Popen:
    program = f"""
import os, sys, time
from eeg2text_jax.base.errors import UserError
from eeg2text_jax.base.devices import supervisor
class JaxRuntimeError(RuntimeError): pass
def work():
    {work}
supervisor.supervised("run", work, 0.1)
print("done", flush=True)
"""
    command = [sys.executable, "-c", program]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.parametrize(
    ("work", "status", "said"),
    [
        (f"os.write(2, {UNHEALTHY.encode()!r}); os.abort()", HostLost.status, "eeg2text run: host 1 and 3 ended"),
        ("os.write(2, b'Check failed: x == y'); os.abort()", 128 + signal.SIGABRT, "Check failed: x == y"),
        ("os.kill(os.getpid(), 9)", 128 + signal.SIGKILL, "eeg2text run: was killed"),
        ("raise UserError('no room')", 2, "no room"),
        (f"raise JaxRuntimeError({SLOW!r})", HostLost.status, "a host did not answer in time"),
        ("raise JaxRuntimeError('RESOURCE_EXHAUSTED: 5 GB')", 1, "RESOURCE_EXHAUSTED: 5 GB"),
        ("sys.stderr.write('seen')", 0, "seen"),
    ],
)
def test_status_and_sentence(work, status, said):
    with start(work) as host:
        printed, wrong = host.communicate(timeout=60)
    assert host.returncode == status
    assert said in wrong
    assert "    @ " not in wrong
    assert printed == ("" if status else "done\n")


def test_a_process_that_waits_for_others_after_its_error_is_ended():
    with start("import atexit; atexit.register(time.sleep, 600); raise UserError('no room')") as host:
        assert host.wait(60) == 2


def test_the_worker_ends_with_its_parent():
    with start("print(os.getpid(), flush=True); time.sleep(600)") as host:
        worker = int(host.stdout.readline())
        host.kill()
    for _ in range(200):
        try:
            if Path(f"/proc/{worker}/stat").read_text().split()[2] == "Z":
                return  # ended, and nobody has asked for its status
            os.kill(worker, 0)
        except (ProcessLookupError, FileNotFoundError):
            return
        time.sleep(0.05)
    pytest.fail("still there")
