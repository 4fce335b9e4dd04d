"""Format the report of a preflight as text and as JSON."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from eeg2text_jax.base.chips.gpu_clock import GpuEstimate, measured
from eeg2text_jax.base.chips.hlo_clock import Estimate
from eeg2text_jax.base.devices.mesh import ARM, GIB, Chip
from eeg2text_jax.base.errors import shortlist
from eeg2text_jax.base.packages import in_words
from eeg2text_jax.commands.preflight.compiling import EFFORT_OPTION
from eeg2text_jax.commands.preflight.estimate import LargestBatch, Loop, ProgramReport, Report, Task
from eeg2text_jax.models.backbones import DECODERS


def _clock_lines(program: ProgramReport, chip: Chip) -> list[str]:
    estimate, rate = program.estimate, 1e3 * program.task.tokens / program.estimate.bound
    name = _by_cost_models() if isinstance(estimate, GpuEstimate) else "estimated by the compiler, not measured"
    lines = [
        f"  {name}: {estimate.bound:.1f} ms, {program.share_of_peak:.1%} of the chip's peak, {rate:.0f} tokens/s",
        *_estimate_lines(estimate, chip, digits=1),
    ]
    if each := _steps_of(program.task, estimate):
        number, milliseconds, share = _mean_step(each, chip)
        mean = "" if len(each) == 1 else " on average"
        lines.append(f"  one of its {number} steps: {milliseconds:.3f} ms{mean}, {share:.1%} of the chip's peak")
        if len(each) == 1:
            return lines + _estimate_lines(each[0][1], chip, digits=3)
        lines += [
            f"    {loop.steps} steps with {loop.positions} positions in the cache: {turn.bound:.3f} ms each, the larger"
            f" of {turn.milliseconds:.3f} (estimate) and {1e3 * turn.moved / chip.bandwidth:.3f}"
            f" ({turn.moved / 1e9:.2f} GB to and from HBM)"
            for loop, turn in each
        ]
    return lines


def _by_cost_models() -> str:
    return f"estimate: XLA's cost models, corrected by what an {measured()['gpu']} took"


def _steps_of(task: Task, estimate: Estimate) -> list[tuple[Loop, Estimate]]:
    """Return each loop of a search that runs, with the estimate of one step."""
    return [(loop, turn) for loop, turn in zip(task.loops, estimate.turns, strict=False) if loop.steps]


def _mean_step(each: Sequence[tuple[Loop, Estimate]], chip: Chip) -> tuple[int, float, float]:
    """Return the number of decoding steps, their mean milliseconds, and their share of the chip's peak."""
    number = sum(loop.steps for loop, _ in each)
    milliseconds = sum(loop.steps * turn.bound for loop, turn in each)
    flops = sum(loop.steps * loop.flops for loop, _ in each)
    return number, milliseconds / number, 1e3 * flops / chip.flops / milliseconds


def _estimate_lines(estimate: Estimate, chip: Chip, digits: int) -> list[str]:
    def transfer(size: int, digits: int = 2) -> str:
        return f"{1e3 * size / chip.bandwidth:.{digits}f} ms"

    lines, rate = parts_table(estimate.parts, digits), f"at {chip.bandwidth / 1e9:.0f} GB/s"
    if estimate.moved:
        lines.insert(
            0,
            f"    each loop takes the larger of its estimate (in all {estimate.milliseconds:.{digits}f} ms) and its "
            f"traffic ({estimate.moved / 1e9:.2f} GB to and from HBM take {transfer(estimate.moved, digits)})",
        )
    if isinstance(estimate, GpuEstimate):
        lines.append(f"    {estimate}")
    if estimate.missing:
        kinds = sorted(estimate.missing.items(), key=lambda kind: -kind[1].instructions)
        named = shortlist((f"{kind} {count.instructions}" for kind, count in kinds), 4)
        lines.append(
            f"    without an estimate: {estimate.missing_instructions} instructions, {estimate.missing_executions:.0%}"
            f" of the executions ({named})"
        )
    lines += [
        f"    not in the time: {what}, {count.executions} executions that write {count.bytes / GIB:.2f} GiB, at least "
        f"{transfer(count.bytes)} {rate}"
        for what, count in estimate.uncounted.items()
    ]
    if size := estimate.asynchronous_bytes:
        lines.append(f"    of these, copies beside the computation move {size / GIB:.2f} GiB, {transfer(size)} {rate}")
    return lines


