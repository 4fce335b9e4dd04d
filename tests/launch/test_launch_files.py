"""The launch files: what they run is a command line that this version takes, and the launcher reads them."""

import copy
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from eeg2text_jax.base.devices.hosts import COORDINATOR, PROCESS, PROCESSES
from eeg2text_jax.base.errors import HostLost
from eeg2text_jax.base.stores.buckets import SCHEMES, at_hand, is_address
from eeg2text_jax.commands.cli import COMMANDS
from eeg2text_jax.training.configuration import parse_config
from eeg2text_testing.bucket_servers import BUCKET, SERVERS
from eeg2text_testing.cluster import free_port, place_in_cluster
from eeg2text_testing.forked_runs import arguments

ROOT = Path(__file__).parents[2]
BENCH = ROOT / "tools/launch/bench.yaml"
FILES = [ROOT / f"tools/launch/{name}.yaml" for name in ("gpu", "tpu", "tpu_pod")]
EXTRAS = {"tpu", "cuda"}


def command_of(task: dict) -> list[str]:
    """The one `eeg2text` command of a task with its variables filled in, after the program's name."""
    lines = [line for line in task["run"].splitlines() if "/eeg2text " in line]
    assert len(lines) == 1
    filled = re.sub(r"\$\{?(\w+)\}?", lambda name: task["envs"][name[1]], lines[0])
    return shlex.split(filled)[1:]


def known_extras(names: str) -> set[str]:
    project = (ROOT / "pyproject.toml").read_text()
    assert all(re.search(rf"^{extra} = \[", project, re.MULTILINE) for extra in names.split(","))
    return {*names.split(",")}


@pytest.fixture(params=FILES, ids=lambda path: path.stem)
def task(request) -> dict:
    return yaml.safe_load(request.param.read_text())


def test_the_command_line_is_valid(task, monkeypatch):
    name, *given = command_of(task)
    assert name in COMMANDS
    monkeypatch.chdir(ROOT)
    # The default configuration has every field; which file is launched with is the user's choice.
    given = [a if not a.startswith("--config=") else "--config=configs/default.py" for a in given]
    parsed = parse_config(given, name, options=("workdir",))
    assert is_address(parsed.options["workdir"])
    assert parsed.config.model.dtype == "bfloat16"
    if task["name"] == "eeg2text-tpu-pod":
        assert (parsed.config.parallel.hosts, parsed.config.parallel.fsdp) == ("auto", True)
        assert tuple(parsed.config.parallel.mesh) == (2, 8)


def test_a_machine_is_measured_by_one_command():
    task = yaml.safe_load(BENCH.read_text())
    name, *given = command_of(task)
    parsed = parse_config([flag for flag in given if flag], name, optional=("json", "baseline", "steps"))
    assert name == "bench"
    assert is_address(parsed.options["json"])
    assert parsed.config.model.checkpoint == ""
    assert known_extras(task["envs"]["EXTRAS"])


def test_results_outlive_the_machine(task):
    """The workdir is in a bucket whose client is installed; a lost host starts the job again; nothing is mounted."""
    scheme = command_of(task)[2].removeprefix("--workdir=").partition(":")[0]
    assert f",{SCHEMES[scheme]}]'" in task["setup"]
    assert task["resources"]["job_recovery"]["recover_on_exit_codes"] == [HostLost.status]
    assert "file_mounts" not in task
    assert task["workdir"] == "."


def test_setup_installs_an_extra_that_exists(task):
    (extras,) = re.findall(r"'\.\[([\w,]+)\]'", task["setup"])
    assert known_extras(extras) & EXTRAS


def test_gpu_hosts_find_each_other():
    run = yaml.safe_load((ROOT / "tools/launch/gpu.yaml").read_text())["run"]
    assert all(f"export {name}=" in run for name in (COORDINATOR, PROCESSES, PROCESS))


