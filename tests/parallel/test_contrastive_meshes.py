"""A contrastive step is the same on any mesh: a batch divided over devices is still one batch of candidates."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import tiny_grid

from eeg2text_jax.base.devices.mesh import REPLICATED, make_mesh
from eeg2text_jax.models.functional import ContrastiveModel
from eeg2text_jax.models.spec import EEGSpec
from eeg2text_jax.training.grid_program import ContrastiveProgram


def trained(arm: int, data: int) -> tuple[np.ndarray, dict]:
    """Losses `[steps, A]` and parameters after three steps on a mesh of `arm * data` devices."""
    model = ContrastiveModel(tiny_grid.make_model(dropout=0.0), 8, tiny_grid.TEXT_WIDTH, 0.1, True)
    mesh = make_mesh(arm, data, jax.devices()[: arm * data])
    program = tiny_grid.make_program(tiny_grid.ARMS[:2], model, ContrastiveProgram, label_smoothing=0.0)
    state, losses, _ = tiny_grid.train(program, mesh, REPLICATED, steps=3)
    return losses, jax.tree.map(np.asarray, state.params)


def test_losses_and_parameters_are_those_of_one_device():
    expected, params = trained(1, 1)
    assert np.isfinite(expected).all()
    for arm, data in ((1, 4), (2, 2)):
        losses, found = trained(arm, data)
        np.testing.assert_allclose(losses, expected, rtol=2e-5)
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5), found, params)


def test_a_contrastive_loss_drops_units():
    rng = np.random.default_rng(0)
    eeg = EEGSpec(tiny_grid.F, layers=1, heads=2, ffn=16, dropout=0.5)
    model = ContrastiveModel(dataclasses.replace(tiny_grid.make_model(), eeg=eeg), 8, tiny_grid.TEXT_WIDTH, 0.1, True)
    program = ContrastiveProgram(model, tiny_grid.ARMS[:1], optax.sgd(0.1), 0.0, "vmap")
    rows = {"mask": jnp.ones((4, 5), bool), "sentence": jnp.arange(4), "weight": jnp.ones(4)}
    for name, shape in (("features", (4, 5, tiny_grid.F)), ("text", (4, tiny_grid.TEXT_WIDTH))):
        rows[name] = jnp.asarray(rng.normal(size=shape).astype(np.float32))
    params, loss = jax.jit(model.init)(jax.random.key(0)), jax.jit(program._loss)
    kept, *dropped = (float(loss(params, rows, key)[0]) for key in (None, jax.random.key(1), jax.random.key(2)))
    assert len({round(loss, 3) for loss in (kept, *dropped)}) == 3
    rows["weight"] = jnp.array([1.0, 1.0, 0.0, 1.0])  # the loss of a step is the mean over real rows
    value, _ = jax.jit(program._gradient)(params, rows, jax.random.key(1))
    np.testing.assert_allclose(value, loss(params, rows, jax.random.key(1))[0] / 3, rtol=1e-5)
