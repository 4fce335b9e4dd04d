"""Whose a workdir is, who may be in it, and what of it may not change."""

import errno
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from eeg2text_jax.base import files
from eeg2text_jax.base.errors import UserError
from eeg2text_jax.base.files import replacing
from eeg2text_jax.base.kinds import plain
from eeg2text_jax.instrument.workdir import ADDED, Workdir, fields_digest, find_workdir, forget, lock_workdir, stage_of
from eeg2text_jax.runs.opening import open_workdir
from eeg2text_jax.training.configuration import load_config
from eeg2text_jax.training.sections import RANGES, read_settings

DEMO = str(Path(__file__).parents[1] / "configs/demo.py")


@pytest.fixture
def begun(tmp_path):
    """A workdir, its folder and its configuration, with nothing finished."""
    config = read_settings(load_config(DEMO))
    return open_workdir(str(tmp_path / "run"), config), str(tmp_path / "run"), config


def finish(workdir: Workdir, *names: str) -> None:
    for name in names:
        path = Path(workdir.root / name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{name}\n")


def test_a_workdir_keeps_the_configuration_of_what_is_finished(begun):
    workdir, root, config = begun
    assert open_workdir(root, config) == workdir
    finish(workdir, "split.json", "checkpoints/step_10/x")
    config = config.changed({"train.steps": 7})
    said = r"belongs to another configuration.*step_10 was made with train\.steps \(now 7,"
    with pytest.raises(UserError, match=said):
        open_workdir(root, config)
    assert json.loads(workdir.config.read_text())["train"]["steps"] == 400


def test_a_workdir_of_version_0_2_is_as_it_was(begun):
    """The hashes are those that version 0.2.0 gives for its demonstration."""
    hashes = {"data": "c29268708d7e783c", "split": "982f0475c5e05e8d", "tokenizer": "aa5173b40ac21be6"}
    hashes |= {"targets": "f972c7d7726bee0e", "training": "1e6a6e77f2b5d68e", "decoding": "5e74c8b34f791134"}
    assert {stage: fields_digest(plain(load_config(DEMO)), stage) for stage in hashes} == hashes
    workdir, root, config = begun
    content = json.loads(workdir.config.read_text())
    for field in ADDED:
        *sections, name = field.split(".")
        section = content
        for part in sections:
            section = section[part]
        del section[name]
    content["audit"] |= {"resamples": 10000, "seed": 0, "endpoint": "bleu-1"}
    finish(workdir, "data.h5", "split.json", "tokenizer", "checkpoints/step_10/x", "predictions.jsonl")
    workdir.config.write_text(json.dumps(content))
    assert open_workdir(root, config) == workdir
    with pytest.raises(UserError, match=r"split\.json was made with split\.unique_sessions \(now True, there False\)"):
        open_workdir(root, config.changed({"split.unique_sessions": True}))


@pytest.mark.parametrize(
    ("finished", "field", "value"),
    [
        ((), "data.synthetic.sentences", 50),
        (("data.h5", "split.json"), "text.vocab_size", 400),
        (("data.h5", "split.json", "tokenizer"), "optim.lr", 0.5),
        (("checkpoints/step_2.orbax-checkpoint-tmp-1/x",), "optim.lr", 0.5),
        (("data.h5", "split.json", "tokenizer", "checkpoints/step_2/x"), "decode.num_beams", 3),
        (("data.h5", "split.json", "tokenizer", "checkpoints/step_2/x", "predictions.jsonl"), "audit.margin", 2.0),
    ],
)
def test_what_nothing_finished_depends_on_may_change(begun, finished, field, value):
    workdir, root, config = begun
    finish(workdir, *finished)
    config = config.changed({field: value})
    open_workdir(root, config)
    section, _, name = field.rpartition(".")
    saved = json.loads(workdir.config.read_text())
    for part in section.split("."):
        saved = saved[part]
    assert saved[name] == value, "config.json says what the run goes on with"


@pytest.mark.parametrize(
    ("finished", "field", "value", "may"),
    [
        ("data.h5", "data.synthetic.sentences", 50, "split, text.tokenizer"),
        ("split.json", "data.synthetic.sentences", 50, "text.tokenizer"),
        ("tokenizer", "text.vocab_size", 400, "contrastive.text, contrastive.layer, contrastive.hashed, grid.eval"),
        ("wave_1/x", "decode.num_beams", None, None),
        ("waves.json", "parallel.wave", 2, "grid.eval_conditions, decode, audit"),
        ("predictions.jsonl", "decode.num_beams", 3, "audit, compilation_cache"),
        ("predictions.jsonl", "optim.lr", 0.5, "audit, compilation_cache"),  # though no checkpoint is left
    ],
)
def test_the_refusal_names_the_fields_and_what_may_change(begun, finished, field, value, may):
    workdir, root, config = begun
    finish(workdir, finished)
    if may is None:
        open_workdir(root, config)
        return
    config = config.changed({field: value})
    with pytest.raises(UserError) as refused:
        open_workdir(root, config)
    assert f"{finished} was made with {field} (now {value}, there" in str(refused.value)
    assert f"What may change here: {may}" in str(refused.value)


def test_the_digest_of_a_stage_follows_its_fields_alone():
    config = load_config(DEMO)
    before = {stage: fields_digest(plain(config), stage) for stage in ("split", "training", "decoding")}
    config.audit.margin, config.compilation_cache = 3.0, "elsewhere"
    assert {stage: fields_digest(plain(config), stage) for stage in before} == before
    config.decode.num_beams = 9
    assert fields_digest(plain(config), "training") == before["training"]
    assert fields_digest(plain(config), "decoding") != before["decoding"]
    assert stage_of("model.width_of_tomorrow") == "training", "a new field is fixed with training"


def test_each_field_belongs_to_the_first_stage_that_reads_it():
    """If a field of a source belonged to training, it could change and the data file made with its old value stay."""
    of_data = {name for name in RANGES if name.startswith("data.")} - {"data.max_words", "data.standardize"}
    stages = dict.fromkeys(of_data, "data") | dict.fromkeys((n for n in RANGES if n.startswith("split.")), "split")
    stages |= dict.fromkeys(("text.tokenizer", "text.vocab_size", "model.checkpoint"), "tokenizer")
    stages |= dict.fromkeys(("contrastive.text", "contrastive.layer", "contrastive.hashed"), "targets")
    stages |= dict.fromkeys(("grid.eval_conditions", "decode.num_beams", "decode.do_sample"), "decoding")
    training = ("data.max_words", "data.standardize", "text.max_tokens", "text.template", "seed", "objective",
                "grid.train_conditions", "grid.seeds", "batch.size", "contrastive.width", "train.steps")  # fmt: skip
    stages |= dict.fromkeys(training, "training")
    free = ("audit.margin", "metrics.encoder", "retrieval.likelihood", "grid.controls", "train.save_every")
    stages |= dict.fromkeys(free, "")
    assert {name: stage_of(name) for name in stages} == stages


def test_other_folders_are_left_alone(tmp_path):
    (tmp_path / "thesis.tex").write_text("dear")
    for enter in (
        lambda: open_workdir(str(tmp_path), read_settings(load_config(DEMO))),
        lambda: lock_workdir(str(tmp_path)).__enter__(),
    ):
        with pytest.raises(UserError, match="is not empty and holds no run"):
            enter()
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


@pytest.mark.parametrize("content", ["{", "", "[1]", "7", "\xff"])
def test_damaged_configuration(tmp_path, content):
    (tmp_path / "config.json").write_bytes(content.encode("latin1"))
    with pytest.raises(UserError, match=r"config\.json: (is not JSON|expected a JSON object)"):
        open_workdir(str(tmp_path), read_settings(load_config(DEMO)))


def test_a_refused_run_takes_its_configuration_back(begun):
    workdir, _, _ = begun
    finish(workdir, "split.json")
    forget(workdir)
    assert workdir.config.exists(), "it says whose the split is"
    workdir.split.unlink()
    forget(workdir)
    assert list(workdir.root.iterdir()) == []


def test_nothing_is_made_by_looking(tmp_path):
    with pytest.raises(UserError, match=r"holds no run of eeg2text \(no config.json\)"):
        find_workdir(str(tmp_path / "runs/mistyped"))
    assert list(tmp_path.iterdir()) == []


def test_what_killed_processes_left_is_removed(begun):
    workdir, root, config = begun
    left = (".data.h5.4711.partial", ".data.h5.lock", ".predictions.jsonl.partial", "wave_1/.metrics.jsonl.partial")
    finish(workdir, *left, "data.h5")
    (workdir.root / ".tokenizer.partial").mkdir()
    open_workdir(root, config)
    assert sorted(path.name for path in workdir.root.iterdir()) == ["config.json", "data.h5", "wave_1"]
    assert not list((workdir.root / "wave_1").iterdir())


def test_a_changed_file_is_refused_by_its_name(begun):
    workdir, _, _ = begun
    names = ("split.json", "tokenizer", "predictions.jsonl")
    finish(workdir, "split.json", "tokenizer/a.json", "tokenizer/b.json")
    assert workdir.unrecorded(*names) == ["split.json", "tokenizer"]
    workdir.record(*workdir.unrecorded(*names))
    workdir.check(*names)
    for name in ("split.json", "tokenizer/b.json"):
        content = (workdir.root / name).read_bytes()
        for damaged in (b"", content[:3], content[:-1] + b"x"):
            (workdir.root / name).write_bytes(damaged)
            with pytest.raises(UserError, match=rf"run/{name}: is not what this run wrote"):
                workdir.check(*names)
        (workdir.root / name).write_bytes(content)
    (workdir.root / "tokenizer/a.json").unlink()
    with pytest.raises(UserError, match=r"tokenizer/a.json: is not what"):
        workdir.check(*names)


def test_what_is_made_again_is_recorded_again(begun):
    workdir, _, _ = begun
    finish(workdir, "tokenizer/a.json", "split.json")
    workdir.record("tokenizer", "split.json")
    (workdir.root / "tokenizer/a.json").rename(workdir.root / "tokenizer/c.json")
    workdir.record("tokenizer")
    workdir.check("tokenizer", "split.json")
    workdir.unrecord("tokenizer")  # and a kill before it is recorded
    finish(workdir, "tokenizer/d.json")
    workdir.check("tokenizer", "split.json")
    assert workdir.unrecorded("tokenizer", "split.json") == ["tokenizer"]


@pytest.mark.parametrize("content", ["", "{", "[]", '{"split.json": 1}'])
def test_damaged_digests_are_refused_by_name(begun, content):
    workdir, _, _ = begun
    finish(workdir, "split.json")
    workdir.finished.write_text(content)
    with pytest.raises(UserError, match=r"finished\.json: (is not JSON|expected a JSON object|is damaged)"):
        workdir.check("split.json")


HOLD = "import sys, time\nfrom eeg2text_jax.instrument.workdir import lock_workdir\nwith lock_workdir(sys.argv[1]):\n"
HOLD += "    print('in', flush=True)\n    time.sleep(60)\n"


def test_one_process_at_a_time_until_it_ends_or_is_killed(tmp_path):
    root = tmp_path / "runs" / "one"
    with subprocess.Popen([sys.executable, "-c", HOLD, str(root)], stdout=subprocess.PIPE, text=True) as other:
        try:
            assert other.stdout.readline() == "in\n"
            with pytest.raises(UserError) as refused, lock_workdir(str(root)):
                pass
            host = os.uname().nodename
            assert f"{root}: is in use by process {other.pid} on {host} since 20" in str(refused.value)
        finally:
            other.send_signal(signal.SIGKILL)
    assert (root / ".lock").exists(), "a killed process cannot remove it"
    with lock_workdir(str(root)):
        assert json.loads((root / ".lock").read_text())["process"] == os.getpid()
    assert list(root.iterdir()) == []


def test_a_folder_that_nothing_was_put_into_goes_again(tmp_path):
    with pytest.raises(UserError, match="refused"), lock_workdir(str(tmp_path / "a/b")):
        raise UserError("refused")
    assert list(tmp_path.iterdir()) == []
    with lock_workdir(str(tmp_path / "a/b")):
        (tmp_path / "a/b/file").touch()
    assert [path.name for path in (tmp_path / "a/b").iterdir()] == ["file"]


@pytest.mark.parametrize("number", [errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOLCK, errno.EINVAL])
def test_a_file_system_without_locks_is_worked_on_with_a_warning(tmp_path, monkeypatch, capsys, number):
    def none(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(files, "_WARNED", set())
    with lock_workdir(str(tmp_path / "a")):
        (tmp_path / "a/config.json").write_text("{}")
        theirs = (tmp_path / "a/.lock").read_text()
        assert not capsys.readouterr().out
        with monkeypatch.context() as patch:
            patch.setattr("fcntl.flock", none)
            with lock_workdir(str(tmp_path / "a")), lock_workdir(str(tmp_path / "b/c")):
                assert (tmp_path / "a/.lock").read_text() == theirs
        (warning,) = capsys.readouterr().out.splitlines()
        assert f"{tmp_path}/a: its file system has no locks" in warning
        assert "a second run of the same folder would not be noticed" in warning
        assert (tmp_path / "a/.lock").read_text() == theirs, "another's lock went"
    assert [path.name for path in tmp_path.rglob("*")] == ["a", "config.json"]


def test_other_errors_of_locking_are_errors(tmp_path, monkeypatch):
    def fails(*_: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr("fcntl.flock", fails)
    with pytest.raises(OSError, match="Input/output error"), lock_workdir(str(tmp_path / "a")):
        pass


def test_errors_of_writing_name_the_file(tmp_path):
    def fill() -> None:
        with replacing(tmp_path / "x.json") as partial:
            partial.write_text("begun")
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.raises(OSError, match="No space left on device") as error:
        fill()
    assert error.value.filename == str(tmp_path / "x.json")
    assert not list(tmp_path.iterdir())
