"""The TPU compiler's time estimate of a program, by part of the model, from its optimized HLO.

libtpu writes `estimated_cycles` beside the instructions that it schedules, even without a chip. A run takes their sum
over unfused instructions and executions: a deterministic model, no measurement; only fused instructions overlap.
Instructions without an estimate count as 0, mainly asynchronous copies that prefetch weights. They may bound a loop
that does little else, such as the beam search, so a loop takes at least its bytes to and from HBM divided by the chip's
bandwidth.
"""

import dataclasses
import functools
import itertools
import math
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence

from eeg2text_jax.base.chips import hlo_text
from eeg2text_jax.base.chips.hlo_text import ARRAY, COLLECTIVES, NOTHING, Instruction, Module, array_bytes, parse_module

ASYNCHRONOUS = ("copy-start", "slice-start")
WAITING = "waiting for memory"
UNCOUNTED = {"rng": "random bits", "topk": "TopK", "sort": "sorts"}  # in the name of a kind -> what it computes


@dataclasses.dataclass(frozen=True)
class Cost:
    name: str
    shape: str
    op_name: str
    part: str  # part of the model, such as "decoder"
    times: int  # executions in one run
    milliseconds: float  # of all executions


@dataclasses.dataclass(frozen=True)
class Missing:
    """Instructions of one kind without an estimate."""

    instructions: int = 0
    executions: int = 0
    bytes: int = 0  # written in all

    def __add__(self, other: "Missing") -> "Missing":
        return Missing(*map(sum, zip(dataclasses.astuple(self), dataclasses.astuple(other), strict=True)))


@dataclasses.dataclass(frozen=True)
class Estimate:
    """The compiler's estimate of one run of a program on one chip."""

    costs: tuple[Cost, ...]  # the most expensive first
    missing: dict[str, Missing]  # instructions without an estimate by kind, most bytes first
    executions: int  # executions of all instructions, with or without an estimate
    turns: tuple["Estimate", ...] = ()  # of one iteration of each loop of unknown trip count
    moved: int = 0  # bytes to and from HBM, with the padding to tiles
    waiting: float = 0.0  # milliseconds by which the memory traffic of loops exceeds their estimate

    @property
    def milliseconds(self) -> float:
        """The compiler's estimate alone."""
        return sum(cost.milliseconds for cost in self.costs)

    @property
    def bound(self) -> float:
        """Milliseconds in which each loop takes the larger of its estimate and its memory traffic."""
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
        counts: dict[str, Missing] = {}
        for kind, count in self.missing.items():
            if name := next((name for part, name in UNCOUNTED.items() if part in kind.lower()), None):
                counts[name] = counts.get(name, Missing()) + count
        return counts

    @property
    def asynchronous_bytes(self) -> int:
        """Bytes that asynchronous copies without an estimate move between a chip's memories."""
        return sum(self.missing[kind].bytes for kind in ASYNCHRONOUS if kind in self.missing)


# Memory traffic, padded to the chip's tiles. The layout of an array states its memory: `S(1)` is the memory near the
# cores (VMEM), a layout without `S` is HBM. So an asynchronous copy from HBM to VMEM counts once, a copy within HBM
# twice. Of a sliced operand the slice counts; of one updated in place the tiles of the update, as read and as written.

_TILE = re.compile(r"T\(([\d,]+)\)")
_SLICES = ("dynamic-slice", "slice", "gather")
_PASSES = ("bitcast", "copy", "get-tuple-element")
_STILL = re.compile(f"{NOTHING}|while|conditional|call|iota")  # instructions without memory traffic of their own


def hbm_bytes(module: Module, computation: str, line: Instruction) -> int:
    """Return the bytes that one execution of an instruction moves from and to HBM."""
    if _STILL.fullmatch(line.op) or 'custom_call_target="ConcatBitcast"' in line.attributes:
        return 0
    by_name = module.by_name[computation]
    operands = [by_name[name].shape if name in by_name else "" for name in line.operands]
    if line.op == "copy-start":  # its shape is (result, operand, context)
        return _sum(line.shape)
    if line.op == "slice-start":  # its shape is ((operand), result, context)
        result = list(ARRAY.finditer(line.shape))[1]
        return _starts_in_hbm(operands[0]) * _padded(result) + _hbm(result)
    if line.op == "dynamic-update-slice":
        return _updated(line, by_name)
    if line.op in _SLICES:
        return _starts_in_hbm(operands[0]) * _all(line.shape) + _sum(line.shape)
    if line.op == "fusion":
        return _fusion_bytes(module, line, operands)
    return _sum(line.shape) + sum(map(_sum, operands))


