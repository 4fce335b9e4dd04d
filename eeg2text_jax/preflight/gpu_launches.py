"""Launches of a GPU program by the host: one launch executes a command buffer (CUDA graph) of many kernels.

XLA gathers neighboring kernels into command buffers after its last HLO pass, so the optimized HLO does not show them.
The option `xla_dump_to` writes the runtime's final plan, a line for each step ("thunk"), indented inside of command
buffers, loops and branches:

    000: kCommandBuffer [source | next=002 (1)]
        001: kCustomKernel [source | sink] loop_add_fusion grid: [1, 1, 1] ...
    002: kWhile [prev=000 (1) | sink]
    condition:
        003: kCustomKernel ...
      body:
        004: kCopy ...
"""

import dataclasses
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

PLAN = "*thunk_sequence_after_thunk_passes.txt"  # name of the dumped file
_STEP = re.compile(r"(?P<indent> *)\d+: k(?P<kind>\w+) ")
# Steps that contain others and are no launch themselves.
_CONTAINERS = ("While", "Sequential", "Conditional")


@dataclasses.dataclass(frozen=True)
class Launches:
    """Launches of one run of a program."""

    host: int  # by the host: kernels and copies outside of command buffers, and command buffers
    buffers: int  # of these, command buffers
    buffered: int  # kernels and copies inside of command buffers


def launches(plan: str, turns: Sequence[int]) -> Launches:
    """Count the launches of one run in XLA's plan; `turns[i]` is the number of iterations of its i-th loop.

    All branches of a conditional are counted, and every loop condition once per iteration, even if the runtime skips
    the condition. So the count is an upper bound. Raises ValueError if `turns` does not have one entry for each loop.
    """
    host, buffers, buffered = 0, 0, 0
    for kind, times, inside in _executed(plan, list(turns)):
        if inside:
            buffered += times
        else:
            host += times
            buffers += times * (kind == "CommandBuffer")
    return Launches(host, buffers, buffered)


def _executed(plan: str, turns: list[int]) -> Iterator[tuple[str, int, bool]]:
    """Yield each launch as (kind, executions, whether it is inside of a command buffer)."""
    around: list[tuple[int, str, int]] = []  # (indentation, kind, executions of the content) of enclosing steps
    for line in plan.splitlines():
        found = _STEP.match(line)
        if found is None:
            continue
        indent, kind = len(found["indent"]), found["kind"]
        while around and around[-1][0] >= indent:
            around.pop()
        times = around[-1][2] if around else 1
        inside = any(kind == "CommandBuffer" for _, kind, _ in around)
        whole = any(kind not in (*_CONTAINERS, "CommandBuffer") for _, kind, _ in around)
        if kind == "While":
            if not turns:
                raise ValueError("the plan has more loops than the program")
            around.append((indent, kind, times * turns.pop(0)))
            continue
        around.append((indent, kind, times))
        if kind not in _CONTAINERS and not whole:  # a fusion with a slice has its copy as a step inside
            yield kind, times, inside
    if turns:
        raise ValueError(f"the plan has {len(turns)} loops fewer than the program")


def read_plan(dump: Path) -> str:
    """Return the plan of the program that was compiled last in a dump folder; "" without one."""
    found = sorted(dump.glob(PLAN), key=lambda path: path.stat().st_mtime_ns)
    return found[-1].read_text() if found else ""
