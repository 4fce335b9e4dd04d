"""`eeg2text run --dry-run`: report what a run would do and cost, without writing its workdir."""

import contextlib
import io
import json
import os
import tempfile
import time

import jax
import jax.numpy as jnp

from eeg2text_jax.auditing.notices import MIN_JUDGED
from eeg2text_jax.models.flops import training_flops
from eeg2text_jax.opening import check_before
from eeg2text_jax.splits.certificate import size_lines, verdict
from eeg2text_jax.study.config_file import open_workdir
from eeg2text_jax.study.configuration import UNKNOWN, differences, load_config, to_json
from eeg2text_jax.study.lengths import lines
from eeg2text_jax.study.sections import Settings
from eeg2text_jax.study.study import Study, open_study
from eeg2text_jax.training.waves import bytes_of_an_arm, frozen_bytes

GIB = 1 << 30
SIDE = 1024  # rows and columns of the matrices with which `product_pace` measures the device


def dry_run(config: Settings, root: str) -> str:
    """Return a report of what a run of this configuration in the workdir `root` would do.

    The data are prepared in a temporary folder, because steps and cost depend on the number of samples. Raises
    UserError if the configuration or the data is not usable.
    """
    check_before(config)
    with tempfile.TemporaryDirectory(prefix="eeg2text_dry_") as folder:
        with contextlib.redirect_stdout(io.StringIO()):
            study = open_study(config, open_workdir(f"{folder}/run", config))
        about = [*configuration_lines(study.config), *data_lines(study), *cost_lines(study)]
    there = "which has files already, and would be resumed or refused" if os.path.exists(root) else "a new folder"
    return "\n".join([*about, f"workdir: {root}, {there}; nothing was made."])


def configuration_lines(config: Settings) -> list[str]:
    """Return lines on the fields that differ from configs/default.py."""
    ours, usual = (json.loads(to_json(one)) for one in (config.document, load_config("default")))
    found = [line.replace(UNKNOWN, "no default").replace("there ", "default ") for line in differences(ours, usual)]
    return [f"configuration: {len(found)} fields differ from the defaults", *(f"  {line}" for line in found)]


def data_lines(study: Study) -> list[str]:
    """Return lines on the samples, the parts of the split, what leaks between them, and the steps of an epoch."""
    data = study.data
    certificate = json.loads(study.workdir.split.read_text(encoding="utf8"))
    texts = {name: len(set(data.sentence[rows])) for name, rows in study.split.parts.items()}
    parts = [f"{name} {len(rows)} samples of {texts[name]} texts" for name, rows in study.split.parts.items()]
    tested = texts["test"]
    few = f"note: {tested} test texts; a verdict needs {MIN_JUDGED}: add data, or test each text once by --folds=5"
    return [
        f"data: {len(data)} samples of {len(set(data.subject))} subjects, {data.n_features} features a position "
        f"({data.features_are.partition(';')[0]})",
        f"split {study.config.split.method}: {', '.join(parts)}; {verdict(certificate)}",
        *size_lines(certificate),
        *([few] if tested < MIN_JUDGED else []),
        *lines(study.config, len(study.split.parts["train"])),
    ]


def cost_lines(study: Study) -> list[str]:
    """Return lines on the arms, the number of parameters, the minimum memory, and the time of the matrix products."""
    config, model = study.config, study.model
    weights = sum(leaf.size for leaf in jax.tree.leaves(model.shapes))
    least = len(study.arms) * bytes_of_an_arm(study) + frozen_bytes(study)
    words, tokens = config.batch.buckets[-1]
    flops = config.train.steps * len(study.arms) * training_flops(model, config.batch.size, words, tokens)
    pace = product_pace()
    return [
        f"arms: {', '.join(map(str, study.arms))}; {config.train.steps} steps of {config.batch.size} samples; tested "
        f"with {', '.join(config.grid.eval_conditions)}",
        f"model: {weights:,} parameters an arm; memory at least {least / GIB:.2f} GiB for all arms (parameters, "
        "gradient, optimizer, best parameters; activations come on top, `eeg2text preflight` counts them)",
        f"time: at most {flops / pace / 60:.1f} min of matrix products in training at {pace / 1e9:.0f} GFLOP/s, "
        f"measured on {jax.devices()[0].device_kind}; compilation, decoding and scoring come on top",
    ]


def product_pace() -> float:
    """Measure the speed of float32 matrix products on the first device, in FLOP/s."""
    product = jax.jit(jnp.matmul)
    matrix = jnp.ones((SIDE, SIDE), jnp.float32)
    product(matrix, matrix).block_until_ready()
    count, start = 0, time.perf_counter()
    while (spent := time.perf_counter() - start) < 0.3 or not count:
        product(matrix, matrix).block_until_ready()
        count += 1
    return 2.0 * SIDE**3 * count / spent
