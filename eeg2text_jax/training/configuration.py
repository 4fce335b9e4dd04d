"""Parse the command line (`--config=NAME --config.section.field=value ...`) into a configuration."""

import argparse
import ast
import dataclasses
import re
import runpy
import sys
import textwrap
import types
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from absl import flags
from ml_collections import ConfigDict, config_flags

from eeg2text_jax.base.errors import UserError, did_you_mean, first_line, named, nearest
from eeg2text_jax.base.kinds import Range, with_pairs
from eeg2text_jax.instrument.workdir import REMOVED, RENAMED
from eeg2text_jax.training.sections import RANGES, Settings, check_config, checked_settings, field_at, refusal

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
    name = "judge" if command == "judge" else "default"
    described = meanings(name)
    shown = [(f"--{option}", OPTIONS[option]) for option in ("config", *options)]
    fields = [(f"--config.{field}", "{1} (default {0})".format(*described[field])) for field in MOST_USED[command]]
    listed = [f"options:\n{_listed(shown)}", f"fields used most:\n{_listed(fields)}"]
    every = f"Every field: `eeg2text configs show {name}`. Configurations: `eeg2text configs`."
    return "\n\n".join([usage, ABOUT[command], *listed, every])


def meanings(name: str) -> dict[str, tuple[str, str]]:
    """Return field -> (default, meaning) of a shipped configuration, from its source text and comments."""
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
    """A parsed command line."""

    config: ConfigDict
    settings: Settings | None  # None for commands that read some sections alone
    options: dict[str, str]
    positional: list[str]


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
    """Parse and check the arguments of a command that takes `--config`; every mistake is a UserError.

    `options` are required; an absent `optional` one is "", one of `switches` is "yes" or "". `default` is the
    configuration without `--config`; "": it is required. `positional` names positional arguments in messages; "": there
    are none. `sections` are those that the command reads (empty: all), `ranges` those of a judge.
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
    for argument in argv:
        name = argument.removeprefix("--").partition("=")[0]
        near = nearest(name, ["config", *options, *optional, *switches], 0.6)
        if argument.startswith("--") and not name.startswith("config.") and near not in (None, name):
            raise UserError(f"--{name}: there is no such option; did you mean --{near}?")
    switched = {name: "yes" if f"--{name}" in argv else "" for name in switches}
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--config", nargs="?", default=default)
    parsed, argv = parser.parse_known_args([each for each in argv if each.removeprefix("--") not in switches])
    if not parsed.config:
        raise UserError(f"--config is missing; {usage}")
    config = load_config(parsed.config)
    for argument in argv:
        _check_override(config, argument)
    argv = [with_pairs(argument) for argument in _last_of_each(config, argv)]
    values, usual = flags.FlagValues(), type(config)
    object.__setattr__(config, "__class__", _ShortText)
    try:
        config_flags.DEFINE_config_dict("config", config, flag_values=values, sys_argv=[command, *argv])
    finally:
        object.__setattr__(config, "__class__", usual)
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
    given = {argument.removeprefix("--config.").partition("=")[0] for argument in argv}
    settings = None if sections or ranges else checked_settings(config, given)
    if settings is None:
        check_config(config, sections, ranges, given)
    chosen = switched | {name: values[name].value for name in (*options, *optional)}
    return Arguments(config, settings, chosen, list(rest))


class _ShortText(ConfigDict):
    """A configuration with a short text: absl makes the text of every flag's default, and YAML would take 0.16 s."""

    def __str__(self) -> str:
        return "the configuration"


