"""The file formats of checkpoints, each written by the library that defines it."""

import json
import random
import sys

import flax.serialization
import numpy as np
import pytest
import torch
from flax.traverse_util import flatten_dict, unflatten_dict
from safetensors.torch import save_file
from tiny import flax_tree

from eeg2text_jax.base.errors import UserError
from eeg2text_jax.models.pretrained import folder as tensor_files
from eeg2text_jax.models.pretrained.folder import fingerprint, read_tensors

DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}


def state_dict(dtype: torch.dtype = torch.float32) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    shapes = {
        "model.shared.weight": (300, 6),
        "model.encoder.layers.0.fc1.weight": (8, 6),
        "model.encoder.layers.0.fc1.bias": (8,),
        "model.encoder.layernorm.weight": (6,),
        "final_logits_bias": (1, 300),
    }
    return {name: torch.randn(shape, generator=generator).to(dtype) for name, shape in shapes.items()}


def flax_names(names: list[str]) -> list[str]:
    """As an index of Flax shards has them."""
    leaves = flatten_dict(flax_tree(state_dict()), sep="/")
    return [leaf for leaf in leaves if tensor_files.torch_name(tuple(leaf.split("/"))) in names]


def write(folder, file: str, state: dict[str, torch.Tensor]) -> None:
    path = folder / file
    if file.startswith("model"):
        save_file(state, path, metadata={"format": "pt"})
    elif file.startswith("pytorch"):
        torch.save(state, path)
    else:
        leaves = flatten_dict(flax_tree(state_dict() | state), sep="/")
        path.write_bytes(
            flax.serialization.to_bytes(unflatten_dict({n: leaves[n] for n in flax_names([*state])}, sep="/"))
        )


def write_shards(folder, file: str, state: dict[str, torch.Tensor]) -> None:
    stem, suffix = file.rsplit(".", 1)
    names = sorted(state)
    weight_map = {}
    for i, part in enumerate((names[:2], names[2:])):
        shard = f"{stem}-{i + 1:05d}-of-00002.{suffix}"
        write(folder, shard, {name: state[name] for name in part})
        weight_map |= dict.fromkeys(flax_names(part) if stem.startswith("flax") else part, shard)
    (folder / f"{file}.index.json").write_text(json.dumps({"metadata": {"total_size": 0}, "weight_map": weight_map}))


def assert_same(found, state: dict[str, torch.Tensor]) -> None:
    assert set(found) == set(state)
    for name, value in state.items():
        np.testing.assert_array_equal(np.asarray(found[name], np.float32), value.float().numpy(), err_msg=name)


