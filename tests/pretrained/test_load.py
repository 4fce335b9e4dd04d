"""Checkpoints of transformers -> model and parameters, against PyTorch."""

import functools
import json
import re
import time

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import torch
from flax.serialization import to_bytes
from jax.sharding import AxisType, NamedSharding, PartitionSpec
from safetensors.torch import load_file, save_file
from tiny import CONFIGS, flax_tree, torch_model

from eeg2text_jax.base.errors import UserError
from eeg2text_jax.data.text import load_tokenizer
from eeg2text_jax.judge.toy import toy_tokenizer
from eeg2text_jax.models.backbones.mapping import flatten
from eeg2text_jax.models.functional import Seq2SeqModel
from eeg2text_jax.models.pretrained.load import load_pretrained
from eeg2text_jax.training.step import trainable_mask, trainable_only

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


def without_prefix(state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name.removeprefix("model."): tensor for name, tensor in state.items()}


@pytest.mark.parametrize("written", ["sharded", "flax", "pickle", "all copies", "without the prefix"])
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
    elif written == "without the prefix":  # as the class without a head writes them
        save_file(without_prefix(state), tmp_path / "model.safetensors")
    else:  # as files from before safetensors: every tied copy and every buffer
        torch.save(reference.state_dict(), tmp_path / "pytorch_model.bin")
    assert_equal(load_pretrained(tmp_path)[1], load_pretrained(folder)[1])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_becomes_float32(checkpoint, dtype, tmp_path):
    _, folder, reference = checkpoint
    reference.config.save_pretrained(tmp_path)
    state = {name: value.to(dtype) for name, value in load_file(folder / "model.safetensors").items()}
    save_file(state, tmp_path / "model.safetensors")
    params, exact = (flatten(load_pretrained(place)[1]) for place in (tmp_path, folder))
    assert {str(leaf.dtype) for leaf in params.values()} == {"float32"}
    for path, leaf in exact.items():
        np.testing.assert_allclose(params[path], leaf, rtol=1e-2, atol=1e-3)
    more = {"backbone/encoder/positions/embedding", "backbone/decoder/positions/embedding"}  # PEGASUS's, rounded
    assert set(params) - set(exact) in (set(), more)


@pytest.mark.parametrize("stored", ["float16", "other numbers", "one side"])
def test_positions_of_a_pegasus_are_those_of_its_file(stored, tmp_path):
    """transformers loads them like any tensor; computed ones are 1e-3 off in half precision."""
    reference = torch_model("pegasus")
    if stored == "float16":
        reference = reference.half()
    tables = [side.embed_positions.weight for side in (reference.model.encoder, reference.model.decoder)]
    with torch.no_grad():
        for table in {"float16": [], "other numbers": tables, "one side": tables[1:]}[stored]:
            table.add_(torch.randn_like(table) * 0.1)
    reference.save_pretrained(tmp_path)
    model, params = load_pretrained(tmp_path)
    np.testing.assert_allclose(logits_of(model, params), torch_logits(reference.float()), atol=1e-4)
    kinds = (model.spec.encoder.positions, model.spec.decoder.positions)
    assert kinds == (("sinusoidal", "learned") if stored == "one side" else ("learned", "learned"))
    save_file(without_prefix(load_file(tmp_path / "model.safetensors")), tmp_path / "model.safetensors")
    again, same = load_pretrained(tmp_path)
    assert again.spec == model.spec
    assert_equal(same, params)


def test_positions_of_a_file_are_never_trained(tmp_path):
    reference = torch_model("pegasus").half()
    reference.save_pretrained(tmp_path)
    model, params = load_pretrained(tmp_path)
    inputs = {"input_ids": jnp.asarray(IDS.numpy(), jnp.int32), "mask": jnp.asarray(MASK.numpy())}
    targets = jnp.asarray(TARGETS.numpy(), jnp.int32)
    gradient = jax.jit(jax.grad(lambda params: jnp.square(model.forward(params, inputs, targets)).sum()))(params)
    assert not np.asarray(gradient["backbone"]["encoder"]["positions"]["embedding"]).any()
    optimizer = trainable_only(optax.chain(optax.add_decayed_weights(0.5), optax.scale(-1.0)), model, "all")
    updates, _ = jax.jit(optimizer.update)(gradient, optimizer.init(params), params)
    assert not np.asarray(updates["backbone"]["encoder"]["positions"]["embedding"]).any()
    assert np.asarray(updates["backbone"]["shared"]["embedding"]).any()
    for phase in ("first", "all"):
        assert not trainable_mask(model, model.shapes, phase)["backbone"]["decoder"]["positions"]["embedding"].any()


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


def configured(folder, tmp_path, **fields) -> None:
    """The checkpoint with other fields in config.json (of BERT2BERT, in both halves)."""
    (tmp_path / "model.safetensors").write_bytes((folder / "model.safetensors").read_bytes())
    config = json.loads((folder / "config.json").read_text())
    for part in (config, *(config[side] for side in ("encoder", "decoder") if side in config)):
        part.update(fields)
    (tmp_path / "config.json").write_text(json.dumps(config))


ACTIVATION = {"bart": "activation_function", "pegasus": "activation_function", "bert2bert": "hidden_act"}


