"""The time estimate of a compiled program: by instruction, by part of the model, and its memory traffic."""

import dataclasses
import functools
from collections import defaultdict

ASYNCHRONOUS = ("copy-start", "slice-start")
WAITING = "waiting for memory"
UNCOUNTED = {"rng": "random bits", "topk": "TopK", "sort": "sorts"}  # in the name of a kind -> what it computes


@dataclasses.dataclass(frozen=True)
class Cost:
    """The estimated time of an instruction."""

    name: str
    shape: str
    op_name: str
    part: str  # part of the model, such as "decoder"
    times: int  # executions in one run
    milliseconds: float  # of all executions


@dataclasses.dataclass(frozen=True)
class Missing:
    """Instructions of one kind without an estimate: their number, executions, and total bytes written."""

    instructions: int
    executions: int
    bytes: int


@dataclasses.dataclass(frozen=True)
class Estimate:
    """The compiler's estimate of one run of a program on one chip."""

    costs: tuple[Cost, ...]  # instructions by cost, the most expensive first
    missing: dict[str, Missing]  # instructions without an estimate by kind, most bytes first
    executions: int  # executions of all instructions, with or without an estimate
    turns: tuple["Estimate", ...] = ()  # of one iteration of each loop of unknown trip count
    moved: int = 0  # bytes to and from HBM, with the padding to tiles
    waiting: float = 0.0  # milliseconds by which the memory traffic of loops exceeds their estimate

    @property
    def milliseconds(self) -> float:
        """Milliseconds of one run by the compiler's estimate alone."""
        return sum(cost.milliseconds for cost in self.costs)

    @property
    def bound(self) -> float:
        """Milliseconds of one run in which each loop takes the larger of its estimate and its memory traffic."""
        return self.milliseconds + self.waiting

    @functools.cached_property
    def parts(self) -> dict[str, float]:
        """Milliseconds by part of the model, largest first; `WAITING` is the time in `waiting`."""
        parts: dict[str, float] = defaultdict(float)
        for cost in self.costs:
            parts[cost.part] += cost.milliseconds
        if self.waiting:
            parts[WAITING] = self.waiting
        return dict(sorted(parts.items(), key=lambda item: -item[1]))

    @property
    def missing_instructions(self) -> int:
        return sum(kind.instructions for kind in self.missing.values())

    @property
    def missing_executions(self) -> float:
        """Share of the executions that have no estimate."""
        return sum(kind.executions for kind in self.missing.values()) / max(self.executions, 1)

    @property
    def uncounted(self) -> dict[str, Missing]:
        """Work without an estimate that is no copy (random bits, TopK, sorts), by what it computes."""
        found: dict[str, Missing] = {}
        for kind, count in self.missing.items():
            if name := next((name for part, name in UNCOUNTED.items() if part in kind.lower()), None):
                before = found.get(name, Missing(0, 0, 0))
                numbers = zip(dataclasses.astuple(before), dataclasses.astuple(count), strict=True)
                found[name] = Missing(*map(sum, numbers))
        return found

    @property
    def asynchronous_bytes(self) -> int:
        """Bytes that asynchronous copies without an estimate move between a chip's memories."""
        return sum(self.missing[kind].bytes for kind in ASYNCHRONOUS if kind in self.missing)
