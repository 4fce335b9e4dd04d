"""Timing for benchmarks: the seconds of repeated runs, and a profile's time by part of the model."""

import json
import re
import time
import timeit
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import jax
from jax.profiler import ProfileData

from eeg2text_jax.base.chips.hlo_clock import OTHER, estimate, parts_of
from eeg2text_jax.base.chips.hlo_text import parse_module
from eeg2text_jax.base.devices.mesh import chip_of_device
from eeg2text_jax.base.errors import UserError
from eeg2text_jax.commands.preflight.printing import parts_table
from eeg2text_jax.training.metrics_log import start_trace

Key = TypeVar("Key", bound=Hashable)
Input = TypeVar("Input")


def write_report(report: dict[str, Any], path: str) -> None:
    if path:
        Path(path).write_text(json.dumps(report, indent=1), encoding="utf8")


def best_seconds(run: Callable[[], Any], repeats: int = 5) -> float:
    """Return the seconds of the fastest of `repeats` runs, including the wait for JAX; the first run is not timed."""
    jax.block_until_ready(run())
    return min(timeit.repeat(lambda: jax.block_until_ready(run()), number=1, repeat=repeats))


def alternate(
    contestants: Mapping[str, Callable[[Input], Any]],
    inputs: Mapping[Key, Input],
    repeats: int,
    *,
    warm_each: bool = False,
) -> dict[tuple[str, Key], list[float]]:
    """Time every contestant on every input; return (contestant, key of the input) -> seconds of each run.

    The contestants take turns, so that other load on the machine affects all of them. `warm_each`: an untimed run
    before each, as in training. Otherwise a step waits for memory that another program freed: 3 of 11 seconds on a
    virtual machine that returns free pages to its host.
    """
    seconds: dict[tuple[str, Key], list[float]] = defaultdict(list)
    for _ in range(repeats):
        for key, argument in inputs.items():
            for name, run in contestants.items():
                if warm_each:
                    run(argument)
                start = time.perf_counter()
                run(argument)
                seconds[name, key].append(time.perf_counter() - start)
    return dict(seconds)


def profile(run: Callable[[], Any], folder: Path, hlo: str, unknown_loops: Sequence[int] = ()) -> dict[str, Any]:
    """Profile one run; return its milliseconds by part, measured and, on a TPU, estimated by the compiler.

    `hlo`: optimized HLO of the program; `unknown_loops`: trip counts that it does not state. Raises UserError if the
    profile has no operation of the program.
    """
    start_trace(str(folder))
    try:
        run()
    finally:
        jax.profiler.stop_trace()
    written = max(folder.glob("plugins/profile/*/*.xplane.pb"), key=lambda path: path.stat().st_mtime)
    measured = by_part(ProfileData.from_file(str(written)), hlo)
    if not measured:
        raise UserError(
            f"{written}: has no operation of the program, so this device's profile cannot be divided into parts."
        )
    chip = chip_of_device(jax.devices()[0].device_kind)
    expected = estimate(hlo, chip.clock, unknown_loops).parts if chip and chip.clock else None
    return {"profile": str(written), "measured_ms_by_part": measured, "estimated_ms_by_part": expected}


def profile_lines(title: str, row: dict[str, Any]) -> list[str]:
    measured = row["measured_ms_by_part"]
    digits = 1 if sum(measured.values()) > 100 else 3
    return [
        f"{title}: {sum(measured.values()):.{digits}f} ms in operations, measured; {row['profile']}",
        *parts_table(measured, digits, row["estimated_ms_by_part"]),
    ]


def by_part(data: ProfileData, hlo: str) -> dict[str, float]:
    """Sum the milliseconds of one program's operations by part of the model, largest first.

    Concurrent operations (on a CPU) all count. The operations inside a loop count, the loop itself does not.
    """
    parts, names = parts_of(hlo), {line.name for _, line in parse_module(hlo).lines()}
    spent: dict[str, float] = defaultdict(float)
    for name, nanoseconds in _operations(data, re.match(r"HloModule ([\w.-]+)", hlo)[1]):
        if name in parts or name not in names:
            spent[parts.get(name, OTHER)] += nanoseconds / 1e6
    return dict(sorted(spent.items(), key=lambda part: -part[1]))


def _operations(data: ProfileData, module: str) -> Iterator[tuple[str, float]]:
    """Yield (instruction, nanoseconds) for every executed operation of an HLO module.

    In a TPU's profile, events of the line `XLA Ops` are named after instructions; events of GPUs and CPUs have the
    names of instruction and module in their statistics.
    """
    for plane in data.planes:
        for line in plane.lines:
            on_tpu = plane.name.startswith("/device:TPU")
            if on_tpu and line.name != "XLA Ops":
                continue
            for event in line.events:
                stats = dict(event.stats)
                name = stats.get("hlo_op") or (event.name if on_tpu else None)
                if name and stats.get("hlo_module", module).split("(")[0] == module:
                    yield re.match(r"%?([\w.-]*)", name)[1], event.duration_ns