def load_config(place: str) -> ConfigDict:
    """Return the configuration of a file, or a name in the package, locked against new fields; UserError if it fails.

    `:ARGUMENT` at the end is for its `get_config`: `demo:null`.
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
        if bare and not isinstance(field_at(config, argument.removeprefix("--config.")), bool):
            argument = f"{argument}={next(rest, '')}"
        joined.append(argument)
    last = {argument.partition("=")[0]: i for i, argument in enumerate(joined) if argument.startswith("--config.")}
    return [argument for i, argument in enumerate(joined) if last.get(argument.partition("=")[0], i) == i]


def _parsing_error(error: Exception, usage: str, ranges: Mapping[str, Range]) -> UserError:
    reason = first_line(error)
    if match := re.match(r"flag --config\.([\w.]+)=(.*?): ", reason):
        name, value = match.groups()
        if name in ranges:
            return refusal(name, value, ranges)
        return UserError(f"--config.{name} is {value!r}; expected a value of the same type as the default.")
    return UserError(f"{reason.rstrip('.')}; {usage}")


def _check_override(config: ConfigDict, argument: str) -> None:
    """Refuse an argument that names no field, and a field without `--config.`."""
    if not argument.startswith("--config."):
        match = re.match(r"-{0,2}((\w+)[.]\w[\w.]*)=", argument)
        if match and match[2] in config:
            raise UserError(
                f"{match[0].rstrip('=')}: fields of the configuration begin with --config, --config.{match[1]}=..."
            )
        return
    node: Any = config
    path = ""
    for name in argument.removeprefix("--config.").split("=")[0].split("."):
        dotted = f"{path}.{name}" if path else name
        if not isinstance(node, ConfigDict):
            raise UserError(f"--config.{dotted}: `{path}` is a value, it has no fields.")
        if name not in node:
            if renamed := RENAMED.get(dotted):
                raise UserError(f"--config.{dotted} is called --config.{renamed} now.")
            if why := REMOVED.get(dotted):
                raise UserError(f"--config.{dotted}: is gone since version 1.0; {why}; leave it out.")
            names = [f"{path}.{other}" if path else other for other in node]
            if path:  # another section may have it
                names += [field for field in RANGES if name in (field.partition(".")[2], field.replace(".", "_"))]
            hint = did_you_mean(dotted, names) if names else "this section is empty."
            if path == "model.shape":  # transformers defines the fields of this section
                hint += f" Write it into a configuration file of yours: `c.model.shape = {{{name!r}: ...}}`."
            raise UserError(f"--config.{dotted}: there is no such field; {hint}")
        node, path = node.get(name), dotted


# The package's configurations are in `configs/` of a clone and `eeg2text_jax/configs/` of a wheel. Any configuration
# file can `from configs import default`; a folder `configs` beside the file goes first.


def configs_folder() -> Path:
    """Return the folder of the package's configurations."""
    here = Path(__file__).parents[1]
    return next((place for place in (here / "configs", here.parent / "configs") if place.is_dir()), here / "configs")


def shipped() -> dict[str, Path]:
    """Return the package's configurations by name, in alphabetical order."""
    paths = {path.stem: path for path in sorted(configs_folder().glob("*.py"))}
    return {name: path for name, path in paths.items() if name.isidentifier() and name != "arguments"}


def summary(path: Path) -> str:
    """Return the first sentence of a configuration's docstring, without its full stop."""
    about = ast.get_docstring(ast.parse(path.read_text(encoding="utf8"))) or ""
    return " ".join(about.partition("\n\n")[0].split()).removesuffix(".")


def find_config(name: str) -> Path:
    """Return the path of the user's file `name`, or of the package's; UserError if neither exists."""
    path, paths = Path(name), shipped()
    if path.is_file():
        return path
    if name in paths:
        return paths[name]
    travels = f"--config={path.stem} is in the package."
    raise UserError(
        f"{name}: there is no such configuration file; "
        f"{travels if path.stem in paths else did_you_mean(name, paths)} `eeg2text configs` lists all names."
    )


def run_config(path: Path) -> dict[str, Any]:
    """Execute a configuration file and return its global names; it can import `configs.NAME`."""
    folder, ours = path.resolve().parent, configs_folder()
    package = types.ModuleType("configs")
    places = [folder if folder.name == "configs" else folder / "configs", ours]
    package.__path__ = [str(place) for place in places if place.is_dir()]
    # Only a user's file may import modules from the folder above it.
    above = [] if folder == ours.resolve() else [str(folder.parent)]
    before = {name: sys.modules.pop(name) for name in _modules()}
    sys.modules["configs"] = package
    sys.path[:0] = above
    try:
        return runpy.run_path(str(path))
    finally:
        for place in above:
            sys.path.remove(place)
        for name in _modules():
            del sys.modules[name]
        sys.modules.update(before)


def _modules() -> list[str]:
    return [name for name in list(sys.modules) if name == "configs" or name.startswith("configs.")]
