"""Read and write checkpoint files: safetensors, and `flax_model.msgpack` of Hugging Face.

The safetensors library checks files here, but its `safe_open` copies tensors. Tensors here are views on the mapped
file: they take no memory, and a part of one can be copied alone. The library's writer copies all arrays that are
not contiguous, such as our transposed kernels, before it writes them; here tensors are written one by one.
"""

import json
import math
import mmap
from collections.abc import Mapping
from pathlib import Path

import jax.numpy as jnp
import msgpack
import numpy as np
import safetensors
from flax import traverse_util
from flax.serialization import msgpack_restore

from eeg2text_jax.errors import UserError, first_line
from eeg2text_jax.files import replacing

_DTYPES = {
    "F64": np.dtype(np.float64),
    "F32": np.dtype(np.float32),
    "F16": np.dtype(np.float16),
    "BF16": jnp.dtype(jnp.bfloat16),
    "I64": np.dtype(np.int64),
    "I32": np.dtype(np.int32),
    "I16": np.dtype(np.int16),
    "I8": np.dtype(np.int8),
    "U8": np.dtype(np.uint8),
    "BOOL": np.dtype(np.bool_),
}
_NAMES = {dtype: name for name, dtype in _DTYPES.items()}


def map_file(path: Path) -> mmap.mmap:
    """Return the file's bytes, mapped read-only; raise a UserError if it is empty."""
    with path.open("rb") as file:
        if not path.stat().st_size:
            raise UserError(f"{path}: is empty; download or copy it again.")
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


def not_weights(path: Path, start: bytes, expected: str, found: str) -> UserError:
    """Return the error for a file that should be `expected`; `found` says what it is, `start` are its first bytes."""
    if start.startswith(b"version https://git-lfs"):
        found = "it is a Git LFS pointer: run `git lfs pull` in its folder"
    else:
        found = f"{found}; download or copy it again"
    return UserError(f"{path}: expected {expected}, but {found}.")


def open_safetensors(path: Path) -> dict[str, np.ndarray]:
    """Return read-only views on the tensors of a safetensors file, in the file's types, by name.

    The library checks the header, and that tensors fill the file in the order of their offsets. Raises UserError if the
    file is no safetensors file, is cut short, or holds a type that no checkpoint has.
    """
    content = map_file(path)
    tensors = {}
    with _opened(path, content) as file:
        at = 8 + int.from_bytes(content[:8], "little")
        for name in file.offset_keys():
            entry = file.get_slice(name)
            kind, shape = entry.get_dtype(), tuple(entry.get_shape())
            if kind not in _DTYPES:
                raise UserError(f"{path}: {name!r} is of type {kind}; expected one of {', '.join(_DTYPES)}.")
            tensors[name] = np.frombuffer(content, _DTYPES[kind], math.prod(shape), at).reshape(shape)
            at += tensors[name].nbytes
    return tensors


def read_metadata(path: Path) -> dict[str, str]:
    """Return the metadata (strings by name) in the header of a safetensors file."""
    with _opened(path, map_file(path)) as file:
        return file.metadata() or {}


def _opened(path: Path, content: mmap.mmap) -> safetensors.safe_open:
    try:
        return safetensors.safe_open(path, "numpy")
    except safetensors.SafetensorError as error:
        found = f"its header does not fit: the file was cut short, or more bytes follow ({first_line(error)})"
        raise not_weights(path, content[:100], "a safetensors file", found) from error


def write_safetensors(path: Path, tensors: Mapping[str, np.ndarray], metadata: Mapping[str, str]) -> None:
    """Write a safetensors file of arrays by name, atomically."""
    header: dict[str, object] = {"__metadata__": dict(metadata)}
    end = 0
    for name, array in tensors.items():
        start, end = end, end + array.nbytes
        header[name] = {"dtype": _NAMES[array.dtype], "shape": list(array.shape), "data_offsets": [start, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)  # tensors begin at a multiple of 8, as the format asks
    with replacing(path) as partial, partial.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for array in tensors.values():
            file.write(np.ascontiguousarray(array).reshape(-1).view(np.uint8))


# Last part of a Flax name -> last part of the PyTorch name. A kernel is also transposed, [in, out] -> [out, in].
_LEAVES = {"kernel": "weight", "scale": "weight", "embedding": "weight"}


def torch_name(path: tuple[str, ...]) -> str:
    """Return the PyTorch name of a Flax parameter: `("a", "kernel") -> "a.weight"`."""
    return ".".join((*path[:-1], _LEAVES.get(path[-1], path[-1])))


def open_flax(path: Path) -> dict[str, np.ndarray]:
    """Return the arrays of a Flax checkpoint under PyTorch's names and in PyTorch's orientation.

    Raises UserError if the file is no Flax checkpoint or is cut short.
    """
    content = map_file(path)
    expected = "a Flax checkpoint (msgpack)"
    try:
        tree = msgpack_restore(content)
    except (ValueError, TypeError, KeyError, msgpack.UnpackException, RecursionError) as error:
        found = f"it was cut short or has other content ({first_line(error)})"
        raise not_weights(path, content[:100], expected, found) from error
    if not isinstance(tree, dict) or not isinstance(tree := tree.get("params", tree), dict):
        raise not_weights(path, content[:100], expected, "it begins like another kind of file")
    tensors: dict[str, np.ndarray] = {}
    for names, value in traverse_util.flatten_dict(tree).items():
        place, name = "/".join(names), torch_name(names)
        if not isinstance(value, np.ndarray | np.generic):
            raise UserError(f"{path}: expected an array at {place}, found {type(value).__name__}.")
        if name in tensors:
            raise UserError(f"{path}: two arrays have the name {name} in PyTorch; keep one of them.")
        if names[-1] == "kernel" and value.ndim != 2:
            raise UserError(f"{path}: expected a matrix at {place}, found shape {value.shape}.")
        tensors[name] = np.asarray(value).T if names[-1] == "kernel" else np.asarray(value)
    return tensors
