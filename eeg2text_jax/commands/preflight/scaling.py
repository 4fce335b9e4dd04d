"""Scaling: the training step of a configuration on TPU slices of 1 to 256 chips, in one table with a recommendation.

The time of a step is the compiler's estimate plus the communication that does not overlap with computation. That is
modelled: the bytes that a chip receives in a ring, divided by the bandwidth of one axis of the torus.
"""

import dataclasses
import itertools
import json
import math
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from etils import epath

from eeg2text_jax.base.chips.hlo_text import bytes_by_axis
from eeg2text_jax.base.devices.mesh import ARM, DATA, GIB, mesh_shape
from eeg2text_jax.base.errors import UserError
from eeg2text_jax.base.files import content_digest, parse_json, write_text
from eeg2text_jax.base.packages import compiler_versions, in_words
from eeg2text_jax.commands.preflight import compiling
from eeg2text_jax.commands.preflight.compiling import SLICES, Compiled, Topology, parse_topology, require_libtpu
from eeg2text_jax.commands.preflight.estimate import training_task, usable
from eeg2text_jax.commands.preflight.programs import Outline, make_outline
from eeg2text_jax.training.sections import Settings
from eeg2text_jax.training.study import placement_of

MOST_CHIPS = 256
SAMPLES = 1e6  # samples that the chip-hours of the table are for
MAX_COST_RATIO = 1.25  # times the least chip-hours: the most that the recommended slice may take
TOO_FEW = 0.5  # fraction of the table's best share of peak below which a slice has too few rows a chip


@dataclasses.dataclass(frozen=True)
class Row:
    """The training step on one slice; what depends on its time may be None."""

    topology: str
    mesh: tuple[int, int]  # devices along the arms and along the batch
    batch: int  # global batch size
    memory: int  # bytes on one chip
    usable: int  # bytes of a chip that a program can use
    traffic: int  # bytes of the results of collectives on one chip
    milliseconds: float | None  # estimated, with exposed communication
    exposed: float | None  # milliseconds of communication that no computation hides
    hidden: float  # share of the communication's time that computation hides; 1 without communication
    share_of_peak: float | None

    @property
    def chips(self) -> int:
        return math.prod(self.mesh)

    @property
    def rows(self) -> int:
        """Of the batch on one chip."""
        return self.batch // self.mesh[1]

    @property
    def good(self) -> bool:
        return self.memory <= self.usable and self.milliseconds is not None

    @property
    def samples_per_second(self) -> float:
        return 1e3 * self.batch / self.milliseconds

    def chip_hours(self, samples: float) -> float:
        """Return the chip-hours in which all arms train on `samples` samples."""
        return samples / self.samples_per_second * self.chips / 3600


@dataclasses.dataclass(frozen=True)
class Scaling:
    """The rows of a table, and for each slice without a row the reason."""

    config: Settings
    arms: int
    bucket: tuple[int, int]  # words and tokens
    rows: list[Row]
    refused: dict[str, str]

    @property
    def recommended(self) -> Row | None:
        """The fastest slice with at most `MAX_COST_RATIO` times the least chip-hours; None if no row is good."""
        good = [row for row in self.rows if row.good]
        most = MAX_COST_RATIO * min((row.chip_hours(SAMPLES) for row in good), default=0.0)
        cheap = (row for row in good if row.chip_hours(SAMPLES) <= most)
        return max(cheap, key=lambda row: row.samples_per_second, default=None)


def slices(wanted: str) -> list[Topology]:
    """Return the slices named with commas; a type alone (`v5e`) means its slices of at most 256 chips.

    Raises UserError for a name that is no known TPU type or slice.
    """
    topologies: list[Topology] = []
    for name in dict.fromkeys(wanted.lower().split(",")):
        every = [parse_topology(f"{name}:{shape}") for shape in SLICES.get(name, ())]
        fitting = [topology for topology in every if math.prod(topology.shape) <= MOST_CHIPS]
        topologies += fitting or [parse_topology(name)]
    if others := [topology.name for topology in topologies if topology.chip.platform != "tpu"]:
        raise UserError(f"--topology={wanted}: {others[0]} is no TPU; a table of several slices is for TPUs only.")
    return topologies


def scaling(
    config: Settings,
    wanted: Sequence[Topology],
    rows: int = 0,
    path: epath.Path | None = None,
    say: Callable[[str], None] = print,
) -> Scaling:
    """Compile the training step of the largest bucket for each slice with full effort, two at a time.

    With `rows` of the batch on a chip, the batch grows with the slice (weak scaling); with 0 it is `batch.size`
    everywhere (strong scaling). The JSON file `path` keeps finished rows, from which the same call resumes. Raises
    UserError if the configuration or `path` is not usable, or libtpu is not installed.
    """
    require_libtpu()
    outline, finished, lock = make_outline(config), _read(path), threading.Lock()
    arms, batches, refused = len(outline.arms), {}, {}
    done, versions = itertools.count(1), compiler_versions("tpu")
    for topology in wanted:
        chips, batch = math.prod(topology.shape), outline.config.batch.size
        try:
            if rows:
                batch = rows * mesh_shape(chips, arms, rows * chips, outline.config.parallel.mesh)[1]
            placement_of(outline.config.changed({"batch.size": batch}), arms, chips)  # raises if it does not divide
            batches[topology] = batch
        except UserError as error:
            refused[topology.name] = str(error)

    def one(topology: Topology) -> Row:
        batch = batches[topology]
        key = content_digest([dataclasses.asdict(outline.config), topology.name, batch, versions])[:16]
        if key not in finished:
            say(f"{topology.name}: compiling, batch {batch} ...")
            row = dataclasses.asdict(compiled_row(outline, topology, batch))
            with lock:
                finished[key] = row
                if path is not None:
                    write_text(path, json.dumps({"versions": versions, "scaling": finished}, indent=1) + "\n")
        say(f"{topology.name}: {next(done)} of {len(batches)} slices done")
        return Row(**{**finished[key], "mesh": tuple(finished[key]["mesh"])})

    with ThreadPoolExecutor(2) as pool:  # the compiler uses about 1.5 cores
        table_rows = list(pool.map(one, batches))
    return Scaling(outline.config, arms, outline.bucket, table_rows, refused)


