"""What a compiled program communicates: its collectives, by mesh axis and bytes, read from the optimized HLO."""

import dataclasses
import re
from collections import defaultdict
from collections.abc import Sequence

import numpy as np
from jax.sharding import Mesh

_OPS = r"all-reduce|all-gather|reduce-scatter|all-to-all|ragged-all-to-all|collective-permute|collective-broadcast"
_INSTRUCTION = re.compile(rf"%?[\w.-]+ = (?P<shape>.+?) (?P<op>{_OPS})(?P<start>-start)?\(")
_GROUPS = re.compile(
    r"replica_groups=(?P<groups>mesh\[.*?\](?:, device_ids=\S+)? \{.*?\}"
    r"|\[[\d,]+\]<=\[[\d,]+\](?:T\([\d,]+\))?|\{(?:\{[\d,]*\},?)*\})"
)
_PAIRS = re.compile(r"source_target_pairs=\{(?P<pairs>(?:\{\d+,\d+\},?)*)\}")
_COMPUTATION = re.compile(r"^(?P<entry>ENTRY )?%?(?P<name>[\w.-]+) .*\{$")
_CALLED = re.compile(r"(?:body|condition|calls|to_apply|branch_computations)=\{?((?:%[\w.-]+(?:, )?)+)")
_TRIPS = re.compile(r'"known_trip_count":\{"n":"(\d+)"\}')
_CONSTANT = re.compile(r"%(?P<name>[\w.-]+) = s32\[\]\S* constant\((?P<value>\d+)\)")
_BELOW = re.compile(r"ROOT .* compare\(%[\w.-]+, %(?P<limit>[\w.-]+)\), direction=LT")
_ARRAY = re.compile(r"(?P<type>[a-z]+\d*\w*)\[(?P<shape>[\d,]*)\]")
_BITS = {"pred": 8, "s4": 4, "u4": 4, "bf16": 16}


@dataclasses.dataclass(frozen=True)
class Collective:
    """One collective instruction.

    Fields:
      op: `all-reduce`, `all-gather`, ...
      axes: mesh axes across which devices exchange something; empty where every group is a single device.
      bytes: size of its result on one device, for one execution.
      times: executions in one run of the program; a loop whose length XLA does not know counts once.
    """

    op: str
    axes: tuple[str, ...]
    bytes: int
    times: int


def collectives(hlo: str, mesh: Mesh) -> list[Collective]:
    """The collectives of a program compiled for `mesh`, from `compiled.as_text()`.

    Raises:
      ValueError: an instruction names groups of devices in a form that is not understood.
    """
    times = _executions(hlo)
    found = []
    for computation, line in _lines(hlo):
        instruction = _INSTRUCTION.search(line)
        if instruction is None:
            if "replica_groups=" in line or "source_target_pairs=" in line:
                raise ValueError(f"an instruction with groups of devices that is not a known collective: {line[:300]}")
            continue
        axes = _axes_of(_device_groups(line, mesh.size), mesh)
        size = _size(
            instruction["shape"], largest_only=bool(instruction["start"]) and instruction["op"] != "all-reduce"
        )
        found.append(Collective(instruction["op"], axes, size, times.get(computation, 1)))
    return found


def bytes_by_axis(found: Sequence[Collective]) -> dict[str, int]:
    """Bytes that one device receives in one run, by `axis` or `axis+axis`."""
    total: dict[str, int] = defaultdict(int)
    for collective in found:
        if collective.axes:
            total["+".join(collective.axes)] += collective.bytes * collective.times
    return dict(total)


def replica_groups(text: str, n_devices: int) -> list[list[int]]:
    """Groups of devices from any of XLA's notations.

    `{{0,1},{2,3}}` lists them, `{}` is all devices in one; `[2,4]<=[8]` and `[4,2]<=[2,4]T(1,0)` reshape and transpose
    a range; `mesh['a'=2,'b'=4] {'b'}` names axes of a mesh, and parts of one as `'b':(1)2`;
    `device_ids=([4,2]T(1,0))` after the mesh says which devices it is of.

    Raises:
      ValueError: it is something else.
    """
    if text == "{}":
        return [list(range(n_devices))]
    if text.startswith("{{"):
        return [[int(device) for device in group.split(",")] for group in re.findall(r"\{([\d,]+)\}", text)]
    if iota := re.fullmatch(r"\[([\d,]+)\]<=\[([\d,]+)\](?:T\(([\d,]+)\))?", text):
        shape, dims, order = ([int(x) for x in part.split(",")] if part else None for part in iota.groups())
        return np.arange(np.prod(dims)).reshape(dims).transpose(order).reshape(shape).tolist()
    if named := re.fullmatch(r"mesh\[(.*?)\](?:, device_ids=\((.*)\))? \{(.*?)\}", text):
        mesh, devices, axes = named.groups()
        places = _mesh_groups(mesh, axes)
        if devices is None:
            return places
        order = _device_order(devices)
        return [[order[place] for place in group] for group in places]
    raise ValueError(f"replica groups in a form that is not understood: {text[:200]}")


