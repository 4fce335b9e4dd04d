"""`eeg2text run`, `train`, `decode` and `judge --config=FILE.py --workdir=DIR`, and `export` of a finished run.

`run` is the whole pipeline and resumes if DIR has work in it; `train` and `decode` are its stages; `judge` tunes
LATTEScore's judge. JAX is imported after the arguments are read: a misspelt option should not wait for it.
"""

import argparse
import re
from collections.abc import Callable, Sequence

from eeg2text_jax.errors import UserError, first_line
from eeg2text_jax.judge.fields import RANGES as JUDGE_RANGES
from eeg2text_jax.judge.fields import JudgeSettings
from eeg2text_jax.kinds import read_section
from eeg2text_jax.parallel import ParallelSettings
from eeg2text_jax.parallel.supervisor import supervised
from eeg2text_jax.study.configuration import parse_config


def run(argv: list[str]) -> int:
    """`--folds=5`, or `--folds=subjects`, does it once for each fold, with one verdict over all test parts."""
    arguments = parse_config(argv, "run", options=("workdir",), optional=("folds",), switches=("dry-run",))
    if arguments.options["dry-run"]:
        from eeg2text_jax.dry_run import dry_run

        print(dry_run(arguments.settings, arguments.options["workdir"]))
        return 0

    def work() -> None:
        if arguments.options["folds"]:
            from eeg2text_jax.run_folds import run_folds

            run_folds(arguments.settings, arguments.options["workdir"], arguments.options["folds"])
        else:
            from eeg2text_jax import pipeline

            pipeline.run(arguments.settings, arguments.options["workdir"])

    return _on_hosts("run", arguments.settings.parallel, work)


def train(argv: list[str]) -> int:
    arguments = parse_config(argv, "train", options=("workdir",))

    def work() -> None:
        from eeg2text_jax import opening
        from eeg2text_jax.training.waves import train_arms

        with opening.open_run(arguments.settings, arguments.options["workdir"]) as study:
            train_arms(study)

    return _on_hosts("train", arguments.settings.parallel, work)


def decode(argv: list[str]) -> int:
    arguments = parse_config(argv, "decode", options=("workdir",))

    def work() -> None:
        from eeg2text_jax import opening, pipeline

        with opening.open_run(arguments.settings, arguments.options["workdir"], make=False) as study:
            pipeline.decode(study)

    return _on_hosts("decode", arguments.settings.parallel, work)


def judge(argv: list[str]) -> int:
    arguments = parse_config(argv, "judge", options=("workdir",), optional=("labels",), ranges=JUDGE_RANGES)
    labels = arguments.options["labels"]
    if labels not in ("", "severity", "preserved"):
        raise UserError(
            f"--labels={labels}: expected severity (0 and 1: meaning preserved, 2: lost) or preserved (1: preserved, "
            "0: lost)."
        )
    from eeg2text_jax.judge import session

    settings = read_section(JudgeSettings, arguments.config)
    session.judge(settings, arguments.options["workdir"], labels)  # type: ignore[arg-type]
    return 0


def _on_hosts(name: str, parallel: ParallelSettings, work: Callable[[], None]) -> int:
    """Do the work, supervised where other hosts take part."""
    if parallel.hosts == "one":
        work()
    else:
        supervised(name, work, 2.0 * parallel.heartbeat)
    return 0


def export(argv: Sequence[str]) -> int:
    """The best parameters of one arm of a finished run -> a folder that transformers loads.

    Raises:
      UserError: the workdir holds no finished run, there is no such arm, or the folder cannot be written.
    """
    parser = argparse.ArgumentParser(
        prog="eeg2text export",
        description="Writes config.json, model.safetensors and the tokenizer for transformers, "
        "eeg_encoder.safetensors beside them, and a model card.",
    )
    parser.add_argument("--workdir", required=True, help="folder of the run")
    parser.add_argument("--out", required=True, help="folder to write; it must not exist or be empty")
    parser.add_argument("--arm", default="", help="e.g. eeg/0 (condition/seed); default: the first one trained on EEG")
    parser.add_argument(
        "--push",
        default="",
        metavar="NAME",
        help="also upload to this repository of the Hub, ORG/MODEL, private if it is new; the token is that of "
        "`hf auth login`, or HF_TOKEN",
    )
    flags = parser.parse_args(argv)
    if flags.push:
        check_name(flags.push)
    if not flags.workdir:
        raise UserError("--workdir= is empty; name the folder of a finished run.")
    from eeg2text_jax.finished_run import export_run
    from eeg2text_jax.parallel.distributed import check_devices

    check_devices()
    print(f"wrote {flags.out}: arm {export_run(flags.workdir, flags.out, flags.arm)}")
    if flags.push:
        print(f"pushed to {push_folder(flags.out, flags.push)}")
    return 0


def check_name(name: str) -> None:
    """Raise a UserError unless a name is that of a repository, ORGANIZATION/MODEL."""
    if not re.fullmatch(r"[\w.-]+/[\w.-]+", name):
        raise UserError(f"--push={name}: expected the name of a repository, ORGANIZATION/MODEL.")


def push_folder(folder: str, name: str) -> str:
    """Upload a folder as a model of the Hub, in one commit; a new repository is private. Return its address.

    The token is the one that huggingface_hub finds: HF_TOKEN, or that of `hf auth login`.

    Raises:
      UserError: there is no token, it may not write there, or the Hub cannot be reached.
    """
    from huggingface_hub import HfApi  # 0.3 s, and seldom needed

    api = HfApi()
    try:
        address = api.create_repo(name, private=True, exist_ok=True)
        api.upload_folder(folder_path=folder, repo_id=name, commit_message="Export of eeg2text_jax")
    except Exception as error:  # of HTTP, of names and of tokens; the Hub's library has no common one
        raise UserError(
            f"--push={name}: the Hub refused or cannot be reached ({first_line(error)}); the folder {folder} is "
            "finished: log in with `hf auth login` and upload it with `hf upload`."
        ) from error
    return str(address)
