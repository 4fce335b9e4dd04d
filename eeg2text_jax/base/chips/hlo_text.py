"""Parse the text of an optimized HLO module into computations and instructions, and find loop trip counts."""

import dataclasses
import functools
import itertools
import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from jax.sharding import Mesh

_HEAD = re.compile(r"^(?P<entry>ENTRY )?%?(?P<name>[\w.-]+) .*\{$")
_NAME = re.compile(r"(?P<root>ROOT )?%?(?P<name>[\w.-]+) = ")
_PARENTHESIS = re.compile(r"[()]")
_REFERENCE = re.compile(r"%([\w.-]+)")
_CALLED = re.compile(
    r"(?P<role>body|condition|calls|to_apply|branch_computations|true_computation|false_computation)="
    r"\{?(?P<names>%[\w.-]+(?:, ?%[\w.-]+)*)"
)
_OP_NAME = re.compile(r'op_name="([^"]*)"')
_TRIPS = re.compile(r'"known_trip_count":\{"n":"(\d+)"\}')
_INDEX = re.compile(r"\bindex=(\d+)")
_NUMBER = re.compile(r"-?\d+")
ARRAY = re.compile(r"(?P<type>[a-z]+\d*\w*)\[(?P<shape>[\d,]*)\](?:\{(?P<layout>[\d,]*)(?::(?P<tiles>[^{}]*))?\})?")
# Instructions without a cost of their own; a `-done` is counted with its `-start`.
NOTHING = (
    "parameter|constant|tuple|get-tuple-element|bitcast|after-all|partition-id|replica-id|opt-barrier|domain"
    "|add-dependency|async-update|[a-z-]+-done"
)
COLLECTIVES = (
    "all-reduce|all-gather|reduce-scatter|all-to-all|ragged-all-to-all|collective-permute|collective-broadcast"
)
_BITS = {"pred": 8, "s4": 4, "u4": 4, "bf16": 16}


@dataclasses.dataclass(frozen=True)
class Instruction:
    """One line of an HLO computation."""

    name: str  # without the percent sign
    shape: str  # shape of the result, an array or a tuple, with layouts
    op: str  # `fusion`, `while`, `all-reduce`, ...
    operands: tuple[str, ...]  # names of instructions of the same computation
    arguments: str  # the text in the parentheses after `op`
    attributes: str  # the text after the parentheses
    text: str  # the beginning of the line, for messages
    root: bool  # whether the computation returns the result of this instruction

    @functools.cached_property
    def called(self) -> dict[str, tuple[str, ...]]:
        """Called computations by role: `body`, `condition`, `calls`, `to_apply`, ..."""
        calls = _CALLED.finditer(self.attributes)
        return {call["role"]: tuple(_REFERENCE.findall(call["names"])) for call in calls}

    @property
    def op_name(self) -> str:
        """Path of named scopes such as `jit(step)/encoder/dot` (in a fusion, of one instruction); "" if unknown."""
        match = _OP_NAME.search(self.attributes)
        return match[1] if match else ""

    @property
    def arrays(self) -> list[tuple[str, int]]:
        """(dtype, number of elements) of the result, or of each element of a tuple."""
        found = ARRAY.finditer(self.shape)
        return [(one["type"], math.prod(int(length or 1) for length in one["shape"].split(","))) for one in found]

    def bytes(self, *, largest_only: bool = False) -> int:
        """Return the bytes of the result, or of its largest array: asynchronous starts also return operands."""
        sizes = [array_bytes(*array) for array in self.arrays]
        return max(sizes, default=0) if largest_only else sum(sizes)


@dataclasses.dataclass(frozen=True)
class Module:
    computations: dict[str, tuple[Instruction, ...]]  # name -> instructions
    entry: str  # name of the computation that the program begins with

    @functools.cached_property
    def by_name(self) -> dict[str, dict[str, Instruction]]:
        """Computation -> name of the instruction -> instruction."""
        return {name: {line.name: line for line in lines} for name, lines in self.computations.items()}

    @functools.cached_property
    def first_user(self) -> dict[str, dict[str, Instruction]]:
        """Computation -> name of a value -> the first instruction that uses it."""
        return {
            name: {operand: line for line in reversed(lines) for operand in line.operands}
            for name, lines in self.computations.items()
        }

    def lines(self) -> Iterator[tuple[str, Instruction]]:
        return ((name, line) for name, lines in self.computations.items() for line in lines)

    def root(self, computation: str) -> Instruction:
        return next(line for line in self.computations[computation] if line.root)


