"""A run that is killed, or told to end, and begun again ends where an uninterrupted one does, bit for bit."""

import errno
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
import pytest
from jax.sharding import SingleDeviceSharding
from tiny_run import ROOT, as_flag

from eeg2text_jax.base.errors import UserError
from eeg2text_jax.base.stores.buckets import at_hand
from eeg2text_jax.commands import cli
from eeg2text_jax.training import checkpoint
from eeg2text_jax.training.checkpoint import Checkpoints, Preemption
from eeg2text_jax.training.metrics_log import MetricsLog
from eeg2text_testing.bucket_servers import s3_server
from eeg2text_testing.forked_runs import final_checkpoint, logged_metrics

STEPS, KILLED, TERMINATED = 14, 6, 10
FLAG = as_flag(
    batch__size=16,  # 6 batches an epoch
    model__encoder_layers=0,
    grid__train_conditions=("eeg", "noise_redrawn"),  # the second one draws anew at every step
    train__steps=STEPS,
    train__save_every=2,
    train__eval_every=4,
    train__log_every=1,
)
KILL = f"""
import os, signal, sys
from eeg2text_jax.commands import cli
from eeg2text_jax.training.checkpoint import Checkpoints
save = Checkpoints.save
def save_and_die(self, step, *rest):
    save(self, step, *rest)
    if step == {KILLED}:
        os.kill(os.getpid(), signal.SIGKILL)
Checkpoints.save = save_and_die
cli.main(sys.argv[1:])
"""


