"""Sections of the configuration as frozen dataclasses with fields `name: Annotated[TYPE, RANGE]`, and the ranges."""

import codecs
import dataclasses
import itertools
import json
import math
import numbers
import re
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, TypeVar

from ml_collections import ConfigDict

from eeg2text_jax.base.stores.buckets import is_address

MOST = 2**31 - 1  # largest count that int32 holds
ELSEWHERE = re.compile(r"^[a-z][a-z0-9+.-]*://", re.IGNORECASE)  # gs://, s3://, https://, file://


@dataclasses.dataclass(frozen=True)
class Range:
    holds: Callable[[Any], bool]
    expected: str  # ends the sentence "FIELD is VALUE; expected ..."
    is_place: bool = False  # whether values may be paths


Section = TypeVar("Section")


def ranges_of(section: type, prefix: str = "") -> dict[str, Range]:
    """Return the range of each field of a section, and of sections in it, by dotted name."""
    ranges: dict[str, Range] = {}
    for name, hint in typing.get_type_hints(section, include_extras=True).items():
        if dataclasses.is_dataclass(hint):
            ranges |= ranges_of(typing.cast(type, hint), f"{prefix}{name}.")
        elif hasattr(hint, "__metadata__"):
            ranges[f"{prefix}{name}"] = hint.__metadata__[0]
    return ranges


def read_section(section: type[Section], values: Mapping[str, Any]) -> Section:
    """Make a section of the values of its fields; lists become tuples, unknown fields are ignored."""
    hints = typing.get_type_hints(section)
    return section(**{name: _frozen(values[name], hint) for name, hint in hints.items()})


def _frozen(value: Any, hint: Any) -> Any:
    if dataclasses.is_dataclass(hint):
        return read_section(typing.cast(type, hint), value)
    if isinstance(value, ConfigDict):
        return value.to_dict()
    return tuple(_frozen(entry, None) for entry in value) if isinstance(value, list | tuple) else value