def parse_module(hlo: str) -> Module:
    computations: dict[str, list[Instruction]] = {}
    name = entry = ""
    for line in hlo.splitlines():
        if head := _HEAD.match(line):
            name = head["name"]
            computations[name] = []
            entry = name if head["entry"] else entry
        elif line.startswith(" ") and (instruction := parse_instruction(line.strip())):
            computations.setdefault(name, []).append(instruction)
    return Module({name: tuple(lines) for name, lines in computations.items()}, entry or name)


def parse_instruction(line: str) -> Instruction | None:
    """Parse a line `[ROOT] %name = shape op(arguments), attributes`; return None for other lines."""
    head = _NAME.match(line)
    if head is None:
        return None
    begin = head.end()
    end = _closing(line, begin) + 1 if line.startswith("(", begin) else line.find(" ", begin)
    opened = line.find("(", end)
    if end <= 0 or opened < 0:
        return None
    closed = _closing(line, opened)
    arguments, shape, op = line[opened + 1 : closed], line[begin:end], line[end:opened].strip()
    references = tuple(_REFERENCE.findall(arguments))
    return Instruction(
        head["name"], shape, op, references, arguments, line[closed + 1 :], line[:300], head["root"] is not None
    )


def array_bytes(dtype: str, items: int) -> int:
    """Return the bytes of an array of `items` elements, without the padding to a chip's tiles."""
    digits = re.search(r"\d+", dtype)
    return items * (_BITS.get(dtype) or int(digits.group() if digits else 8)) // 8


