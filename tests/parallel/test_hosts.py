"""Two processes joined by jax.distributed run as one process with the same devices does."""

import os
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest
from jax.experimental import multihost_utils
from tiny_run import ROOT, as_flag, tiny_config

from eeg2text_jax.base.devices import hosts as distributed
from eeg2text_jax.base.devices.hosts import initialize, main_first
from eeg2text_jax.base.errors import HostLost, UserError
from eeg2text_jax.base.stores.buckets import at_hand
from eeg2text_jax.commands import cli
from eeg2text_jax.commands import run as commands
from eeg2text_jax.instrument.predictions.file import read_predictions
from eeg2text_testing.bucket_servers import s3_server
from eeg2text_testing.cluster import free_port, place_in_cluster
from eeg2text_testing.forked_runs import logged_metrics

CHANGES = {
    "parallel__arms": "vmap",
    "parallel__mesh": (2, 4),
    "model__encoder_layers": 0,
    "optim__name": "sgd",
    "train__steps": 4,
    "grid__eval_conditions": ("noise",),  # without EEG there is no audit to wait for
    "decode__max_length": 8,
}


WAVES = {
    "data__raw__features": "waves",
    "data__raw__window": 0.15,
    "data__max_words": 200,
    "data__synthetic__features": 4,
    "batch__buckets": ((200, 56),),
    "model__encoder": "conv",
    "model__encoder_width": 16,
    "grid__train_conditions": ("eeg", "noise_spectrum"),
    "grid__eval_conditions": ("noise_spectrum", "shuffled"),
}


def run(workdir, hosts: str, changes: dict[str, object]) -> list[str]:
    return ["run", as_flag(**{**CHANGES, **changes}, parallel__hosts=hosts), f"--workdir={workdir}"]


def start_host(
    workdir, number: int, port: int, environment: dict[str, str], changes: dict[str, object]
) -> subprocess.Popen:
    """One of two hosts with four devices each, and with a cache of its own."""
    flags = os.environ["XLA_FLAGS"].replace("device_count=8", "device_count=4")
    env = {**os.environ, "XLA_FLAGS": flags, **place_in_cluster(number, 2, port), **environment}
    command = [sys.executable, "-m", "eeg2text_jax", *run(workdir, "env", changes)]
    return subprocess.Popen(command, cwd=ROOT, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


@pytest.mark.parametrize("changes", [{}, pytest.param(WAVES, marks=pytest.mark.slow)], ids=["words", "waves"])
def test_two_hosts_with_a_bucket_run_as_one_machine(changes, tmp_path, monkeypatch):
    port = free_port()
    with s3_server() as server:
        caches = [server.environment | {"EEG2TEXT_BUCKET_CACHE": str(tmp_path / f"cache_{n}")} for n in range(2)]
        hosts = [start_host(server.address("two"), number, port, caches[number], changes) for number in range(2)]
        try:
            assert cli.main(run(tmp_path / "one", "one", changes)) == 0
            outputs = [host.communicate(timeout=300)[0] for host in hosts]
        finally:
            for host in hosts:
                host.kill()
                host.stdout.close()
        for name, value in (server.environment | {"EEG2TEXT_BUCKET_CACHE": str(tmp_path / "two")}).items():
            monkeypatch.setenv(name, value)
        two = Path(at_hand(server.address("two"))) if "wrote" in outputs[0] else None
    assert [host.returncode for host in hosts] == [0, 0], outputs[0][-3000:] + outputs[1][-3000:]
    assert "on 8 x cpu (2 along arm, 4 along data)" in outputs[0]
    for said in ("preparing", "training 2 arms", "train: 4/4", "decode under noise", "wrote", "split unique_text"):
        assert (said in outputs[0], said in outputs[1]) == (True, False), said

    one = tmp_path / "one"
    assert files_below(one) == files_below(two) - {".lock"}, "the same files, and nothing unfinished"
    ours, theirs = map(logged_metrics, (one, two))
    assert [row.keys() for row in ours] == [row.keys() for row in theirs]
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose([*b.values()], [*a.values()], rtol=1e-5)
    ours, theirs = (read_predictions(root / "predictions.jsonl").predictions for root in (one, two))
    follower = tmp_path / "cache_1/runs_of_host_1/s3/recordings/two"
    assert (follower / "data.h5").exists()
    assert sorted(path.name for path in (follower / "checkpoints").iterdir()) == ["step_4"], "only what was restored"
    written = [[(p.sample_id, p.mode, p.prediction_tokens) for p in rows] for rows in (ours, theirs)]
    assert written[0] == written[1]
    np.testing.assert_allclose(*[[p.nll for p in rows if p.nll] for rows in (ours, theirs)], rtol=1e-5)


def files_below(root) -> set[str]:
    """Relative names, but those of array chunks and event files, which carry process and time."""
    names = {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}
    return {name for name in names if not name.startswith(("checkpoints/", "tensorboard/"))}


@pytest.mark.parametrize(("process", "message"), [(0, "no room"), (1, "process 0 .the first host. failed")])
def test_a_failure_of_the_first_host_ends_the_others(monkeypatch, process, message):
    def fail():
        raise UserError("no room")

    monkeypatch.setattr(jax, "process_count", lambda: 2)
    monkeypatch.setattr(jax, "process_index", lambda: process)
    monkeypatch.setattr(multihost_utils, "broadcast_one_to_all", lambda value: np.int32(1))
    with pytest.raises(UserError, match=message):
        main_first(fail if process == 0 else lambda: pytest.fail("the others must not begin"))


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
        initialize(tiny_config(parallel__hosts="env").parallel)


def test_a_host_joins_the_others_before_it_imports_much(monkeypatch, tmp_path, capsys):
    def join(parallel):
        joined.append((parallel.hosts, "eeg2text_jax.runs.pipeline" in sys.modules))
        raise HostLost("nobody else came.")

    joined = []
    monkeypatch.setattr(commands, "supervised", lambda name, work, patience: work())  # in this process
    monkeypatch.setattr(distributed, "join", join)
    monkeypatch.delitem(sys.modules, "eeg2text_jax.runs.pipeline", raising=False)
    assert cli.main(run(tmp_path / "run", "env", {})) == HostLost.status
    assert joined == [("env", False)]
    assert capsys.readouterr().err == "eeg2text run: nobody else came.\n"


def test_a_host_that_does_not_start_its_devices_counts_as_lost(monkeypatch):
    def devices():
        raise RuntimeError("DEADLINE_EXCEEDED: Getting global topology timed out")

    monkeypatch.setattr(jax, "devices", devices)
    with pytest.raises(UserError, match="JAX finds no such device") as alone:
        distributed.check_devices()
    assert not isinstance(alone.value, HostLost)
    monkeypatch.setattr(jax.distributed, "is_initialized", lambda: True)
    with pytest.raises(HostLost, match=r"another host has not started its devices in time .*; start the same command"):
        distributed.check_devices()
