"""The same grid on every mesh: equal losses and tokens, and nothing that crosses the arms."""

import re

import jax
import numpy as np
import pytest
import tiny_grid
from tiny_grid import B, T, W

from eeg2text_jax.base.chips.hlo_text import bytes_by_axis, collectives
from eeg2text_jax.base.devices.mesh import FULLY_SHARDED, REPLICATED, make_mesh

LOSS_TOLERANCE = 1e-5


def axes(text, mesh):
    """The axes of a mesh that a compiled program communicates along."""
    return {axis for c in collectives(text, mesh) for axis in c.axes}


def run(arms, shape, **options):
    """Losses `[steps, A]`, tokens `[A, B, T]`, and the axes that training and decoding communicate along."""
    mesh = make_mesh(*shape, jax.devices()[: shape[0] * shape[1]])
    program = tiny_grid.make_program(arms, **options)
    state, losses, step = tiny_grid.train(program, mesh, REPLICATED)
    tokens, search = tiny_grid.decode(program, state.params, mesh)
    return losses, tokens, [axes(step, mesh), axes(search, mesh)]


@pytest.fixture(scope="module")
def one_device():
    return run(tiny_grid.ARMS, (1, 1))


@pytest.mark.quick("shape0")
@pytest.mark.parametrize("shape", [(2, 4), (4, 2), (8, 1), (1, 8)])
def test_every_mesh_trains_and_decodes_alike(one_device, shape):
    losses, tokens, (training, decoding) = run(tiny_grid.ARMS, shape)
    np.testing.assert_allclose(losses, one_device[0], rtol=LOSS_TOLERANCE)
    np.testing.assert_array_equal(tokens, one_device[1])
    assert training == ({"data"} if shape[1] > 1 else set())
    assert decoding == set()


@pytest.mark.slow
@pytest.mark.parametrize(("shape", "keep"), [((1, 1), "nothing"), ((2, 4), "products"), ((8, 1), "products")])
def test_layers_computed_again_train_alike(one_device, shape, keep):
    program = tiny_grid.make_program(tiny_grid.ARMS, tiny_grid.make_model(remat=True, keep=keep))
    mesh = make_mesh(*shape, jax.devices()[: shape[0] * shape[1]])
    _, losses, step = tiny_grid.train(program, mesh, REPLICATED)
    np.testing.assert_allclose(losses, one_device[0], rtol=LOSS_TOLERANCE)
    assert axes(step, mesh) == ({"data"} if shape[1] > 1 else set())


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


@pytest.mark.slow
def test_arms_one_after_the_other_are_the_arms_side_by_side(one_device):
    losses, tokens, _ = run(tiny_grid.ARMS[:2], (1, 1), mapping="map")
    np.testing.assert_allclose(losses, one_device[0][:, :2], rtol=LOSS_TOLERANCE)
    np.testing.assert_array_equal(tokens, one_device[1][:2])


def test_fully_sharded_parameters_train_alike(one_device, monkeypatch):
    monkeypatch.setattr("eeg2text_jax.base.devices.mesh.FSDP_MIN_SIZE", 1)
    mesh = make_mesh(2, 4)
    _, losses, step = tiny_grid.train(tiny_grid.make_program(tiny_grid.ARMS[:2]), mesh, FULLY_SHARDED)
    np.testing.assert_allclose(losses, one_device[0][:, :2], rtol=LOSS_TOLERANCE)
    assert axes(step, mesh) == {"data"}


@pytest.mark.quick("shape1-products")
@pytest.mark.parametrize("keep", [None, "products"])
@pytest.mark.parametrize("shape", [(1, 8), (2, 4)])
def test_batch_stays_divided_with_divided_parameters(shape, keep, monkeypatch):
    """No device holds activations or logits of the global batch.

    The gradient of the token embeddings is an exception: every device gathers that of all looked-up rows and adds it to
    its part of the table. For BART-large at batch 256 these are 56 MiB of 2.6 GiB; the table has 196.
    """
    monkeypatch.setattr("eeg2text_jax.base.devices.mesh.FSDP_MIN_SIZE", 1)
    mesh = make_mesh(*shape)
    model = tiny_grid.make_model(remat=keep is not None, keep=keep or "products")
    program = tiny_grid.make_program(tiny_grid.ARMS[:2], model)
    _, _, step = tiny_grid.compiled_step(program, mesh, FULLY_SHARDED)
    lines = [line for line in step.as_text().splitlines() if "scatter-add" not in line]
    hlo = "\n".join(line for line in lines if " parameter(" not in line)
    rows, width = B * T, 16

    def logits(batch: int) -> bool:
        return re.search(rf"= f32\[(2,)?({batch},{T}|{batch * T}),{tiny_grid.VOCABULARY}\]", hlo) is not None

    assert logits(B // shape[1])
    assert not logits(B)
    assert re.search(rf"= f32\[(2,)?{rows // shape[1]},{width}\]", hlo)
    assert not re.search(rf"= f32\[(2,)?({rows}|{B * W}),{width}\]", hlo)


@pytest.mark.slow
def test_traffic_does_not_grow_with_the_batch(monkeypatch):
    monkeypatch.setattr("eeg2text_jax.base.devices.mesh.FSDP_MIN_SIZE", 1)
    mesh, traffic = make_mesh(1, 8), []
    for batch in (16, 64):
        monkeypatch.setattr(tiny_grid, "B", batch)
        program = tiny_grid.make_program(tiny_grid.ARMS[:1])
        _, _, step = tiny_grid.compiled_step(program, mesh, FULLY_SHARDED)
        traffic.append(bytes_by_axis(collectives(step.as_text(), mesh))["data"])
    assert traffic[1] < 1.1 * traffic[0], traffic
