"""The preflight of a configuration: its programs, their memory, communication and time."""

import dataclasses
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from eeg2text_jax.errors import UserError
from eeg2text_jax.models.flops import search_flops, step_flops, training_flops
from eeg2text_jax.parallel.mesh import ARM, DATA, Chip
from eeg2text_jax.parallel.placement import Placement
from eeg2text_jax.preflight.compiling import (
    Compiled,
    Topology,
    compile_for_gpu,
    compile_program,
    lowers_for,
    tpu_devices,
)
from eeg2text_jax.preflight.fitting import USABLE, LargestBatch, largest_batch, second_size
from eeg2text_jax.preflight.gpu_target import TARGETS, gpu_devices, has_gpu_compiler
from eeg2text_jax.preflight.hlo import bytes_by_axis
from eeg2text_jax.preflight.hlo_clock import Estimate
from eeg2text_jax.preflight.programs import Outline, Program, make_outline
from eeg2text_jax.study.grid import placement_of
from eeg2text_jax.study.sections import Settings


@dataclasses.dataclass(frozen=True)
class Task:
    """A program to compile, for all devices."""

    name: str  # `training step` or `beam search`
    batch: int  # the global batch size in sentences
    bucket: tuple[int, int]  # words and tokens; for a search, the maximum number of generated tokens
    arms: str  # how a training step computes several arms on one device: `vmap` or `map`
    program: Program  # the jitted program and its argument shapes
    flops: float  # FLOPs of the matrix products in one run on one device
    tokens: int  # target positions of one run over all arms and devices, including padding
    turn_flops: float = 0.0  # FLOPs of one decoding step of a search
    unknown_loops: tuple[int, ...] = ()  # see `hlo_clock.estimate`

    def __str__(self) -> str:
        words, tokens = self.bucket
        how = {"vmap": ", arms side by side", "map": ", arms one after the other"}.get(self.arms, "")
        return f"{self.name}, batch {self.batch}, {words} words, {tokens} tokens{how}"


@dataclasses.dataclass(frozen=True)
class ProgramReport:
    """One program on one device. Bytes and collectives are the compiler's; FLOPs and times are estimated."""

    task: Task  # the program's task
    compiled: Compiled | None  # the compiler's result; None without a compiler (GPUs)
    arguments: int  # bytes of the arguments
    flop_seconds: float  # time of the matrix products at the chip's peak
    memory_seconds: float  # time to read every argument once at the chip's bandwidth

    @property
    def estimate(self) -> Estimate | None:
        """The compiler's time estimate, if it was requested and the program fits."""
        return self.compiled.estimate if self.compiled else None

    @property
    def share_of_peak(self) -> float:
        """Estimated share of the chip's peak FLOP/s."""
        return 1e3 * self.flop_seconds / self.estimate.bound

    @property
    def crossing(self) -> dict[str, int]:
        """Bytes that one device receives in one run, by mesh axis."""
        found = self.compiled.collectives if self.compiled else None
        return bytes_by_axis(found) if found else {}

    @property
    def across_arms(self) -> list[str]:
        """Collectives across the arm axis. There must be none: arms would wait for each other."""
        found = (self.compiled.collectives if self.compiled else None) or ()
        return [f"{c.op} of {c.bytes} bytes" for c in found if ARM in c.axes]


@dataclasses.dataclass(frozen=True)
class Report:
    """The full result of `eeg2text preflight`."""

    config: Settings
    topology: Topology
    mesh: dict[str, int]
    arms: list[str]
    bucket: tuple[int, int]
    programs: list[ProgramReport]
    largest: LargestBatch | None
    effort: str | None  # one of `compiling.EFFORTS`; None if nothing was compiled

    @property
    def limit(self) -> int:
        """Bytes of device memory available to a program."""
        return usable(self.topology.chip)

    @property
    def n_devices(self) -> int:
        return self.mesh[ARM] * self.mesh[DATA]

    @property
    def good(self) -> bool:
        """Whether every program of the configuration fits and no collective crosses the arm axis."""
        programs = [program for program in self.programs if program.task.arms in ("", self.config.parallel.arms)]
        return all(self.fits(program) and not program.across_arms for program in programs)

    def fits(self, program: ProgramReport) -> bool:
        """Return whether a program fits. Without a compiler only its arguments are known: True is not certain then."""
        return (program.compiled.total if program.compiled else program.arguments) <= self.limit


