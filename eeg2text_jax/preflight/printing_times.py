"""Format the estimated times of a program, and of the decoding steps of a search, as text and as JSON."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from eeg2text_jax.parallel.mesh import Chip
from eeg2text_jax.preflight.estimate import Loop, ProgramReport, Task
from eeg2text_jax.preflight.gpu_clock import GpuEstimate, measured
from eeg2text_jax.preflight.hlo_clock import Estimate

GIB = 2**30


def clock_lines(program: ProgramReport, chip: Chip) -> list[str]:
    """Return lines with the compiler's time estimate of a program; for a search, also of one decoding step."""
    found, task = program.estimate, program.task
    rate = 1e3 * task.tokens / found.bound
    name = _by_cost_models() if isinstance(found, GpuEstimate) else "estimated by the compiler, not measured"
    lines = [
        f"  {name}: {found.bound:.1f} ms, {program.share_of_peak:.1%} of the chip's peak, {rate:.0f} tokens/s",
        *_estimate_lines(found, chip, digits=1),
    ]
    steps = _Steps.of(task, found)
    if steps:
        share = steps.share_of_peak(chip)
        mean = "" if len(steps.each) == 1 else " on average"
        lines.append(f"  one of its {steps.number} steps: {steps.mean:.3f} ms{mean}, {share:.1%} of the chip's peak")
        if len(steps.each) == 1:
            return lines + _estimate_lines(steps.each[0][1], chip, digits=3)
        lines += [
            f"    {loop.steps} steps with {loop.positions} positions in the cache: {turn.bound:.3f} ms each, the larger"
            f" of {turn.milliseconds:.3f} (estimate) and {1e3 * turn.moved / chip.bandwidth:.3f}"
            f" ({turn.moved / 1e9:.2f} GB to and from HBM)"
            for loop, turn in steps.each
        ]
    return lines


def _by_cost_models() -> str:
    return f"estimate: XLA's cost models, corrected by what an {measured()['gpu']} took"


@dataclasses.dataclass(frozen=True)
class _Steps:
    """The decoding steps of a search: each loop with the estimate of one of its steps."""

    each: tuple[tuple[Loop, Estimate], ...]

    @classmethod
    def of(cls, task: Task, found: Estimate) -> "_Steps | None":
        """Return the loops that run at least once; None if the task is no search."""
        loops = task.loops[: len(found.turns)]
        each = tuple((loop, turn) for loop, turn in zip(loops, found.turns, strict=True) if loop.steps)
        return cls(each) if each else None

    @property
    def number(self) -> int:
        return sum(loop.steps for loop, _ in self.each)

    @property
    def mean(self) -> float:
        """Milliseconds of a step, on average."""
        return sum(loop.steps * turn.bound for loop, turn in self.each) / self.number

    def share_of_peak(self, chip: Chip) -> float:
        """Return the share of the chip's peak FLOP/s that the steps reach."""
        flops = sum(loop.steps * loop.flops for loop, _ in self.each)
        return 1e3 * flops / chip.flops / (self.mean * self.number)


def _estimate_lines(found: Estimate, chip: Chip, digits: int) -> list[str]:
    """Return lines with the memory traffic, the parts of the model, and the instructions without an estimate."""
    traffic = f"{found.moved / 1e9:.2f} GB to and from HBM take {1e3 * found.moved / chip.bandwidth:.{digits}f} ms"
    what = f"    each loop takes the larger of its estimate (in all {found.milliseconds:.{digits}f} ms) and its traffic"
    lines = [f"{what} ({traffic})"] if found.moved else []
    lines += parts_table(found.parts, digits)
    if isinstance(found, GpuEstimate):
        lines.append(f"    {found}")
    if found.missing:
        kinds = sorted(found.missing.items(), key=lambda kind: -kind[1].instructions)
        named = ", ".join(f"{kind} {count.instructions}" for kind, count in kinds[:4])
        lines.append(
            f"    without an estimate: {found.missing_instructions} instructions, {found.missing_executions:.0%} of the"
            f" executions ({named}{', ...' if len(kinds) > 4 else ''})"
        )
    for what, count in found.uncounted.items():
        lines.append(
            f"    not in the time: {what}, {count.executions} executions that write {count.bytes / GIB:.2f} GiB, at"
            f" least {1e3 * count.bytes / chip.bandwidth:.2f} ms at {chip.bandwidth / 1e9:.0f} GB/s"
        )
    if size := found.asynchronous_bytes:
        lines.append(
            f"    of these, copies beside the computation move {size / GIB:.2f} GiB,"
            f" {1e3 * size / chip.bandwidth:.2f} ms at {chip.bandwidth / 1e9:.0f} GB/s"
        )
    return lines


def parts_table(parts: Mapping[str, float], digits: int = 1, estimated: Mapping[str, float] | None = None) -> list[str]:
    """Return a table of milliseconds and shares by part of the model, largest first; `estimated` adds a column."""
    total, lines = sum(parts.values()) or 1.0, []
    for part in sorted({**parts, **(estimated or {})}, key=lambda part: -parts.get(part, 0.0)):
        spent = parts.get(part, 0.0)
        beside = "" if estimated is None else f"  estimated {estimated.get(part, 0.0):8.{digits}f} ms"
        lines += [f"    {spent:8.{digits}f} ms  {spent / total:5.1%}{beside}  {part}"]
    return lines


def clock_json(program: ProgramReport, chip: Chip) -> dict[str, Any]:
    """Return the compiler's time estimate for `--json`.

    For a search, `step` is the mean over its decoding steps, and `step.sizes` has a step with each size of the cache.
    """
    found, task = program.estimate, program.task
    told = {
        "what_it_is": "the compiler's model of the time, not a measurement",
        "share_of_peak": program.share_of_peak,
        "tokens_per_second": 1e3 * task.tokens / found.bound,
        **_times_json(found, chip),
    }
    if isinstance(found, GpuEstimate):
        told |= {"what_it_is": _by_cost_models(), "launches": found.launches}
        told |= {"launches_by_the_host": dataclasses.asdict(found.launched) if found.launched else None}
        told |= {"replaced": found.replaced, "modelled": found.modelled}
    if steps := _Steps.of(task, found):
        sizes = [
            {"positions": loop.positions, "steps": loop.steps, **_times_json(turn, chip)} for loop, turn in steps.each
        ]
        told["step"] = {"milliseconds": steps.mean, "share_of_peak": steps.share_of_peak(chip), "steps": steps.number}
        told["step"]["sizes"] = sizes
    return told


def _times_json(found: Estimate, chip: Chip) -> dict[str, Any]:
    return {
        "milliseconds": found.bound,
        "milliseconds_estimated_by_the_compiler": found.milliseconds,
        "milliseconds_that_loops_wait_for_memory": found.waiting,
        "hbm_bytes": found.moved,
        "milliseconds_by_part": found.parts,
        "dearest_instructions": [dataclasses.asdict(cost) for cost in found.costs[:20]],
        "without_estimate": {
            "instructions": found.missing_instructions,
            "share_of_executions": found.missing_executions,
            "asynchronous_copies_bytes": found.asynchronous_bytes,
            "asynchronous_copies_milliseconds": 1e3 * found.asynchronous_bytes / chip.bandwidth,
            "by_kind": {kind: dataclasses.asdict(count) for kind, count in found.missing.items()},
            "uncounted": {
                what: dataclasses.asdict(count) | {"least_milliseconds": 1e3 * count.bytes / chip.bandwidth}
                for what, count in found.uncounted.items()
            },
        },
    }
