"""The same grid on every mesh: equal losses and tokens, and nothing that crosses the arms."""

import jax
import numpy as np
import pytest
import tiny_grid

from eeg2text_jax.parallel.hlo import collectives
from eeg2text_jax.parallel.mesh import make_mesh
from eeg2text_jax.parallel.placement import FULLY_SHARDED, REPLICATED

LOSS_TOLERANCE = 1e-5


def run(arms, shape, rules=REPLICATED, **options):
    """Losses `[steps, A]`, tokens `[A, B, T]`, and the axes that training and decoding communicate along."""
    mesh = make_mesh(*shape, jax.devices()[: shape[0] * shape[1]])
    program = tiny_grid.make_program(arms, **options)
    state, losses, step = tiny_grid.train(program, mesh, rules)
    tokens, search = tiny_grid.decode(program, state.params, mesh)
    return losses, tokens, [{axis for c in collectives(text, mesh) for axis in c.axes} for text in (step, search)]


@pytest.fixture(scope="module")
def one_device():
    return run(tiny_grid.ARMS, (1, 1))


@pytest.mark.parametrize("shape", [(2, 4), (4, 2), (8, 1), (1, 8)])
def test_every_mesh_trains_and_decodes_alike(one_device, shape):
    losses, tokens, (training, decoding) = run(tiny_grid.ARMS, shape)
    np.testing.assert_allclose(losses, one_device[0], rtol=LOSS_TOLERANCE)
    np.testing.assert_array_equal(tokens, one_device[1])
    assert training == ({"data"} if shape[1] > 1 else set())
    assert decoding == set()


@pytest.mark.parametrize(("shape", "keep"), [((1, 1), "nothing"), ((2, 4), "products"), ((8, 1), "products")])
def test_layers_computed_again_train_alike(one_device, shape, keep):
    model = tiny_grid.make_model(remat=True, keep=keep)
    losses, _, (training, _) = run(tiny_grid.ARMS, shape, model=model)
    np.testing.assert_allclose(losses, one_device[0], rtol=LOSS_TOLERANCE)
    assert training == ({"data"} if shape[1] > 1 else set())


def test_arms_learn_and_differ(one_device):
    """So that equal losses mean something; and the keys are those that every backend draws alike from."""
    assert jax.config.jax_default_prng_impl == "threefry2x32"
    losses, tokens, _ = one_device
    assert losses.shape == (tiny_grid.STEPS, 8)
    assert (losses[-5:].mean(axis=0) < losses[:5].mean(axis=0)).all()
    assert len(np.unique(losses[-1])) == len(tiny_grid.ARMS)
    assert len({arm.tobytes() for arm in tokens}) >= 3


def test_an_arm_alone_is_the_arm_in_the_grid(one_device):
    losses, tokens, _ = run(tiny_grid.ARMS[1:2], (1, 1))
    np.testing.assert_allclose(losses[:, 0], one_device[0][:, 1], rtol=LOSS_TOLERANCE)
    np.testing.assert_array_equal(tokens[0], one_device[1][1])


def test_arms_one_after_the_other_are_the_arms_side_by_side(one_device):
    losses, tokens, _ = run(tiny_grid.ARMS[:2], (1, 1), mapping="map")
    np.testing.assert_allclose(losses, one_device[0][:, :2], rtol=LOSS_TOLERANCE)
    np.testing.assert_array_equal(tokens, one_device[1][:2])


def test_fully_sharded_parameters_train_alike(one_device, monkeypatch):
    monkeypatch.setattr("eeg2text_jax.parallel.placement.FSDP_MIN_SIZE", 1)
    mesh = make_mesh(2, 4)
    _, losses, step = tiny_grid.train(tiny_grid.make_program(tiny_grid.ARMS[:2]), mesh, FULLY_SHARDED)
    np.testing.assert_allclose(losses, one_device[0][:, :2], rtol=LOSS_TOLERANCE)
    assert {axis for c in collectives(step, mesh) for axis in c.axes} == {"data"}