def compiled_row(outline: Outline, topology: Topology, batch: int) -> Row:
    chip, config = topology.chip, outline.config.changed({"batch.size": batch})
    placement = placement_of(config, len(outline.arms), compiling.tpu_devices(topology))
    task = training_task(outline, placement, batch)
    compiled = compiling.compile_program(task.program, placement.mesh, "full", chip)
    computing = compiled.estimate.bound if compiled.estimate else None
    exposed, hidden = exposed_communication(compiled, computing or 0.0, chip.interconnect)
    spent = computing + exposed if computing is not None else None
    return Row(
        topology=topology.name,
        mesh=(placement.mesh.shape[ARM], placement.mesh.shape[DATA]),
        batch=batch,
        memory=compiled.total,
        usable=usable(chip),
        traffic=sum(bytes_by_axis(compiled.collectives or ()).values()),
        milliseconds=spent,
        exposed=exposed if computing is not None else None,
        hidden=hidden,
        share_of_peak=1e3 * task.flops / chip.flops / spent if spent else None,
    )


def exposed_communication(compiled: Compiled, computing: float, bandwidth: float) -> tuple[float, float]:
    """Return the milliseconds of exposed communication, and the share of its time that is hidden.

    Asynchronous collectives are hidden for at most `computing` milliseconds, synchronous ones never.
    """
    spent = {True: 0.0, False: 0.0}  # by whether it is asynchronous
    for collective in compiled.collectives or ():
        spent[collective.asynchronous] += 1e3 * collective.received * collective.times / bandwidth
    exposed, whole = spent[False] + max(0.0, spent[True] - computing), sum(spent.values())
    return exposed, 1.0 - exposed / whole if whole else 1.0


HEADINGS = "slice,chips,mesh,batch,rows a chip,memory,step,exposed,traffic,hidden,of peak,samples/s,chip-hours"


def to_text(scaled: Scaling) -> str:
    words, tokens = scaled.bucket
    table = [HEADINGS.split(","), *map(_cells, scaled.rows)]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    lines = [
        f"{scaled.arms} arms, {words} words and {tokens} tokens; compiled with full effort, not run",
        f"figures are of {in_words(compiler_versions('tpu'))}",
        "",
    ]
    lines += ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in table]
    lines += [f"{name}: left out, {reason}" for name, reason in scaled.refused.items()]
    peak = max((row.share_of_peak for row in scaled.rows if row.good), default=0.0)
    small = [row.topology for row in scaled.rows if row.good and row.share_of_peak < TOO_FEW * peak]
    lines += ["", LEGEND]
    if small:
        lines.append(f"too few rows a chip (share of peak below {TOO_FEW:.0%} of the best): {', '.join(small)}")
    if best := scaled.recommended:
        lines.append(
            f"recommended: {best.topology}, parallel.mesh={best.mesh[0]},{best.mesh[1]}, batch.size={best.batch}: the "
            f"fastest slice with at most {MAX_COST_RATIO} times the least chip-hours, by these estimates"
        )
        if not scaled.config.train.epochs:
            samples = scaled.config.train.steps * scaled.config.batch.size
            hours = best.chip_hours(samples)
            lines.append(f"  the configuration's {samples:,} samples take {hours:.2f} chip-hours there")
    else:
        lines.append("no slice of the table fits: parallel.fsdp=True, model.remat=True or fewer rows a chip may help")
    return "\n".join(lines)


LEGEND = f"""mesh: devices along the arms and along the batch; batch: of each arm; memory: of one chip
step: time of a training step of all arms, the compiler's estimate plus the exposed communication; nothing was measured
exposed: communication that no computation hides, modelled as rings over both links of one axis of the torus
traffic: results of the collectives on one chip in a step; hidden: share of the communication that computation hides
of peak: share of a chip's bfloat16 FLOP/s; samples/s: of each arm; chip-hours: of the slice, {SAMPLES:,.0f} samples"""


def _cells(row: Row) -> list[str]:
    cells = [row.topology, str(row.chips), f"{row.mesh[0]},{row.mesh[1]}", f"{row.batch:,}", str(row.rows)]
    cells.append(f"{row.memory / GIB:.1f} GiB")
    if row.milliseconds is None:
        return [*cells, "no fit" if row.memory > row.usable else "no time", *[""] * 6]
    return [
        *cells,
        f"{row.milliseconds:.1f} ms" if row.good else "no fit",
        f"{row.exposed:.1f} ms",
        f"{row.traffic / GIB:.2f} GiB",
        f"{row.hidden:.0%}" if row.traffic else "-",
        f"{row.share_of_peak:.0%}",
        f"{row.samples_per_second:,.0f}",
        f"{row.chip_hours(SAMPLES):.1f}",
    ]


def _read(path: epath.Path | None) -> dict[str, Any]:
    if path is None or not path.exists():
        return {}
    try:
        return parse_json(path.read_text())["scaling"]
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(
            f"{path}: is not the table of an earlier preflight of slices; give --json another name, or delete it."
        ) from error
