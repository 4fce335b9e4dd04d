"""Valid values of every configuration field, and `check_config`, which checks them all.

`check_config` runs whenever a configuration is read, from the command line or from Python, before any work. A test
compares the fields of `configs/default.py` with `RANGES`.
"""

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from ml_collections import ConfigDict

from eeg2text_jax.errors import UserError, did_you_mean
from eeg2text_jax.kinds import Range, ranges_of
from eeg2text_jax.study.sections import Settings, read_settings
from eeg2text_jax.study.together import TOGETHER

RANGES = ranges_of(Settings)  # in the order of configs/default.py


# Fields of version 0.1 -> their current names.
RENAMED = {"optim.free": "optim.trainable", "decode.halvings": "decode.compactions"}


def check_config(config: ConfigDict, sections: Collection[str] = (), ranges: Mapping[str, Range] | None = None) -> None:
    """Check every field on its own and in combination; with `sections`, only these top-level sections.

    Pass `ranges` for a configuration that does not derive from `configs/default.py`.

    Raises:
      UserError: a field is missing, unknown, of another type or out of its range; the message names the field, its
        value and what was expected.
    """
    if ranges is not None:
        _check_fields(config, ranges, list(ranges))
        return
    found = dict(fields(config))
    for name in found.keys() & RENAMED.keys():
        raise UserError(f"{name} is called {RENAMED[name]} now; rename it in the configuration.")
    known = [name for name in RANGES if not sections or name.partition(".")[0] in sections]
    _check_fields(config, RANGES, known)
    _check_together(config, sections)


def checked_settings(config: ConfigDict) -> Settings:
    """Return the settings of a configuration; raise a UserError as `check_config` does."""
    check_config(config)
    return read_settings(config)


def _check_fields(config: ConfigDict, ranges: Mapping[str, Range], known: Collection[str]) -> None:
    found = dict(fields(config))
    for name in known:
        if name not in found:
            home = "configs/default.py" if ranges is RANGES else "configs/judge.py"
            raise UserError(f"{name} is missing in the configuration; begin yours from {home}.")
        if not ranges[name].holds(found[name]):
            raise refusal(name, found[name], ranges)
    for name in found:
        if name not in ranges and not name.startswith("decode."):
            raise UserError(f"{name}: there is no such field; {did_you_mean(name, ranges)}")


def refusal(name: str, value: Any, ranges: Mapping[str, Range] | None = None) -> UserError:
    """Return the error for a value out of its range."""
    plain = value.to_dict() if isinstance(value, ConfigDict) else value
    return UserError(f"{name} is {shortly(plain)}; expected {(ranges or RANGES)[name].expected}.")


def fields(config: ConfigDict, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the dotted name and value of every field; `model.shape` is one field."""
    for name, value in config.items():
        dotted = f"{prefix}{name}"
        if isinstance(value, ConfigDict) and dotted not in RANGES:
            yield from fields(value, f"{dotted}.")
        else:
            yield dotted, value


def notes(config: Settings) -> list[str]:
    """Return notes on settings that a run will not follow literally."""
    found = []
    stages: list[tuple[str, str, Any, int]] = [("optim", "train", config.optim, config.train.steps)]
    stages += [("optim", "step_one", config.optim, config.step_one.steps)]
    if config.pretrain.enabled:
        own = {"pretrain.snapshot": config.pretrain.snapshot, "pretrain.series": config.pretrain.series}
        stages += [(name, name, section, section.steps) for name, section in own.items()]
    for section, counted, rates, steps in stages:
        if steps and rates.warmup_steps > steps // 2:
            found.append(
                f"{section}.warmup_steps is {rates.warmup_steps}, more than half of {counted}.steps ({steps}): "
                f"the warm-up is cut to {steps // 2} steps."
            )
    return found


def _check_together(config: ConfigDict, sections: Collection[str]) -> None:
    for name, check in TOGETHER.items():
        if (not sections or name in sections) and (problem := check(config)):
            raise UserError(problem)


def shortly(value: Any) -> str:
    shown = repr(value)
    return shown if len(shown) <= 80 else f"{shown[:77]}..."
