"""Two processes joined by jax.distributed, of which one is killed or stopped, or has another configuration."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from eeg2text_jax.base.errors import HostLost
from eeg2text_testing.cluster import free_port, place_in_cluster

ROOT = Path(__file__).parents[2]
PROGRAM = """
import os, sys, time
from ml_collections import ConfigDict
from eeg2text_jax.base.errors import UserError
from eeg2text_jax.base.devices import hosts as distributed, supervisor
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
    port, made = free_port(), []
    for number, seed in enumerate(seeds):
        place = place_in_cluster(number, len(seeds), port)
        environment = {**os.environ, **place, "JAX_PLATFORMS": "cpu", "SEED": seed}
        with (tmp_path / f"log_{number}").open("w") as log:
            made.append(subprocess.Popen([sys.executable, "-c", PROGRAM], cwd=ROOT, env=environment, stderr=log,
                                         start_new_session=True))  # fmt: skip
    return made


def end(hosts: list[subprocess.Popen]) -> None:
    for host in hosts:
        if host.poll() is None:
            os.killpg(host.pid, signal.SIGKILL)
        host.wait()


FAULTS = [(1, signal.SIGKILL), (0, signal.SIGKILL), (0, signal.SIGSTOP)]


@pytest.fixture(scope="module")
def ended(tmp_path_factory):
    """By fault: log, status and seconds of the host that is left. Missing heartbeats are waited for side by side."""
    pairs = {}
    try:
        for fault in FAULTS:
            folder = tmp_path_factory.mktemp("pair")
            pairs[fault] = folder, start(folder, "1", "1")
        for folder, hosts in pairs.values():
            while not all("joined" in (folder / f"log_{n}").read_text() for n in range(2)):
                assert all(host.poll() is None for host in hosts), (folder / "log_0").read_text()
                time.sleep(0.05)
        for (victim, fault), (_, hosts) in pairs.items():
            os.killpg(hosts[victim].pid, fault)
        begun, found = time.monotonic(), {}
        for (victim, fault), (folder, hosts) in pairs.items():
            status = hosts[1 - victim].wait(60)
            found[victim, fault] = folder / f"log_{1 - victim}", status, time.monotonic() - begun
    finally:
        end([host for _, hosts in pairs.values() for host in hosts])
    return found


@pytest.mark.parametrize(("victim", "fault"), FAULTS)
def test_a_lost_host_ends_the_others_with_one_sentence(ended, victim, fault):
    log, status, seconds = ended[victim, fault]
    assert seconds < 20
    joined, said = log.read_text().splitlines()
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
