"""`eeg2text preflight` (memory and time on absent devices) and `eeg2text bench` (speed on this machine)."""

import functools
import json
import os
import re
import sys

from etils import epath

from eeg2text_jax.base.errors import UserError
from eeg2text_jax.base.files import write_text
from eeg2text_jax.base.kinds import read_section
from eeg2text_jax.base.packages import hide_torch
from eeg2text_jax.commands.run import on_hosts
from eeg2text_jax.judge.fields import RANGES as JUDGE_RANGES
from eeg2text_jax.judge.fields import JudgeSettings
from eeg2text_jax.training.configuration import Arguments, parse_config

# libtpu only compiles here. Without these variables it would search for a TPU and for cloud metadata, and log at length
# that both are missing.
ENVIRONMENT = {
    "JAX_PLATFORMS": "cpu",
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_WORKER_HOSTNAMES": "localhost",
    "TPU_ACCELERATOR_TYPE": "v5litepod-8",  # any topology works here
    "TPU_STDERR_LOG_LEVEL": "3",
    "TPU_MIN_LOG_LEVEL": "3",
}


def preflight(argv: list[str]) -> int:
    """Compile training and decoding, or the tuning of a judge, for devices that are not present, and print a report.

    With several slices (`--topology=v5e`, or names with commas), print a table of the training step on each.
    The status is 0 if both programs fit and no collective crosses the mesh axis of the arms, else 1.
    """
    of_judge = any(re.match(r"--config=(.*[/\\])?judge(\.py)?(:|$)", argument) for argument in argv)
    ranges = JUDGE_RANGES if of_judge else None
    arguments = parse_config(
        argv, "preflight", options=("topology",), optional=("json", "effort", "largest", "chip-batch"), ranges=ranges
    )
    os.environ.update(ENVIRONMENT)  # before JAX is imported
    hide_torch()
    wanted = arguments.options["topology"]
    if not of_judge and ("," in wanted or ":" not in wanted):
        return _scaling(arguments, wanted)
    if arguments.options["chip-batch"]:
        raise UserError("--chip-batch needs several slices, for example --topology=v5e.")
    effort = arguments.options["effort"] or "least"
    from eeg2text_jax.commands.preflight.compiling import EFFORTS, parse_topology
    from eeg2text_jax.commands.preflight.estimate import estimate
    from eeg2text_jax.commands.preflight.printing import to_json, to_text

    if effort not in EFFORTS:
        raise UserError(f"--effort={effort}: expected one of {', '.join(EFFORTS)}.")
    largest = arguments.options["largest"] or "yes"
    if largest not in ("yes", "no"):
        raise UserError(f"--largest={largest}: expected yes or no (whether to search for the largest batch that fits).")
    if of_judge:
        from eeg2text_jax.commands.preflight.judge_fit import judge_fit, smallest_slice

        settings = read_section(JudgeSettings, arguments.config)
        if ":" in wanted:
            fit = judge_fit(settings, parse_topology(wanted), effort)
        else:
            fit = smallest_slice(settings, wanted.lower(), effort, print)
            print(f"the smallest slice that this judge fits: {fit.topology}")
        good, text, content = fit.good, str(fit), fit.to_json()
    else:
        say = functools.partial(print, file=sys.stderr)
        report = estimate(arguments.settings, parse_topology(wanted), effort, say, largest=largest == "yes")
        good, text, content = report.good, to_text(report), to_json(report)
    print(text)
    if arguments.options["json"]:
        write_text(epath.Path(arguments.options["json"]), json.dumps(content, indent=1) + "\n")
    return 0 if good else 1


def _scaling(arguments: Arguments, wanted: str) -> int:
    """Print a table of the training step on several slices; the status is 0 if it fits one."""
    from eeg2text_jax.commands.preflight.scaling import scaling, slices, to_text

    options = arguments.options
    if unusable := [f"--{name}={options[name]}" for name in ("effort", "largest") if options[name]]:
        raise UserError(f"{unusable[0]} does not work with several slices; remove it, or name one slice.")
    rows = options["chip-batch"]
    if rows and not (rows.isdecimal() and 1 <= int(rows) <= 65536):
        raise UserError(
            f"--chip-batch={rows}: expected the rows of the batch on one chip, a whole number from 1 to 65,536; leave "
            "it out to have batch.size on every slice."
        )
    path = epath.Path(options["json"]) if options["json"] else None
    say = functools.partial(print, file=sys.stderr, flush=True)
    scaled = scaling(arguments.settings, slices(wanted), int(rows or 0), path, say)
    print(to_text(scaled))
    return 0 if scaled.recommended else 1


def bench(argv: list[str]) -> int:
    """Measure the programs of a configuration; see `commands.bench`."""
    arguments = parse_config(argv, "bench", optional=("json", "baseline", "steps"))
    steps = arguments.options["steps"] or "20"
    if not (steps.isdecimal() and 2 <= int(steps) <= 10000):
        raise UserError(f"--steps={steps}: expected how many steps are timed, a whole number from 2 to 10,000.")

    def work() -> None:
        from eeg2text_jax.commands.bench import bench as measured

        measured(arguments.settings, int(steps), arguments.options["json"], arguments.options["baseline"])

    return on_hosts("bench", arguments.settings.parallel, work)
