"""Preflight of a configuration: compile its programs, and report their memory, communication and time."""

import dataclasses
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor

import jax

from eeg2text_jax.base.chips.hlo_clock import Estimate
from eeg2text_jax.base.chips.hlo_text import Collective, bytes_by_axis
from eeg2text_jax.base.devices.mesh import ARM, DATA, Chip, Placement, platform_of
from eeg2text_jax.base.errors import UserError
from eeg2text_jax.base.packages import compiler_versions
from eeg2text_jax.commands.preflight import compiling
from eeg2text_jax.commands.preflight.compiling import Compiled, GpuTarget, Topology
from eeg2text_jax.commands.preflight.programs import Outline, Program, make_outline
from eeg2text_jax.models.attention import steps_of
from eeg2text_jax.models.functional import search_flops, step_flops, training_flops
from eeg2text_jax.training.sections import Settings
from eeg2text_jax.training.study import placement_of

USABLE = 0.97  # share of a chip's memory that programs can use; the rest goes to the runtime and fragmentation
LARGEST = 2**14  # upper bound of the search for the largest batch
TOLERANCE = 0.05  # if the batch could grow by a larger share, another compilation follows


@dataclasses.dataclass(frozen=True)
class LargestBatch:
    size: int  # the largest compiled batch that fits; 0 if none does
    confirmed: bool  # whether `size` equals the extrapolated batch
    estimate: int  # the last extrapolated batch; compiled only if `confirmed`
    compiled_bytes: dict[int, int]  # bytes on one device by batch size