def loop_length(module: Module, computation: str, loop: Instruction) -> int | None:
    """Return the trip count of a `while` instruction in `computation`; None if the text does not determine it.

    The TPU compiler writes no `known_trip_count`. Then the condition must compare a counter with a constant, the
    counter start at a constant, and the body add a constant.
    """
    if trips := _TRIPS.search(loop.attributes):
        return int(trips[1])
    (condition,), (body,) = loop.called["condition"], loop.called["body"]
    compared, by_name = module.root(condition), module.by_name[condition]
    if compared.op != "compare" or "direction=LT" not in compared.attributes:
        return None
    place, limit = _place(by_name, compared.operands[0]), _constant(by_name, compared.operands[1])
    if place is None or limit is None:
        return None
    around = module.by_name[computation]
    start = _constant(around, _part(around, loop.operands[0], place))
    step = _step(module.by_name[body], module.root(body).name, place)
    return None if start is None or not step else max(-(-(limit - start) // step), 0)


_Lines = Mapping[str, Instruction]  # of one computation, by name


def _step(body: _Lines, root: str, place: int) -> int | None:
    """Return the constant that a loop body adds to element `place` of its tuple `root`, else None."""
    added = _origin(body, _part(body, root, place))
    if added is not None and added.op == "add":
        for counter, other in (added.operands, added.operands[::-1]):
            if _place(body, counter) == place:
                return _constant(body, other)
    return None


def _origin(lines: _Lines, name: str | None) -> Instruction | None:
    """Return the instruction that computes a value, None if unknown; copies are followed to their operand."""
    line = lines.get(name)
    while line is not None and line.op in ("copy", "bitcast", "copy-done", "copy-start"):
        line = lines.get(line.operands[0])
    return line


def _part(lines: _Lines, name: str, place: int) -> str | None:
    """Return the name of element `place` of a tuple; None if `name` is no tuple instruction."""
    made = _origin(lines, name)
    return made.operands[place] if made is not None and made.op == "tuple" else None


def _place(lines: _Lines, name: str) -> int | None:
    """Return the index of a value in the tuple that is the computation's parameter; None for other values."""
    taken = _origin(lines, name)
    if taken is None or taken.op != "get-tuple-element":
        return None
    whole = _origin(lines, taken.operands[0])
    return int(_INDEX.search(taken.attributes)[1]) if whole is not None and whole.op == "parameter" else None


def _constant(lines: _Lines, name: str | None) -> int | None:
    made = _origin(lines, name)
    is_number = made is not None and made.op == "constant" and _NUMBER.fullmatch(made.arguments)
    return int(made.arguments) if is_number else None


def _closing(line: str, opened: int) -> int:
    depth = 0
    for bracket in _PARENTHESIS.finditer(line, opened):
        depth += 1 if bracket.group() == "(" else -1
        if not depth:
            return bracket.start()
    return len(line)


_COLLECTIVE = re.compile(rf"(?P<op>{COLLECTIVES})(?P<start>-start)?")
_GROUPS = re.compile(
    r"replica_groups=(mesh\[.*?\](?:, device_ids=\S+)? \{.*?\}"
    r"|\[[\d,]+\]<=\[[\d,]+\](?:T\([\d,]+\))?|\{(?:\{[\d,]*\},?)*\})"
)
_CHANNEL = re.compile(r"channel_id=(\d+)")
_PAIRS = re.compile(r"source_target_pairs=\{((?:\{\d+,\d+\},?)*)\}")


@dataclasses.dataclass(frozen=True)
class Collective:
    op: str  # `all-reduce`, `all-gather`, ...
    axes: tuple[str, ...]  # mesh axes across which devices communicate; empty if every group is one device
    bytes: int  # of the result on one device, per execution
    times: int  # executions in one run; a loop of unknown length counts as one turn
    received: float  # bytes that a device receives per execution in a ring
    asynchronous: bool  # whether the compiler lets it run beside computation


def collectives(hlo: str, mesh: Mesh) -> list[Collective]:
    """Return the collectives of a program compiled for `mesh`, from `compiled.as_text()`.

    The TPU compiler splits an asynchronous collective over the fusions that overlap with it; of parts that share a
    channel the largest counts. Raises ValueError for replica groups in an unknown notation.
    """
    module = parse_module(hlo)
    times = _executions(module)
    largest: dict[str | int, Collective] = {}
    for computation, line in module.lines():
        collective = _COLLECTIVE.fullmatch(line.op)
        if collective is None:
            if "replica_groups=" in line.attributes or "source_target_pairs=" in line.attributes:
                raise ValueError(f"the instruction has groups of devices, but is no known collective: {line.text}")
            continue
        op, groups, starts = collective["op"], _device_groups(line, mesh.size), bool(collective["start"])
        # An asynchronous start (except of all-reduce) returns a tuple that also has the operands.
        size = line.bytes(largest_only=starts and op != "all-reduce")
        channel, overlapped = _CHANNEL.search(line.attributes), "chain_id=" in line.attributes
        scattered = computation.startswith("all-reduce-scatter")  # libtpu's name of a fusion that keeps a device's part
        received = _received("all-reduce-scatter" if scattered else op, size, max(map(len, groups)))
        axes, count = _axes_of(groups, mesh), times.get(computation, 1)
        one = Collective(op, axes, size, count, received, asynchronous=starts or overlapped)
        name = channel[1] if channel and overlapped else len(largest)
        if name not in largest or one.bytes * one.times > largest[name].bytes * largest[name].times:
            largest[name] = one
    return list(largest.values())


def _received(op: str, size: int, n: int) -> float:
    """Return the bytes that each of `n` devices of a ring receives, if the collective's result has `size` bytes.

    An all-reduce is a reduce-scatter and an all-gather, each of `(n - 1) / n` of the array. The result of a
    reduce-scatter is a device's part; libtpu writes it as an all-reduce of which a device keeps its part.
    """
    if op == "reduce-scatter":
        return size * (n - 1)
    if op.startswith("collective"):
        return size
    return size * (n - 1) / n * (2 if op == "all-reduce" else 1)


def bytes_by_axis(collectives: Sequence[Collective]) -> dict[str, int]:
    """Return the bytes of the results on one device in one run, by mesh axis, or by several as `axis+axis`."""
    total: Counter[str] = Counter()
    for collective in collectives:
        if collective.axes:
            total["+".join(collective.axes)] += collective.bytes * collective.times
    return dict(total)


def replica_groups(text: str, n_devices: int) -> list[list[int]]:
    """Parse replica groups from any of XLA's notations.

    `{{0,1},{2,3}}` lists groups, `{}` is one group of all devices; `[2,4]<=[8]` and `[4,2]<=[2,4]T(1,0)` reshape and
    transpose a range; `mesh['a'=2,'b'=4] {'b'}` names mesh axes, or parts of an axis as `'b':(1)2`;
    `device_ids=([4,2]T(1,0))` after the mesh gives its device order. Raises ValueError if the notation is unknown.
    """
    if text == "{}":
        return [list(range(n_devices))]
    if text.startswith("{{"):
        return [_numbers(group) for group in re.findall(r"\{([\d,]+)\}", text)]
    if iota := re.fullmatch(r"\[([\d,]+)\]<=(.*)", text):
        return _device_order(iota[2]).reshape(_numbers(iota[1])).tolist()
    if named := re.fullmatch(r"mesh\[(.*?)\](?:, device_ids=\((.*)\))? \{(.*?)\}", text):
        mesh, devices, axes = named.groups()
        places = _mesh_groups(mesh, axes)
        return (places if devices is None else _device_order(devices)[places]).tolist()
    raise ValueError(f"replica groups in an unknown notation: {text[:200]}")


def _mesh_groups(mesh: str, axes: str) -> np.ndarray:
    """Return the groups of positions in a mesh `'a'=2,'b'=4` along the axes `'b'`, or parts of axes `'b':(1)2`."""
    lengths = {name: int(length) for name, length in re.findall(r"'(\w+)'=(\d+)", mesh)}
    # The part 'b':(p)s of an axis of length n is the axis of length s after a reshape of n to (p, s, n / (p s)).
    factors = {name: [(length, False)] for name, length in lengths.items()}
    for name, before, size in re.findall(r"'(\w+)'(?::\((\d+)\)(\d+))?", axes):
        p, s = int(before or 1), int(size or lengths[name])
        factors[name] = [(p, False), (s, True), (lengths[name] // (p * s), False)]
    shape, inside = zip(*(factor for name in lengths for factor in factors[name]), strict=True)
    order = np.argsort(inside, kind="stable")  # the axes of the groups last
    return np.arange(np.prod(shape)).reshape(shape).transpose(order).reshape(-1, np.prod(shape, where=inside))


def _device_order(text: str) -> np.ndarray:
    """Parse an order of devices: a transposed range as `[2,4]T(1,0)`, or a list `0,4,1,5`."""
    if iota := re.fullmatch(r"\[([\d,]+)\](?:T\(([\d,]+)\))?", text):
        dims, order = _numbers(iota[1]), _numbers(iota[2]) if iota[2] else None
        return np.arange(np.prod(dims)).reshape(dims).transpose(order).ravel()
    if re.fullmatch(r"[\d,]+", text):
        return np.array(_numbers(text))
    raise ValueError(f"device order in an unknown notation: {text[:200]}")


def _numbers(text: str) -> list[int]:
    return [int(number) for number in text.split(",")]


def _device_groups(line: Instruction, n_devices: int) -> list[list[int]]:
    if pairs := _PAIRS.search(line.attributes):
        return [_numbers(pair) for pair in re.findall(r"\{([\d,]+)\}", pairs[1])]
    if groups := _GROUPS.search(line.attributes):
        return replica_groups(groups[1], n_devices)
    raise ValueError(f"the collective has no groups of devices in a known notation: {line.text}")


def _axes_of(groups: list[list[int]], mesh: Mesh) -> tuple[str, ...]:
    """Return the mesh axes along which devices of one group differ; devices are numbered in row-major order."""
    places = [np.unravel_index(group, mesh.devices.shape) for group in groups]  # of each group: for each axis, places
    names = enumerate(mesh.axis_names)
    return tuple(name for axis, name in names if any(len(set(place[axis])) > 1 for place in places))


def _executions(module: Module) -> dict[str, int]:
    callers: dict[str, list[tuple[str, int]]] = defaultdict(list)
    for computation, line in module.lines():
        turns = (loop_length(module, computation, line) or 1) if line.op == "while" else 1
        for name in itertools.chain(*line.called.values()):
            callers[name].append((computation, turns))

    @functools.cache
    def count(name: str) -> int:
        return sum(count(caller) * turns for caller, turns in callers[name]) if name in callers else 1

    return {name: count(name) for name in list(callers)}