def command(workdir) -> list[str]:
    return ["train", FLAG, f"--workdir={workdir}"]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The workdir of an uninterrupted run."""
    root = tmp_path_factory.mktemp("resume") / "whole"
    assert cli.main(command(root)) == 0
    return root


def test_killed_then_terminated_equals_uninterrupted(whole, tmp_path, monkeypatch, capsys, printed_by):
    workdir = tmp_path / "killed"
    killed = [sys.executable, "-c", KILL, *command(workdir)]
    process = subprocess.run(killed, cwd=ROOT, capture_output=True, timeout=300)
    assert process.returncode == -signal.SIGKILL, process.stderr.decode()[-3000:]

    with monkeypatch.context() as patch:
        patch.setattr(MetricsLog, "add", terminated_at(TERMINATED, MetricsLog.add))
        assert cli.main(command(workdir)) == 143
    said = capsys.readouterr()
    assert "ended by SIGTERM; what is trained is saved" in said.err
    assert any(f"going on from the checkpoint of step {step}\n" in said.out for step in (KILLED - 2, KILLED))
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL

    assert f"going on from the checkpoint of step {TERMINATED + 1}\n" in printed_by(command(workdir))
    assert "going on from" not in printed_by(command(workdir)), "it is finished"
    assert_same_end(whole, workdir)


@pytest.mark.slow
def test_terminated_in_a_bucket_and_begun_on_another_machine_equals_one_in_a_folder(
    whole, tmp_path, monkeypatch, printed_by
):
    """Kills are in tests/stores/test_runs_in_buckets.py."""
    pytest.importorskip("moto", reason="the extra `test` brings a server of S3")
    with s3_server() as server:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        address = server.address("runs/one")
        monkeypatch.setenv("EEG2TEXT_BUCKET_CACHE", str(tmp_path / "one"))
        with monkeypatch.context() as patch:
            patch.setattr(MetricsLog, "add", terminated_at(KILLED, MetricsLog.add))
            assert cli.main(command(address)) == 143
        monkeypatch.setenv("EEG2TEXT_BUCKET_CACHE", str(tmp_path / "other"))
        assert f"going on from the checkpoint of step {KILLED + 1}\n" in printed_by(command(address))
        monkeypatch.setenv("EEG2TEXT_BUCKET_CACHE", str(tmp_path / "read"))
        copy = Path(at_hand(address))
    assert_same_end(whole, copy)


def assert_same_end(whole, workdir):
    (step, expected, _), (last, found, _) = final_checkpoint(whole), final_checkpoint(workdir)
    assert step == last == STEPS
    assert expected.keys() == found.keys()
    for name, values in expected.items():
        np.testing.assert_array_equal(values, found[name], err_msg=name)
    assert logged_metrics(whole) == logged_metrics(workdir), "a step was trained twice or skipped"


def terminated_at(step, add):
    """Sends SIGTERM when the losses of `step` are logged, which is while the next one runs."""

    def add_and_signal(self, at, scalars):
        add(self, at, scalars)
        if at == step:
            signal.raise_signal(signal.SIGTERM)

    return add_and_signal


def abstract(**more) -> dict:
    sharding = SingleDeviceSharding(jax.devices()[0])
    return {"x": jax.ShapeDtypeStruct((4,), jnp.float32, sharding=sharding), **more}


@pytest.fixture
def two_saved(tmp_path):
    """A workdir with checkpoints of steps 1 and 2."""
    with Checkpoints(tmp_path) as checkpoints:
        for step in (1, 2):
            checkpoints.save(step, {"x": jnp.full(4, float(step))}, {"step": step})
    return tmp_path


def largest_array_file(workdir, step=2):
    files = [path for path in (workdir / f"checkpoints/step_{step}/state").rglob("d/*") if path.is_file()]
    return max(files, key=lambda path: path.stat().st_size)


def flip(path, place=None):
    content = bytearray(path.read_bytes())
    content[len(content) // 2 if place is None else place] ^= 1
    path.write_bytes(content)


def cut_all(workdir):
    for path in (workdir / "checkpoints/step_2").rglob("*"):
        if path.is_file():
            path.write_bytes(path.read_bytes()[:3])


def flip_in_the_array(workdir):
    """Among the numbers themselves, where nothing but a checksum tells."""
    ones = [p for p in (workdir / "checkpoints/step_2/state").rglob("*") if p.is_file()]
    numbers = np.full(4, 2, np.float32).tobytes()
    (path,) = [p for p in ones if numbers in p.read_bytes()] or [largest_array_file(workdir)]
    flip(path)


def flip_in_info(workdir):
    flip(workdir / "checkpoints/step_2/info/metadata")


def exchange(workdir):
    shutil.copy(largest_array_file(workdir, 1), largest_array_file(workdir, 2))


def delete(workdir):
    largest_array_file(workdir).unlink()


@pytest.mark.parametrize("damage", [cut_all, flip_in_the_array, flip_in_info, exchange, delete])
def test_a_damaged_checkpoint_is_set_aside(two_saved, capsys, damage):
    damage(two_saved)
    with Checkpoints(two_saved) as checkpoints:
        step, state, info = checkpoints.restore(abstract())
    assert (step, info) == (1, {"step": 1})
    np.testing.assert_array_equal(state["x"], np.ones(4))
    said = capsys.readouterr().out
    assert re.search(r"checkpoints/step_2/\S+ is (damaged|missing): the checkpoint is set aside", said)
    assert (two_saved / "damaged_checkpoint_2").is_dir()


def of_another(listed):
    return (listed.parents[1] / "step_1/digests.json").read_text()


def with_another_digit(listed):
    text = listed.read_text()
    place = text.index('": "') + 4  # the first digit of the first digest
    return text[:place] + ("0" if text[place] != "0" else "1") + text[place + 1 :]


@pytest.mark.parametrize(
    ("changed", "said"),
    [(of_another, " lists other files than the checkpoint has"), (with_another_digit, " is damaged")],
)
def test_changed_digests_are_not_blamed_on_a_file(two_saved, changed, said):
    listed = two_saved / "checkpoints/step_2/digests.json"
    listed.write_text(changed(listed))
    refusal = pytest.raises(UserError, match=rf"step_2/digests\.json{said}")
    with Checkpoints(two_saved, read_only=True) as checkpoints, refusal:
        checkpoints.restore(abstract())


def test_damage_twice_at_one_step_keeps_both(two_saved):
    for _ in range(2):
        flip_in_info(two_saved)
        with Checkpoints(two_saved) as checkpoints:
            checkpoints.restore(abstract())
            checkpoints.save(2, {"x": jnp.full(4, 2.0)}, {"step": 2})
    assert {path.name for path in two_saved.glob("damaged*")} == {"damaged_checkpoint_2", "damaged_checkpoint_2_1"}


@pytest.mark.parametrize("error", [MemoryError("out of memory"), OSError(5, "the network is down"), ValueError("tree")])
def test_an_error_while_restoring_costs_no_checkpoint(two_saved, monkeypatch, error):
    def fail(*_: object, **__: object) -> None:
        raise error

    before = sorted(two_saved.rglob("*"))
    with Checkpoints(two_saved) as checkpoints, monkeypatch.context() as patch:
        patch.setattr(ocp.CheckpointManager, "restore", fail)
        with pytest.raises(UserError, match=rf"step_2: cannot be restored \({type(error).__name__}: .*nothing was ch"):
            checkpoints.restore(abstract())
    assert sorted(two_saved.rglob("*")) == before
    with Checkpoints(two_saved) as checkpoints:
        assert checkpoints.restore(abstract())[0] == 2


def test_another_tree_is_no_damage(two_saved):
    sharding = SingleDeviceSharding(jax.devices()[0])
    with Checkpoints(two_saved) as checkpoints:
        with pytest.raises(UserError, match="cannot be restored"):
            checkpoints.restore(abstract(y=jax.ShapeDtypeStruct((3,), jnp.float32, sharding=sharding)))
        assert checkpoints.restore(abstract())[0] == 2


def test_a_checkpoint_without_digests_is_neither_taken_nor_set_aside(two_saved):
    (two_saved / "checkpoints/step_2/digests.json").unlink()
    with Checkpoints(two_saved) as checkpoints, pytest.raises(UserError, match=r"digests.json: there is no such file"):
        checkpoints.restore(abstract())
    assert (two_saved / "checkpoints/step_2").is_dir()


def test_a_part_of_the_arrays_is_restored_alone(tmp_path):
    state = {"x": jnp.ones(4), "y": {"z": jnp.ones(1000)}}
    with Checkpoints(tmp_path) as checkpoints:
        checkpoints.save(1, state, {})
    with Checkpoints(tmp_path, read_only=True) as checkpoints:
        _, found, _ = checkpoints.restore(abstract(y={"z": ocp.PLACEHOLDER}))
    np.testing.assert_array_equal(found["x"], np.ones(4))
    assert found["y"]["z"] is ocp.PLACEHOLDER


def test_the_newest_two_checkpoints_are_kept(two_saved):
    with Checkpoints(two_saved) as checkpoints:
        checkpoints.save(3, {"x": jnp.full(4, 3.0)}, {"step": 3})
    assert {path.name for path in (two_saved / "checkpoints").iterdir()} == {"step_2", "step_3"}


@pytest.mark.parametrize("before", [None, ValueError("bad batch")])
def test_a_last_save_that_fails_is_an_error_unless_one_is_on_its_way(tmp_path, monkeypatch, before):
    really_close = ocp.CheckpointManager.close

    def close(self: ocp.CheckpointManager) -> None:
        really_close(self)
        raise OSError(errno.ENOSPC, "No space left on device")

    def train() -> None:
        with Checkpoints(tmp_path):
            if before:
                raise before

    monkeypatch.setattr(ocp.CheckpointManager, "close", close)
    with pytest.raises(type(before) if before else UserError, match="bad batch" if before else "cannot be written"):
        train()


def test_no_folder_is_made_to_look_into_it(tmp_path):
    with Checkpoints(tmp_path / "nowhere", read_only=True) as checkpoints:
        assert checkpoints.restore(abstract()) is None
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.parametrize("kind", [OSError, ValueError])
def test_a_checkpoint_that_cannot_be_written_is_one_sentence(tmp_path, monkeypatch, refused, kind):
    """Of either kind: tensorstore has its own error for a full disk."""
    reason = (errno.ENOSPC, "No space left on device") if kind is OSError else ("RESOURCE_EXHAUSTED: No space left",)

    def fail(*_: object, **__: object) -> None:
        raise kind(*reason)

    monkeypatch.setattr(ocp.CheckpointManager, "save", fail)
    monkeypatch.setattr("eeg2text_jax.commands.run.train", lambda _: save(tmp_path))
    sentence = refused(["train"])
    assert "a checkpoint cannot be written" in sentence
    assert "No space left" in sentence
    assert sentence.endswith("; free space there, and run the same command again.")


def test_a_folder_that_another_command_writes_into_is_no_full_disk(tmp_path, monkeypatch):
    """Without its `.lock` a second command begins, and its start removes saves that are not finished."""
    digests = checkpoint._digests

    def meanwhile(folder, names):
        shutil.rmtree(folder)
        return digests(folder, names)

    monkeypatch.setattr(checkpoint, "_digests", meanwhile)
    with pytest.raises(UserError) as refused:
        save(tmp_path)
    assert "if another command writes into this folder (its .lock was removed)" in str(refused.value)
    assert "free space" not in str(refused.value)


def test_damage_to_a_note_of_orbax_costs_nothing(two_saved):
    """The `commit_success.txt` of a whole step has no digest: orbax writes it afterwards, and nothing reads it."""
    notes = [*(two_saved / "checkpoints").glob(f"*/{checkpoint.COMMITTED}")]
    assert notes
    for note in notes:
        note.write_bytes(b"\xff\xfe/\x00" * 9)
    with Checkpoints(two_saved) as checkpoints:
        assert checkpoints.restore(abstract())[0] == 2
        checkpoints.save(3, {"x": jnp.full(4, 3.0)}, {"step": 3})


@pytest.mark.parametrize("name", ["old", "old/info"])
def test_the_folder_that_may_not_be_written_is_named(tmp_path, monkeypatch, name):
    """Removing an old checkpoint fails at its first file, and the error names that file alone."""

    def fail(*_: object, **__: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", "digests.json")

    closed = tmp_path / "checkpoints" / name
    closed.mkdir(parents=True)
    monkeypatch.setattr(os, "access", lambda path, _: path != str(closed))
    monkeypatch.setattr(ocp.CheckpointManager, "save", fail)
    cause = "cannot be written, or an old checkpoint cannot be removed .*'digests.json'"
    with pytest.raises(UserError, match=rf"/{name}: .* {cause}.*get write permission"):
        save(tmp_path)


def test_a_disk_without_room_for_a_checkpoint_is_said_before_any_of_it_is_written(tmp_path, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(10**9, 10**9 - 10**6, 10**6))
    state = {"x": jnp.zeros((500, 500)), "y": jnp.zeros((100, 500), jnp.int16)}
    with Checkpoints(tmp_path) as checkpoints:
        with pytest.raises(UserError, match=r"checkpoints: a checkpoint takes 1.1 MB and 1.0 MB are left on the disk"):
            checkpoints.save(1, state, {})
        checkpoints.save(1, {"x": state["x"][:490]}, {})
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["step_1"]


def save(root) -> None:
    with Checkpoints(root) as checkpoints:
        checkpoints.save(1, {"x": jnp.ones(4)}, {})


def test_a_full_disk_is_one_sentence(monkeypatch, refused):
    def fail(_: list[str]) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "runs/x/predictions.jsonl")

    monkeypatch.setattr("eeg2text_jax.commands.run.decode", fail)
    assert refused(["decode"]) == (
        "eeg2text decode: runs/x/predictions.jsonl: No space left on device; free some space and run the same "
        "command again, what is finished is kept."
    )


def test_sigterm_hides_no_error_of_the_training():
    def train() -> None:
        with Preemption() as preemption:
            signal.raise_signal(signal.SIGTERM)
            assert preemption.stop_after(1)
            raise ValueError("bad batch")

    with pytest.raises(ValueError, match="bad batch"):
        train()


def test_the_handler_of_sigterm_is_given_back():
    before = signal.getsignal(signal.SIGTERM)
    with Preemption():
        assert signal.getsignal(signal.SIGTERM) != before
    assert signal.getsignal(signal.SIGTERM) == before
