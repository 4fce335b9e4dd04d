"""A run goes on with the data and the split that it was begun with, and with no other."""

import dataclasses
from types import SimpleNamespace

import numpy as np
import pytest
from etils import epath
from reading_grids import grid
from tiny_run import tiny_settings

from eeg2text_jax.base.errors import UserError
from eeg2text_jax.data.data_writer import DataWriter
from eeg2text_jax.data.datafile import read_datafile
from eeg2text_jax.data.source import Sample
from eeg2text_jax.data.splits.methods import make_split
from eeg2text_jax.data.splits.split import check_same_data, check_same_split
from eeg2text_jax.instrument.predictions.file import Prediction, write_predictions
from eeg2text_jax.instrument.workdir import Workdir
from eeg2text_jax.runs.pipeline import score
from eeg2text_jax.training.study import open_split


def write(path, rows):
    with DataWriter(path, 2, "nothing") as writer:
        writer.add_all(rows)
    return read_datafile(path)


ROWS = [
    Sample(np.full((3, 2), i + len(subject), np.float32), f"sentence number {i}", subject, "NR", i)
    for subject in ("A", "BB")
    for i in range(20)
]
OTHERS = {
    "features": [dataclasses.replace(row, features=-row.features) for row in ROWS],
    "samples": [dataclasses.replace(row, subject=row.subject.lower()) for row in ROWS],
    "sentences": [dataclasses.replace(row, sentence=row.sentence + "!") for row in ROWS],
}


@pytest.mark.parametrize("what", OTHERS)
def test_other_data_is_refused_on_resume(tmp_path, what):
    workdir, config = Workdir(epath.Path(tmp_path)), tiny_settings()
    ours, other = write(tmp_path / "data.h5", ROWS), write(tmp_path / "other.h5", OTHERS[what])
    split = open_split(config, workdir, ours)
    assert open_split(config, workdir, ours).digest() == split.digest()
    with pytest.raises(UserError, match=f"is not the data that this run was begun with.*; its {what} differ"):
        open_split(config, workdir, other)


def test_a_split_that_does_not_say_of_what_it_is(tmp_path):
    workdir, config = Workdir(epath.Path(tmp_path)), tiny_settings()
    data = write(tmp_path / "data.h5", ROWS)
    open_split(config, workdir, data)
    workdir.split.write_text(workdir.split.read_text().replace("eeg2text-split-2", "eeg2text-split-1"))
    with pytest.raises(UserError, match=r"split.json: does not say which data file it was made from"):
        open_split(config, workdir, data)


def test_what_was_made_from_other_data_is_refused():
    check_same_data("a" * 64, "a" * 64, "run/checkpoints")
    with pytest.raises(UserError, match=r"run/checkpoints: carries data b{16}, expected data a{16};"):
        check_same_data("a" * 64, "b" * 64, "run/checkpoints")
    with pytest.raises(UserError, match="no hash of its data"):
        check_same_data("a" * 64, None, "run/checkpoints")


def test_predictions_of_another_split_are_not_scored(tmp_path):
    data = grid(sentences={"SR": 20})
    ours, other = (make_split(data, "unique_text", (0.8, 0.1, 0.1), seed).digest() for seed in (0, 1))
    workdir, split = Workdir(epath.Path(tmp_path)), SimpleNamespace(digest=lambda: ours)
    one = Prediction("A/SR:0", "A", "SR", "SR:0", 3, "eeg", "eeg", 0, "free_running", "a b c", "a b d")
    for header, carried in (({"split": other}, f"split {other}"), ({}, "no split hash")):
        write_predictions(workdir.predictions, header, [one])
        with pytest.raises(UserError, match=f"carries {carried}, expected split {ours}"):
            score(SimpleNamespace(workdir=workdir, split=split, config=tiny_settings()))
    assert not workdir.results.exists()
    check_same_split(ours, ours, "predictions.jsonl")
