"""Epochs are declared and steps derived from the split: the papers' counts; what a run prints, stores and refuses."""

import itertools
import json

import numpy as np
import pytest
from ml_collections import ConfigDict
from tiny_run import ROOT, as_flag, tiny_config, tiny_settings

from eeg2text_jax.base.errors import UserError
from eeg2text_jax.base.kinds import plain
from eeg2text_jax.commands.preflight.programs import make_outline
from eeg2text_jax.data.batches import EpochPlan
from eeg2text_jax.instrument.workdir import write_configuration
from eeg2text_jax.runs.opening import check_derived, open_workdir, resumed
from eeg2text_jax.training.configuration import load_config, parse_config
from eeg2text_jax.training.sections import (
    EPOCHS,
    RANGES,
    check_config,
    count_batches,
    field_at,
    length_lines,
    read_settings,
    with_steps,
    with_stored_steps,
)

PAPER, FAIR, LEAKAGE = (str(ROOT / f"configs/{name}.py") for name in ("paper", "fair", "leakage"))


@pytest.mark.parametrize("samples", [1, 31, 32, 33, 200, 1000])
def test_an_epoch_has_as_many_batches_in_whatever_buckets(samples):
    rng = np.random.default_rng(samples)
    words, tokens = rng.integers(1, 40, samples), rng.integers(1, 50, samples)
    for buckets in (((40, 50),), ((10, 20), (20, 50), (40, 50))):
        assert EpochPlan(words, tokens, buckets, 32, seed=0).batches_per_epoch == count_batches(samples, 32)


@pytest.mark.parametrize(("samples", "batches", "steps"), [(9951, 311, 9330), (10_710, 335, 10_050)])
@pytest.mark.parametrize("backbone", ["bart", "t5", "pegasus"])
def test_the_papers_recipe_is_30_epochs(samples, batches, steps, backbone):
    """The train parts of SR, NR and TSR, and of SR, NR and the second corpus's NR."""
    config = with_steps(read_settings(load_config(f"{PAPER}:backbone={backbone},steps=two")), samples)
    check_config(ConfigDict(config.document))
    assert (config.train.steps, config.train.eval_every, config.train.save_every) == (steps, batches, batches)
    assert (config.optim.decay_every, config.step_one.steps) == (steps, 20 * batches)
    assert length_lines(config, samples) == [
        f"train: 30 epochs of {batches} batches: {steps:,} steps",
        f"step_one: 20 epochs of {batches} batches: {20 * batches:,} steps",
    ]
    assert with_steps(read_settings(load_config(PAPER)), samples).step_one.steps == 0
    assert with_steps(config, samples) == config


