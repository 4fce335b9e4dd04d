"""What all benchmarks share: the description of the machine, and the time of the fastest of several runs."""

import os
import platform
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax

from eeg2text_jax.versions import installed_version

PACKAGES = (
    "jax", "jaxlib", "jax-cuda12-plugin", "libtpu", "flax", "optax", "torch", "transformers", "ctranslate2", "numpy",
)  # fmt: skip
GPU_FIELDS = (
    "name", "driver_version", "clocks.sm", "clocks.max.sm", "clocks.mem", "power.draw", "power.limit",
    "temperature.gpu", "memory.used",
)  # fmt: skip


def describe_machine() -> dict[str, Any]:
    """Return the machine's description for a report."""
    return {
        "devices": [device.device_kind for device in jax.devices()],
        "platform": jax.default_backend(),
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "python": platform.python_version(),
        "versions": {name: version for name in PACKAGES if (version := installed_version(name))},
        "gpus": gpu_state(),
    }


def best_seconds(run: Callable[[], Any], repeats: int = 5) -> float:
    """Return the seconds of the fastest of `repeats` runs, after one that is not timed; wait for JAX's results."""
    jax.block_until_ready(run())
    taken = []
    for _ in range(repeats):
        begun = time.perf_counter()
        jax.block_until_ready(run())
        taken.append(time.perf_counter() - begun)
    return min(taken)


def gpu_state() -> list[dict[str, str]]:
    """Return driver, clocks, power and temperature of every NVIDIA GPU now; empty without `nvidia-smi`.

    A report has this before and after the timed runs: a hot GPU, or one short of power, lowers its clocks.
    """
    if (command := shutil.which("nvidia-smi")) is None:
        return []
    asked = [command, f"--query-gpu={','.join(GPU_FIELDS)}", "--format=csv,noheader"]
    told = subprocess.run(asked, capture_output=True, text=True, check=False)
    lines = told.stdout.splitlines() if told.returncode == 0 else []
    return [dict(zip(GPU_FIELDS, (value.strip() for value in line.split(",")), strict=False)) for line in lines]


def _processor() -> str:
    known = Path("/proc/cpuinfo")
    lines = known.read_text(encoding="utf8", errors="replace").splitlines() if known.exists() else []
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())
