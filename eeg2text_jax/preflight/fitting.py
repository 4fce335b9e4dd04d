"""Search for the largest batch that fits: extrapolate memory linearly from two compilations, confirm by a third."""

import dataclasses
from collections.abc import Callable, Mapping

# Share of a chip's memory available to programs; the rest goes to the runtime and fragmentation.
USABLE = 0.97
LARGEST = 2**14  # upper bound of the search
TOLERANCE = 0.05  # if the batch could grow by more than this share after a compilation, another compilation follows


@dataclasses.dataclass(frozen=True)
class LargestBatch:
    """The result of `largest_batch`."""

    size: int  # the largest compiled batch that fits; 0 if none does
    confirmed: bool  # whether `size` equals the extrapolated batch
    estimate: int  # the last extrapolated batch; compiled only if `confirmed`
    compiled_bytes: dict[int, int]  # bytes on one device by batch size, for every compiled batch


def second_size(start: int, first: int, step: int, limit: int) -> int:
    """Return the second batch size to compile: twice `start`, or half of `start` if its bytes, `first`, exceed `limit`.

    The half is a multiple of `step`, and at least `step`.
    """
    return 2 * start if first <= limit else max(start // 2 // step * step, step)


def largest_batch(
    compile_bytes: Callable[[int], int], known: Mapping[int, int], step: int, limit: int, compilations: int = 5
) -> LargestBatch:
    """Search for the largest batch size, a multiple of `step`, whose program needs at most `limit` bytes.

    `compile_bytes` compiles a batch size and returns its bytes on one device; `known` has the bytes of two sizes.
    Memory is approximately affine in the batch size, so a line through the two known sizes gives the size to compile.
    Then the line through the two sizes nearest to the limit gives the next size. The search ends when the last size
    fits and this line gives no far larger size. The result is always a compiled size; at most `compilations` new sizes
    are compiled.
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
    """Extrapolate the largest multiple of `step` that fits, by a line through the two sizes nearest to the limit.

    `tried` maps batch sizes to bytes. The result is at least the largest size known to fit, and below the smallest size
    known not to fit. If the line leaves this interval, a line through its two ends replaces it. (T5-large needs the
    same memory at batch 32 and 64 to 0.5 %, because the optimizer update dominates.)
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
    """Return the batch size at which the line through two sizes reaches the limit."""
    slope = max((tried[second] - tried[first]) / (second - first), 1.0)
    return int(first + (limit - tried[first]) / slope)
