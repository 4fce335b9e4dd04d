"""What a run leaves behind, for holding two runs against each other."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp

PACE = {"samples_per_s", "tokens_per_s", "input_wait", "mfu"}


def final_checkpoint(workdir: Path) -> tuple[int, dict[str, np.ndarray], dict[str, Any]]:
    """The step of the last checkpoint, every array in it by its name, and what was saved beside them."""
    options = ocp.CheckpointManagerOptions(step_prefix="step")
    with ocp.CheckpointManager(workdir / "checkpoints", options=options) as manager:
        step = manager.latest_step()
        parts = ocp.args.Composite(state=ocp.args.StandardRestore(), info=ocp.args.JsonRestore())
        saved = manager.restore(step, args=parts)
    leaves = jax.tree.leaves_with_path(saved["state"])
    return step, {jax.tree_util.keystr(path): np.asarray(leaf) for path, leaf in leaves}, saved["info"]


def logged_metrics(workdir: Path) -> list[dict[str, float]]:
    """The lines of `metrics.jsonl` without what depends on the machine's pace."""
    return without_pace((workdir / "metrics.jsonl").read_text().splitlines())


def without_pace(lines: Iterable[str]) -> list[dict[str, float]]:
    """Lines of a log without what depends on the machine's pace."""
    return [{name: value for name, value in json.loads(line).items() if name not in PACE} for line in lines]
