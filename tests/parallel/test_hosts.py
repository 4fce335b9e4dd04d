"""Two processes joined by jax.distributed give what one process with the same devices gives."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from eeg2text_jax.errors import UserError
from eeg2text_jax.parallel.distributed import initialize

SCRIPT = Path(__file__).with_name("two_hosts.py")


def start(out: Path, devices: int, **environment: str) -> subprocess.Popen:
    flags = f"--xla_force_host_platform_device_count={devices}"
    root = str(SCRIPT.parents[2])
    env = {**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu", "PYTHONPATH": root, **environment}
    return subprocess.Popen([sys.executable, str(SCRIPT), str(out)], env=env, stderr=subprocess.PIPE, text=True)


def finish(process: subprocess.Popen) -> None:
    _, errors = process.communicate(timeout=600)
    assert process.returncode == 0, errors[-3000:]


def test_two_hosts_are_one_machine(tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    common = {"EEG2TEXT_COORDINATOR": f"127.0.0.1:{port}", "EEG2TEXT_PROCESSES": "2"}
    hosts = [start(tmp_path / "two", 4, EEG2TEXT_PROCESS=str(i), **common) for i in range(2)]
    for process in hosts:
        finish(process)
    finish(start(tmp_path / "one", 8))
    one = json.loads((tmp_path / "one.0.json").read_text())
    both = [json.loads((tmp_path / f"two.{i}.json").read_text()) for i in range(2)]
    assert [host["devices"] for host in both] == [[4, 8], [4, 8]]
    assert [host["main"] for host in both] == [True, False]
    assert [host["found_the_first"] for host in both] == [False, True]
    for host in both:
        np.testing.assert_allclose(host["losses"], one["losses"], rtol=1e-6)
        np.testing.assert_array_equal(host["tokens"], one["tokens"])


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        ({}, "needs EEG2TEXT_COORDINATOR, EEG2TEXT_PROCESSES, EEG2TEXT_PROCESS"),
        ({"EEG2TEXT_COORDINATOR": "x:1", "EEG2TEXT_PROCESSES": "two", "EEG2TEXT_PROCESS": "0"}, "expected a number"),
        ({"EEG2TEXT_COORDINATOR": "x:1", "EEG2TEXT_PROCESSES": "2", "EEG2TEXT_PROCESS": "2"}, "a number below"),
    ],
)
def test_an_incomplete_environment_is_said(monkeypatch, environment, message):
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(UserError, match=message):
        initialize("env")


def test_one_host_needs_nothing_and_unknown_clusters_are_refused():
    initialize("one")
    with pytest.raises(UserError, match="expected 'one', 'auto' or 'env'"):
        initialize("slurm")
