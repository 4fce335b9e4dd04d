"""A run that is killed and begun again ends where an uninterrupted one does, bit for bit."""

import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
from tiny_run import ROOT, as_flags

FLAGS = as_flags(train__steps=40, train__save_every=4, train__eval_every=4, train__log_every=2)


def start(workdir):
    command = [sys.executable, "-m", "eeg2text_jax", "train", *FLAGS, f"--workdir={workdir}"]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def final_arrays(workdir):
    """Every array of the last checkpoint, by its name."""
    import jax
    import orbax.checkpoint as ocp

    with ocp.CheckpointManager(
        workdir / "checkpoints", options=ocp.CheckpointManagerOptions(step_prefix="step")
    ) as manager:
        assert manager.latest_step() == 40
        restored = manager.restore(40, args=ocp.args.Composite(state=ocp.args.StandardRestore()))
    return {jax.tree_util.keystr(path): np.asarray(leaf) for path, leaf in jax.tree.leaves_with_path(restored["state"])}


def test_kill_and_resume_equals_an_uninterrupted_run(tmp_path):
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    process = start(whole)
    output, _ = process.communicate(timeout=300)
    assert process.returncode == 0, output

    process = start(killed)
    wait_for_a_checkpoint(killed, process)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    again = start(killed)
    output, _ = again.communicate(timeout=300)
    assert again.returncode == 0, output
    assert "going on from the checkpoint of step" in output

    expected, found = final_arrays(whole), final_arrays(killed)
    assert expected.keys() == found.keys()
    for name, values in expected.items():
        np.testing.assert_array_equal(values, found[name], err_msg=name)
    assert losses(whole) == losses(killed), "a step was trained twice or skipped"


def wait_for_a_checkpoint(workdir, process):
    folder = workdir / "checkpoints"
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline and process.poll() is None:
        if folder.exists() and any(path.name.removeprefix("step_").isdigit() for path in folder.iterdir()):
            return
        time.sleep(0.01)
    raise AssertionError(f"no checkpoint appeared: {process.stdout.read()}")


def losses(workdir):
    rows = [json.loads(line) for line in (workdir / "metrics.jsonl").read_text().splitlines()]
    return [{name: value for name, value in row.items() if name != "samples_per_s"} for row in rows]
