"""Tensors of a mapped file -> one parameter on its devices, shard by shard."""

from collections.abc import Sequence

import jax
import numpy as np

# Columns copied at once out of a transposed view. Whole rows of such a view jump through the file: 0.4 GB/s, against
# 2 GB/s in strips of 16 (1024 x 4096, float32).
_STRIP = 16


def place(pieces: Sequence[np.ndarray], sharding: jax.sharding.Sharding | None, *, stacked: bool) -> jax.Array:
    """A float32 parameter: `pieces[0]`, or with `stacked` the pieces on a new leading axis `[L, ...]`.

    Only the shards of this process's devices are copied out of the pieces, one shard at a time, and float16 and
    bfloat16 are widened on the way: beside the parameter itself, one shard is in host memory.

    Args:
      pieces: arrays of one shape, views on a mapped file.
      sharding: where the parameter goes; None: whole, to the default device.
      stacked: whether the pieces are the layers of a stack.
    """
    shape = (len(pieces), *pieces[0].shape) if stacked else pieces[0].shape
    if sharding is None:
        sharding = jax.sharding.SingleDeviceSharding(jax.local_devices()[0])

    def shard(index: tuple[slice, ...]) -> np.ndarray:
        if not stacked:
            return _copy(pieces[0][index])
        parts = [piece[index[1:]] for piece in pieces[index[0]]]
        out = np.empty((len(parts), *parts[0].shape), np.float32)
        for target, part in zip(out, parts, strict=True):
            _copy(part, target)
        return out

    # Blocks, so that the buffers of several parameters never wait for their devices at once.
    return jax.block_until_ready(jax.make_array_from_callback(shape, sharding, shard, dtype=np.float32))


def _copy(source: np.ndarray, target: np.ndarray | None = None) -> np.ndarray:
    target = np.empty(source.shape, np.float32) if target is None else target
    if source.ndim == 2 and source.strides[0] < source.strides[1]:  # a transposed view
        for start in range(0, source.shape[1], _STRIP):
            target[:, start : start + _STRIP] = source[:, start : start + _STRIP]
    else:
        target[...] = source
    return target
