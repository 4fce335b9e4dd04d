"""Safetensors files, mapped: 8 bytes of header length, a JSON header, then the tensors' bytes.

Read and written here and not by the safetensors package. Its NumPy side copies every tensor and knows no bfloat16; a
view on the mapped file costs no memory and lets a shard be cut out before anything is copied. Writing, it makes every
array contiguous first, a second copy of a model whose kernels are transposed views; here tensors go one by one.

`flax_model.msgpack` files of Hugging Face, mapped: nested maps whose leaves are arrays.

Flax's own reader holds the whole file in memory, so the few kinds of msgpack items that Flax writes are decoded
here and arrays stay views on the mapped file. Layout (flax.serialization): an array is extension type 1 (a NumPy
scalar: 3) around `(shape, type name, bytes)`; one above 1 GiB is a map with the key `__msgpack_chunked_array__`.
"""

import json
import math
import mmap
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

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
    """The file's bytes, mapped read-only; raises UserError where it is empty."""
    with path.open("rb") as file:
        if not path.stat().st_size:
            raise UserError(f"{path}: is empty; download or copy it again.")
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


def not_weights(path: Path, start: bytes, expected: str, found: str) -> UserError:
    """The sentence for a file that is not what its name says; `start` tells a Git LFS pointer from other content."""
    if start.startswith(b"version https://git-lfs"):
        found = "it is a Git LFS pointer: run `git lfs pull` in its folder"
    else:
        found = f"{found}; download or copy it again"
    return UserError(f"{path}: expected {expected}, but {found}.")


def open_safetensors(path: Path) -> dict[str, np.ndarray]:
    """Read-only views on the tensors of a safetensors file, in the file's types, by name.

    Raises:
      UserError: the file is no safetensors file, is cut short, or holds a type that no checkpoint has.
    """
    content = map_file(path)
    header, data_start = _header(path, content)
    header.pop("__metadata__", None)
    tensors = {}
    end = data_start
    for name, entry in header.items():
        try:
            dtype, shape = _DTYPES[entry["dtype"]], tuple(entry["shape"])
            start, stop = (data_start + offset for offset in entry["data_offsets"])
        except (KeyError, TypeError, ValueError) as error:
            raise UserError(f"{path}: cannot read the header's entry of {name!r} ({entry}).") from error
        count = math.prod(shape)
        if not data_start <= start <= stop or stop - start != count * dtype.itemsize:
            raise UserError(f"{path}: the header gives {name!r} {stop - start} bytes for {entry['dtype']} {shape}.")
        end = max(end, stop)
        if stop <= len(content):
            tensors[name] = np.frombuffer(content, dtype, count, start).reshape(shape)
    if end != len(content):
        found = f"it has {len(content)} of them: it was cut short" if end > len(content) else "more follow"
        raise not_weights(path, b"", f"{end} bytes as its header says", found)
    return tensors


def read_metadata(path: Path) -> dict[str, str]:
    """The strings that a safetensors file carries beside its tensors."""
    return _header(path, map_file(path))[0].get("__metadata__", {})


def _header(path: Path, content: mmap.mmap) -> tuple[dict[str, Any], int]:
    """The header, and where the tensors' bytes begin."""
    expected = "a safetensors file"
    data_start = 8 + int.from_bytes(content[:8], "little")
    if len(content) < 8 or content[8:9] != b"{":
        raise not_weights(path, content[:100], expected, "it begins like another kind of file")
    if data_start > len(content):
        raise not_weights(path, content[:100], expected, "it ends inside the header: it was cut short")
    try:
        header = json.loads(content[8:data_start])
    except ValueError as error:
        raise not_weights(path, b"", expected, "its header is not JSON") from error
    return header, data_start


def write_safetensors(path: Path, tensors: Mapping[str, np.ndarray], metadata: Mapping[str, str]) -> None:
    """Writes arrays by name; the file appears under its own name only when it is whole."""
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


# First byte of an item -> (kind, struct format of the length or number that follows).
_SIZED = {
    0xC4: ("bin", ">B"), 0xC5: ("bin", ">H"), 0xC6: ("bin", ">I"),
    0xC7: ("ext", ">B"), 0xC8: ("ext", ">H"), 0xC9: ("ext", ">I"),
    0xCC: ("int", ">B"), 0xCD: ("int", ">H"), 0xCE: ("int", ">I"), 0xCF: ("int", ">Q"),
    0xD9: ("str", ">B"), 0xDA: ("str", ">H"), 0xDB: ("str", ">I"),
    0xDC: ("array", ">H"), 0xDD: ("array", ">I"),
    0xDE: ("map", ">H"), 0xDF: ("map", ">I"),
}  # fmt: skip
_CHUNKED = "__msgpack_chunked_array__"

