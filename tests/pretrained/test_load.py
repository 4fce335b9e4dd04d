"""Checkpoints of transformers -> model and parameters, against PyTorch."""

import functools
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from flax.serialization import to_bytes
from jax.sharding import AxisType, NamedSharding, PartitionSpec
from safetensors.torch import load_file, save_file
from tiny import CONFIGS, torch_model

from eeg2text_jax.errors import UserError
from eeg2text_jax.models.functional import Seq2SeqModel
from eeg2text_jax.pretrained.load import load_pretrained

IDS = torch.tensor([[5, 9, 33, 7, 2], [8, 3, 2, 1, 1]])
MASK = IDS.ne(1)
TARGETS = torch.tensor([[2, 4, 5, 6], [2, 7, 8, 9]])


@functools.partial(jax.jit, static_argnums=0)
def forward(model, params, inputs, targets):
    return model.forward(params, inputs, targets)


def logits_of(model, params) -> np.ndarray:
    """Logits of the language model alone, so that one compilation serves every test of a kind."""
    inputs = {"input_ids": jnp.asarray(IDS.numpy(), jnp.int32), "mask": jnp.asarray(MASK.numpy())}
    targets = jnp.asarray(TARGETS.numpy(), jnp.int32)
    return np.asarray(forward(Seq2SeqModel(model.spec), {"backbone": params["backbone"]}, inputs, targets))


def torch_logits(model: torch.nn.Module) -> np.ndarray:
    with torch.no_grad():
        return model(input_ids=IDS, attention_mask=MASK.long(), decoder_input_ids=TARGETS).logits.numpy()


@pytest.fixture(scope="module", params=CONFIGS)
def checkpoint(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param)
    model = torch_model(request.param)
    model.save_pretrained(folder)
    return request.param, folder, model


def test_logits_are_those_of_pytorch(checkpoint):
    _, folder, reference = checkpoint
    model, params = load_pretrained(folder)
    np.testing.assert_allclose(logits_of(model, params), torch_logits(reference), atol=1e-4)


def assert_equal(params, others) -> None:
    jax.tree.map(np.testing.assert_array_equal, params, others)


def flax_tree(state: dict[str, torch.Tensor]) -> dict:
    """A state dict as Hugging Face's Flax classes wrote it: the leaf's name says what a tensor is, matrices turned."""
    tree: dict = {}
    tables = ("shared", "embed_tokens", "embed_positions", "relative_attention_bias", "_embeddings")
    for name, tensor in state.items():
        *folders, leaf = name.split(".")
        array = tensor.float().numpy()
        if leaf == "weight" and folders[-1].endswith(tables):
            leaf = "embedding"
        elif leaf == "weight" and array.ndim == 2:
            leaf, array = "kernel", array.T
        elif leaf == "weight" and "block" not in folders and folders[-1] != "final_layer_norm":
            leaf = "scale"  # T5's norms kept the name weight
        node = tree
        for folder in folders:
            node = node.setdefault(folder, {})
        node[leaf] = np.ascontiguousarray(array)
    return tree


@pytest.mark.parametrize("written", ["sharded", "flax", "pickle", "all copies"])
def test_every_format_loads_to_identical_parameters(checkpoint, written, tmp_path):
    _, folder, reference = checkpoint
    reference.config.save_pretrained(tmp_path)
    state = load_file(folder / "model.safetensors")
    if written == "sharded":
        reference.save_pretrained(tmp_path, max_shard_size="4KB")
        assert len(list(tmp_path.glob("model-*.safetensors"))) > 2
    elif written == "flax":
        (tmp_path / "flax_model.msgpack").write_bytes(to_bytes(flax_tree(state)))
    elif written == "pickle":
        torch.save(state, tmp_path / "pytorch_model.bin")
    else:  # as files from before safetensors: every tied copy and every buffer
        torch.save(reference.state_dict(), tmp_path / "pytorch_model.bin")
    assert_equal(load_pretrained(tmp_path)[1], load_pretrained(folder)[1])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_becomes_float32(checkpoint, dtype, tmp_path):
    _, folder, reference = checkpoint
    reference.config.save_pretrained(tmp_path)
    state = {name: value.to(dtype) for name, value in load_file(folder / "model.safetensors").items()}
    save_file(state, tmp_path / "model.safetensors")
    _, params = load_pretrained(tmp_path)
    _, exact = load_pretrained(folder)
    assert {str(leaf.dtype) for leaf in jax.tree.leaves(params)} == {"float32"}
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-2, atol=1e-3), params, exact)


def altered(folder, tmp_path, change) -> None:
    state = load_file(folder / "model.safetensors")
    change(state)
    save_file(state, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_bytes((folder / "config.json").read_bytes())


def a_matrix(state) -> str:
    matrices = (name for name in sorted(state) if name.endswith("weight") and state[name].ndim == 2)
    return next(name for name in matrices if "decoder" in name and "embed" not in name)


def test_wrong_tensors_are_refused_by_name(checkpoint, tmp_path):
    _, folder, _ = checkpoint
    name = a_matrix(load_file(folder / "model.safetensors"))

    def rename(state):
        state["another.name"] = state.pop(name)

    def shorten(state):
        state[name] = state[name][:-1].contiguous()

    cases = {
        "renamed": (rename, [name, "another.name"]),
        "missing": (lambda state: state.pop(name), [name]),
        "extra": (lambda state: state.update({"an.extra": torch.zeros(2)}), ["an.extra"]),
        "shape": (shorten, [name, "instead of"]),
    }
    for case, (change, named) in cases.items():
        place = tmp_path / case
        place.mkdir()
        altered(folder, place, change)
        with pytest.raises(UserError) as error:
            load_pretrained(place)
        assert all(text in str(error.value) for text in named), (case, str(error.value))
        assert "\n" not in str(error.value)


def test_bart_as_its_base_class_saves_it(tmp_path):
    """facebook/bart-large is such a file: no prefix, no final_logits_bias."""
    model = torch_model("bart")
    model.final_logits_bias.zero_()
    model.model.save_pretrained(tmp_path)
    loaded, params = load_pretrained(tmp_path)
    np.testing.assert_allclose(logits_of(loaded, params), torch_logits(model), atol=1e-4)


def test_parameters_go_where_the_sharding_says(checkpoint):
    _, folder, _ = checkpoint
    mesh = jax.make_mesh((2,), ("data",), devices=jax.devices()[:2], axis_types=(AxisType.Auto,))

    def shardings(shapes):
        split = lambda leaf: "data" if leaf.shape[-1] % 2 == 0 else None  # noqa: E731
        return jax.tree.map(
            lambda leaf: NamedSharding(mesh, PartitionSpec(*[None] * (leaf.ndim - 1), split(leaf))), shapes
        )

    _, params = load_pretrained(folder, shardings=shardings)
    assert_equal(params, load_pretrained(folder)[1])
    leaves = jax.tree.leaves(params)
    assert {len(leaf.sharding.device_set) for leaf in leaves} == {2}
    assert any(leaf.addressable_shards[0].data.size * 2 == leaf.size for leaf in leaves)


def test_folders_that_are_no_checkpoint(tmp_path):
    with pytest.raises(UserError, match=r"has no config.json"):
        load_pretrained(tmp_path)
    (tmp_path / "config.json").write_text("not JSON")
    with pytest.raises(UserError, match=r"config.json: cannot be read"):
        load_pretrained(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "gpt2"}))
    with pytest.raises(UserError, match=r"model_type is 'gpt2'; expected one of bart"):
        load_pretrained(tmp_path)
