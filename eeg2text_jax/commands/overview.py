"""The commands: what each does, and the function that runs it."""

import importlib
from collections.abc import Callable

# Name of a command -> its line in `eeg2text --help`. A command is a function `argv -> exit status` in a module of
# `eeg2text_jax.commands`, which is imported only when the command runs, so that `eeg2text score` does not wait for JAX.
COMMANDS = {
    "run": "prepare, train the grid, decode (free-running and teacher-forced), score, audit (resumes)",
    "prepare": "recordings or tables -> one data file",
    "check": "what is in a data file, and what is wrong with it",
    "export-data": "a data file -> Parquet, for pandas and datasets",
    "split": "divide a data file into train, dev and test and certify it",
    "leakage": "what the split methods (a) to (f) leak from train to test: the cross-subject paper's Table 1",
    "train": "the training stage of `run`",
    "decode": "the decoding stage of `run`",
    "read": "what would be judged of predictions files: columns, joins, mode, conditions, time, groups, ten rows",
    "score": "metrics of any predictions file",
    "audit": "does the model use the EEG? a verdict for any predictions files",
    "compare": "decoders of the same sentences, side by side",
    "example": "two example files of decoded text, and their verdict",
    "app": "a page in the browser that judges files of decoded text",
    "judge": "tune the judge of LATTEScore: a soft prompt that decides whether a text keeps the meaning",
    "table": "finished runs, or judges, in one table: model, tasks, split, mode, conditions, scores, verdicts",
    "reproduce": "a table or figure of the papers: its price, its missing runs, the table beside the paper's rows",
    "export": "trained parameters -> a folder that transformers loads",
    "records": "results, predictions and what to cite in formats that other tools load",
    "preflight": "compile training and decoding for a TPU that is not present: memory, fit, communication",
    "configs": "the bundled configurations; `copy NAME` writes one to a file for editing",
    "completion": "a script that completes commands and options in bash or zsh",
    "bench": "throughput of the programs that a run runs, on all devices; beside an earlier measurement",
}

# Commands that share a module, as MODULE:FUNCTION; every other command is `main` in the module of its name.
PLACES = {
    **{name: f"run:{name}" for name in ("run", "train", "decode", "judge", "export")},
    **{name: f"data:{name}" for name in ("prepare", "check", "export-data", "split")},
    **{name: f"papers:{name}" for name in ("leakage", "table", "reproduce")},
    **{name: f"devices:{name}" for name in ("preflight", "bench")},
    **{name: f"shell:{name}" for name in ("configs", "completion", "app")},
}


def command(name: str) -> Callable[[list[str]], int]:
    """Import and return the function of a command."""
    module, _, function = PLACES.get(name, f"{name}:main").partition(":")
    return getattr(importlib.import_module(f"eeg2text_jax.commands.{module}"), function.replace("-", "_"))
