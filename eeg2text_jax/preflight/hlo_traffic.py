"""Bytes that an instruction of an optimized TPU program moves to and from HBM, padded to the chip's tiles.

The layout of every array states its memory: `S(1)` is the memory near the cores (VMEM), a layout without `S` is HBM. An
asynchronous copy from HBM to VMEM therefore counts once, and a copy within HBM twice. If an operand is sliced, only
the slice counts; if it is updated in place, only the tiles of the update count, once as read and once as written.
"""

import math
import re

from eeg2text_jax.preflight.hlo_text import NOTHING, Instruction, Module, array_bytes

_ARRAY = re.compile(r"(?P<type>[a-z]+\d*\w*)\[(?P<shape>[\d,]*)\](?:\{(?P<layout>[\d,]*)(?::(?P<tiles>[^{}]*))?\})?")
_TILE = re.compile(r"T\(([\d,]+)\)")
_SLICES = ("dynamic-slice", "slice", "gather")
_PASSES = ("bitcast", "copy", "get-tuple-element")
_STILL = re.compile(f"{NOTHING}|while|conditional|call|iota")  # instructions without memory traffic of their own


def hbm_bytes(module: Module, computation: str, line: Instruction) -> int:
    """Return the bytes that one execution of an instruction of `computation` reads from and writes to HBM."""
    if _STILL.fullmatch(line.op) or 'custom_call_target="ConcatBitcast"' in line.attributes:
        return 0
    known = module.by_name[computation]
    operands = [known[name].shape if name in known else "" for name in line.operands]
    if line.op == "copy-start":  # its shape is (result, operand, context)
        return _sum(line.shape)
    if line.op == "slice-start":  # its shape is ((operand), result, context)
        result = list(_ARRAY.finditer(line.shape))[1]
        return _starts_in_hbm(operands[0]) * _padded(result) + _hbm(result)
    if line.op == "dynamic-update-slice":
        return _updated(line, known)
    if line.op in _SLICES:
        return _starts_in_hbm(operands[0]) * _all(line.shape) + _sum(line.shape)
    if line.op == "fusion":
        return _fusion_bytes(module, line, operands)
    return _sum(line.shape) + sum(map(_sum, operands))


def _fusion_bytes(module: Module, fusion: Instruction, operands: list[str]) -> int:
    (called,) = fusion.called["calls"]
    lines, known = module.computations[called], module.by_name[called]
    moved = 0
    for line in lines:
        if line.op == "parameter" and (size := _sum(operands[int(line.arguments)])):
            moved += min(size, _read(module, called, line.name, size))
    root = next(line for line in lines if line.root)
    made = [known[name] for name in root.operands] if root.op == "tuple" else [root]
    results = list(_ARRAY.finditer(fusion.shape))
    for line, result in zip(made, results, strict=False):
        while line.op in _PASSES and line.operands[0] in known:
            line = known[line.operands[0]]
        if _hbm(result):
            moved += _updated(line, known) if line.op == "dynamic-update-slice" else _hbm(result)
    return moved


def _read(module: Module, computation: str, name: str, size: int) -> int:
    """Return the bytes that a fused computation reads of its value `name`: of slices, or all `size` bytes."""
    if module.by_name[computation][name].root:
        return size
    read = 0
    for user in module.computations[computation]:
        for place in (place for place, operand in enumerate(user.operands) if operand == name):
            if user.op == "bitcast":
                read += _read(module, computation, user.name, size)
            elif user.op == "fusion":
                (called,) = user.called["calls"]
                inner = (line for line in module.computations[called] if line.op == "parameter")
                taken = next(line.name for line in inner if int(line.arguments) == place)
                read += _read(module, called, taken, size)
            elif place == 0 and user.op in _SLICES:
                read += _all(user.shape)
            elif place or user.op != "dynamic-update-slice":
                return size
    return read


def _updated(line: Instruction, known: dict[str, Instruction]) -> int:
    """Return the bytes of an in-place update: the tiles of the target under the update, read and written."""
    update, target = known[line.operands[1]], _ARRAY.search(line.shape)
    return 0 if _is_near(target) else 2 * _padded(target, _ARRAY.search(update.shape)["shape"])


def _is_near(array: re.Match[str]) -> bool:
    """Return whether an array is near the cores (VMEM) instead of in HBM."""
    return "S(" in (array["tiles"] or "")


def _starts_in_hbm(shape: str) -> bool:
    """Return whether the first array of a shape is in HBM; False without an array."""
    found = _ARRAY.search(shape)
    return found is not None and not _is_near(found)


def _sum(shape: str) -> int:
    """Return the bytes of all arrays of a shape that are in HBM."""
    return sum(map(_hbm, _ARRAY.finditer(shape)))


def _all(shape: str) -> int:
    return sum(map(_padded, _ARRAY.finditer(shape)))


def _hbm(array: re.Match[str]) -> int:
    return 0 if _is_near(array) else _padded(array)


def _padded(array: re.Match[str], shape: str | None = None) -> int:
    """Return the bytes of an array, or of another shape in its layout, with its last axes padded to whole tiles."""
    lengths = [int(length) for length in (array["shape"] if shape is None else shape).split(",") if length]
    tile = _TILE.search(array["tiles"] or "")
    if tile and lengths and array["layout"]:
        sides = [int(side) for side in tile[1].split(",")]
        inner = [int(axis) for axis in array["layout"].split(",")][: len(sides)]  # the innermost first
        for axis, side in zip(inner, reversed(sides), strict=False):
            lengths[axis] = -(-lengths[axis] // side) * side
    return array_bytes(array["type"], math.prod(lengths))
