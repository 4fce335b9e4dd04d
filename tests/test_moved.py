"""Finished runs that are moved, copied or read-only; no file of a run names a folder of the machine."""

import json
import os
import shutil

import pytest
from tiny_run import tiny_settings

from eeg2text_jax.base.errors import UserError
from eeg2text_jax.instrument.predictions.read import read_any
from eeg2text_jax.instrument.workdir import Workdir, fields_digest, find_workdir, read_configuration
from eeg2text_jax.runs import pipeline
from eeg2text_jax.runs.decode_again import decode_again
from eeg2text_jax.runs.exported import export_run
from eeg2text_jax.runs.opening import open_workdir, resumed
from eeg2text_jax.runs.pipeline import run_folds
from eeg2text_jax.training.study import open_data

SMALL = {"train__steps": 2, "train__eval_every": 1, "train__save_every": 1, "optim__warmup_steps": 0}
REPEATED = ("config.json", "split.json", "predictions.jsonl", "results.json", "audit.json")


def settings_with(data):
    return tiny_settings(data__source=str(data), **SMALL)


@pytest.fixture(scope="module")
def scratch(tmp_path_factory):
    """A folder with a data file, folds, and a single run, all named by absolute paths."""
    root = tmp_path_factory.mktemp("scratch_of_the_user")
    (root / "made").mkdir()
    made = open_data(tiny_settings(), Workdir(root / "made"))
    shutil.move(made.path, root / "data.h5")
    (root / "made").rmdir()
    run_folds(settings_with(root / "data.h5"), str(root / "folds"), "2")
    pipeline.run(settings_with(root / "data.h5"), str(root / "run"))
    return root


@pytest.fixture
def moved(scratch, tmp_path, monkeypatch):
    """All of it in another place; nothing is left in the old one."""
    shutil.copytree(scratch, tmp_path / "elsewhere")
    scratch.rename(scratch.with_name("away"))
    yield tmp_path / "elsewhere"
    scratch.with_name("away").rename(scratch)


def test_no_file_has_the_path_of_the_folder(scratch, tmp_path):
    export_run(str(scratch / "run"), str(tmp_path / "export"))
    files = [path for root in (scratch, tmp_path / "export") for path in root.rglob("*") if path.is_file()]
    assert len(files) > 50
    assert [path for path in files if str(scratch).encode() in path.read_bytes()] == []


def test_equal_runs_in_two_folders_have_equal_files(scratch, tmp_path, monkeypatch):
    """The second one names its data relative to the current folder."""
    shutil.copy(scratch / "data.h5", tmp_path / "data.h5")
    monkeypatch.chdir(tmp_path)
    pipeline.run(settings_with("data.h5"), "run")
    for name in REPEATED:
        assert (tmp_path / "run" / name).read_bytes() == (scratch / "run" / name).read_bytes(), name


@pytest.mark.parametrize("name", ["run", "folds/fold_1"])
def test_a_moved_run_is_decoded_again(moved, name):
    found = decode_again(read_any(moved / name / "predictions.jsonl")).provenance
    assert found.level == "decoded again"
    assert any(line.startswith("the split was made again") for line in found.checked)


def test_moved_folds_and_runs_go_on_with_the_same_command(moved):
    before = {path: path.read_bytes() for path in moved.rglob("predictions.jsonl")}
    assert run_folds(settings_with(moved / "data.h5"), str(moved / "folds"), "2") is not None
    pipeline.run(settings_with(moved / "data.h5"), str(moved / "run"))
    assert {path: path.read_bytes() for path in before} == before


def test_a_workdir_moved_away_from_its_data_goes_on_where_the_data_are_named(moved):
    shutil.move(moved / "run", moved / "deep/er/run")
    with pytest.raises(UserError, match=r"data\.h5: there is no such file"):
        decode_again(read_any(moved / "deep/er/run/predictions.jsonl"))
    pipeline.run(settings_with(moved / "data.h5"), str(moved / "deep/er/run"))
    assert decode_again(read_any(moved / "deep/er/run/predictions.jsonl")).provenance.level == "decoded again"


def test_other_data_of_the_same_name_are_another_configuration(tmp_path):
    """Where both exist; a moved file is the same one."""
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "recordings.csv").write_text("sentence,x\n")
    workdir = open_workdir(str(tmp_path / "run"), settings_with(tmp_path / "a/recordings.csv"))
    workdir.data.write_bytes(b"")
    resumed(settings_with(tmp_path / "a/recordings.csv"), workdir)
    other = settings_with(tmp_path / "b/recordings.csv")
    with pytest.raises(UserError, match=r"data\.h5 was made with data\.source"):
        resumed(other, workdir)
    (tmp_path / "a/recordings.csv").unlink()
    resumed(other, workdir)


def test_paths_of_a_configuration_are_stored_relative_to_it(tmp_path, monkeypatch):
    """Keywords, names on the Hub and URLs are no paths, also where a folder has their name."""
    monkeypatch.chdir(tmp_path)
    for name in ("synthetic", "in"):
        (tmp_path / name).mkdir()
    fields = {"split__path": str(tmp_path / "in"), "text__tokenizer": "in", "model__checkpoint": "who/model"}
    workdir = open_workdir("run", tiny_settings(**fields, metrics__judge="gs://b/judge"))
    config = json.loads(workdir.config.read_text())
    assert config["split"]["path"] == config["text"]["tokenizer"] == "{workdir}/../in"
    assert config["model"]["checkpoint"] == "who/model"
    assert config["metrics"]["judge"] == "gs://b/judge"
    assert config["data"]["source"] == "synthetic"
    read = read_configuration(find_workdir("run"))
    assert read["split"]["path"] == read["text"]["tokenizer"] == str(tmp_path / "in")
    assert fields_digest(read, "decoding") == fields_digest(tiny_settings(**fields).document, "decoding")


@pytest.mark.parametrize("name", ["run", "folds"])
def test_a_read_only_run_is_shown_and_decoded_again_and_nothing_is_written(scratch, monkeypatch, capsys, name):
    monkeypatch.setattr(os, "access", lambda path, mode, **_: mode != os.W_OK)
    before = {path: path.stat().st_mtime_ns for path in scratch.rglob("*")}
    if name == "folds":
        run_folds(settings_with(scratch / "data.h5"), str(scratch / name), "2")
    else:
        pipeline.run(settings_with(scratch / "data.h5"), str(scratch / name))
    shown = capsys.readouterr().out
    assert json.loads((scratch / name / "audit.json").read_text())["sentence"] in shown
    assert f"{scratch / name}: is read-only, so nothing was written" in shown
    place = scratch / ("folds/fold_2" if name == "folds" else "run")
    assert decode_again(read_any(place / "predictions.jsonl")).provenance.level == "decoded again"
    assert {path: path.stat().st_mtime_ns for path in scratch.rglob("*")} == before
