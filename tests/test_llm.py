"""Decoder-only models through the pipeline: prompts, what is trained, controls, exports. Tiny shapes throughout."""

import dataclasses
import importlib.util
import json
import re
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from etils import epath
from llm_runs import export_first, make_base, open_tiny
from transformers import LlamaForCausalLM

from configs import llm
from eeg2text_jax.base.chips.hlo_text import collectives
from eeg2text_jax.base.devices import mesh as meshes
from eeg2text_jax.base.devices.arms import Divided, joined
from eeg2text_jax.base.devices.mesh import make_mesh
from eeg2text_jax.base.errors import UserError
from eeg2text_jax.commands.preflight.programs import Outline
from eeg2text_jax.data.prompt import make_prompt
from eeg2text_jax.data.text import train_tokenizer
from eeg2text_jax.decoding.generate import generate_program
from eeg2text_jax.models.backbones.mapping import flatten
from eeg2text_jax.models.functional import Seq2SeqModel, divide
from eeg2text_jax.models.pretrained.load import start_from_checkpoint
from eeg2text_jax.runs._attributions import attribution_program
from eeg2text_jax.runs.cells import decode_grid, likelihood_program, place_params
from eeg2text_jax.runs.exported import exported, load_export
from eeg2text_jax.training.conditions.condition import fed_mask
from eeg2text_jax.training.grid_program import make_program, study_arrays
from eeg2text_jax.training.loop import train, trained_params
from eeg2text_jax.training.study import Study


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> str:
    return make_base(tmp_path_factory.mktemp("base"))


@pytest.fixture(scope="module")
def lora(tmp_path_factory: pytest.TempPathFactory, base: str) -> Study:
    """A trained run with adapters around a frozen checkpoint."""
    return trained_lora(tmp_path_factory.mktemp("lora"), base)


def trained_lora(folder: Path, base: str, **changes: object) -> Study:
    changes = {"model.checkpoint": base, "optim.trainable": "lora", "optim.lr": 0.05, **changes}
    study = open_tiny(epath.Path(folder), **changes)
    train(study)
    return study


def test_what_is_random_beside_a_checkpoint_is_the_brain_encoder_and_the_adapters(lora: Study, base: str) -> None:
    """Not the backbone, of which each layer has an adapter."""
    start = start_from_checkpoint(lora.model, base, jax.random.key(0)[None])
    assert start.summary().endswith("initialised at random: eeg, adapters")


INT8 = {"model.frozen_dtype": "int8", "model.remat": True, "model.encoder_layers": 1}


@pytest.fixture(scope="module")
def rounded(tmp_path_factory: pytest.TempPathFactory, base: str) -> Study:
    """A trained run with adapters around a checkpoint whose kernels are kept in int8."""
    return trained_lora(tmp_path_factory.mktemp("int8"), base, **INT8)


class Export(NamedTuple):
    """The first arm of a run, and the folder that it was exported to."""

    params: Divided
    folder: Path


@pytest.fixture(scope="module")
def export(lora: Study, tmp_path_factory: pytest.TempPathFactory) -> Export:
    folder = tmp_path_factory.mktemp("export") / "folder"
    return Export(export_first(lora, folder), folder)


def test_a_frozen_model_is_there_once_and_as_stored(lora: Study, base: str) -> None:
    params = trained_params(lora)
    assert isinstance(params, Divided)
    assert {leaf.dtype for leaf in jax.tree.leaves(params.frozen)} == {jnp.dtype(jnp.bfloat16)}
    assert all(leaf.shape[0] == len(lora.arms) for leaf in jax.tree.leaves(params.own))
    theirs = LlamaForCausalLM.from_pretrained(base, dtype="bfloat16").state_dict()
    table = np.asarray(params.frozen["backbone"]["shared"]["embedding"].astype(jnp.float32))
    np.testing.assert_array_equal(table, theirs["model.embed_tokens.weight"].float().numpy())
    assert set(flatten(params.own)).isdisjoint(flatten(params.frozen))
    moved = params.own["backbone"]["decoder"]["layers"]["self_attention"]["query"]["lora_b"]
    assert float(jnp.abs(moved).max()) > 0