def _fusion_bytes(module: Module, fusion: Instruction, operands: list[str]) -> int:
    (called,) = fusion.called["calls"]
    by_name, root, moved = module.by_name[called], module.root(called), 0
    for line in module.computations[called]:
        if line.op == "parameter" and (size := _sum(operands[int(line.arguments)])):
            moved += min(size, _read(module, called, line.name, size))
    made = [by_name[name] for name in root.operands] if root.op == "tuple" else [root]
    results = list(ARRAY.finditer(fusion.shape))
    for line, result in zip(made, results, strict=False):
        while line.op in _PASSES and line.operands[0] in by_name:
            line = by_name[line.operands[0]]
        if _hbm(result):
            moved += _updated(line, by_name) if line.op == "dynamic-update-slice" else _hbm(result)
    return moved


def _read(module: Module, computation: str, name: str, size: int) -> int:
    """Return the bytes that a fused computation reads of its value `name`: of slices, or `size`."""
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


def _updated(line: Instruction, by_name: dict[str, Instruction]) -> int:
    """Return the bytes of an in-place update: the tiles of the target under the update, read and written."""
    update, target = by_name[line.operands[1]], ARRAY.search(line.shape)
    return 0 if _is_near(target) else 2 * _padded(target, ARRAY.search(update.shape)["shape"])


def _is_near(array: re.Match[str]) -> bool:
    """Return whether an array is near the cores (VMEM) instead of in HBM."""
    return "S(" in (array["tiles"] or "")


def _starts_in_hbm(shape: str) -> bool:
    array = ARRAY.search(shape)
    return array is not None and not _is_near(array)


def _sum(shape: str) -> int:
    """Return the bytes of all arrays of a shape that are in HBM."""
    return sum(map(_hbm, ARRAY.finditer(shape)))


def _hbm(array: re.Match[str]) -> int:
    return 0 if _is_near(array) else _padded(array)


def _all(shape: str) -> int:
    return sum(map(_padded, ARRAY.finditer(shape)))


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


# `jax.named_scope` names of the model and the training step (and the function `jit(search)`) -> part of the model. The
# innermost scope counts; a fusion of several parts belongs to the part in its metadata.
SCOPES = {"eeg_encoder": "EEG encoder", "head_loss": "head and loss"}
SCOPES |= {name: name for name in ("embeddings", "encoder", "decoder", "optimizer", "search")}
COPIES, FILLS, COMMUNICATION, OTHER = "copies and layout changes", "buffers filled", "communication", "other"

_SCOPE = re.compile(rf"(?<![\w.])(?<!jit\()({'|'.join(SCOPES)})(?![\w.])")
_CYCLES = re.compile(r'"estimated_cycles":"?(\d+)')
_MICROSECONDS = re.compile(r'"estimated_microseconds":"?(\d+(?:\.\d+)?)')
_TARGET = re.compile(r'custom_call_target="([^"]*)"')
_COLLECTIVE = re.compile(rf"({COLLECTIVES}|send|recv)(-start|-done)?")
_MOVES = re.compile(
    r"copy(-start|-done)?|slice(-start|-done)?|dynamic-slice|dynamic-update-slice|transpose|reshape|bitcast"
    r"|bitcast-convert|concatenate|pad|broadcast|reverse"
)
_NOTHING = re.compile(NOTHING)
_NO_WORK = frozenset({"AllocateBuffer", "ConcatBitcast", "X64Combine", "AsyncCollectiveDone"})


class UnknownLoop(ValueError):
    """The trip count of a loop is not in the program, so the program has no estimate."""


