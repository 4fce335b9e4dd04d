"""The `--help` text of commands that take a configuration, and messages for mistyped options."""

import re
import textwrap
from collections.abc import Sequence

from eeg2text_jax.errors import UserError, nearest
from eeg2text_jax.study.shipped import find_config

OPTIONS = {
    "config": "NAME|FILE.py[:ARGUMENT]: a shipped configuration by name (`eeg2text configs`), or your own file",
    "workdir": "DIR, gs://... or s3://...: the folder of the run; the same command resumes from what is finished there",
    "folds": "K or `subjects`: a run for each fold in DIR/fold_1 and so on, with one verdict over all test parts",
    "dry-run": "show the resolved configuration, the data, memory and time of a run; nothing is made",
    "out": "DATA.h5: the data file to write",
    "labels": "severity or preserved: what labels mean if only 0 and 1 occur. With severity, 0 and 1 say that the "
    "meaning was preserved; with preserved, only 1 does",
    "topology": "v5e:2x4, h100:2, ...: the chips to compile for; they need not be there. v5e (all its slices "
    "of 1 to 256 chips), or a list with commas: a table of the training step on each slice, and a recommendation",
    "chip-batch": "N: rows of the batch on a chip, for several slices; without it, each slice has batch.size",
    "json": "FILE: write all figures there; with several slices, the same command resumes from it",
    "effort": "least (default) or full: how hard the compiler optimizes; full gives its own estimate of time",
    "baseline": "OLD.json: the --json of an earlier call; prints the ratios to it, and what differs besides",
    "steps": "N: steps that are timed (default 20), after all programs are compiled",
    "largest": "yes (default) or no: whether to search for the largest batch that fits",
}

ABOUT = {
    "run": "Prepare the data, train the grid, decode both ways, score and audit; resumes where an earlier run ended.",
    "train": "Train the arms of the grid: the training stage of `eeg2text run`.",
    "decode": "Decode the test part with the best parameters of each arm: the decoding stage of `eeg2text run`.",
    "prepare": "Make one data file of recordings, tables or arrays, and say what was kept and dropped, and why.",
    "judge": "Tune a soft prompt that tells whether a text keeps its reference's meaning, for LATTEScore; resumes.",
    "bench": "Measure training and decoding of a configuration with the programs that `run` runs, on all devices.",
    "preflight": "Compile training and decoding for devices that are not there: memory, fit, communication. Status "
    "1: something does not fit.",
}

_RUN = (
    "data.source", "split.method", "model.checkpoint", "batch.size", "train.steps", "optim.lr", "grid.train_conditions",
    "grid.eval_conditions", "grid.seeds", "decode.num_beams",
)  # fmt: skip
_DECODE = ("num_beams", "max_length", "repetition_penalty", "no_repeat_ngram_size", "length_penalty", "do_sample",
           "temperature", "batch_size", "compactions", "teacher_forced_cut")  # fmt: skip
MOST_USED = {
    "run": _RUN,
    "train": _RUN,
    "decode": tuple(f"decode.{name}" for name in _DECODE),
    "prepare": (
        *(f"data.raw.{name}" for name in ("begin", "end", "text", "texts", "word", "channels", "units")),
        *(f"data.columns.{name}" for name in ("features", "sentence", "subject")),
    ),
    "judge": ("checkpoint", "pairs", "sentences", "encoder", "seeds", "prompt.length", "optim.lr", "batch.size",
              "train.steps", "threshold.precision"),
    "bench": ("model.backbone", "model.checkpoint", "model.dtype", "model.remat", "batch.size", "batch.buckets",
              "decode.batch_size", "grid.train_conditions", "parallel.mesh", "parallel.fsdp"),
    "preflight": ("model.backbone", "model.checkpoint", "model.dtype", "model.remat", "batch.size", "batch.buckets",
                  "train.accumulate", "grid.train_conditions", "parallel.mesh", "parallel.fsdp"),
}  # fmt: skip


def help_text(command: str, usage: str, options: Sequence[str]) -> str:
    """Return the text of `--help`: usage, options with meanings, and the ten fields that are used most."""
    name = "judge" if command == "judge" else "default"
    known = meanings(name)
    shown = [(f"--{option}", OPTIONS[option]) for option in ("config", *options)]
    fields = [(f"--config.{field}", "{1} (default {0})".format(*known[field])) for field in MOST_USED[command]]
    every = f"Every field: `eeg2text configs show {name}`. Configurations: `eeg2text configs`."
    return "\n\n".join(
        [usage, ABOUT[command], f"options:\n{_listed(shown)}", f"fields used most:\n{_listed(fields)}", every]
    )


def check_options(argv: Sequence[str], known: Sequence[str]) -> None:
    """Raise UserError for an option that resembles a known option; the message names the known option."""
    for argument in argv:
        name = argument.removeprefix("--").partition("=")[0]
        near = nearest(name, known, 0.6)
        if argument.startswith("--") and not name.startswith("config.") and near not in (None, name):
            raise UserError(f"--{name}: there is no such option; did you mean --{near}?")


def check_prefix(argument: str, sections: Sequence[str]) -> None:
    """Raise UserError for a field that is given without `--config.`, such as `train.steps=100`."""
    match = re.match(r"-{0,2}((\w+)[.]\w[\w.]*)=", argument)
    if match and match[2] in sections:
        raise UserError(
            f"{match[0].rstrip('=')}: fields of the configuration begin with --config, --config.{match[1]}=..."
        )


def meanings(name: str) -> dict[str, tuple[str, str]]:
    """Return field -> (default, meaning) for a shipped configuration, read from its source text and comments."""
    found: dict[str, tuple[str, str]] = {}
    above: list[str] = []
    for line in find_config(name).read_text(encoding="utf8").splitlines():
        if line.strip().startswith("#"):
            above.append(line.strip(" #"))
            continue
        if match := re.match(r"    c\.([\w.]+) = (.*?)(?:  # (.*))?$", line):
            default = "of the argument" if match[2].startswith("given.") else match[2]
            found.setdefault(match[1], (default, (match[3] or " ".join(above)).strip(". ")))
        above = []
    return found


def _listed(entries: Sequence[tuple[str, str]]) -> str:
    return "\n".join(
        f"  {name}\n{textwrap.fill(meaning, 100, initial_indent=' ' * 6, subsequent_indent=' ' * 6)}"
        for name, meaning in entries
    )
