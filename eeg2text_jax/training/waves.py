"""Train the arms in waves if they do not all fit into device memory: as many as fit, then the next ones.

Arms (training runs of the grid) never communicate, so a wave is a study with some of the arms and its own folder.
"""

import dataclasses
import functools
import json
import math
import os
from typing import Any

import jax
import orbax.checkpoint as ocp

from eeg2text_jax.errors import UserError
from eeg2text_jax.files import write_text
from eeg2text_jax.models.functional import frozen_shapes
from eeg2text_jax.models.reconstruction import ReconstructionModel
from eeg2text_jax.parallel.arms import Divided
from eeg2text_jax.parallel.distributed import is_main, main_decides
from eeg2text_jax.study.grid import placement_of
from eeg2text_jax.study.study import Study
from eeg2text_jax.study.workdir import Workdir, read_object
from eeg2text_jax.training.checkpoint import Checkpoints
from eeg2text_jax.training.grid_program import make_program
from eeg2text_jax.training.loop import TRIVIAL, train
from eeg2text_jax.training.metrics_log import curve, rows_of, write_lines
from eeg2text_jax.training.resume import trained_params
from eeg2text_jax.training.stages import stage_names, stages

STATE_SHARE = 0.7  # share of device memory for training state; the rest is for activations


def train_arms(study: Study) -> None:
    """Train all stages of every arm, wave by wave; finished waves are skipped. Raises the errors of `loop.train`."""
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
    if is_main():
        if len(parts) > 1:
            write_text(study.workdir.metrics, "".join(part.workdir.metrics.read_text() for part in parts))
        study.workdir.record(study.workdir.metrics.name)


def reconstruction_lines(study: Study) -> list[str]:
    """Return a line per arm of a reconstruction stage: best dev loss, and losses of predicting zero and the mean."""
    if not isinstance(study.model, ReconstructionModel):
        return []
    rows, lines = rows_of(study.workdir.metrics), []
    for arm in study.arms:
        best = min(curve(rows, f"dev_loss/{arm}")[1])
        zero, mean = (rows[0][f"{name}/{arm}"] for name in TRIVIAL)
        lines.append(
            f"{study.model.of} of {arm} reconstructed: {study.config.pretrain.loss} {best:.4f} on dev, "
            f"{best / min(zero, mean):.1%} of the best trivial prediction (zero {zero:.4f}, mean over train {mean:.4f})"
        )
    return [*lines, ""]


def restore_log(study: Study) -> None:
    """Restore a deleted `metrics.jsonl` from checkpoints, if all waves have them. All hosts must call this together."""
    if not main_decides(lambda: int(not study.workdir.metrics.exists())):
        return
    lines: list[str] = []
    for part in waves(study):
        shapes = make_program(part.config, part.model, part.arms).state_shapes()
        with Checkpoints(part.workdir.root, read_only=True) as checkpoints:
            restored = checkpoints.restore(jax.tree.map(lambda _: ocp.PLACEHOLDER, shapes))
        if restored is None:
            return
        lines += restored[2]["log"]
    write_lines(study.workdir.root, lines)
    if is_main():
        study.workdir.record(study.workdir.metrics.name)


def waves(study: Study) -> list[Study]:
    """Return a study for each wave (arms trained at the same time); only the study itself if all arms fit."""
    size = main_decides(functools.partial(_arms_at_once, study))
    if size >= len(study.arms):
        return [study]
    parts = []
    for number, start in enumerate(range(0, len(study.arms), size), start=1):
        arms = slice(start, start + size)
        arrays = study.arrays._replace(dropout=study.arrays.dropout[arms])
        workdir = Workdir(study.workdir.root / f"wave_{number}")
        parts.append(dataclasses.replace(study, arms=study.arms[arms], arrays=arrays, workdir=workdir))
    return parts


