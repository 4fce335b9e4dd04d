"""The EEG encoder and bridge against PyTorch's, and the authors' variants."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import torch
from test_properties import BARTISH, EEG, make_model
from tiny_run import tiny_config

from eeg2text_jax.models.backbones.build import brain_spec
from eeg2text_jax.models.brain import encoder_width
from eeg2text_jax.models.spec import EEGSpec
from eeg2text_jax.training.step import trainable_mask, trainable_only

MASK = np.arange(6)[None] < np.array([[4], [6], [1]])


def features(width: int) -> np.ndarray:
    return np.random.default_rng(0).normal(size=(3, 6, width)).astype(np.float32)


def from_torch(encoder: torch.nn.TransformerEncoder) -> dict:
    """Weights of PyTorch's layers, stacked, in our layout."""

    def stacked(name: str, part: slice = slice(None)) -> jax.Array:
        arrays = [layer.get_parameter(name).detach().numpy()[part] for layer in encoder.layers]
        return jnp.stack([array.T for array in arrays])

    def dense(name: str) -> dict:
        return {"kernel": stacked(f"{name}.weight"), "bias": stacked(f"{name}.bias")}

    def norm(name: str) -> dict:
        return {"scale": stacked(f"{name}.weight"), "bias": stacked(f"{name}.bias")}

    width = encoder.layers[0].linear1.in_features
    attention = {"out": dense("self_attn.out_proj")}
    for i, part in enumerate(("query", "key", "value")):
        rows = slice(i * width, (i + 1) * width)
        weight, bias = (stacked(f"self_attn.in_proj_{kind}", rows) for kind in ("weight", "bias"))
        attention[part] = {"kernel": weight, "bias": bias}
    ffn = {"inner": dense("linear1"), "outer": dense("linear2")}
    return {"self_attention": attention, "self_norm": norm("norm1"), "ffn": ffn, "ffn_norm": norm("norm2")}


@pytest.mark.quick("10")
@pytest.mark.parametrize("n_features", [12, 10])
def test_equals_torch(n_features: int) -> None:
    """Also where heads do not divide F: PyTorch is given the zero columns that we add."""
    spec = EEGSpec(features=n_features, layers=2, heads=4, ffn=20)
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(12, 4, 20, dropout=0.1, activation="relu", batch_first=True)
    theirs = torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval()
    bridge = torch.nn.Linear(12, BARTISH.width)
    with torch.no_grad():
        for parameter in (*theirs.parameters(), *bridge.parameters()):
            parameter.add_(torch.randn_like(parameter) * 0.1)
    x = features(n_features)
    padded = torch.tensor(np.pad(x, ((0, 0), (0, 0), (0, 12 - n_features))))
    expected = torch.relu(bridge(theirs(padded, src_key_padding_mask=torch.tensor(~MASK)))).detach().numpy()

    model = make_model(BARTISH, spec)
    params = jax.jit(model.init)(jax.random.key(0))
    params["eeg"]["encoder"]["layers"] = from_torch(theirs)
    params["eeg"]["bridge"] = {
        "kernel": jnp.asarray(bridge.weight.detach().numpy().T),
        "bias": jnp.asarray(bridge.bias.detach().numpy()),
    }
    ours = jax.jit(lambda params: model._bind(params).eeg(jnp.asarray(x), jnp.asarray(MASK))[0])(params)
    np.testing.assert_allclose(ours[MASK], expected[MASK], atol=1e-5)


def test_width() -> None:
    assert encoder_width(EEGSpec(features=840)) == 840
    assert encoder_width(EEGSpec(features=10, heads=8)) == 16
    assert encoder_width(EEGSpec(features=10, heads=8, width=32)) == 32
    assert encoder_width(EEGSpec(features=10, heads=8, layers=0)) == 10


def test_naive_model_is_the_bridge_alone() -> None:
    model = make_model(BARTISH, brain_spec(tiny_config(model__encoder="none").model, 10))
    params = jax.jit(model.init)(jax.random.key(0))
    assert set(params["eeg"]) == {"bridge"}
    x, mask = jnp.asarray(features(10)), jnp.asarray(MASK)
    bridge = params["eeg"]["bridge"]
    embeddings = jax.nn.relu(x @ bridge["kernel"] + bridge["bias"][None, None])
    encode = jax.jit(model.encode)
    hidden, _ = encode(params, {"features": x, "mask": mask})
    expected, _ = encode(params, {"inputs_embeds": embeddings, "mask": mask})
    np.testing.assert_allclose(hidden[MASK], expected[MASK], atol=1e-5)