@pytest.mark.parametrize("file", ["model.safetensors", "flax_model.msgpack", "pytorch_model.bin"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_format_and_type_gives_the_same_tensors(tmp_path, file, dtype):
    state = state_dict(DTYPES[dtype])
    write(tmp_path, file, state)
    found = read_tensors(tmp_path)
    assert_same(found, state)
    assert {str(array.dtype) for array in found.values()} == {dtype}


@pytest.mark.parametrize("file", ["model.safetensors", "pytorch_model.bin"])
def test_numbers_of_all_types_are_read_from_between_others(tmp_path, file):
    """Each with another size of a number; a pickle holds views of larger tensors, and turned ones, too."""
    types = (torch.bool, torch.float64, torch.int8, torch.bfloat16, torch.int64, torch.uint8, torch.int16, torch.int32)
    state = {f"t{k}": (torch.arange(-3, 4) * (k + 1)).to(kind).reshape(7, 1) for k, kind in enumerate(types)}
    if file.startswith("pytorch"):
        state |= {"view": torch.arange(30.0).reshape(5, 6)[1:, 2:4], "turned": torch.arange(6.0).reshape(2, 3).T}
    write(tmp_path, file, state)
    found = read_tensors(tmp_path)
    assert_same(found, state)
    assert {name: str(array.dtype) for name, array in found.items()} == {
        name: str(tensor.dtype).removeprefix("torch.") for name, tensor in state.items()
    }


def test_of_several_formats_the_safest_is_read_and_of_shards_the_whole_file(tmp_path):
    states = {}
    for number, file in enumerate(("pytorch_model.bin", "flax_model.msgpack", "model.safetensors")):
        states[file] = {name: tensor + number for name, tensor in state_dict().items()}
        write_shards(tmp_path, file, state_dict())
        write(tmp_path, file, states[file])
        assert_same(read_tensors(tmp_path), states[file])
    for path in tmp_path.glob("model*"):
        path.unlink()
    assert_same(read_tensors(tmp_path), states["flax_model.msgpack"])


@pytest.mark.parametrize("file", ["model.safetensors", "flax_model.msgpack", "pytorch_model.bin"])
def test_shards_give_the_same_tensors(tmp_path, file):
    write_shards(tmp_path, file, state_dict())
    assert_same(read_tensors(tmp_path), state_dict())


def test_a_fingerprint_is_of_names_shapes_types_and_values_in_any_format(tmp_path):
    def of(file, state):
        folder = tmp_path / str(len([*tmp_path.iterdir()]))
        folder.mkdir()
        (write_shards if "shards" in file else write)(folder, file.removesuffix(" shards"), state)
        return fingerprint(folder)

    state = state_dict()
    name, tensor = "model.encoder.layers.0.fc1.weight", state["model.encoder.layers.0.fc1.weight"]
    same = [of(file, state) for file in ("model.safetensors", "model.safetensors shards", "pytorch_model.bin")]
    changes = [
        {name: tensor.reshape(6, 8)},
        {name: tensor.half()},
        {"model.shared.weight": state["model.shared.weight"] + 1},
    ]
    changes += [{name: torch.where(torch.arange(48).reshape(8, 6) == place, 9.0, tensor)} for place in (0, 47)]
    others = [of("model.safetensors", {**state, **change}) for change in changes]
    others.append(of("model.safetensors", {f"{key}.1": value for key, value in state.items()}))
    assert len({*same}) == 1
    assert len({*same, *others}) == 1 + len(others)


def test_pickle_of_old_pytorch(tmp_path):
    torch.save(state_dict(), tmp_path / "pytorch_model.bin", _use_new_zipfile_serialization=False)
    assert_same(read_tensors(tmp_path), state_dict())


def test_flax_arrays_in_chunks(tmp_path, monkeypatch):
    monkeypatch.setattr(flax.serialization, "MAX_CHUNK_SIZE", 1000)
    write(tmp_path, "flax_model.msgpack", state_dict())
    assert b"__msgpack_chunked_array__" in (tmp_path / "flax_model.msgpack").read_bytes()
    assert_same(read_tensors(tmp_path), state_dict())


def test_flax_scalars_and_params_level(tmp_path):
    tree = {"params": flax_tree(state_dict()) | {"logit_scale": np.float32(2.5)}}
    (tmp_path / "flax_model.msgpack").write_bytes(flax.serialization.to_bytes(tree))
    found = dict(read_tensors(tmp_path))
    assert found.pop("logit_scale") == np.float32(2.5)
    assert_same(found, state_dict())


def test_flax_arrays_of_one_name(tmp_path):
    tree = {"norm": {"scale": np.zeros(3, np.float32), "embedding": np.ones(3, np.float32)}}
    (tmp_path / "flax_model.msgpack").write_bytes(flax.serialization.to_bytes(tree))
    with pytest.raises(UserError, match=r"two arrays have the name norm\.weight in PyTorch; keep one of them"):
        read_tensors(tmp_path)


def test_flax_params_that_are_no_dict(tmp_path):
    (tmp_path / "flax_model.msgpack").write_bytes(flax.serialization.to_bytes({"params": np.zeros(3, np.float32)}))
    with pytest.raises(UserError, match="expected a Flax checkpoint"):
        read_tensors(tmp_path)


def test_safetensors_are_views_on_the_file(tmp_path):
    write(tmp_path, "model.safetensors", state_dict())
    tensor = read_tensors(tmp_path)["model.shared.weight"]
    assert not tensor.flags.owndata
    assert not tensor.flags.writeable


def test_reading_pickles_without_pytorch_says_so(tmp_path, monkeypatch):
    write(tmp_path, "pytorch_model.bin", state_dict())
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(UserError, match=r"pytorch_model.bin: reading it needs PyTorch"):
        read_tensors(tmp_path)


def test_pickles_run_no_code(tmp_path):
    (tmp_path / "pytorch_model.bin").write_bytes(b"cos\nsystem\n(S'touch " + bytes(tmp_path / "ran") + b"'\ntR.")
    with pytest.raises(UserError, match="expected a PyTorch state dict"):
        read_tensors(tmp_path)
    assert not (tmp_path / "ran").exists()


FILES = ("model.safetensors", "flax_model.msgpack", "pytorch_model.bin")


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("kept", [0, 5, 60, 0.5, -1])
def test_truncated_files_are_refused_in_one_sentence(tmp_path, file, kept):
    write(tmp_path, file, state_dict())
    content = (tmp_path / file).read_bytes()
    kept = int(kept * len(content)) if isinstance(kept, float) else kept
    (tmp_path / file).write_bytes(content[:kept])
    assert_refused(tmp_path, file)


def assert_refused(folder, file):
    with pytest.raises(UserError) as error:
        read_tensors(folder)
    assert str(error.value).startswith(f"{folder / file}: ")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("text", ["Entry not found\n", "<!DOCTYPE html><html>" + 200 * "x", "{}", "x" * 5000])
def test_a_text_file_in_its_place_is_refused_in_one_sentence(tmp_path, file, text):
    (tmp_path / file).write_text(text)
    assert_refused(tmp_path, file)


@pytest.mark.parametrize("file", FILES)
def test_a_git_lfs_pointer_is_named(tmp_path, file):
    (tmp_path / file).write_text("version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n")
    with pytest.raises(UserError, match="Git LFS pointer"):
        read_tensors(tmp_path)


def test_safetensors_with_bytes_after_the_last_tensor(tmp_path):
    write(tmp_path, "model.safetensors", state_dict())
    with (tmp_path / "model.safetensors").open("ab") as file:
        file.write(b"more")
    with pytest.raises(UserError, match="more bytes follow"):
        tensor_files.open_safetensors(tmp_path / "model.safetensors")


def test_missing_shard_is_named(tmp_path):
    write_shards(tmp_path, "model.safetensors", state_dict())
    (tmp_path / "model-00002-of-00002.safetensors").unlink()
    with pytest.raises(UserError, match=r"index.json: names the file model-00002-of-00002.safetensors"):
        read_tensors(tmp_path)


def test_shard_without_a_listed_tensor_is_named(tmp_path):
    write_shards(tmp_path, "model.safetensors", state_dict())
    write(tmp_path, "model-00002-of-00002.safetensors", {"other": torch.zeros(1)})
    with pytest.raises(UserError, match=r"00002.safetensors: its tensors are not those .* model.encoder"):
        read_tensors(tmp_path)


def test_folders_without_weights(tmp_path):
    with pytest.raises(UserError, match="holds no weights; expected one of"):
        read_tensors(tmp_path)
    with pytest.raises(UserError, match="no such folder"):
        read_tensors(tmp_path / "absent")


def quantized() -> torch.Tensor:
    return torch.quantize_per_tensor(torch.ones(8), 0.1, 0, torch.qint8)


ODD = {
    "float8": (lambda: torch.ones(8).to(torch.float8_e4m3fn), "float8_e4m3fn"),
    "sparse": (lambda: torch.eye(8).to_sparse(), "float32, sparse_coo"),
    "quantized": (quantized, "qint8"),
    "meta": (lambda: torch.ones(8, device="meta"), "on the device meta, without values"),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", ODD)
def test_a_tensor_that_is_no_dense_array_is_refused_by_name(tmp_path, kind):
    make, named = ODD[kind]
    write(tmp_path, "pytorch_model.bin", state_dict() | {"model.odd.weight": make()})
    with pytest.raises(UserError, match=rf"pytorch_model.bin: 'model.odd.weight' is a tensor .*{named}") as error:
        read_tensors(tmp_path)
    assert "\n" not in str(error.value)


def test_names_that_are_numbers_are_refused(tmp_path):
    torch.save({0: torch.ones(3), "a": torch.ones(3)}, tmp_path / "pytorch_model.bin")
    with pytest.raises(UserError, match="found names that are no text: 0; save the state dict"):
        read_tensors(tmp_path)


@pytest.mark.parametrize("is_zip", [True, False])
def test_a_damaged_pickle_is_read_or_refused_in_one_sentence(tmp_path, is_zip, recwarn):
    path, rng, said = tmp_path / "pytorch_model.bin", random.Random(0), []
    torch.save(state_dict(), path, _use_new_zipfile_serialization=is_zip)
    good = path.read_bytes()
    for _ in range(150):
        damaged = bytearray(good)
        for _ in range(rng.choice([1, 1, 3, 20])):
            damaged[rng.randrange(min(len(good), 1500))] ^= 1 << rng.randrange(8)
        path.write_bytes(damaged)
        try:
            read_tensors(tmp_path)
        except UserError as error:
            said.append(str(error))
    assert len(said) > 50
    assert not any("\n" in text for text in said)
    assert not recwarn.list