def plain(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return a configuration as in `config.json`: nested dicts, lists for tuples."""
    return json.loads(ConfigDict(fields).to_json_best_effort())


def whole(low: int, high: int = MOST) -> Range:
    return Range(
        lambda value: isinstance(value, numbers.Integral) and not isinstance(value, bool) and low <= int(value) <= high,
        f"a whole number from {low} to {high}",
    )


def encoding() -> Range:
    def holds(value: Any) -> bool:
        try:
            return isinstance(value, str) and (not value or bool(codecs.lookup(value)))
        except (LookupError, ValueError):
            return False

    return Range(holds, "the name of an encoding, such as latin1")


def number(low: float, high: float, *, above: bool = False, below: bool = False) -> Range:
    """A finite number from `low` to `high`; `above` excludes `low`, `below` excludes `high`."""

    def holds(value: Any) -> bool:
        if not isinstance(value, numbers.Real) or isinstance(value, bool) or not math.isfinite(value):
            return False
        real = float(value)
        return (low < real if above else low <= real) and (real < high if below else real <= high)

    return Range(holds, f"a number {'above' if above else 'from'} {low:g} {'and below' if below else 'to'} {high:g}")


def flag() -> Range:
    return Range(lambda value: isinstance(value, bool), "True or False")


def one_of(*names: str) -> Range:
    listed = ", ".join(name or "'' (empty)" for name in names)
    return Range(lambda value: isinstance(value, str) and value in names, f"one of {listed}")


def text(*, empty: bool = True) -> Range:
    """One line of text, perhaps `empty`."""
    return Range(
        lambda value: isinstance(value, str) and value.isprintable() and (empty or bool(value.strip())),
        "a line of text or ''" if empty else "a line of text, not an empty one",
    )


def place(*, empty: bool = True, local: bool = False) -> Range:
    """A path, a Hub name or, unless `local`, a bucket URL."""
    line = text(empty=empty)
    expected = "a path of this machine" if local else "a path, or gs://BUCKET/PATH, or s3://BUCKET/PATH"

    return Range(
        lambda value: line.holds(value) and (not ELSEWHERE.match(value) or (not local and is_address(value))),
        f"{expected}{', or empty text' if empty else ''}",
        is_place=True,
    )


def _tuple_of(
    of: Range, least: int, most: int, expected: str, fits: Callable[[Sequence[Any]], bool] = lambda entries: True
) -> Range:
    """A sequence of `least` to `most` values that are each valid for `of` and together satisfy `fits`."""

    def holds(value: Any) -> bool:
        is_sized = isinstance(value, tuple | list) and least <= len(value) <= most
        return is_sized and all(map(of.holds, value)) and fits(value)

    return Range(holds, expected)


def many(of: Range, *, least: int = 1) -> Range:
    """A sequence of at least `least` distinct values."""

    def are_distinct(entries: Sequence[Any]) -> bool:
        return len({tuple(entry) if isinstance(entry, list) else entry for entry in entries}) == len(entries)

    number = f"at least {least}" if least else "any number of"
    return _tuple_of(of, least, MOST, f"a tuple of {number} different entries, each {of.expected}", are_distinct)


def pair(of: Range) -> Range:
    return _tuple_of(of, 2, 2, f"a tuple of two entries, each {of.expected}")


def grid() -> Range:
    """Voxels along the three axes of a volume."""
    return _tuple_of(whole(1, 4096), 3, 3, "a tuple of three whole numbers from 1 to 4096, as (64, 64, 27)")


def is_nested(buckets: Sequence[Sequence[int]]) -> bool:
    """Return whether each bucket (words, tokens) is larger than the one before, neither number smaller."""
    ordered = list(map(tuple, buckets))
    return all(a != b and a[0] <= b[0] and a[1] <= b[1] for a, b in itertools.pairwise(ordered))


def buckets() -> Range:
    """Batch shapes (words, tokens), each larger than the one before; a partial batch moves to the next shape."""
    expected = (
        "pairs (EEG positions, target tokens) of whole numbers from 1 to 100000, in each pair neither number "
        "smaller than in the pair before it, as ((16, 24), (56, 56))"
    )
    return _tuple_of(pair(whole(1, 100_000)), 1, MOST, expected, is_nested)


def with_pairs(argument: str) -> str:
    """Replace `16:24,56:56` of `--config.batch.buckets=...` by a tuple of pairs."""
    name, _, value = argument.partition("=")
    if name != "--config.batch.buckets" or not re.fullmatch(r"\d+:\d+(,\d+:\d+)*", value):
        return argument
    return f"{name}=({''.join(f'({pair}),' for pair in value.split(',')).replace(':', ',')})"


def channels() -> Range:
    """Channels, or strides, of successive layers."""
    one = whole(1, 100_000)
    return _tuple_of(one, 1, 20, f"a tuple of at least one entry, each {one.expected}")


def bands() -> Range:
    expected = "pairs of frequencies above 0 Hz, the second above the first, as ((4, 8), (8, 13))"
    one = pair(number(0, 100_000, above=True))
    return _tuple_of(one, 1, MOST, expected, lambda entries: all(low < high for low, high in entries))


def span() -> Range:
    """`START:END`, a first and a last training step, or empty."""

    def holds(value: Any) -> bool:
        match = re.fullmatch(r"([1-9]\d{0,8}):([1-9]\d{0,8})", value) if isinstance(value, str) else None
        return value == "" or (match is not None and int(match[1]) <= int(match[2]))

    return Range(holds, "the first and the last step with a colon between, as '10:12', or ''")


def tracker() -> Range:
    """`TRACKER` or `TRACKER:PROJECT`, or empty."""

    return Range(
        lambda value: isinstance(value, str) and bool(re.fullmatch(r"|(wandb|trackio)(:[\w.-]{1,100})?", value)),
        "wandb or trackio, optionally with :PROJECT at the end, or ''",
    )


def shares() -> Range:
    """The shares of samples in train, dev and test."""
    expected = "three shares above 0 (train, dev, test) that add up to 1, as (0.8, 0.1, 0.1)"
    return _tuple_of(number(0, 1, above=True), 3, 3, expected, lambda entries: abs(sum(entries) - 1) <= 1e-6)


def settings() -> Range:
    def holds(value: Any) -> bool:
        is_named = isinstance(value, ConfigDict | dict) and all(isinstance(name, str) for name in value)
        return is_named and all(map(_is_plain, value.values()))

    return Range(holds, "names with plain finite values, fields of the backbone's Hugging Face configuration")


def _is_plain(value: Any) -> bool:
    if isinstance(value, tuple | list):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, str | bool | int) or (isinstance(value, float) and math.isfinite(value))


@dataclasses.dataclass(frozen=True)
class DevicesSettings:
    """Section `parallel` of a judge's configuration."""

    arms: Annotated[str, one_of("auto", "vmap", "map")]
    mesh: Annotated[tuple[int, int], pair(whole(0, 1_000_000))]
    fsdp: Annotated[bool, flag()]


@dataclasses.dataclass(frozen=True)
class ParallelSettings(DevicesSettings):
    """Section `parallel` of a run's configuration."""

    tensor_parallel: Annotated[bool, flag()]
    wave: Annotated[int, whole(0, 1_000_000)]
    hosts: Annotated[str, one_of("one", "auto", "env")]
    startup: Annotated[int, whole(1, 86_400)]
    heartbeat: Annotated[int, whole(2, 3_600)]
