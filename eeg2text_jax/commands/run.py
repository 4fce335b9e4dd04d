"""Commands that take a configuration: `run`, `train`, `decode`, `judge`, `preflight`, `bench`; and `export`.

JAX is imported after the arguments are read, so that a misspelt option is refused without waiting for JAX.
"""

import argparse
import functools
import json
import os
import re
import sys
from collections.abc import Callable, Sequence

from etils import epath

from eeg2text_jax.base.devices.supervisor import supervised
from eeg2text_jax.base.errors import UserError, first_line
from eeg2text_jax.base.files import write_text
from eeg2text_jax.base.kinds import ParallelSettings, read_section
from eeg2text_jax.base.packages import hide_torch
from eeg2text_jax.judge.fields import RANGES as JUDGE_RANGES
from eeg2text_jax.judge.fields import JudgeSettings
from eeg2text_jax.training.configuration import Arguments, parse_config


def run(argv: list[str]) -> int:
    """Run all stages; `--folds=5` or `--folds=subjects` runs them for each fold, with one verdict over all folds."""
    arguments = parse_config(argv, "run", options=("workdir",), optional=("folds",), switches=("dry-run",))
    settings, workdir = arguments.settings, arguments.options["workdir"]
    if arguments.options["dry-run"]:
        hide_torch()
        from eeg2text_jax.runs.opening import dry_run

        print(dry_run(settings, workdir))
        return 0

    def work() -> None:
        from eeg2text_jax.runs import pipeline

        if folds := arguments.options["folds"]:
            pipeline.run_folds(settings, workdir, folds)
        else:
            pipeline.run(settings, workdir)

    return on_hosts("run", settings.parallel, work)


def train(argv: list[str]) -> int:
    arguments = parse_config(argv, "train", options=("workdir",))

    def work() -> None:
        from eeg2text_jax.runs import opening
        from eeg2text_jax.training.loop import train_arms

        with opening.open_run(arguments.settings, arguments.options["workdir"]) as study:
            train_arms(study)

    return on_hosts("train", arguments.settings.parallel, work)


def decode(argv: list[str]) -> int:
    arguments = parse_config(argv, "decode", options=("workdir",))

    def work() -> None:
        from eeg2text_jax.runs import opening, pipeline

        with opening.open_run(arguments.settings, arguments.options["workdir"], make=False) as study:
            pipeline.decode(study)

    return on_hosts("decode", arguments.settings.parallel, work)


def judge(argv: list[str]) -> int:
    arguments = parse_config(argv, "judge", options=("workdir",), optional=("labels",), ranges=JUDGE_RANGES)
    labels = arguments.options["labels"]
    if labels not in ("", "severity", "preserved"):
        kinds = "severity (0 and 1: meaning preserved, 2: lost) or preserved (1: preserved, 0: lost)"
        raise UserError(f"--labels={labels}: expected {kinds}.")
    hide_torch()
    from eeg2text_jax.judge import session

    settings = read_section(JudgeSettings, arguments.config)
    session.judge(settings, arguments.options["workdir"], labels)  # type: ignore[arg-type]
    return 0


def on_hosts(name: str, parallel: ParallelSettings, work: Callable[[], None]) -> int:
    """Call `work`; on several hosts, in a process that ends when another host is lost."""
    if parallel.hosts == "one":
        hide_torch()
        work()
        return 0

    def join_and_work() -> None:
        from eeg2text_jax.base.devices.hosts import join

        join(parallel)  # before `work` imports much, so that the other hosts soon notice if this one is lost
        hide_torch()
        work()

    supervised(name, join_and_work, 2.0 * parallel.heartbeat)
    return 0


