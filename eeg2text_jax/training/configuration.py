"""Parse the command line (`--config=NAME --config.section.field=value ...`) into a configuration."""

import argparse
import contextlib
import dataclasses
import functools
import json
import re
import textwrap
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from absl import flags
from etils import epath
from ml_collections import ConfigDict, config_flags

from eeg2text_jax.base.errors import UserError, did_you_mean, first_line, named, nearest
from eeg2text_jax.base.files import remove, write_text
from eeg2text_jax.base.kinds import Range, with_pairs
from eeg2text_jax.instrument.workdir import (
    PLACES,
    REMOVED,
    RENAMED,
    STAGES,
    Workdir,
    check_ours,
    from_stage,
    is_same_place,
    portable,
    read_configuration,
    stage_of,
    stored_digest,
)
from eeg2text_jax.training import sections
from eeg2text_jax.training import sections as lengths
from eeg2text_jax.training.sections import RANGES, Settings, check_config, read_settings, refusal, shortly
from eeg2text_jax.training.shipped import find_config, run_config

# The `--help` text of commands that take a configuration, and messages for mistyped options.

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
    described = meanings(name)
    shown = [(f"--{option}", OPTIONS[option]) for option in ("config", *options)]
    fields = [(f"--config.{field}", "{1} (default {0})".format(*described[field])) for field in MOST_USED[command]]
    every = f"Every field: `eeg2text configs show {name}`. Configurations: `eeg2text configs`."
    return "\n\n".join(
        [usage, ABOUT[command], f"options:\n{_listed(shown)}", f"fields used most:\n{_listed(fields)}", every]
    )


def check_options(argv: Sequence[str], options: Sequence[str]) -> None:
    """Raise UserError for an option that resembles a known option; the message names the known option."""
    for argument in argv:
        name = argument.removeprefix("--").partition("=")[0]
        near = nearest(name, options, 0.6)
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
    described: dict[str, tuple[str, str]] = {}
    above: list[str] = []
    for line in find_config(name).read_text(encoding="utf8").splitlines():
        if line.strip().startswith("#"):
            above.append(line.strip(" #"))
            continue
        if match := re.match(r"    c\.([\w.]+) = (.*?)(?:  # (.*))?$", line):
            default = "of the argument" if match[2].startswith("given.") else match[2]
            described.setdefault(match[1], (default, (match[3] or " ".join(above)).strip(". ")))
        above = []
    return described


def _listed(entries: Sequence[tuple[str, str]]) -> str:
    return "\n".join(
        f"  {name}\n{textwrap.fill(meaning, 100, initial_indent=' ' * 6, subsequent_indent=' ' * 6)}"
        for name, meaning in entries
    )


@dataclasses.dataclass(frozen=True)
class Arguments:
    """A parsed command line: the configuration, the values of options by name, and the positional arguments."""

    config: ConfigDict
    options: dict[str, str]
    positional: list[str]

    @functools.cached_property
    def settings(self) -> Settings:
        """The configuration as typed settings, for commands that check all of its sections."""
        return read_settings(self.config)


