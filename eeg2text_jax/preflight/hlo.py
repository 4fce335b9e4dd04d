"""Collectives of a compiled program, by mesh axis and bytes, parsed from its optimized HLO."""

import dataclasses
import functools
import re
from collections import defaultdict
from collections.abc import Sequence

import numpy as np
from jax.sharding import Mesh

from eeg2text_jax.preflight.hlo_text import COLLECTIVES, Instruction, Module, loop_length, parse_module

_COLLECTIVE = re.compile(rf"(?P<op>{COLLECTIVES})(?P<start>-start)?")
_GROUPS = re.compile(
    r"replica_groups=(?P<groups>mesh\[.*?\](?:, device_ids=\S+)? \{.*?\}"
    r"|\[[\d,]+\]<=\[[\d,]+\](?:T\([\d,]+\))?|\{(?:\{[\d,]*\},?)*\})"
)
_CHANNEL = re.compile(r"channel_id=(?P<channel>\d+)")
_PAIRS = re.compile(r"source_target_pairs=\{(?P<pairs>(?:\{\d+,\d+\},?)*)\}")


@dataclasses.dataclass(frozen=True)
class Collective:
    """One collective instruction."""

    op: str  # `all-reduce`, `all-gather`, ...
    axes: tuple[str, ...]  # mesh axes across which devices communicate; empty if every group is a single device
    bytes: int  # size of the result on one device, per execution
    times: int  # executions in one run of the program; a loop of unknown trip count is counted as one iteration
    received: float  # bytes that one device receives per execution if the devices of a group form a ring
    asynchronous: bool  # whether the compiler lets it run beside computation


def collectives(hlo: str, mesh: Mesh) -> list[Collective]:
    """Return the collectives of a program compiled for `mesh`, from `compiled.as_text()`.

    The TPU compiler splits an asynchronous collective over the fusions that overlap with it. The parts share a channel,
    so each channel counts once, as its largest part. Raises ValueError if an instruction has replica groups in an
    unknown notation.
    """
    module = parse_module(hlo)
    times = _executions(module)
    found: dict[str | int, Collective] = {}
    for computation, line in module.lines():
        collective = _COLLECTIVE.fullmatch(line.op)
        if collective is None:
            if "replica_groups=" in line.attributes or "source_target_pairs=" in line.attributes:
                raise ValueError(f"the instruction has groups of devices, but is no known collective: {line.text}")
            continue
        groups = _device_groups(line, mesh.size)
        axes = _axes_of(groups, mesh)
        # An asynchronous start (except of all-reduce) returns a tuple that also has the operands.
        size = line.bytes(largest_only=bool(collective["start"]) and collective["op"] != "all-reduce")
        channel, overlapped = _CHANNEL.search(line.attributes), "chain_id=" in line.attributes
        scattered = computation.startswith("all-reduce-scatter")  # libtpu's name of a fusion that keeps a device's part
        one = Collective(
            op=collective["op"],
            axes=axes,
            bytes=size,
            times=times.get(computation, 1),
            received=_received("all-reduce-scatter" if scattered else collective["op"], size, max(map(len, groups))),
            asynchronous=bool(collective["start"]) or overlapped,
        )
        name = channel["channel"] if channel and overlapped else len(found)
        if name not in found or one.bytes * one.times > found[name].bytes * found[name].times:
            found[name] = one
    return list(found.values())


def _received(op: str, size: int, n: int) -> float:
    """Return the bytes that each of `n` devices of a ring receives, if the collective's result has `size` bytes.

    An all-reduce is a reduce-scatter and an all-gather, each of `(n - 1) / n` of the array. The result of a
    reduce-scatter is a device's part of the array; libtpu writes it as an all-reduce of which a device keeps its part.
    """
    if op == "reduce-scatter":
        return size * (n - 1)
    if op.startswith("collective"):
        return size
    return size * (n - 1) / n * (2 if op == "all-reduce" else 1)


def bytes_by_axis(found: Sequence[Collective]) -> dict[str, int]:
    """Return the bytes of the results on one device in one run, by mesh axis; `axis+axis` stands for several axes."""
    total: dict[str, int] = defaultdict(int)
    for collective in found:
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
    raise ValueError(f"replica groups in an unknown notation: {text[:200]}")


def _mesh_groups(mesh: str, axes: str) -> list[list[int]]:
    """Return the groups of positions in a mesh `'a'=2,'b'=4` along the axes `'b'`, or parts of axes `'b':(1)2`."""
    lengths = {name: int(length) for name, length in re.findall(r"'(\w+)'=(\d+)", mesh)}
    # The part 'b':(p)s of an axis of length n is the axis of length s after a reshape of n to (p, s, n / (p s)).
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
    """Parse the device order of a mesh: a transposed range as `[2,4]T(1,0)`, or a list `0,4,1,5`."""
    if iota := re.fullmatch(r"\[([\d,]+)\](?:T\(([\d,]+)\))?", text):
        dims, order = ([int(x) for x in part.split(",")] if part else None for part in iota.groups())
        return np.arange(np.prod(dims)).reshape(dims).transpose(order).reshape(-1).tolist()
    if re.fullmatch(r"[\d,]+", text):
        return [int(device) for device in text.split(",")]
    raise ValueError(f"device order in an unknown notation: {text[:200]}")


def _device_groups(line: Instruction, n_devices: int) -> list[list[int]]:
    if pairs := _PAIRS.search(line.attributes):
        return [[int(device) for device in pair] for pair in re.findall(r"\{(\d+),(\d+)\}", pairs["pairs"])]
    if groups := _GROUPS.search(line.attributes):
        return replica_groups(groups["groups"], n_devices)
    raise ValueError(f"the collective has no groups of devices in a known notation: {line.text}")


def _axes_of(groups: list[list[int]], mesh: Mesh) -> tuple[str, ...]:
    """Return the mesh axes along which devices of one group differ; devices are numbered in row-major order."""
    crossed = set()
    for group in groups:
        places = np.stack(np.unravel_index(group, mesh.devices.shape))  # --> [axes, members]
        crossed |= {name for name, place in zip(mesh.axis_names, places, strict=True) if len(set(place)) > 1}
    return tuple(name for name in mesh.axis_names if name in crossed)


def _executions(module: Module) -> dict[str, int]:
    """Return the number of executions of each computation, from the trip counts of enclosing loops."""
    callers: dict[str, list[tuple[str, int]]] = defaultdict(list)
    for computation, line in module.lines():
        turns = (loop_length(module, computation, line) or 1) if line.op == "while" else 1
        for name in (name for names in line.called.values() for name in names):
            callers[name].append((computation, turns))

    @functools.cache
    def count(name: str) -> int:
        return sum(count(caller) * turns for caller, turns in callers[name]) if name in callers else 1

    return {name: count(name) for name in list(callers)}
