"""The largest batch that fits: a line through two compilations, confirmed by a third."""

import dataclasses
from collections.abc import Callable, Mapping

# Share of a chip's memory that programs get: the runtime keeps some for itself and loses some between buffers.
USABLE = 0.97
LARGEST = 2**14  # no batch above it is looked for
# A confirming compilation that shows the line to be this far off asks for another one.
TOLERANCE = 0.05


@dataclasses.dataclass(frozen=True)
class LargestBatch:
    """The answer of `largest_batch`.

    Fields:
      size: the largest batch that was compiled and fits, 0 if none did.
      confirmed: whether it is the one that a line through two other compilations had promised.
      estimate: the last promise, which was not compiled unless confirmed.
      tried: bytes by batch size, for every batch that was compiled.
    """

    size: int
    confirmed: bool
    estimate: int
    tried: dict[int, int]


def second_size(start: int, first: int | None, step: int, limit: int) -> int:
    """The batch to draw the line with: twice `start`, or half of it where that (of `first` bytes) did not fit."""
    return 2 * start if first is None or first <= limit else max(start // 2 // step * step, step)


def largest_batch(
    compile_bytes: Callable[[int], int], known: Mapping[int, int], step: int, limit: int, compilations: int = 5
) -> LargestBatch:
    """Searches the largest multiple of `step` whose memory is at most `limit`.

    Memory is about affine in the batch. The line through two known sizes promises a batch, which is compiled. If that
    does not fit, or shows that far more would, the line is drawn anew through the sizes nearest to the limit. The
    answer is always a batch that was compiled.

    Args:
      compile_bytes: batch size -> bytes on one device.
      known: bytes of two sizes, multiples of `step`.
      step: devices along the batch: only their multiples divide among them.
      limit: bytes.
      compilations: how many more there may be.
    """
    tried, confirmed = dict(known), False
    estimate = promise(tried, step, limit)
    while compilations and estimate >= step:
        if estimate not in tried:
            compilations -= 1
            tried[estimate] = compile_bytes(estimate)
        after = promise(tried, step, limit)
        confirmed = tried[estimate] <= limit and after - estimate <= max(TOLERANCE * estimate, step)
        if confirmed or after == estimate:
            break
        estimate = after
    fitting = max((size for size, taken in tried.items() if taken <= limit), default=0)
    return LargestBatch(fitting, confirmed and fitting == estimate, estimate, dict(sorted(tried.items())))


def promise(tried: Mapping[int, int], step: int, limit: int) -> int:
    """The largest multiple of `step` that the line through the two sizes nearest to the limit lets in.

    It is not below the largest size that is known to fit, and below the smallest that is known not to; where the line
    says otherwise, that between these two is taken. (What T5-large takes at batch 32 and 64 is the same to 0.5 %: the
    optimizer's, beside which a batch needs little until it needs more.)
    """
    below = max((size for size, taken in tried.items() if taken <= limit), default=0)
    above = min((size for size, taken in tried.items() if taken > limit), default=LARGEST + step)
    near = sorted(tried, key=lambda size: abs(tried[size] - limit))[:2]
    if len(near) < 2:
        return below
    line = _crossing(tried, near[0], near[1], limit) // step * step
    if line >= above and below and above in tried:
        line = _crossing(tried, below, above, limit) // step * step
    return max(min(line, above - step), below)


def _crossing(tried: Mapping[int, int], first: int, second: int, limit: int) -> int:
    """Where the line through two sizes reaches the limit."""
    slope = max((tried[second] - tried[first]) / (second - first), 1.0)
    return int(first + (limit - tried[first]) / slope)
