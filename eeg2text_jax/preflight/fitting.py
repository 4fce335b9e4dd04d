"""The largest batch that fits: a line through two compilations, confirmed by a third."""

import dataclasses
from collections.abc import Callable

# Share of a chip's memory that programs get: the runtime keeps some for itself and loses some between buffers.
USABLE = 0.97
LARGEST = 2**14  # no batch above it is looked for


@dataclasses.dataclass(frozen=True)
class LargestBatch:
    """The answer of `largest_batch`.

    Fields:
      size: the largest batch that was compiled and fits, 0 if none did.
      estimate: what the line through two compilations says, a size that was not compiled where the two differ.
      tried: bytes by batch size, for every batch that was compiled.
    """

    size: int
    estimate: int
    tried: dict[int, int]

    @property
    def confirmed(self) -> bool:
        """Whether the compiled batch is the one that the line promises, so that no larger one is to be expected."""
        return self.size == self.estimate


def largest_batch(
    compile_bytes: Callable[[int], int], start: int, step: int, limit: int, compilations: int = 4
) -> LargestBatch:
    """Searches the largest multiple of `step` whose memory is at most `limit`.

    Memory is about affine in the batch. The line through `start` and a second size promises a batch; that is compiled.
    If it does not fit, the line is drawn anew through it and the largest one that does, so that the answer
    is always one that was compiled, and only one that the last line promises counts as confirmed.

    Args:
      compile_bytes: batch size -> bytes on one device.
      start: first size, a multiple of `step`.
      step: devices along the batch: only their multiples divide among them.
      limit: bytes.
      compilations: how many there may be, those of `start` and the second size among them.
    """
    tried: dict[int, int] = {}

    def measure(size: int) -> int:
        tried[size] = compile_bytes(size)
        return tried[size]

    first = measure(start)
    second = 2 * start if first <= limit else max(start // 2 // step * step, step)
    if second != start:
        measure(second)
    estimate = _estimate(tried, step, limit)
    while len(tried) < compilations and estimate >= step and estimate not in tried:
        measure(estimate)
        estimate = _estimate(tried, step, limit)
    fitting = [size for size, taken in tried.items() if taken <= limit]
    return LargestBatch(max(fitting, default=0), estimate, dict(sorted(tried.items())))


def _estimate(tried: dict[int, int], step: int, limit: int) -> int:
    """The largest multiple of `step` that the line through the two sizes nearest to the limit lets in.

    It lies between the largest size that is known to fit and the smallest that is known not to.
    """
    near = sorted(tried, key=lambda size: abs(tried[size] - limit))[:2]
    below = max((size for size in tried if tried[size] <= limit), default=0)
    above = min((size for size in tried if tried[size] > limit), default=LARGEST + step)
    if len(near) < 2:
        return below
    (x, y), (fx, fy) = near, (tried[near[0]], tried[near[1]])
    slope = max((fy - fx) / (y - x), 1.0)
    promised = int(x + (limit - fx) / slope) // step * step
    return max(min(promised, above - step), below)