def parts_table(parts: Mapping[str, float], digits: int = 1, estimated: Mapping[str, float] | None = None) -> list[str]:
    """Return lines of milliseconds and shares by part of the model, largest first; `estimated` adds a column."""
    total, lines = sum(parts.values()) or 1.0, []
    for part in sorted({**parts, **(estimated or {})}, key=lambda part: -parts.get(part, 0.0)):
        spent = parts.get(part, 0.0)
        beside = "" if estimated is None else f"  estimated {estimated.get(part, 0.0):8.{digits}f} ms"
        lines.append(f"    {spent:8.{digits}f} ms  {spent / total:5.1%}{beside}  {part}")
    return lines


def _clock_json(program: ProgramReport, chip: Chip) -> dict[str, Any]:
    estimate = program.estimate
    figures = {
        "what_it_is": "the compiler's model of the time, not a measurement",
        "share_of_peak": program.share_of_peak,
        "tokens_per_second": 1e3 * program.task.tokens / estimate.bound,
        **_times_json(estimate, chip),
    }
    if isinstance(estimate, GpuEstimate):
        figures |= {"what_it_is": _by_cost_models(), "launches": estimate.executions}
        figures |= {"launches_by_the_host": dataclasses.asdict(estimate.launched) if estimate.launched else None}
        figures |= {"replaced": estimate.replaced, "modelled": estimate.modelled}
    if each := _steps_of(program.task, estimate):
        number, milliseconds, share = _mean_step(each, chip)
        sizes = [{"positions": loop.positions, "steps": loop.steps, **_times_json(turn, chip)} for loop, turn in each]
        figures["step"] = {"milliseconds": milliseconds, "share_of_peak": share, "steps": number, "sizes": sizes}
    return figures


def _times_json(estimate: Estimate, chip: Chip) -> dict[str, Any]:
    return {
        "milliseconds": estimate.bound,
        "milliseconds_estimated_by_the_compiler": estimate.milliseconds,
        "milliseconds_that_loops_wait_for_memory": estimate.waiting,
        "hbm_bytes": estimate.moved,
        "milliseconds_by_part": estimate.parts,
        "dearest_instructions": [dataclasses.asdict(cost) for cost in estimate.costs[:20]],
        "without_estimate": {
            "instructions": estimate.missing_instructions,
            "share_of_executions": estimate.missing_executions,
            "asynchronous_copies_bytes": estimate.asynchronous_bytes,
            "asynchronous_copies_milliseconds": 1e3 * estimate.asynchronous_bytes / chip.bandwidth,
            "by_kind": {kind: dataclasses.asdict(count) for kind, count in estimate.missing.items()},
            "uncounted": {
                what: dataclasses.asdict(count) | {"least_milliseconds": 1e3 * count.bytes / chip.bandwidth}
                for what, count in estimate.uncounted.items()
            },
        },
    }


MIB = 2**20
PARTS = ("arguments", "temporaries", "output", "code")  # fields of `Compiled` that add up to its total memory


def _mapping_lines(programs: Sequence[ProgramReport]) -> list[str]:
    """Return lines that compare `vmap` with `map` over the arms of one device."""
    names = {"vmap": "side by side (parallel.arms=vmap)", "map": "one after the other (parallel.arms=map)"}
    lines = ["the arms of a device, training step as estimated by the compiler, not measured:"]
    for program in sorted(programs, key=lambda program: program.task.bucket, reverse=True):
        words, tokens = program.task.bucket
        spent = f"{program.estimate.bound:8.1f} ms" if program.estimate else "refused"
        spent += f", {program.compiled.total / GIB:6.2f} GiB"
        lines.append(f"  {words:3d} words, {tokens:3d} tokens: {spent}  {names[program.task.arms]}")
    return lines


