"""`eeg2text run --dry-run`: says what a run would do and makes nothing."""

import re

import jax
import numpy as np
from tiny_run import study_in, tiny_settings

from eeg2text_jax.runs.opening import dry_run


def test_a_dry_run_counts_and_makes_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    said = dry_run(tiny_settings(), str(tmp_path / "run"))
    assert list(tmp_path.iterdir()) == []
    assert "train.steps (now 6, default 1000)" in said
    assert "model.shape.d_model (now 16, no default)" in said
    assert "older version" not in said
    assert re.search(r"data: 120 samples of 2 subjects, 12 features a position", said)
    study = study_in(tmp_path / "run", tiny_settings())
    texts = {name: len({study.data.sentence[i] for i in rows}) for name, rows in study.split.parts.items()}
    parts = [f"{name} {len(rows)} samples of {texts[name]} texts" for name, rows in study.split.parts.items()]
    assert f"split unique_text: {', '.join(parts)}; train and test share no texts" in said
    assert re.search(r" and 2 subjects\n", said)
    assert f"note: {texts['test']} test texts; a verdict needs 30" in said
    weights = sum(leaf.size for leaf in jax.tree.leaves(study.model.shapes))
    assert f"model: {weights:,} parameters an arm" in said
    assert "arms: eeg/0, noise/0; 6 steps of 8 samples" in said
    assert re.search(r"parameters an arm; memory at least 0\.0\d GiB", said)
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
