"""Two processes joined by jax.distributed, of which one is killed or stopped, or has another configuration."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from eeg2text_jax.errors import HostLost

ROOT = Path(__file__).parents[2]
PROGRAM = """
import os, sys, time
from ml_collections import ConfigDict
from eeg2text_jax.errors import UserError
from eeg2text_jax.parallel import distributed, supervisor
def work():
    distributed.initialize(ConfigDict({"hosts": "env", "startup": 120, "heartbeat": 4}))
    distributed.check_code({"seed": os.environ["SEED"]})
    sys.stderr.write("joined\\n")
    time.sleep(600)
try:
    supervisor.supervised("run", work, 8.0)
except UserError as error:
    sys.exit(f"eeg2text run: {error}")
"""


def start(tmp_path: Path, *seeds: str) -> list[subprocess.Popen]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    made = []
    for number, seed in enumerate(seeds):
        environment = {
            **os.environ,
            "EEG2TEXT_COORDINATOR": f"127.0.0.1:{port}",
            "EEG2TEXT_PROCESSES": str(len(seeds)),
            "EEG2TEXT_PROCESS": str(number),
            "JAX_PLATFORMS": "cpu",
            "SEED": seed,
        }
        with (tmp_path / f"log_{number}").open("w") as log:
            made.append(subprocess.Popen([sys.executable, "-c", PROGRAM], cwd=ROOT, env=environment, stderr=log,
                                         start_new_session=True))  # fmt: skip
    return made


def end(hosts: list[subprocess.Popen]) -> None:
    for host in hosts:
        if host.poll() is None:
            os.killpg(host.pid, signal.SIGKILL)
        host.wait()


@pytest.mark.parametrize(("victim", "fault"), [(1, signal.SIGKILL), (0, signal.SIGKILL), (0, signal.SIGSTOP)])
def test_a_lost_host_ends_the_others_with_one_sentence(tmp_path, victim, fault):
    hosts = start(tmp_path, "1", "1")
    try:
        while not all("joined" in (tmp_path / f"log_{n}").read_text() for n in range(2)):
            assert all(host.poll() is None for host in hosts), (tmp_path / "log_0").read_text()
            time.sleep(0.05)
        os.killpg(hosts[victim].pid, fault)
        begun = time.monotonic()
        status = hosts[1 - victim].wait(60)
        assert time.monotonic() - begun < 20
    finally:
        end(hosts)
    joined, said = (tmp_path / f"log_{1 - victim}").read_text().splitlines()
    assert (joined, status) == ("joined", HostLost.status)
    assert said.startswith(f"eeg2text run: host {victim} ({socket.gethostname()}) ended or does not answer"), said


def test_a_host_with_another_configuration_is_refused_by_all(tmp_path):
    hosts = start(tmp_path, "1", "2")
    try:
        assert [host.wait(120) for host in hosts] == [2, 2]
    finally:
        end(hosts)
    for number in range(2):
        (said,) = (tmp_path / f"log_{number}").read_text().splitlines()
        assert f"host 1 ({socket.gethostname()}): has another config.seed" in said
