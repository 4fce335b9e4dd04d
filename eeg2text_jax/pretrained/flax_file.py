"""`flax_model.msgpack` files of Hugging Face, mapped: nested maps whose leaves are arrays.

Flax's own reader holds the whole file in memory, so the few kinds of msgpack items that Flax writes are decoded
here and arrays stay views on the mapped file. Layout (flax.serialization): an array is extension type 1 (a NumPy
scalar: 3) around `(shape, type name, bytes)`; one above 1 GiB is a map with the key `__msgpack_chunked_array__`.
"""

import mmap
import struct
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from eeg2text_jax.errors import UserError, first_line
from eeg2text_jax.pretrained.safetensors_file import map_file, not_weights

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