def test_the_launcher_reads_them(task, tmp_path, monkeypatch):
    """By SkyPilot's own parser; it brings a hundred packages, so it is no requirement of the tests."""
    monkeypatch.setenv("HOME", str(tmp_path))
    sky = pytest.importorskip("sky", reason="SkyPilot is not installed: pip install skypilot")
    assert os.environ["HOME"] == str(tmp_path)
    read = sky.Task.from_yaml_config(copy.deepcopy(task))  # which takes out of it what it reads
    assert read.name == task["name"]
    assert read.envs == task["envs"]
    resources = list(read.resources)
    assert {chip for choice in resources for chip in choice.accelerators} == accelerators(task["resources"])
    assert all(choice.use_spot for choice in resources)


def accelerators(resources: dict) -> set[str]:
    """`tpu-v5litepod-8`, or the names in `{H100:8, A100:8}`, which is YAML for keys without values."""
    named = resources["accelerators"]
    return {name.split(":")[0] for name in ([named] if isinstance(named, str) else named)}


def start_host(task: dict, number: int, shared: dict[str, str], root: Path) -> subprocess.Popen:
    """The `run` of a task as the launcher starts it on host `number`, which has a cache of its own."""
    own = {"EEG2TEXT_BUCKET_CACHE": str(root / f"cache_{number}"), "SKYPILOT_NODE_RANK": str(number)}
    environment = {**os.environ, **task["envs"], **shared, **own, "EEG2TEXT_PROCESS": str(number)}
    with (root / f"log_{number}").open("w") as log:
        return subprocess.Popen(["bash", "-c", task["run"]], cwd=ROOT, env=environment, stdout=log, stderr=log)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "hosts", "chips"), [("tpu", 1, 8), ("tpu_pod", 4, 4), ("gpu", 1, 8), ("gpu", 2, 4)])
def test_what_a_file_runs_trains_and_reports(name, hosts, chips, tmp_path, monkeypatch):
    """A process for each host, `chips` devices each, a bucket of this machine, and the demonstration made small."""
    task = yaml.safe_load((ROOT / f"tools/launch/{name}.yaml").read_text())
    config, *small = arguments(train__steps=4, train__eval_every=4, decode__batch_size=8)
    small = [flag for flag in small if "parallel.mesh" not in flag]  # the file's own
    small += ["--config.parallel.hosts=env"] if hosts > 1 else []  # `auto` asks the TPU
    program = tmp_path / "eeg2text/bin/eeg2text"
    program.parent.mkdir(parents=True)
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m eeg2text_jax "$@" {shlex.join(small)}\n')
    program.chmod(0o755)
    shared = {"EEG2TEXT_BUCKET": BUCKET, "CONFIG": config.removeprefix("--config="), "HOME": str(tmp_path)}
    shared |= {"XLA_FLAGS": f"--xla_force_host_platform_device_count={chips}", "SKYPILOT_NUM_NODES": str(hosts)}
    shared |= {"SKYPILOT_NODE_IPS": "127.0.0.1\n" * hosts, "JAX_COMPILATION_CACHE_DIR": str(tmp_path / "compiled")}
    if hosts > 1:  # JAX keeps programs of the first host alone: it would wait for the others longer than Gloo's 30 s
        shared |= {"JAX_ENABLE_COMPILATION_CACHE": "0"}
    with SERVERS[command_of(task)[2].removeprefix("--workdir=").partition(":")[0]]() as server:
        shared |= server.environment
        statuses, starts = [HostLost.status], 0
        while set(statuses) == {HostLost.status} and starts < 4:  # a launcher starts all hosts again
            starts, place = starts + 1, place_in_cluster(0, hosts, free_port())
            started = [start_host(task, number, shared | place, tmp_path) for number in range(hosts)]
            statuses = [process.wait(1200) for process in started]
        said = (tmp_path / "log_0").read_text()
        assert statuses == [0] * hosts, said[-3000:]
        for variable, value in (server.environment | {"EEG2TEXT_BUCKET_CACHE": str(tmp_path / "cache")}).items():
            monkeypatch.setenv(variable, value)
        workdir = Path(at_hand(server.address(task["envs"]["RUN"])))
    assert (workdir / "report.html").stat().st_size > 0
    assert f"on {hosts * chips} x cpu (2 along arm, {hosts * chips // 2} along data)" in said
