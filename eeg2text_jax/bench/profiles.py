"""Measured time by part of the model, from a profile: the measured version of `preflight`'s table."""

import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
from jax.profiler import ProfileData

from eeg2text_jax.errors import UserError
from eeg2text_jax.parallel.mesh import chip_of_device
from eeg2text_jax.preflight.hlo_clock import OTHER, estimate, parts_of
from eeg2text_jax.preflight.hlo_text import parse_module
from eeg2text_jax.preflight.printing import parts_table
from eeg2text_jax.training.pace import start_trace

Row = dict[str, Any]


def profile(run: Callable[[], Any], folder: Path, hlo: str, unknown_loops: Sequence[int] = ()) -> Row:
    """Profile `run` (one program, waited for) into a folder for XProf; return its time by part of the model.

    The result has `measured_ms_by_part`, the time of the device's operations, and on a TPU `estimated_ms_by_part`, the
    compiler's estimate. `hlo` is `compiled.as_text()`; for `unknown_loops` see `hlo_clock.estimate`.

    Raises:
      UserError: the profile has no operation of the program.
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
            f"{written}: holds no operation of the program, so this device's profile cannot be divided into parts."
        )
    chip = chip_of_device(jax.devices()[0].device_kind)
    expected = estimate(hlo, chip.clock, unknown_loops).parts if chip and chip.clock else None
    return {"profile": str(written), "measured_ms_by_part": measured, "estimated_ms_by_part": expected}


def profile_lines(what: str, row: Row) -> list[str]:
    """Format a row of `profile` as text."""
    measured = row["measured_ms_by_part"]
    digits = 1 if sum(measured.values()) > 100 else 3
    return [
        f"{what}: {sum(measured.values()):.{digits}f} ms in operations, measured; {row['profile']}",
        *parts_table(measured, digits, row["estimated_ms_by_part"]),
    ]


def by_part(data: ProfileData, hlo: str) -> dict[str, float]:
    """Sum the milliseconds of one program's operations in a profile by part, the largest first.

    Concurrent operations (on a CPU) all count. Operations that only contain others (loops) do not count.
    """
    parts, known = parts_of(hlo), {line.name for _, line in parse_module(hlo).lines()}
    spent: dict[str, float] = defaultdict(float)
    for name, nanoseconds in _operations(data, re.match(r"HloModule ([\w.-]+)", hlo)[1]):
        if name in parts or name not in known:
            spent[parts.get(name, OTHER)] += nanoseconds / 1e6
    return dict(sorted(spent.items(), key=lambda part: -part[1]))


def _operations(data: ProfileData, module: str) -> Iterator[tuple[str, float]]:
    """Yield (instruction, nanoseconds) for every execution.

    A TPU's operations have their own line in the profile and the instruction's name; GPU kernels and CPU calls carry
    the names of their instruction and module as statistics.
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