def test_kernels_in_int8_are_the_checkpoints_rounded_by_column(rounded: Study, base: str) -> None:
    params = trained_params(rounded)
    layers = params.frozen["backbone"]["decoder"]["layers"]
    dense = layers["ffn"]["gate"]
    assert {dense["kernel"].dtype, dense["kernel_scale"].dtype} == {jnp.dtype(jnp.int8), jnp.dtype(jnp.float32)}
    assert layers["ffn_norm"]["scale"].dtype == params.frozen["backbone"]["shared"]["embedding"].dtype == jnp.bfloat16
    theirs = LlamaForCausalLM.from_pretrained(base, dtype="bfloat16").model.layers
    stored = np.stack([layer.mlp.gate_proj.weight.detach().float().numpy().T for layer in theirs])  # [L, D, ffn]
    largest = np.abs(stored).max(axis=1)
    np.testing.assert_allclose(dense["kernel_scale"], largest / 127, rtol=1e-6)
    off = np.abs(np.asarray(dense["kernel"]) * np.asarray(dense["kernel_scale"])[:, None] - stored)
    assert (off <= largest[:, None] / 253.9).all()
    moved = params.own["backbone"]["decoder"]["layers"]["self_attention"]["query"]["lora_b"]
    assert float(jnp.abs(moved).max()) > 0


@pytest.mark.quick("True")
@pytest.mark.parametrize("remat", [False, True])
def test_int8_kernels_compute_what_their_rounded_values_do(rounded: Study, remat: bool) -> None:
    """Loss and gradients with kernels in int8 equal those with the same numbers in float32."""
    frozen = trained_params(rounded).frozen

    def widened(params: dict) -> dict:
        if "kernel_scale" in params:
            rest = {name: leaf for name, leaf in params.items() if name not in ("kernel", "kernel_scale")}
            return {"kernel": params["kernel"].astype(jnp.float32) * params["kernel_scale"][:, None], **rest}
        return {name: widened(value) if isinstance(value, dict) else value for name, value in params.items()}

    spec = rounded.model.spec
    plain = dataclasses.replace(spec, decoder=dataclasses.replace(spec.decoder, int8=False))
    rng = np.random.default_rng(0)
    inputs = {"features": jnp.asarray(rng.normal(size=(3, 5, 12)), jnp.float32), "mask": jnp.ones((3, 5), bool)}
    ids = jnp.asarray(rng.integers(3, spec.vocab_size, (3, 7)))
    own = jax.tree.map(lambda leaf: leaf[0], trained_params(rounded).own)
    found = []
    for model, weights in (
        (dataclasses.replace(rounded.model, remat=remat), frozen),
        (dataclasses.replace(rounded.model, spec=plain, remat=remat), widened(frozen)),
    ):

        def loss(own: dict, model: Seq2SeqModel = model, weights: dict = weights) -> jax.Array:
            logits = model.forward(Divided(own, weights), inputs, ids, dropout_key=jax.random.key(1))
            return jnp.mean(jnp.square(logits))

        found.append(jax.jit(jax.value_and_grad(loss))(own))
    (one, gradient), (other, expected) = found
    np.testing.assert_allclose(one, other, rtol=1e-5)
    size = {path: float(jnp.abs(leaf).max()) for path, leaf in flatten(expected).items()}
    noise = 1e-6 * max(size.values())  # the gradient of a key's bias is 0 but for rounding
    for path, leaf in flatten(expected).items():
        np.testing.assert_allclose(flatten(gradient)[path], leaf, atol=1e-4 * size[path] + noise, err_msg=path)


def check_loaded(study: Study, one: Divided, folder: Path) -> None:
    """An export has every number of its arm, and decodes as the run did."""
    loaded = load_export(folder)
    ours, theirs = flatten(joined(one)), flatten(loaded.params)
    assert ours.keys() == theirs.keys()
    for path, leaf in ours.items():
        assert leaf.dtype == theirs[path].dtype
        np.testing.assert_array_equal(np.asarray(leaf), np.asarray(theirs[path]), err_msg=path)
    recordings = [study.data.words(i) for i in study.split.parts["test"][:3]]
    decoded = [row for row in decode_grid(study, trained_params(study)) if row.mode == "free_running"]
    expected = [row.prediction for row in decoded if (row.train_condition, row.eval_condition) == ("eeg", "eeg")]
    assert loaded.decode(recordings) == exported(study, one).decode(recordings) == expected[:3]