def estimate(hlo: str, hertz: float, unknown_loops: Sequence[int] = (), bandwidth: float = 0.0) -> Estimate:
    """Return the TPU compiler's estimate of `compiled.as_text()`; of a conditional the dearest branch counts.

    `hertz` is the clock rate, `bandwidth` the memory bandwidth in bytes per second (0: traffic is ignored).
    `unknown_loops` has the trip counts that the program does not state, in its order. Raises UnknownLoop if one is
    missing, or too many are given.
    """
    return Walk(parse_module(hlo), hertz, unknown_loops, bandwidth=bandwidth).whole()[1]


def parts_of(hlo: str) -> dict[str, str]:
    """Return executed instruction -> part of the model (a value of `SCOPES`, `COPIES`, ...), of any compiler's HLO.

    Loops, calls and branches are left out, the instructions inside them are not.
    """
    module = parse_module(hlo)
    loops = sum(line.op == "while" for _, line in module.lines())
    executed = Walk(module, 1.0, [1] * loops, every_branch=True).computation(module.entry, 1, OTHER)
    return {one.instruction.name: one.part for one in executed}


@dataclasses.dataclass(frozen=True)
class _Executed:
    """An executed instruction, or the time that a loop waits for memory."""

    instruction: Instruction | None  # None: waiting for memory
    part: str  # of the model
    times: int  # executions in one run
    milliseconds: float | None  # of one execution; None without an estimate
    moved: int = 0  # bytes to and from HBM of one execution