# Last part of a Flax name -> last part of the PyTorch name. A kernel is also transposed, [in, out] -> [out, in].
_LEAVES = {"kernel": "weight", "scale": "weight", "embedding": "weight"}


class _Items:
    """Decodes one msgpack item after the other from `content`; binary data come as views."""

    def __init__(self, content: mmap.mmap | memoryview):
        self._content = memoryview(content)
        self.at = 0

    def _take(self, count: int) -> memoryview:
        if self.at + count > len(self._content):
            raise EOFError
        self.at += count
        return self._content[self.at - count : self.at]

    def item(self) -> Any:
        """The next item; raises EOFError where it is cut short and ValueError where it is of no known kind."""
        kind, size = self._kind()
        if kind == "int":
            return size
        if kind == "bool":
            return bool(size)
        if kind == "str":
            return str(self._take(size), "utf8")
        if kind == "bin":
            return self._take(size)
        if kind == "array":
            return [self.item() for _ in range(size)]
        if kind == "map":
            return _join_chunks({self.item(): self.item() for _ in range(size)})
        code = self._take(1)[0]
        if code not in (1, 3):
            raise ValueError(f"extension type {code}")
        shape, dtype, data = _Items(self._take(size)).item()
        return np.frombuffer(data, jnp.dtype(dtype)).reshape(shape)

    def _kind(self) -> tuple[str, int]:
        first = self._take(1)[0]
        if first < 0x80:
            return "int", first
        if first < 0xC0:
            kind, mask = ("map", 15) if first < 0x90 else ("array", 15) if first < 0xA0 else ("str", 31)
            return kind, first & mask
        if first in (0xC2, 0xC3):
            return "bool", first & 1
        if 0xD4 <= first <= 0xD8:
            return "ext", 1 << (first - 0xD4)
        if first not in _SIZED:
            raise ValueError(f"item {first:#x}")
        kind, fmt = _SIZED[first]
        return kind, struct.unpack(fmt, self._take(struct.calcsize(fmt)))[0]


def _join_chunks(tree: dict[str, Any]) -> dict[str, Any] | np.ndarray:
    if _CHUNKED not in tree:
        return tree
    shape, chunks = ([part[str(i)] for i in range(len(part))] for part in (tree["shape"], tree["chunks"]))
    return np.concatenate(chunks).reshape(shape)


def torch_name(path: tuple[str, ...]) -> str:
    """The PyTorch name of a Flax parameter: `("a", "kernel") -> "a.weight"`."""
    return ".".join((*path[:-1], _LEAVES.get(path[-1], path[-1])))


def open_flax(path: Path) -> dict[str, np.ndarray]:
    """Read-only views on the arrays of a Flax checkpoint under PyTorch's names and in PyTorch's orientation.

    Raises:
      UserError: the file is no Flax checkpoint or is cut short.
    """
    content = map_file(path)
    items = _Items(content)
    expected = "a Flax checkpoint (msgpack)"
    try:
        tree = items.item()
    except EOFError:
        raise not_weights(path, content[:100], expected, "it ends too early: it was cut short") from None
    except (ValueError, TypeError, RecursionError) as error:
        raise not_weights(path, content[:100], expected, f"it has other content ({first_line(error)})") from error
    if not isinstance(tree, dict) or items.at != len(content):
        raise not_weights(path, content[:100], expected, "it begins like another kind of file")
    tensors: dict[str, np.ndarray] = {}
    _flatten(path, tree.get("params", tree), (), tensors)
    return tensors


def _flatten(file: Path, tree: dict[str, Any], above: tuple[str, ...], tensors: dict[str, np.ndarray]) -> None:
    for key, value in tree.items():
        path = (*above, key)
        if isinstance(value, dict):
            _flatten(file, value, path, tensors)
        elif not isinstance(value, np.ndarray):
            raise UserError(f"{file}: expected an array at {'/'.join(path)}, found {type(value).__name__}.")
        elif torch_name(path) in tensors:
            raise UserError(f"{file}: two arrays mean {torch_name(path)}; keep one of them.")
        elif key == "kernel":
            if value.ndim != 2:
                raise UserError(f"{file}: expected a matrix at {'/'.join(path)}, found shape {value.shape}.")
            tensors[torch_name(path)] = value.T
        else:
            tensors[torch_name(path)] = value