def _mesh_groups(mesh: str, axes: str) -> list[list[int]]:
    lengths = {name: int(length) for name, length in re.findall(r"'(\w+)'=(\d+)", mesh)}
    # A part 'b':(p)s of an axis of length n is the middle one of its factors p, s and n / (p s).
    factors = {name: [(length, False)] for name, length in lengths.items()}
    for name, before, size in re.findall(r"'(\w+)'(?::\((\d+)\)(\d+))?", axes):
        length = lengths[name]
        if size:
            p, s = int(before), int(size)
            factors[name] = [(p, False), (s, True), (length // (p * s), False)]
        else:
            factors[name] = [(length, True)]
    split = [factor for name in lengths for factor in factors[name]]
    inside = [i for i, (_, chosen) in enumerate(split) if chosen]
    outside = [i for i, (_, chosen) in enumerate(split) if not chosen]
    ids = np.arange(np.prod([length for length, _ in split])).reshape([length for length, _ in split])
    group_size = int(np.prod([split[i][0] for i in inside]))
    return ids.transpose([*outside, *inside]).reshape(-1, group_size).tolist()


def _device_order(text: str) -> list[int]:
    """Devices of a mesh in its order: `[2,4]T(1,0)`, a transposed range, or a list."""
    if iota := re.fullmatch(r"\[([\d,]+)\](?:T\(([\d,]+)\))?", text):
        dims, order = ([int(x) for x in part.split(",")] if part else None for part in iota.groups())
        return np.arange(np.prod(dims)).reshape(dims).transpose(order).reshape(-1).tolist()
    if re.fullmatch(r"[\d,]+", text):
        return [int(device) for device in text.split(",")]
    raise ValueError(f"an order of devices in a form that is not understood: {text[:200]}")


def _device_groups(line: str, n_devices: int) -> list[list[int]]:
    if pairs := _PAIRS.search(line):
        return [[int(device) for device in pair] for pair in re.findall(r"\{(\d+),(\d+)\}", pairs["pairs"])]
    if groups := _GROUPS.search(line):
        return replica_groups(groups["groups"], n_devices)
    raise ValueError(f"a collective without groups of devices that are understood: {line[:300]}")


def _axes_of(groups: list[list[int]], mesh: Mesh) -> tuple[str, ...]:
    """Axes along which the members of a group differ; devices are numbered row by row over the mesh."""
    crossed = set()
    for group in groups:
        places = np.stack(np.unravel_index(group, mesh.devices.shape))  # --> [axes, members]
        crossed |= {name for name, place in zip(mesh.axis_names, places, strict=True) if len(set(place)) > 1}
    return tuple(name for name in mesh.axis_names if name in crossed)


def _size(shape: str, *, largest_only: bool) -> int:
    """Bytes of an array or of a tuple of them; an asynchronous start's tuple holds its operands, too."""
    sizes = []
    for array in _ARRAY.finditer(shape):
        digits = re.search(r"\d+", array["type"])
        bits = _BITS.get(array["type"]) or int(digits.group() if digits else 8)
        sizes.append(int(np.prod([int(n) for n in array["shape"].split(",") if n])) * bits // 8)
    return max(sizes, default=0) if largest_only else sum(sizes)


def _lines(hlo: str) -> list[tuple[str, str]]:
    """(computation, instruction) of every line."""
    lines, computation = [], ""
    for line in hlo.splitlines():
        if head := _COMPUTATION.match(line):
            computation = head["name"]
        elif line.startswith(" "):
            lines.append((computation, line.strip()))
    return lines


def _executions(hlo: str) -> dict[str, int]:
    """How often each computation runs, from the lengths of the loops around it."""
    callers: dict[str, list[tuple[str, int]]] = defaultdict(list)
    limits = _limits(hlo)
    for computation, line in _lines(hlo):
        known = _TRIPS.search(line)
        names = [name for called in _CALLED.findall(line) for name in re.findall(r"%([\w.-]+)", called)]
        lengths = [limits[name] for name in names if " while(" in line and name in limits]
        trips = int(known[1]) if known else max(lengths, default=1)
        for name in names:
            callers[name].append((computation, trips))
    times: dict[str, int] = {}

    def count(name: str) -> int:
        if name not in times:
            times[name] = sum(count(caller) * trips for caller, trips in callers[name]) if name in callers else 1
        return times[name]

    for name in list(callers):
        count(name)
    return times


def _limits(hlo: str) -> dict[str, int]:
    """Of conditions that compare a counter with a constant, that constant: the length of a scan, which begins at 0.

    The TPU's compiler writes no `known_trip_count`.
    """
    constants: dict[tuple[str, str], int] = {}
    limits = {}
    for computation, line in _lines(hlo):
        if constant := _CONSTANT.search(line):
            constants[computation, constant["name"]] = int(constant["value"])
        elif (below := _BELOW.match(line)) and (computation, below["limit"]) in constants:
            limits[computation] = constants[computation, below["limit"]]
    return limits