@pytest.mark.slow
def test_an_export_of_an_int8_run_decodes_the_same_here(rounded: Study, tmp_path: Path) -> None:
    one = export_first(rounded, tmp_path / "folder")
    assert "unrounded checkpoint" in (tmp_path / "folder/README.md").read_text()
    check_loaded(rounded, one, tmp_path / "folder")


def assert_same_losses(*studies: Study) -> None:
    rows = [map(json.loads, study.workdir.metrics.read_text().splitlines()) for study in studies]
    one, other = ([row[name] for row in some for name in sorted(row) if "loss/" in name] for some in rows)
    assert len(one) >= 6  # two arms, three steps
    np.testing.assert_allclose(one, other, rtol=1e-4)


def compiled_step(study: Study) -> str:
    program = Outline(study.config, study.model, study.arms, (12,)).training(study.placement, 8)
    return program.function.lower(*program.arguments).compile().as_text()


@pytest.mark.slow
def test_a_divided_int8_model_is_gathered_as_int8(
    rounded: Study, base: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Training on four devices gathers each layer's kernels as bytes, and gives the losses of one device."""
    monkeypatch.setattr(meshes, "FSDP_MIN_SIZE", 16)  # divide this small model's weights, too
    on_four = {"parallel.mesh": (1, 4), "parallel.fsdp": True}
    divided = trained_lora(tmp_path, base, **INT8, **on_four)
    assert_same_losses(divided, rounded)
    gathered = re.findall(r"= (\w+)\[([\d,]*)\]\S* all-gather\(", compiled_step(divided))
    kernel = (divided.model.spec.decoder.width, divided.model.spec.decoder.ffn)
    shapes = ("1,{},{}".format(*kernel), "1,{1},{0}".format(*kernel))
    assert {kind for kind, shape in gathered if shape in shapes} == {"s8"}


@pytest.mark.quick("int8")
@pytest.mark.parametrize("changes", [{}, INT8], ids=["bfloat16", "int8"])
def test_training_with_divided_weights_exchanges_activations(
    base: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: dict
) -> None:
    """The losses are those of one device; no kernel of a layer is gathered."""
    monkeypatch.setattr(meshes, "FSDP_MIN_SIZE", 16)
    on_two = {"parallel.mesh": (2, 2), "parallel.fsdp": True, "parallel.tensor_parallel": True}
    studies = [trained_lora(tmp_path / name, base, **changes, **some) for name, some in (("1", {}), ("2", on_two))]
    assert_same_losses(*studies)
    divided = studies[1]
    gathered = re.findall(r"= \w+\[([\d,]+)\]\S* all-gather\(", compiled_step(divided))
    shapes = [tuple(sorted(map(int, shape.split(",")))) for shape in gathered]
    kernel = tuple(sorted((divided.model.spec.decoder.width, divided.model.spec.decoder.ffn)))
    assert shapes
    assert not [shape for shape in shapes if shape[-2:] == kernel]
    with pytest.raises(UserError, match="expected a divisor of 2, the number of key heads"):
        make_program(divided.config, divided.model, divided.arms, make_mesh(2, 4))


def test_arms_share_the_frozen_weights_in_the_program(lora: Study) -> None:
    """The traced step of two arms reads every frozen weight once, and holds no copy with an axis of arms."""
    program = make_program(lora.config, lora.model, lora.arms)
    rows, words = 8, 20
    shapes = {"features": (1, rows, words, 12), "mask": (1, rows, words), "sample_id": (1, rows), "weight": (1, rows)}
    kinds = {"mask": np.bool_, "sample_id": np.int32, "labels": np.int32}
    shapes["labels"] = (1, rows, 24)
    batch = {name: np.zeros(shape, kinds.get(name, np.float32)) for name, shape in shapes.items()}
    text = jax.jit(program.train_step).lower(program.state_shapes(), batch, study_arrays(lora)).as_text()
    arguments = text[text.index("@main(") : text.index("->")]
    inner = lora.model.spec.decoder.ffn
    assert arguments.count(f"tensor<2x16x{inner}xbf16>") == 2  # gate and up projection: [L, D, ffn]
    assert f"tensor<2x2x16x{inner}x" not in text  # [A, L, D, ffn]


@pytest.mark.quick("2-search1")
@pytest.mark.parametrize(
    ("along_arm", "search"),
    [
        (1, {"decode.do_sample": True}),  # as configs/llm.py: the same devices for all arms, in turn
        (2, {"decode.num_beams": 2}),
    ],
)
def test_a_divided_frozen_model_decodes_as_the_whole_one(
    lora: Study, along_arm: int, search: dict, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tensor parallelism on four devices per arm: the same predictions; each device holds a part of every weight."""
    monkeypatch.setattr(meshes, "FSDP_MIN_SIZE", 16)  # divide this small model's weights, too
    whole = dataclasses.replace(lora, config=lora.config.changed(search))
    divided = dataclasses.replace(lora, config=whole.config.changed({"decode.tensor_parallel": True}))
    mesh = make_mesh(along_arm, 4, jax.devices()[: 4 * along_arm])
    params = jax.tree.map(np.asarray, trained_params(lora))
    placed = place_params(divided, params, mesh)
    weights = [leaf for leaf in jax.tree.leaves(placed.frozen) if leaf.size >= 64]
    assert weights
    assert all(leaf.addressable_shards[0].data.size == leaf.size // 4 for leaf in weights)
    found, expected = (list(decode_grid(study, params, mesh)) for study in (divided, whole))
    assert [row.prediction_tokens for row in found] == [row.prediction_tokens for row in expected]
    likelihoods = [[row.nll for row in rows if row.mode == "teacher_forced"] for rows in (found, expected)]
    np.testing.assert_allclose(*likelihoods, rtol=1e-5)
    spec, shared = divided.generation, {"mask": jnp.ones((8, 20), bool)}
    keys = jax.random.split(jax.random.key(0), 8) if spec.do_sample else None
    program = generate_program(lora.model, spec, mesh, 0, True)
    lowered = program.lower(placed, {"features": jnp.zeros((2, 8, 20, 12))}, (shared, keys))
    exchanged = collectives(lowered.compile().as_text(), mesh)
    assert exchanged
    assert {axis for one in exchanged for axis in one.axes} == {"data"}


@pytest.mark.quick("2")
@pytest.mark.parametrize("along_arm", [1, 2])
def test_likelihoods_and_attributions_of_a_divided_model(
    lora: Study, along_arm: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(meshes, "FSDP_MIN_SIZE", 16)
    divided = dataclasses.replace(lora, config=lora.config.changed({"decode.tensor_parallel": True}))
    mesh, rng = make_mesh(along_arm, 4, jax.devices()[: 4 * along_arm]), np.random.default_rng(0)
    params = jax.tree.map(np.asarray, trained_params(lora))
    labels = rng.integers(3, lora.model.spec.vocab_size, (2, 8, 6)).astype(np.int32)
    fed = {"features": rng.normal(size=(2, 8, 20, 12)).astype(np.float32)}
    shared = {"mask": np.arange(20) < rng.integers(5, 21, (8, 1))}
    found = [
        (
            likelihood_program(lora.model, mesh, together)(placed, fed, (shared, labels.swapaxes(0, 1))),
            attribution_program(lora.model, mesh, together)(placed, {**fed, "labels": labels}, shared),
        )
        for together, placed in ((True, place_params(divided, params, mesh)), (False, place_params(lora, params, mesh)))
    ]
    for one, other in zip(*found, strict=True):
        assert np.abs(other).max() > 0
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-5 * float(np.abs(other).max()))


def test_large_checkpoints_are_decoded_divided_unless_they_are_trained_whole() -> None:
    chosen = {name: llm.get_config(name).decode.tensor_parallel for name in ("model=llama3-8b", "model=tiny")}
    assert chosen == {"model=llama3-8b": True, "model=tiny": False}
    assert not llm.get_config("model=llama3-8b,train=all").decode.tensor_parallel


def test_exported_adapters_decode_the_same_here(lora: Study, export: Export) -> None:
    names = {path.name for path in export.folder.iterdir()}
    assert {"adapter_config.json", "adapter_model.safetensors", "eeg_encoder.safetensors"} <= names
    assert "model.safetensors" not in names
    check_loaded(lora, export.params, export.folder)


@pytest.mark.skipif(importlib.util.find_spec("peft") is None, reason="peft is not installed")
@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning")  # peft asks for it
def test_peft_loads_the_export(lora: Study, export: Export, base: str) -> None:
    import torch
    from peft import PeftModel

    theirs = LlamaForCausalLM.from_pretrained(base, dtype=torch.float32)
    theirs = PeftModel.from_pretrained(theirs, str(export.folder)).eval()
    loaded = load_export(export.folder)
    x, mask = loaded.prompts([lora.data.words(i) for i in lora.split.parts["test"][:3]])
    start = jnp.full((3, 1), loaded.model.start_token)
    ours = jax.jit(loaded.model.decode)(loaded.params, start, jnp.asarray(x), jnp.asarray(mask))[:, 0]
    for name, parameter in theirs.named_parameters():
        parameter.requires_grad_("lora_" in name)
    logits = theirs(inputs_embeds=torch.tensor(x), attention_mask=torch.tensor(mask).long()).logits[:, -1]
    np.testing.assert_allclose(np.asarray(ours), logits.detach().numpy(), atol=1e-4)

    logits.square().mean().backward()
    own, frozen = divide(loaded.params)

    @jax.jit
    def gradient(own: dict) -> dict:
        def loss(own: dict) -> jax.Array:
            found = loaded.model.decode(Divided(own, frozen), start, jnp.asarray(x), jnp.asarray(mask))
            return jnp.mean(jnp.square(found[:, 0]))

        return jax.grad(loss)(own)

    found = gradient(own)["backbone"]["decoder"]["layers"]["self_attention"]["query"]
    for layer in range(2):
        module = theirs.base_model.model.model.layers[layer].self_attn.q_proj
        for ours, their in ((found["lora_a"], module.lora_A), (found["lora_b"], module.lora_B)):
            expected = their["default"].weight.grad.numpy().T
            off = np.linalg.norm(np.asarray(ours[layer]) - expected)
            assert off < 1e-3 * np.linalg.norm(expected)


def test_prompts_say_where_the_recording_goes() -> None:
    tokenizer = train_tokenizer(["what was read in this task? " * 3], 300)
    plain = make_prompt(tokenizer, "in <eeg> this", chat=False)
    assert plain.before[0] == tokenizer.bos_token_id
    assert tokenizer.decode(plain.before[1:]).strip() == "in"
    assert tokenizer.decode(plain.after).strip() == "this"
    with pytest.raises(UserError, match="no chat template"):
        make_prompt(tokenizer, "in <eeg> this", chat=True)
    tokenizer.chat_template = "{% for m in messages %}<s>{{ m['content'] }}</s>{% endfor %}what"
    chat = make_prompt(tokenizer, "in <eeg> {task}", chat=True, values={"task": "read"})
    assert tokenizer.decode(chat.after).replace("</s>", " ").split() == ["read", "what"]


def test_a_recording_is_in_its_place_and_prompt_only_takes_it_out(lora: Study) -> None:
    model, params = lora.model, jax.tree.map(lambda leaf: leaf[0], trained_params(lora).own)
    params = Divided(params, trained_params(lora).frozen)
    rng = np.random.default_rng(0)
    features, mask = rng.normal(size=(2, 3, 12)).astype(np.float32), np.array([[1, 1, 1], [1, 0, 0]], bool)
    encode = jax.jit(lambda inputs: model.encode(params, inputs))
    x, real = encode({"features": jnp.asarray(features), "mask": jnp.asarray(mask)})
    before, after = model.eeg.prompt, model.eeg.prompt_after
    np.testing.assert_array_equal(real.sum(axis=1), mask.sum(axis=1) + len(before) + len(after))
    assert not real[1, :2].any(), "padding is not on the left"
    ids = jnp.asarray([[*before, *after]])
    np.testing.assert_allclose(x[0, len(before) + 3 :], model.embed(params, ids)[0, len(before) :], atol=1e-6)

    longer = jnp.asarray(np.pad(np.tile(before, (2, 1)), ((0, 0), (0, 2)), constant_values=-1))
    own = {"before": longer, "after": jnp.asarray(np.tile(after, (2, 1)))}
    padded, still = encode({"features": jnp.asarray(features), "mask": jnp.asarray(mask), **own})
    np.testing.assert_allclose(padded[:, 2:][real], x[real], atol=1e-6)
    np.testing.assert_array_equal(still[:, 2:], real)

    without = jnp.asarray(fed_mask(["prompt_only"], jnp.asarray(mask)[None])[0])
    alone, left = encode({"features": jnp.asarray(features), "mask": without})
    np.testing.assert_allclose(alone[0][left[0]], model.embed(params, ids)[0], atol=1e-6)