def estimate(
    config: Settings, topology: Topology, effort: str, say: Callable[[str], None] = print, *, largest: bool = True
) -> Report:
    """Compile training step and beam search for a TPU slice with one of `EFFORTS`, or for GPUs.

    Without XLA's compiler for GPUs, the programs are only lowered. `largest`: also search for the largest batch that
    fits, with up to six more compilations.

    Raises:
      UserError: the configuration or the topology is not usable.
    """
    outline = make_outline(config)
    if topology.chip.platform == "tpu":
        return _preflight_tpu(outline, topology, effort, say, largest)
    target = TARGETS.get(topology.name.split(":")[0]) if has_gpu_compiler() else None
    devices = gpu_devices(topology) if target else topology.shape[0]
    placement, programs = placement_of(outline.config, len(outline.arms), devices), []
    for task in (_training(outline, placement), _search(outline, placement)):
        compiled = None
        if target:
            say(f"compiling the {task} ...")
            timed = target.matrix_ops > 0
            compiled = compile_for_gpu(task.program, placement.mesh, topology.chip, task.unknown_loops, timed=timed)
        else:
            say(f"lowering the {task.name} ...")
            if refused := lowers_for(task.program, topology.chip.platform):
                raise UserError(f"the {task.name} cannot be lowered for {topology.chip.platform}: {refused}")
        programs.append(_program_report(task, compiled, topology.chip))
    return _report(outline, placement, topology, programs, None, "full" if target else None)


def _preflight_tpu(
    outline: Outline, topology: Topology, effort: str, say: Callable[[str], None], largest: bool
) -> Report:
    placement = placement_of(outline.config, len(outline.arms), tpu_devices(topology))
    step, limit, size = placement.mesh.shape[DATA], usable(topology.chip), outline.config.batch.size
    tasks = [_training(outline, placement), _search(outline, placement)]
    chip = topology.chip if effort == "full" and topology.chip.clock else None
    if chip:  # times are asked for
        tasks += [_training(outline, placement, bucket=bucket) for bucket in outline.buckets[1:]]
        tasks += _other_mapping(outline, placement)

    def compile_task(task: Task) -> Compiled:
        say(f"compiling the {task} ...")
        return compile_program(task.program, placement.mesh, effort, chip, task.unknown_loops)

    def train(size: int) -> Compiled:
        return compile_task(_training(outline, placement, size))

    # The compiler uses about 1.5 cores, so two concurrent compilations are faster than two in sequence.
    with ThreadPoolExecutor(2) as pool:
        compiling = [pool.submit(compile_task, task) for task in tasks]
        second = first = compiling[0]
        other = second_size(size, first.result().total, step, limit) if largest else size
        if other != size:
            second = pool.submit(train, other)
        compiled = [task.result() for task in compiling]
        known = {size: compiled[0].total, other: second.result().total}
    programs = [_program_report(task, taken, topology.chip) for task, taken in zip(tasks, compiled, strict=True)]
    found = largest_batch(lambda n: train(n).total, known, step, limit) if largest else None
    return _report(outline, placement, topology, programs, found, effort)


def usable(chip: Chip) -> int:
    """Return the bytes of device memory available to a program."""
    return int(chip.memory * USABLE)


def _training(
    outline: Outline, placement: Placement, size: int | None = None, bucket: tuple[int, int] | None = None
) -> Task:
    """Return the training-step task; defaults: the configuration's batch size and its largest bucket."""
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


def _other_mapping(outline: Outline, placement: Placement) -> list[Task]:
    """Return the training step with the other arm mapping (`vmap` or `map`), if a device has several arms."""
    if len(outline.arms) == placement.mesh.shape[ARM] or placement.mesh.shape[ARM] > 1:
        return []
    other = "map" if outline.config.parallel.arms == "vmap" else "vmap"
    return [_training(outline.mapped(other), placement)]


def _search(outline: Outline, placement: Placement) -> Task:
    decode, words = outline.config.decode, outline.bucket[0]
    size, length, beams = decode.batch_size, decode.max_length, decode.num_beams
    arms, n_data = len(outline.arms), placement.mesh.shape[DATA]
    # `beam_search` halves its rows at each compaction. In the worst case no sentence ends early: only loop one runs.
    later = sum(1 for compaction in range(decode.compactions) if size // n_data >> (compaction + 1))
    return Task(
        name="beam search",
        batch=size,
        bucket=(words, length),
        arms="",
        program=outline.search(placement),
        flops=search_flops(outline.model, size, words, length, beams) * arms / placement.mesh.size,
        tokens=size * (length - 1) * arms,
        # FLOPs of one arm on its rows: the arms of a device are searched in sequence.
        turn_flops=step_flops(outline.model, size, words, length, beams) / n_data,
        unknown_loops=(length - 1, *[0] * later),
    )


def _program_report(task: Task, compiled: Compiled | None, chip: Chip) -> ProgramReport:
    arguments = task.program.argument_bytes()
    return ProgramReport(task, compiled, arguments, task.flops / chip.flops, arguments / chip.bandwidth)


def _report(
    outline: Outline,
    placement: Placement,
    topology: Topology,
    programs: list[ProgramReport],
    largest: LargestBatch | None,
    effort: str | None,
) -> Report:
    return Report(
        config=outline.config,
        topology=topology,
        mesh=dict(placement.mesh.shape),
        arms=[str(arm) for arm in outline.arms],
        bucket=outline.bucket,
        programs=programs,
        largest=largest,
        effort=effort,
    )
