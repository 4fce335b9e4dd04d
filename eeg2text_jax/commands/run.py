"""`eeg2text run`, `train`, `decode` and `judge --config=FILE.py --workdir=DIR`, and `export` of a finished run.

`run` does all stages, `train` and `decode` one stage each, and `judge` tunes LATTEScore's judge; all resume an earlier
run in DIR. JAX is imported after the arguments are read, so that the message on a misspelt option comes at once.
"""

import argparse
import re
from collections.abc import Callable, Sequence

from eeg2text_jax.base.devices.supervisor import supervised
from eeg2text_jax.base.errors import UserError, first_line
from eeg2text_jax.base.kinds import ParallelSettings, read_section
from eeg2text_jax.base.packages import hide_torch
from eeg2text_jax.judge.fields import RANGES as JUDGE_RANGES
from eeg2text_jax.judge.fields import JudgeSettings
from eeg2text_jax.training.configuration import parse_config


def run(argv: list[str]) -> int:
    """Run all stages; `--folds=5` or `--folds=subjects` runs them for each fold, with one verdict over all folds."""
    arguments = parse_config(argv, "run", options=("workdir",), optional=("folds",), switches=("dry-run",))
    if arguments.options["dry-run"]:
        hide_torch()
        from eeg2text_jax.runs.opening import dry_run

        print(dry_run(arguments.settings, arguments.options["workdir"]))
        return 0

    def work() -> None:
        from eeg2text_jax.runs import pipeline

        if arguments.options["folds"]:
            pipeline.run_folds(arguments.settings, arguments.options["workdir"], arguments.options["folds"])
        else:
            pipeline.run(arguments.settings, arguments.options["workdir"])

    return on_hosts("run", arguments.settings.parallel, work)


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
        raise UserError(
            f"--labels={labels}: expected severity (0 and 1: meaning preserved, 2: lost) or preserved (1: preserved, "
            "0: lost)."
        )
    hide_torch()
    from eeg2text_jax.judge import session

    settings = read_section(JudgeSettings, arguments.config)
    session.judge(settings, arguments.options["workdir"], labels)  # type: ignore[arg-type]
    return 0


def on_hosts(name: str, parallel: ParallelSettings, work: Callable[[], None]) -> int:
    """Call `work`; if a run has several hosts, in a process that ends when another host is lost."""
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
    parser.add_argument("--workdir", required=True, help="folder of the run")
    parser.add_argument("--out", required=True, help="folder to write: a new or an empty one")
    parser.add_argument("--arm", default="", help="e.g. eeg/0 (condition/seed); default: the first one trained on EEG")
    push = "also upload to this repository of the Hub, ORG/MODEL, which is private if it is new; the token comes from "
    push += "HF_TOKEN or `hf auth login`"
    parser.add_argument("--push", default="", metavar="NAME", help=push)
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
    """Raise UserError unless a name has the form ORGANIZATION/MODEL of a repository on the Hub."""
    if not re.fullmatch(r"[\w.-]+/[\w.-]+", name):
        raise UserError(f"--push={name}: expected the name of a repository, ORGANIZATION/MODEL.")


def push_folder(folder: str, name: str) -> str:
    """Upload a folder as a model of the Hub, in one commit, and return the repository's URL; a new one is private.

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
