"""UniCoRN's encoder and its mirror: shapes, PyTorch's convolutions, and what each stage can and cannot tell."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import torch
from test_properties import BARTISH, make_model
from tiny_run import tiny_config

from eeg2text_jax.base import cpu
from eeg2text_jax.base.errors import UserError
from eeg2text_jax.models.backbones.build import brain_spec
from eeg2text_jax.models.brain import ReconstructionModel, _convolve, _convolve_back
from eeg2text_jax.training.step import reconstruction_loss

VOLUME = (9, 8, 5)
GRIDS = [(8, 6, 7), VOLUME]  # even and odd axes


def reconstruction(of: str, shape: tuple[int, ...] = VOLUME, **fields) -> ReconstructionModel:
    """A tiny model of one stage."""
    fields = {"encoder_width": 16, "unicorn__channels": (4, 8), "unicorn__hidden": 12, **fields}
    hidden = fields.pop("hidden_share", 0.0)
    config = tiny_config(model__encoder="unicorn", **{f"model__{name}": value for name, value in fields.items()})
    return ReconstructionModel(brain_spec(config.model, shape), of, pad_token=1, hidden_share=hidden)


def recorded(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).normal(size=shape).astype(np.float32)


@pytest.mark.parametrize(("shape", "words"), [((64, 64, 27), 10), ((840,), 56)], ids=["fmri", "eeg"])
def test_shapes_there_and_back(shape, words) -> None:
    """At full size, of which nothing is computed: 27 voxels become 14, 7, 4, 2 and 27 again."""
    defaults = {"encoder_width": 1024, "unicorn__channels": (16, 32, 64, 128), "unicorn__hidden": 1024}
    model = reconstruction("series", shape, **defaults)
    x, mask = jax.ShapeDtypeStruct((2, words, *shape), np.float32), jax.ShapeDtypeStruct((2, words), np.bool_)
    made, judged = jax.eval_shape(model.reconstruct, model.shapes, x, mask)
    assert (made.shape, judged.shape) == (x.shape, mask.shape)
    whole = make_model(BARTISH, model.eeg)
    embeddings, _ = jax.eval_shape(lambda params, x, mask: whole._bind(params).eeg(x, mask), whole.shapes, x, mask)
    assert embeddings.shape == (2, words, BARTISH.width)
    assert "mirror" not in whole.shapes
    if len(shape) == 3:
        assert model.shapes["eeg"]["snapshot"]["outer"]["kernel"].shape == (4096, 1024)


@pytest.mark.parametrize("ways", [(cpu.convolve, cpu.convolve_back), (_convolve, _convolve_back)], ids=["cpu", "xla"])
@pytest.mark.parametrize("grid", GRIDS)
def test_convolutions_equal_torch(grid, ways) -> None:
    """Outputs to 1e-4 and gradients to 1e-3, with PyTorch's weights, of a convolution and the mirror of it."""
    convolve, convolve_back = ways
    x = recorded(2, *grid, 3)
    torch.manual_seed(0)
    there, back = torch.nn.Conv3d(3, 4, 3, 2, 1), torch.nn.ConvTranspose3d(4, 3, 3, 2, 1)
    seen = torch.tensor(x.transpose(0, 4, 1, 2, 3), requires_grad=True)
    hidden = torch.relu(there(seen))
    out = back(hidden, output_size=grid)
    out.square().sum().backward()

    def moved(leaf: torch.Tensor, axes: tuple[int, ...]) -> np.ndarray:
        return leaf.detach().numpy().transpose(axes)

    params = [
        (moved(there.weight, (2, 3, 4, 1, 0)), there.bias.detach().numpy()),
        (moved(back.weight, (2, 3, 4, 1, 0)), back.bias.detach().numpy()),
    ]

    def ours(params, x):
        hidden = jax.nn.relu(convolve(x, params[0][0]) + params[0][1].reshape(1, 1, 1, 1, -1))
        return convolve_back(hidden, params[1][0], grid) + params[1][1].reshape(1, 1, 1, 1, -1)

    np.testing.assert_allclose(jax.jit(ours)(params, x), moved(out, (0, 2, 3, 4, 1)), atol=1e-4)
    (kernels, given) = jax.jit(jax.grad(lambda *args: jnp.square(ours(*args)).sum(), argnums=(0, 1)))(params, x)
    expected = [(there.weight.grad, there.bias.grad), (back.weight.grad, back.bias.grad)]
    for mine, theirs in zip(kernels, expected, strict=True):
        scale = np.abs(theirs[0].numpy()).max()
        np.testing.assert_allclose(mine[0] / scale, moved(theirs[0], (2, 3, 4, 1, 0)) / scale, atol=1e-3)
        np.testing.assert_allclose(mine[1] / scale, theirs[1].numpy() / scale, atol=1e-3)
    np.testing.assert_allclose(given, moved(seen.grad, (0, 2, 3, 4, 1)), rtol=1e-3, atol=1e-3)


