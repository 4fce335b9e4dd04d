"""Calibrate the estimates of `eeg2text preflight --topology=h200:1` with profiles of a GPU.

    python tools/calibrate_gpu.py measure FOLDER    # on a GPU: runs three programs of BART-large and profiles each
    python tools/calibrate_gpu.py fit FOLDER        # anywhere with the extra preflight-cuda: compares with estimates

`measure` writes a file for each program: training steps with batch 32 and 128, and a beam search. It resumes where it
stopped. `fit` compiles the same programs for `--topology` (the GPU that was measured), and fits for each kind of kernel
a factor and a minimum time to the measured totals. It prints the leave-one-out estimates, and writes the corrections to
the package.
"""

import argparse
import functools
import itertools
import json
import math
import re
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.profiler import ProfileData

from eeg2text_jax.base.chips.gpu_clock import (
    MEASURED,
    OPTIONS,
    OTHERS,
    OWN,
    PRODUCTS,
    TOP,
    Correction,
    GpuWalk,
    kind_of,
)
from eeg2text_jax.base.chips.hlo_text import parse_module
from eeg2text_jax.commands.bench import describe_machine
from eeg2text_jax.commands.preflight.compiling import gpu_devices, parse_topology
from eeg2text_jax.commands.preflight.estimate import search_task, training_task
from eeg2text_jax.commands.preflight.programs import make_outline
from eeg2text_jax.models._fused_attention import KERNELS
from eeg2text_jax.training.configuration import parse_config
from eeg2text_jax.training.study import placement_of

sys.path.insert(0, str(Path(__file__).parent / "benchmarks"))
import bench_decode as decode
from workload import OurTraining, make_work

BUCKET = (56, 56)
PROGRAMS = ("training step, batch 32", "training step, batch 128", "beam search, batch 32")
KINDS = {r"nvjet|cutlass|gemm|xmma|splitK": PRODUCTS, KERNELS: OWN, r"stream_executor::cuda::Run": TOP}
FACTORS = np.arange(0.5, 2.01, 0.02)
LEAST = np.arange(0.0, 8.01, 0.1)  # microseconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("measure", "fit"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--topology", default="h200:1", help="the GPU that was measured")
    parser.add_argument("--out", type=Path, default=MEASURED)
    args = parser.parse_args()
    if args.what == "measure":
        measure(args.folder)
    else:
        fit(args.folder, args.topology, args.out)


def measure(folder: Path) -> None:
    """Run and profile the programs that have no file in `folder`."""
    if jax.default_backend() != "gpu":
        raise SystemExit("calibrate_gpu.py measure: JAX finds no GPU here; run it on the GPU that you want to know.")
    folder.mkdir(parents=True, exist_ok=True)
    for program in PROGRAMS:
        if (path := file_of(folder, program)).exists():
            continue
        print(f"{program}: compiling ...", flush=True)
        run = training_run(int(program.split()[-1])) if "training" in program else search_run(int(program.split()[-1]))
        for _ in range(3):
            run()
        kinds = kernels_by_kind(profiled(run))
        path.write_text(json.dumps({"kinds": kinds, "machine": describe_machine()}, indent=1))
        print(f"{program}: {sum(spent for _, spent in kinds.values()):.1f} ms in kernels", flush=True)


def file_of(folder: Path, program: str) -> Path:
    return folder / f"{program.replace(', ', '_').replace(' ', '_')}.json"


def training_run(size: int) -> Callable[[], Any]:
    work = make_work("large", size, (BUCKET,), "bfloat16", remat=True)
    ours, batch = OurTraining(work.program()), work.examples[BUCKET]
    ours.compile(batch)
    return functools.partial(ours.step, batch)


def search_run(size: int) -> Callable[[], Any]:
    return decode.compile_ours(decode.make_work("large", size, *BUCKET, "bfloat16"), size).decode


def profiled(run: Callable[[], Any]) -> ProfileData:
    with tempfile.TemporaryDirectory() as folder:
        with jax.profiler.trace(folder):
            run()
        return ProfileData.from_file(str(next(Path(folder).glob("plugins/profile/*/*.xplane.pb"))))


def kernels_by_kind(data: ProfileData) -> dict[str, tuple[int, float]]:
    """Return kind -> (kernels, milliseconds in all) of a GPU's profile, without copies from the host."""
    counts, spent = Counter(), defaultdict(float)
    planes = (plane for plane in data.planes if plane.name.startswith("/device:GPU"))
    for line in itertools.chain.from_iterable(plane.lines for plane in planes):
        for event in line.events if "Stream" in line.name else ():
            if "H2D" not in event.name:
                kind = next((kind for names, kind in KINDS.items() if re.search(names, event.name)), OTHERS)
                counts[kind] += 1
                spent[kind] += event.duration_ns / 1e6
    return {kind: (counts[kind], spent[kind]) for kind in counts}