def second_size(start: int, first: int, step: int, limit: int) -> int:
    """Return twice `start`, or half of it if its bytes, `first`, exceed `limit`; a multiple of `step`."""
    return 2 * start if first <= limit else max(start // 2 // step * step, step)


def largest_batch(
    compile_bytes: Callable[[int], int], compiled: Mapping[int, int], step: int, limit: int, compilations: int = 5
) -> LargestBatch:
    """Search for the largest batch size, a multiple of `step`, whose program needs at most `limit` bytes.

    `compile_bytes` returns the bytes of a batch size on one device; `compiled` has those of two sizes. Memory is about
    affine in the size, so a line through the two sizes nearest to the limit gives the next one to compile, until the
    last one fits and the line gives no far larger one, or after `compilations`. The result is always a compiled size.
    """
    tried, confirmed = dict(compiled), False
    estimate = promise(tried, step, limit)
    while compilations and estimate >= step:
        if estimate not in tried:
            compilations -= 1
            tried[estimate] = compile_bytes(estimate)
        after = promise(tried, step, limit)
        confirmed = tried[estimate] <= limit and after - estimate <= max(TOLERANCE * estimate, step)
        if confirmed or after == estimate:
            break
        estimate = after
    fitting = max((size for size, taken in tried.items() if taken <= limit), default=0)
    return LargestBatch(fitting, confirmed and fitting == estimate, estimate, dict(sorted(tried.items())))


def promise(tried: Mapping[int, int], step: int, limit: int) -> int:
    """Extrapolate the largest multiple of `step` that fits, by a line through the two sizes nearest to the limit.

    `tried` maps sizes to bytes. The result is at least the largest size that fits, and below the smallest that does
    not; a line that leaves this interval is replaced by one through its ends. (T5-large needs the same memory at batch
    32 and 64 to 0.5 %, because the optimizer update dominates.)
    """
    below = max((size for size, taken in tried.items() if taken <= limit), default=0)
    above = min((size for size, taken in tried.items() if taken > limit), default=LARGEST + step)
    near = sorted(tried, key=lambda size: abs(tried[size] - limit))[:2]
    if len(near) < 2:
        return below
    line = _crossing(tried, near[0], near[1], limit) // step * step
    if line >= above and below and above in tried:
        line = _crossing(tried, below, above, limit) // step * step
    return max(min(line, above - step), below)


def _crossing(tried: Mapping[int, int], first: int, second: int, limit: int) -> int:
    slope = max((tried[second] - tried[first]) / (second - first), 1.0)
    return int(first + (limit - tried[first]) / slope)


@dataclasses.dataclass(frozen=True)
class Loop:
    """One of the loops of a beam search, by size of the cache and number of sentences."""

    steps: int
    positions: int  # for which the cache has room
    flops: float  # of one step on one device


@dataclasses.dataclass(frozen=True)
class Task:
    """A program to compile for all devices of a mesh."""

    name: str  # `training step` or `beam search`
    batch: int  # the global batch size
    bucket: tuple[int, int]  # words and tokens of a sentence; for a search, the maximum number of generated tokens
    arms: str  # how a training step computes several arms on one device: `vmap` or `map`; "" for one arm or a search
    program: Program
    flops: float  # of the matrix products of one execution on one device
    tokens: int  # target positions of one execution over all arms and devices, with padding
    loops: tuple[Loop, ...] = ()  # of a search, in the program's order

    @property
    def trips(self) -> tuple[int, ...]:
        """The trip counts that the program does not state, see `hlo_clock.estimate`."""
        return tuple(loop.steps for loop in self.loops)

    def __str__(self) -> str:
        words, tokens = self.bucket
        how = {"vmap": ", arms side by side", "map": ", arms one after the other"}.get(self.arms, "")
        return f"{self.name}, batch {self.batch}, {words} words, {tokens} tokens{how}"


@dataclasses.dataclass(frozen=True)
class ProgramReport:
    """Memory, communication and time of a program on one device."""

    task: Task
    compiled: Compiled | None  # None if XLA's compiler for GPUs is not installed
    arguments: int  # bytes
    flop_seconds: float  # of the matrix products at the chip's peak
    memory_seconds: float  # to read every argument once at the chip's bandwidth

    @property
    def estimate(self) -> Estimate | None:
        """The compiler's time estimate, if it was requested and the program fits."""
        return self.compiled.estimate if self.compiled else None

    @property
    def share_of_peak(self) -> float:
        """Share of the chip's peak FLOP/s, by the estimated time."""
        return 1e3 * self.flop_seconds / self.estimate.bound

    @property
    def crossing(self) -> dict[str, int]:
        """Bytes of the results of collectives on one device in one execution, by mesh axis."""
        return bytes_by_axis(self._collectives)

    @property
    def across_arms(self) -> list[str]:
        """Collectives across the mesh axis of the arms; there must be none, or arms would wait for each other."""
        return [f"{c.op} of {c.bytes} bytes" for c in self._collectives if ARM in c.axes]

    @property
    def _collectives(self) -> tuple[Collective, ...]:
        return (self.compiled and self.compiled.collectives) or ()


@dataclasses.dataclass(frozen=True)
class Report:
    """The result of `eeg2text preflight` for a configuration."""

    config: Settings
    topology: Topology
    mesh: dict[str, int]  # devices along each mesh axis
    arms: list[str]  # names `condition/seed`
    bucket: tuple[int, int]  # words and tokens of the largest batch
    programs: list[ProgramReport]
    largest: LargestBatch | None  # None if not searched for
    effort: str | None  # a key of `compiling.EFFORTS`; None if nothing was compiled

    @property
    def versions(self) -> dict[str, str]:
        """Of JAX and of the compiler, on which all figures depend."""
        return compiler_versions(self.topology.chip.platform)

    @property
    def limit(self) -> int:
        """Bytes of a device that a program can use."""
        return usable(self.topology.chip)

    @property
    def good(self) -> bool:
        """Whether all programs that a run uses fit, and no collective crosses the mesh axis of the arms."""
        programs = [program for program in self.programs if program.task.arms in ("", self.config.parallel.arms)]
        return all(self.fits(program) and not program.across_arms for program in programs)

    def fits(self, program: ProgramReport) -> bool:
        """Whether a program fits, or without a compiler, its arguments."""
        return (program.compiled.total if program.compiled else program.arguments) <= self.limit


def estimate(
    config: Settings, topology: Topology, effort: str, say: Callable[[str], None] = print, *, largest: bool = True
) -> Report:
    """Compile training step and beam search for a TPU slice (`effort`: a key of `EFFORTS`), or for GPUs.

    Without XLA's compiler for GPUs, they are only lowered. `largest` also searches for the largest batch that fits a
    TPU, with up to six more compilations. Raises UserError if configuration or topology are not usable.
    """
    on_tpu, target = topology.chip.platform == "tpu", None
    if not on_tpu and compiling.has_gpu_compiler():
        target = compiling.TARGETS.get(topology.name.split(":")[0])
    devices: list[jax.Device] | int = topology.shape[0]
    if on_tpu or target:
        devices = (compiling.tpu_devices if on_tpu else compiling.gpu_devices)(topology)
    outline = make_outline(config)
    placement, batch = placement_of(outline.config, len(outline.arms), devices), None
    if on_tpu:
        programs, batch = _compile_for_tpu(outline, placement, topology.chip, effort, say, largest)
    else:
        programs = _compile_for_gpu(outline, placement, topology.chip, target, say)
    mesh, arms = dict(placement.mesh.shape), [str(arm) for arm in outline.arms]
    used = effort if on_tpu else "full" if target else None
    return Report(outline.config, topology, mesh, arms, outline.bucket, programs, batch, used)


def _compile_for_gpu(
    outline: Outline, placement: Placement, chip: Chip, target: GpuTarget | None, say: Callable[[str], None]
) -> list[ProgramReport]:
    """Compile both programs for GPUs; without a `target`, only lower them."""
    programs = []
    for task in (training_task(outline, placement), search_task(outline, placement)):
        compiled = None
        if target:
            say(f"compiling the {task} ...")
            timed = target.matrix_ops > 0
            compiled = compiling.compile_for_gpu(task.program, placement.mesh, chip, task.trips, timed=timed)
        else:
            say(f"lowering the {task.name} ...")
            if refused := compiling.lowers_for(task.program, chip.platform):
                raise UserError(f"the {task.name} cannot be lowered for {chip.platform}: {refused}")
        programs.append(_program_report(task, compiled, chip))
    return programs


def _compile_for_tpu(
    outline: Outline, placement: Placement, chip: Chip, effort: str, say: Callable[[str], None], largest: bool
) -> tuple[list[ProgramReport], LargestBatch | None]:
    """Compile both programs; with full effort also every bucket and arm mapping of the training step."""
    step, limit, size = placement.mesh.shape[DATA], usable(chip), outline.config.batch.size
    tasks = [training_task(outline, placement), search_task(outline, placement)]
    timed = chip if effort == "full" and chip.clock else None
    if timed:
        tasks += [training_task(outline, placement, bucket=bucket) for bucket in outline.buckets[1:]]
        if len(outline.arms) > 1 and placement.mesh.shape[ARM] == 1:  # all arms are on one device
            other = "map" if outline.config.parallel.arms == "vmap" else "vmap"
            tasks.append(training_task(outline.mapped(other), placement))

    def compile_task(task: Task) -> Compiled:
        say(f"compiling the {task} ...")
        return compiling.compile_program(task.program, placement.mesh, effort, timed, task.trips)

    def train(size: int) -> Compiled:
        return compile_task(training_task(outline, placement, size))

    # The compiler uses about 1.5 cores, so two compilations at once are faster.
    with ThreadPoolExecutor(2) as pool:
        begun = [pool.submit(compile_task, task) for task in tasks]
        other = second_size(size, begun[0].result().total, step, limit) if largest else size
        second = begun[0] if other == size else pool.submit(train, other)
        compiled = [task.result() for task in begun]
        bytes_of = {size: compiled[0].total, other: second.result().total}
    programs = [_program_report(task, taken, chip) for task, taken in zip(tasks, compiled, strict=True)]
    return programs, largest_batch(lambda n: train(n).total, bytes_of, step, limit) if largest else None


def usable(chip: Chip) -> int:
    return int(chip.memory * USABLE)


def training_task(
    outline: Outline, placement: Placement, size: int | None = None, bucket: tuple[int, int] | None = None
) -> Task:
    """Return the training step, by default for the configuration's batch size and largest bucket."""
    size, bucket = size or outline.config.batch.size, bucket or outline.bucket
    several = len(outline.arms) > placement.mesh.shape[ARM]
    return Task(
        name="training step",
        batch=size,
        bucket=bucket,
        arms=outline.config.parallel.arms if several else "",
        program=outline.training(placement, size, bucket),
        flops=training_flops(outline.model, size, *bucket) * len(outline.arms) / placement.mesh.size,
        tokens=size * bucket[1] * len(outline.arms),
    )


def search_task(outline: Outline, placement: Placement) -> Task:
    """Return the beam search, for the configuration's batch size."""
    decode, words, model = outline.config.decode, outline.bucket[0], outline.model
    size, length, beams = decode.batch_size, decode.max_length, decode.num_beams
    arms, n_data = len(outline.arms), placement.mesh.shape[DATA]
    platform = platform_of(placement.mesh)
    sizes = model.cache_lengths(beams, length, platform)
    # `beam_search` has a loop for each size of the cache, and for each number of rows, which halves at a compaction.
    # At worst no sentence ends early: the first loops run all steps, the later ones none. The arms of a device are
    # searched in sequence, so a step decodes the rows of one arm.
    spans = list(zip(steps_of(sizes, platform), sizes, strict=True))
    spans += [(0, length) for compaction in range(decode.compactions) if size // n_data >> (compaction + 1)]
    loops = [Loop(steps, end, step_flops(model, size, words, end, beams) / n_data) for steps, end in spans]
    return Task(
        name="beam search",
        batch=size,
        bucket=(words, length),
        arms="",
        program=outline.search(placement),
        flops=search_flops(model, size, words, length, beams, sizes) * arms / placement.mesh.size,
        tokens=size * (length - 1) * arms,
        loops=tuple(loops),
    )


def _program_report(task: Task, compiled: Compiled | None, chip: Chip) -> ProgramReport:
    arguments = task.program.argument_bytes()
    return ProgramReport(task, compiled, arguments, task.flops / chip.flops, arguments / chip.bandwidth)
