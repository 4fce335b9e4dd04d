"""A run whose split was exchanged does not score predictions of the old one."""

from types import SimpleNamespace

import pytest
from etils import epath
from reading_grids import grid
from tiny_run import tiny_settings

from eeg2text_jax.base.errors import UserError
from eeg2text_jax.data.splits.methods import make_split
from eeg2text_jax.instrument.predictions.file import Prediction, write_predictions
from eeg2text_jax.instrument.workdir import Workdir
from eeg2text_jax.runs.pipeline import score


def test_predictions_of_another_split_are_not_scored(tmp_path):
    data = grid(sentences={"SR": 20})
    ours, other = (make_split(data, "unique_text", (0.8, 0.1, 0.1), seed) for seed in (0, 1))
    workdir = Workdir(epath.Path(tmp_path))
    one = Prediction("A/SR:0", "A", "SR", "SR:0", 3, "eeg", "eeg", 0, "free_running", "a b c", "a b d")
    write_predictions(workdir.predictions, {"split": other.digest()}, [one])
    with pytest.raises(UserError, match=f"carries split {other.digest()}, expected split {ours.digest()}"):
        score(SimpleNamespace(workdir=workdir, split=ours, config=tiny_settings()))
    assert not workdir.results.exists()