def trained_arm(study: Study, number: int) -> Any:
    """Return the best parameters of the arm with this number, without the arm axis; see `resume.trained_params`."""
    arm = study.arms[number]
    part = next(part for part in waves(study) if arm in part.arms)
    params, place = trained_params(part), part.arms.index(arm)
    take = functools.partial(jax.tree.map, lambda leaf: leaf[place])
    return params._replace(own=take(params.own)) if isinstance(params, Divided) else take(params)


def _arms_at_once(study: Study) -> int:
    """Return the number of arms in a wave. It is fixed at the first launch, even if another machine resumes the run."""
    wanted, n_arms = int(study.config.parallel.wave), len(study.arms)
    if wanted < 0:
        raise UserError(f"parallel.wave = {wanted}; expected a number of arms, or 0 for all that fit.")
    noted = study.workdir.root / "waves.json"
    if noted.exists():
        size = read_object(noted, advice := "restore the file, or take another --workdir").get("arms_at_once")
        if not isinstance(size, int) or size < 1:
            raise UserError(f"{noted}: arms_at_once is {size!r:.60}; expected a number of arms; {advice}.")
        return size
    if wanted:
        return _even(n_arms, wanted)
    if any((study.workdir.root / name).exists() for name in ("checkpoints", *stage_names(study.config))):
        return n_arms
    size = _arms_that_fit(study)
    if size < n_arms:
        write_text(noted, json.dumps({"arms_at_once": size}) + "\n")
    return size


def _even(n_arms: int, at_once: int) -> int:
    """Return the wave size that spreads arms evenly over the fewest waves: 6 arms, at most 4 at once, give 3."""
    return math.ceil(n_arms / math.ceil(n_arms / at_once))


def _arms_that_fit(study: Study) -> int:
    """Return the largest wave size whose training state fits into device memory; print it if not all arms fit.

    If no size fits, return the smallest.
    """
    arm, memory = bytes_of_an_arm(study), device_memory()
    sizes = sorted({_even(len(study.arms), at_once) for at_once in range(1, len(study.arms) + 1)}, reverse=True)
    size = next((n for n in sizes if _load(study, n, arm) <= STATE_SHARE * memory), sizes[-1])
    if size < len(study.arms) or _load(study, size, arm) > STATE_SHARE * memory:
        advice = "" if study.config.parallel.fsdp else "; parallel.fsdp=True divides the state over several devices"
        print(
            f"an arm's state and gradient take {arm / 2**30:.1f} GiB, a device has {memory / 2**30:.1f} GiB: "
            f"{size} of {len(study.arms)} arms are trained at the same time{advice}."
        )
    return size


def _load(study: Study, n_arms: int, each: int) -> float:
    """Return the bytes per device of `n_arms` arms (`each` bytes) and the frozen model; inf if no mesh fits them."""
    try:
        arm, data = placement_of(study.config, n_arms).mesh.shape.values()
    except UserError:
        return math.inf
    return (n_arms / arm * each + frozen_bytes(study)) / (data if study.config.parallel.fsdp else 1)


def bytes_of_an_arm(study: Study) -> int:
    """Return the bytes of one arm's training state and gradient."""
    shapes = make_program(study.config, study.model, study.arms).state_shapes()
    leaves = [*jax.tree.leaves(shapes), *jax.tree.leaves(shapes.params)]
    return sum(leaf.size * leaf.dtype.itemsize for leaf in leaves) // len(study.arms)


def frozen_bytes(study: Study) -> int:
    """Return the bytes of the frozen parameters that all arms share; 0 if there are none."""
    if not getattr(study.model, "shared_frozen", False):
        return 0
    stored = frozen_shapes(study.model, study.config.model.frozen_dtype)
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(stored))


def device_memory() -> float:
    """Return the memory of one device of this host in bytes; CPU devices share the machine's memory equally."""
    device = jax.local_devices()[0]
    stats = device.memory_stats()
    if stats and "bytes_limit" in stats:
        return stats["bytes_limit"]
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / jax.local_device_count()
