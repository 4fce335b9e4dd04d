"""Arms that do not fit into memory at once are trained in waves: as many as fit, then the next ones.

Arms never communicate, so a wave is the study with fewer arms, and a folder of its own for checkpoints and curves.
"""

import dataclasses
import functools
import json
import math
import os
from typing import Any

import jax

from eeg2text_jax.errors import UserError
from eeg2text_jax.files import write_text
from eeg2text_jax.parallel.distributed import is_main, main_decides, main_first
from eeg2text_jax.parallel.placement import Placement
from eeg2text_jax.study.study import Study
from eeg2text_jax.study.workdir import Workdir
from eeg2text_jax.training.loop import logged_lines, make_program, train, trained_params
from eeg2text_jax.training.metrics_log import write_lines
from eeg2text_jax.training.stages import stage_names, stages
from eeg2text_jax.training.trivial import reconstruction_lines

STATE_SHARE = 0.7  # of a device's memory; the rest is for what a step computes


def train_arms(study: Study) -> None:
    """Trains every arm of the study, in waves where they do not fit at once; a wave that is done is passed over.

    Raises:
      UserError, Terminated: see `loop.train`.
    """
    if is_main():
        study.workdir.unrecord(study.workdir.metrics.name)
    parts = waves(study)
    for number, part in enumerate(parts, start=1):
        if len(parts) > 1:
            print(f"wave {number} of {len(parts)}")
        *earlier, text = stages(part)
        for stage in earlier:
            print(stage.workdir.root.name.replace("_", " "))
            train(stage)
            print(*reconstruction_lines(stage), sep="\n", end="")
        train(text)
    if len(parts) > 1 and is_main():
        curves = [(part.workdir.metrics).read_text() for part in parts]
        write_text(study.workdir.metrics, "".join(curves))
    if is_main():
        study.workdir.record(study.workdir.metrics.name)


def restore_log(study: Study) -> None:
    """Writes `metrics.jsonl` again from the checkpoints, which have its lines, where it was removed. For all hosts.

    Raises:
      UserError: a checkpoint is damaged.
    """
    if not main_decides(lambda: int(not study.workdir.metrics.exists())):
        return
    logs = [logged_lines(part) for part in waves(study)]
    if all(lines is not None for lines in logs):
        write_lines(study.workdir.root, [line for lines in logs for line in lines])
        if is_main():
            study.workdir.record(study.workdir.metrics.name)


def waves(study: Study) -> list[Study]:
    """The study in parts whose arms are trained together: one part, the study itself, where all fit.

    Raises:
      UserError: `parallel.wave` is not a number of arms.
    """
    size = main_first(functools.partial(_arms_at_once, study))
    if size >= len(study.arms):
        return [study]
    starts = range(0, len(study.arms), size)
    return [_part(study, slice(start, start + size), number) for number, start in enumerate(starts, start=1)]


def trained_arm(study: Study, number: int) -> Any:
    """Parameters of one arm with the lowest loss on dev.

    Raises:
      UserError: see `loop.trained_params`.
    """
    arm = study.arms[number]
    part = next(part for part in waves(study) if arm in part.arms)
    return jax.tree.map(lambda leaf: leaf[part.arms.index(arm)], trained_params(part))


def _part(study: Study, arms: slice, number: int) -> Study:
    folder = Workdir(study.workdir.root / f"wave_{number}")
    arrays = study.arrays._replace(dropout=study.arrays.dropout[arms])
    return dataclasses.replace(study, arms=study.arms[arms], arrays=arrays, workdir=folder)


def _arms_at_once(study: Study) -> int:
    """Arms of a wave; what a run began with stays, on whatever machine it goes on."""
    wanted, n_arms = int(study.config.parallel.wave), len(study.arms)
    if wanted < 0:
        raise UserError(f"parallel.wave = {wanted}; expected a number of arms, or 0 for all that fit.")
    noted = study.workdir.root / "waves.json"
    if noted.exists():
        return json.loads(noted.read_text())["arms_at_once"]
    if wanted:
        return _even(n_arms, wanted)
    if any((study.workdir.root / name).exists() for name in ("checkpoints", *stage_names(study.config))):
        return n_arms
    size = _arms_that_fit(study)
    if size < n_arms:
        write_text(noted, json.dumps({"arms_at_once": size}) + "\n")
    return size


def _even(n_arms: int, at_once: int) -> int:
    """The size that spreads the arms evenly over as few waves: 6 arms, 4 at once, make waves of 3."""
    return math.ceil(n_arms / math.ceil(n_arms / at_once))


def _arms_that_fit(study: Study) -> int:
    arm, memory = _bytes_of_an_arm(study), device_memory()
    sizes = sorted({_even(len(study.arms), at_once) for at_once in range(1, len(study.arms) + 1)}, reverse=True)
    size = next((n for n in sizes if _load(study, n) * arm <= STATE_SHARE * memory), sizes[-1])
    if size < len(study.arms) or _load(study, size) * arm > STATE_SHARE * memory:
        advice = "" if study.config.parallel.fsdp else "; parallel.fsdp=True divides it over the devices of the batch"
        print(
            f"an arm's state and gradient take {arm / 2**30:.1f} GiB, a device has {memory / 2**30:.1f} GiB: "
            f"{size} of {len(study.arms)} arms are trained at once{advice}."
        )
    return size


def _load(study: Study, n_arms: int) -> float:
    """Arms' worth of state on each device."""
    try:
        arm, data = Placement.from_config(study.config, n_arms).mesh.shape.values()
    except UserError:  # the mesh does not divide so many arms
        return math.inf
    return n_arms / arm / (data if study.config.parallel.fsdp else 1)


def _bytes_of_an_arm(study: Study) -> int:
    """Bytes of the state of an arm and of its gradient."""
    shapes = make_program(study.config, study.model, study.arms).state_shapes()
    leaves = [*jax.tree.leaves(shapes), *jax.tree.leaves(shapes.params)]
    return sum(leaf.size * leaf.dtype.itemsize for leaf in leaves) // len(study.arms)


def device_memory() -> float:
    """Bytes that one device of this host can hold; of CPU devices, their share of the machine's memory."""
    device = jax.local_devices()[0]
    stats = device.memory_stats()
    if stats and "bytes_limit" in stats:
        return stats["bytes_limit"]
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / jax.local_device_count()
