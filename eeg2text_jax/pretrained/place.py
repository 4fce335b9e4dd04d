"""Tensors of a mapped file -> one parameter on its devices, shard by shard."""

import math
from collections.abc import Sequence

import jax
import numpy as np

# Columns copied at once out of a transposed view. Whole rows of such a view jump through the file: 0.4 GB/s, against
# 2 GB/s in strips of 16 (1024 x 4096, float32).
_STRIP = 16


def place(
    pieces: Sequence[np.ndarray], sharding: jax.sharding.Sharding | None, *, stacked: bool, arms: int | None = None
) -> jax.Array:
    """A float32 parameter: `pieces[0]`, or with `stacked` the pieces on a new leading axis `[L, ...]`.

    Only the shards of this process's devices are copied out of the pieces, one shard at a time, and float16 and
    bfloat16 are widened on the way: beside the parameter itself, one shard is in host memory.

    Args:
      pieces: arrays of one shape, views on a mapped file.
      sharding: where the parameter goes; None: whole, to the default device.
      stacked: whether the pieces are the layers of a stack.
      arms: give the parameter a first axis `A` of so many equal entries, one for each arm of a grid.
    """
    layers = (len(pieces),) if stacked else ()
    shape = (*(() if arms is None else (arms,)), *layers, *pieces[0].shape)
    if sharding is None:
        sharding = jax.sharding.SingleDeviceSharding(jax.local_devices()[0])

    def shard(index: tuple[slice, ...]) -> np.ndarray:
        if arms is None:
            return _one_arm(pieces, index, stacked)
        one = _one_arm(pieces, index[1:], stacked)
        return np.broadcast_to(one, (len(range(arms)[index[0]]), *one.shape))

    # Blocks, so that the buffers of several parameters never wait for their devices at once.
    return jax.block_until_ready(jax.make_array_from_callback(shape, sharding, shard, dtype=np.float32))


def _one_arm(pieces: Sequence[np.ndarray], index: tuple[slice, ...], stacked: bool) -> np.ndarray:
    if not stacked:
        return _copy(pieces[0][index])
    parts = [piece[index[1:]] for piece in pieces[index[0]]]
    out = _empty((len(parts), *parts[0].shape))
    for target, part in zip(out, parts, strict=True):
        _copy(part, target)
    return out


def _copy(source: np.ndarray, target: np.ndarray | None = None) -> np.ndarray:
    target = _empty(source.shape) if target is None else target
    if source.ndim == 2 and source.strides[0] < source.strides[1]:  # a transposed view
        for start in range(0, source.shape[1], _STRIP):
            target[:, start : start + _STRIP] = source[:, start : start + _STRIP]
    else:
        target[...] = source
    return target


def _empty(shape: tuple[int, ...]) -> np.ndarray:
    """Uninitialised float32 memory that a CPU device takes over without a copy: aligned to 64 bytes, as XLA asks."""
    size = 4 * math.prod(shape)
    memory = np.empty(size + 64, np.uint8)
    start = -memory.ctypes.data % 64
    return memory[start : start + size].view(np.float32).reshape(shape)