def export(argv: Sequence[str]) -> int:
    """Write the best parameters of one arm of a finished run to a folder that transformers loads.

    The folder has config.json, model.safetensors, the tokenizer, eeg_encoder.safetensors and a model card.
    """
    parser = argparse.ArgumentParser(prog="eeg2text export", description=export.__doc__)
    add = parser.add_argument
    add("--workdir", required=True, help="folder of the run")
    add("--out", required=True, help="folder to write: a new or an empty one")
    add("--arm", default="", help="e.g. eeg/0 (condition/seed); default: the first one trained on EEG")
    push = "also upload to this repository of the Hub, ORG/MODEL, which is private if it is new; the token comes from "
    add("--push", default="", metavar="NAME", help=f"{push}HF_TOKEN or `hf auth login`")
    flags = parser.parse_args(argv)
    if flags.push:
        check_name(flags.push)
    if not flags.workdir:
        raise UserError("--workdir= is empty; name the folder of a finished run.")
    from eeg2text_jax.base.devices.hosts import check_devices
    from eeg2text_jax.runs.exported import export_run

    check_devices()
    print(f"wrote {flags.out}: arm {export_run(flags.workdir, flags.out, flags.arm)}")
    if flags.push:
        print(f"pushed to {push_folder(flags.out, flags.push)}")
    return 0


def check_name(name: str) -> None:
    if not re.fullmatch(r"[\w.-]+/[\w.-]+", name):
        raise UserError(f"--push={name}: expected the name of a repository, ORGANIZATION/MODEL.")


def push_folder(folder: str, name: str) -> str:
    """Upload a folder as a model of the Hub, in one commit; return its URL. A new repository is private.

    The token comes from HF_TOKEN or `hf auth login`. Raises UserError without a token that may write there, or if the
    Hub cannot be reached.
    """
    from huggingface_hub import HfApi  # takes 0.3 s, which an export without --push need not wait for

    api = HfApi()
    try:
        address = api.create_repo(name, private=True, exist_ok=True)
        api.upload_folder(folder_path=folder, repo_id=name, commit_message="Export of eeg2text_jax")
    except Exception as error:  # huggingface_hub's errors of HTTP, names and tokens have no common base class
        raise UserError(
            f"--push={name}: the Hub refused or cannot be reached ({first_line(error)}); the folder {folder} is "
            "finished: log in with `hf auth login` and upload it with `hf upload`."
        ) from error
    return str(address)


# Without these, libtpu would search for a TPU and for cloud metadata, and log at length that both are missing.
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
    ranges, optional = JUDGE_RANGES if of_judge else None, ("json", "effort", "largest", "chip-batch")
    arguments = parse_config(argv, "preflight", options=("topology",), optional=optional, ranges=ranges)
    os.environ.update(ENVIRONMENT)  # before JAX is imported
    hide_torch()
    options = arguments.options
    wanted, effort, largest = options["topology"], options["effort"] or "least", options["largest"] or "yes"
    if not of_judge and ("," in wanted or ":" not in wanted):
        return _scaling(arguments, wanted)
    if options["chip-batch"]:
        raise UserError("--chip-batch needs several slices, for example --topology=v5e.")
    from eeg2text_jax.commands.preflight.compiling import EFFORTS, parse_topology
    from eeg2text_jax.commands.preflight.estimate import estimate
    from eeg2text_jax.commands.preflight.printing import to_json, to_text

    if effort not in EFFORTS:
        raise UserError(f"--effort={effort}: expected one of {', '.join(EFFORTS)}.")
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
    if options["json"]:
        write_text(epath.Path(options["json"]), json.dumps(content, indent=1) + "\n")
    return 0 if good else 1


def _scaling(arguments: Arguments, wanted: str) -> int:
    """Print a table of several slices; the status is 0 if the training step fits one."""
    from eeg2text_jax.commands.preflight.scaling import scaling, slices, to_text

    options = arguments.options
    if unusable := [f"--{name}={options[name]}" for name in ("effort", "largest") if options[name]]:
        raise UserError(f"{unusable[0]} does not work with several slices; remove it, or name one slice.")
    rows = options["chip-batch"]
    if rows and not (rows.isdecimal() and 1 <= int(rows) <= 65536):
        what = "the rows of the batch on one chip, a whole number from 1 to 65,536"
        raise UserError(f"--chip-batch={rows}: expected {what}; leave it out to have batch.size on every slice.")
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