def fit(folder: Path, topology: str, out: Path) -> None:
    found = {program: json.loads(file_of(folder, program).read_text()) for program in PROGRAMS}
    given = dict(estimated(topology))
    corrections = {kind: correction(kind, found, given, PROGRAMS) for kind in (PRODUCTS, OWN, OTHERS)}
    report = {}
    for program in PROGRAMS:
        others = [other for other in PROGRAMS if other != program]
        held_out = {kind: correction(kind, found, given, others) for kind in corrections}
        plain, fitted, alone = (total(given[program], by) for by in ({}, corrections, held_out))
        measured = sum(spent for _, spent in found[program]["kinds"].values())
        report[program] = {"measured": measured, "estimated": fitted, "not_corrected": plain, "by_the_others": alone}
        print(
            f"{program}: measured {measured:.1f} ms, not corrected {plain:.1f}, corrected {fitted:.1f}, by the other "
            f"programs' corrections {alone:.1f}"
        )
    for kind, (factor, least) in corrections.items():
        print(f"{kind}: {factor:.2f} times the estimate, at least {least:.1f} us")
    machine = found[PROGRAMS[0]]["machine"]
    told = {"gpu": machine["gpus"][0]["name"], "jax": machine["versions"]["jax"], "date": time.strftime("%Y-%m-%d")}
    rounded = {kind: [round(number, 2) for number in found] for kind, found in corrections.items()}
    report = {name: {what: round(ms, 1) for what, ms in row.items()} for name, row in report.items()}
    text = json.dumps({**told, "corrections": rounded, "programs": report}, indent=1)
    out.write_text(text + "\n", encoding="utf8")
    print(f"wrote {out}")


def estimated(topology: str) -> Iterator[tuple[str, list[tuple[str, float, int]]]]:
    """Yield (program, its instructions as (kind, estimated microseconds, executions)), compiled for a GPU."""
    wanted = parse_topology(topology)
    for program in PROGRAMS:
        print(f"{program}: compiling for {topology} ...", flush=True)
        flags = ["--config.model.dtype=bfloat16", f"--config.batch.buckets=({BUCKET},)", "--config.train.rng=threefry"]
        flags += ["--config.grid.train_conditions=('eeg',)", f"--config.batch.size={program.split()[-1]}"]
        given = parse_config(["--config=paper:backbone=bart,checkpoint=random", *flags], "preflight")
        outline = make_outline(given.settings)
        placement = placement_of(outline.config, 1, gpu_devices(wanted))
        task = (training_task if "training" in program else search_task)(outline, placement)
        compiled = task.program.function.lower(*task.program.arguments).compile(compiler_options=OPTIONS)
        walk = GpuWalk(parse_module(compiled.as_text()), wanted.chip, task.trips, {})
        lines = [(one.instruction, one.times) for one in walk.whole()[0] if one.instruction is not None]
        yield program, [(kind_of(line), 1e3 * (walk.milliseconds(line) or 0.0), times) for line, times in lines]


def total(lines: Iterable[tuple[str, float, int]], by: dict[str, Correction]) -> float:
    """Return the milliseconds of a program's instructions with corrections by kind."""
    return sum(by.get(kind, Correction(1.0, 0.0))(each) * times for kind, each, times in lines if each) / 1e3


def correction(kind: str, found: dict[str, Any], given: dict[str, Any], programs: Iterable[str]) -> Correction:
    """Return the correction that minimizes the sum of log(corrected / measured)**2 over programs."""
    spent = {program: found[program]["kinds"].get(kind, (0, 0.0))[1] for program in programs}
    lines = {
        program: np.array([(each, times) for one, each, times in given[program] if one == kind and each])
        for program in programs
    }
    lines = {program: each for program, each in lines.items() if len(each) and spent[program]}

    def error(factor: float, least: float) -> float:
        sums = {name: (np.maximum(least, factor * each[:, 0]) * each[:, 1]).sum() / 1e3 for name, each in lines.items()}
        return sum(math.log(sums[name] / spent[name]) ** 2 for name in lines)

    return Correction(*map(float, min(itertools.product(FACTORS, LEAST), key=lambda pair: error(*pair))))


if __name__ == "__main__":
    main()