@pytest.mark.parametrize("name", ["quick_gelu", "mish"])
def test_an_activation_that_is_not_there_is_named(checkpoint, tmp_path, name):
    kind, folder, _ = checkpoint
    configured(folder, tmp_path, **{ACTIVATION.get(kind, "dense_act_fn"): name})
    with pytest.raises(UserError, match=rf"config.json: there is no activation '{name}' here; expected one of gelu,"):
        load_pretrained(tmp_path)


@pytest.mark.parametrize("checkpoint", ["t5", "t5_v1_1", "bart"], indirect=True)
def test_a_start_token_of_its_own(checkpoint, tmp_path):
    _, folder, _ = checkpoint
    configured(folder, tmp_path, decoder_start_token_id=5)
    assert load_pretrained(tmp_path)[0].spec.start_token == 5


@pytest.mark.parametrize("value", [[2, 3], None, -1, 40])
def test_a_model_has_one_end(checkpoint, tmp_path, value):
    _, folder, _ = checkpoint
    configured(folder, tmp_path, eos_token_id=value)
    with pytest.raises(UserError, match="eos_token_id") as error:
        load_pretrained(tmp_path)
    assert "config.json" in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("checkpoint", ["bart", "pegasus", "bert2bert"], indirect=True)
def test_untied_tables_are_refused_whatever_the_configuration_says(checkpoint, tmp_path):
    kind, folder, _ = checkpoint
    configured(folder, tmp_path, tie_word_embeddings=False)
    state = load_file(folder / "model.safetensors")
    table = "decoder.bert.embeddings.word_embeddings.weight" if kind == "bert2bert" else "model.shared.weight"
    head = "decoder.cls.predictions.decoder.weight" if kind == "bert2bert" else "lm_head.weight"
    state[head] = state[table] + 1
    save_file(state, tmp_path / "model.safetensors")
    with pytest.raises(UserError, match="one tensor in the model, whatever tie_word_embeddings says") as error:
        load_pretrained(tmp_path)
    assert head in str(error.value)
    assert "the configuration ties" not in str(error.value)


def test_folders_that_are_no_checkpoint(tmp_path):
    with pytest.raises(UserError, match=r"has no config.json"):
        load_pretrained(tmp_path)
    (tmp_path / "config.json").write_text("not JSON")
    with pytest.raises(UserError, match=r"config.json: cannot be read"):
        load_pretrained(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "gpt2"}))
    with pytest.raises(UserError, match=r"model_type is 'gpt2'; expected one of bart"):
        load_pretrained(tmp_path)


def weights_changed(folder, tmp_path, change) -> str:
    """The checkpoint with one of its matrices changed, the last layer's, whose name is returned."""
    configured(folder, tmp_path)
    state = load_file(folder / "model.safetensors")
    name = max(name for name, value in state.items() if ".1." in name and value.ndim == 2)
    torch.save(state | {name: change(state[name].clone())}, tmp_path / "pytorch_model.bin")
    (tmp_path / "model.safetensors").unlink()
    return name


def not_a_number(weight: torch.Tensor) -> torch.Tensor:
    weight[-1, -1] = float("nan")
    return weight


@pytest.mark.parametrize(
    ("change", "found"),
    [
        (lambda weight: weight.to(torch.int8), r"no floating-point numbers .*, or lack the scales .*: {} \(int8\)"),
        (lambda weight: weight.to(torch.complex64), r"no floating-point numbers .*: {} \(complex64\)"),
        (lambda weight: weight > 0, r"no floating-point numbers .*: {} \(bool\)"),
        (not_a_number, r"{} holds values that are not a number \(NaN\)"),
        (lambda weight: not_a_number(weight).to(torch.bfloat16), r"{} holds values that are not a number"),
    ],
)
def test_weights_that_are_no_numbers_are_refused_by_name(checkpoint, tmp_path, change, found):
    name = weights_changed(checkpoint[1], tmp_path, change)
    with pytest.raises(UserError, match=found.format(re.escape(name))) as error:
        load_pretrained(tmp_path)
    assert str(error.value).startswith(f"{tmp_path}: ")


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_infinity_in_half_precision_is_a_number(checkpoint, tmp_path, dtype):
    weights_changed(checkpoint[1], tmp_path, lambda weight: (weight * 1e39).to(dtype))
    load_pretrained(tmp_path, dtype="bfloat16")


LAYERS = {"bart": "encoder_layers", "pegasus": "decoder_layers", "bert2bert": "num_hidden_layers"}


@pytest.mark.parametrize("count", [10**6, 10**12])
def test_a_model_of_a_million_layers_is_refused_at_once(checkpoint, tmp_path, count):
    kind, folder, _ = checkpoint
    name, start = LAYERS.get(kind, "num_layers"), time.process_time()
    configured(folder, tmp_path, **{name: count})
    with pytest.raises(UserError, match=rf"config.json: .*{name} is {count}; expected at most 1000"):
        load_pretrained(tmp_path)
    assert time.process_time() - start < 5


@pytest.mark.parametrize("name", ["config.json", "tokenizer_config.json", "tokenizer.json"])
def test_a_broken_file_beside_a_tokenizer_is_named(tmp_path, name):
    toy_tokenizer().save_pretrained(tmp_path)
    (tmp_path / "config.json").write_text('{"model_type": "bart"}')
    (tmp_path / name).write_text('{"model_type": "bart",')
    with pytest.raises(UserError, match=rf"^{tmp_path / name}: is not JSON"):
        load_tokenizer(tmp_path)