def parse_config(
    argv: Sequence[str],
    command: str,
    *,
    options: Sequence[str] = (),
    optional: Sequence[str] = (),
    default: str = "",
    switches: Sequence[str] = (),
    positional: str = "",
    sections: Sequence[str] = (),
    ranges: Mapping[str, Range] | None = None,
) -> Arguments:
    """Parse and check the arguments of a command that takes `--config`; every mistake in them is a UserError.

    Args:
      argv: arguments after the command's name.
      command: the command's name, for messages.
      options: names of required options, e.g. `workdir` for `--workdir=DIR`.
      optional: names of optional options; the value of an absent option is "".
      switches: names of options without a value: "yes" if given, otherwise "".
      default: configuration used without `--config`; "": `--config` is required.
      positional: the name of positional arguments in messages; "": the command takes none.
      sections: sections of the configuration to check, namely those that the command reads; empty: all sections.
      ranges: ranges of the fields of a judge's configuration; None: the configuration of a run.
    """
    plain = [*(f"--{name}=..." for name in options), *(f"[--{name}=...]" for name in optional)]
    plain += [f"[--{name}]" for name in switches]
    place = "[--config=NAME|FILE.py]" if default else "--config=NAME|FILE.py"
    wanted = " ".join([*([positional] if positional else []), place, *plain])
    usage = f"usage: eeg2text {command} {wanted} [--config.section.field=value ...]"
    if {"-h", "--help"} & set(argv):
        print(help_text(command, usage, [*options, *optional, *switches]))
        raise SystemExit(0)
    argv = [f"-{argument}" if re.match(r"-config([.=]|$)", argument) else argument for argument in argv]
    check_options(argv, ["config", *options, *optional, *switches])
    switched = {name: "yes" if f"--{name}" in argv else "" for name in switches}
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--config", nargs="?", default=default)
    parsed, argv = parser.parse_known_args([each for each in argv if each.removeprefix("--") not in switches])
    if not parsed.config:
        raise UserError(f"--config is missing; {usage}")
    config = load_config(parsed.config)
    for argument in argv:
        check_prefix(argument, list(config))
        _check_override(config, argument)
    argv = [with_pairs(argument) for argument in _last_of_each(config, argv)]
    values = flags.FlagValues()
    with _short_text(config):
        config_flags.DEFINE_config_dict("config", config, flag_values=values, sys_argv=[command, *argv])
    for name in (*options, *optional):
        if sum(bool(re.match(rf"--?{name}(=|$)", argument)) for argument in argv) > 1:
            raise UserError(f"--{name} is given twice; give it once.")
        flags.DEFINE_string(name, None if name in options else "", "", flag_values=values)
    try:
        rest = values([command, *argv])[1:]
    except (flags.Error, TypeError, ValueError, SyntaxError) as error:
        raise _parsing_error(error, usage, ranges or RANGES) from error
    for name in options:
        if values[name].value is None:
            raise UserError(f"--{name} is missing; {usage}")
        if not values[name].value:
            raise UserError(f"--{name}= is empty; {usage}")
    if rest and not positional:
        raise UserError(f"unexpected argument {rest[0]!r}; {usage}")
    check_config(config, sections, ranges)
    if ranges is None:
        _check_steps_count(config, argv)
    return Arguments(config, switched | {name: values[name].value for name in (*options, *optional)}, list(rest))


class _ShortText(ConfigDict):
    """A configuration with a short text, because absl makes the text of every flag's default."""

    def __str__(self) -> str:
        return "the configuration"


@contextlib.contextmanager
def _short_text(config: ConfigDict) -> Iterator[None]:
    """Shorten a configuration's text inside the context: making the usual YAML would dominate parsing (0.16 s)."""
    usual = type(config)
    object.__setattr__(config, "__class__", _ShortText)
    try:
        yield
    finally:
        object.__setattr__(config, "__class__", usual)


def _check_steps_count(config: ConfigDict, argv: Sequence[str]) -> None:
    """Raise UserError if the command line sets a number of steps that a number of epochs would override."""
    for name, (steps, _) in lengths.epoch_fields(config).items():
        if any(re.match(rf"--config\.{re.escape(steps)}(=|$)", argument) for argument in argv):
            raise UserError(
                f"--config.{steps}: is not used, as {name} is {lengths.field_at(config, name)} and sets the number of "
                f"steps; give --config.{name}=0 too, or the number of epochs alone."
            )


def load_config(place: str) -> ConfigDict:
    """Return the configuration that a file's `get_config` makes, locked against new fields.

    `place` is the user's file or the name of a configuration in the package, with `:ARGUMENT` for an argument of
    `get_config`, e.g. `demo:null`. Raises UserError if there is no such file, or it fails.
    """
    name, colon, argument = place.partition(":")
    path = find_config(name)
    try:
        get_config = run_config(path).get("get_config")
        if not callable(get_config):
            raise UserError(f"{place}: has no function get_config; add one that returns an ml_collections ConfigDict.")
        config = get_config(argument) if colon else get_config()
    except UserError:
        raise
    except (Exception, SystemExit) as error:
        raise UserError(f"{place}: cannot be loaded ({named(error)}).") from error
    if not isinstance(config, ConfigDict):
        raise UserError(
            f"{place}: get_config returns {config!r:.40} ({type(config).__name__}); expected a ConfigDict, such as "
            "configs/default.py returns, with changes."
        )
    return config.lock()


