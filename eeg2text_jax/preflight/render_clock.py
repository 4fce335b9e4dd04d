"""The compiler's estimates of the time, as text and as JSON."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from eeg2text_jax.parallel.chips import Chip
from eeg2text_jax.parallel.hlo_clock import Estimate
from eeg2text_jax.preflight.report import ProgramReport, Task

GIB = 2**30


def clock_lines(program: ProgramReport, chip: Chip) -> list[str]:
    """The compiler's estimate of the time, and of a search that of one step, too."""
    found, task = program.estimate, program.task
    rate = 1e3 * task.tokens / found.milliseconds
    lines = [
        f"  estimated by the compiler, not measured: {found.milliseconds:.1f} ms,"
        f" {program.share_of_peak:.1%} of the chip's peak, {rate:.0f} tokens/s",
        *parts_table(found.parts),
        *_missing_lines(found, chip),
    ]
    for turn in found.turns[:1]:
        share = _turn_share(task, turn, chip)
        lines += [
            f"  one step of it, of {task.bucket[1] - 1}: {turn.milliseconds:.3f} ms, {share:.1%} of the chip's peak",
            *parts_table(turn.parts, digits=3),
            *_missing_lines(turn, chip),
        ]
    return lines


def _turn_share(task: Task, turn: Estimate, chip: Chip) -> float:
    """Share of the chip's peak during one step of a search."""
    return 1e3 * task.turn_flops / chip.flops / turn.milliseconds


def parts_table(parts: Mapping[str, float], digits: int = 1, estimated: Mapping[str, float] | None = None) -> list[str]:
    """Milliseconds by part of the model, largest first, with each one's share; beside what was measured, estimates."""
    total, lines = sum(parts.values()) or 1.0, []
    for part in sorted({**parts, **(estimated or {})}, key=lambda part: -parts.get(part, 0.0)):
        spent = parts.get(part, 0.0)
        beside = "" if estimated is None else f"  estimated {estimated.get(part, 0.0):8.{digits}f} ms"
        lines += [f"    {spent:8.{digits}f} ms  {spent / total:5.1%}{beside}  {part}"]
    return lines


def _missing_lines(found: Estimate, chip: Chip) -> list[str]:
    if not found.missing:
        return []
    kinds = sorted(found.missing.items(), key=lambda kind: -kind[1].instructions)
    named = ", ".join(f"{kind} {count.instructions}" for kind, count in kinds[:4])
    lines = [
        f"    without an estimate: {found.missing_instructions} instructions, {found.missing_executions:.0%} of the"
        f" executions ({named}{', ...' if len(kinds) > 4 else ''})"
    ]
    if size := found.asynchronous_bytes:
        lines += [
            f"    of these, copies beside the computation move {size / GIB:.2f} GiB,"
            f" {1e3 * size / chip.bandwidth:.2f} ms at {chip.bandwidth / 1e9:.0f} GB/s"
        ]
    return lines


def mapping_lines(programs: Sequence[ProgramReport]) -> list[str]:
    """The ways to compute the arms of one device beside each other."""
    names = {"vmap": "side by side (parallel.arms=vmap)", "map": "one after the other (parallel.arms=map)"}
    lines = ["the arms of a device, training step as estimated by the compiler, not measured:"]
    for program in sorted(programs, key=lambda program: program.task.bucket, reverse=True):
        words, tokens = program.task.bucket
        taken = f"{program.compiled.total / GIB:6.2f} GiB"
        spent = f"{program.estimate.milliseconds:8.1f} ms, {taken}" if program.estimate else f"refused, {taken}"
        lines += [f"  {words:3d} words, {tokens:3d} tokens: {spent}  {names[program.task.arms]}"]
    return lines


def clock_json(program: ProgramReport, chip: Chip) -> dict[str, Any]:
    """The compiler's estimate; `step` is one of a search."""
    found, task = program.estimate, program.task
    told = {
        "what_it_is": "the compiler's model of the time, not a measurement",
        "share_of_peak": program.share_of_peak,
        "tokens_per_second": 1e3 * task.tokens / found.milliseconds,
        **_times_json(found, chip),
    }
    for turn in found.turns[:1]:
        told["step"] = {
            "share_of_peak": _turn_share(task, turn, chip),
            "steps": task.bucket[1] - 1,
            **_times_json(turn, chip),
        }
    return told


def _times_json(found: Estimate, chip: Chip) -> dict[str, Any]:
    return {
        "milliseconds": found.milliseconds,
        "milliseconds_by_part": found.parts,
        "dearest_instructions": [dataclasses.asdict(cost) for cost in found.costs[:20]],
        "without_estimate": {
            "instructions": found.missing_instructions,
            "share_of_executions": found.missing_executions,
            "asynchronous_copies_bytes": found.asynchronous_bytes,
            "asynchronous_copies_milliseconds": 1e3 * found.asynchronous_bytes / chip.bandwidth,
            "by_kind": {kind: dataclasses.asdict(count) for kind, count in found.missing.items()},
        },
    }
