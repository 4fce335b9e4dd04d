"""Whose a workdir is."""

from pathlib import Path

import pytest

from eeg2text_jax.configuration import load_config
from eeg2text_jax.errors import UserError
from eeg2text_jax.workdir import open_workdir

DEMO = str(Path(__file__).parents[1] / "configs/demo.py")


def test_a_workdir_keeps_its_configuration(tmp_path):
    config = load_config(DEMO)
    workdir = open_workdir(str(tmp_path / "run"), config)
    assert workdir.config.exists()
    assert open_workdir(str(tmp_path / "run"), config) == workdir
    config.train.steps = 7
    with pytest.raises(UserError, match=r"belongs to another configuration: .*train\.steps \(now 7, there 400\)"):
        open_workdir(str(tmp_path / "run"), config)


def test_other_folders_are_left_alone(tmp_path):
    (tmp_path / "thesis.tex").write_text("dear")
    with pytest.raises(UserError, match="is not empty and holds no run"):
        open_workdir(str(tmp_path), load_config(DEMO))
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_damaged_configuration(tmp_path):
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(UserError, match="is not JSON"):
        open_workdir(str(tmp_path), load_config(DEMO))