class Walk:
    """A walk over all executed instructions; loops are multiplied by their trip counts."""

    def __init__(
        self, module: Module, hertz: float, unknown: Sequence[int], every_branch: bool = False, bandwidth: float = 0.0
    ):
        self.module, self._hertz, self._unknown, self._every_branch = module, hertz, list(unknown), every_branch
        self._bandwidth = bandwidth
        self._turns: list[Estimate] = []  # of one iteration of each loop of unknown trip count
        self.loops: list[int] = []  # trip counts of all loops, in the order of the walk

    def whole(self) -> tuple[list[_Executed], Estimate]:
        """Return all executed instructions, and the estimate of a run; raise UnknownLoop as `estimate`."""
        n_turns = len(self._unknown)
        executed = self.computation(self.module.entry, 1, OTHER)
        if self._unknown:
            raise UnknownLoop(f"{n_turns} trip counts were given, {len(self._unknown)} more than there are loops")
        return executed, self.total(executed, tuple(self._turns))

    def computation(self, name: str, times: int, part: str) -> list[_Executed]:
        """Return the instructions that `times` runs of a computation execute; `part`: its part of the model."""
        executed: list[_Executed] = []
        for line in self.module.computations[name]:
            scope = self._scope(name, line) or part
            if line.op == "while":
                executed += self._loop(name, line, times, scope)
            elif line.op in ("conditional", "call", "async-start"):
                inside = [self.computation(called, times, scope) for called in itertools.chain(*line.called.values())]
                if line.op == "conditional" and not self._every_branch:
                    inside = [max(inside, key=lambda branch: self.total(branch).milliseconds)]
                executed += itertools.chain(*inside)
            elif not _NOTHING.fullmatch(line.op) and _target(line) not in _NO_WORK:
                moved = hbm_bytes(self.module, name, line) if self._bandwidth else 0
                executed.append(_Executed(line, self._kind(line) or scope, times, self.milliseconds(line), moved))
        return executed

    def total(self, executed: Iterable[_Executed], turns: tuple[Estimate, ...] = ()) -> Estimate:
        """Sum instructions to an estimate."""
        missing: dict[str, Missing] = defaultdict(Missing)
        costs, executions, moved, waiting = [], 0, 0, 0.0
        for one in executed:
            line = one.instruction
            if line is None:
                waiting += one.milliseconds * one.times
                continue
            executions += one.times
            moved += one.moved * one.times
            if one.milliseconds is None:
                missing[self._label(line)] += Missing(1, one.times, _written(line) * one.times)
            else:
                spent = one.milliseconds * one.times
                costs.append(Cost(line.name, line.shape, line.op_name, one.part, one.times, spent))
        dearest = tuple(sorted(costs, key=lambda cost: -cost.milliseconds))
        largest = dict(sorted(missing.items(), key=lambda kind: -kind[1].bytes))
        return Estimate(dearest, largest, executions, turns, moved, waiting)

    def _loop(self, name: str, loop: Instruction, times: int, part: str) -> list[_Executed]:
        inside = *loop.called["condition"], *loop.called["body"]
        turns = hlo_text.loop_length(self.module, name, loop)
        if turns is None:
            if not self._unknown:
                name = f"%{loop.name} ({loop.op_name or 'without a name'})"
                raise UnknownLoop(f"the trip count of the loop {name} is not in the program")
            turns, before = self._unknown.pop(0), len(self.loops)
            one = [line for called in inside for line in self.computation(called, 1, part)]
            del self.loops[before:]  # loops inside are met once more below
            self._turns.append(self.total(one + self._waiting(one, 1, part)))
        self.loops.append(turns)
        executed = [line for called in inside for line in self.computation(called, times * turns, part)]
        return executed + self._waiting(executed, times * turns, part)

    def _waiting(self, executed: list[_Executed], turns: int, part: str) -> list[_Executed]:
        """Return the time by which a loop's memory traffic exceeds its estimate: one entry, executed `turns` times."""
        if not self._bandwidth or not turns:
            return []
        total = self.total(executed)
        rest = 1e3 * total.moved / self._bandwidth - total.bound
        return [_Executed(None, part, turns, rest / turns)] if rest > 0 else []

    def milliseconds(self, line: Instruction) -> float | None:
        if (cycles := _CYCLES.search(line.attributes)) and int(cycles[1]):
            return 1e3 * int(cycles[1]) / self._hertz
        if (spent := _MICROSECONDS.search(line.attributes)) and float(spent[1]):
            return float(spent[1]) / 1e3
        return None

    def _scope(self, computation: str, line: Instruction) -> str | None:
        """Return the part of the innermost scope, or of the first user if the compiler added `line`."""
        seen = set()
        while line.name not in seen:
            seen.add(line.name)
            if names := _SCOPE.findall(line.op_name):
                return SCOPES[names[-1]]
            user = self.module.first_user[computation].get(line.name)
            if line.op_name or user is None:
                return None
            line = user
        return None

    def _kind(self, line: Instruction) -> str | None:
        """Return `COMMUNICATION`, `COPIES` or `FILLS` for an instruction that does nothing else; None for others."""
        lines = [part for part in self._within(line) if not _NOTHING.fullmatch(part.op)]
        alone = line.op != "fusion" or self.milliseconds(line) is None  # a fusion with a time estimate also computes
        if alone and any(_COLLECTIVE.fullmatch(part.op) for part in lines):
            return COMMUNICATION
        moving = [part for part in lines if _MOVES.fullmatch(part.op)]
        others = (part.arrays for part in lines if not _MOVES.fullmatch(part.op))
        if not moving or any(items > 1 for arrays in others for _, items in arrays):
            return None
        filled = all(part.op == "broadcast" and "dimensions={}" in part.attributes for part in moving)
        return FILLS if filled else COPIES

    def _within(self, line: Instruction) -> list[Instruction]:
        if line.op != "fusion":
            return [line]
        parts = (part for called in line.called.get("calls", ()) for part in self.module.computations[called])
        return [inner for part in parts for inner in self._within(part)]

    def _label(self, line: Instruction) -> str:
        """Return the kind of an instruction, a key of `Estimate.missing`."""
        if line.op == "fusion":
            names = {part.op for part in self._within(line)}
            telling = ("rng-bit-generator", "gather", "scatter", "sort", "custom-call")
            return next((f"fusion with {op}" for op in telling if op in names), "fusion")
        return f"custom-call {_target(line)}" if line.op == "custom-call" else line.op


def _written(line: Instruction) -> int:
    """Return the bytes that an instruction writes; an asynchronous start's result also holds its operand."""
    if line.op == "slice-start":
        return array_bytes(*line.arrays[1])
    return line.bytes(largest_only=line.op.endswith("-start"))


def _target(line: Instruction) -> str:
    match = _TARGET.search(line.attributes)
    return match[1] if match else ""
