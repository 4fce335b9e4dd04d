"""The preflight of a configuration: two programs, whether they fit, what crosses the mesh, bounds of their time."""

import dataclasses
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

from ml_collections import ConfigDict

from eeg2text_jax.errors import UserError
from eeg2text_jax.parallel.hlo import bytes_by_axis
from eeg2text_jax.parallel.mesh import ARM, DATA
from eeg2text_jax.parallel.placement import Placement
from eeg2text_jax.preflight.chips import Chip, Topology
from eeg2text_jax.preflight.compiling import (
    Compiled,
    compile_program,
    lowers_for,
    tpu_devices,
)
from eeg2text_jax.preflight.fitting import USABLE, LargestBatch, largest_batch, second_size
from eeg2text_jax.preflight.flops import search_flops, training_flops
from eeg2text_jax.preflight.programs import Outline, Program, make_outline


@dataclasses.dataclass(frozen=True)
class ProgramReport:
    """One program on one device. Bytes and collectives are the compiler's; FLOPs and times are a model.

    Fields:
      name: `training step` or `beam search`.
      batch: sentences over all devices.
      compiled: None where there was no compiler to ask (GPUs).
      arguments: bytes that it is called with.
      flops: matrix products of one run.
      flop_seconds: these at the chip's peak.
      memory_seconds: every argument read once at the chip's bandwidth.
    """

    name: str
    batch: int
    compiled: Compiled | None
    arguments: int
    flops: float
    flop_seconds: float
    memory_seconds: float

    @property
    def crossing(self) -> dict[str, int]:
        """Bytes that a device receives in one run, by mesh axis."""
        found = self.compiled.collectives if self.compiled else None
        return bytes_by_axis(found) if found else {}

    @property
    def across_arms(self) -> list[str]:
        """Collectives between arms, which there must not be: arms would wait for each other."""
        found = (self.compiled.collectives if self.compiled else None) or ()
        return [f"{c.op} of {c.bytes} bytes" for c in found if ARM in c.axes]


@dataclasses.dataclass(frozen=True)
class Report:
    """Everything that `eeg2text preflight` prints."""

    config: ConfigDict
    topology: Topology
    mesh: dict[str, int]
    arms: list[str]
    bucket: tuple[int, int]
    programs: list[ProgramReport]
    largest: LargestBatch | None
    effort: str | None  # of the compiler, one of `compiling.EFFORTS`; None where nothing was compiled

    @property
    def limit(self) -> int:
        """Bytes that a program may take."""
        return usable(self.topology.chip)

    @property
    def n_devices(self) -> int:
        return self.mesh[ARM] * self.mesh[DATA]

    @property
    def good(self) -> bool:
        """Whether everything fits and the arms do not communicate."""
        return all(self.fits(program) and not program.across_arms for program in self.programs)

    def fits(self, program: ProgramReport) -> bool:
        """On a GPU only the arguments are known, so False is certain and True is not."""
        return (program.compiled.total if program.compiled else program.arguments) <= self.limit


def preflight(config: ConfigDict, topology: Topology, effort: str, say: Callable[[str], None] = print) -> Report:
    """Compiles training step and beam search for a TPU slice with one of `EFFORTS`, or lowers them for GPUs.

    Raises:
      UserError: the configuration or the topology is not usable.
    """
    outline = make_outline(config)
    if topology.chip.platform == "tpu":
        return _preflight_tpu(outline, topology, effort, say)
    placement = Placement.from_config(config, len(outline.arms), topology.shape[0])
    programs = []
    for kind in _both(outline, placement):
        name, _, program = kind
        say(f"lowering the {name} ...")
        if refused := lowers_for(program, topology.chip.platform):
            raise UserError(f"the {name} cannot be lowered for {topology.chip.platform}: {refused}")
        programs.append(_program_report(kind, None, outline, placement, topology.chip))
    return _report(outline, placement, topology, programs, None, None)


def _preflight_tpu(outline: Outline, topology: Topology, effort: str, say: Callable[[str], None]) -> Report:
    placement = Placement.from_config(outline.config, len(outline.arms), tpu_devices(topology))
    kinds, step, limit = list(_both(outline, placement)), placement.mesh.shape[DATA], usable(topology.chip)
    train_kind, search_kind = kinds
    size = train_kind[1]

    def compile_kind(kind: Kind) -> Compiled:
        name, size, program = kind
        say(f"compiling the {name}, batch {size} ...")
        return compile_program(program, placement.mesh, effort)

    def train(size: int) -> Compiled:
        return compile_kind((train_kind[0], size, outline.training(placement, size)))

    # The compiler uses about one and a half cores, so that two compilations at a time take less than one by one.
    with ThreadPoolExecutor(2) as pool:
        first, searched = pool.submit(compile_kind, train_kind), pool.submit(compile_kind, search_kind)
        other = second_size(size, first.result().total, step, limit)
        second = pool.submit(train, other) if other != size else first
        compiled = (first.result(), searched.result())
        known = {size: compiled[0].total, other: second.result().total}
    programs = [
        _program_report(kind, taken, outline, placement, topology.chip)
        for kind, taken in zip(kinds, compiled, strict=True)
    ]
    largest = largest_batch(lambda n: train(n).total, known, step, limit)
    return _report(outline, placement, topology, programs, largest, effort)


def usable(chip: Chip) -> int:
    """Bytes that a program may take."""
    return int(chip.memory * USABLE)


Kind = tuple[str, int, Program]  # name, batch, program


def _both(outline: Outline, placement: Placement) -> Iterator[Kind]:
    size = int(outline.config.batch.size)
    yield "training step", size, outline.training(placement, size)
    yield "beam search", int(outline.config.decode.batch_size), outline.search(placement)


def _program_report(
    kind: Kind, compiled: Compiled | None, outline: Outline, placement: Placement, chip: Chip
) -> ProgramReport:
    (name, size, program), (words, tokens) = kind, outline.bucket
    if name == "training step":
        flops = training_flops(outline.model, size, words, tokens)
    else:
        decode = outline.config.decode
        flops = search_flops(outline.model, size, words, int(decode.max_length), int(decode.num_beams))
    flops *= len(outline.arms) / placement.mesh.size
    arguments = program.argument_bytes()
    return ProgramReport(name, size, compiled, arguments, flops, flops / chip.flops, arguments / chip.bandwidth)


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