def test_overfits_eight_volumes() -> None:
    """Low-rank blobs: below 10 % of the zero predictor."""
    model = reconstruction("snapshot", encoder_width=64, unicorn__channels=(8, 16))
    rng = np.random.default_rng(0)
    middles = [(length, rng.uniform(0, length, (4, 1))) for length in VOLUME]
    parts = [np.exp(-np.square(np.arange(length)[None] - middle) / 4) for length, middle in middles]
    blobs = np.einsum("nr,rx,ry,rz->nxyz", rng.normal(size=(8, 4)), *parts).astype(np.float32)[:, None]
    mask, weight = jnp.ones((8, 1), bool), jnp.ones(8)
    optimizer = optax.adam(optax.cosine_decay_schedule(1e-2, 200))

    def loss(params):
        made, judged = model.reconstruct(params, blobs, mask)
        total, count = reconstruction_loss(blobs, made, judged, weight, "mae")
        return total / count

    @jax.jit
    def fit(params):
        def step(state, _):
            params, opt_state = state
            value, gradient = jax.value_and_grad(loss)(params)
            with jax.numpy_dtype_promotion("standard"):
                updates, opt_state = optimizer.update(gradient, opt_state, params)
            return (optax.apply_updates(params, updates), opt_state), value

        return jax.lax.scan(step, (params, optimizer.init(params)), length=200)[1]

    values = fit(jax.jit(model.init)(jax.random.key(0)))
    assert values[-1] < 0.1 * np.abs(blobs).mean()


@pytest.mark.parametrize("shape", [VOLUME, (10,)], ids=["volumes", "words"])
def test_only_the_series_knows_the_order(shape) -> None:
    x, mask = recorded(3, 6, *shape), jnp.ones((3, 6), bool)
    turned = x[:, ::-1]
    for of, alike in (("snapshot", True), ("series", False)):
        model = reconstruction(of, shape)
        params = jax.jit(model.init)(jax.random.key(0))
        run = jax.jit(lambda x, model=model, params=params: model.reconstruct(params, x, mask)[0])
        made, made_turned = run(x), run(turned)[:, ::-1]
        assert np.allclose(made, made_turned, atol=1e-5) == alike


def test_hidden_snapshots_alone_are_judged_and_not_seen() -> None:
    model = reconstruction("series", (10,), hidden_share=0.4)
    params = jax.jit(model.init)(jax.random.key(0))
    x, mask = recorded(4, 6, 10), np.arange(6)[None] < np.array([6, 5, 2, 1])[:, None]
    run = jax.jit(lambda x: model.reconstruct(params, x, jnp.asarray(mask)))
    made, hidden = map(np.asarray, run(x))
    assert hidden.any(axis=1).all()
    assert not hidden[~mask].any()
    assert hidden.sum() < mask.sum()
    other = np.where(hidden[..., None], 7.0, x).astype(np.float32)
    np.testing.assert_array_equal(run(other)[0], made)


def test_loss_is_numpys() -> None:
    given, made, judged = recorded(3, 4, 5), recorded(3, 4, 5)[::-1], np.array([[1, 1, 0, 0], [1, 0, 0, 0], [1] * 4])
    weight, voxels = np.array([1, 1, 0], np.float32), np.array([1, 0, 1, 1, 0], np.float32)
    real = judged.astype(bool) & (weight > 0)[:, None]
    for kind, error in (("mae", np.abs(given - made)), ("mse", (given - made) ** 2)):
        for where in (None, voxels):
            fed = np.where(real[..., None], given, np.nan)  # what is not judged may be anything
            total, count = reconstruction_loss(fed, made, judged, weight, kind, where)
            chosen = error[real][:, slice(None) if where is None else where > 0]
            np.testing.assert_allclose(total / count, chosen.mean(), rtol=1e-5)


def test_heads_must_divide_the_width() -> None:
    with pytest.raises(UserError, match="encoder_heads is 3, which does not divide the width 16"):
        reconstruction("series", encoder_heads=3)