def _last_of_each(config: ConfigDict, argv: Sequence[str]) -> list[str]:
    """Drop all but the last value of a field that is given twice: ml-collections would concatenate two tuples."""
    joined, rest = [], iter(argv)
    for argument in rest:
        bare = argument.startswith("--config.") and "=" not in argument
        if bare and not isinstance(lengths.field_at(config, argument.removeprefix("--config.")), bool):
            argument = f"{argument}={next(rest, '')}"
        joined.append(argument)
    last = {argument.partition("=")[0]: i for i, argument in enumerate(joined) if argument.startswith("--config.")}
    return [argument for i, argument in enumerate(joined) if last.get(argument.partition("=")[0], i) == i]


def _parsing_error(error: Exception, usage: str, ranges: Mapping[str, Range]) -> UserError:
    """Return a UserError for an error of absl's flag parser; the message states the values that the field may have."""
    reason = first_line(error)
    if match := re.match(r"flag --config\.([\w.]+)=(.*?): ", reason):
        name, value = match.groups()
        if name in ranges:
            return refusal(name, value, ranges)
        return UserError(f"--config.{name} is {value!r}; expected a value of the same type as the default.")
    return UserError(f"{reason.rstrip('.')}; {usage}")


def _check_override(config: ConfigDict, argument: str) -> None:
    """Raise UserError if `--config.section.field` names no field of the configuration."""
    if not argument.startswith("--config."):
        return
    node: Any = config
    path: list[str] = []
    for name in argument.removeprefix("--config.").split("=")[0].split("."):
        if not isinstance(node, ConfigDict):
            raise UserError(f"--config.{'.'.join([*path, name])}: `{'.'.join(path)}` is a value, it has no fields.")
        if (renamed := RENAMED.get(".".join([*path, name]))) and name not in node:
            raise UserError(f"--config.{'.'.join([*path, name])} is called --config.{renamed} now.")
        if (why := REMOVED.get(".".join([*path, name]))) and name not in node:
            raise UserError(f"--config.{'.'.join([*path, name])}: is gone since version 1.0; {why}; leave it out.")
        if name not in node:
            siblings = [".".join([*path, other]) for other in node]
            hint = did_you_mean(".".join([*path, name]), siblings) if siblings else "this section is empty."
            if path == ["model", "shape"]:  # transformers defines the fields of this section
                hint += f" Write it into a configuration file of yours: `c.model.shape = {{{name!r}: ...}}`."
            raise UserError(f"--config.{'.'.join([*path, name])}: there is no such field; {hint}")
        node, path = node.get(name), [*path, name]


def to_json(document: Mapping[str, Any]) -> str:
    """Return the text of `config.json` for a configuration."""
    return json.dumps(json.loads(ConfigDict(document).to_json_best_effort()), indent=2, sort_keys=True) + "\n"


UNKNOWN = "there unknown: an older version wrote it"  # what `differences` says of a field that `theirs` lacks


def differences(
    ours: dict[str, Any], theirs: dict[str, Any], places: Collection[str] = (), prefix: str = ""
) -> list[str]:
    """Return a phrase for each field in which two JSON configurations differ: its dotted name and both values.

    Paths in the fields `places` may have been moved, see `workdir.is_same_place`.
    """
    phrases = []
    for name in sorted(ours.keys() | theirs.keys()):
        a, b = ours.get(name), theirs.get(name)
        if isinstance(a, dict) and isinstance(b, dict):
            phrases += differences(a, b, places, f"{prefix}{name}.")
        elif a != b and not (f"{prefix}{name}" in places and is_same_place(a, b, f"{prefix}{name}")):
            there = f"there {shortly(b)}" if name in theirs else UNKNOWN
            phrases.append(f"{prefix}{name} (now {shortly(a)}, {there})")
    return phrases