@pytest.mark.parametrize("samples", [6740, 8000])
def test_leakage_has_50_and_10_epochs_of_each_splits_own_train_part(samples):
    zuco = with_steps(read_settings(load_config(f"{LEAKAGE}:method=c,data=zuco")), samples)
    assert (zuco.train.steps, zuco.train.eval_every) == (50 * -(-samples // 90), -(-samples // 90))
    for stage in (zuco.pretrain.snapshot, zuco.pretrain.series):
        assert (stage.steps, stage.eval_every) == (15 * -(-samples // 26), -(-samples // 26))
    stories = with_steps(read_settings(load_config(f"{LEAKAGE}:method=c,data=narratives")), samples)
    assert stories.train.steps == 10 * -(-samples // 90)
    assert len(length_lines(stories, samples)) == 3
    star = with_steps(read_settings(load_config(f"{LEAKAGE}:method=c,data=narratives,pretrain=no")), samples)
    assert length_lines(star, samples) == [
        f"train: 20 epochs of {-(-samples // 90)} batches: {star.train.steps:,} steps"
    ]
    own = with_steps(read_settings(load_config(f"{FAIR}:model=eeg2text,data=zuco")), samples)
    assert own.train.steps == 80 * -(-samples // 32)


def test_every_field_of_epochs_has_the_steps_that_it_replaces():
    assert {name for name in RANGES if name.endswith("epochs")} == EPOCHS.keys()
    assert all(steps in RANGES and batch in RANGES for steps, batch in EPOCHS.values())
    usual = tiny_settings()
    assert with_steps(usual, 1000) == usual
    assert length_lines(usual, 1000) == []
    for name, (steps, batch) in EPOCHS.items():
        config = read_settings(tiny_config(**{name: 3}))
        changed = with_steps(config, 1000)
        assert field_at(changed, steps) == 3 * -(-1000 // field_at(config, batch)), name
        assert changed == config.changed({steps: field_at(changed, steps)}), name
        assert changed.document == plain(tiny_config(**{name: 3, steps: field_at(changed, steps)})), name


def test_steps_of_a_command_line_are_not_silently_replaced():
    command = [f"--config={PAPER}", "--config.train.steps=20"]
    with pytest.raises(UserError, match=r"--config.train.steps: is not used, as train.epochs is 30 .* give --config.t"):
        parse_config(command, "run")
    with pytest.raises(UserError, match=r"--config.train.eval_every: is not used, as train.eval_epochs is 1"):
        parse_config([f"--config={PAPER}", "--config.train.eval_every", "20"], "run")
    assert parse_config([*command, "--config.train.epochs=0"], "run").config.train.steps == 20
    assert parse_config([f"--config={PAPER}", "--config.train.epochs=2"], "run").config.train.epochs == 2


def test_fields_that_need_steps_take_epochs():
    unicorn = {"model__encoder": "unicorn", "pretrain__enabled": True, "pretrain__freeze_snapshot": True}
    check_config(tiny_config(**unicorn, pretrain__snapshot__steps=0, pretrain__snapshot__epochs=1))
    with pytest.raises(UserError, match=r"pretrain.snapshot.steps 0; expected steps"):
        check_config(tiny_config(**unicorn, pretrain__snapshot__steps=0))
    with pytest.raises(UserError, match=r"step_one.epochs is 1; expected 0 with objective=contrastive"):
        check_config(tiny_config(objective="contrastive", step_one__epochs=1))


def test_preflight_needs_no_data():
    outline = make_outline(read_settings(load_config(f"{PAPER}:backbone=bart,checkpoint=random")))
    assert outline.config.train.epochs == 30


def test_a_workdir_keeps_its_steps_and_refuses_those_of_another_split(tmp_path):
    config = tiny_settings(train__epochs=2, train__save_epochs=1)
    workdir = open_workdir(str(tmp_path / "run"), config)
    write_configuration(workdir, with_steps(config, 80).document)
    stored = json.loads(workdir.config.read_text())
    assert (stored["train"]["steps"], stored["train"]["save_every"]) == (20, 10)
    check_derived(workdir, with_steps(config, 100), 100)  # nothing is trained
    (workdir.root / "checkpoints/step_4").mkdir(parents=True)
    resumed(config, workdir)
    check_derived(workdir, with_steps(config, 80), 80)
    expected = r"split.json: .*step_4 was trained on: train.epochs=2 is train.steps=26 with its 100 .* expected 20;"
    with pytest.raises(UserError, match=expected):
        check_derived(workdir, with_steps(config, 100), 100)
    open_workdir(str(workdir.root), config)
    assert json.loads(workdir.config.read_text()) == stored
    with pytest.raises(UserError, match=r"train.epochs \(now 3, there 2\)"):
        resumed(tiny_settings(train__epochs=3), workdir)
    with pytest.raises(UserError, match=r"train.steps \(now 6, there 20\)"):
        resumed(tiny_settings(), workdir)
    other = tiny_settings(train__epochs=2, train__save_epochs=3)  # may change
    resumed(other, workdir)
    check_derived(workdir, with_steps(other, 80), 80)
    assert with_stored_steps(config, {"train": {"steps": "many"}}).train.steps == config.train.steps


def parts(folder, sizes):
    """A split file with so many samples a part, by their rows."""
    edges = np.cumsum([0, *sizes])
    rows = [list(range(a, b)) for a, b in itertools.pairwise(map(int, edges))]
    path = folder / "parts.json"
    path.write_text(json.dumps(dict(zip(("train", "dev", "test"), rows, strict=True))))
    return path


def test_a_run_of_two_epochs_resumes_and_refuses_another_split(tmp_path, printed_by, refused):
    path = parts(tmp_path, (20, 8, 8))
    root = tmp_path / "run"
    changes = {"split__method": "file", "grid__train_conditions": ("eeg",), "grid__eval_conditions": ("eeg",)}
    changes |= {"train__epochs": 2, "train__eval_epochs": 1, "train__save_epochs": 1}
    command = ["train", as_flag(**changes, split__path=str(path)), f"--workdir={root}"]
    assert "train: 2 epochs of 3 batches: 6 steps\n" in printed_by(command)
    stored = json.loads((root / "config.json").read_text())["train"]
    assert (stored["epochs"], stored["steps"], stored["eval_every"]) == (2, 6, 3)
    rows = [json.loads(line) for line in (root / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows if "dev_loss/eeg/0" in row] == [3, 6]

    assert "2 epochs of 3 batches" in printed_by(command)
    before = (root / "config.json").read_bytes()
    parts(tmp_path, (30, 8, 8))
    (root / "split.json").unlink()
    sentence = refused(command)
    assert "train.epochs=2 is train.steps=8 with its 30 samples in the train part, expected 6" in sentence
    assert (root / "config.json").read_bytes() == before
