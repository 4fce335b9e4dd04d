"""Unpickling that cannot execute anything: numbers, text, plain containers, and numpy arrays rebuilt by us.

A pickle names the functions that rebuild its objects, so loading one runs whatever its author chose. Here the few
names under which numpy writes arrays lead to the classes below, every other name is refused, and not even numpy's
own reconstruction sees the file's bytes.
"""

import pickle
from typing import Any, BinaryIO

import numpy as np

_PLAIN_KINDS = "biuf"


class Forbidden(Exception):
    """The pickle names something that is not needed to hold recordings; the message is that name."""


class _Dtype:
    """Stands for `numpy.dtype`: a plain number type, of which `__setstate__` tells the byte order."""

    def __init__(self, name: str, *_: Any):
        self.dtype = np.dtype(str(name)) if not isinstance(name, _Dtype) else name.dtype
        if self.dtype.kind not in _PLAIN_KINDS:
            raise ValueError(f"an array of {name!r}, not of plain numbers")

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        order = state[1]
        if order in ("<", ">"):
            self.dtype = self.dtype.newbyteorder(order)


class _Array:
    """Stands for an array until its state is known; `value` is the array."""

    def __init__(self, *_: Any):
        self.value: np.ndarray | None = None

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _, shape, dtype, is_fortran, content = state
        self.value = _rebuild(content, dtype, shape, "F" if is_fortran else "C")


def _from_buffer(content: bytes, dtype: _Dtype, shape: tuple[int, ...], order: str = "C") -> _Array:
    array = _Array()
    array.value = _rebuild(content, dtype, shape, order)
    return array


def _rebuild(content: Any, dtype: Any, shape: Any, order: str) -> np.ndarray:
    if not isinstance(dtype, _Dtype) or not isinstance(content, bytes | bytearray):
        raise ValueError("an array without numbers")
    flat = np.frombuffer(content, dtype.dtype)
    if flat.size != np.prod(shape, dtype=object):
        raise ValueError(f"an array of shape {shape} with {flat.size} numbers")
    return flat.reshape(shape, order=order)


def _scalar(dtype: _Dtype, content: bytes) -> float:
    value = _rebuild(content, dtype, (), "C")
    return value.item()


_ALLOWED = {
    ("numpy", "ndarray"): _Array,
    ("numpy", "dtype"): _Dtype,
} | {
    (f"numpy.{core}.{module}", name): stand_in
    for core in ("core", "_core")  # numpy 1 and numpy 2
    for module, name, stand_in in (
        ("multiarray", "_reconstruct", _Array),
        ("multiarray", "scalar", _scalar),
        ("numeric", "_frombuffer", _from_buffer),
    )
}


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        try:
            return _ALLOWED[module, name]
        except KeyError:
            raise Forbidden(f"{module}.{name}") from None

    def persistent_load(self, pid: Any) -> Any:
        raise Forbidden("a persistent id")


def load_plain(file: BinaryIO) -> Any:
    """Loads a pickle that holds numbers, text, containers and numeric arrays only.

    Arrays come as objects to be given to `array`.

    Raises:
      Forbidden: it names any other class or function; nothing was executed.
      Exception: the bytes are no pickle, or a damaged one (the C unpickler raises nearly anything then).
    """
    content = _Unpickler(file).load()
    if file.read(1):
        raise ValueError("data after its end")
    return content


def array(value: Any) -> np.ndarray:
    """A loaded array, number or list of numbers as a flat array; TypeError for anything else."""
    if isinstance(value, _Array) and value.value is not None:
        return value.value.ravel()
    if isinstance(value, int | float) or (isinstance(value, list) and not value):
        return np.atleast_1d(np.asarray(value, np.float64))
    raise TypeError(f"{type(value).__name__} where numbers were expected")
