"""An estimate of a program's time on a GPU, from XLA's cost models in the HLO, corrected by kind of kernel.

`xla_gpu_collect_cost_model_stats` writes each model's time beside an instruction: "sol" for products by cuBLAS,
"indexing-cost-model" for Triton, a model without a name for other fusions. Some times are wrong by orders of magnitude
(2,510 us for a Triton softmax by the unnamed model, 3 us by "indexing-cost-model"; 16 ms in place of 0.19 for products
with float32 results), those of small kernels too short. `tools/calibrate_gpu.py` measures the corrections.
"""

import contextlib
import dataclasses
import functools
import json
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from eeg2text_jax.base.chips.hlo_clock import Estimate, Walk
from eeg2text_jax.base.chips.hlo_text import Instruction, Module, array_bytes, parse_module
from eeg2text_jax.base.devices.mesh import Chip, compiler_options

# The host launches kernels, or command buffers (CUDA graphs) of many. XLA gathers kernels into them after its last HLO
# pass, so the optimized HLO does not show them. `xla_dump_to` writes the final plan, a line for each step ("thunk"),
# indented inside of command buffers, loops and branches:
#
#     000: kCommandBuffer [source | next=002 (1)]
#         001: kCustomKernel [source | sink] loop_add_fusion grid: [1, 1, 1] ...
#     002: kWhile [prev=000 (1) | sink]
#     condition:
#         003: kCustomKernel ...
#       body:
#         004: kCopy ...

PLAN = "*thunk_sequence_after_thunk_passes.txt"  # name of the dumped file
_STEP = re.compile(r"(?P<indent> *)\d+: k(?P<kind>\w+) ")
_CONTAINERS = ("While", "Sequential", "Conditional")  # steps that contain others, no launch themselves


@dataclasses.dataclass(frozen=True)
class Launches:
    host: int  # by the host: kernels and copies outside of command buffers, and command buffers
    buffers: int  # of these, command buffers
    buffered: int  # kernels and copies inside of command buffers


def launches(plan: str, turns: Sequence[int]) -> Launches:
    """Count the launches of one run in XLA's plan; `turns[i]` is the number of iterations of its i-th loop.

    An upper bound: all branches count, and every loop condition once per iteration. Raises ValueError if `turns` does
    not have one entry for each loop.
    """
    left, host, buffers, buffered = list(turns), 0, 0, 0
    around: list[tuple[int, str, int]] = []  # (indentation, kind, executions of the content) of enclosing steps
    for step in filter(None, map(_STEP.match, plan.splitlines())):
        indent, kind = len(step["indent"]), step["kind"]
        while around and around[-1][0] >= indent:
            around.pop()
        times = around[-1][2] if around else 1
        kinds = {outer for _, outer, _ in around}
        if kind == "While" and not left:
            raise ValueError("the plan has more loops than the program")
        around.append((indent, kind, times * left.pop(0) if kind == "While" else times))
        if kind in _CONTAINERS or kinds - {*_CONTAINERS, "CommandBuffer"}:  # a slice in a fusion has a copy inside
            continue
        if "CommandBuffer" in kinds:
            buffered += times
        else:
            host += times
            buffers += times * (kind == "CommandBuffer")
    if left:
        raise ValueError(f"the plan has {len(left)} loops fewer than the program")
    return Launches(host, buffers, buffered)


MODELS = "xla_gpu_collect_cost_model_stats"
OPTIONS = {MODELS: True, **compiler_options("cuda")}  # Triton's matrix products need a GPU for autotuning
# Our own time of a kernel assumes these shares of the peak FLOP/s and bandwidth, and microseconds of a launch.
PEAK_SHARE, BANDWIDTH_SHARE, LAUNCH = 0.65, 0.8, 2.0
# Kernels without a cost model. `lax.top_k`: an H100 took 277 us for the top 10 of each of 160 rows of 50,265. Our own
# (`models._fused_attention`): on an H200 they reached 0.46 to 0.6 of the bandwidth.
TOP_K, TOP_K_RATE = "__gpu$TopK", 116e9  # bytes of scores per second
PALLAS, PALLAS_SHARE = "__gpu$xla.gpu.triton", 0.5
FAR = 5.0  # times the roofline, beyond which XLA's time is replaced by our own

