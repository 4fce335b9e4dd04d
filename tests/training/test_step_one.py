"""Two-step training: what step one leaves alone, and that step two begins with its best."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import tiny_grid
from tiny_run import study_in, tiny_settings

from eeg2text_jax.training.grid_program import make_program, stage_before
from eeg2text_jax.training.loop import make_initial_state, train_arms, trained_params
from eeg2text_jax.training.step import trainable_mask
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
    before = make_initial_state(first, make_program(first.config, first.model, first.arms)).params
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


@pytest.mark.slow
def test_the_norm_of_the_gradient_is_that_of_what_is_trained(trained):
    """The first step's, from the gradients of a program that trains all."""
    first = stage_before(trained)
    program = make_program(first.config, first.model, first.arms)
    whole = dataclasses.replace(program, phase="all", optimizer=kept_gradients())
    state = make_initial_state(first, program)
    arms = len(first.arms)
    given = {"features": np.ones((1, 8, 20, 12), np.float32), "mask": np.ones((1, 8, 20), bool)}
    given |= {"weight": np.ones((1, 8), np.float32), "labels": np.full((1, 8, 56), 5, np.int32)}
    given |= {"sample_id": np.arange(8, dtype=np.uint32)[None]}
    study = tiny_grid.study_arrays(program, first.placement.mesh)
    _, metrics = program.train_step(state, given, study)
    gradients = whole.train_step(whole.first_state(state.params), given, study)[0].opt_state
    for arm in range(arms):
        own = jax.tree.map(lambda leaf, arm=arm: np.asarray(leaf[arm]), gradients)
        free = trainable_mask(first.model, own, "first")
        squares = jax.tree.map(lambda leaf, free: np.square(leaf * free).sum(), own, free)
        np.testing.assert_allclose(metrics["grad_norm"][arm], np.sqrt(sum(jax.tree.leaves(squares))), rtol=1e-4)


def kept_gradients() -> optax.GradientTransformation:
    """Changes nothing, and keeps the gradients of the last step."""
    return optax.GradientTransformation(
        lambda params: jax.tree.map(jnp.zeros_like, params),
        lambda gradients, _, params=None: (jax.tree.map(jnp.zeros_like, gradients), gradients),
    )
