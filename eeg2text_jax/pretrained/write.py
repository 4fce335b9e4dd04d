"""Writes safetensors files tensor by tensor, so that a checkpoint is never twice in memory."""

import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path

import jax
import numpy as np

_NAMES = {"float32": "F32", "float16": "F16", "bfloat16": "BF16", "int64": "I64", "int32": "I32"}

Tensor = tuple[jax.ShapeDtypeStruct, Callable[[], np.ndarray]]


def write_safetensors(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> None:
    """Writes `name -> (shape and type, function that gives the array)`; every function is called once, in order.

    The file appears under its name only when it is whole.
    """
    header: dict[str, object] = {"__metadata__": dict(metadata)}
    end = 0
    for name, (struct, _) in tensors.items():
        start, end = end, end + math.prod(struct.shape) * struct.dtype.itemsize
        kind = _NAMES[struct.dtype.name]
        header[name] = {"dtype": kind, "shape": list(struct.shape), "data_offsets": [start, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)  # tensors begin at a multiple of 8, as the format asks
    partial = path.with_name(f".{path.name}.partial")
    try:
        with partial.open("wb") as file:
            file.write(len(text).to_bytes(8, "little") + text)
            for name, (struct, read) in tensors.items():
                array = np.asarray(read())
                if array.shape != struct.shape or array.dtype != struct.dtype:
                    raise ValueError(f"{name}: {array.dtype} {array.shape} was announced as {struct}")
                file.write(np.ascontiguousarray(array).reshape(-1).view(np.uint8))
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