def to_text(report: Report) -> str:
    chip, config, (words, tokens) = report.topology.chip, report.config, report.bucket
    compiled = report.effort is not None
    how = f"compiled with {report.effort} effort, not run" if compiled else "lowered, neither compiled nor run"
    devices, mesh = math.prod(report.mesh.values()), " x ".join(f"{n} {axis}" for axis, n in report.mesh.items())
    lines = [
        f"{report.topology.name}: {devices} x {chip.name}, {chip.memory / GIB:.0f} GiB each, mesh {mesh}",
        f"arms {', '.join(report.arms)}; {words} words, {tokens} tokens; {config.model.dtype}; {how}",
        f"figures are of {in_words(report.versions)}",
    ]
    if config.model.checkpoint and not Path(config.model.checkpoint).expanduser().is_dir():
        lines.append(f"the shape is config.model.shape, because {config.model.checkpoint} is no local folder")
    if compiled and report.effort != "full":
        lines.append("no times: the compiler's estimates need --effort=full, which compiles the program as a run does")
    for program in report.programs:
        lines += ["", *_program_lines(report, program)]
    several = [program for program in report.programs if program.task.arms and program.compiled]
    if report.effort == "full" and several:
        lines += ["", *_mapping_lines(several)]
    if not compiled:
        lines += ["", GPU_NOTE]
    elif report.largest is not None:
        lines += ["", _largest_line(report.largest)]
    return "\n".join(lines)


GPU_NOTE = (
    "Both programs can be lowered for this platform; only the memory of their arguments is known. Temporaries (and so\n"
    "whether the programs fit), collectives and launches need XLA's compiler for GPUs: for h100, h200, a100-80gb and\n"
    "a100-40gb, pip install 'eeg2text_jax[preflight-cuda]'; no GPU is needed."
)


def _program_lines(report: Report, program: ProgramReport) -> list[str]:
    compiled, chip = program.compiled, report.topology.chip
    fits = report.fits(program)
    if compiled is None:
        verdict = "arguments alone fit" if fits else "DOES NOT FIT"
        lines = [f"{program.task}: {verdict}", f"  arguments {_gib(program.arguments)} a device"]
    else:
        lines = [
            f"{program.task}: {_gib(compiled.total)} of {_gib(report.limit)} a chip, "
            f"{'fits' if fits else 'DOES NOT FIT'} (compiled in {compiled.seconds:.0f} s)",
            *_compiled_lines(program),
        ]
    if not fits:
        lines.append(f"  to change: {'; '.join(_remedies(report, program))}")
    lines.append(
        f"  modelled, not measured: {program.task.flops / 1e12:.2f} TFLOP a device, at least"
        f" {1e3 * program.flop_seconds:.1f} ms at {chip.flops / 1e12:.0f} TFLOP/s (bfloat16);"
        f" {1e3 * program.memory_seconds:.1f} ms to read the arguments once at {chip.bandwidth / 1e9:.0f} GB/s"
    )
    if program.estimate:
        lines += _clock_lines(program, chip)
    elif report.effort == "full" and compiled is not None and compiled.collectives is not None:
        lines.append("  no estimate of the time: the compiler has none for this chip")
    return lines


def _compiled_lines(program: ProgramReport) -> list[str]:
    compiled = program.compiled
    if compiled.collectives is None:
        return [f"  refused by the compiler: too little memory; arguments {_gib(program.arguments)}"]
    lines = []
    if compiled.effort_unknown:
        lines = [f"  this JAX knows no compiler option {EFFORT_OPTION}: compiled with its default effort"]
    crossing = ", ".join(f"{axis} {size / MIB:.1f} MiB" for axis, size in sorted(program.crossing.items()))
    wrong = program.across_arms
    return [
        *lines,
        "  " + ", ".join(f"{name} {_gib(getattr(compiled, name))}" for name in PARTS),
        f"  collectives, results on a chip in one run: {crossing or 'none'}; across arms: "
        + (f"{len(wrong)} <-- arms must not communicate" if wrong else "none"),
        *(f"    {collective}" for collective in wrong),
    ]


