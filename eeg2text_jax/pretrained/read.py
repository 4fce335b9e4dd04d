"""A checkpoint folder's tensors by name, whatever format they are in."""

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from eeg2text_jax.errors import UserError
from eeg2text_jax.pretrained.flax_file import open_flax, torch_name
from eeg2text_jax.pretrained.safetensors_file import open_safetensors
from eeg2text_jax.pretrained.torch_file import open_torch

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