MEASURED = Path(__file__).with_name("gpu_measured.json")  # written by tools/calibrate_gpu.py
PRODUCTS, OWN, TOP, OTHERS = "matrix products", "attention kernels", "top k", "other kernels"


class Correction(NamedTuple):
    """The microseconds of a kernel from its estimate: `max(least, factor * estimate)`."""

    factor: float = 1.0
    least: float = 0.0

    def __call__(self, microseconds: float) -> float:
        return max(self.least, self.factor * microseconds)


@functools.cache
def measured() -> dict[str, Any]:
    """Return what `tools/calibrate_gpu.py` wrote: `gpu`, `corrections`, and the `programs` measured, among others."""
    return json.loads(MEASURED.read_text(encoding="utf8"))


def corrections() -> dict[str, Correction]:
    return {kind: Correction(*numbers) for kind, numbers in measured()["corrections"].items()}


def kind_of(line: Instruction) -> str:
    """Return the kind of kernel, a key of `corrections`."""
    targets = {"cublas": PRODUCTS, PALLAS: OWN, TOP_K: TOP}
    return next((kind for target, kind in targets.items() if target in line.attributes), OTHERS)


_MODELS = re.compile(
    r'"exec_time_us":(?P<time>[\d.e+-]+),"compute_time_us":[\d.e+-]+,"memory_access_time_us":[\d.e+-]+,'
    r'"name":"(?P<model>[^"]*)"'
)
_CONTRACTED = re.compile(r'"lhs_contracting_dimensions":\[([^\]]*)\]|lhs_contracting_dims=\{([\d,]*)\}')
_SHAPE = re.compile(r"\[([\d,]*)\]")


@dataclasses.dataclass(frozen=True)
class GpuEstimate(Estimate):
    """An estimate from XLA's cost models, with implausible times replaced and all times corrected as measured.

    A time is implausible below the roofline or above `FAR` times the roofline. Its replacement is the time of a kernel
    with `PEAK_SHARE` of the peak FLOP/s or `BANDWIDTH_SHARE` of the bandwidth, plus its launch.
    """

    launched: Launches | None = None  # None without XLA's plan of the program
    replaced: int = 0  # executions whose time was replaced
    modelled: float = 0.0  # milliseconds not corrected; only matrix products above twice our own time are replaced

    def __str__(self) -> str:
        by_host = ""
        if launched := self.launched:
            in_buffers = f"{launched.buffered} of them in {launched.buffers} command buffers"
            by_host = f", {in_buffers}: {launched.host} launches by the host"
        return (
            f"{self.executions} kernels and copies{by_host}; {self.replaced} have our own time, because XLA's is below "
            f"the roofline or above {FAR:g} times the roofline; without corrections, and with our own time "
            f"only for implausible matrix products, {self.modelled:.1f} ms"
        )


def estimate(
    hlo: str,
    chip: Chip,
    unknown_loops: Sequence[int] = (),
    plan: str = "",
    corrected: Mapping[str, Correction] | None = None,
) -> GpuEstimate:
    """Return a time estimate from `compiled.as_text()` of a program compiled with `OPTIONS`.

    `unknown_loops` and UnknownLoop: see `hlo_clock.estimate`. Without the dumped `plan`, launches by the host are not
    known. `corrected` are the corrections, by default `corrections()`.
    """
    walk = GpuWalk(parse_module(hlo), chip, unknown_loops, corrections() if corrected is None else corrected)
    executed, total = walk.whole()
    launched = None
    with contextlib.suppress(ValueError):  # the plan has other loops, as after an unrolling
        launched = launches(plan, walk.loops) if plan else None
    times = [(walk.time(one.instruction), one.times) for one in executed if one.instruction is not None]
    replaced, modelled = sum(n for time, n in times if time.replaced), sum(time.modelled * n for time, n in times)
    fields = {field.name: getattr(total, field.name) for field in dataclasses.fields(total)}
    return GpuEstimate(**fields, launched=launched, replaced=replaced, modelled=modelled)


class Time(NamedTuple):
    """The milliseconds of one execution of an instruction."""

    milliseconds: float | None  # None if no cost model covers the instruction
    replaced: bool  # whether it is our own time in place of XLA's
    modelled: float  # as in `GpuEstimate`