def _remedies(report: Report, program: ProgramReport) -> list[str]:
    """Return changes that may make a program fit, the cheapest first."""
    config, several = report.config, report.mesh["data"] > 1
    frozen = config.optim.trainable != "all" and config.model.backbone in DECODERS
    narrower = frozen and config.model.frozen_dtype != "int8", "model.frozen_dtype=int8 (halves the frozen layers)"
    if program.task.name == "beam search":
        divided = frozen and several and not config.decode.tensor_parallel
        choices = [(divided, "decode.tensor_parallel=True (divides the frozen model)"), narrower]
        fewer = f"decode.batch_size below {program.task.batch}", "fewer decode.num_beams", "model.dtype=bfloat16"
        choices += [(True, choice) for choice in fewer]
    else:
        size, more_arms = report.largest and report.largest.size, len(report.arms) > report.mesh[ARM]
        choices = [
            (size, f"batch.size={size} fits"),
            (not config.model.remat, "model.remat=True (recomputes layers in the backward pass)"),
            (config.model.dtype == "float32", "model.dtype=bfloat16 (halves the intermediates)"),
            (several and not config.parallel.fsdp, "parallel.fsdp=True (divides parameters and optimizer state)"),
            narrower,
            (more_arms, "fewer arms, or more devices along the arms"),
        ]
    return [choice for helps, choice in choices if helps] or ["more devices, or a chip with more memory"]


def _largest_line(largest: LargestBatch) -> str:
    tried = ", ".join(f"{size}: {_gib(taken)}" for size, taken in largest.compiled_bytes.items())
    if not largest.size:
        return f"largest batch of the training step that fits: none was found (compiled {tried})"
    if largest.confirmed:
        return f"largest batch of the training step that fits: {largest.size}, confirmed by compiling it ({tried})"
    return (
        f"largest batch of the training step that was compiled and fits: {largest.size} ({tried}); "
        f"up to {largest.estimate} may fit, but {largest.estimate} was NOT compiled"
    )


def to_json(report: Report) -> dict[str, Any]:
    chip = report.topology.chip
    return {
        "topology": report.topology.name,
        "chip": chip.name,
        "chip_memory_bytes": chip.memory,
        "usable_bytes": report.limit,
        "mesh": report.mesh,
        "arms": report.arms,
        "words": report.bucket[0],
        "tokens": report.bucket[1],
        "run": False,
        "versions": report.versions,
        "effort": report.effort,
        "programs": [_program_json(report, program) for program in report.programs],
        "largest_batch": None if report.largest is None else dataclasses.asdict(report.largest),
    }


def _program_json(report: Report, program: ProgramReport) -> dict[str, Any]:
    taken = None
    if program.compiled:
        taken = {name: getattr(program.compiled, name) for name in ("total", *PARTS, "seconds", "effort_unknown")}
        taken |= {"collective_bytes_by_axis": program.crossing, "collectives_across_arms": program.across_arms}
    return {
        "name": program.task.name,
        "batch": program.task.batch,
        "words": program.task.bucket[0],
        "tokens": program.task.bucket[1],
        "arms_of_a_device": program.task.arms or None,
        "fits": report.fits(program),
        "argument_bytes": program.arguments,
        "compiled": taken,
        "modelled": {
            "flops": program.task.flops,
            "flop_bound_seconds": program.flop_seconds,
            "bandwidth_bound_seconds": program.memory_seconds,
        },
        "estimated": _clock_json(program, report.topology.chip) if program.estimate else None,
    }


def _gib(size: int | None) -> str:
    return f"{size / GIB:.2f} GiB"
