"""Safetensors files, mapped: 8 bytes of header length, a JSON header, then the tensors' bytes.

Read and written here and not by the safetensors package. Its NumPy side copies every tensor and knows no bfloat16; a
view on the mapped file costs no memory and lets a shard be cut out before anything is copied. Writing, it makes every
array contiguous first, a second copy of a model whose kernels are transposed views; here tensors go one by one.
"""

import json
import math
import mmap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from eeg2text_jax.errors import UserError
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
