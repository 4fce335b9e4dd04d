"""Parse the command line (`--config=NAME --config.section.field=value ...`) into a configuration."""

import argparse
import contextlib
import dataclasses
import functools
import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from absl import flags
from ml_collections import ConfigDict, config_flags

from eeg2text_jax.errors import UserError, did_you_mean, first_line, named
from eeg2text_jax.kinds import Range, with_pairs
from eeg2text_jax.study import lengths
from eeg2text_jax.study.option_help import check_options, check_prefix, help_text
from eeg2text_jax.study.places import RENAMED, is_same_place, stored_digest
from eeg2text_jax.study.ranges import RANGES, check_config, refusal, shortly
from eeg2text_jax.study.sections import Settings, read_settings
from eeg2text_jax.study.shipped import find_config, run_config


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
    given = {name: "yes" if f"--{name}" in argv else "" for name in switches}
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--config", nargs="?", default=default)
    known, argv = parser.parse_known_args([each for each in argv if each.removeprefix("--") not in switches])
    if not known.config:
        raise UserError(f"--config is missing; {usage}")
    config = load_config(known.config)
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
    return Arguments(config, given | {name: values[name].value for name in (*options, *optional)}, list(rest))


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
    for name, (steps, _) in lengths.declared(config).items():
        if any(re.match(rf"--config\.{re.escape(steps)}(=|$)", argument) for argument in argv):
            raise UserError(
                f"--config.{steps}: is not used, as {name} is {lengths.field(config, name)} and sets the number of "
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
        if bare and not isinstance(lengths.field(config, argument.removeprefix("--config.")), bool):
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
        if name not in node:
            known = [".".join([*path, other]) for other in node]
            hint = did_you_mean(".".join([*path, name]), known) if known else "this section is empty."
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

    Paths in the fields `places` may have been moved, see `places.is_same_place`.
    """
    found = []
    for name in sorted(ours.keys() | theirs.keys()):
        a, b = ours.get(name), theirs.get(name)
        if isinstance(a, dict) and isinstance(b, dict):
            found += differences(a, b, places, f"{prefix}{name}.")
        elif a != b and not (f"{prefix}{name}" in places and is_same_place(a, b, f"{prefix}{name}")):
            there = f"there {shortly(b)}" if name in theirs else UNKNOWN
            found.append(f"{prefix}{name} (now {shortly(a)}, {there})")
    return found


def fields_digest(document: Mapping[str, Any], stage: str) -> str:
    """Return the hash of a configuration's fields for a stage, see `places.stored_digest`."""
    return stored_digest(json.loads(to_json(document)), stage)
