"""Two-step training: what step one leaves alone, and that step two begins with its best."""

import jax
import numpy as np
import pytest
from tiny_run import study_in, tiny_settings

from eeg2text_jax.training.grid_program import make_program
from eeg2text_jax.training.resume import make_initial_state, trained_params
from eeg2text_jax.training.stages import stage_before
from eeg2text_jax.training.state import trainable_mask
from eeg2text_jax.training.waves import train_arms
from eeg2text_testing.forked_runs import logged_metrics

STEPS = {"step_one__steps": 3, "step_one__lr": 1e-2, "train__steps": 2, "train__eval_every": 1}


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    shape = {"encoder_layers": 2}
    config = tiny_settings(**STEPS, model__encoder_layers=0, shape=shape).changed({"optim.lr": 0.0})
    study = study_in(tmp_path_factory.mktemp("two_steps") / "run", config)
    train_arms(study)
    return study


def test_step_one_moves_what_is_free_and_nothing_else(trained):
    first = stage_before(trained)
    before = make_initial_state(first, make_program(first.config, first.model, first.arms), first.placement).params
    after = trained_params(first)
    free = trainable_mask(trained.model, jax.tree.map(lambda leaf: leaf[0], before), "first")
    moved = jax.tree.map(lambda old, new: np.asarray(old != new), before, after)  # [A, ...]
    held = jax.tree.map(lambda changed, free: changed & ~free[None], moved, free)
    assert not any(leaf.any() for leaf in jax.tree.leaves(held))
    layers = moved["backbone"]["encoder"]["layers"]["ffn"]["inner"]["kernel"]  # [A, L, n_in, n_out]
    assert layers[:, 0].any()
    assert not layers[:, 1].any()
    assert not any(leaf.any() for leaf in jax.tree.leaves(moved["backbone"]["decoder"]["layers"]))


def test_step_two_begins_with_the_best_of_step_one(trained):
    """Its learning rate is 0 here, so it ends with what it began with."""
    begun = [np.asarray(leaf) for leaf in jax.tree.leaves(trained_params(stage_before(trained)))]
    ended = [np.asarray(leaf) for leaf in jax.tree.leaves(trained_params(trained))]
    assert all(np.array_equal(a, b) for a, b in zip(begun, ended, strict=True))
    assert [row["step"] for row in logged_metrics(trained.workdir.root) if "loss/eeg/0" in row] == [1, 2]
