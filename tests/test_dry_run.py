"""`eeg2text run --dry-run`: says what a run would do and makes nothing."""

import re

import numpy as np
from tiny_run import tiny_settings

from eeg2text_jax.runs.opening import dry_run


def test_a_dry_run_counts_and_makes_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    said = dry_run(tiny_settings(), str(tmp_path / "run"))
    assert list(tmp_path.iterdir()) == []
    assert "train.steps (now 6, default 1000)" in said
    assert "model.shape.d_model (now 16, no default)" in said
    assert "older version" not in said
    assert re.search(r"data: 120 samples of 2 subjects, 12 features a position", said)
    assert re.search(r"split unique_text: train \d+ samples of \d+ texts, dev", said)
    assert re.search(r"test \d+ samples of \d+ texts; train and test share no texts .* and 2 subjects\n", said)
    assert re.search(r"note: \d+ test texts; a verdict needs 30", said)
    assert "arms: eeg/0, noise/0; 6 steps of 8 samples" in said
    assert re.search(r"model: [\d,]+ parameters an arm; memory at least 0\.0\d GiB", said)
    assert re.search(r"time: at most \d+\.\d min .* at \d+ GFLOP/s", said)
    assert said.endswith("run, a new folder; nothing was made.")


def test_the_time_is_that_of_all_arms(tmp_path, monkeypatch):
    monkeypatch.setattr("eeg2text_jax.runs.opening.product_pace", lambda: 1e6)
    minutes = []
    for conditions in (("eeg",), ("eeg", "noise"), ("eeg", "noise", "shuffled")):
        said = dry_run(tiny_settings(grid__train_conditions=conditions), str(tmp_path / "run"))
        minutes.append(float(re.search(r"time: at most ([\d.]+) min", said)[1]))
    np.testing.assert_allclose(minutes, np.array([1, 2, 3]) * minutes[0], atol=0.2)
    assert minutes[0] > 1


def test_declared_epochs_are_counted_in_steps(tmp_path):
    said = dry_run(tiny_settings(train__epochs=2), str(tmp_path / "run"))
    assert re.search(r"^train: 2 epochs of \d+ batches: \d+ steps$", said, re.MULTILINE)
