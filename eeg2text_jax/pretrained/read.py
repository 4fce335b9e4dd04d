"""A checkpoint folder's tensors by name, whatever format they are in; PyTorch is imported only for its own."""

import json
import pickle
from collections.abc import Mapping
from pathlib import Path

import jax.numpy as jnp
import numpy as np

from eeg2text_jax.errors import UserError, first_line
from eeg2text_jax.pretrained.flax_file import open_flax, torch_name
from eeg2text_jax.pretrained.safetensors_file import not_weights, open_safetensors


def open_torch(path: Path) -> dict[str, np.ndarray]:
    """Views on the tensors of a PyTorch state dict, in the file's types, by name; only tensors are unpickled.

    Raises:
      UserError: PyTorch is not installed, the file is not a state dict, or it is cut short.
    """
    try:
        import torch
    except ImportError as error:
        raise UserError(
            f"{path}: reading it needs PyTorch, which is not installed; install torch, or save the checkpoint as "
            "model.safetensors."
        ) from error
    with path.open("rb") as file:
        start = file.read(100)
    try:
        # Only the zip layout (PyTorch 1.6 and later) can be mapped.
        state = torch.load(path, map_location="cpu", weights_only=True, mmap=start.startswith(b"PK"))
    except (RuntimeError, pickle.UnpicklingError, EOFError, ValueError, OSError) as error:
        reason = first_line(error)[:120]
        raise not_weights(path, start, "a PyTorch state dict", f"it cannot be read ({reason})") from error
    if not isinstance(state, dict):
        raise UserError(f"{path}: expected a dict of tensors, found {type(state).__name__}.")
    wrong = [str(name) for name, value in state.items() if not isinstance(value, torch.Tensor)]
    if wrong:
        raise UserError(f"{path}: expected a dict of tensors, found other values under {', '.join(wrong[:5])}.")
    return {name: _view(torch, tensor.detach()) for name, tensor in state.items()}


def _view(torch, tensor) -> np.ndarray:
    """The tensor's memory as an array; bfloat16, which `Tensor.numpy` refuses, goes by way of its bits."""
    if tensor.dtype == torch.bfloat16:
        return tensor.view(torch.int16).numpy().view(jnp.bfloat16)
    return tensor.numpy()


# Tried in this order; PyTorch's pickles last, since they need PyTorch.
WEIGHTS = {"model.safetensors": open_safetensors, "flax_model.msgpack": open_flax, "pytorch_model.bin": open_torch}
INDEX = ".index.json"


def weights_file(names: set[str]) -> str | None:
    """Which of a folder's files is read: a weights file, or the index of one in shards; None where there is none."""
    for name in WEIGHTS:
        for candidate in (name, name + INDEX):
            if candidate in names:
                return candidate
    return None


def read_tensors(folder: str | Path) -> Mapping[str, np.ndarray]:
    """Opens the tensors of a checkpoint folder under PyTorch's names, in PyTorch's orientation and the file's types.

    Every value is a read-only view on a mapped file: nothing is in memory before it is used.

    Raises:
      UserError: the folder holds no weights, or they cannot be read.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise UserError(f"{folder}: there is no such folder; give one with config.json and model.safetensors.")
    file = weights_file({path.name for path in folder.iterdir()})
    if file is None:
        kinds = ", ".join(WEIGHTS)
        raise UserError(f"{folder}: holds no weights; expected one of {kinds}, or an index of one in shards.")
    if file.endswith(INDEX):
        return _read_shards(folder / file)
    return WEIGHTS[file](folder / file)


def _read_shards(index: Path) -> dict[str, np.ndarray]:
    """The tensors of all files that an index names; every one must be where the index says."""
    try:
        weight_map = json.loads(index.read_text("utf8"))["weight_map"]
        shards = sorted(set(weight_map.values()))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{index}: expected a JSON object with `weight_map` of tensor name to file name.") from error
    open_file = WEIGHTS[index.name.removesuffix(INDEX)]
    tensors: dict[str, np.ndarray] = {}
    for shard in shards:
        path = index.parent / Path(shard).name
        if not path.is_file():
            raise UserError(f"{index}: names the file {shard}, which is not in the folder; download or copy it again.")
        promised = {name for name, file in weight_map.items() if file == shard}
        if open_file is open_flax:
            promised = {torch_name(tuple(name.split("/"))) for name in promised}
        found = open_file(path)
        if promised != set(found):
            both = ", ".join(sorted(promised ^ set(found))[:5])
            raise UserError(f"{path}: its tensors are not those that {index.name} lists; they differ in {both}.")
        tensors |= found
    return tensors
