"""Every brain encoder behind one interface: words or volumes and a mask in, embeddings and a mask out."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from flax import nnx
from test_properties import BARTISH, make_model
from tiny_run import tiny_config

from eeg2text_jax.base.errors import UserError
from eeg2text_jax.models.backbones.build import brain_spec
from eeg2text_jax.models.brain import Direction, make_encoder
from eeg2text_jax.models.nnx_bridge import init_params, structure_of
from eeg2text_jax.models.spec import ENCODERS, EEGSpec

LENGTHS = (4, 6, 1)
MASK = np.arange(6)[None] < np.array(LENGTHS)[:, None]
SHAPES = {"words": (10,), "volumes": (5, 4, 3)}


def spec_of(kind: str, shape: tuple[int, ...] = (10,)) -> EEGSpec:
    """A tiny encoder of a kind."""
    model = tiny_config(model__encoder=kind, model__encoder_width=8, model__encoder_layers=2).model
    return brain_spec(model, shape)


def recorded(shape: tuple[int, ...]) -> np.ndarray:
    return np.random.default_rng(0).normal(size=(3, 6, *shape)).astype(np.float32)


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("kind", ENCODERS)
def test_what_stands_at_padding_does_not_matter(kind, shape) -> None:
    make = functools.partial(make_encoder, spec_of(kind, shape), BARTISH.width, jnp.dtype("float32"))
    structure, params = structure_of(make)[0], jax.jit(functools.partial(init_params, make))(jax.random.key(0))
    run = jax.jit(lambda x: nnx.merge(structure, params)(x, jnp.asarray(MASK)))
    x = recorded(shape)
    spoilt = x.copy()
    spoilt[~MASK] = np.inf
    embeddings, mask = run(x)
    np.testing.assert_array_equal(mask, MASK)
    assert embeddings.shape == (3, 6, BARTISH.width)
    np.testing.assert_array_equal(run(spoilt)[0][MASK], embeddings[MASK])
    assert np.abs(run(x + 1.0)[0] - embeddings)[MASK].max() > 1e-3


def test_lstm_equals_torch_on_packed_sequences() -> None:
    spec, x = spec_of("lstm"), recorded((10,))
    torch.manual_seed(0)
    theirs = torch.nn.LSTM(10, 8, num_layers=2, batch_first=True, bidirectional=True)
    bridge = torch.nn.Linear(16, BARTISH.width)
    packed = torch.nn.utils.rnn.pack_padded_sequence(torch.tensor(x), LENGTHS, batch_first=True, enforce_sorted=False)
    out = torch.nn.utils.rnn.pad_packed_sequence(theirs(packed)[0], batch_first=True)[0]
    expected = torch.relu(bridge(out)).detach().numpy()

    model = make_model(BARTISH, spec)
    params = jax.jit(model.init)(jax.random.key(0))
    weights = {name: np.asarray(leaf.detach()) for name, leaf in theirs.named_parameters()}
    for ours in [name for name in params["eeg"] if name != "bridge"]:
        direction, number = ours.split("_")
        end = f"l{number}" + ("_reverse" if direction == "backward" else "")
        bias = weights[f"bias_ih_{end}"] + weights[f"bias_hh_{end}"]
        params["eeg"][ours] = {
            "input": {"kernel": weights[f"weight_ih_{end}"].T, "bias": bias},
            "recurrent": {"kernel": weights[f"weight_hh_{end}"].T},
        }
    params["eeg"]["bridge"] = {"kernel": bridge.weight.detach().numpy().T, "bias": bridge.bias.detach().numpy()}
    ours = jax.jit(lambda params: model._bind(params).eeg(jnp.asarray(x), jnp.asarray(MASK))[0])(params)
    np.testing.assert_allclose(ours[MASK], expected[MASK], atol=1e-5)


def test_an_lstm_begins_with_kernels_drawn_as_pytorch_draws_them() -> None:
    """Evenly from -1/sqrt(hidden) to 1/sqrt(hidden), whatever the width of the input, and each kernel by itself."""
    hidden, rngs = 64, nnx.Rngs(0)
    layers = [Direction(100, hidden, jnp.dtype("float32"), rngs) for _ in range(2)]
    kernels = [np.asarray(part.kernel[...]) for layer in layers for part in (layer.input, layer.recurrent)]
    assert [kernel.shape for kernel in kernels] == [(100, 256), (64, 256)] * 2
    bound = hidden**-0.5
    for kernel in kernels:
        np.testing.assert_allclose([kernel.min(), kernel.max()], [-bound, bound], rtol=0.005)
        assert np.abs(kernel).max() <= bound * (1 + 1e-6)
        assert abs(kernel.mean()) < 0.02 * bound  # four standard errors
        assert kernel.std() == pytest.approx(bound / 3**0.5, rel=0.02)
    assert len({kernel[0, 0].item() for kernel in kernels}) == 4


def test_volumes_need_a_width() -> None:
    with pytest.raises(UserError, match=r"encoder_width is 0, .* a volume of 110,592 voxels"):
        brain_spec(tiny_config().model, (64, 64, 27))
    with pytest.raises(UserError, match=r"config\.model\.encoder is 'gru'; expected one of unicorn, lstm, transformer"):
        make_model(BARTISH, dataclasses.replace(spec_of("none"), kind="gru")).init(jax.random.key(0))
