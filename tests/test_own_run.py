"""Which predictions are those of the run in whose workdir they lie: every digest counts."""

import json

import pytest
from tiny_run import tiny_settings

from eeg2text_jax.data.splits.split import parts_digest, write_split_file
from eeg2text_jax.instrument.predictions.file import Prediction, write_predictions
from eeg2text_jax.instrument.predictions.read import read_any
from eeg2text_jax.instrument.workdir import fields_digest, is_of_its_run, neighbors_of_run, read_configuration
from eeg2text_jax.runs.opening import open_workdir

IDS = {"train": ["A/NR:0"], "dev": ["A/NR:1"], "test": ["A/NR:2", "B/NR:2"]}
TIME = {"unit": "s"}


def written(folder, *, sample="A/NR:2", header=None, info=None, recorded=("predictions.jsonl", "split.json"), wave=""):
    """A workdir by hand, with what a finished run has of it; `header` and `info` replace what would agree."""
    workdir = open_workdir(str(folder), tiny_settings())
    write_split_file(workdir.split, {"format": "ids", "parts": {name: {"ids": ids} for name, ids in IDS.items()},
                                     "time": TIME})  # fmt: skip
    document, split = read_configuration(workdir), parts_digest(IDS)
    stated = {"config": fields_digest(document, "decoding"), "split": split, **(header or {})}
    place = workdir.root / f"{wave}checkpoints/step_2/info"
    place.mkdir(parents=True)
    content = {"config": fields_digest(document, "training"), "split": split, **(info or {})}
    (place / "metadata").write_text(json.dumps(content))
    row = Prediction(sample, sample[0], "NR", sample[2:], 3, "eeg", "eeg", 0, "free_running", "a b c", "a b d")
    write_predictions(workdir.predictions, stated, [row])
    workdir.record("predictions.jsonl")
    workdir.record("split.json")
    workdir.unrecord(*{"predictions.jsonl", "split.json"} - set(recorded))
    return read_any(workdir.predictions)


@pytest.mark.parametrize(
    ("changes", "own"),
    [
        ({}, True),
        ({"sample": "B/NR:2"}, True),
        ({"wave": "wave_1/"}, True),
        ({"sample": "A/NR:1"}, False),
        ({"header": {"config": "0" * 16}}, False),
        ({"header": {"split": "0" * 16}}, False),
        ({"header": {"split": "0" * 16}, "info": {"split": "0" * 16}}, False),
        ({"info": {"config": "0" * 16}}, False),
        ({"info": {"split": "0" * 16}}, False),
        ({"recorded": ["split.json"]}, False),
        ({"recorded": ["predictions.jsonl"]}, False),
    ],
)
def test_predictions_are_of_a_run_if_everything_agrees(tmp_path, changes, own):
    assert is_of_its_run(written(tmp_path, **changes)) == own


def test_neighbors_in_time_are_those_of_the_same_split(tmp_path):
    assert neighbors_of_run(written(tmp_path / "own")) == TIME
    assert neighbors_of_run(written(tmp_path / "other", header={"split": "0" * 16})) is None