class GpuWalk(Walk):
    def __init__(self, module: Module, chip: Chip, unknown: Sequence[int], corrected: Mapping[str, Correction]):
        super().__init__(module, 1.0, unknown)
        self.chip, self._corrected = chip, corrected
        self._home = {line.name: computation for computation, line in module.lines()}

    def milliseconds(self, line: Instruction) -> float | None:
        return self.time(line).milliseconds

    def time(self, line: Instruction) -> Time:
        modelled = self._modelled(line)
        if modelled.milliseconds is None:
            return modelled
        correct = self._corrected.get(kind_of(line), Correction())
        return modelled._replace(milliseconds=correct(1e3 * modelled.milliseconds) / 1e3)

    def _modelled(self, line: Instruction) -> Time:
        if TOP_K in line.attributes:
            spent = 1e3 * self._bytes(line) / TOP_K_RATE
            return Time(spent, False, spent)
        if PALLAS in line.attributes:
            spent = 1e3 * self._bytes(line) / self.chip.bandwidth / PALLAS_SHARE + LAUNCH / 1e3
            return Time(spent, False, spent)
        models = {match["model"]: float(match["time"]) for match in _MODELS.finditer(line.attributes)}
        if not models:
            return Time(None, False, 0.0)
        by_xla = next(models[name] for name in ("sol", "indexing-cost-model", "", *models) if name in models)
        moving, computing = self._bytes(line) / self.chip.bandwidth, self._flops(line) / self.chip.flops
        floor = 1e6 * max(moving, computing)
        ours = 1e6 * max(moving / BANDWIDTH_SHARE, computing / PEAK_SHARE) + LAUNCH
        product = "cublas" in line.attributes
        credible = by_xla <= (2 * ours if product else FAR * floor + LAUNCH)
        modelled = ours if product and not credible else by_xla
        replaced = not credible or by_xla < floor
        return Time((ours if replaced else by_xla) / 1e3, replaced, modelled / 1e3)

    def _bytes(self, line: Instruction) -> int:
        """Return the bytes read and written: each operand once, and only the slice of a sliced operand."""
        if line.op == "fusion":
            return sum(self._fusion_bytes(name) for name in line.called.get("calls", ()))
        by_name = self.module.by_name[self._home[line.name]]
        results = line.arrays[:1] if "cublas" in line.attributes else line.arrays  # [1] is cuBLAS's workspace
        arrays = [*results, *(array for name in line.operands if name in by_name for array in by_name[name].arrays)]
        return sum(array_bytes(*array) for array in arrays)

    def _fusion_bytes(self, name: str) -> int:
        lines, by_name = self.module.computations[name], self.module.by_name[name]
        moved, sliced = 0, ("dynamic-slice", "gather")
        for line in lines:
            if line.op != "parameter":
                continue
            users = [user for user in lines if line.name in user.operands]
            if all(user.op in sliced and user.operands[0] == line.name for user in users):
                moved += sum(user.bytes() for user in users)
            elif not all(user.op == "dynamic-update-slice" and user.operands[0] == line.name for user in users):
                moved += line.bytes()
        root = self.module.root(name)
        for result in [by_name[one] for one in root.operands if one in by_name] if root.op == "tuple" else [root]:
            while result.op in ("bitcast", "copy") and result.operands[0] in by_name:
                result = by_name[result.operands[0]]
            update = by_name.get(result.operands[1]) if result.op == "dynamic-update-slice" else None
            moved += (update or result).bytes()
        return moved

    def _flops(self, line: Instruction) -> float:
        if "cublas" in line.attributes:
            return self._product(line)
        called = line.called.get("calls", ()) if line.op == "fusion" else ()
        return sum(self._product(one) for name in called for one in self.module.computations[name] if one.op == "dot")

    def _product(self, line: Instruction) -> float:
        contracted, by_name = _CONTRACTED.search(line.attributes), self.module.by_name[self._home[line.name]]
        if contracted is None or line.operands[0] not in by_name:
            return 0.0
        lengths = _lengths(by_name[line.operands[0]].shape)
        inner = [lengths[int(axis)] for axis in re.findall(r"\d+", contracted[1] or contracted[2] or "")]
        return 2.0 * math.prod(inner) * math.prod(_lengths(line.shape))


def _lengths(shape: str) -> list[int]:
    return [int(length) for length in _SHAPE.search(shape)[1].split(",") if length]