def fields_digest(document: Mapping[str, Any], stage: str) -> str:
    """Return the hash of a configuration's fields for a stage, see `workdir.stored_digest`."""
    return stored_digest(json.loads(to_json(document)), stage)


# Read, write and check `config.json` of a workdir.
#
# A field may change on a resume until the first stage that depends on it is finished, see `workdir.STAGES`.


def open_workdir(root: str, config: Settings) -> Workdir:
    """Create the workdir, or check that its finished stages were made with the same configuration; write `config.json`.

    Partial files of killed processes are removed. Raises UserError if the folder is not a workdir, or if a field on
    which a finished stage depends has another value in `config.json`.
    """
    workdir = Workdir(epath.Path(root))
    check_ours(workdir.root)
    if workdir.config.exists():
        check_configuration(workdir, config)
        config = sections.with_stored_steps(config, read_configuration(workdir))
        for pattern in (".*.partial", ".*.lock", "*/.*.partial", "*/*/.*.partial"):  # left by killed processes
            for path in workdir.root.glob(pattern):
                remove(path)
    workdir.root.mkdir(parents=True, exist_ok=True)
    write_configuration(workdir, config.document)
    return workdir


def check_configuration(workdir: Workdir, config: Settings) -> None:
    """Raise UserError if `config` and `config.json` differ in a field that a finished stage depends on."""
    stored = read_configuration(workdir)
    differing = differences(json.loads(to_json(sections.with_stored_steps(config, stored).document)), stored, PLACES)
    products = {stage: product(workdir, stage) for stage in STAGES}
    fixed: dict[str, list[str]] = {}
    for difference in differing:
        later = from_stage(stage_of(difference.partition(" ")[0]))
        made = next((products[stage] for stage in later if products[stage]), None)
        if made:
            fixed.setdefault(made, []).append(difference)
    if not fixed:
        return
    last = [stage for stage in STAGES if products[stage]][-1]
    free = [field for stage in from_stage(last)[1:] for field in STAGES[stage].fields]
    what = "; ".join(
        f"{made} was made with {', '.join(fields[:3])}{' and more' if len(fields) > 3 else ''}"
        for made, fields in fixed.items()
    )
    raise UserError(
        f"{workdir.root} belongs to another configuration (its config.json): {what}; take another --workdir or the "
        f"values marked 'there'. What may change here: {', '.join(free)}."
    )


def check_derived(workdir: Workdir, config: Settings, samples: int) -> None:
    """Raise UserError if the steps that `config` derives from epochs are not those with which training began.

    They differ if the size of the train part, now `samples`, has changed.
    """
    if not workdir.config.exists() or not (made := product(workdir, "training")):
        return
    stored = read_configuration(workdir)
    for name, (steps, _) in sections.epoch_fields(config).items():
        now, there = sections.field_at(config, steps), sections.field_at(stored, steps)
        if now != there and stage_of(steps):
            raise UserError(
                f"{workdir.split}: is another split than {made} was trained on: "
                f"{name}={sections.field_at(config, name)} "
                f"is {steps}={now} with its {samples} samples in the train part, expected {there}; restore the file "
                "or take another --workdir."
            )


def write_configuration(workdir: Workdir, document: Mapping[str, Any], places: Collection[str] = PLACES) -> None:
    """Write a configuration to `config.json`, unless the file is already identical; fields `places` hold paths."""
    text = to_json(portable(json.loads(to_json(document)), workdir.root, places))
    if not workdir.config.exists() or workdir.config.read_bytes() != text.encode():
        write_text(workdir.config, text)


def forget(workdir: Workdir) -> None:
    """Remove `config.json` of a run that failed, unless a stage of the run has made a file."""
    if not any(product(workdir, stage) for stage in STAGES):
        remove(workdir.config)


def product(workdir: Workdir, stage: str) -> str | None:
    """Return the name of the first file that a stage has made in the workdir; None if it has made none."""
    paths = (path for pattern in STAGES[stage].products for path in sorted(workdir.root.glob(pattern)))
    finished = (path for path in paths if "tmp" not in path.name)  # names of unfinished orbax checkpoints contain "tmp"
    return next((str(path.relative_to(workdir.root)) for path in finished), None)