def test_prompt_goes_before_the_eeg() -> None:
    model = make_model(BARTISH, dataclasses.replace(EEG, prompt=(5, 7, 9)))
    params = jax.jit(model.init)(jax.random.key(0))
    x, mask = jnp.asarray(features(10)), jnp.asarray(MASK)
    encode = jax.jit(model.encode)
    hidden, hidden_mask = encode(params, {"features": x, "mask": mask})
    assert hidden.shape == (3, 9, BARTISH.width)
    np.testing.assert_array_equal(hidden_mask, np.concatenate([np.ones((3, 3), bool), MASK], axis=1))
    embeddings = jax.jit(lambda params: model._bind(params).eeg(x, mask)[0])(params)
    prompt = params["backbone"]["shared"]["embedding"][jnp.array([5, 7, 9])]
    joined = jnp.concatenate([jnp.broadcast_to(prompt, (3, 3, 16)), embeddings], axis=1)
    expected, _ = encode(params, {"inputs_embeds": joined, "mask": hidden_mask})
    np.testing.assert_allclose(hidden, expected, atol=1e-5)


def test_step_one_frees_what_the_authors_free() -> None:
    model = make_model(BARTISH)
    shapes = model.shapes
    mask = trainable_mask(model, shapes, "first")
    assert all(leaf.all() for leaf in jax.tree.leaves(mask["eeg"]))
    backbone = mask["backbone"]
    assert backbone["shared"]["embedding"].all()
    assert backbone["encoder"]["positions"]["embedding"].all()
    assert backbone["decoder"]["positions"]["embedding"].all()
    layer = backbone["encoder"]["layers"]["ffn"]["inner"]
    assert layer["kernel"].shape == (2, 1, 1)
    assert layer["bias"].ravel().tolist() == [True, False]
    assert not backbone["encoder"]["embedding_norm"]["scale"].any()
    assert not any(leaf.any() for leaf in jax.tree.leaves(backbone["decoder"]["layers"]))
    everything = trainable_mask(model, shapes)
    assert all(leaf.all() for leaf in jax.tree.leaves(everything))
    jax.tree.map(lambda shape, leaf: np.broadcast_to(leaf, shape.shape), shapes, mask)
    of_t5 = dataclasses.replace(model, spec=dataclasses.replace(model.spec, backbone="t5"))
    freed = trainable_mask(of_t5, shapes, "first")["backbone"]
    assert freed["shared"]["embedding"].all()
    assert not any(leaf.any() for leaf in jax.tree.leaves(freed["encoder"]["layers"]))


def test_optimizer_moves_only_what_is_free() -> None:
    """Not even by weight decay."""
    model = make_model(BARTISH)
    params = jax.tree.map(lambda shape: np.ones(shape.shape, np.float32), model.shapes)
    optimizer = trainable_only(optax.chain(optax.add_decayed_weights(0.1), optax.sgd(0.1)), model, "first")
    updates, _ = jax.jit(lambda params: optimizer.update(params, optimizer.init(params), params))(params)
    free = trainable_mask(model, params, "first")
    for update, mask in zip(jax.tree.leaves(updates), jax.tree.leaves(free), strict=True):
        np.testing.assert_array_equal(np.asarray(update) != 0, np.broadcast_to(mask, update.shape))
    clipped = trainable_only(optax.chain(optax.clip_by_global_norm(1.0), optax.sgd(1.0)), model, "first")
    updates, _ = jax.jit(lambda params: clipped.update(params, clipped.init(params), params))(params)
    norm = float(jax.jit(optax.tree.norm)(updates))
    assert norm == pytest.approx(1.0, rel=1e-4), "what is not free does not enter the norm"


def test_output_bias_of_a_checkpoint_is_never_free() -> None:
    model = make_model(BARTISH)
    model = dataclasses.replace(model, spec=dataclasses.replace(model.spec, logits_bias="frozen"))
    mask = trainable_mask(model, model.shapes)
    assert not mask["backbone"]["head"]["bias"].any()
